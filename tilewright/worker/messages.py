"""Messages between processes: eight bytes of length, then a pickle of plain types only."""

from __future__ import annotations

import io
import pickle
import struct
from typing import Any, NoReturn

_LENGTH = struct.Struct("<Q")
HEADER = _LENGTH.size


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain type")


def pack(message: Any) -> bytes:
    """Return a message of numbers, texts, bytes, tuples, lists and dictionaries as bytes."""
    body = pickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(body)) + body


def length(header: bytes) -> int:
    """Return how many bytes follow a header."""
    return _LENGTH.unpack(header)[0]


def unpack(body: bytes | memoryview) -> Any:
    """Return the message; raises pickle.UnpicklingError where it holds more than plain types."""
    return _Plain(io.BytesIO(body)).load()


class Inbox:
    """Bytes as they arrive, and the messages that they complete."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        self._bytes += data

    @property
    def complete(self) -> bool:
        """Whether `take` has a whole message."""
        held = len(self._bytes)
        return held >= HEADER and held >= HEADER + length(bytes(self._bytes[:HEADER]))

    def take(self) -> Any:
        """Remove and return the first message, which is complete."""
        end = HEADER + length(bytes(self._bytes[:HEADER]))
        body = bytes(self._bytes[HEADER:end])
        del self._bytes[:end]
        return unpack(body)
