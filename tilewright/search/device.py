"""The CPU as a `Measurer`: compilers and a timer in child processes.

A candidate runs only in the timer's process. What crashes it, hangs or eats memory costs that
process: another takes its place, with the same buffers, and links again what is still asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from tilewright.errors import BackendError
from tilewright.kernel import Kernel
from tilewright.limits import Limits
from tilewright.search.measurer import Code, Failure
from tilewright.worker.pool import compilers
from tilewright.worker.process import Child, Lost
from tilewright.worker.values import epsilon

_SLACK = 10.0  # seconds beyond a candidate's own until the parent loses patience with its timer
_SWEEP_SECONDS = 1.0  # more than one sweep of the caches takes
_NOISE_SAMPLES = 20
SWEEP = 4  # times the last cache that is read before a cold sample; caches keep much of twice


class Target(Protocol):
    """Where kernels run: a backend by name, and its device's limits."""

    @property
    def backend(self) -> str: ...

    @property
    def limits(self) -> Limits: ...


@dataclass(frozen=True)
class Caps:
    """What candidates may cost.

    compile_seconds, compile_bytes    of one source
    run_seconds, run_factor           of one run: the greater of the seconds and the factor times
                                      the given code's run
    run_bytes                         memory beyond the buffers
    given_seconds                     of the given code's first runs, which is trusted
    """

    compile_seconds: float = 10.0
    compile_bytes: int = 2 << 30
    run_seconds: float = 1.0
    run_factor: float = 8.0
    run_bytes: int = 1 << 30
    given_seconds: float = 120.0


