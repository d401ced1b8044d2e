"""Kernels made ready to run: scheduled, lowered, compiled and loaded, once per key."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tilewright.actions import Nest, Schedule, default_schedule
from tilewright.backends import Backend, Executable, backend
from tilewright.config import Config
from tilewright.fusion.alternatives import preferred
from tilewright.kernel import Kernel
from tilewright.kernel.verify import verify as verify_kernel
from tilewright.limits import Limits
from tilewright.lower import lower
from tilewright.plan.cache import Cache
from tilewright.program import Binding, Program
from tilewright.program.verify import verify as verify_program
from tilewright.search.keys import artifact_key
from tilewright.search.records import Records


@dataclass(frozen=True)
class Target:
    """Where kernels are to run: a backend by name, and what its device holds."""

    backend: str
    limits: Limits
    verify: bool = False  # check kernels and Programs between passes

    @classmethod
    def of(cls, config: Config) -> Target:
        """Return what `config` asks for. Raises BackendError for an unknown backend."""
        limits = replace(backend(config.backend).limits, threads=config.threads)
        return cls(config.backend, limits, config.verify)


@dataclass
class Work:
    """What making kernels took: seconds by stage, and counts."""

    seconds: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time spent inside to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def count(self, name: str, by: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + by


@dataclass(frozen=True, eq=False)
class Built:
    """A kernel that can run. Text and Programs are made again when asked for, not kept.

    parallel                      per program, whether all workers enter it
    source_text, assembly_text    what a person put in place of ours
    """

    kernel: Kernel
    schedule: Schedule
    target: Target
    binding: Binding
    parallel: tuple[bool, ...]
    instructions: int
    executable: Executable
    source_text: str | None = None
    assembly_text: str | None = None

    @property
    def native(self) -> bool:
        """Whether the executable has entries to call; else it executes arrays."""
        return bool(self.executable.addresses)

    @property
    def nest(self) -> Nest:
        return self.schedule.apply(self.kernel)

    @property
    def programs(self) -> tuple[Program, ...]:
        return lower(self.nest, self.target.limits).programs

    @property
    def source(self) -> str:
        """The backend's source."""
        if self.source_text is not None:
            return self.source_text
        return backend(self.target.backend).render(self.programs, self.binding)

    @property
    def assembly(self) -> str:
        """The assembly of the source."""
        if self.assembly_text is not None:
            return self.assembly_text
        return backend(self.target.backend).assembly(self.source)


def build(kernel: Kernel, target: Target, work: Work, schedule: Schedule | None = None,
          records: Records | None = None) -> Built:
    """Schedule (by default rules, unless given), lower, compile and load one kernel.

    Object code that `records` holds for the same source is not compiled again.
    Raises Illegal where the schedule does not apply, TooLarge beyond the instruction cap,
    BackendError where the backend refuses, VerifyError where the target asks for checks and a pass
    broke a rule.
    """
    if target.verify:
        verify_kernel(kernel, "fusion")
    with work.stage("schedule"):
        if schedule is None:
            kernel = preferred(kernel, target.limits)
            schedule = default_schedule(kernel, target.limits)
        nest = schedule.apply(kernel)
    with work.stage("lower"):
        lowered = lower(nest, target.limits)
    if target.verify:
        _verify(kernel, lowered.programs)
    programs, maker = lowered.programs, backend(target.backend)
    with work.stage("compile"):
        code, found = _object(maker, maker.render(programs, lowered.binding), records)
        executable = maker.load(code)
    work.count("programs found" if found else "programs compiled", len(programs))
    return Built(kernel, schedule, target, lowered.binding, tuple(p.parallel for p in programs),
                 sum(p.count for p in programs), executable)


def _object(maker: Backend, source: str, records: Records | None) -> tuple[bytes, bool]:
    """Return the object code of a source, and whether it was found, not compiled."""
    if records is None or not maker.identity:
        return maker.compile(source), False
    key = artifact_key(maker, source)
    code = records.artifact(key)
    if code is not None:
        return code, True
    code = maker.compile(source)
    records.put_artifact(key, code)
    return code, False


def _verify(kernel: Kernel, programs: Sequence[Program]) -> None:
    verify_kernel(kernel, "alternatives")
    for program in programs:
        verify_program(program, "lower")


def with_source(built: Built, text: str) -> Built:
    """Return the kernel with hand-written source in place of ours."""
    maker = backend(built.target.backend)
    return replace(built, executable=maker.load(maker.compile(text)), source_text=text,
                   assembly_text=None)


def with_assembly(built: Built, text: str) -> Built:
    """Return the kernel with hand-written assembly in place of ours."""
    maker = backend(built.target.backend)
    return replace(built, executable=maker.load(maker.assemble(text)), assembly_text=text)


class KernelCache:
    """Built kernels by key and target, so that equal kernels compile once per process."""

    def __init__(self, entries: int = 4096):
        self._built: Cache[Built] = Cache(entries)
        self._lock = threading.RLock()

    def get(self, kernel: Kernel, target: Target, work: Work,
            records: Records | None = None) -> Built:
        """Return the kernel ready to run, building it if it is new. Raises as `build` does."""
        key = (kernel.key, target)
        found = self._built.get(key)
        if found is None:
            with self._lock:  # one build at a time; the second who wants it finds it
                found = self._built.get(key)
                if found is None:
                    found = build(kernel, target, work, records=records)
                    self._built.put(key, found)
        return found

    def __len__(self) -> int:
        return len(self._built)

    def clear(self) -> None:
        """Forget every kernel; plans keep those that they use."""
        self._built.clear()


kernel_cache = KernelCache()
