"""Opening a shared axis: every stage walks a part of it by loops of its own."""

from __future__ import annotations

from tilewright.actions.access import accesses
from tilewright.actions.nest import Loop, leaves
from tilewright.actions.place import Place
from tilewright.actions.sketches.base import lanes_of
from tilewright.actions.sketches.contraction import analyse, in_one_factor
from tilewright.actions.sketches.draft import Draft
from tilewright.index import symbols
from tilewright.kernel import Stage
from tilewright.limits import Limits

WIDE_ROW = 1024  # bytes of each row that blocks of columns have
MOST_ROWS = 64  # of a block that stages walk one after the other


def open_axis(draft: Draft, axis: str, size: int) -> None:
    """Give each stage loops of its own over the inner `size` iterations of a shared axis.

    for i: {s0: for k ..} {s1: ..}  ->  for i.0: {for k: for i.1 ..} {for i.1 ..}

    What follows a contraction of which the axis is a row, up to the next, goes on sharing them.
    """
    stages = [s for s in leaves((draft.nest.loop(axis, "open"),))]
    tiled = [n for n, s in enumerate(stages) if in_one_factor(draft.kernel.stage[s], axis)]
    if tiled:
        last = tiled[-1] if len(tiled) > 1 else len(stages)
        stages = [s for n, s in enumerate(stages) if n in tiled or not tiled[0] < n < last]
    outer, _ = draft.split(axis, size)
    if outer is None:
        path = [p.name for p in draft.nest.paths[axis]]
        outer = path[-2] if len(path) > 1 else "root"
    for stage in stages:
        draft.do(Place(stage, outer))


def axis_to_open(draft: Draft, limits: Limits) -> tuple[str, int] | None:
    """Return the shared axis to give every stage a part of, and how much of it.

    A block of rows where a contraction would have none of its own; else the innermost axis along
    which memory is contiguous, where some stage's own axes leave memory strided.
    """
    rows = _rows_to_open(draft, limits)
    if rows is not None:
        return rows
    for loop in reversed(_shared_loops(draft)):
        stages = [draft.kernel.stage[s] for s in leaves((loop,))]
        if any(_contiguous(draft, s, loop.name) for s in stages):
            lanes = min(lanes_of(s, limits) for s in stages)
            size = _columns_to_open(draft, loop, limits)
            return (loop.name, max(size, lanes)) if draft.size(loop.name) >= lanes else None
    return None


def _columns_to_open(draft: Draft, loop: Loop, limits: Limits) -> int:
    """Return how many columns every stage walks before the next one does.

    Where half of L2 holds all, or a kilobyte of each row: as many. Else all where most of the last
    cache holds them, or what a quarter of it does: narrow blocks of rows that are pages apart are
    read slowly.
    """
    size, column = draft.size(loop.name), _bytes_walked(draft, loop)
    near, itemsize = limits.l2 // 2 // column, _itemsize(draft, loop)
    if size <= near:
        found = size
    elif near * itemsize >= WIDE_ROW:
        found = near
    elif size * column <= limits.l3 * 5 // 8:
        found = size
    else:
        found = max(limits.l3 // 4 // column, 1)
    found = min(found, -(-size // limits.threads))
    return found if found == size else 1 << (found.bit_length() - 1)


def _bytes_walked(draft: Draft, loop: Loop) -> int:
    """Return the bytes that stages read in one iteration of a loop, each buffer once.

    Not those of a buffer with one element for each iteration.
    """
    around = {p.name for p in draft.nest.paths[loop.name]}
    found: dict[str, int] = {}
    for name in leaves((loop,)):
        for load in accesses(draft.kernel, draft.kernel.stage[name])[0]:
            size = load.itemsize
            for axis, stride in load.strides.items():
                if stride and axis in draft.kernel.axis and axis not in around:
                    size *= int(draft.kernel.axis[axis].extent)
            if size > load.itemsize:
                found[load.buffer] = max(found.get(load.buffer, 0), size)
    return max(sum(found.values()), 1)


def _itemsize(draft: Draft, loop: Loop) -> int:
    """Return the bytes of the widest value of the stages in a loop."""
    return max(v.dtype.itemsize for s in leaves((loop,)) for v in draft.kernel.stage[s].values)


def _rows_to_open(draft: Draft, limits: Limits) -> tuple[str, int] | None:
    """Return the shared axis of a contraction's rows, and how many keep scratch in half of L2."""
    for loop in reversed(_shared_loops(draft)):
        for name in leaves((loop,)):
            stage = draft.kernel.stage[name]
            if in_one_factor(stage, loop.name) and analyse(draft, stage, limits) is None:
                held = _bytes_held(draft, loop)
                size = min(MOST_ROWS, draft.size(loop.name), max(limits.l2 // 2 // held, 1))
                return loop.name, 1 << (size.bit_length() - 1)
    return None


def _bytes_held(draft: Draft, loop: Loop) -> int:
    """Return the bytes of scratch that stages hand over in one iteration of a loop: its rows."""
    shared = {p.name for p in draft.nest.paths[loop.name]}
    stages = [draft.kernel.stage[s] for s in leaves((loop,))]
    total = 0
    for store in (s for stage in stages for s in stage.stores):
        buffer = draft.kernel.buffer[store.buffer]
        if buffer.kind == "scratch":
            size = buffer.dtype.itemsize
            for e, extent in zip(store.index, buffer.shape):
                size *= 1 if {s.name for s in symbols(e)} <= shared else int(extent)
            total += size if size > buffer.dtype.itemsize else 0
    return max(total, 1)


def _shared_loops(draft: Draft) -> list[Loop]:
    """Return the loops that hold several stages, outermost first."""
    found: list[Loop] = []
    stack = list(draft.nest.body)
    while stack:
        item = stack.pop(0)
        if isinstance(item, Loop) and len(list(leaves((item,)))) > 1:
            found.append(item)
            stack += item.body
    return found


def _contiguous(draft: Draft, stage: Stage, axis: str) -> bool:
    """Return whether a stage's own axes leave its memory strided, and `axis` does not."""
    loads, stores = accesses(draft.kernel, stage)
    own = [a for a in stage.axes() if a != axis and int(draft.kernel.axis[a].extent) > 1]
    outside = [x for x in (*loads, *stores) if draft.kernel.buffer[x.buffer].kind != "scratch"]
    if any(x.stride(a) == 1 for x in outside for a in own):
        return False
    return any(x.stride(axis) == 1 for x in outside)
