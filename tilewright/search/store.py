"""One SQLite file that several processes share: opened, migrated, and replaced when it is damaged.

A write is one transaction in write-ahead mode, so a process that is killed leaves all of it or
nothing. A file that cannot be used costs a warning, never the user's program: work goes on in
memory, with the schedules that could still be read.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]

# Statements that lead from each version of the schema to the next; only ever appended to.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE schedules (
            digest TEXT PRIMARY KEY, kernel TEXT NOT NULL, device TEXT NOT NULL,
            threads INTEGER NOT NULL, options TEXT NOT NULL, cache TEXT NOT NULL,
            grammar INTEGER NOT NULL, name TEXT NOT NULL, alternative INTEGER NOT NULL,
            schedule TEXT NOT NULL, seconds REAL NOT NULL, spread REAL NOT NULL,
            samples INTEGER NOT NULL, start_seconds REAL NOT NULL, code TEXT NOT NULL,
            created REAL NOT NULL, updated REAL NOT NULL, texts BLOB NOT NULL)""",
        """CREATE TABLE timings (
            digest TEXT NOT NULL, code TEXT NOT NULL, updated REAL NOT NULL, trials BLOB NOT NULL,
            PRIMARY KEY (digest, code))""",
        """CREATE TABLE artifacts (
            digest BLOB PRIMARY KEY, size INTEGER NOT NULL, used REAL NOT NULL,
            checksum BLOB NOT NULL, code BLOB NOT NULL)""",
        "CREATE INDEX artifacts_by_use ON artifacts (used, size)",
    ),
)
KEPT = ("schedules", "timings")  # what is worth reading out of a file that cannot be written

PATIENCE = 5.0  # seconds to wait for another process's write
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_HELD = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_UNUSABLE = _HELD | {sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR,
                     sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_AUTH}


