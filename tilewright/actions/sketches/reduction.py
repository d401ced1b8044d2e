"""The `reduction` sketch: independent accumulators over the contiguous axis."""

from __future__ import annotations

from tilewright.actions.access import OPAQUE, accesses
from tilewright.actions.sketches.draft import Draft
from tilewright.actions.sketches.pointwise import lanes_of
from tilewright.kernel import Stage
from tilewright.kernel.value import postorder
from tilewright.limits import Limits


def reduction(draft: Draft, stage: Stage, loops: dict[str, str], limits: Limits) -> None:
    """Vectorise a stage with state along the axis its loads walk by one element.

    A reduce axis gives partial states per lane and copy; a free one gives neighbouring results.
    A scan's carry loop goes innermost, with copies over a free axis to hide its latency.
    """
    axes = [a for a in stage.axes() if a in loops]
    vector = _vector_axis(draft, stage, axes, loops)
    lanes = lanes_of(draft, stage, limits)
    copies = _copies(stage, limits)
    if vector is None:
        _jam_rows(draft, stage, axes, loops, copies)
        return
    size = draft.size(loops[vector])
    while copies > 1 and size < lanes * copies:
        copies //= 2
    outer, inner = draft.split(loops[vector], lanes * copies)
    jam, lane = draft.split(inner, lanes)
    rest = [loop for loop in draft.loops(stage.name) if loop not in (outer, inner, jam, lane)]
    free = [x for x in rest if draft.nest.role(x, stage.name) == "free"]
    steps = [x for x in rest if x not in free]
    if stage.role[vector] == "free":
        order = [*free, outer, *steps, jam, lane]
    else:
        order = [*free, *steps, outer, jam, lane]
    draft.order([x for x in order if x is not None])
    draft.vectorize(lane)
    if jam is not None:
        draft.interleave(jam)


def _copies(stage: Stage, limits: Limits) -> int:
    """Return how many independent accumulators the registers hold, as a power of two."""
    assert stage.state is not None
    slots = len(stage.state.init)
    most = limits.registers // (4 * slots)
    if len(postorder(stage.roots())) > 24:
        most //= 2
    copies = 1
    while copies * 2 <= most:
        copies *= 2
    return copies


def _vector_axis(draft: Draft, stage: Stage, axes: list[str], loops: dict[str, str]) -> str | None:
    """Return the axis that most loads walk by one element; reduce axes win ties; never a carry."""
    loads, stores = accesses(draft.kernel, stage)
    best, score = None, 0
    for axis in axes:
        role = stage.role[axis]
        if role == "carry" or draft.size(loops[axis]) < 2:
            continue
        unit = sum(1 for a in loads if abs(a.stride(axis)) == 1)
        strided = sum(1 for a in loads if abs(a.stride(axis)) > 1)
        opaque = sum(1 for a in loads if a.stride(axis) == OPAQUE)
        points = 4 * unit - 2 * strided - opaque + min(draft.size(loops[axis]), 16) / 16
        if role == "free":
            points += 2 if any(s.stride(axis) == 1 for s in stores) else 0
        else:
            points += 1
        if points > score:
            best, score = axis, points
    return best


def _jam_rows(draft: Draft, stage: Stage, axes: list[str], loops: dict[str, str],
              copies: int) -> None:
    """Without a contiguous axis: interleave independent rows."""
    free = [a for a in axes if stage.role[a] == "free" and draft.size(loops[a]) > 1]
    if not free:
        return
    outer, inner = draft.split(loops[free[-1]], min(copies, draft.size(loops[free[-1]])))
    rest = [loop for loop in draft.loops(stage.name) if loop not in (outer, inner)]
    steps = [x for x in rest if draft.nest.role(x, stage.name) != "free"]
    order = [*[x for x in rest if x not in steps], outer, *steps, inner]
    draft.order([x for x in order if x is not None])
    draft.interleave(inner)
