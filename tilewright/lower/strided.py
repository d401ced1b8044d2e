"""Lanes some elements apart, picked from vectors that hold them all.

    lane j = memory[first + stride * j]:  loads side by side, then shuffles, one less than loads

A hardware gather takes as long as a load for every lane, or longer.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.dtypes import bool_
from tilewright.program import Builder, Instr, Type

Load = Callable[[int, Instr | None], Instr]


def pick(builder: Builder, load: Load, stride: int, lanes: int, first: int = 0,
         room: bool = False, mask: Instr | None = None) -> Instr:
    """Return the lanes; `first` is the place of the lowest one, lane 0 is last if stride < 0.

    load     (start, mask) -> `lanes` elements from `start` on
    room     whether all elements of the vectors side by side may be read; if not, none beyond the
             wanted ones is
    mask     the lanes to load, None for all; others are 0
    """
    wanted = [first + abs(stride) * j for j in range(lanes)]
    end = wanted[-1] + 1
    if stride < 0:
        wanted.reverse()
    starts = list(range(0, end, lanes))
    if mask is None and not room:
        starts[-1] = end - lanes
    found, at = None, [-1] * lanes  # at: where in `found` each lane is
    for k, start in enumerate(starts):
        part = load(start, None if mask is None else _elements(builder, mask, wanted, start))
        here = [w - start if w // lanes == k else -1 for w in wanted]
        if found is None:
            found, at = part, here
            continue
        found = builder.shuffle(found, part, tuple(
            lanes + h if h >= 0 else a for h, a in zip(here, at)))
        at = [j if max(h, a) >= 0 else -1 for j, (h, a) in enumerate(zip(here, at))]
    assert found is not None
    return found


def _elements(builder: Builder, mask: Instr, wanted: list[int], start: int) -> Instr:
    """Return the mask of a vector's elements: those that a lane wants."""
    lanes = len(wanted)
    lane_at = {w - start: j for j, w in enumerate(wanted)}
    none = builder.const(False, Type(bool_, lanes))
    return builder.shuffle(mask, none, tuple(lane_at.get(p, lanes) for p in range(lanes)))


Store = Callable[[int, Instr, Instr], None]


def spread(builder: Builder, store: Store, value: Instr, stride: int,
           mask: Instr | None = None) -> None:
    """Store lanes some elements apart, the lowest at 0, by masked vectors side by side.

    store    (start, vector, mask), called for each
    """
    lanes, step = value.type.lanes, abs(stride)
    places = [step * j for j in range(lanes)]
    if stride < 0:
        places.reverse()
    lane_at = {p: j for j, p in enumerate(places)}
    no, yes = (builder.const(b, Type(bool_, lanes)) for b in (False, True))
    for start in range(0, max(places) + 1, lanes):
        here = [lane_at.get(start + p, -1) for p in range(lanes)]
        inside = builder.shuffle(yes if mask is None else mask, no, tuple(
            h if h >= 0 else lanes for h in here))
        store(start, builder.shuffle(value, value, tuple(here)), inside)
