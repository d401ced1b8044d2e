"""What tuning measures with: kernels timed as a plan uses them, the machine's limits, a device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from tilewright.actions.stream import StreamStore
from tilewright.backends import backend
from tilewright.fusion import KernelCall
from tilewright.plan.assemble import assemble
from tilewright.plan.cost import elements, flops
from tilewright.plan.kernels import Built, Target
from tilewright.plan.layout import KernelStep, RunFrame, Step, launches
from tilewright.plan.scratch import Bench
from tilewright.runtime.launch import Frame, Segment
from tilewright.runtime.storage import Storage
from tilewright.search.device import SWEEP, CpuMeasurer
from tilewright.search.measurer import Measurer
from tilewright.search.roofline import MachineLimits, kept_limits

if TYPE_CHECKING:
    from tilewright.plan.plan import Plan

Take = Callable[[], float]  # seconds of one run of a kernel
Pair = Callable[[Built, Built], tuple[Take, Take]]  # of the given form and another one
LEAST_SAMPLE = 100e-6  # seconds; shorter kernels run several times within a sample
LONG_PLAN = 0.05  # seconds; kernels of longer plans are compared outside of them
RUNS = TRIES = 3  # of a plan when its kernels are timed; in a sample of the last comparison
BEYOND = 1.05  # a share of the limits that cannot be


@dataclass(frozen=True)
class Usage:
    """A kernel in one run of a plan. Times are seconds, the least of several runs.

    seconds    of all its launches
    pair       (given, other) -> two functions that take samples of the kernel so built
    """

    built: Built
    launches: int
    seconds: float
    pair: Pair

    @property
    def each(self) -> float:
        """Seconds of one launch."""
        return self.seconds / self.launches


class Stopwatch:
    """A plan whose launches are timed one by one, natively, on the memory of a real run."""

    def __init__(self, plan: Plan, inputs: Sequence[Storage], built: Mapping[str, Built]):
        self.inputs, self.workers = inputs, plan.config.threads
        self.spans: dict[str, list[float]] = {}
        self._layout = assemble(plan.bound, built, self.workers, self._wrap)

    def run(self) -> dict[str, list[float]]:
        """Run once; return seconds of every launch, by the key of what fusion made."""
        self.spans = {}
        self._layout.run(self.inputs)
        return self.spans

    def take(self, keys: Sequence[str], runs: int = 1, tries: int = 1) -> float:
        """Return the seconds of some kernels' launches in a run: the mean of `runs`, and the least
        of `tries` of these."""
        def seconds() -> float:
            spans = self.run()
            return sum(sum(spans[key]) for key in keys)
        return min(sum(seconds() for _ in range(runs)) / runs for _ in range(tries))

    def _wrap(self, step: Step, run: Callable) -> Callable:
        if not isinstance(step, KernelStep):
            return run
        key = step.built.origin.key
        if not step.built.native:
            def timed(frame: RunFrame) -> None:
                start = time.perf_counter()
                run(frame)
                self._add(key, time.perf_counter() - start)
            return timed
        segment = Segment(launches(step), self.workers)

        def timed_natively(frame: RunFrame) -> None:
            self._add(key, float(Frame(segment, frame.bases).time(1)[0]))
        return timed_natively

    def _add(self, key: str, seconds: float) -> None:
        self.spans.setdefault(key, []).append(max(seconds, 1e-9))


def streamed(built: Built) -> frozenset[str]:
    """Return the outputs that a kernel writes past the caches: whoever reads them waits longer."""
    return frozenset(a.buffer for a in built.schedule.actions if isinstance(a, StreamStore))


def readers(plan: Plan, key: str) -> list[str]:
    """Return the other kernels that read what a kernel writes."""
    calls = [c for c in plan.bound.calls if isinstance(c, KernelCall)]
    written = {id(o.node) for c in calls if c.kernel.key == key for o in c.outputs}
    found = {c.kernel.key for c in calls if any(id(o.node) in written for o in c.inputs)}
    return sorted(found - {key})


class Device:
    """What a tuner measures with: this machine. Tests bring another."""

    clock = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._limits: dict[tuple[str, int], MachineLimits] = {}
        self._measured_again = False

    def measurer(self, target: Target) -> Measurer:
        """Return what times the candidates of one search."""
        return CpuMeasurer(target, cold=target.caches == "cold")

    def accepts(self, built: Built) -> bool:
        """Return whether the kernel can be timed here."""
        return built.native

    def share_of_limit(self, built: Built, seconds: float) -> float:
        """Return the least time that this machine needs for the kernel's bytes and FLOP, over its.

        A kernel that is faster than the limits kept shows that these were measured on a busy
        machine: then they are measured again, once.
        """
        share = self._floor(built, again=False) / seconds
        if share > BEYOND and not self._measured_again:
            self._measured_again = True
            share = self._floor(built, again=True) / seconds
        return share

    def _floor(self, built: Built, again: bool) -> float:
        target, kernel = built.target, built.origin
        key = target.backend, target.limits.threads
        if again or key not in self._limits:
            self._limits[key] = kept_limits(target.records, backend(key[0]), key[1], again)
        moved = [sum(elements(kernel, b.name) * b.dtype.itemsize for b in buffers)
                 for buffers in (kernel.inputs, kernel.outputs)]
        return self._limits[key].floor(moved[0], moved[1], flops(kernel))

    def usages(self, plan: Plan, inputs: Sequence[Storage]) -> list[Usage]:
        """Time each kernel of a plan in runs of it, without any output."""
        watch = Stopwatch(plan, inputs, plan.built)
        watch.run()  # not counted: code and memory may be cold
        runs = [watch.run()]
        whole = sum(map(sum, runs[0].values()))
        while len(runs) < RUNS and whole < 1.0:
            runs.append(watch.run())
        pair = self._pair(plan, inputs, whole)
        return [Usage(plan.built[key], len(spans), min(sum(run[key]) for run in runs), pair)
                for key, spans in runs[0].items()]

    def _pair(self, plan: Plan, inputs: Sequence[Storage], whole: float) -> Pair:
        if whole > LONG_PLAN:
            return self.alone

        def pair(given: Built, other: Built) -> tuple[Take, Take]:
            key = given.origin.key
            keys = [key]
            if streamed(given) != streamed(other):
                keys += readers(plan, key)
            watches = [Stopwatch(plan, inputs, {**plan.built, key: b}) for b in (given, other)]
            least = min(w.take(keys) for w in watches)
            runs = min(32, max(1, ceil(LEAST_SAMPLE / least)))
            tries = TRIES if whole < LONG_PLAN / 10 else 1
            first, second = watches
            return lambda: first.take(keys, runs, tries), lambda: second.take(keys, runs, tries)
        return pair

    def alone(self, given: Built, other: Built) -> tuple[Take, Take]:
        """Return functions that take samples of two forms of a kernel on inputs of their own."""
        cold = given.target.caches == "cold"
        swept = np.ones(SWEEP * given.target.limits.l3 // 8 if cold else 0)

        def taker(bench: Bench) -> Take:
            span = bench.once()
            if not cold and span < LONG_PLAN / 10:
                return lambda: float(bench.time(TRIES).min())

            def take() -> float:
                swept.sum()
                return bench.once()
            return take
        return taker(Bench(given)), taker(Bench(other))
