"""Worker threads. They run native code only: each is one call of the native worker loop."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading

import numpy as np

from tilewright.runtime import native as words
from tilewright.runtime.native import native


class WorkerPool:
    """Threads that enter parallel plans together with the caller, who is worker 0.

    One plan at a time: hold `lock` from before `reserve` until the run has returned. Threads are
    started when a run first needs them and live, parked, until `stop`, called as the process ends.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start anew without threads, as in a child after a fork, which inherits none."""
        self.lock = threading.Lock()
        self._memory: np.ndarray | None = None
        self._workers: list[tuple[threading.Thread, np.ndarray]] = []
        self.address = 0

    @property
    def threads(self) -> int:
        """How many workers there are, the caller included."""
        return 1 + len(self._workers)

    def reserve(self, workers: int) -> int:
        """Start threads until `workers` can run; return the pool's address. Needs `lock`."""
        memory = self._create() if self._memory is None else self._memory
        while self.threads < workers:
            number = self.threads
            own = np.array([self.address, number, memory[words.EPOCH]], np.int64)
            thread = threading.Thread(
                target=native().worker, args=(own.ctypes.data,), daemon=True,
                name=f"tilewright-worker-{number}")
            thread.start()
            self._workers.append((thread, own))  # the thread reads its words once, at its start
        return self.address

    def stop(self) -> None:
        """End all threads; a later run starts new ones."""
        with self.lock:
            if self._memory is None:
                return
            process, mutex = ctypes.CDLL(None), ctypes.c_void_p(self.address + 8 * words.MUTEX)
            process.pthread_mutex_lock(mutex)
            self._memory[words.EPOCH] = ((self._memory[words.EPOCH] >> 16) + 1) << 16
            process.pthread_cond_broadcast(ctypes.c_void_p(self.address + 8 * words.CONDITION))
            process.pthread_mutex_unlock(mutex)
            for thread, _ in self._workers:
                thread.join()
            self._workers, self._memory, self.address = [], None, 0

    def _create(self) -> np.ndarray:
        memory = np.zeros(words.POOL_WORDS + 8, np.int64)
        memory = memory[-memory.ctypes.data % 64 // 8:][:words.POOL_WORDS]
        address = memory.ctypes.data
        process = ctypes.CDLL(None)
        process.pthread_mutex_init(ctypes.c_void_p(address + 8 * words.MUTEX), None)
        process.pthread_cond_init(ctypes.c_void_p(address + 8 * words.CONDITION), None)
        if hasattr(os, "sched_getaffinity"):
            memory[words.PROCESSORS] = len(os.sched_getaffinity(0))
        self._memory, self.address = memory, address
        return memory


workers = WorkerPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=workers.reset)
atexit.register(workers.stop)
