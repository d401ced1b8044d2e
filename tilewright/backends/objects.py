"""Object code kept on disk, so that a kernel is compiled once per machine.

A file is named by the SHA-256 of source and target, and begins with the SHA-256 of its content: one
that is damaged or half written counts as absent. Files appear by renaming, so processes may share.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from tilewright.backends.base import Backend

_DIGEST = 32


class ObjectCache:
    """Compiled code by source, in a directory that only its owner may read."""

    def __init__(self, directory: Path):
        self.directory = directory

    def compile(self, backend: Backend, source: str) -> bytes:
        """Return the object code of a source, compiled only if it is not kept already."""
        path = self.directory / self.key(backend, source)
        code = self._read(path)
        if code is None:
            code = backend.compile(source)
            self._write(path, code)
        return code

    @staticmethod
    def key(backend: Backend, source: str) -> str:
        """Return the file name for a source on a backend's target."""
        digest = hashlib.sha256(f"{backend.name}\0{backend.identity}\0".encode())
        digest.update(source.encode())
        return digest.hexdigest() + ".o"

    def clear(self) -> None:
        """Remove every file of the cache."""
        for path in self.directory.glob("*.o"):
            path.unlink(missing_ok=True)

    @staticmethod
    def _read(path: Path) -> bytes | None:
        try:
            content = path.read_bytes()
        except OSError:
            return None
        code = content[_DIGEST:]
        return code if hashlib.sha256(code).digest() == content[:_DIGEST] else None

    def _write(self, path: Path, code: bytes) -> None:
        """Write a file whole; a directory that cannot be written costs only the next compile."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.directory)
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.replace(temporary, path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
