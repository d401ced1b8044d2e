"""Operands of contractions that are worth a pass over memory: padded, spread, crossed or computed.

    s0  sum over c k of x[h + k - 1, c] if [h + k - 1 >= 0] * w[c, k]
      ->  s0  map over c u    t[c, u] = x[u - 1, c] if [u - 1 >= 0]
          s1  sum over c k of t[c, h + k] * w[c, k]

An operand's indices are forms over the contraction's axes (here h + k). Where all that it reads
and tests are functions of a few forms that share no axis, each form becomes an axis of a map stage.
The contraction then reads scratch: no guards, and contiguous along its vector axis. A form that the
vector axis walks in steps of s is stored as s phases, each of them contiguous.

What another operand was guarded by, this one is 0 outside of: like a convolution over a padded
image, the contraction multiplies by those zeros (0 * inf is nan).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import gcd, prod

from tilewright.fusion.draft import Draft, Memory
from tilewright.fusion.maps import Index
from tilewright.fusion.pull import Puller
from tilewright.index import Expr, Sym, as_expr, const, symbols
from tilewright.index.expr import Quotient, Remainder
from tilewright.kernel.kernel import Store
from tilewright.kernel.reductions import make_state
from tilewright.kernel.value import Value, divides, index, load, make, postorder, rewrite, test
from tilewright.limits import Limits

BALANCE = 8  # floating-point operations in the time that one byte takes to or from memory
CROSSED = 4  # operations in the time that an element read across memory takes
TILE = 64  # elements along the free axes that a tile can be made of


def worth_storing(points: int, elements: int, work: int, itemsize: int) -> bool:
    """Return whether a pass over memory (written, read again) beats `work` operations a point."""
    return points * work > elements * 2 * itemsize * BALANCE


@dataclass(frozen=True)
class Form:
    """One dimension of a stored operand: ``body`` over the contraction's axes, in low..low+size-1.

    `axis` walks it in the map stage; in `phases` (more than 1) it is stored as [phase, rest].
    """

    body: Expr
    low: int
    size: int
    phases: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        if self.phases == 1:
            return (self.size,)
        return (self.phases, -(-self.size // self.phases))

    def where(self) -> tuple[Expr, ...]:
        """Return the index at which the contraction reads."""
        at = self.body - self.low
        return (at,) if self.phases == 1 else (at % self.phases, at // self.phases)


class Operand:
    """One factor of a contraction, seen as a function of forms."""

    def __init__(self, puller: Puller, value: Value, free: set[str], other: Value):
        self.value, self.free = value, free
        self.values = postorder([value])
        kept = {id(g) for v in postorder([other]) if v.op == "load" for g in v.args}
        self.loads = [v for v in self.values if v.op == "load"]
        self.guards = {id(g): g for v in self.loads for g in v.args}
        self.forms: list[Form] = []
        self.left: set[int] = set()  # guards that only the other factor can keep
        self.known = bool(self.loads) and all(id(v) in puller.places for v in self.loads)
        if self.known:
            places = [puller.places[id(v)] for v in self.loads]
            self.known = self._find_forms(sorted(places, key=len, reverse=True)) \
                and all(self.covers(v) or id(v) in kept for v in self.values)
            self.left = {id(v) for v in self.values if self.known and not self.covers(v)}
            self.guards = {n: g for n, g in self.guards.items() if n not in self.left}

    def _find_forms(self, places: list[tuple[Expr, ...]]) -> bool:
        bodies: list[Expr] = []
        for place in places:
            for expr in place:
                body = _body(expr)
                if body.terms and body not in bodies:
                    bodies.append(body)
        names = [s.name for body in bodies for s in symbols(body)]
        linear = all(isinstance(body.terms[0][0], Sym) for body in bodies)
        if not bodies or not linear or len(set(names)) < len(names):
            return False
        self.forms = [Form(b, b.lo, b.hi - b.lo + 1) for b in bodies]
        return True

    def covers(self, value: Value) -> bool:
        """Return whether the value's own index expressions are functions of the forms."""
        return all(self.express(e, [f.body for f in self.forms]) is not None
                   for e in own_expressions(value))

    def express(self, expr: Expr, bodies: list[Expr]) -> Expr | None:
        """Return `expr` with each form replaced by its counterpart; None if that cannot be."""
        result, rest = const(expr.const), expr - expr.const
        for form, body in zip(self.forms, bodies):
            atom, coef = form.body.terms[0]
            factor, odd = divmod(rest.coefficient(atom), coef)
            if factor and not odd:
                rest = rest - form.body * factor
                result = result + body * factor
        for atom, coef in rest.terms:
            if not isinstance(atom, (Quotient, Remainder)):
                return None
            inner = self.express(atom.body, bodies)
            if inner is None:
                return None
            divided = inner // atom.divisor if isinstance(atom, Quotient) else inner % atom.divisor
            result = result + divided * coef
        return result

    @property
    def windows(self) -> bool:
        """Whether one element is read at several points: some form has two axes."""
        return any(len(f.body.terms) > 1 for f in self.forms)

    def shared(self, draft: Draft, sizes: dict[str, int]) -> set[str]:
        """Return the free axes to walk in one loop with the contraction, part by part.

        Outermost first, while enough of its free axes is left for a tile.
        """
        left = prod(sizes[s.name] for f in self.forms for s in symbols(f.body)
                    if s.name in self.free)
        found = set()
        for form in self.forms:
            axis = _alone(form, draft.free)
            if axis is not None and left >= TILE * sizes[axis.name]:
                left //= sizes[axis.name]
                found.add(axis.name)
        return found

    def lay(self, unit: set[str]) -> bool:
        """Put the form of the vector axis last, in phases; return whether it was otherwise."""
        for place, form in enumerate(self.forms):
            mine = [(atom, c) for atom, c in form.body.terms
                    if isinstance(atom, Sym) and atom.name in unit & self.free]
            steps = [abs(c) for _, c in mine]
            if steps and self.windows:
                (load, *_) = self.loads
                across = any(abs(load.data[1][0].coefficient(atom)) != 1 for atom, _ in mine)
                phases = min(steps[0], form.size)
                last = Form(form.body, form.low, form.size, phases)
                self.forms = [*self.forms[:place], *self.forms[place + 1:], last]
                return across
        return False


