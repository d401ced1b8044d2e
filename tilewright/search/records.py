"""Records: what searches found, and compiled code, kept from process to process.

    schedules    key -> the best schedule known, with its time; used whatever code measured it
    timings      key, code version -> every candidate of its searches, with its fate
    artifacts    source, compiler and device -> object code; of this user only, never exported

    records = Records(config.cache_dir / FILE)
    entry = records.lookup(Key.of(kernel, backend, threads))
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from tilewright.errors import RecordError
from tilewright.search.entries import (
    Entry,
    Timing,
    Timings,
    better,
    joined,
    pack,
    read_lines,
    schedule_line,
    timings_line,
    unpack,
)
from tilewright.search.keys import Key
from tilewright.search.store import Store, read_tables

FILE = "records.sqlite3"
ARTIFACT_BYTES = 256 << 20
CODES = 4  # versions of the code whose timings are kept, per key
_TOUCH = 3600.0  # seconds after which a use of an artifact is worth a write
_SQLITE = b"SQLite format 3\0"


class Records:
    """The records in one file, or in memory where `path` is None or cannot be used.

    May be used from several threads, by several processes at once, and after a fork. Opens at the
    first use. `artifact_bytes` bounds the object code kept; what was used longest ago goes first.
    """

    def __init__(self, path: Path | None = None, artifact_bytes: int = ARTIFACT_BYTES,
                 clock: Callable[[], float] = time.time):
        self._store = Store(path)
        self._clock, self._most = clock, artifact_bytes
        self._unchecked = artifact_bytes  # bytes put since their sum was last looked at

    @property
    def path(self) -> Path | None:
        """The file, or None for memory that ends with the process."""
        self._store.run(lambda connection: None)
        return None if self._store.in_memory else self._store.path

    def close(self) -> None:
        """Close this process's connection; a later use opens the file again."""
        self._store.close()

    # schedules

    def lookup(self, key: Key) -> Entry | None:
        """Return the best schedule known for a key, or None."""
        rows = self._select("SELECT * FROM schedules WHERE digest = ?", key.digest)
        return _entry(rows[0]) if rows else None

    def put(self, entry: Entry) -> None:
        """Keep an entry in place of the key's last one, dated now."""
        now = self._clock()

        def write(connection: sqlite3.Connection) -> None:
            old = connection.execute("SELECT created FROM schedules WHERE digest = ?",
                                     (entry.key.digest,)).fetchone()
            _insert(connection, entry, old[0] if old else now, now)
        self._store.write(write)

    def drop(self, key: Key) -> None:
        """Forget the entry of a key, as one whose schedule does not apply any more."""
        self._store.write(
            lambda c: c.execute("DELETE FROM schedules WHERE digest = ?", (key.digest,)))

    def ls(self, text: str = "") -> list[Entry]:
        """Return the entries with `text` in their name, device or options, or before their digest;
        by name, then threads."""
        rows = self._select("SELECT * FROM schedules ORDER BY name, threads, digest")
        entries = map(_entry, rows)
        return [e for e in entries if e.key.digest.startswith(text) or any(
            text in part for part in (e.name, e.key.device, e.key.options))]

    def show(self, prefix: str) -> tuple[Entry, dict[str, list[Timing]]]:
        """Return the entry whose digest begins with `prefix`, and its timings by code version.

        Raises RecordError where there is none, or more than one.
        """
        found = [e for e in self.ls(prefix) if e.key.digest.startswith(prefix)]
        if len(found) != 1:
            reason = f"{len(found)} records begin with it" if found else "there is none"
            raise RecordError(f"records: cannot show {prefix!r} ({reason})")
        return found[0], self.timings(found[0].key)

    # timings

    def timings(self, key: Key) -> dict[str, list[Timing]]:
        """Return every candidate timed for a key, by code version, the latest first."""
        rows = self._select("SELECT code, trials FROM timings WHERE digest = ? "
                            "ORDER BY updated DESC, code", key.digest)
        return {code: [Timing(*t) for t in unpack(trials)] for code, trials in rows}

    def add_timings(self, key: Key, code: str, timings: Iterable[Timing]) -> None:
        """Add the candidates of a search; where one is known, the better measured is kept."""
        added: Timings = (key.digest, code, self._clock(), list(timings))
        self._store.write(lambda connection: _add(connection, added))

    # exchange

    def export(self) -> Iterator[str]:
        """Return schedules and timings as lines of JSON, never object code."""
        for row in self._select("SELECT * FROM schedules ORDER BY name, threads, digest"):
            yield schedule_line(_entry(row))
        for digest, code, updated, trials in self._select(
                "SELECT * FROM timings ORDER BY digest, updated, code"):
            yield timings_line(digest, code, updated, [Timing(*t) for t in unpack(trials)])

    def import_(self, lines: Iterable[str]) -> tuple[int, int]:
        """Add what `export` wrote: all of it, or nothing if a line is wrong.

        Where a key is known, the better measured entry stays (`entries.better`). Returns how many
        entries were read, and how many of them were kept. Raises RecordError naming the line.
        """
        return self._merge(list(read_lines(lines)))

    def merge(self, path: Path) -> tuple[int, int]:
        """Add the schedules and timings of a file: another database, or exported lines.

        Answers as `import_` does. Raises RecordError, or OSError where the file cannot be read.
        """
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) != _SQLITE:
                file.seek(0)
                return self.import_(line.decode(errors="replace") for line in file)
        try:
            tables = read_tables(path)
            exported = [schedule_line(_entry(row)) for row in tables["schedules"]]
            timed = [timings_line(digest, code, updated, [Timing(*t) for t in unpack(trials)])
                     for digest, code, updated, trials in tables["timings"]]
        except Exception as error:  # a foreign file may be anything
            raise RecordError(f"records: cannot merge {path} ({error})") from error
        return self.import_(chain(exported, timed))

    def _merge(self, found: Sequence[Entry | Timings]) -> tuple[int, int]:
        def write(connection: sqlite3.Connection) -> tuple[int, int]:
            count = kept = 0
            for item in found:
                if not isinstance(item, Entry):
                    _add(connection, item)
                    continue
                count += 1
                row = connection.execute("SELECT * FROM schedules WHERE digest = ?",
                                         (item.key.digest,)).fetchone()
                old = _entry(row) if row else None
                best = better(old, item) if old else item
                _insert(connection, best, best.created, best.updated)
                kept += old is None or replace(best, created=old.created) != old
            return count, kept
        return self._store.write(write)

    def clear(self, artifacts_only: bool = False) -> None:
        """Forget object code; and schedules and timings too, unless told otherwise."""
        tables = ["artifacts"] if artifacts_only else ["artifacts", "timings", "schedules"]
        self._store.write(lambda c: [c.execute(f"DELETE FROM {table}") for table in tables])
        self._store.shrink()

    # artifacts

    @property
    def artifact_bytes(self) -> int:
        """Bytes of the object code kept."""
        return self._select("SELECT total(size) FROM artifacts")[0][0]

    def artifact(self, digest: bytes) -> bytes | None:
        """Return the object code kept under `keys.artifact_key`, if it is whole and this user's."""
        rows = self._select("SELECT code, checksum, used FROM artifacts WHERE digest = ?", digest)
        if not rows or not self._store.private:
            return None
        (code, checksum, used), now = rows[0], self._clock()
        if hashlib.sha256(code).digest() != checksum:
            return None
        if abs(now - used) > _TOUCH:
            self._store.try_write(lambda c: c.execute(
                "UPDATE artifacts SET used = ? WHERE digest = ?", (now, digest)))
        return code

    def put_artifact(self, digest: bytes, code: bytes) -> None:
        """Keep object code. It is dropped where another process holds the file for long."""
        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO artifacts VALUES (?, ?, ?, ?, ?)",
                (digest, len(code), self._clock(), hashlib.sha256(code).digest(), code))
            self._unchecked += len(code)
            if self._unchecked > self._most // 32:
                self._unchecked = 0
                _evict(connection, self._most)
        self._store.run(lambda connection: None)
        if self._store.private:
            self._store.try_write(write)

    def _select(self, statement: str, *values: object) -> list[tuple]:
        return self._store.run(lambda c: c.execute(statement, values).fetchall())


