"""Configuration: the only module that reads the environment.

    TILEWRIGHT_BACKEND       llvm (default) or interpreter
    TILEWRIGHT_NUM_THREADS   worker threads of a parallel kernel (default: the process's cores)
    TILEWRIGHT_DEBUG         1..6: print launches, graphs, schedules, Programs, source, assembly
    TILEWRIGHT_VERIFY        1: check kernels and Programs against their grammars between passes
    TILEWRIGHT_CACHE_DIR     where compiled kernels and records are kept
    TILEWRIGHT_DISK_CACHE    0: keep nothing between processes
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import platformdirs


@dataclass(frozen=True, eq=False)
class Tune:
    """Options of tuning. One object is one budget: functions that share it share its seconds.

    beam         candidates that a search keeps from round to round
    seconds      for all searches together
    seed         equal seeds order equal candidates alike
    skip_under   kernels that take less, in seconds, are left alone
    near_limit   so are kernels within this share of the least time that this machine needs
    again        search kernels of which a record is kept too
    progress     show what is going on; unless given, where standard error is a terminal
    caches       their state when candidates are timed: "warm" as the last run of the kernel left
                 them, "cold" after other data went through them, "plan" as the plan leaves them
    """

    beam: int = 4
    seconds: float = 60.0
    seed: int = 0
    skip_under: float = 5e-6
    near_limit: float = 0.05
    again: bool = False
    progress: bool | None = None
    caches: str = "plan"

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ValueError(f"tune: cannot keep a beam of {self.beam} (at least 1)")
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"tune: cannot spend {self.seconds} seconds (a positive number "
                             "is needed)")
        if self.caches not in ("plan", "warm", "cold"):
            raise ValueError(f"tune: cannot time with caches {self.caches!r} (plan, warm or cold)")


@dataclass(frozen=True)
class Config:
    """Options of everything that compiles or runs; keys of caches derive from it.

    verify     check what each pass leaves; VerifyError names the pass that broke a rule
    observer   is called with a `plan.debug.Ran` after every launch of plans made while it is set
    tune       searches the kernels of plans that run: a `Tune`, or anything that can `attend` to a
               plan (see `plan.tuning`). It changes how kernels run, not what a plan is
    """

    backend: str = "llvm"
    threads: int = 1
    debug: int = 0
    verify: bool = False
    cache_dir: Path = Path()
    disk_cache: bool = False
    observer: Callable[[Any], None] | None = None
    tune: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"config: cannot use {self.threads} threads (at least 1)")


def _number(name: str, default: int, least: int) -> int:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ValueError(f"config: cannot read {name}={text!r} (an integer >= {least} is needed)")
    return value


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"config: cannot read {name}={text!r} (positive seconds are needed)")
    return value


def _tune() -> Tune | None:
    beam = _number("TILEWRIGHT_BEAM", 0, 0)
    seconds = _seconds("TILEWRIGHT_TUNE_SECONDS", Tune.seconds)
    return Tune(beam, seconds) if beam else None


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def from_environment() -> Config:
    """Return the configuration that the environment asks for."""
    directory = os.environ.get("TILEWRIGHT_CACHE_DIR", "").strip()
    return Config(
        backend=os.environ.get("TILEWRIGHT_BACKEND", "").strip() or "llvm",
        threads=_number("TILEWRIGHT_NUM_THREADS", _cores(), 1),
        debug=_number("TILEWRIGHT_DEBUG", 0, 0),
        verify=_number("TILEWRIGHT_VERIFY", 0, 0) > 0,
        disk_cache=bool(_number("TILEWRIGHT_DISK_CACHE", 1, 0)),
        cache_dir=Path(directory or platformdirs.user_cache_dir("tilewright")).absolute(),
        tune=_tune(),
    )


class _Default:
    """The process-wide configuration, under any that a `using` block has set."""

    value = from_environment()


_current: ContextVar[Config | None] = ContextVar("tilewright_config", default=None)


def current() -> Config:
    """Return the configuration in force here."""
    return _current.get() or _Default.value


@contextmanager
def using(**changes: object) -> Iterator[Config]:
    """Change options within a block: ``with tw.using(threads=2, backend="interpreter"):``."""
    token = _current.set(replace(current(), **changes))  # type: ignore[arg-type]
    try:
        yield current()
    finally:
        _current.reset(token)


def set_num_threads(threads: int) -> None:
    """Set how many worker threads share a parallel kernel, for the whole process."""
    _Default.value = replace(_Default.value, threads=int(threads))


def set_disk_cache(on: bool) -> None:
    """Keep compiled kernels and records between processes from now on, for the whole process."""
    _Default.value = replace(_Default.value, disk_cache=on)


def set_verify(verify: bool) -> None:
    """Set whether kernels and Programs are checked between passes, for the whole process."""
    _Default.value = replace(_Default.value, verify=bool(verify))


def set_observer(observer: Callable[[Any], None] | None) -> None:
    """Report every launch of plans compiled from now on to `observer`, for the whole process."""
    _Default.value = replace(_Default.value, observer=observer)


def get_num_threads() -> int:
    """Return how many worker threads share a parallel kernel."""
    return current().threads
