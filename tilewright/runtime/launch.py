"""A native segment: launches that run as one call, and the frame that holds one run's pointers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.runtime import native as words
from tilewright.runtime.native import native
from tilewright.runtime.threads import workers as pool


@dataclass(frozen=True)
class Launch:
    """One program to run. `buffers` pairs a base number and a byte offset per pointer of the entry.

    A launch that is not parallel runs on worker 0 only, told that it is the only one.
    """

    entry: int
    buffers: tuple[tuple[int, int], ...]
    parallel: bool = False


class Segment:
    """Launches in order, run by `workers` threads as one native call; immutable.

    `short` says that a run takes microseconds: then the interpreter lock is kept, since giving
    it up could cost more than the run. Consecutive launches see each other's results.
    """

    def __init__(self, launches: Sequence[Launch], workers: int = 1, short: bool = False):
        self.launches = tuple(launches)
        self.workers = workers if any(x.parallel for x in launches) else 1
        self.short = short and self.workers == 1
        self.relocations = np.array(
            [pair for x in launches for pair in x.buffers], np.int64).reshape(-1, 2)

    def frame(self, bases: ctypes.Array) -> Frame:
        """Return a frame whose runs take base addresses from `bases` (c_int64 words)."""
        return Frame(self, bases)


class Frame:
    """The mutable part of a segment's run; one thread uses it at a time.

    The caller fills `bases` with addresses and keeps their memory alive until `run` returns.
    """

    def __init__(self, segment: Segment, bases: ctypes.Array):
        self.segment, self.bases = segment, bases
        count = len(segment.relocations)
        self._table = np.zeros(max(count, 1), np.int64)
        self._launches = self._launch_words(segment)
        self._words = np.array([
            0, segment.workers, self._launches.ctypes.data, len(segment.launches),
            segment.relocations.ctypes.data, count, ctypes.addressof(bases),
            self._table.ctypes.data], np.int64)
        self._address = self._words.ctypes.data
        functions = native()
        self._call = functions.run_held if segment.short else functions.run
        self._time = functions.time

    def _launch_words(self, segment: Segment) -> np.ndarray:
        rows = np.zeros((max(len(segment.launches), 1), words.LAUNCH_WORDS), np.int64)
        table, done = self._table.ctypes.data, 0
        followers = [*segment.launches[1:], None]
        for row, launch, follower in zip(rows, segment.launches, followers):
            flags = words.PARALLEL * launch.parallel
            if follower is not None and (launch.parallel or follower.parallel):
                flags |= words.BARRIER
            row[:] = launch.entry, table + 8 * done, 0, flags
            done += len(launch.buffers)
        return rows

    def run(self) -> None:
        """Run every launch once and return when all workers are done."""
        if self.segment.workers == 1:
            self._call(self._address)
            return
        with pool.lock:
            self._words[0] = pool.reserve(self.segment.workers)
            self._call(self._address)

    def time(self, repeats: int, inner: int = 1) -> np.ndarray:
        """Run `repeats` samples of `inner` runs each; return seconds per run, one per sample."""
        seconds = np.empty(repeats, np.float64)
        with pool.lock:
            if self.segment.workers > 1:
                self._words[0] = pool.reserve(self.segment.workers)
            self._time(self._address, repeats, inner, seconds.ctypes.data)
        return seconds
