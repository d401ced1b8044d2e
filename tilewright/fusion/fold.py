"""Sums of which at most one term is not 0 lose their axis, or most of its steps.

    sum_k where(d divides r - k, x[k], 0)  ->  x[r mod d]                       for k in 0..d-1
                                           ->  sum_j x[(r mod d) + d*j]         for more of k
    sum_k where(k == v, x[k], 0)           ->  where(0 <= v < n, x[v], 0)       v does not use k

The first comes of the gradients of pooling and of strided convolutions, the last of one-hot
patterns (a gather, written out). They are exact: the other terms are zeros, and the sum begins with
one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dtypes import bool_, int64
from tilewright.fusion.axes import Axes
from tilewright.fusion.draft import Draft
from tilewright.fusion.maps import Index
from tilewright.fusion.pull import zero_outside
from tilewright.index import Expr, Sym, as_expr, substitute, symbols
from tilewright.kernel.kernel import Let
from tilewright.kernel.reductions import make_state
from tilewright.kernel.value import (
    Value,
    const,
    const_number,
    divides,
    index,
    load,
    make,
    postorder,
    rewrite,
    test,
)


@dataclass
class Found:
    """What decides the only term: `axis` must be `where`, and `inside` must hold.

    `bounded` says that `where` is a position on the axis even where `inside` fails.
    """

    axis: Sym
    where: Expr
    bounded: bool
    inside: tuple[Value, ...]
    condition: Value  # true at that term
    left: Sym | None = None  # the axis that is left to sum over


def fold(drafts: list[Draft], axes: Axes, lets: dict[str, Let], places: dict[int, Index]) -> None:
    """Fold the sums among `drafts` in place; `lets` may grow, and `axes` be asked for splits.

    `places` holds per load where it reads its node, by dimension.
    """
    sizes = axes.sizes
    for draft in drafts:
        while draft.reduce and draft.state is not None and draft.state.name == "sum":
            body = draft.state.update[0].args[1]
            found = _find(draft, body, sizes, lets)
            if found is None:
                break
            axes.ask([found.where])
            if found.left is not None:
                axes.add(found.left)
            _replace(draft, body, found, places)


def _replace(draft: Draft, body: Value, found: Found, places: dict[int, Index]) -> None:
    (body,) = rewrite([body], _Substitution(found, places))
    if not (found.inside and not found.bounded and zero_outside(body, found.inside)):
        for condition in found.inside:
            body = make("where", (condition, body, const(0, body.dtype)), body.dtype)
    left = {found.axis.name: (found.left.name,) if found.left is not None else ()}
    draft.reduce = tuple(name for a in draft.reduce for name in left.get(a, (a,)))
    if draft.reduce:
        draft.state = make_state("sum", [body])
        return
    assert draft.state is not None
    total = make("add", (draft.state.init[0], body), body.dtype)
    for n, store in enumerate(draft.stores):
        (value,) = rewrite([store.value],
                           lambda v, args: total if v.op == "state" else None)
        draft.stores[n] = type(store)(store.buffer, store.index, value, store.combine, store.guard)
    draft.state = None


def _find(draft: Draft, body: Value, sizes: dict[str, int], lets: dict[str, Let]) -> Found | None:
    behind = None
    for condition in _needed(body):
        if condition.op == "divides":
            found = _from_divides(condition, draft, sizes)
        elif condition.op == "equal":
            found = _from_equal(condition, draft, sizes, lets)
        else:
            continue
        if found is not None:
            behind = _through_lets([body], lets) if behind is None else behind
            if found.axis.name not in behind:  # a let would have to be made again
                return found
    return None


def _needed(value: Value) -> list[Value]:
    """Return conditions without which the value is 0."""
    found: list[Value] = []
    while True:
        if value.op == "where" and value.args[2].op == "const" and not const_number(value.args[2]):
            work = [value.args[0]]
            while work:
                condition = work.pop()
                if condition.op == "bitwise_and":
                    work += condition.args
                else:
                    found.append(condition)
            value = value.args[1]
        elif value.op in ("negative", "cast"):
            value = value.args[0]
        elif value.op == "multiply" and all(a.op == "load" for a in value.args):
            first, second = value.args  # 0 * 0 where neither is read
            return found + [g for g in first.args if any(g is other for other in second.args)]
        else:
            return found + list(value.args) if value.op == "load" else found


def _only(expr: Expr, draft: Draft, sizes: dict[str, int]) -> tuple[Sym, int, Expr] | None:
    """Return (axis, sign, rest) with ``expr = sign * axis + rest``, the axis a reduce axis."""
    for atom, coef in expr.terms:
        if isinstance(atom, Sym) and atom.name in draft.reduce and abs(coef) == 1:
            rest = expr - Expr(((atom, coef),), 0)
            if atom not in symbols(rest):
                return atom, coef, rest
    return None


def _from_divides(condition: Value, draft: Draft, sizes: dict[str, int]) -> Found | None:
    expr, divisor = condition.data
    while len(expr.terms) == 1 and not expr.const and expr.terms[0][1] == 1 \
            and getattr(expr.terms[0][0], "divisor", 0) == divisor:
        expr = expr.terms[0][0].body  # a remainder of the same divisor
    found = _only(expr, draft, sizes)
    if found is None:
        return None
    axis, sign, rest = found
    where, size, left = _affine((rest * -sign) % divisor), sizes[axis.name], None
    if size > divisor:
        if not all(_in_phases(atom, coef, divisor, sizes) for atom, coef in rest.terms):
            return None
        left = Sym(f"x{len(sizes)}", 0, -(-size // divisor) - 1)
        where = where + Expr(((left, divisor),), 0)
    fits = where.hi < size
    inside = () if fits else (test(-where + (size - 1)),)
    return Found(axis, where, fits, inside, condition, left)


def _affine(expr: Expr) -> Expr:
    """Return an expression of one axis of two steps as constant + slope * axis."""
    found = symbols(expr)
    if len(found) != 1:
        return expr
    (axis,) = found
    if (axis.lo, axis.hi) != (0, 1):
        return expr
    first, second = (substitute(expr, {axis: as_expr(n)}).const for n in (0, 1))
    return as_expr(axis) * (second - first) + first


def _in_phases(atom: object, coef: int, divisor: int, sizes: dict[str, int]) -> bool:
    """Return whether a term's remainder is, or can be made, an axis of its own."""
    return coef % divisor == 0 or isinstance(atom, Sym) and (
        sizes.get(atom.name, 1) == divisor or sizes.get(atom.name, 1) % divisor == 0)


