"""Other kernels with the same values.

    split reduction:  sum over k of f(k)  =  sum over c of (sum over k' of f(c*m + k'))
    split finish:     exp(sum over k of f(k))  =  exp(t), t = sum over k of f(k)

A split reduction has a fixed number of chunks c, so that the bits of the result depend neither on
the schedule's threads nor on the machine's. The finish of a reduction along its lanes takes one
result at a time; a stage of its own takes vectors of them.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tilewright.graph.ops import OPS
from tilewright.index import Expr, Sym, as_expr, const, substitute
from tilewright.kernel import Axis, Buffer, Kernel, Stage, State, Store
from tilewright.kernel.value import (
    Value,
    divides,
    index,
    load,
    other,
    postorder,
    rewrite,
    state,
    symbols_of,
    test,
)
from tilewright.limits import Limits

CHUNKS = 64  # the most chunks of a split reduction
LARGE = 1 << 18  # points of a reduction from which several workers pay
FEW = 16  # results beyond which the free axes alone keep the workers busy
MANY = 1024  # results from which a finish by vectors pays
ROW = 5  # steps of a contiguous axis that may be lanes


def alternatives(kernel: Kernel, limits: Limits) -> list[Kernel]:
    """Return kernels that compute the same, without the kernel itself."""
    return [k for k in (split_reduction(kernel), split_finish(kernel)) if k is not None]


def preferred(kernel: Kernel, limits: Limits) -> Kernel:
    """Return the form of a kernel that the default schedule starts from.

    A large reduction to a few results is split whatever the number of threads; the finish is where
    it is costly and results are many.
    """
    stage = kernel.stages[-1]
    if len(kernel.stages) == 1 and stage.state is not None and not stage.axes("carry"):
        points = prod(int(kernel.axis[a].extent) for a in stage.axes("reduce"))
        results = prod(int(kernel.axis[a].extent) for a in stage.axes("free"))
        if points >= LARGE and results < FEW:
            return split_reduction(kernel) or kernel
        if results >= MANY and _finishes_one_by_one(kernel, stage):
            return split_finish(kernel) or kernel
    return kernel


def _finishes_one_by_one(kernel: Kernel, stage: Stage) -> bool:
    """Return whether lanes are steps of the reduction, as loads walk it, and the finish is costly.

    A matrix product's lanes are results.
    """
    assert stage.state is not None
    if stage.is_contraction:
        used = [symbols_of(f) for f in stage.state.update[0].args[1].args]
        if any((a in used[0]) != (a in used[1]) for a in stage.axes("free")):
            return False
    walked = {a for load in stage.loads for e in load.data[1] for a in stage.axes("reduce")
              if abs(e.coefficient(kernel.axis[a].sym)) == 1}
    finish = postorder([v for s in stage.stores for v in (s.value, *s.guard)])
    return any(int(kernel.axis[a].extent) >= ROW for a in walked) \
        and any(v.op in OPS and OPS[v.op].costly for v in finish)


def split_finish(kernel: Kernel) -> Kernel | None:
    """Return a one-stage reduction as two: the bare one into scratch, then a map over its results.

    None where there is another stage, or nothing is computed of the state.
    """
    if len(kernel.stages) != 1:
        return None
    (stage,) = kernel.stages
    if stage.state is None or stage.axes("carry") or stage.lets or not stage.axes("free") \
            or all(s.value.op == "state" for s in stage.stores):
        return None
    free = tuple(kernel.axis[a] for a in stage.axes("free"))
    scratch = _scratch(kernel, stage, list(free))
    where = tuple(a.expr for a in free)
    bare = replace(stage, stores=tuple(
        Store(b.name, where, state(i, b.dtype)) for i, b in enumerate(scratch)))
    parts = {id(state(i, b.dtype)): load(b.name, where, b.dtype) for i, b in enumerate(scratch)}

    def of_scratch(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(rewrite(values, lambda v, _: parts.get(id(v))))
    stores = tuple(replace(s, value=of_scratch((s.value,))[0], guard=of_scratch(s.guard))
                   for s in stage.stores)
    finish = Stage("s1", tuple((a.name, "free") for a in free), stores)
    return Kernel(kernel.axes, (*kernel.buffers, *scratch), (bare, finish))


def split_reduction(kernel: Kernel) -> Kernel | None:
    """Return a one-stage reduction as two stages over a fixed number of chunks.

    None where there is another stage, or no reduce axis that a chunk count of 4..64 divides.
    """
    if len(kernel.stages) != 1:
        return None
    stage = kernel.stages[0]
    if stage.state is None or stage.axes("carry") or stage.lets:
        return None
    found = _chunks(kernel, stage)
    if found is None:
        return None
    axis, chunks = found
    rows = len(stage.axes("free"))
    names = {a: f"i{i + 1}" for i, a in enumerate(stage.axes("free"))}
    names |= {a: f"k{i}" for i, a in enumerate(stage.axes("reduce"))}
    extents = {names[a.name]: a.extent for a in kernel.axes}
    inner = int(kernel.axis[axis].extent) // chunks
    extents[names[axis]] = const(inner)
    axes = [Axis("i0", const(chunks))]
    axes += [Axis(n, extents[n]) for n in (*(f"i{i + 1}" for i in range(rows)),
                                           *(names[a] for a in stage.axes("reduce")))]
    by_name = {a.name: a for a in axes}
    moved = {kernel.axis[a].sym: as_expr(by_name[n].sym) for a, n in names.items()}
    moved[kernel.axis[axis].sym] = as_expr(by_name["i0"].sym) * inner \
        + as_expr(by_name[names[axis]].sym)
    scratch = _scratch(kernel, stage, [axes[0], *axes[1:1 + rows]])
    first = _partial(stage, names, moved, axes, rows, scratch)
    second = _merge(stage, names, moved, axes, rows, scratch)
    return Kernel(tuple(axes), (*kernel.buffers, *scratch), (first, second))


def _chunks(kernel: Kernel, stage: Stage) -> tuple[str, int] | None:
    """Return the outermost reduce axis that can be cut, and into how many chunks."""
    for axis in stage.axes("reduce"):
        size = int(kernel.axis[axis].extent)
        for count in range(min(CHUNKS, size // 4), 3, -1):
            if size % count == 0:
                return axis, count
    return None


def _scratch(kernel: Kernel, stage: Stage, axes: list[Axis]) -> list[Buffer]:
    taken = sum(1 for b in kernel.buffers if b.kind == "scratch")
    assert stage.state is not None
    return [Buffer(f"t{taken + slot}", "scratch", v.dtype, tuple(a.extent for a in axes))
            for slot, v in enumerate(stage.state.init)]


def _partial(stage: Stage, names: dict[str, str], moved: dict[Sym, Expr], axes: list[Axis],
             rows: int, scratch: list[Buffer]) -> Stage:
    assert stage.state is not None
    update = tuple(move(list(stage.state.update), moved))
    where = tuple(a.expr for a in axes[:1 + rows])
    stores = tuple(Store(b.name, where, state(i, b.dtype)) for i, b in enumerate(scratch))
    roles = (("i0", "free"), *((names[a], "free") for a in stage.axes("free")),
             *((names[a], "reduce") for a in stage.axes("reduce")))
    return Stage("s0", roles, stores,
                 State(stage.state.name, stage.state.init, update, stage.state.merge))


def _merge(stage: Stage, names: dict[str, str], moved: dict[Sym, Expr], axes: list[Axis],
           rows: int, scratch: list[Buffer]) -> Stage:
    assert stage.state is not None
    where = tuple(a.expr for a in axes[:1 + rows])
    parts = {id(other(i, b.dtype)): load(b.name, where, b.dtype) for i, b in enumerate(scratch)}
    update = tuple(rewrite(stage.state.merge, lambda v, _: parts.get(id(v))))
    roles = (*((names[a], "free") for a in stage.axes("free")), ("i0", "reduce"))
    stores = tuple(Store(s.buffer, tuple(substitute(e, moved) for e in s.index),
                         move([s.value], moved)[0], s.combine, tuple(move(list(s.guard), moved)))
                   for s in stage.stores)
    return Stage("s1", roles, stores,
                 State(stage.state.name, stage.state.init, update, stage.state.merge))


def move(values: list[Value], mapping: dict[Sym, Expr]) -> list[Value]:
    """Return values with axes replaced in every index expression."""
    def leaf(value: Value, args: tuple[Value, ...]) -> Value | None:
        if value.op == "load":
            buffer, where = value.data
            return load(buffer, tuple(substitute(e, mapping) for e in where), value.dtype, args)
        if value.op == "index":
            return index(substitute(value.data, mapping))
        if value.op == "test":
            return test(substitute(value.data, mapping))
        if value.op == "divides":
            return divides(substitute(value.data[0], mapping), value.data[1])
        return None
    return rewrite(values, leaf)
