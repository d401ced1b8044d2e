"""``tilewright doctor``: what this machine is, what is found, what is missing and how to get it."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import click
import llvmlite.binding as llvm
import numpy as np
from rich.table import Table

import tilewright as tw
from tilewright import config
from tilewright.backends import BACKENDS
from tilewright.cli import machine

OK, MISSING, BAD = "[green]ok[/]", "[yellow]missing[/]", "[red]failed[/]"

# what is optional, by module: what it is for, and how to get it
OPTIONAL = {
    "torch": ("peer of bench; interop", "pip install 'tilewright[torch]'"),
    "jax": ("peer of bench", "pip install 'tilewright[bench]'"),
    "tinygrad": ("peer of bench", "pip install 'tilewright[bench]'"),
    "threadpoolctl": ("holds NumPy to --threads in bench", "pip install 'tilewright[bench]'"),
    "sklearn": ("examples/digits.py", "pip install 'tilewright[examples]'"),
    "matplotlib": ("pictures of the examples", "pip install 'tilewright[examples]'"),
    "onnx": ("reading ONNX models", "pip install 'tilewright[onnx]'"),
}
DISTRIBUTION = {"sklearn": "scikit-learn"}

Line = tuple[str, str, str]


def _version(module: str) -> str:
    try:
        return version(DISTRIBUTION.get(module, module))
    except PackageNotFoundError:
        return "found"


def _machine_lines() -> Iterator[Line]:
    facts = machine.describe()
    caches = ", ".join(f"{k} {machine.size(v)}" for k, v in machine.caches().items())
    yield "processor", "", f"{facts['cpu']} (LLVM: {facts['llvm_cpu']})"
    yield "vectors", "", " ".join(machine.vector_features()) or "none known"
    yield "cores", "", f"{machine.cores()} (tilewright uses {config.get_num_threads()})"
    yield "caches", "", caches or "unknown"
    yield "memory", "", machine.size(machine.memory()) if machine.memory() else "unknown"
    yield "system", "", f"{platform.system()} {platform.release()} {platform.machine()}"


def _software_lines() -> Iterator[Line]:
    supported = (3, 11) <= sys.version_info[:2] < (3, 14)
    yield "Python", OK if supported else BAD, platform.python_version() + (
        "" if supported else " (3.11 to 3.13 is needed)")
    yield "tilewright", OK, tw.__version__
    yield "numpy", OK, np.__version__
    yield "llvmlite", OK, (f"{_version('llvmlite')} with LLVM "
                           f"{'.'.join(map(str, llvm.llvm_version_info))}")
    for module, (purpose, command) in OPTIONAL.items():
        if find_spec(module) is None:
            yield module, MISSING, f"{purpose}: {command}"
        else:
            yield module, OK, _version(module)


def _directory_size(directory: Path) -> tuple[int, int]:
    files = [p for p in directory.rglob("*") if p.is_file()] if directory.is_dir() else []
    total = 0
    for path in files:
        try:
            total += path.stat().st_size
        except OSError:
            continue  # removed by another process meanwhile
    return len(files), total


def _cache_line() -> Line:
    directory = config.current().cache_dir
    count, total = _directory_size(directory)
    return "cache", "", f"{directory} ({count} files, {machine.size(total)})"


def _attempt(check: Callable[[], str]) -> tuple[bool, str]:
    started = time.perf_counter()
    try:
        text = check()
    except Exception as error:  # whatever is wrong is what the user wants to read
        return False, f"{type(error).__name__}: {error}"
    return True, f"{text} in {machine.seconds(time.perf_counter() - started)}"


def self_check(backend: str, threads: int) -> str:
    """Compile and run a row-wise kernel; return what was done.

    Raises ArithmeticError if its values are not NumPy's.
    """
    rng = np.random.default_rng(0)
    x = rng.standard_normal((17, 23), dtype=np.float32)
    with config.using(backend=backend, threads=threads):
        function = tw.jit(lambda a: tw.sum(tw.exp(a - tw.max(a, axis=1, keepdims=True)), axis=1))
        found = np.asarray(function(tw.asarray(x)))
    wide = x.astype(np.float64)
    right = np.exp(wide - wide.max(1, keepdims=True)).sum(1)
    if not np.allclose(found, right, rtol=1e-5):
        raise ArithmeticError(f"values differ from NumPy's by {np.abs(found - right).max():.3g}")
    return f"compiled and ran with {threads} thread{'s' * (threads != 1)}"


def _check_lines() -> Iterator[tuple[bool, Line]]:
    for backend in BACKENDS:
        for threads in sorted({1, config.get_num_threads()}):
            good, text = _attempt(partial(self_check, backend, threads))
            yield good, (f"backend {backend}", OK if good else BAD, text)


@click.command()
def doctor() -> None:
    """Tell what this machine is, what is found, what is missing and how to get it.

    Compiles and runs a kernel on every backend; exits with 1 if one of them fails.
    """
    checks = list(_check_lines())
    table = Table(show_header=False, box=None, pad_edge=False)
    for column in ("name", "state"):
        table.add_column(column, no_wrap=True)
    table.add_column("what", overflow="fold")
    checked = [line for _, line in checks]
    for lines in (_machine_lines(), _software_lines(), [_cache_line()], checked):
        for name, state, what in lines:
            table.add_row(f"[bold]{name}[/]", state, what.replace("[", r"\["))
        table.add_row()
    machine.console().print(table, highlight=False)
    if not all(good for good, _ in checks):
        raise SystemExit(1)
