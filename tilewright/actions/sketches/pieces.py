"""Pieces of one output: stages that each write a part of it, as those of a concatenation."""

from __future__ import annotations

from tilewright.actions.depend import conflict
from tilewright.actions.place import Place
from tilewright.actions.sketches.draft import Draft
from tilewright.kernel import Kernel, Stage

BLOCK = 64  # steps that a piece takes before the next one does
MOST_PIECES = 16


def pieces(kernel: Kernel) -> list[tuple[Stage, ...]]:
    """Return groups of two or more stages without state whose one output is the same, in parts."""
    found = []
    for buffer in kernel.outputs:
        group = tuple(s for s in kernel.stages if s.writes == {buffer.name})
        if not 2 <= len(group) <= MOST_PIECES:
            continue
        alone = all(s.state is None and s.reads.isdisjoint(o.writes)
                    for s in group for o in kernel.stages)
        apart = not any(conflict(a, b) for i, a in enumerate(group) for b in group[i + 1:])
        if alone and apart and _common(group):
            found.append(group)
    return found


def join(draft: Draft, size: int) -> None:
    """Let the pieces of each output walk their last common axis together, `size` steps at a time.

    for s0:i: out[2*i] = a[i]         ->   for s1:i.0: for s0:i.1: out[2*i] = a[i]
    for s1:i: out[2*i + 1] = b[i]                      for s1:i.1: out[2*i + 1] = b[i]

    Lines of the output are whole before they leave the nearest cache, and a long copy reads and
    writes in several places at once. Raises Illegal where a piece cannot be moved.
    """
    for group in pieces(draft.kernel):
        last = group[-1]
        outer, inner = draft.split(draft.own(last)[_common(group)[-1]], size)
        at = outer or inner
        for stage in group[:-1]:
            draft.do(Place(stage.name, at))


def _common(group: tuple[Stage, ...]) -> tuple[str, ...]:
    """Return the axes that are free in all stages."""
    return tuple(a for a in group[-1].axes("free")
                 if all(s.role.get(a) == "free" for s in group))