def own_expressions(value: Value) -> list[Expr]:
    """Return the index expressions that a value holds itself."""
    if value.op == "load":
        return list(value.data[1])
    if value.op in ("index", "test"):
        return [value.data]
    return [value.data[0]] if value.op == "divides" else []


def _body(expr: Expr) -> Expr:
    """Return the form that an index depends on: no constant, common factor or division."""
    while True:
        expr = expr - expr.const
        if len(expr.terms) != 1 or not isinstance(expr.terms[0][0], (Quotient, Remainder)):
            break
        expr = expr.terms[0][0].body
    if not expr.terms:
        return expr
    common = gcd(*(c for _, c in expr.terms))
    return Expr(tuple((a, c // common) for a, c in expr.terms), 0)


def store_operands(puller: Puller, limits: Limits) -> None:
    """Give operands of the contractions among the drafts a stage of their own where that pays."""
    memory = puller.memory
    unit = {atom.name for d in puller.drafts for s in d.stores
            if memory[s.buffer].kind == "output" for atom, coef in s.index[0].terms
            if coef == 1 and isinstance(atom, Sym)
            and _fills(atom.hi + 1, limits.lanes(s.value.dtype.itemsize))}
    for draft in list(puller.drafts):
        if draft.state is None or draft.state.name != "sum" or draft.carry:
            continue
        body = draft.state.update[0].args[1]
        if body.op != "multiply" or not body.dtype.is_float:
            continue
        for place in (0, 1):
            _consider(puller, draft, place, unit, limits)


def _consider(puller: Puller, draft: Draft, place: int, unit: set[str], limits: Limits) -> None:
    """Store one factor of a contraction, if it can be and that pays."""
    factors = list(draft.state.update[0].args[1].args)  # type: ignore[union-attr]
    sizes = puller.axes.sizes
    used = [{s.name for v in postorder([f]) for e in own_expressions(v) for s in symbols(e)}
            for f in factors]
    sided = set(draft.free) - used[1 - place] if not _guarded(factors) else set(draft.free)
    operand = Operand(puller, factors[place], sided, factors[1 - place])
    if not operand.known or 0 in (f.size for f in operand.forms):
        return
    crossed = operand.lay(unit)
    shared = operand.shared(draft, sizes)
    points = prod(sizes[a] for a in (*draft.free, *draft.reduce))
    elements = prod(f.size for f in operand.forms)
    itemsize = operand.value.dtype.itemsize
    work = len(operand.guards) + CROSSED * crossed
    if not worth_storing(points, elements, work, itemsize) \
            or elements // prod(sizes[a] for a in shared) * itemsize * 2 > limits.scratch_bytes:
        return
    other = factors[1 - place]
    factors[place] = _stored(puller, draft, operand, shared)
    factors[1 - place] = _without(other, operand, puller.places)
    draft.state = make_state("sum", [make("multiply", tuple(factors), other.dtype)])


def _fills(size: int, lanes: int) -> bool:
    """Return whether vectors along an axis waste at most a quarter of their lanes."""
    return size * 4 >= -(-size // lanes) * lanes * 3


def _guarded(factors: list[Value]) -> bool:
    return all(any(v.args for v in postorder([f]) if v.op == "load") for f in factors)


def _alone(form: Form, names: Collection[str]) -> Sym | None:
    """Return the axis that a form is, if it is just one of `names`."""
    ((atom, coef), *more) = form.body.terms
    if more or coef != 1 or form.phases != 1 or not isinstance(atom, Sym):
        return None
    return atom if atom.name in names else None


def _stored(puller: Puller, draft: Draft, operand: Operand, shared: set[str]) -> Value:
    """Make the map stage of an operand before the contraction; return what is read instead."""
    axes = puller.axes
    name = f"tmp{len(puller.memory)}"
    shape: list[int] = []
    walked: list[Expr] = []
    read: list[Expr] = []
    bodies: list[Expr] = []
    tails: list[Value] = []
    for form in operand.forms:
        shape += form.shape
        read += form.where()
        same = _alone(form, shared)
        if same is not None:
            made = [as_expr(same)]
        else:
            made = [_axis(axes, n) for n in form.shape]
        walked += made
        at = made[0] if form.phases == 1 else made[1] * form.phases + made[0]
        bodies.append(at + form.low)
        if form.phases > 1 and form.size % form.phases:
            tails.append(test(-at + (form.size - 1)))
    (value,) = rewrite([operand.value], _Moved(operand, bodies, tails))
    puller.memory[name] = Memory(name, "scratch", value.dtype, tuple(shape))
    stage = Draft(axes.names(walked), [Store(name, tuple(walked), value)], apart=True)
    puller.drafts.insert(puller.drafts.index(draft), stage)
    return load(name, tuple(read), value.dtype)


def _axis(axes, extent: int) -> Expr:
    """Make a kernel axis."""
    if extent == 1:
        return const(0)
    name = f"x{len(axes.sizes)}"
    axes.sizes[name] = extent
    return as_expr(Sym(name, 0, extent - 1))


class _Moved:
    """Moves an operand from the contraction's axes to those of its own stage."""

    def __init__(self, operand: Operand, bodies: list[Expr], tails: list[Value]):
        self.operand, self.bodies, self.tails = operand, bodies, tuple(tails)

    def expr(self, old: Expr) -> Expr:
        found = self.operand.express(old, self.bodies)
        assert found is not None
        return found

    def __call__(self, value: Value, args: tuple[Value, ...]) -> Value | None:
        if value.op == "load":
            buffer, where = value.data
            kept = [a for g, a in zip(value.args, args) if id(g) not in self.operand.left]
            guards = tuple(g for g in (*kept, *self.tails) if g.op != "const")
            return load(buffer, tuple(map(self.expr, where)), value.dtype, guards)
        if id(value) in self.operand.left:
            return value
        if value.op == "index":
            return index(self.expr(value.data))
        if value.op == "test":
            return test(self.expr(value.data))
        if value.op == "divides":
            return divides(self.expr(value.data[0]), value.data[1])
        return None


def _without(value: Value, operand: Operand, places: dict[int, Index]) -> Value:
    """Return the other factor without the guards outside of which the operand is 0 by itself."""
    zero = operand.guards if operand.value.op in ("load", "cast") else {}

    def leaf(old: Value, args: tuple[Value, ...]) -> Value | None:
        if old.op != "load" or not old.args:
            return None
        guards = tuple(g for g in old.args if id(g) not in zero)
        new = load(old.data[0], old.data[1], old.dtype, guards)
        if id(old) in places:
            places[id(new)] = places[id(old)]
        return new
    return rewrite([value], leaf)[0]
