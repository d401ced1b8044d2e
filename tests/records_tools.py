"""Records to test with."""

from __future__ import annotations

import hashlib

from tilewright.search.entries import Entry, Timing
from tilewright.search.keys import Key, code_version


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float = 1000.0):
        self.now = now

    def __call__(self) -> float:
        return self.now


def key(name: str = "a", **changes) -> Key:
    values = {"device": "llvm/cpu/0", "threads": 1, **changes}
    return Key(hashlib.sha256(name.encode()).hexdigest(), **values)


def entry(name: str = "a", seconds: float = 1e-3, **changes) -> Entry:
    values = {"key": key(name), "name": f"sum {name}", "alternative": 0,
              "schedule": "Split(i0, 8)\nVectorize(i0.1)", "spread": 0.1, "samples": 5,
              "start_seconds": 2e-3, "code": code_version(), "kernel": "kernel text",
              "before": "for i0 in 64", "after": "for i0.0 in 8", **changes}
    return Entry(seconds=seconds, **values)


TIMINGS = [Timing(0, "Split(i0, 8)", "timed", "", 1e-3, 0.1, 3),
           Timing(1, "Split(i0, 16)", "illegal", "i0 is too short")]


def digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()
