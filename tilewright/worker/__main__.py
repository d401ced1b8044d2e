"""A child process: serves requests on standard input, answers on standard output."""

from __future__ import annotations

import os
import sys
from typing import Any

from tilewright.errors import BackendError
from tilewright.worker.bench import Bench
from tilewright.worker.compiling import Compiling
from tilewright.worker.guard import harmless
from tilewright.worker.messages import HEADER, length, pack, unpack

ROLES: dict[str, type] = {"compile": Compiling, "bench": Bench}


def main(role: str) -> None:
    """Serve one role until standard input ends.

    A request is (operation, arguments..); answers start with a word, ("failed", kind, reason) where
    the operation could not be done. The first message says "ready".
    """
    harmless()
    requests, replies = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what libraries print must not look like an answer
    server = ROLES[role]()
    _write(replies, ("ready",))
    while True:
        header = requests.read(HEADER)
        if len(header) < HEADER:
            return
        body = requests.read(length(header))
        if len(body) < length(header):
            return
        operation, *arguments = unpack(body)
        _write(replies, _answer(server, operation, arguments))


def _answer(server: Any, operation: str, arguments: list) -> tuple:
    try:
        return getattr(server, operation)(*arguments)
    except BackendError as error:
        return ("failed", "compile_error", str(error))
    except MemoryError as error:
        return ("failed", "memory", str(error) or "out of memory")
    except OSError as error:  # mmap says so where memory runs out
        return ("failed", "memory" if error.errno == 12 else "crash", str(error))


def _write(replies: int, message: tuple) -> None:
    data = memoryview(pack(message))
    while data:
        data = data[os.write(replies, data):]


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ROLES:
        sys.exit(f"usage: python -m tilewright.worker {'|'.join(ROLES)}")
    main(sys.argv[1])
