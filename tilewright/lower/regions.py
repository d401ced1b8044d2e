"""How much of each scratch buffer one place in the loop tree needs.

Scratch is declared over whole axes; what two stages hand over inside common loops is only the
region that one iteration of those loops touches. In each dimension their terms are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.actions.nest import Leaf, Loop, Nest, base, nominal
from tilewright.index import Expr, Sym, as_expr, const, substitute, symbols
from tilewright.kernel import Store
from tilewright.kernel.value import Value, postorder


@dataclass(frozen=True)
class Dimension:
    """One dimension of a region: ``index - sum(coef * loop) - low`` lies in 0..size-1."""

    drops: tuple[tuple[str, int], ...]
    low: int
    size: int


@dataclass(frozen=True)
class Region:
    """The memory of one scratch buffer; `common` names the loops around all that touch it."""

    dims: tuple[Dimension, ...]
    common: tuple[str, ...]

    @property
    def elements(self) -> int:
        total = 1
        for d in self.dims:
            total *= d.size
        return total

    def offset(self, where: tuple[Expr, ...], env: dict[str, Expr]) -> Expr:
        """Return the flat element offset of an index tuple, under the loops' current indices."""
        flat = const(0)
        for e, d in zip(where, self.dims):
            for loop, coef in d.drops:
                e = e - env[loop] * coef
            flat = flat * d.size + (e - d.low)
        return flat


def indices(nest: Nest, owner: str, env: dict[str, Expr]) -> dict[str, Expr]:
    """Return the index of every loop, part and axis around a leaf, under bound loops.

    An axis without loops, or whose loops are over, is missing.
    """
    known = {base(p.name): const(0) for p in nest.paths[owner] if nominal(nest, p.name) == 1}
    known |= env
    for step in nest.derived[owner]:
        if step.kind == "unit":
            known.setdefault(step.whole, const(0))
        elif step.kind == "merge" and step.whole in known:
            known[step.outer] = known[step.whole] // step.factor
            known[step.inner] = known[step.whole] % step.factor
        elif step.kind == "split" and step.outer in known and step.inner in known:
            known[step.whole] = known[step.outer] * step.factor + known[step.inner]
    return known


def axis_map(nest: Nest, owner: str, env: dict[str, Expr]) -> dict[Sym, Expr]:
    """Return the index of every axis of a leaf's stage under bound loops, 0 where it is missing."""
    return axes_of(nest, owner, indices(nest, owner, env))


def axes_of(nest: Nest, owner: str, known: dict[str, Expr]) -> dict[Sym, Expr]:
    """Return the axes' indices among those of a leaf's `indices`, 0 where one is missing."""
    return {nest.kernel.axis[a].sym: known.get(a, const(0)) for a in nest.stage_of(owner).axes()}


def nominal_env(nest: Nest, path: tuple[Loop, ...]) -> dict[str, Expr]:
    """Return a symbol of full range for every loop of a path."""
    return {base(loop.name): as_expr(Sym(base(loop.name), 0, max(nominal(nest, loop.name) - 1, 0)))
            for loop in path}


def users(nest: Nest, buffer: str) -> set[str]:
    """Return the leaves that touch a scratch buffer."""
    return {leaf for leaf, _ in _accesses(nest, buffer)}


def _accesses(nest: Nest, buffer: str):
    """Yield (leaf, index tuple) of every access to a scratch buffer."""
    for leaf in nest.derived:
        stage = nest.stage_of(leaf)
        if leaf in nest.copy:
            roots = [stage.operands[nest.copy[leaf].operand]]
            stores: tuple[Store, ...] = ()
        else:
            cut = {id(stage.operands[c.operand]) for c in nest.copies if c.stage == leaf}
            roots = [r for r in stage.roots() if id(r) not in cut]
            stores = stage.stores
        for value in postorder(roots):
            if value.op == "load" and value.data[0] == buffer:
                yield leaf, value.data[1]
        for store in stores:
            if store.buffer == buffer:
                yield leaf, store.index


def plan_region(nest: Nest, buffer: str) -> Region:
    """Return the region of a scratch buffer of the kernel."""
    found = []
    common: list[str] | None = None
    for leaf, where in _accesses(nest, buffer):
        path = nest.paths[leaf]
        names = [loop.name for loop in path if loop.kind not in ("vectorize", "interleave")]
        common = names if common is None else _prefix(common, names)
        env = nominal_env(nest, path)
        mapping = axis_map(nest, leaf, env)
        found.append([substitute(e, mapping) for e in where])
    shape = [int(e) for e in nest.kernel.buffer[buffer].shape]
    loops = tuple(base(n) for n in common or [])
    dims = tuple(dimension([f[d] for f in found], loops, shape[d]) for d in range(len(shape)))
    return Region(dims, tuple(common or []))


def _prefix(a: list[str], b: list[str]) -> list[str]:
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return a[:count]


def dimension(exprs: list[Expr], loops: tuple[str, ...], size: int) -> Dimension:
    """Drop the common loops' terms where every access has them, linear and equal."""
    if not exprs or size == 0:
        return Dimension((), 0, size)
    drops = []
    for loop in loops:
        coefs = {_linear_coef(e, loop) for e in exprs}
        if len(coefs) != 1 or None in coefs:
            return Dimension((), 0, size)
        coef = coefs.pop()
        if coef:
            drops.append((loop, coef))
    dropped = {name for name, _ in drops}
    rest = [Expr(tuple((a, c) for a, c in e.terms
                       if not (isinstance(a, Sym) and a.name in dropped)), e.const) for e in exprs]
    low, high = min(e.lo for e in rest), max(e.hi for e in rest)
    if high - low + 1 >= size:
        return Dimension((), 0, size)
    return Dimension(tuple(drops), low, high - low + 1)


def _linear_coef(e: Expr, name: str) -> int | None:
    """Return the coefficient of a loop in an expression, None where it is not linear in it."""
    coef = 0
    for atom, c in e.terms:
        if isinstance(atom, Sym):
            if atom.name == name:
                coef = c
        elif any(s.name == name for s in symbols(Expr(((atom, 1),), 0))):
            return None
    return coef


def copy_strides(nest: Nest, name: str) -> tuple[list[tuple[str, int]], int]:
    """Return ([(loop, stride)], elements) of a copy's dense layout."""
    strides, total = [], 1
    for loop in reversed(nest.copy[name].layout):
        strides.append((loop, total))
        total *= max(nominal(nest, loop), 1)
    return strides[::-1], total


def cut_operands(nest: Nest, stage: str) -> dict[int, str]:
    """Return {id of operand value: copy name} for a stage's copied operands."""
    values = nest.kernel.stage[stage].operands
    return {id(values[c.operand]): c.name for c in nest.copies if c.stage == stage}


def uncut_order(roots: list[Value], cut: dict[int, str]) -> list[Value]:
    """Return values that `roots` need, arguments first, not looking beneath copied operands."""
    order: list[Value] = []
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        value, done = stack.pop()
        if done:
            order.append(value)
        elif id(value) not in seen:
            seen.add(id(value))
            stack.append((value, True))
            if id(value) not in cut:
                stack.extend((a, False) for a in reversed(value.args) if id(a) not in seen)
    return order


def leaf_names(nest: Nest) -> list[str]:
    """Return every leaf of the tree, in order."""
    found: list[str] = []
    stack: list = list(reversed(nest.body))
    while stack:
        item = stack.pop()
        if isinstance(item, Leaf):
            found.append(item.stage)
        else:
            stack += reversed(item.body)
    return found
