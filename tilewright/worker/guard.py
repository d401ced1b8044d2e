"""Limits that a child sets on itself: time by the system's alarm, memory, no core files."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def harmless() -> None:
    """Leave no core file, be the first to die where memory runs out, ignore the user's Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End this process, by the alarm signal, unless the block is left within `seconds`.

    The system does it, so it holds for native code, and when the parent is gone.
    """
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def allow_memory(nbytes: int) -> None:
    """Let this process map `nbytes` more than it does now; no effect where that is not limited."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return
    limit = pages * os.sysconf("SC_PAGE_SIZE") + nbytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
