"""Records as plans use them: one connection per directory, keys and entries of kernels."""

from __future__ import annotations

import threading
from pathlib import Path

from tilewright.backends import backend
from tilewright.kernel import Kernel
from tilewright.search.entries import Entry, Timing
from tilewright.search.keys import Key, code_version
from tilewright.search.record import Record, Trial
from tilewright.search.records import FILE, Records

SKIPPED = "skipped"  # the fate of the schedule of a kernel that was not searched
_NOTHING = Path()
_TOLD = frozenset(("slow", "timed", "compile_error", "timeout", "crash", "memory", "wrong"))


class Opened:
    """The records of each directory, opened once."""

    def __init__(self) -> None:
        self._records: dict[Path, Records] = {}
        self._lock = threading.Lock()

    def get(self, directory: Path) -> Records:
        """Return the records in a directory, in memory where it is empty; the file appears when
        something is put."""
        found = self._records.get(directory)
        if found is None:
            with self._lock:
                found = self._records.setdefault(
                    directory, Records(None if directory == _NOTHING else directory / FILE))
        return found

    def known(self, directory: Path) -> bool:
        return directory in self._records

    def close(self, directory: Path) -> None:
        """Close the connection to a directory's records."""
        records = self._records.pop(directory, None)
        if records is not None:
            records.close()

    def clear(self) -> None:
        """Close every connection."""
        with self._lock:
            for records in self._records.values():
                records.close()
            self._records.clear()


opened = Opened()


def records_in(directory: Path) -> Records | None:
    """Return the records to look up in; None where there are none yet, and then no file is made."""
    if not opened.known(directory) and (
            directory == _NOTHING or not (directory / FILE).exists()):
        return None
    return opened.get(directory)


def key_of(kernel: Kernel, name: str, threads: int, caches: str = "warm") -> Key:
    """Return what a kernel's record is kept under, for the backend called `name`."""
    return Key.of(kernel, backend(name), threads, cache=caches)


def keep(records: Records, key: Key, name: str, record: Record, chosen: Trial) -> None:
    """Record what a search found: the schedule that was chosen, and what every candidate took."""
    start = record.start
    code = code_version()
    records.put(Entry(
        key, name, chosen.alternative, chosen.schedule, chosen.seconds, chosen.spread,
        len(chosen.samples), start.seconds, code, kernel=record.kernel, before=start.nest,
        after=chosen.nest))
    records.add_timings(key, code, [
        Timing(t.alternative, t.schedule, t.fate, t.reason, t.seconds if t.samples else None,
               t.spread, len(t.samples)) for t in record.trials if t.fate in _TOLD])


def note_skipped(records: Records, key: Key, alternative: int, schedule: str, reason: str,
                 seconds: float) -> None:
    """Record what a kernel takes that was not worth a search, so that it is not timed again."""
    records.add_timings(key, code_version(), [
        Timing(alternative, schedule, SKIPPED, reason, seconds, 0.0, 1)])


def skipped_seconds(records: Records, key: Key) -> float | None:
    """Return what such a kernel takes, by this code; None where that is not recorded."""
    for timing in records.timings(key).get(code_version(), ()):
        if timing.fate == SKIPPED:
            return timing.seconds
    return None
