"""Recipes: one sketch per stage and the choices between stages; the default schedule is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from tilewright.actions.nest import BAND, Loop, leaves
from tilewright.actions.parallel import Parallel
from tilewright.actions.reorder import Reorder
from tilewright.actions.schedule import Schedule
from tilewright.actions.sketches.base import Sketch, moved_bytes
from tilewright.actions.sketches.contraction import sketch_contraction
from tilewright.actions.sketches.draft import Draft
from tilewright.actions.sketches.opening import axis_to_open, open_axis
from tilewright.actions.sketches.pieces import BLOCK, join, pieces
from tilewright.actions.sketches.pointwise import Transpose, sketch_pointwise
from tilewright.actions.sketches.reduction import sketch_reduction
from tilewright.actions.stream import StreamStore
from tilewright.errors import Illegal
from tilewright.kernel import Kernel, Stage
from tilewright.limits import Limits

# values computed by a kernel from which waking the other workers pays (some 20 microseconds)
PARALLEL_WORK = 1 << 18
STREAMED = 2  # times the last cache that a kernel moves whose outputs are written past it


@dataclass(frozen=True)
class Recipe:
    """How a whole kernel is scheduled, as parameters.

    opened     (axis, size): the inner part of a shared axis that every stage walks by itself
    sketches   one per stage that has loops of its own
    parallel   whether the workers share the outermost loops
    stream     outputs written past the caches
    joined     steps that the pieces of an output take in turns; 0: each takes all of its own
    """

    opened: tuple[str, int] | None
    sketches: tuple[Sketch, ...]
    parallel: bool
    stream: tuple[str, ...] = ()
    joined: int = 0

    def schedule(self, kernel: Kernel, limits: Limits) -> Schedule:
        """Return the recipe's actions. Raises Illegal where the parameters do not fit."""
        return self.draft(kernel, limits).schedule

    def draft(self, kernel: Kernel, limits: Limits) -> Draft:
        """Return the recipe's actions with their nest. Raises Illegal as `schedule` does."""
        draft = self.opening(kernel)
        for sketch in self.sketches:
            sketch.apply(draft, limits)
        for buffer in self.stream:
            draft.do(StreamStore(buffer))
        if self.parallel:
            share_loops(draft)
        return draft

    def opening(self, kernel: Kernel) -> Draft:
        """Return the loops that the sketches start from."""
        draft = Draft(kernel)
        if self.opened is not None:
            open_axis(draft, *self.opened)
        if self.joined:
            join(draft, self.joined)
        return draft

    def neighbours(self, kernel: Kernel, limits: Limits) -> Iterator[Recipe]:
        """Yield the recipe with one choice moved one step."""
        draft = self.opening(kernel)
        if self.opened is not None:
            axis, size = self.opened
            for other in (size // 2, size * 2):
                if other >= 2:
                    yield replace(self, opened=(axis, other))
        if self.joined:
            for size in (self.joined // 4, self.joined * 4, 0):
                if size != 1:
                    yield replace(self, joined=size)
        elif pieces(kernel):
            yield replace(self, joined=BLOCK)
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
        parts += [f"join({self.joined})"] if self.joined else []
        parts += map(str, self.sketches)
        parts += ["parallel"] * self.parallel + [f"stream({b})" for b in self.stream]
        return "; ".join(parts)


def default_recipe(kernel: Kernel, limits: Limits) -> Recipe:
    """Return the recipe that a kernel gets without search."""
    draft = Draft(kernel)
    opened = axis_to_open(draft, limits)
    if opened is not None:
        open_axis(draft, *opened)
    joined = 0 if opened else _joined(draft, limits)
    if joined:
        join(draft, joined)
    stream = _streamed(draft, limits)
    found = []
    for stage in kernel.stages:
        sketch = sketch_of(draft, stage, limits)
        if sketch is not None and any(s.buffer in stream for s in stage.stores):
            sketch = sketch.written_far(draft)
        if sketch is not None:
            found.append(sketch)
    parallel = limits.threads > 1 and work(kernel) >= PARALLEL_WORK
    return Recipe(opened, tuple(found), parallel, stream, joined)


def _joined(draft: Draft, limits: Limits) -> int:
    """Return how many steps the pieces of an output take in turns; 0 where that breaks a sketch."""
    groups = pieces(draft.kernel)
    sketches = [sketch_pointwise(draft, s, limits) for group in groups for s in group]
    if not groups or any(isinstance(s, Transpose) for s in sketches):
        return 0
    trial = Draft(draft.kernel)
    try:
        join(trial, BLOCK)
    except Illegal:
        return 0
    vectors = all(trial.own(s) for group in groups for s in group)
    return BLOCK if vectors else 0


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
