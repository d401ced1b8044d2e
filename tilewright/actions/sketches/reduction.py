"""The `reduction` sketch: independent accumulators over the contiguous axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tilewright.actions.access import MOST_PICKED, Access, accesses, picked
from tilewright.actions.sketches.base import Sketch, lanes_of, moved_bytes, steps, wide
from tilewright.actions.sketches.draft import Draft
from tilewright.actions.unroll import Unroll
from tilewright.kernel import Stage
from tilewright.kernel.reductions import MOST_SEQUENTIAL
from tilewright.limits import Limits

NEAR = 0.25  # share of the last cache that a kernel finds its data in, whatever ran before
TIE = 0.75  # of a reduce axis' cost, below which a free one is put in lanes
NEAR_BLOCK = 256  # steps at a time there, over as many columns as there are registers


@dataclass(frozen=True)
class Reduction(Sketch):
    """Vectors along the axis that loads walk by one element, several accumulators side by side.

    A reduce axis gives partial states per lane and copy; a free one gives neighbouring results.

    for free: for steps: for vector.0: { copies x lanes }               vector is a reduce axis
    for free: for vector.0: for steps: { copies x lanes }               vector is free
    for free: for steps.0: for vector.0: for steps.1: { copies x lanes }   with `block` steps at
    a time: memory is walked nearly in order, partial states wait in the nearest cache
    """

    vector: str
    lanes: int
    copies: int
    block: int = 0  # 0: all steps

    def apply(self, draft: Draft, limits: Limits) -> None:
        stage = draft.kernel.stage[self.stage]
        outer, inner = draft.split(draft.over(self.stage, self.vector), self.lanes * self.copies)
        jam, lane = draft.split(inner, self.lanes)
        rest = [x for x in draft.loops(self.stage) if x not in (outer, inner, jam, lane)]
        free = [x for x in rest if draft.nest.role(x, self.stage) == "free"]
        walk = [x for x in rest if x not in free]
        if stage.role[self.vector] != "free":
            order = [*free, *walk, outer, jam, lane]
        elif self.block and outer is not None and walk:
            step0, step1 = draft.split(walk[-1], self.block)
            order = [*free, *walk[:-1], step0, outer, step1, jam, lane]
        else:
            order = [*free, outer, *walk, jam, lane]
        draft.order(order)
        draft.vectorize(lane)
        if jam is not None:
            draft.interleave(jam)
        if walk and walk[-1] in order and self._shares_loads(draft, walk[-1]):
            draft.do(Unroll(walk[-1]))

    def _shares_loads(self, draft: Draft, walk: str) -> bool:
        """Return whether the steps of a short loop pick lanes from the same vectors."""
        stage = draft.kernel.stage[self.stage]
        (axis,) = draft.nest.axes_of(walk)
        return 1 < draft.size(walk) <= MOST_PICKED and any(
            picked(a.stride(self.vector), self.lanes) and abs(a.stride(axis)) == 1
            for a in accesses(draft.kernel, stage)[0])

    def neighbours(self, draft: Draft, limits: Limits) -> Iterator[Sketch]:
        stage = draft.kernel.stage[self.stage]
        for copies in steps(self.copies, 1, limits.registers):
            yield replace(self, copies=copies)
        for lanes in steps(self.lanes, 2, 4 * lanes_of(stage, limits)):
            yield replace(self, lanes=lanes)
        for axis in _walkable(draft, stage):
            if axis != self.vector:
                yield replace(self, vector=axis)
        if stage.role[self.vector] == "free" and not stage.axes("carry"):
            for block in steps(self.block, 1, 4096) if self.block else [4, 16, 64]:
                yield replace(self, block=block)
            if self.block:
                yield replace(self, block=0)


@dataclass(frozen=True)
class Rows(Sketch):
    """Independent rows side by side, where no axis is contiguous or a scan runs along it.

    for free: for row.0: for steps: { rows }
    """

    row: str
    rows: int

    def apply(self, draft: Draft, limits: Limits) -> None:
        outer, inner = draft.split(draft.over(self.stage, self.row), self.rows)
        rest = [x for x in draft.loops(self.stage) if x not in (outer, inner)]
        walk = [x for x in rest if draft.nest.role(x, self.stage) != "free"]
        draft.order([*[x for x in rest if x not in walk], outer, *walk, inner])
        draft.interleave(inner)

    def neighbours(self, draft: Draft, limits: Limits) -> Iterator[Sketch]:
        stage = draft.kernel.stage[self.stage]
        for rows in steps(self.rows, 1, limits.registers):
            yield replace(self, rows=rows)
        for axis in _walkable(draft, stage):
            yield Reduction(self.stage, axis, lanes_of(stage, limits), 1)


def sketch_reduction(draft: Draft, stage: Stage, limits: Limits) -> Sketch | None:
    """Return the default sketch of a stage with state."""
    loops = draft.own(stage)
    lanes, copies = lanes_of(stage, limits), _copies(stage, limits)
    vector = _vector_axis(draft, stage, limits)
    if vector is None:
        free = [a for a in loops if stage.role.get(a) == "free" and draft.size(loops[a]) > 1]
        if not free:
            return None
        return Rows(stage.name, free[-1], min(copies, draft.size(loops[free[-1]])))
    block = _block(draft, stage, vector)
    if block:  # partial states leave the registers between blocks: one set is enough
        near = moved_bytes(draft.kernel) <= NEAR * limits.l3
        if stage.is_contraction and near and draft.size(loops[vector]) >= 4 * lanes * copies:
            copies, block = 4 * copies, NEAR_BLOCK
        else:
            copies *= 4 if _adds_loads(stage) else 2
    while copies > 1 and draft.size(loops[vector]) < lanes * copies:
        copies //= 2
    registers = min(wide(stage, lanes), copies)
    return Reduction(stage.name, vector, lanes * registers, copies // registers, block)


def _block(draft: Draft, stage: Stage, vector: str) -> int:
    """Return how many steps to take at a time over a whole row of a free vector axis.

    Few, so that memory is read nearly in order; a bounded sum at least a 32nd of all its steps.
    """
    walk = [a for a in stage.axes("reduce") if a in draft.own(stage)]
    if stage.role[vector] != "free" or not walk or stage.axes("carry"):
        return 0
    size = int(draft.kernel.axis[walk[-1]].extent)
    if len(walk) > 1 or size < 64:
        return 0
    return 8 if stage.is_contraction else max(16, -(-size // MOST_SEQUENTIAL))


def _copies(stage: Stage, limits: Limits) -> int:
    """Return how many independent accumulators the registers hold, as a power of two.

    A bounded sum keeps two per copy: the block under way, and the blocks so far.
    """
    assert stage.state is not None
    most = limits.registers // (4 * len(stage.state.init))
    if len(stage.values) > 24:
        most //= 2
    copies = 1
    while copies * 2 <= most:
        copies *= 2
    return copies


def _adds_loads(stage: Stage) -> bool:
    """Return whether a step adds what it loads: from memory, without a register in between."""
    assert stage.state is not None
    return all(v.op == "add" and {a.op for a in v.args} <= {"state", "load"}
               for v in stage.state.update)


def _walkable(draft: Draft, stage: Stage) -> list[str]:
    """Return the axes that may be vectorised: the stage's own, of two or more, not carried."""
    return [a for a, loop in draft.own(stage).items()
            if stage.role.get(a) in ("free", "reduce") and draft.size(loop) > 1]