class CpuMeasurer:
    """A `Measurer` of this machine's processor; a context manager, which closes it.

    threads    workers of parallel programs (default: the target's)
    cold       sweep the caches before each sample; else data is where the last run left it
    workers    compilers (default: the process's cores)

    One request at a time; several measurers of a process take turns. Raises BackendError for a
    target without native code.
    """

    def __init__(self, target: Target, threads: int | None = None, cold: bool = False,
                 caps: Caps | None = None, workers: int | None = None):
        if target.backend != "llvm":
            raise BackendError(f"measure: cannot time {target.backend} (native code is needed)")
        self.target, self.caps, self.cold = target, caps or Caps(), cold
        self.threads = threads or target.limits.threads
        self.workers = workers or _cores()
        self._child: Child | None = Child("bench")
        self._begun = False
        compilers.start(self.workers)
        self._next = self._memory = 0
        self._kernel: Kernel | None = None
        self._forget()

    def _forget(self) -> None:
        self._codes: dict[int, Code] = {}
        self._given = -1
        self._loaded: set[int] = set()
        self._dead: dict[int, Failure] = {}
        self._limit = self.caps.run_seconds

    # -- Measurer ------------------------------------------------------------------------

    def begin(self, kernel: Kernel, given: Code) -> int | Failure:
        """Make buffers for the kernel, run `given` and keep its outputs; earlier handles end."""
        self._forget()
        self._kernel, self._begun = kernel, False
        self._given = handle = self._keep(given)
        with compilers.lock:
            compilers.settle()
            try:
                failure = self._prepare()
            except Lost as lost:
                failure = self._buried(lost)
        return failure or handle

    def compile(self, sources: Iterable[str]) -> list[bytes | Failure]:
        """Compile sources in child processes, several at a time, while further ones are made."""
        results = compilers.compile(self.target.backend, sources, self.workers,
                                    self.caps.compile_seconds, self.caps.compile_bytes)
        return [x if isinstance(x, bytes) else Failure(*x) for x in results]

    def link(self, code: Code) -> int | Failure:
        """Load code, run it once on garbage outputs and compare them with the given code's."""
        handle = self._keep(code)
        failure = self._link(handle, check=True)
        if failure is not None:
            del self._codes[handle]
        return failure or handle

    def sample(self, handle: int) -> float | Failure:
        """Return the seconds of one run; runs under 20 us are averaged within the sample."""
        found = self.samples(handle, 1)
        return found if isinstance(found, Failure) else found[0]

    def samples(self, handle: int, count: int) -> list[float] | Failure:
        """Return `count` samples by one request; short kernels are sampled faster this way."""
        if handle not in self._codes:
            raise ValueError(f"sample: cannot find candidate {handle} (unknown, or of an earlier "
                             "kernel)")
        if handle in self._dead:
            return self._dead[handle]
        if handle not in self._loaded:
            failure = self._link(handle, check=False)
            if failure is not None:
                return failure
        seconds = (self._limit + self.cold * _SWEEP_SECONDS) * count + 1
        answer = self._request(handle, ("sample", handle, count, seconds), seconds)
        return answer if isinstance(answer, Failure) else answer[1]

    def close(self) -> None:
        """End the timer's process; the compilers stay for the next search of this process."""
        self._forget()
        self._bury()

    def move(self) -> None:
        """Give the kernel's buffers other pages, unless there is no memory for it."""
        with compilers.lock:
            try:
                if self._begun:
                    self._ask(("move",), _SLACK + _moving(self._kernel))
            except Lost as lost:
                self._buried(lost)  # the next timer has other pages as well

    # -- beyond the protocol -------------------------------------------------------------

    def noise(self) -> float:
        """Return the relative spread, 90th percentile over least, of a fixed kernel's 20 samples.

        Some 6 ms. A quiet machine is below a few percent.
        """
        with compilers.lock:
            try:
                answer = self._ask(("noise", self.target.backend, _NOISE_SAMPLES), _SLACK)
            except Lost as lost:
                self._buried(lost)
                raise BackendError(f"noise: cannot time the machine ({lost})") from None
        spans = np.array(answer[1])
        return float(np.quantile(spans, 0.9) / spans.min() - 1)

    def drop(self, handle: int) -> None:
        """Forget a candidate, and free its code."""
        self._codes.pop(handle, None)
        if handle in self._loaded:
            self._loaded.discard(handle)
            self._request(handle, ("drop", handle), _SLACK)

    def __enter__(self) -> CpuMeasurer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- the timer's process -------------------------------------------------------------

    def _keep(self, code: Code) -> int:
        self._next += 1
        self._codes[self._next - 1] = code
        return self._next - 1

    def _link(self, handle: int, check: bool) -> Failure | None:
        request = ("link", handle, _plain(self._codes[handle]), self._limit, check)
        answer = self._request(handle, request, 5 * self._limit + _moving(self._kernel))
        if isinstance(answer, Failure):
            return answer
        self._loaded.add(handle)
        return None

    def _request(self, handle: int, request: tuple, seconds: float) -> Any:
        """Return the timer's answer on one candidate, or the failure that it becomes."""
        with compilers.lock:
            try:
                if not self._begun:
                    failure = self._prepare()
                    if failure is not None:
                        return failure
                answer = self._ask(request, seconds + _SLACK)
            except Lost as lost:
                failure = self._buried(lost)
                if handle != self._given:  # which is trusted: another timer tries it again
                    self._dead[handle] = failure
                return failure
        if answer[0] == "failed":
            self._dead[handle] = Failure(answer[1], answer[2])
            return self._dead[handle]
        return answer

    def _ask(self, request: tuple, seconds: float) -> Any:
        """Return the timer's answer, from a fresh timer if there is none. Raises Lost."""
        if self._child is None:
            self._child = Child("bench")
        self._child.memory = self._memory
        try:
            return self._child.ask(request, seconds)
        except Lost:
            raise
        except BaseException:  # an interrupt: an answer that comes later would be taken for another
            self._bury()
            raise

    def _bury(self) -> None:
        """End the timer; all that it had loaded is gone."""
        if self._child is not None:
            self._child.close()
        self._child, self._begun = None, False
        self._loaded.clear()

    def _buried(self, lost: Lost) -> Failure:
        self._bury()
        reason = (f"a run took over {self._limit:.3g} s" if lost.kind == "timeout" else lost.reason)
        return Failure(lost.kind, reason)

    def _prepare(self) -> Failure | None:
        """Give the timer the kernel's buffers and the reference. Raises Lost."""
        kernel = self._kernel
        if kernel is None:
            raise ValueError("measure: cannot link or sample before `begin` has named a kernel")
        buffers = [(b.name, b.kind, b.dtype.name, prod(n.hi for n in b.shape))
                   for b in (*kernel.inputs, *kernel.outputs)]
        nbytes = sum(b.dtype.itemsize * size[3]
                     for b, size in zip((*kernel.inputs, *kernel.outputs), buffers))
        sweep = SWEEP * self.target.limits.l3 if self.cold else 0
        self._memory = 6 * nbytes + sweep + self.caps.run_bytes
        patience = self.caps.given_seconds + _moving(kernel)
        answer = self._ask(("begin", self.target.backend, buffers, self.threads, sweep,
                            self.caps.run_bytes), patience)
        if answer[0] != "failed":
            answer = self._ask(("reference", self._given, _plain(self._codes[self._given]),
                                *_precision(kernel), self.caps.given_seconds), 4 * patience)
        if answer[0] == "failed":
            return Failure(answer[1], answer[2])
        self._limit = max(self.caps.run_seconds, self.caps.run_factor * answer[1])
        self._loaded.add(self._given)
        self._begun = True
        return None


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def _plain(code: Code) -> tuple:
    """Return code as a message holds it."""
    binding = code.binding
    return (code.code, tuple(p.name for p in binding.params), binding.global_bytes,
            binding.private_bytes, tuple(code.parallel))


def _moving(kernel: Kernel | None) -> float:
    """Return generous seconds for filling and comparing a kernel's buffers."""
    if kernel is None:
        return 1.0
    return 1.0 + 1e-8 * sum(b.dtype.itemsize * prod(n.hi for n in b.shape)
                            for b in (*kernel.inputs, *kernel.outputs))


def _precision(kernel: Kernel) -> tuple[int, float, float]:
    """Return what decides how far apart equal results may be (`worker.values.tolerance`).

    The number of terms that reductions add up, the coarsest precision of anything rounded on the
    way, and the precision of the reductions over that of the inputs.
    """
    reduced = {name for s in kernel.stages for name in s.axes("reduce", "carry")}
    terms = prod(kernel.axis[name].extent.hi for name in reduced)
    states = [v.dtype for s in kernel.stages if s.state for v in s.state.init if v.dtype.is_float]
    rounded = [v.dtype for s in kernel.stages for v in s.values
               if v.op == "cast" and v.dtype.is_float]
    scratch = [b.dtype for b in kernel.buffers if b.kind == "scratch" and b.dtype.is_float]
    inputs = [epsilon(b.dtype.numpy) for b in kernel.inputs if b.dtype.is_float]
    eps = max((epsilon(d.numpy) for d in (*states, *rounded, *scratch)), default=0.0)
    accumulated = max((epsilon(d.numpy) for d in states), default=0.0)
    return max(terms, 1), eps, accumulated / max(inputs) if inputs else 0.0
