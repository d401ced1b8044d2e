"""How much of each scratch buffer one place in the loop tree needs.

Scratch is declared over whole axes; what two stages hand over inside common loops is only the region
that one iteration of those loops touches. For each dimension the common loops' terms are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.actions.nest import Leaf, Loop, Nest, nominal, operands
from tilewright.index import Expr, Sym, as_expr, const, substitute, symbols
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
            for base, coef in d.drops:
                e = e - env[base] * coef
            flat = flat * d.size + (e - d.low)
        return flat


def base(name: str) -> str:
    """Return a loop's name without the stage or copy that owns it."""
    return name.rsplit(":", 1)[-1]


def resolve(nest: Nest, owner: str, name: str, env: dict[str, Expr]) -> Expr:
    """Return the index of an axis, or of a part of one, for a leaf under bound loops.

    Follows splits (outer*factor + inner) and merges (quotient and remainder) down to the loops.
    """
    if name in env:
        return env[name]
    factor = find_factor(nest, owner, name)
    if factor:
        return resolve(nest, owner, name + ".0", env) * factor \
            + resolve(nest, owner, name + ".1", env)
    for merged, outer, inner in nest.merges:
        if name in (base(outer), base(inner)) and _has(nest, env, merged):
            size = nominal(nest, inner)
            whole = resolve(nest, owner, base(merged), env)
            return whole // size if name == base(outer) else whole % size
    return const(0)  # an axis of one iteration, or of none


def _has(nest: Nest, env: dict[str, Expr], merged: str) -> bool:
    name = base(merged)
    return name in env or any(k.startswith(name + ".") or name in k.split("*") for k in env) \
        or any(name in (base(o), base(i)) for _, o, i in nest.merges)


def find_factor(nest: Nest, owner: str, name: str) -> int:
    """Return the factor by which `name` is split for a leaf; 0 where it is not."""
    stage = nest.copy[owner].stage if owner in nest.copy else owner
    for key in (f"{owner}:{name}", f"{stage}:{name}", name):
        if key in nest.factor:
            return nest.factor[key]
    return 0


def axis_map(nest: Nest, owner: str, env: dict[str, Expr]) -> dict[Sym, Expr]:
    """Return the index of every axis of a leaf's stage under bound loops."""
    stage = nest.stage_of(owner)
    return {nest.kernel.axis[a].sym: resolve(nest, owner, a, env) for a in stage.axes()}


def nominal_env(nest: Nest, path: tuple[Loop, ...]) -> dict[str, Expr]:
    """Return a symbol of full range for every loop of a path."""
    return {base(loop.name): as_expr(Sym(base(loop.name), 0, max(nominal(nest, loop.name) - 1, 0)))
            for loop in path}


def _accesses(nest: Nest, buffer: str):
    """Yield (leaf, index tuple) of every access to a scratch buffer."""
    for leaf in [n for n, p in nest.paths.items() if not p or p[-1].name != n]:
        stage = nest.stage_of(leaf)
        if leaf in nest.copy:
            roots = [operands(stage)[nest.copy[leaf].operand]]
            stores = ()
        else:
            cut = {id(operands(stage)[c.operand]) for c in nest.copies if c.stage == leaf}
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
        strides.append((base(loop), total))
        total *= max(nominal(nest, loop), 1)
    return strides[::-1], total


def cut_operands(nest: Nest, stage: str) -> dict[int, str]:
    """Return {id of operand value: copy name} for a stage's copied operands."""
    values = operands(nest.kernel.stage[stage])
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
