"""Sketches of stages without state: `pointwise`, and `transpose` where loads and stores disagree."""

from __future__ import annotations

from tilewright.actions.access import OPAQUE, Access, accesses
from tilewright.actions.sketches.draft import Draft
from tilewright.kernel import Stage
from tilewright.kernel.value import postorder
from tilewright.limits import Limits

SMALL_BODY = 24  # values up to which several register copies pay


def lanes_of(draft: Draft, stage: Stage, limits: Limits) -> int:
    """Return the lanes that fill a vector register with the stage's widest element."""
    widest = max((v.dtype.itemsize for v in postorder(stage.roots())
                  if v.op not in ("index", "test", "divides")), default=4)
    return limits.lanes(widest)


def unit_axis(draft: Draft, stage: Stage, names: list[str]) -> str | None:
    """Return the axis along which the stores advance by one element, None if there is none."""
    _, stores = accesses(draft.kernel, stage)
    for axis in reversed(names):
        if any(s.stride(axis) == 1 for s in stores):
            return axis
    return None


def pointwise(draft: Draft, stage: Stage, loops: dict[str, str], limits: Limits) -> None:
    """Vectorise the stage along its stores; `loops` maps each axis to the stage's own loop.

    Where a load advances by one element along another axis, square tiles are transposed in registers.
    """
    axes = [a for a in stage.axes() if a in loops]
    if stage.axes("carry"):
        axes = [a for a in axes if stage.role[a] == "free"]
    vector = unit_axis(draft, stage, axes) or (axes[-1] if axes else None)
    if vector is None or draft.size(loops[vector]) < 2:
        return
    lanes = lanes_of(draft, stage, limits)
    other = _crossing(draft, stage, vector, [a for a in axes if a != vector])
    if other is not None and min(draft.size(loops[other]), draft.size(loops[vector])) >= lanes:
        _transpose(draft, stage, loops, vector, other, lanes)
        return
    size = draft.size(loops[vector])
    copies = 1
    if len(postorder(stage.roots())) <= SMALL_BODY:
        while copies < 4 and size >= lanes * copies * 2:
            copies *= 2
    outer, inner = draft.split(loops[vector], lanes * copies)
    jam, lane = draft.split(inner, lanes)
    rest = [loop for loop in draft.loops(stage.name) if loop not in (outer, inner, jam, lane)]
    draft.order([*rest, *filter(None, (outer, jam)), lane])
    draft.vectorize(lane)
    if jam is not None:
        draft.interleave(jam)


def _crossing(draft: Draft, stage: Stage, vector: str, others: list[str]) -> str | None:
    """Return the axis along which a load that strides over `vector` is contiguous."""
    loads, _ = accesses(draft.kernel, stage)
    for load in loads:
        if abs(load.stride(vector)) > 1 and load.stride(vector) != OPAQUE and not load.guarded:
            for axis in others:
                if load.stride(axis) == 1 and stage.role[axis] == "free":
                    return axis
    return None


def _transpose(draft: Draft, stage: Stage, loops: dict[str, str], vector: str, other: str,
               lanes: int) -> None:
    """for rest: for other.0: for vector.0: { lanes x lanes tile }"""
    v0, v1 = draft.split(loops[vector], lanes)
    o0, o1 = draft.split(loops[other], lanes)
    rest = [loop for loop in draft.loops(stage.name) if loop not in (v0, v1, o0, o1)]
    draft.order([*rest, *filter(None, (o0, v0)), o1, v1])
    draft.vectorize(v1)
    draft.interleave(o1)


def crossing_load(loads: list[Access], vector: str) -> bool:
    """Return whether a load strides over the vector axis."""
    return any(abs(load.stride(vector)) > 1 for load in loads)
