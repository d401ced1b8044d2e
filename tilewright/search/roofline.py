"""What this machine can do at best: measured in the run that uses it, or kept from an earlier."""

from __future__ import annotations

import ctypes
import json
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.backends import Backend, backend
from tilewright.dtypes import float32
from tilewright.program import Program
from tilewright.runtime import Launch, Segment, Storage, allocator, time_frame
from tilewright.search import sweeps

FILE = "limits.json"
FEW_SIZES = (256 << 10, 1 << 20, 8 << 20, 64 << 20)
SIZES = (256 << 10, 1 << 20, 8 << 20, 64 << 20, 192 << 20)  # bytes: L2, L3 and memory


@dataclass(frozen=True)
class MachineLimits:
    """Measured limits with `threads` threads.

    flops   floating-point operations a second, of a loop of multiply-adds in registers (float32)
    read    bytes a second of a read sweep, by bytes of the memory swept again and again
    write   the same of a fill, by ordinary or non-temporal stores, whichever is faster
    """

    threads: int
    flops: float
    read: dict[int, float]
    write: dict[int, float]

    def floor(self, read: int, written: int, flops: float) -> float:
        """Return the least seconds that so many bytes and FLOP take: the roofline's time.

        Bandwidths are those of a sweep of the whole working set's size.
        """
        memory = read / _at(self.read, read + written) + written / _at(self.write, read + written)
        return max(memory, flops / self.flops)

    def plain(self) -> dict[str, object]:
        """Return the limits as they are written in JSON: GFLOP/s and GB/s."""
        return {
            "threads": self.threads,
            "fma_gflops": self.flops / 1e9,
            "read_gbps": {str(k): v / 1e9 for k, v in self.read.items()},
            "write_gbps": {str(k): v / 1e9 for k, v in self.write.items()},
        }

    @classmethod
    def of(cls, plain: dict[str, Any]) -> MachineLimits:
        """Return the limits that `plain` wrote. Raises KeyError, TypeError or ValueError."""
        read, write = ({int(k): float(v) * 1e9 for k, v in plain[name].items()}
                       for name in ("read_gbps", "write_gbps"))
        if not read or not write:
            raise ValueError("limits: cannot read them (no sizes)")
        return cls(int(plain["threads"]), float(plain["fma_gflops"]) * 1e9, read, write)


def _at(bandwidths: dict[int, float], size: int) -> float:
    """Return the bandwidth at `size` bytes: between two sweeps, by the logarithm of their sizes."""
    sizes = sorted(bandwidths)
    places = [math.log(s) for s in sizes]
    return float(np.interp(math.log(max(size, 1)), places, [bandwidths[s] for s in sizes]))


def seconds(program: Program, arrays: Sequence[Storage], workers: int, repeats: int) -> float:
    """Compile a program without scratch, run it `repeats` times; return the least seconds."""
    llvm: Any = backend("llvm")
    executable = llvm.load(llvm.compile(llvm.render((program,), sweeps.binding(program))))
    try:
        buffers = tuple((i, 0) for i in range(len(arrays)))
        segment = Segment([Launch(executable.addresses[0], buffers, program.parallel)], workers)
        bases = (ctypes.c_int64 * len(arrays))(*(a.address for a in arrays))
        return float(time_frame(segment.frame(bases), repeats, warm=3).min())
    finally:
        executable.close()


def _filled(elements: int) -> Storage:
    storage = allocator.empty((elements,), float32)
    storage.array[:] = 0.5
    return storage


def measure_flops(threads: int) -> float:
    """Return FLOP/s of multiply-adds in registers, on `threads` threads."""
    limits: Any = backend("llvm").limits  # type: ignore[attr-defined]
    lanes = limits.lanes(float32.itemsize)
    accumulators = max(8, limits.registers - 8)
    program, flops = sweeps.arithmetic(lanes, accumulators, 100_000, threads)
    arrays = [_filled(lanes), _filled(threads * accumulators * lanes)]
    return flops / seconds(program, arrays, threads, 15)


def measure_read(size: int, threads: int) -> float:
    """Return bytes a second of reading `size` bytes again and again."""
    limits: Any = backend("llvm").limits  # type: ignore[attr-defined]
    lanes = limits.lanes(float32.itemsize)
    program, count = sweeps.reading(lanes, size // float32.itemsize, threads)
    arrays = [_filled(size // float32.itemsize), _filled(threads * lanes)]
    return count / seconds(program, arrays, threads, _repeats(size))


def measure_write(size: int, threads: int) -> float:
    """Return bytes a second of filling `size` bytes again and again, by the better stores."""
    limits: Any = backend("llvm").limits  # type: ignore[attr-defined]
    lanes = limits.lanes(float32.itemsize)
    arrays = [_filled(size // float32.itemsize)]
    best = 0.0
    for stream in (False, True):
        program, count = sweeps.writing(lanes, size // float32.itemsize, threads, stream)
        best = max(best, count / seconds(program, arrays, threads, _repeats(size)))
    return best


def _repeats(size: int) -> int:
    return max(7, min(50, (1 << 30) // size))


def measure_limits(threads: int, sizes: Sequence[int] = SIZES,
                   progress: Callable[[str], None] = lambda text: None) -> MachineLimits:
    """Measure every limit with `threads` threads; takes about a second."""
    progress("arithmetic")
    flops = measure_flops(threads)
    read: dict[int, float] = {}
    write: dict[int, float] = {}
    for size in sizes:
        progress(f"memory {size >> 10} KiB")
        read[size], write[size] = measure_read(size, threads), measure_write(size, threads)
    return MachineLimits(threads, flops, read, write)


def kept_limits(directory: Path, device: Backend, threads: int, again: bool = False
                ) -> MachineLimits:
    """Return limits kept in a directory's file, measured if they are not there yet, or `again`.

    They are rougher than `measure_limits`: of fewer sizes. The machine may have been busy when they
    were measured, so of several measurements the greatest figures are kept. An empty directory
    keeps nothing.
    """
    path, name = directory / FILE, f"{device.identity} {threads}"
    table: dict[str, Any] = {}
    limits = None
    try:
        table = dict(json.loads(path.read_text(encoding="utf-8")))
        limits = MachineLimits.of(table[name])
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        pass  # not kept, or not by us
    if limits is not None and not again:
        return limits
    found = measure_limits(threads, FEW_SIZES)
    if limits is not None:
        found = _greatest(limits, found)
    if directory != Path():
        _write(path, json.dumps({**table, name: found.plain()}, indent=1))
    return found


def _greatest(a: MachineLimits, b: MachineLimits) -> MachineLimits:
    def join(x: dict[int, float], y: dict[int, float]) -> dict[int, float]:
        return {size: max(x.get(size, 0.0), y.get(size, 0.0)) for size in {**x, **y}}
    return MachineLimits(a.threads, max(a.flops, b.flops), join(a.read, b.read),
                         join(a.write, b.write))


def _write(path: Path, text: str) -> None:
    """Write a file whole; one that cannot be written costs only the next measuring."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(temporary, path)
    except OSError:
        return
