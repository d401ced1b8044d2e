"""The pooled allocator: reuse, lifetimes, limits, threads."""

import gc
import itertools
import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.dtypes import ALL, float32
from tilewright.runtime.memory import HUGE_PAGE, Allocator, size_class


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@given(st.integers(0, 1 << 40))
def test_size_classes_waste_at_most_an_eighth(nbytes):
    block = size_class(nbytes)
    assert block >= nbytes and block % 64 == 0
    assert size_class(block) == block
    assert block <= max(64 * -(-max(nbytes, 1) // 64), nbytes * 1.126)


def test_blocks_are_aligned_and_disjoint():
    pool = Allocator()
    blocks = [pool.block(n) for n in (1, 1, 64, 65, 5000, 5000, 1 << 20, HUGE_PAGE, 6 << 20)]
    spans = sorted((b.address, b.address + b.nbytes) for b in blocks)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    for block in blocks:
        assert block.address % 64 == 0
        assert block.__array_interface__["data"][0] == block.address
        block[:] = 7
    assert all(b.address % HUGE_PAGE == 0 for b in blocks[-2:])


def test_memory_returns_when_the_last_view_dies():
    pool = Allocator()
    storage = pool.empty((300, 300), float32)
    address = storage.address
    view = storage.array[10:].reshape(-1)[::2].view(np.int32)
    nbytes = pool.stats().live
    del storage
    gc.collect()
    assert pool.stats().live == nbytes and pool.stats().idle == 0
    view[0] = 3
    del view
    assert pool.stats().live == 0 and pool.stats().idle == nbytes
    again = pool.empty((299, 300), float32)
    assert again.address == address and pool.stats().reused == 1


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (7, 5)])
def test_empty_has_the_shape_and_dtype_asked(dtype, shape):
    storage = Allocator().empty(shape, dtype)
    assert storage.shape == shape and storage.array.dtype == dtype.numpy
    assert storage.array.flags.c_contiguous and storage.array.flags.writeable
    assert storage.address % 64 == 0


def test_idle_memory_keeps_to_the_limit():
    pool = Allocator(idle_limit=16 << 20)
    blocks = [pool.block(3 << 20) for _ in range(20)]
    del blocks
    assert 0 < pool.stats().idle <= 16 << 20
    pool.trim()
    assert pool.stats().idle == 0


def test_trimming_gives_memory_back_to_the_system():
    pool = Allocator()
    block = pool.block(64 << 20)
    block[:] = 1
    full = resident_bytes()
    del block
    pool.trim()
    assert resident_bytes() < full - (60 << 20)


def test_resident_memory_stays_flat_over_many_arrays():
    pool = Allocator()
    for shape in ((16,), (100, 100), (1000, 1000)):
        pool.empty(shape, float32).array.fill(1)
    before, mapped = resident_bytes(), pool.stats().mapped
    for _ in range(20_000):
        for shape in ((16,), (100, 100), (1000, 1000)):
            pool.empty(shape, float32)
    assert resident_bytes() - before < 2 << 20
    assert pool.stats().mapped == mapped


def test_threads_share_a_pool_without_sharing_blocks():
    pool, wrong = Allocator(), []

    def work(seed):
        kept = []
        for i in range(2000):
            array = pool.empty(((seed * 37 + i * 11) % 900,), float32).array
            array.fill(seed * 10_000 + i)
            kept.append((array, seed * 10_000 + i))
            if len(kept) > 20:
                old, value = kept.pop(i % 20)
                if not (old == value).all():
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong
    assert pool.stats().live == 0


def test_a_finaliser_inside_the_allocator_does_not_block():
    pool = Allocator()
    block = pool.block(100)
    with pool._lock:
        del block  # released while the lock is held by this very thread
    assert pool.stats().live == 0
