"""Recipes: one sketch per stage and the choices between stages; the default schedule is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from tilewright.actions.access import accesses
from tilewright.actions.nest import BAND, Loop, leaves
from tilewright.actions.parallel import Parallel
from tilewright.actions.place import Place
from tilewright.actions.reorder import Reorder
from tilewright.actions.schedule import Schedule
from tilewright.actions.sketches.base import Sketch, lanes_of, moved_bytes
from tilewright.actions.sketches.contraction import analyse, in_one_factor, sketch_contraction
from tilewright.actions.sketches.draft import Draft
from tilewright.actions.sketches.pointwise import sketch_pointwise
from tilewright.actions.sketches.reduction import sketch_reduction
from tilewright.actions.stream import StreamStore
from tilewright.errors import Illegal
from tilewright.index import symbols
from tilewright.kernel import Kernel, Stage
from tilewright.limits import Limits

# values computed by a kernel from which waking the other workers pays (some 20 microseconds)
PARALLEL_WORK = 1 << 18
STREAMED = 2  # times the last cache that a kernel moves whose outputs are written past it
MOST_ROWS = 64  # of a block that stages walk one after the other


@dataclass(frozen=True)
class Recipe:
    """How a whole kernel is scheduled, as parameters.

    opened     (axis, size): the inner part of a shared axis that every stage walks by itself
    sketches   one per stage that has loops of its own
    parallel   whether the workers share the outermost loops
    stream     outputs written past the caches
    """

    opened: tuple[str, int] | None
    sketches: tuple[Sketch, ...]
    parallel: bool
    stream: tuple[str, ...] = ()

    def schedule(self, kernel: Kernel, limits: Limits) -> Schedule:
        """Return the recipe's actions. Raises Illegal where the parameters do not fit."""
        return self.draft(kernel, limits).schedule

    def draft(self, kernel: Kernel, limits: Limits) -> Draft:
        """Return the recipe's actions with their nest. Raises Illegal as `schedule` does."""
        draft = Draft(kernel)
        if self.opened is not None:
            open_axis(draft, *self.opened)
        for sketch in self.sketches:
            sketch.apply(draft, limits)
        for buffer in self.stream:
            draft.do(StreamStore(buffer))
        if self.parallel:
            share_loops(draft)
        return draft

    def neighbours(self, kernel: Kernel, limits: Limits) -> Iterator[Recipe]:
        """Yield the recipe with one choice moved one step."""
        draft = Draft(kernel)
        if self.opened is not None:
            open_axis(draft, *self.opened)
            axis, size = self.opened
            for other in (size // 2, size * 2):
                if other >= 2:
                    yield replace(self, opened=(axis, other))
        for i, sketch in enumerate(self.sketches):
            for moved in sketch.neighbours(draft, limits):
                yield replace(self, sketches=(*self.sketches[:i], moved, *self.sketches[i + 1:]))
        if limits.threads > 1:
            yield replace(self, parallel=not self.parallel)
        for buffer in kernel.outputs:
            rest = tuple(b for b in self.stream if b != buffer.name)
            yield replace(self, stream=rest if buffer.name in self.stream
                          else tuple(sorted((*rest, buffer.name))))

    def __str__(self) -> str:
        parts = [] if self.opened is None else [f"open({self.opened[0]}, {self.opened[1]})"]
        parts += map(str, self.sketches)
        parts += ["parallel"] * self.parallel + [f"stream({b})" for b in self.stream]
        return "; ".join(parts)


def default_recipe(kernel: Kernel, limits: Limits) -> Recipe:
    """Return the recipe that a kernel gets without search."""
    draft = Draft(kernel)
    opened = _axis_to_open(draft, limits)
    if opened is not None:
        open_axis(draft, *opened)
    stream = _streamed(draft, limits)
    found = []
    for stage in kernel.stages:
        sketch = sketch_of(draft, stage, limits)
        if sketch is not None and any(s.buffer in stream for s in stage.stores):
            sketch = sketch.written_far(draft)
        if sketch is not None:
            found.append(sketch)
    parallel = limits.threads > 1 and work(kernel) >= PARALLEL_WORK
    return Recipe(opened, tuple(found), parallel, stream)


def _streamed(draft: Draft, limits: Limits) -> tuple[str, ...]:
    """Return the outputs to write past the caches: those that would not stay there anyway.

    A kernel that moves much more than the last cache holds leaves little of it to the next one. Its
    lines are written without being read first, where each is written once.
    """
    kernel = draft.kernel
    if moved_bytes(kernel) < STREAMED * limits.l3:
        return ()
    found = []
    for buffer in kernel.outputs:
        if all(stage.state is None for stage in kernel.writers(buffer.name)):
            with suppress(Illegal):
                StreamStore(buffer.name).apply(draft.nest)
                found.append(buffer.name)
    return tuple(sorted(found))


def default_schedule(kernel: Kernel, limits: Limits) -> Schedule:
    """Return the schedule that a kernel gets without search."""
    return default_recipe(kernel, limits).schedule(kernel, limits)


def sketch_of(draft: Draft, stage: Stage, limits: Limits) -> Sketch | None:
    """Return a stage's default sketch; None where it has no loops of its own."""
    if stage.state is not None:
        return sketch_contraction(draft, stage, limits) or sketch_reduction(draft, stage, limits)
    return sketch_pointwise(draft, stage, limits)


def work(kernel: Kernel) -> int:
    """Return how many values a kernel computes."""
    total = 0
    for stage in kernel.stages:
        points = 1
        for a in stage.axes():
            points *= int(kernel.axis[a].extent)
        total += points * sum(v.op not in ("const", "state", "index")
                              for v in stage.values)
    return total


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


def _axis_to_open(draft: Draft, limits: Limits) -> tuple[str, int] | None:
    """Return the shared axis to give every stage a part of, and how much of it.

    A block of rows where a contraction would have none of its own; else the innermost axis along
    which memory is contiguous, a vector of it, where some stage's own axes leave memory strided.
    """
    rows = _rows_to_open(draft, limits)
    if rows is not None:
        return rows
    for loop in reversed(_shared_loops(draft)):
        stages = [draft.kernel.stage[s] for s in leaves((loop,))]
        if any(_contiguous(draft, s, loop.name) for s in stages):
            lanes = min(lanes_of(s, limits) for s in stages)
            return (loop.name, lanes) if draft.size(loop.name) >= lanes else None
    return None


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


def share_loops(draft: Draft) -> None:
    """Divide each top loop among the workers; a reduction over everything stays on one."""
    for item in list(draft.nest.body):
        name = _widest(draft, item) if isinstance(item, Loop) else None
        if name is None:
            continue
        try:
            path = [p.name for p in draft.nest.paths[name]]
            if path[0] != name:
                draft.do(Reorder((name, *path[:-1])))
            draft.do(Parallel(name))
        except Illegal:
            continue  # every worker would need another's state or scratch


def _widest(draft: Draft, item: Loop) -> str | None:
    """Return the outermost free loop with enough iterations for every worker, or the widest."""
    best: str | None = None
    loop: object = item
    while isinstance(loop, Loop) and loop.kind not in BAND:
        if {draft.nest.role(loop.name, leaf) for leaf in leaves((loop,))} == {"free"}:
            if draft.size(loop.name) >= 8:
                return loop.name
            if best is None or draft.size(loop.name) > draft.size(best):
                best = loop.name
        if len(loop.body) != 1:
            break
        loop = loop.body[0]
    return best if best and draft.size(best) > 1 else None
