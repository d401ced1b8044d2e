"""Profiles and helpers for every test.

``--hypothesis-profile=ci`` (the default) is sized for a run at every change; ``nightly`` is ten
times as large and finds new examples every time. ``--nightly`` adds the tests marked nightly, which
take minutes each. What tests compile is verified between passes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import numpy as np
import pytest

import tilewright as tw
from tilewright import config

MODES = [(backend, threads, jitted) for backend in ("llvm", "interpreter") for threads in (1, 2)
         for jitted in (False, True)]
MODE_NAMES = [f"{b}-{t}-{'jit' if j else 'eager'}" for b, t, j in MODES]
_SLOW_IS_FINE = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large,
                 hypothesis.HealthCheck.filter_too_much]

hypothesis.settings.register_profile(
    "ci", deadline=None, max_examples=60, derandomize=True, suppress_health_check=_SLOW_IS_FINE)
hypothesis.settings.register_profile(
    "nightly", deadline=None, max_examples=1000, suppress_health_check=_SLOW_IS_FINE)



def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")
    parser.addoption("--nightly", action="store_true", help="run the tests marked nightly too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "nightly: takes minutes; runs with --nightly")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--nightly"):
        skip = pytest.mark.skip(reason="runs with --nightly")
        for item in items:
            if item.get_closest_marker("nightly"):
                item.add_marker(skip)


@pytest.fixture(autouse=True, scope="session")
def apart_from_the_disk() -> None:
    """Neither tests nor processes that they start see what earlier ones have compiled."""
    os.environ["TILEWRIGHT_DISK_CACHE"] = "0"
    config.set_disk_cache(False)


@pytest.fixture(autouse=True, scope="session")
def verified() -> Iterator[None]:
    """Check kernels and Programs between passes in every test."""
    config.set_verify(True)
    yield
    config.set_verify(False)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed."""
    return np.random.default_rng(0)


@pytest.fixture(params=MODES, ids=MODE_NAMES)
def mode(request: pytest.FixtureRequest) -> Iterator[tuple[str, int, bool]]:
    """Run the test in each mode: (backend, threads, jitted)."""
    backend, threads, _ = request.param
    with config.using(backend=backend, threads=threads):
        yield request.param


@pytest.fixture
def transform(mode: tuple[str, int, bool]) -> Callable[[Callable], Callable]:
    """Return `tw.jit` in the modes that are jitted, else the function as it is."""
    return tw.jit if mode[2] else lambda function: function


@pytest.fixture
def call(mode: tuple[str, int, bool]) -> Callable[..., Any]:
    """Run a function of arrays in one mode, four times if jitted; give NumPy arrays."""
    def run(function: Callable, *args: Any) -> Any:
        tensors = [tw.asarray(a) for a in args]
        if mode[2]:
            function = tw.jit(function)
            for _ in range(3):
                function(*tensors)
        result = function(*tensors)
        return [np.asarray(r) for r in result] if isinstance(result, (tuple, list)) \
            else np.asarray(result)
    return run


@pytest.fixture(params=["llvm", "interpreter"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test once on each CPU backend."""
    with config.using(backend=request.param):
        yield request.param


@pytest.fixture(params=[1, 2], ids=["1-thread", "2-threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run the test with one and with two worker threads."""
    with config.using(threads=request.param):
        yield request.param
