"""The compiler's role in a child: source in, object code out."""

from __future__ import annotations

from tilewright.backends import backend
from tilewright.worker.guard import allow_memory, deadline


class Compiling:
    """Serves ``compile``."""

    def compile(self, name: str, source: str, seconds: float, nbytes: int) -> tuple:
        """Return ("code", bytes); the process ends where time or memory run out."""
        maker = backend(name)
        allow_memory(nbytes)
        with deadline(seconds):
            return ("code", maker.compile(source))