def _vector_axis(draft: Draft, stage: Stage, limits: Limits) -> str | None:
    """Return the axis whose steps are cheapest as lanes; reduce axes win near ties.

    None where only gathers would fill the lanes.
    """
    loads, stores = accesses(draft.kernel, stage)
    lanes = lanes_of(stage, limits)
    best, least = None, float("inf")
    for axis in sorted(_walkable(draft, stage), key=lambda a: stage.role[a] == "free"):
        cost = _cost(draft, stage, axis, lanes, loads, stores)
        if cost < TIE * least:
            best, least = axis, cost
    if best is not None and all(_gathered(a.stride(best), lanes) for a in loads):
        return None
    return best


def _cost(draft: Draft, stage: Stage, axis: str, lanes: int, loads: list[Access],
          stores: list[Access]) -> float:
    """Return the instructions of one step, with an axis in lanes.

    Those of a vector are shared by its lanes, what follows the last step by all steps.
    """
    assert stage.state is not None
    filled = min(draft.size(draft.own(stage)[axis]), lanes)
    steps = prod(int(draft.kernel.axis[a].extent) for a in stage.axes("reduce")) or 1
    vector = float(sum(v.op not in ("load", "const", "state") for v in stage.values))
    for load in loads:
        stride = abs(load.stride(axis))
        if _gathered(stride, lanes):
            vector += 2 * lanes
        else:
            vector += max(2 * stride - 1, 0.5)
    if stage.role[axis] == "reduce":
        end = 2.0 * len(stage.state.init) * (filled.bit_length() - 1)
    else:
        end = sum(1 / filled if s.stride(axis) == 1 else 2.0 for s in stores)
    return vector / filled + end / steps


def _gathered(stride: int, lanes: int) -> bool:
    """Return whether lanes so far apart are loaded one by one."""
    return abs(stride) > 1 and not picked(stride, lanes)