def _entry(row: Sequence) -> Entry:
    try:
        texts = unpack(row[-1])
    except (ValueError, zlib.error):  # they are for people; the schedule still serves
        texts = []
    return Entry(Key(*row[1:7]), *row[7:15], *(texts or [""] * 3), *row[15:17])


def _insert(connection: sqlite3.Connection, entry: Entry, created: float, updated: float) -> None:
    key = entry.key
    values = (key.digest, key.kernel, key.device, key.threads, key.options, key.cache, key.grammar,
              entry.name, entry.alternative, entry.schedule, entry.seconds, entry.spread,
              entry.samples, entry.start_seconds, entry.code, created, updated, entry.texts())
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT OR REPLACE INTO schedules VALUES ({marks})", values)


def _add(connection: sqlite3.Connection, added: Timings) -> None:
    digest, code, updated, timings = added
    row = connection.execute("SELECT updated, trials FROM timings WHERE digest = ? AND code = ?",
                             (digest, code)).fetchone()
    if row:
        updated = max(updated, row[0])
        timings = joined((Timing(*t) for t in unpack(row[1])), timings)
    trials = [(t.alternative, t.schedule, t.fate, t.reason, t.seconds, t.spread, t.samples)
              for t in joined(timings, ())]
    connection.execute("INSERT OR REPLACE INTO timings VALUES (?, ?, ?, ?)",
                       (digest, code, updated, pack(trials)))
    connection.execute(
        "DELETE FROM timings WHERE digest = ? AND code NOT IN (SELECT code FROM timings "
        "WHERE digest = ? ORDER BY updated DESC, code LIMIT ?)", (digest, digest, CODES))


def _evict(connection: sqlite3.Connection, most: int) -> None:
    """Drop the artifacts used longest ago, down to three quarters of what may be kept."""
    if connection.execute("SELECT total(size) FROM artifacts").fetchone()[0] <= most:
        return
    # Sums from the one used last on; what passes the mark, and all before it, goes.
    connection.execute("""DELETE FROM artifacts WHERE rowid IN (
        SELECT rowid FROM (
            SELECT rowid, sum(size) OVER (ORDER BY used DESC, rowid DESC) AS held FROM artifacts)
        WHERE held > ?)""", (most * 3 // 4,))
