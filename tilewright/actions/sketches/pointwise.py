"""Sketches of stages without state: `pointwise`, and `strips`, `transpose` across memory."""

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
LONG = 8  # tiles from which an axis is worth strips of two by default


@dataclass(frozen=True)
class Pointwise(Sketch):
    """Vectors along one axis, several copies side by side.

    for rest: for vector.0: { copies x lanes }
    """

    vector: str
    lanes: int
    copies: int

    def apply(self, draft: Draft, limits: Limits) -> None:
        outer, inner = draft.split(draft.over(self.stage, self.vector), self.lanes * self.copies)
        jam, lane = draft.split(inner, self.lanes)
        rest = [x for x in draft.loops(self.stage) if x not in (outer, inner, jam, lane)]
        draft.order([*rest, outer, jam, lane])
        draft.vectorize(lane)
        if jam is not None:
            draft.interleave(jam)

    def written_far(self, draft: Draft) -> Sketch:
        """Return strips of two rows where rows are read in another order: less time on Zen 5."""
        rows = _crossed(draft, draft.kernel.stage[self.stage], self.vector)
        if not rows:
            return self
        return Strips(self.stage, self.vector, self.lanes * self.copies, rows[-1], 2)

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
        for axis in _crossed(draft, stage, self.vector):
            for side in (1, 2, STRIP):
                yield Strips(self.stage, self.vector, self.lanes, axis, side)


@dataclass(frozen=True)
class Strips(Sketch):
    """Vectors of several rows side by side, where rows are read in another order than written.

    for row.0: for rest, as loads walk it: for vector.0: { side x lanes }

    Reads go on where they ended, in as many places as there are rows; what is written is lines of
    neighbouring rows.
    """

    vector: str
    lanes: int
    row: str
    side: int

    def apply(self, draft: Draft, limits: Limits) -> None:
        v0, lane = draft.split(draft.over(self.stage, self.vector), self.lanes)
        r0, r1 = draft.split(draft.over(self.stage, self.row), self.side)
        rest = [x for x in draft.loops(self.stage) if x not in (v0, lane, r0, r1)]
        draft.order([r0, *_as_read(draft, self.stage, rest), v0, r1, lane])
        draft.vectorize(lane)
        draft.interleave(r1)

    def neighbours(self, draft: Draft, limits: Limits) -> Iterator[Sketch]:
        stage = draft.kernel.stage[self.stage]
        for side in steps(self.side, 1, MOST_COPIES):
            yield replace(self, side=side)
        for lanes in steps(self.lanes, 2, 4 * lanes_of(stage, limits)):
            yield replace(self, lanes=lanes)
        for axis in _crossed(draft, stage, self.vector):
            if axis != self.row:
                yield replace(self, row=axis)
        yield Pointwise(self.stage, self.vector, self.lanes, 1)


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
    reading: bool = False  # the rest in the order in which loads walk it, not stores

    def apply(self, draft: Draft, limits: Limits) -> None:
        v0, inner = draft.split(draft.over(self.stage, self.vector), self.lanes * self.copies)
        jam, v1 = draft.split(inner, self.lanes)
        o0, o1 = draft.split(draft.over(self.stage, self.other), self.lanes)
        rest = [x for x in draft.loops(self.stage) if x not in (v0, inner, jam, v1, o0, o1)]
        if self.reading:
            rest = _as_read(draft, self.stage, rest)
        outer = (v0, o0) if self.swap else (o0, v0)
        draft.order([*rest, *outer, jam, o1, v1])
        draft.vectorize(v1)
        draft.interleave(o1)
        if jam is not None:
            draft.interleave(jam)

    def written_far(self, draft: Draft) -> Sketch:
        """Return strips of two tiles, of one where rows are short: half the time on Zen 5.

        Not where rows start anywhere (their vectors are not streamed), or are many times as long as
        those that are read. Other loops follow what is read.
        """
        loops = draft.own(draft.kernel.stage[self.stage])
        size, other = draft.size(loops[self.vector]), draft.size(loops[self.other])
        long = min(size, other) >= LONG * self.lanes and size % (2 * self.lanes) == 0
        swap = long or (size <= other and size % self.lanes == 0)
        return replace(self, swap=swap, copies=2 if long else 1, reading=True)

    def neighbours(self, draft: Draft, limits: Limits) -> Iterator[Sketch]:
        stage = draft.kernel.stage[self.stage]
        if len(_free(draft, stage)) > 3:
            yield replace(self, reading=not self.reading)
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


def _as_read(draft: Draft, stage: str, loops: list[str]) -> list[str]:
    """Return loops in the order in which loads walk memory, the widest steps first."""
    loads, _ = accesses(draft.kernel, draft.kernel.stage[stage])

    def reach(loop: str) -> int:
        return max((abs(a.stride(x)) for a in loads for x in draft.nest.axes_of(loop)), default=0)
    return sorted(loops, key=reach, reverse=True)


def _crossed(draft: Draft, stage: Stage, vector: str) -> list[str]:
    """Return axes with another inside of them in some load, and around them in some store."""
    loads, stores = accesses(draft.kernel, stage)
    rest = [a for a in _free(draft, stage) if a != vector]
    return [a for a in rest if any(
        0 < load.stride(b) < load.stride(a) < OPAQUE and 0 < store.stride(a) < store.stride(b)
        for b in rest for load in loads for store in stores)]


def _transposes(draft: Draft, stage: Stage, vector: str, limits: Limits) -> Iterator[Transpose]:
    """Yield a sketch for each axis along which a load that strides over `vector` is contiguous."""
    loads, _ = accesses(draft.kernel, stage)
    found = set()
    for load in loads:
        if abs(load.stride(vector)) > 1 and load.stride(vector) != OPAQUE and not load.guarded:
            found |= {a for a in _free(draft, stage) if a != vector and load.stride(a) == 1}
    for axis in sorted(found):
        yield Transpose(stage.name, vector, axis, lanes_of(stage, limits))
