"""One kernel on inputs of its own: its values, its time, and whether values are the same."""

from __future__ import annotations

import ctypes
import time
from functools import cached_property

import numpy as np

from tilewright.dtypes import DType
from tilewright.plan.cost import elements
from tilewright.plan.kernels import Built
from tilewright.plan.layout import Bases, KernelStep, Layout, Place, workspace_bytes
from tilewright.runtime.launch import Frame
from tilewright.runtime.memory import allocator
from tilewright.runtime.timer import time_frame


def difference(wanted: np.ndarray, found: np.ndarray) -> float:
    """Return the greatest absolute difference; inf where NaNs or infinities are not alike."""
    with np.errstate(all="ignore"):
        a, b = (x.astype(np.float64) for x in (wanted, found))
        gap = np.abs(a - b)
    gap[(wanted == found) | (np.isnan(a) & np.isnan(b))] = 0
    gap[np.isnan(gap)] = np.inf
    return float(gap.max(initial=0.0))


def tolerance(wanted: np.ndarray) -> float:
    """Return the difference allowed: none for integers, half the digits of the scale for floats."""
    if wanted.dtype.kind in "biu":
        return 0.0
    values = np.abs(wanted.astype(np.float64))
    scale = float(values[np.isfinite(values)].max(initial=0.0))
    return scale * float(_epsilon(wanted.dtype)) ** 0.5


def _epsilon(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 2.0 ** -7  # bfloat16


def sample(rng: np.random.Generator, count: int, dtype: DType) -> np.ndarray:
    """Return test values: floats uniform in [-0.5, 0.5), integers 0 to 3, bools of both kinds."""
    if dtype.is_float:
        return (rng.random(count, np.float32) - np.float32(0.5)).astype(dtype.numpy)
    return rng.integers(0, 2 if dtype.is_bool else 4, count).astype(dtype.numpy)


class Bench:
    """One kernel on scratch inputs of its own, equal for equal kernels."""

    def __init__(self, built: Built):
        kernel, rng = built.kernel, np.random.default_rng(0)
        inputs = []
        for buffer in kernel.inputs:
            storage = allocator.empty((elements(kernel, buffer.name),), buffer.dtype)
            storage.array[:] = sample(rng, storage.array.size, buffer.dtype)
            inputs.append(storage)
        outputs = tuple(((elements(kernel, b.name),), b.dtype) for b in kernel.outputs)
        workers = built.target.limits.threads
        bases = Bases(len(inputs), (), outputs, 0, workspace_bytes(built, workers))
        count = len(inputs) + len(outputs)
        step = KernelStep(built, tuple(Place(i) for i in range(count)), Place(bases.arena))
        self.layout = Layout([step], bases, range(len(inputs), count), workers, short=False)
        self.inputs, self.built = inputs, built

    def values(self) -> list[np.ndarray]:
        """Return the outputs of one run."""
        return [s.array for s in self.layout.run(self.inputs)]

    def time(self, repeats: int) -> np.ndarray:
        """Return `repeats` durations in seconds of one run; natively where the kernel is native."""
        if not self.built.native:
            spans = []
            for _ in range(repeats):
                start = time.perf_counter()
                self.layout.run(self.inputs)
                spans.append(time.perf_counter() - start)
            return np.array(spans)
        return time_frame(self._frame, repeats)

    def once(self) -> float:
        """Return the seconds of one run, whatever state the caches are in.

        Every such run is on the same memory, which a first one has touched.
        """
        return float(self._frame.time(1)[0]) if self.built.native else float(self.time(1)[0])

    @cached_property
    def _frame(self) -> Frame:
        bases = self.layout.bases
        held = [*self.inputs, *(allocator.empty(*o) for o in bases.outputs)]
        arena = allocator.block(bases.arena_bytes)
        self._held = [*held, arena]  # as long as the frame is used
        words = (ctypes.c_int64 * (len(held) + 1))(*(s.address for s in held), arena.address)
        frame = Frame(self.layout.groups[0], words)  # type: ignore[arg-type]
        frame.run()
        return frame
