"""This machine as people see it: facts from the system, quantities in words, the console."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import llvmlite.binding as llvm
from rich.console import Console


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cpu_name() -> str:
    """Return the processor's marketing name, or what the system calls it."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def caches() -> dict[str, int]:
    """Return bytes of each cache of the first core, by name: L1d, L1i, L2, L3."""
    found: dict[str, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        size, level, kind = (_read(str(index / n)).strip() for n in ("size", "level", "type"))
        if size.endswith("K") and size[:-1].isdigit():
            suffix = {"Data": "d", "Instruction": "i"}.get(kind, "")
            found[f"L{level}{suffix}"] = int(size[:-1]) << 10
    return found


def memory() -> int:
    """Return bytes of physical memory, or 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def vector_features() -> list[str]:
    """Return the instruction sets for vectors and matrices that the processor has."""
    present = {name for name, on in llvm.get_host_cpu_features().items() if on}
    wanted = ("sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl",
              "avx512vnni", "avx512bf16", "avx512fp16", "amx-tile", "amx-bf16", "amx-int8", "neon",
              "sve", "sve2")
    return [name for name in wanted if name in present]


def describe() -> dict[str, object]:
    """Return what the functions above say, the system and the Python version, by name."""
    return {
        "cpu": cpu_name(),
        "llvm_cpu": llvm.get_host_cpu_name(),
        "features": vector_features(),
        "cores": cores(),
        "caches": caches(),
        "memory": memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def size(count: int) -> str:
    """Write a number of bytes as people do: ``48 KiB``, ``2.5 GiB``."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.4g} {unit}"


def seconds(value: float) -> str:
    """Write a time as people do: ``1.53 ms``."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}" if value < 1000 else f"{value:.0f} s"
    return f"{value / 1e-9:.3g} ns"


@contextmanager
def bound_to(threads: int) -> Iterator[None]:
    """Bind the process to as many cores as `threads`, so that no library can use more."""
    try:
        before = os.sched_getaffinity(0)
    except AttributeError:  # not on this system
        yield
        return
    os.sched_setaffinity(0, sorted(before)[:threads])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def console() -> Console:
    """Return a console for standard output; 120 characters wide where that is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else 120)
