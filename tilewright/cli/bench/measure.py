"""Time two functions against each other: A B A B, medians, and an interval for their ratio.

A noisy machine slows both sides of a pair alike, so the ratio within a pair is steadier than either
time, and its interval needs no model of the noise.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilewright.search.decide import interval

Clock = Callable[[], int]
Call = Callable[[], object]

SAMPLE_NS = 100_000  # a shorter call is repeated within a sample


@dataclass(frozen=True)
class Pair:
    """Outcome of timing `ours` against `peer`. Times are medians in seconds of one call.

    ratio      median of peer/ours over the pairs: above 1, ours is faster
    low, high  95% interval of that median (distribution-free; the extremes below 6 pairs)
    spread     interquartile range of the ratios over their median
    pairs      how many pairs were timed
    """

    ours: float
    peer: float
    ratio: float
    low: float
    high: float
    spread: float
    pairs: int


def _sample(call: Call, count: int, clock: Clock) -> float:
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count


def repetitions(call: Call, clock: Clock = time.perf_counter_ns) -> int:
    """Return how many calls make one sample of at least SAMPLE_NS."""
    count = 1
    while count < 1 << 20:
        elapsed = _sample(call, count, clock) * count
        if elapsed >= SAMPLE_NS:
            break
        count = max(2 * count, min(64 * count, math.ceil(SAMPLE_NS * count / max(elapsed, 1))))
    return count


@contextmanager
def _no_collection() -> Iterator[None]:
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def compare(ours: Call, peer: Call, seconds: float, least: int = 5, most: int = 101,
            clock: Clock = time.perf_counter_ns) -> Pair:
    """Time both, interleaved, for about `seconds`: at least `least` pairs, at most `most`.

    Both are called before to warm up. Garbage collection is off while samples are taken.
    """
    with _no_collection():
        for call in (ours, peer, ours, peer):
            call()
        n_ours, n_peer = repetitions(ours, clock), repetitions(peer, clock)
        a: list[float] = []
        b: list[float] = []
        end = clock() + seconds * 1e9
        while len(a) < least or (len(a) < most and clock() < end):
            a.append(_sample(ours, n_ours, clock))
            b.append(_sample(peer, n_peer, clock))
    return summarise(a, b)


def summarise(ours_ns: list[float], peer_ns: list[float]) -> Pair:
    """Return the `Pair` of samples in nanoseconds that were taken side by side."""
    ratios = [q / max(p, 1e-3) for p, q in zip(ours_ns, peer_ns)]
    ratio = statistics.median(ratios)
    low, high = interval(ratios)
    quarters = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratio] * 3
    return Pair(statistics.median(ours_ns) * 1e-9, statistics.median(peer_ns) * 1e-9, ratio, low,
                high, (quarters[2] - quarters[0]) / ratio, len(ratios))


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean of positive values; NaN of none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan
