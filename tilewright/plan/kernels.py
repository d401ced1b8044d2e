"""Kernels made ready to run: scheduled, lowered, compiled and loaded, once per key.

A schedule comes from the records of earlier searches, else from the default rules.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tilewright.actions import Nest, Schedule, default_schedule, parse_schedule
from tilewright.backends import Backend, Executable, backend
from tilewright.config import Config
from tilewright.errors import (
    BackendError,
    Illegal,
    ScheduleError,
    ScheduleWarning,
    TooLarge,
)
from tilewright.fusion.alternatives import preferred
from tilewright.kernel import Kernel
from tilewright.kernel.verify import verify as verify_kernel
from tilewright.limits import Limits
from tilewright.lower import Lowered, lower
from tilewright.plan.cache import Cache
from tilewright.plan.recorded import key_of, opened, records_in
from tilewright.program import Binding, Program
from tilewright.program.verify import verify as verify_program
from tilewright.search.candidates import forms
from tilewright.search.keys import artifact_key


@dataclass(frozen=True)
class Target:
    """Where kernels are to run: a backend by name, and what its device holds.

    caches     how a kernel finds them: "warm", as its own last run left them; "cold", where the
               plan touches more than they hold from one of its runs to the next
    verify     check kernels and Programs between passes
    records    directory whose records give schedules and object code; none where it is empty
    """

    backend: str
    limits: Limits
    verify: bool = False
    records: Path = Path()
    caches: str = "warm"

    @classmethod
    def of(cls, config: Config) -> Target:
        """Return what `config` asks for. Raises BackendError for an unknown backend."""
        limits = replace(backend(config.backend).limits, threads=config.threads)
        return cls(config.backend, limits, config.verify,
                   config.cache_dir if config.disk_cache else Path())


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

    origin, alternative           what fusion made, and which of its forms `kernel` is (0: itself)
    parallel                      per program, whether all workers enter it
    source_text, assembly_text    what a person put in place of ours
    """

    origin: Kernel
    alternative: int
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
          alternative: int = 0) -> Built:
    """Schedule (by default rules, unless given), lower, compile and load one kernel.

    A schedule that is given is one of the kernel's form `alternative`. Raises Illegal where the
    schedule does not apply or there is no such form, TooLarge beyond the instruction cap,
    BackendError where the backend refuses, VerifyError where the target asks for checks and a pass
    broke a rule.
    """
    if target.verify:
        verify_kernel(kernel, "fusion")
    if schedule is None:
        alternative, form = _preferred(kernel, target.limits)
        schedule, lowered = _lower_by_default(form, target, work)
    else:
        form = _form(kernel, target.limits, alternative)
        lowered = _lower(form, schedule, target, work)
    if target.verify:
        _verify(form, lowered.programs)
    programs, maker = lowered.programs, backend(target.backend)
    with work.stage("compile"):
        code, found = _object(maker, maker.render(programs, lowered.binding), target.records)
        executable = maker.load(code)
    work.count("programs found" if found else "programs compiled", len(programs))
    return Built(kernel, alternative, form, schedule, target, lowered.binding,
                 tuple(p.parallel for p in programs), sum(p.count for p in programs), executable)


def _lower(form: Kernel, schedule: Schedule, target: Target, work: Work) -> Lowered:
    with work.stage("schedule"):
        nest = schedule.apply(form)
    with work.stage("lower"):
        return lower(nest, target.limits)


def _lower_by_default(form: Kernel, target: Target, work: Work) -> tuple[Schedule, Lowered]:
    """Return the default schedule and its Programs.

    Sketches that do not fit a kernel are a fault of theirs: warned of, and no reason to fail.
    """
    try:
        with work.stage("schedule"):
            schedule = default_schedule(form, target.limits)
        return schedule, _lower(form, schedule, target, work)
    except Illegal as reason:
        warnings.warn(f"schedule: cannot use the default for a kernel ({reason}); it runs in plain "
                      f"loops. Please report it with its text:\n{form}", ScheduleWarning,
                      stacklevel=2)
        return Schedule(), _lower(form, Schedule(), target, work)


def _object(maker: Backend, source: str, directory: Path) -> tuple[bytes, bool]:
    """Return the object code of a source, and whether the records in `directory` held it."""
    if directory == Path() or not maker.identity:
        return maker.compile(source), False
    records, key = opened.get(directory), artifact_key(maker, source)
    code = records.artifact(key)
    if code is not None:
        return code, True
    code = maker.compile(source)
    records.put_artifact(key, code)
    return code, False


def _preferred(kernel: Kernel, limits: Limits) -> tuple[int, Kernel]:
    form = preferred(kernel, limits)
    if form is kernel:
        return 0, form
    return [f.key for f in forms(kernel, limits)].index(form.key), form


def _form(kernel: Kernel, limits: Limits, alternative: int) -> Kernel:
    if alternative == 0:
        return kernel
    found = forms(kernel, limits)
    if not 0 <= alternative < len(found):
        raise Illegal(f"schedule: cannot use form {alternative} of the kernel "
                      f"(it has {len(found)})")
    return found[alternative]


def build_recorded(kernel: Kernel, target: Target, work: Work) -> Built | None:
    """Build a kernel as its record says; None where there is no record.

    A record that does not apply any more is dropped.
    """
    records = records_in(target.records)
    if records is None:
        return None
    other = "cold" if target.caches == "warm" else "warm"
    for caches in (target.caches, other):  # what was found in other circumstances is a beginning
        key = key_of(kernel, target.backend, target.limits.threads, caches)
        entry = records.lookup(key)
        if entry is None:
            continue
        try:
            return build(kernel, target, work, parse_schedule(entry.schedule), entry.alternative)
        except (BackendError, Illegal, ScheduleError, TooLarge):
            records.drop(key)
    return None


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
    """Built kernels by key and target, so that equal kernels compile once per process.

    stamp   changes when a kernel is replaced by a better one; 0 while somebody tunes. A plan that
            saw the present stamp has nothing to look after.
    """

    def __init__(self, entries: int = 4096):
        self._built: Cache[Built] = Cache(entries)
        self._lock = threading.RLock()
        self._improved, self._watching = 1, 0
        self.stamp = 1

    def get(self, kernel: Kernel, target: Target, work: Work) -> Built:
        """Return the kernel ready to run, building it if it is new. Raises as `build` does."""
        key = (kernel.key, target)
        found = self._built.get(key)
        if found is None:
            with self._lock:  # one build at a time; the second who wants it finds it
                found = self._built.get(key)
                if found is None:
                    found = build_recorded(kernel, target, work) or build(kernel, target, work)
                    self._built.put(key, found)
        return found

    def peek(self, key: str, target: Target) -> Built | None:
        """Return what `get` would give for a kernel's key, if it is here."""
        return self._built.get((key, target))

    def improve(self, built: Built) -> None:
        """Let plans run `built` in place of the kernel that they have, from their next run on."""
        with self._lock:
            self._built.put((built.origin.key, built.target), built)
            self._improved += 1
            self._restamp()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Let every plan look after its kernels at every run inside."""
        self._watch(1)
        try:
            yield
        finally:
            self._watch(-1)

    def _watch(self, by: int) -> None:
        with self._lock:
            self._watching += by
            self._restamp()

    def _restamp(self) -> None:
        self.stamp = 0 if self._watching else self._improved

    def __len__(self) -> int:
        return len(self._built)

    def clear(self) -> None:
        """Forget every kernel; plans keep those that they use."""
        self._built.clear()


kernel_cache = KernelCache()
