"""Long runs hold memory flat: nothing is kept per step, neither eager nor jitted."""

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw

ALLOWED = 4 << 20  # bytes: far below one object kept per step


def resident() -> int:
    """Return the bytes of memory this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(),
                                reason="the system does not tell resident memory")


def grown(step: Callable, x, steps: int) -> int:
    """Run `step` on its own result after a warm-up; return by how many bytes the process grew."""
    for _ in range(steps // 10):
        x = step(x)
    before, started = resident(), time.perf_counter()
    for _ in range(steps):
        x = step(x)
    after = resident()
    print(f"\n{steps} steps: {before >> 10} KiB to {after >> 10} KiB, "
          f"{(time.perf_counter() - started) / steps * 1e6:.1f} us per step")
    np.testing.assert_allclose(np.asarray(x), np.full(x.shape, 2), rtol=1e-6)
    return after - before


def eager(x):
    return tw.block_until_ready(x * 0.5 + 1.0)


def written(x):
    x[:] = x * 0.5 + 1.0
    return tw.block_until_ready(x)


def with_a_new_constant():
    """Return a step of which no two are the same graph."""
    numbers = itertools.count(1)

    def step(x):
        return tw.block_until_ready(x * 0.5 + 1.0 + next(numbers) * 1e-30)
    return step


halved = tw.jit(lambda x: x * 0.5 + 1.0)


@tw.jit
def halved_in_place(x):
    x[:] = x * 0.5 + 1.0
    return x + 0.0


STEPS = {"eager": eager, "written": written, "jitted": halved, "jitted in place": halved_in_place}


@pytest.mark.parametrize("shape", [(4,), (300, 70)], ids=str)
@pytest.mark.parametrize("name", STEPS)
def test_memory_is_flat(name, shape):
    assert grown(STEPS[name], tw.zeros(shape), 20_000 if shape == (4,) else 3_000) < ALLOWED


def test_memory_is_flat_over_different_constants():
    assert grown(with_a_new_constant(), tw.zeros((4,)), 2_000) < ALLOWED


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "steps"), [("eager", 1_000_000), ("jitted", 100_000)])
def test_memory_is_flat_for_long(name, steps):
    assert grown(STEPS[name], tw.zeros((4,)), steps) < ALLOWED
