"""Pooled memory: blocks are taken from size classes and come back when their last view dies.

A fresh large array costs more in page faults than most kernels that fill it, so memory that was
touched once is kept and handed out again. Sizes are rounded up to one of eight classes per power of
two (at most 12.5% waste; 64-byte steps below 512 bytes). Small classes are carved from chunks; from
2 MiB on, a block is a mapping of its own, aligned to and advised as huge pages. Idle memory is
capped; the classes that were idle for longest are given back to the system first.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import deque
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.dtypes import DType
from tilewright.runtime.storage import Storage

HUGE_PAGE = 2 << 20
ALIGNMENT = 64
_SMALL, _SMALL_CHUNK, _CHUNK = 8 << 10, 256 << 10, 4 << 20
_BYTE = np.dtype(np.uint8)


def size_class(nbytes: int) -> int:
    """Return the bytes of the block that holds `nbytes`."""
    shift = max(nbytes.bit_length() - 4, 6)
    return ((max(nbytes, 1) + (1 << shift) - 1) >> shift) << shift


class Block(np.ndarray):
    """Pooled memory as an array; given back to its pool when nothing refers to it.

    Views of a block keep it alive. Views that are blocks by type own nothing.
    """

    __slots__ = ("address", "owner", "region")
    address: int
    owner: Allocator
    region: _Region

    def __del__(self) -> None:
        owner = getattr(self, "owner", None)
        if owner is not None:
            owner.release(self.region)


@dataclass(slots=True)
class _Region:
    """A piece of a mapping: where it starts, and the bytes of its size class."""

    mapping: mmap.mmap
    offset: int
    address: int
    nbytes: int


@dataclass(frozen=True)
class MemoryStats:
    """Counts of an allocator; bytes are of whole blocks.

    live      bytes handed out and still referred to
    idle      bytes kept for reuse
    mapped    bytes asked of the system so far (given-back memory included)
    reused, fresh    blocks served from idle memory, from new memory
    """

    live: int
    idle: int
    mapped: int
    reused: int
    fresh: int


def _default_idle_limit() -> int:
    """A quarter of the machine's memory: enough for a step's working set, room for others."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):
        return 1 << 30


class Allocator:
    """A thread-safe pool. `idle_limit` is the most bytes it keeps for reuse."""

    def __init__(self, idle_limit: int | None = None):
        self.idle_limit = _default_idle_limit() if idle_limit is None else idle_limit
        self._idle: dict[int, list[_Region]] = {}  # least recently used class first
        self._carving: dict[int, tuple[mmap.mmap, int, int, int]] = {}
        self._released: deque[_Region] = deque()  # appended without a lock, by finalisers
        self._live = self._idle_bytes = self._mapped = self._reused = self._fresh = 0
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the lock, which another thread of the parent may have held."""
        self._lock = threading.Lock()

    # -- taking --------------------------------------------------------------------------

    def block(self, nbytes: int) -> Block:
        """Return a block of at least `nbytes`, 64-byte aligned; its content is undefined."""
        nbytes = size_class(nbytes)
        return self._block(nbytes, (nbytes,), _BYTE)

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Storage:
        """Return an undefined storage of the given shape; it holds its block alive."""
        kind = dtype.numpy
        block = self._block(size_class(prod(shape) * kind.itemsize), shape, kind)
        return Storage(block.view(np.ndarray), dtype, block.address)

    def copy(self, array: np.ndarray, dtype: DType) -> Storage:
        """Return a storage with the values of an array of any strides, converted to `dtype`.

        NumPy's own memory starts 16 bytes after a line, so that each vector of 64 bytes that is
        loaded from it takes two: this starts at one.
        """
        storage = self.empty(array.shape, dtype)
        np.copyto(storage.array, array, casting="unsafe")
        return storage

    def _block(self, nbytes: int, shape: tuple[int, ...], kind: np.dtype) -> Block:
        with self._lock:
            if self._released:
                self._collect()
            idle = self._idle.get(nbytes)
            if idle:
                region = idle.pop()
                self._idle_bytes -= nbytes
                self._reused += 1
            else:
                region = self._carve(nbytes)
                self._fresh += 1
            self._live += nbytes
        block = np.ndarray.__new__(Block, shape, kind, region.mapping, region.offset)
        block.address, block.region, block.owner = region.address, region, self
        return block

    def _carve(self, nbytes: int) -> _Region:
        """Cut a new region from the class's chunk, or map one."""
        if nbytes >= HUGE_PAGE:
            mapping, offset, address = self._map(nbytes, HUGE_PAGE)
            return _Region(mapping, offset, address, nbytes)
        carving = self._carving.get(nbytes)
        if carving is not None and carving[1] + nbytes <= carving[3]:
            mapping, offset, address, end = carving
        else:
            end = _SMALL_CHUNK if nbytes <= _SMALL else _CHUNK
            mapping, offset, address = self._map(end, 1)
        self._carving[nbytes] = (mapping, offset + nbytes, address + nbytes, end)
        return _Region(mapping, offset, address, nbytes)

    def _map(self, nbytes: int, alignment: int) -> tuple[mmap.mmap, int, int]:
        """Map fresh zero pages; return the mapping, and offset and address of aligned `nbytes`."""
        length = nbytes + (alignment if alignment > 1 else 0)
        options = {}
        if hasattr(mmap, "MAP_PRIVATE"):  # the default is shared with forked children
            options["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        mapping = mmap.mmap(-1, length, **options)
        if alignment > 1 and hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                mapping.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                pass  # a kernel without huge pages serves ordinary ones
        base = np.frombuffer(mapping, np.uint8).__array_interface__["data"][0]
        offset = -base % alignment
        self._mapped += nbytes
        return mapping, offset, base + offset

    # -- giving back ---------------------------------------------------------------------

    def release(self, region: _Region) -> None:
        """Take a region back. Called by finalisers, which may run inside any other method."""
        self._released.append(region)
        if self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def _collect(self) -> None:
        """Sort released regions into their classes, then keep to the limit."""
        released = self._released
        while released:
            region = released.popleft()
            nbytes = region.nbytes
            idle = self._idle.pop(nbytes, None)
            if idle is None:
                idle = []
            idle.append(region)
            self._idle[nbytes] = idle  # now the most recently used class
            self._idle_bytes += nbytes
            self._live -= nbytes
        if self._idle_bytes > self.idle_limit:
            self._trim(self.idle_limit)

    def _trim(self, keep: int) -> None:
        for nbytes in list(self._idle):
            idle = self._idle[nbytes]
            while idle and self._idle_bytes > keep:
                idle.pop()
                self._idle_bytes -= nbytes
            if not idle:
                del self._idle[nbytes]
            if self._idle_bytes <= keep:
                return

    def trim(self, keep: int = 0) -> None:
        """Give idle memory back to the system until at most `keep` bytes are kept.

        Memory of a chunk is given back once all of its blocks are idle and dropped.
        """
        with self._lock:
            self._collect()
            self._trim(keep)
            if keep == 0:
                self._carving.clear()

    def stats(self) -> MemoryStats:
        """Return the counts of now."""
        with self._lock:
            self._collect()
            return MemoryStats(self._live, self._idle_bytes, self._mapped, self._reused,
                               self._fresh)


allocator = Allocator()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=allocator.after_fork)


def trim_memory(keep: int = 0) -> None:
    """Give pooled memory that no array uses back to the system; keep at most `keep` bytes."""
    allocator.trim(keep)
