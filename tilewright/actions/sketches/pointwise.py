"""Sketches of stages without state: `pointwise`, and `transpose` where memory is crossed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.actions.access import OPAQUE, accesses
from tilewright.actions.sketches.base import SMALL_BODY, Sketch, lanes_of, steps, wide
from tilewright.actions.sketches.draft import Draft
from tilewright.kernel import Stage
from tilewright.limits import Limits

MOST_COPIES = 16
STRIP = 4  # tiles side by side that a strip of transposes is tried with first
LONG = 16  # tiles from which an axis is worth strips by default


@dataclass(frozen=True)
class Pointwise(Sketch):
    """Vectors along one axis, several copies side by side.

    for rest: for vector.0: { copies x lanes }
    """

    vector: str
    lanes: int
    copies: int

    def apply(self, draft: Draft, limits: Limits) -> None:
        stage = draft.kernel.stage[self.stage]
        outer, inner = draft.split(draft.own(stage)[self.vector], self.lanes * self.copies)
        jam, lane = draft.split(inner, self.lanes)
        rest = [x for x in draft.loops(self.stage) if x not in (outer, inner, jam, lane)]
        draft.order([*rest, outer, jam, lane])
        draft.vectorize(lane)
        if jam is not None:
            draft.interleave(jam)

    def neighbours(self, draft: Draft, limits: Limits) -> Iterator[Sketch]:
        stage = draft.kernel.stage[self.stage]
        for copies in steps(self.copies, 1, MOST_COPIES):
            yield replace(self, copies=copies)
        for lanes in steps(self.lanes, 2, 4 * lanes_of(stage, limits)):
            yield replace(self, lanes=lanes)
        for axis in _free(draft, stage):
            if axis != self.vector:
                yield replace(self, vector=axis)
        yield from _transposes(draft, stage, self.vector, limits)


@dataclass(frozen=True)
class Transpose(Sketch):
    """Square tiles, transposed in registers, where a load is contiguous along `other`.

    for rest: for other.0: for vector.0: { copies x lanes x lanes }

    `swap` puts vector.0 outside: with several tiles side by side every row has neighbouring lines
    written together.
    """

    vector: str
    other: str
    lanes: int
    swap: bool = False
    copies: int = 1  # tiles side by side

    def apply(self, draft: Draft, limits: Limits) -> None:
        loops = draft.own(draft.kernel.stage[self.stage])
        v0, inner = draft.split(loops[self.vector], self.lanes * self.copies)
        jam, v1 = draft.split(inner, self.lanes)
        o0, o1 = draft.split(loops[self.other], self.lanes)
        rest = [x for x in draft.loops(self.stage) if x not in (v0, inner, jam, v1, o0, o1)]
        outer = (v0, o0) if self.swap else (o0, v0)
        draft.order([*rest, *outer, jam, o1, v1])
        draft.vectorize(v1)
        draft.interleave(o1)
        if jam is not None:
            draft.interleave(jam)

    def written_far(self, draft: Draft) -> Sketch:
        """Return strips of two tiles: half the time on Zen 5.

        Not where rows start anywhere (their vectors are not streamed), or are short.
        """
        loops = draft.own(draft.kernel.stage[self.stage])
        strip = replace(self, swap=True, copies=2)
        sizes = draft.size(loops[self.vector]), draft.size(loops[self.other])
        fits = sizes[0] % (self.lanes * strip.copies) == 0 and min(sizes) >= LONG * self.lanes
        return strip if fits else self

    def neighbours(self, draft: Draft, limits: Limits) -> Iterator[Sketch]:
        stage = draft.kernel.stage[self.stage]
        yield replace(self, swap=not self.swap)
        yield replace(self, swap=not self.swap, copies=STRIP if self.copies == 1 else 1)
        for lanes in steps(self.lanes, 4, lanes_of(stage, limits)):
            yield replace(self, lanes=lanes)
        for copies in steps(self.copies, 1, MOST_COPIES):
            yield replace(self, copies=copies)
        yield Pointwise(self.stage, self.vector, self.lanes, 1)


def sketch_pointwise(draft: Draft, stage: Stage, limits: Limits) -> Sketch | None:
    """Return the default sketch of a stage without state; None where nothing can be vectorised."""
    free = _free(draft, stage)
    if not free:
        return None
    _, stores = accesses(draft.kernel, stage)
    unit = [a for a in free if any(s.stride(a) == 1 for s in stores)]
    vector = unit[-1] if unit else free[-1]
    lanes = lanes_of(stage, limits)
    size = draft.size(draft.own(stage)[vector])
    for sketch in _transposes(draft, stage, vector, limits):
        if min(size, draft.size(draft.own(stage)[sketch.other])) >= lanes:
            return sketch
    registers = wide(stage, lanes)
    while registers > 1 and size < lanes * registers:
        registers //= 2
    if registers > 1:
        return Pointwise(stage.name, vector, lanes * registers, 1)
    copies = 1
    if len(stage.values) <= SMALL_BODY:
        while copies < 4 and size >= lanes * copies * 2:
            copies *= 2
    return Pointwise(stage.name, vector, lanes, copies)


def _free(draft: Draft, stage: Stage) -> list[str]:
    """Return the stage's own free axes of more than one iteration."""
    return [a for a, loop in draft.own(stage).items()
            if stage.role.get(a) == "free" and draft.size(loop) > 1]


def _transposes(draft: Draft, stage: Stage, vector: str, limits: Limits) -> Iterator[Transpose]:
    """Yield a sketch for each axis along which a load that strides over `vector` is contiguous."""
    loads, _ = accesses(draft.kernel, stage)
    found = set()
    for load in loads:
        if abs(load.stride(vector)) > 1 and load.stride(vector) != OPAQUE and not load.guarded:
            found |= {a for a in _free(draft, stage) if a != vector and load.stride(a) == 1}
    for axis in sorted(found):
        yield Transpose(stage.name, vector, axis, lanes_of(stage, limits))
