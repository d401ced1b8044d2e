"""What records are filed under: the kernel, the device, and how it was compiled and timed."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from tilewright.backends import Backend
from tilewright.kernel import Kernel
from tilewright.version import __version__

GRAMMAR = 1  # raised when an action's printed form changes, so that old schedules do not parse
CACHE_MODES = ("warm", "cold")

# The parts of the package that decide what code a kernel and a schedule become.
_CODE = ("actions", "backends", "fusion", "index", "kernel", "lower", "program", "dtypes.py",
         "limits.py")


@dataclass(frozen=True, order=True)
class Key:
    """What a schedule was found for.

    kernel    SHA-256 of the kernel's text, in hexadecimal
    device    `fingerprint` of the backend that ran it
    threads   worker threads
    options   options that change the code, ``name=value`` in order of name, by commas
    cache     the state of the caches when it was timed: warm or cold
    grammar   version of the schedules' text
    """

    kernel: str
    device: str
    threads: int
    options: str = ""
    cache: str = "warm"
    grammar: int = GRAMMAR

    @classmethod
    def of(cls, kernel: Kernel, backend: Backend, threads: int,
           options: Mapping[str, object] | None = None, cache: str = "warm") -> Key:
        """Return the key of a kernel. Raises ValueError for an unknown cache mode."""
        if cache not in CACHE_MODES:
            raise ValueError(f"records: cannot file under cache mode {cache!r} "
                             f"(one of {', '.join(CACHE_MODES)})")
        words = ",".join(f"{name}={value}" for name, value in sorted((options or {}).items()))
        digest = hashlib.sha256(kernel.key.encode()).hexdigest()
        return cls(digest, fingerprint(backend), threads, words, cache)

    @functools.cached_property
    def digest(self) -> str:
        """The whole key as 64 hexadecimal digits: its name for people, and in the database."""
        return hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()


def fingerprint(backend: Backend) -> str:
    """Return a short name of a backend's device that tells apart any two with other features."""
    device = backend.device
    return f"{backend.name}/{device.split()[0]}/{hashlib.sha256(device.encode()).hexdigest()[:16]}"


def artifact_key(backend: Backend, source: str) -> bytes:
    """Return what object code is kept under: 32 bytes for source, device and compiler."""
    digest = hashlib.sha256(f"{backend.name}\0{backend.identity}\0".encode())
    digest.update(source.encode())
    return digest.digest()


@functools.cache
def code_version() -> str:
    """Return the version of this code: the package's, and a hash of what decides on kernels."""
    root, digest = Path(__file__).parent.parent, hashlib.sha256()
    for name in _CODE:
        part = root / name
        for path in sorted(part.rglob("*.py")) if part.is_dir() else [part]:
            digest.update(f"{path.relative_to(root)}\0".encode())
            digest.update(path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}"