def _kind(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


class _Handle:
    """One process's connection. Threads take turns; a child after a fork has a handle of its own.

    A parent's connection is neither used nor closed by a child, as SQLite demands.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.connection: sqlite3.Connection | None = None
        self.file: tuple[int, int] | None = None  # device and inode of what is open

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Store:
    """A database at `path`, or in memory where that is None or cannot be used."""

    def __init__(self, path: Path | None):
        self.path = path
        self.in_memory = path is None
        self.private = path is None  # whether nobody else could have written what is in it
        self._handles: dict[int, _Handle] = {}
        self._replaced = False
        self._next_try = 0.0  # when `try_write` is worth an attempt again

    def run(self, operation: Operation[T]) -> T:
        """Return `operation` of a connection; for reading."""
        handle = self._handles.get(os.getpid()) or self._handles.setdefault(os.getpid(), _Handle())
        with handle.lock:
            while True:
                try:
                    if handle.connection is None:
                        handle.connection = self._open(handle)
                    return operation(handle.connection)
                except (OSError, sqlite3.DatabaseError) as error:
                    self._recover(handle, error)

    def write(self, operation: Operation[T]) -> T:
        """Return `operation` of a connection, done as one transaction."""
        return self.run(lambda connection: _transaction(connection, operation))

    def try_write(self, operation: Operation[T], patience: float = 0.1) -> T | None:
        """Write as `write` does; return None where another process holds the file so long.

        Then nothing is tried for ten times as long, so that many small writes do not add up.
        """
        def attempt(connection: sqlite3.Connection) -> T | None:
            connection.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
            try:
                return _transaction(connection, operation)
            except sqlite3.OperationalError as error:
                if _kind(error) not in _HELD:
                    raise
                self._next_try = time.monotonic() + 10 * patience
                return None
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(PATIENCE * 1000)}")
        return self.run(attempt) if time.monotonic() >= self._next_try else None

    def shrink(self) -> None:
        """Give free space back to the system, unless another process is at work on the file."""
        def vacuum(connection: sqlite3.Connection) -> None:
            try:
                connection.execute("VACUUM")
            except sqlite3.OperationalError as error:
                if _kind(error) not in _HELD:
                    raise
        self.run(vacuum)

    def close(self) -> None:
        """Close this process's connection; a later use opens it again."""
        handle = self._handles.get(os.getpid())
        if handle is not None:
            with handle.lock:
                handle.close()

    # opening

    def _open(self, handle: _Handle) -> sqlite3.Connection:
        if self.path is None or self.in_memory:
            return _prepared(":memory:")
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite gives its two companion files the mode of this one.
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        self.private = _is_ours(status, 0o177) or self._make_private(status)
        self.private = self.private and _is_ours(self.path.parent.stat(), 0o022)
        if not self.private:
            warnings.warn(f"records: cannot keep object code in {self.path} (other users may write "
                          "to it or to its directory)", RuntimeWarning, stacklevel=2)
        handle.file = status.st_dev, status.st_ino
        return _prepared(str(self.path))

    def _make_private(self, status: os.stat_result) -> bool:
        """Take the file's rights from others; return whether it was not writable for them."""
        assert self.path is not None
        if not _is_ours(status, 0o022):
            return False
        os.chmod(self.path, 0o600)
        return True

    # recovery

    def _recover(self, handle: _Handle, error: OSError | sqlite3.DatabaseError) -> None:
        """Make the next attempt succeed, or raise `error` where that is not to be expected."""
        if self.in_memory:
            raise error
        if isinstance(error, sqlite3.DatabaseError):
            kind = _kind(error)
            if kind in _DAMAGED and not self._replaced:
                self._replaced = True
                try:
                    return self._set_aside(handle, error)
                except OSError as reason:
                    return self._use_memory(handle, reason)
            if kind not in _UNUSABLE and kind not in _DAMAGED and not isinstance(error, Newer):
                raise error
        self._use_memory(handle, error)

    def _set_aside(self, handle: _Handle, error: Exception) -> None:
        """Rename a damaged file, unless another process has done so already."""
        assert self.path is not None
        handle.close()
        with _locked(self.path.parent):
            status = self.path.stat() if self.path.exists() else None
            if status is None or (status.st_dev, status.st_ino) != handle.file:
                return
            aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
            # The log goes first: a new file must never meet the log of an old one.
            for suffix in ("-wal", "-shm", ""):
                companion = Path(f"{self.path}{suffix}")
                if companion.exists():
                    companion.rename(f"{aside}{suffix}")
        warnings.warn(f"records: cannot read {self.path} ({error}); it is kept as {aside}, and a "
                      "new file begun", RuntimeWarning, stacklevel=2)

    def _use_memory(self, handle: _Handle, error: Exception) -> None:
        assert self.path is not None
        handle.close()
        self.in_memory, self.private = True, True
        handle.connection = _prepared(":memory:")
        try:
            tables = read_tables(self.path)
        except sqlite3.Error:
            tables = {table: [] for table in KEPT}
        for table, rows in tables.items():
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                handle.connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        warnings.warn(f"records: cannot use {self.path} ({error}); records of this process are "
                      f"kept in memory only, with {len(tables['schedules'])} schedules read from "
                      "it", RuntimeWarning, stacklevel=2)


class Newer(sqlite3.DatabaseError):
    """The file was made by a later version of the package."""


def _transaction(connection: sqlite3.Connection, operation: Operation[T]) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = operation(connection)
        connection.execute("COMMIT")
        return result
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _prepared(path: str) -> sqlite3.Connection:
    """Return an open connection, its schema up to date."""
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None,
                                 check_same_thread=False)
    try:
        _use_log(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 4194304")
        if _version(connection) < len(MIGRATIONS):
            _transaction(connection, _migrate)
    except BaseException:
        connection.close()
        raise
    return connection


def _use_log(connection: sqlite3.Connection) -> None:
    """Turn to write-ahead mode; it stays with the file, and SQLite does not wait for its lock."""
    deadline = time.monotonic() + PATIENCE
    while connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if _kind(error) not in _HELD or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def _version(connection: sqlite3.Connection) -> int:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise Newer(f"its schema is version {version}; this code knows {len(MIGRATIONS)}")
    return version


def _migrate(connection: sqlite3.Connection) -> None:
    for statements in MIGRATIONS[_version(connection):]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def read_tables(path: Path) -> dict[str, list[Sequence]]:
    """Return the rows of schedules and timings in another file, which is not changed.

    Raises sqlite3.Error where it cannot be read.
    """
    # Without a log to read, a file in a directory that cannot be written opens as immutable only.
    try:
        return _rows(f"{path.absolute().as_uri()}?mode=ro")
    except sqlite3.OperationalError:
        return _rows(f"{path.absolute().as_uri()}?immutable=1")


def _rows(uri: str) -> dict[str, list[Sequence]]:
    with closing(sqlite3.connect(uri, uri=True)) as file, \
            closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        file.execute("PRAGMA trusted_schema = OFF")
        source = file
        if _version(file) < len(MIGRATIONS):
            file.backup(copy)
            _transaction(copy, _migrate)
            source = copy
        return {table: source.execute(f"SELECT * FROM {table}").fetchall() for table in KEPT}


def _is_ours(status: os.stat_result, others: int) -> bool:
    """Return whether this user owns a file and nobody has the rights `others` on it."""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & others


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold a lock on a directory; the system gives it up with the process."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
