"""The memory plan: where values that live only within a plan are kept."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True)
class Lifetime:
    """`nbytes` that must hold from step `first` (where they are written) to step `last`."""

    nbytes: int
    first: int
    last: int


def aligned(nbytes: int) -> int:
    """Return `nbytes` rounded up to whole cache lines, at least one."""
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT


class _Holes:
    """Free spans of an area that grows at its end; spans are (offset, bytes), ordered, apart."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        self.end = 0

    def take(self, nbytes: int) -> int:
        """Return the offset of the tightest span that fits, or of new room at the end."""
        fits = [i for i, (_, n) in enumerate(self.spans) if n >= nbytes]
        if fits:
            i = min(fits, key=lambda i: self.spans[i][1])
            offset, n = self.spans.pop(i)
            if n > nbytes:
                self.spans.insert(i, (offset + nbytes, n - nbytes))
            return offset
        offset = self.end
        if self.spans and sum(self.spans[-1]) == self.end:
            offset = self.spans.pop()[0]
        self.end = offset + nbytes
        return offset

    def give(self, offset: int, nbytes: int) -> None:
        i = bisect_left(self.spans, (offset, 0))
        if i < len(self.spans) and self.spans[i][0] == offset + nbytes:
            nbytes += self.spans.pop(i)[1]
        if i and sum(self.spans[i - 1]) == offset:
            before = self.spans.pop(i - 1)
            offset, nbytes = before[0], before[1] + nbytes
        insort(self.spans, (offset, nbytes))


def place(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Return a byte offset for each lifetime, and the bytes of the whole area.

    Lifetimes that share a step get disjoint memory; others may share it. Offsets are multiples of
    64. One sweep in order of `first`, each taking the tightest hole.
    """
    offsets = [0] * len(lifetimes)
    holes = _Holes()
    ends: list[tuple[int, int]] = []  # (last step, number), a heap
    for i in sorted(range(len(lifetimes)), key=lambda i: lifetimes[i].first):
        life = lifetimes[i]
        while ends and ends[0][0] < life.first:
            _, done = heapq.heappop(ends)
            holes.give(offsets[done], aligned(lifetimes[done].nbytes))
        offsets[i] = holes.take(aligned(life.nbytes))
        heapq.heappush(ends, (max(life.last, life.first), i))
    return offsets, holes.end
