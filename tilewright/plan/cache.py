"""A bounded cache that readers share without a lock."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Cache(Generic[V]):
    """Keeps the most recently used entries, up to `entries` of them and `weight` in all.

    The newest entry is kept whatever it weighs. Reading takes no lock; writing does.
    """

    def __init__(self, entries: int, weight: int = 1 << 62):
        self.entries, self.weight = entries, weight
        self._table: dict[Hashable, list] = {}  # key -> [value, tick of last use, weight]
        self._tick = itertools.count()
        self._held = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._table)

    def get(self, key: Hashable) -> V | None:
        """Return the value kept under `key`, or None."""
        entry = self._table.get(key)
        if entry is None:
            return None
        entry[1] = next(self._tick)
        return entry[0]

    def put(self, key: Hashable, value: V, weight: int = 1) -> None:
        """Keep `value`; drop the entries used longest ago where there are too many."""
        with self._lock:
            old = self._table.pop(key, None)
            if old is not None:
                self._held -= old[2]
            self._table[key] = [value, next(self._tick), weight]
            self._held += weight
            if len(self._table) > self.entries or self._held > self.weight:
                self._evict()

    def _evict(self) -> None:
        """Drop the older entries until a quarter of the room is free, so this is rare."""
        by_age = sorted(self._table, key=lambda k: self._table[k][1])
        for key in by_age[:-1]:
            if len(self._table) <= self.entries * 3 // 4 and self._held <= self.weight * 3 // 4:
                return
            self._held -= self._table.pop(key)[2]

    def clear(self) -> None:
        """Drop every entry."""
        with self._lock:
            self._table.clear()
            self._held = 0
