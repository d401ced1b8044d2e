"""A child process as its parent sees it: started, asked within a time, replaced when lost."""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tilewright.errors import BackendError
from tilewright.worker.messages import Inbox, pack

START_SECONDS = 60.0  # until a child must have said that it is ready
_PACKAGE = Path(__file__).resolve().parent.parent

# The package stands without what its __init__ imports, all layers: a child needs a few of them.
_BOOT = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
import os, types
os.putenv("OPENBLAS_NUM_THREADS", "1")
role, package, *sys.path[:] = sys.argv[1:]
sys.modules["tilewright"] = types.ModuleType("tilewright")
sys.modules["tilewright"].__path__ = [package]
from tilewright.worker.__main__ import main
main(role)
"""


class Lost(BackendError):
    """A child ended, or was ended, instead of answering. `kind`: crash, timeout or memory."""

    def __init__(self, kind: str, reason: str):
        super().__init__(reason)
        self.kind, self.reason = kind, reason


class Child:
    """One child in a role of `tilewright.worker`; starts at once, without being waited for.

    The parent's end of its standard input is what keeps it alive: it ends with the parent.
    `memory` is how many bytes beyond the parent's own say that it died of them.
    """

    def __init__(self, role: str, memory: int = 0):
        if not sys.executable:
            raise BackendError("worker: cannot start a child process (the interpreter's path is "
                               "not known)")
        self.memory = memory
        self._notes = tempfile.TemporaryFile()
        command = [sys.executable, "-c", _BOOT, role, str(_PACKAGE), *sys.path]
        self._parents = _bytes(resource.getrusage(resource.RUSAGE_SELF))
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=self._notes)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        self._inbox = Inbox()
        self._ready = False

    @property
    def fileno(self) -> int:
        """What becomes readable when an answer comes."""
        return self._out

    @property
    def pid(self) -> int:
        return self._process.pid

    # -- talking -------------------------------------------------------------------------

    def wait_ready(self) -> None:
        """Return once the child serves. Raises Lost."""
        if not self._ready:
            self.receive(START_SECONDS)
            self._ready = True

    def ask(self, request: tuple, seconds: float) -> Any:
        """Send a request and return its answer. Raises Lost; then the child is gone."""
        self.wait_ready()
        self.send(request, seconds)
        return self.receive(seconds)

    def send(self, request: tuple, seconds: float) -> None:
        """Send a request to a child that is ready. Raises Lost."""
        data, end = memoryview(pack(request)), time.monotonic() + seconds
        while data:
            try:
                data = data[os.write(self._in, data):]
            except BlockingIOError:
                self._poll(self._in, select.POLLOUT, end, seconds)
            except BrokenPipeError:
                raise self._lost() from None

    def receive(self, seconds: float) -> Any:
        """Return the next answer. Raises Lost where it does not come in time."""
        end = time.monotonic() + seconds
        while not self._inbox.complete:
            self._poll(self._out, select.POLLIN, end, seconds)
            self.feed()
        return self._inbox.take()

    def feed(self) -> None:
        """Take what can be read without waiting. Raises Lost at its end."""
        data = os.read(self._out, 1 << 20)
        if not data:
            raise self._lost()
        self._inbox.add(data)

    @property
    def answered(self) -> bool:
        """Whether `receive` returns without waiting."""
        return self._inbox.complete

    def _poll(self, descriptor: int, event: int, end: float, seconds: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        left = end - time.monotonic()
        if left <= 0 or not poll.poll(left * 1e3):
            self.close()
            raise Lost("timeout", f"no answer within {seconds:.3g} s")

    # -- ending --------------------------------------------------------------------------

    def _lost(self) -> Lost:
        """Bury a child that ended by itself, and say why it did."""
        status, peak = self._wait()
        notes = self._read_notes()
        self.close()
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        last = notes.strip().rpartition("\n")[2][:300]
        if number == signal.SIGALRM:
            return Lost("timeout", "its time was over")
        short = any(word in notes for word in ("MemoryError", "bad_alloc", "out of memory",
                                               "Cannot allocate memory"))
        # a peak counts from the fork, when it was the parent's: a great one may hide the child's
        large = self.memory and peak > self._parents + self.memory
        if short or large or number == signal.SIGKILL:
            return Lost("memory", f"it ran out of memory, at {peak >> 20} MiB")
        if number:
            return Lost("crash", f"it died of {signal.Signals(number).name}"
                        + (f": {last}" if last else ""))
        return Lost("crash", last or f"it ended with status {os.waitstatus_to_exitcode(status)}")

    def _wait(self) -> tuple[int, int]:
        """Return status and peak bytes of a child whose pipe has ended."""
        end = time.monotonic() + 1.0
        try:
            number, status, usage = os.wait4(self.pid, os.WNOHANG)
            while not number and time.monotonic() < end:
                time.sleep(1e-3)
                number, status, usage = os.wait4(self.pid, os.WNOHANG)
            if not number:  # it lives on without its pipe
                self._process.kill()
                _, status, usage = os.wait4(self.pid, 0)
        except ChildProcessError:  # someone else in the process waited for it
            return 0, 0
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return status, _bytes(usage)

    def _read_notes(self) -> str:
        self._notes.seek(0)
        return self._notes.read(1 << 16).decode(errors="replace")

    def close(self) -> None:
        """End the child now; harmless when repeated."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Close this process's ends of the pipes, as a fork must that is not the parent."""
        for file in (self._process.stdin, self._process.stdout, self._notes):
            with suppress(OSError):
                file.close()  # type: ignore[union-attr]
        if self._process.returncode is None:
            self._process.returncode = 0  # not ours to wait for


def _bytes(usage: resource.struct_rusage) -> int:
    """Return the peak of resident memory, which systems count in different units."""
    return usage.ru_maxrss << (0 if sys.platform == "darwin" else 10)