def _from_equal(condition: Value, draft: Draft, sizes: dict[str, int],
                lets: dict[str, Let]) -> Found | None:
    for position, value in zip(condition.args, reversed(condition.args)):
        found = _only(position.data, draft, sizes) if position.op == "index" else None
        if found is None or value.dtype != int64:
            continue
        names = _symbols([value]) | _through_lets([value], lets)
        if not names.isdisjoint(draft.reduce):
            continue
        axis, sign, rest = found
        if any(s.name in draft.reduce for s in symbols(rest)):
            continue
        size = sizes[axis.name]
        if rest.terms or rest.const:
            value = make("subtract", (value, index(rest)), int64)
        if sign < 0:
            value = make("negative", (value,), int64)
        low = make("maximum", (value, const(0, int64)), int64)
        sym = Sym(f"g{len(lets)}", 0, max(size - 1, 0))
        lets[sym.name] = Let(sym, make("minimum", (low, const(size - 1, int64)), int64))
        inside = (make("less", (const(-1, int64), value), bool_),
                  make("less", (value, const(size, int64)), bool_))
        return Found(axis, Expr(((sym, 1),), 0), True, inside, condition)
    return None


def _symbols(roots: list[Value]) -> set[str]:
    """Return the names in every index expression under `roots`."""
    names: set[str] = set()
    for value in postorder(roots):
        if value.op == "load":
            exprs = value.data[1]
        elif value.op in ("index", "test"):
            exprs = (value.data,)
        elif value.op == "divides":
            exprs = (value.data[0],)
        else:
            continue
        names |= {s.name for e in exprs for s in symbols(e)}
    return names


def _through_lets(roots: list[Value], lets: dict[str, Let]) -> set[str]:
    """Return the names that the lets under `roots` need, and those lets."""
    found: set[str] = set()
    seen: set[str] = set()
    work = list(_symbols(roots))
    while work:
        name = work.pop()
        if name in lets and name not in seen:
            seen.add(name)
            more = _symbols([lets[name].value])
            found |= more
            work += more
    return found | seen


class _Substitution:
    """Puts the only term in place of the axis; conditions that became certain go."""

    def __init__(self, found: Found, places: dict[int, Index]):
        self.places = places
        self.mapping = {found.axis: found.where}
        self.condition = found.condition
        self.guards = () if found.bounded else found.inside
        self.true, self.false = const(True, bool_), const(False, bool_)

    def __call__(self, value: Value, args: tuple[Value, ...]) -> Value | None:
        if value is self.condition:
            return self.true
        if value.op == "load":
            if any(a is self.false for a in args):
                return const(0, value.dtype)
            buffer, where = value.data
            guards = tuple(a for a in args if a is not self.true)
            more = tuple(g for g in self.guards if not any(g is a for a in guards))
            result = load(buffer, tuple(substitute(e, self.mapping) for e in where), value.dtype,
                          guards + more)
            if id(value) in self.places:
                self.places[id(result)] = tuple(substitute(e, self.mapping)
                                                for e in self.places[id(value)])
            return result
        if value.op == "index":
            expr = substitute(value.data, self.mapping)
            return index(expr) if expr.terms else const(expr.const, int64)
        if value.op == "test":
            return test(substitute(value.data, self.mapping))
        if value.op == "divides":
            return divides(substitute(value.data[0], self.mapping), value.data[1])
        if value.op == "bitwise_and" and self.true in args:
            return args[1] if args[0] is self.true else args[0]
        if value.op == "where" and args[0].op == "const":
            return args[1] if args[0] is self.true else args[2]
        return None
