"""Profiles and helpers for every test.

``--hypothesis-profile=ci`` (the default) is sized for a run at every change; ``nightly`` is ten
times as large and finds new examples every time.
"""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import numpy as np
import pytest

from tilewright import config

_SLOW_IS_FINE = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large,
                 hypothesis.HealthCheck.filter_too_much]

hypothesis.settings.register_profile(
    "ci", deadline=None, max_examples=60, derandomize=True, suppress_health_check=_SLOW_IS_FINE)
hypothesis.settings.register_profile(
    "nightly", deadline=None, max_examples=1000, suppress_health_check=_SLOW_IS_FINE)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed."""
    return np.random.default_rng(0)


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
