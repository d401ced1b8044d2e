"""Compilers in child processes that share sources."""

from __future__ import annotations

import atexit
import os
import select
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.worker.process import Child, Lost

Failed = tuple[str, str]  # kind and reason


@dataclass
class _Job:
    """A source with a child; `end` is when it must be done."""

    child: Child
    number: int
    end: float


class CompilePool:
    """At most `workers` children at a time, started when first needed, reused until `close`.

    `lock` is held by whoever compiles or times in this process, so that neither disturbs the other.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start anew without children, as a fork does."""
        self.lock = threading.RLock()
        self._idle: list[Child] = []

    def start(self, workers: int) -> None:
        """Start children without waiting for them, so that they are ready when needed."""
        with self.lock:
            while len(self._idle) < workers:
                self._idle.append(Child("compile"))

    def settle(self) -> None:
        """Wait until idle children have started: even that would disturb what is timed."""
        with self.lock:
            for child in tuple(self._idle):
                try:
                    child.wait_ready()
                except Lost:
                    self._idle.remove(child)

    def compile(self, backend: str, sources: Iterable[str], workers: int, seconds: float,
                memory: int) -> list[bytes | Failed]:
        """Return object code, or (kind, reason), of each source. A lost child costs its source.

        Sources are taken one by one as children are free: these work while the next one is made.
        """
        results: list[bytes | Failed] = []
        coming = iter(sources)
        with self.lock:
            jobs: list[_Job] = []
            try:
                while True:
                    while len(jobs) < max(workers, 1):
                        source = next(coming, None)
                        if source is None:
                            break
                        results.append(b"")
                        request = ("compile", backend, source, seconds, memory)
                        try:
                            jobs.append(self._give(len(results) - 1, request, seconds, memory))
                        except Lost as lost:
                            results[-1] = (lost.kind, lost.reason)
                    if not jobs:
                        break
                    for job in self._finished(jobs):
                        jobs.remove(job)
                        results[job.number] = self._result(job, seconds)
            finally:  # interrupted: what is still at work is of no use to anyone
                for job in jobs:
                    job.child.close()
        return results

    def _give(self, number: int, request: tuple, seconds: float, memory: int) -> _Job:
        """Hand a source to an idle child, or to a fresh one where that died unseen."""
        child = self._idle.pop() if self._idle else Child("compile")
        child.memory = memory
        try:
            child.wait_ready()
            child.send(request, seconds)
        except Lost:
            child = Child("compile", memory)
            child.wait_ready()
            child.send(request, seconds)
        return _Job(child, number, time.monotonic() + seconds)

    @staticmethod
    def _finished(jobs: Sequence[_Job]) -> list[_Job]:
        """Wait until some jobs can be ended: answered, lost or late."""
        if not jobs:
            return []
        poll = select.poll()
        for job in jobs:
            poll.register(job.child.fileno, select.POLLIN)
        left = min(job.end for job in jobs) - time.monotonic()
        ready = {number for number, _ in poll.poll(max(left, 0.0) * 1e3)}
        now = time.monotonic()
        return [job for job in jobs if job.child.fileno in ready or now >= job.end]

    def _result(self, job: _Job, seconds: float) -> bytes | Failed:
        try:
            answer = job.child.receive(max(job.end - time.monotonic(), 0.05))
        except Lost as lost:
            reason = f"compiling took over {seconds:g} s" if lost.kind == "timeout" else lost.reason
            return (lost.kind, reason)
        self._idle.append(job.child)
        return answer[1] if answer[0] == "code" else (answer[1], answer[2])

    def close(self) -> None:
        """End all children."""
        with self.lock:
            while self._idle:
                self._idle.pop().close()

    def forget(self) -> None:
        """Leave the children to the parent, in a fork of it."""
        for child in self._idle:
            child.forget()
        self.reset()


compilers = CompilePool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=compilers.forget)
atexit.register(compilers.close)
