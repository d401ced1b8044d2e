"""The default schedule: each stage's sketch, with parameters from small analytic models."""

from __future__ import annotations

from tilewright.actions.access import accesses
from tilewright.actions.nest import BAND, Loop, leaves
from tilewright.actions.parallel import Parallel
from tilewright.actions.place import Place
from tilewright.actions.reorder import Reorder
from tilewright.actions.schedule import Schedule
from tilewright.actions.sketches.contraction import contraction
from tilewright.actions.sketches.draft import Draft
from tilewright.actions.sketches.pointwise import lanes_of, pointwise, unit_axis
from tilewright.actions.sketches.reduction import reduction
from tilewright.errors import Illegal
from tilewright.kernel import Kernel, Stage
from tilewright.kernel.value import postorder
from tilewright.limits import Limits

# values computed by a kernel from which waking the other workers pays (some 20 microseconds)
PARALLEL_WORK = 1 << 18


def default_schedule(kernel: Kernel, limits: Limits) -> Schedule:
    """Return the schedule that a kernel gets without search."""
    draft = Draft(kernel)
    _open_shared_vectors(draft, limits)
    for stage in kernel.stages:
        loops = _own_loops(draft, stage)
        if stage.state is None:
            pointwise(draft, stage, loops, limits)
        elif not contraction(draft, stage, loops, limits):
            reduction(draft, stage, loops, limits)
    if limits.threads > 1:
        _parallel(draft)
    return draft.schedule


def _own_loops(draft: Draft, stage: Stage) -> dict[str, str]:
    """Return {axis: loop} of the loops that hold only this stage."""
    found: dict[str, str] = {}
    for loop in draft.loops(stage.name):
        for axis in draft.nest.axes_of(loop):
            found[axis] = loop
    return found


def _open_shared_vectors(draft: Draft, limits: Limits) -> None:
    """Where memory is contiguous along a shared axis, give each stage its own vectors of it.

    for i: {s0: for k ..} {s1: ..}  ->  for i.0: {for k: for i.1 lanes ..} {for i.1 lanes ..}
    """
    kernel = draft.kernel
    shared = [item.name for item in _top_loops(draft) if len(list(leaves((item,)))) > 1]
    if not shared:
        return
    for axis in reversed(shared):
        stages = [kernel.stage[s] for s in leaves((draft.nest.loop(axis, "sketch"),))]
        if not any(_contiguous(draft, s, axis) for s in stages):
            continue
        lanes = min(lanes_of(draft, s, limits) for s in stages)
        if draft.size(axis) < lanes:
            return
        outer, _ = draft.split(axis, lanes)
        if outer is None:
            outer = _outer_of(draft, axis)
        for stage in stages:
            draft.do(Place(stage.name, outer))
        return


def _outer_of(draft: Draft, loop: str) -> str:
    path = [p.name for p in draft.nest.paths[loop]]
    position = path.index(loop)
    return path[position - 1] if position else "root"


def _top_loops(draft: Draft) -> list[Loop]:
    """Return the loops that hold several stages."""
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
    external = [x for x in (*loads, *stores) if not x.buffer.startswith("t")]
    if any(x.stride(a) == 1 for x in external for a in own):
        return False
    return any(x.stride(axis) == 1 for x in external)


def _work(kernel: Kernel) -> int:
    total = 0
    for stage in kernel.stages:
        points = 1
        for a in stage.axes():
            points *= int(kernel.axis[a].extent)
        values = [v for v in postorder(stage.roots()) if v.op not in ("const", "state", "index")]
        total += points * len(values)
    return total


def _parallel(draft: Draft) -> None:
    """Divide each top loop among the workers where the kernel is large enough."""
    if _work(draft.kernel) < PARALLEL_WORK:
        return
    for item in list(draft.nest.body):
        if not isinstance(item, Loop):
            continue
        name = _widest(draft, item)
        if name is None:
            continue
        try:
            path = [p.name for p in draft.nest.paths[name]]
            if path[0] != name:
                draft.do(Reorder((name, *path[:-1])))
            draft.do(Parallel(name))
        except Illegal:
            continue  # a reduction over the whole array stays on one worker


def _widest(draft: Draft, item: Loop) -> str | None:
    """Return the outermost free loop with enough iterations for every worker, or the widest."""
    best: str | None = None
    loop: object = item
    while isinstance(loop, Loop) and loop.kind not in BAND:
        roles = {draft.nest.role(loop.name, leaf) for leaf in leaves((loop,))}
        if roles == {"free"}:
            if draft.size(loop.name) >= 8:
                return loop.name
            if best is None or draft.size(loop.name) > draft.size(best):
                best = loop.name
        if len(loop.body) != 1:
            break
        loop = loop.body[0]
    return best if best and draft.size(best) > 1 else None


__all__ = ["default_schedule", "unit_axis"]
