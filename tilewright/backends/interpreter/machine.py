"""What a translated Program runs on: memory, faults, threads in lockstep, the race detector."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, NoReturn

import numpy as np

from tilewright.backends.interpreter.arithmetic import garbage, idiv
from tilewright.errors import IndexOutOfBounds, VerifyError
from tilewright.program.ir import Instr, Program
from tilewright.program.printer import Printer

Thread = tuple[int, ...]


class Machine:
    """One run of one Program. `sites` lists the instructions that can fail, by number."""

    def __init__(self, program: Program, sites: list[Instr], memory: dict[str, np.ndarray],
                 check_races: bool):
        self.program, self.sites, self.memory = program, sites, memory
        self.scratch = {s.name: s for s in program.scratch}
        self.races = _Races(self) if check_races else None
        self._private: dict[tuple, np.ndarray] = {}
        self.worker = self.block = 0

    # -- faults ------------------------------------------------------------------------------

    def _where(self, site: int) -> str:
        return f"cannot run `{Printer(self.program).line(self.sites[site])}`"

    def bounds(self, site: int, offset: int, buffer: str, size: int) -> NoReturn:
        raise IndexOutOfBounds(f"{self.program.name}: {self._where(site)} (offset {offset} is out "
                               f"of bounds of {buffer}, which has {size} elements)")

    def fault(self, site: int, reason: str) -> NoReturn:
        raise VerifyError(f"{self.program.name}: {self._where(site)} ({reason})")

    # -- memory ------------------------------------------------------------------------------

    def enter(self, worker: int) -> None:
        """Begin a worker: its private scratch is undefined."""
        self.worker = worker
        self._private.clear()

    def enter_block(self) -> None:
        """Begin a block: private and shared scratch are undefined, no thread has met another."""
        self.block += 1
        self._private.clear()
        if self.races:
            self.races.meet()

    def undefined(self, name: str) -> np.ndarray:
        s = self.scratch[name]
        return garbage(s.elements, s.dtype.numpy)

    def private(self, name: str, thread: Thread) -> np.ndarray:
        """Return a thread's own copy of a private scratch."""
        key = (name, thread)
        if key not in self._private:
            self._private[key] = self.undefined(name)
        return self._private[key]

    def places(self, site: int, buffer: str, array: np.ndarray, offsets: np.ndarray,
               mask: np.ndarray | None) -> np.ndarray:
        """Return the offsets of active lanes, checked."""
        active = offsets if mask is None else offsets[mask]
        wrong = (active < 0) | (active >= array.size)
        if wrong.any():
            self.bounds(site, int(active[wrong][0]), buffer, array.size)
        return active

    @staticmethod
    def take(array: np.ndarray, places: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Return one element per lane, 0 where masked off."""
        if mask is None:
            return array[places]
        out = np.zeros(mask.shape, array.dtype)
        out[mask] = array[places]
        return out

    # -- division ----------------------------------------------------------------------------

    def divide(self, site: int, op: str, a: Any, b: Any) -> Any:
        if np.any(b == 0):
            self.fault(site, "a divisor is zero")
        if a.dtype.kind == "i" and np.any((b == -1) & (a == np.iinfo(a.dtype).min)):
            self.fault(site, f"the quotient does not fit {a.dtype}")
        return idiv(a, b) if op == "idiv" else np.fmod(a, b)

    # -- threads -----------------------------------------------------------------------------

    def run_threads(self, body: Callable, numbers: range, thread: Thread) -> None:
        """Run the outermost thread loop of a block: all its threads, barrier by barrier."""
        for _ in self.lockstep(body, numbers, thread):
            self.meet()

    def lockstep(self, body: Callable, numbers: range, thread: Thread) -> Generator:
        """Run threads from barrier to barrier; yields the barrier's site when all stand at it."""
        threads = [body(i, thread) for i in numbers]
        while waiting := self._advance(threads):
            yield waiting[0][1]
            threads = [g for g, _ in waiting]

    def _advance(self, threads: Iterable[Generator]) -> list[tuple[Generator, int]]:
        ends, waiting = 0, []
        for g in threads:
            site = next(g, None)
            if site is None:
                ends += 1
            else:
                waiting.append((g, site))
        if waiting and (ends or len({s for _, s in waiting}) > 1):
            self.fault(waiting[0][1], "not all threads of the block reach this barrier")
        return waiting

    def meet(self) -> None:
        """All threads of the block have met at a barrier."""
        if self.races:
            self.races.meet()

    def touch(self, site: int, buffer: str, places: Any, thread: Thread, write: bool) -> None:
        """Note an access for the race detector; `places` index the buffer."""
        assert self.races is not None
        self.races.touch(site, buffer, places, thread, write)


_NOBODY, _MANY = -1, -2


class _Ledger:
    """Who read and who wrote each element of each buffer since the last meeting."""

    def __init__(self) -> None:
        self.writers: dict[str, np.ndarray] = {}
        self.readers: dict[str, np.ndarray] = {}

    def touch(self, buffer: str, size: int, places: Any, who: int, write: bool
              ) -> tuple[str, int, int] | None:
        """Note an access; return (what another did, its number, the element) if they race."""
        if buffer not in self.writers:
            self.writers[buffer] = np.full(size, _NOBODY, np.int64)
            self.readers[buffer] = np.full(size, _NOBODY, np.int64)
        writers, readers = self.writers[buffer], self.readers[buffer]
        for did, ledger in (("written", writers), ("read", readers)):
            others = np.atleast_1d(ledger[places])
            wrong = np.flatnonzero((others != _NOBODY) & (others != who))
            if wrong.size and (write or ledger is writers):
                element = np.atleast_1d(np.arange(size)[places])[wrong[0]]
                return did, int(others[wrong[0]]), int(element)
        if write:
            writers[places] = who
        else:
            held = readers[places]
            readers[places] = np.where((held == _NOBODY) | (held == who), who, _MANY)
        return None


class _Races:
    """Two ledgers: of workers and blocks, which never meet, and of a block's threads."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.outer, self.inner = _Ledger(), _Ledger()
        self.threads: dict[Thread, int] = {}

    def meet(self) -> None:
        self.inner = _Ledger()

    def touch(self, site: int, buffer: str, places: Any, thread: Thread, write: bool) -> None:
        m = self.machine
        scratch = m.scratch.get(buffer)
        if scratch and scratch.space == "private":
            return
        size = scratch.elements if scratch else m.memory[buffer].size
        number = self.threads.setdefault(thread, len(self.threads))
        found = self.inner.touch(buffer, size, places, number, write)
        who = "thread"
        if not (found or (scratch and scratch.space == "shared")):
            block = m.block > 0
            found = self.outer.touch(buffer, size, places, m.block or m.worker, write)
            who = "block" if block else "worker"
        if found:
            did, other, element = found
            names = {"thread": list(self.threads), "block": range(-1, m.block)}.get(who)
            name = f"several {who}s" if other == _MANY else \
                f"{who} {names[other] if names else other}"
            m.fault(site, f"a race: element {element} of {buffer} is also {did} by {name}, "
                          "with no barrier between")
