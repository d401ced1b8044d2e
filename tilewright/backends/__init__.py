"""Backends: one folder each, registered in one dictionary."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.backends.base import Backend, Executable
from tilewright.backends.interpreter import Interpreter
from tilewright.backends.llvm import LLVM
from tilewright.errors import BackendError

# What makes each backend, by the name that `Config.backend` holds.
BACKENDS: dict[str, Callable[[], Backend]] = {
    "llvm": LLVM,
    "interpreter": Interpreter,
}

_made: dict[str, Backend] = {}


def backend(name: str) -> Backend:
    """Return the backend called `name`, made at its first use.

    Raises BackendError for a name that is not registered.
    """
    if name not in BACKENDS:
        raise BackendError(f"backend: cannot use {name!r} (known: {', '.join(sorted(BACKENDS))})")
    if name not in _made:
        _made[name] = BACKENDS[name]()
    return _made[name]


def clear() -> None:
    """Forget every backend that was made."""
    _made.clear()


__all__ = ["BACKENDS", "Backend", "Executable", "backend", "clear"]
