"""What the search asks of a device: compile sources, link code, take samples.

The search decides, the measurer does; both can be replaced. A simulated measurer makes decisions
testable without a machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from tilewright.kernel import Kernel
from tilewright.program import Binding


@dataclass(frozen=True)
class Failure:
    """Why a candidate has no time: compile_error, timeout, crash, memory or wrong."""

    kind: str
    reason: str


@dataclass(frozen=True)
class Code:
    """A candidate's object code and how its programs are called."""

    code: bytes
    binding: Binding
    parallel: tuple[bool, ...]  # per program, whether all workers enter it


class Measurer(Protocol):
    """One device, for the time of one search. Handles are small integers, valid until `close`."""

    def begin(self, kernel: Kernel, given: Code) -> int | Failure:
        """Allocate the kernel's buffers, once, and make `given` the reference; return its handle.

        Values of every later candidate are compared with those that `given` computed.
        """

    def compile(self, sources: Iterable[str]) -> list[bytes | Failure]:
        """Compile sources in parallel, taken as they come; nothing is timed meanwhile."""

    def link(self, code: Code) -> int | Failure:
        """Load a candidate, run it once within limits and check its values; return a handle."""

    def sample(self, handle: int) -> float | Failure:
        """Return the seconds of one run, cache state as the search was asked for."""

    def move(self) -> None:
        """Give the buffers other memory: what a run takes depends on where they happen to lie."""

    def noise(self) -> float:
        """Return the relative spread of a fixed kernel's samples: how quiet the machine is."""

    def close(self) -> None:
        """Release buffers, code and processes."""
