"""The simulated device: the same answers every time, noise as asked for, mishaps that cost time."""

from __future__ import annotations

import numpy as np
import pytest
from search_tools import LIMITS, addition, code_of, lowered, product, source_of, texts

from tilewright.limits import Limits
from tilewright.search.measurer import Failure
from tilewright.search.simulated import (
    COMPILE_MISHAPS,
    COMPILE_TIMEOUT,
    SLOW,
    Clock,
    Processor,
    Simulated,
)


@pytest.fixture(scope="module")
def kernel():
    return addition(64, 64)


def linked(device: Simulated, kernel, schedule: str | None = None):
    low = lowered(kernel, schedule)
    (code,) = device.compile([source_of(low, "interpreter")])
    assert isinstance(code, bytes)
    return device.link(code_of(low, code))


def begun(device: Simulated, kernel) -> int:
    low = lowered(kernel)
    handle = device.begin(kernel, code_of(low, source_of(low, "interpreter").encode()))
    assert isinstance(handle, int)
    return handle


def test_equal_seeds_give_equal_samples(kernel):
    found = []
    for _ in range(2):
        device = Simulated(noise=0.05, seed=3)
        begun(device, kernel)
        handle = linked(device, kernel, "")
        found.append((device.samples(handle, 5), device.clock()))
    assert found[0] == found[1]


def test_samples_without_noise_are_the_models_seconds(kernel):
    device = Simulated()
    handle = begun(device, kernel)
    (source,) = texts(kernel, [None])
    assert device.sample(handle) == Processor(Limits()).seconds(source)


def test_noise_only_delays_and_has_the_spread_asked_for(kernel):
    device = Simulated(noise=0.2, seed=1)
    handle = begun(device, kernel)
    truth = Simulated().cost(texts(kernel, [None])[0])
    samples = np.array(device.samples(handle, 500))
    assert samples.min() >= truth
    # a half normal's mean is sqrt(2 / pi) of its scale
    assert samples.mean() / truth == pytest.approx(1 + 0.2 * (2 / np.pi) ** 0.5, abs=0.02)
    assert device.noise() == 0.2


def test_bursts_delay_some_samples(kernel):
    device = Simulated(bursts=0.1, seed=1)
    samples = np.array(device.samples(begun(device, kernel), 200))
    late = samples > 2 * samples.min()
    assert 5 <= late.sum() <= 40


def test_the_model_prefers_vectors_independent_chains_and_threads():
    processor = Processor(LIMITS)
    plain, good = texts(product(32, 32, 64), ["", None])
    assert processor.seconds(good) < processor.seconds(plain) / 4
    one, two = Limits(threads=1), Limits(threads=2)
    big = addition(2048, 2048)
    parallel = texts(big, [None], two)[0]
    assert "parallel" in parallel
    assert Processor(two).seconds(parallel) < 0.6 * Processor(one).seconds(parallel)


def test_the_model_prefers_contiguous_access():
    kernel = addition(512, 512)
    rows, columns = texts(kernel, ["Split(i0, 512)", "Split(i0, 512)\nReorder((i0.1, i0.0))"])
    processor = Processor(LIMITS)
    assert processor.seconds(rows) < processor.seconds(columns)


def test_compiling_takes_time_shared_by_workers(kernel):
    sources = texts(kernel, ["", None]) * 4
    spans = []
    for workers in (1, 4):
        device = Simulated(workers=workers)
        device.compile(sources)
        spans.append(device.clock())
    assert spans[1] < spans[0] / 2


@pytest.mark.parametrize("mishap", COMPILE_MISHAPS)
def test_a_source_may_fail_to_compile(kernel, mishap):
    bad, good = texts(kernel, ["", None])
    device = Simulated(behave=lambda source: mishap if source == bad else "")
    failure, code = device.compile([bad, good])
    assert isinstance(failure, Failure) and isinstance(code, bytes)
    assert failure.kind == {"rejected": "compile_error", "compiles forever": "timeout",
                            "compiler dies": "crash", "compiler eats memory": "memory"}[mishap]
    assert device.clock() <= COMPILE_TIMEOUT + 1


@pytest.mark.parametrize(("mishap", "kind"), [
    ("hangs", "timeout"), ("crashes", "crash"), ("eats memory", "memory"),
    ("returns zeros", "wrong")])
def test_a_first_run_may_fail(kernel, mishap, kind):
    (bad,) = texts(kernel, [""])
    device = Simulated(behave=lambda source: mishap if source == bad else "")
    begun(device, kernel)
    failure = linked(device, kernel, "")
    assert isinstance(failure, Failure) and failure.kind == kind
    assert device.clock() < 2
    assert isinstance(linked(device, kernel), int)


def test_a_slow_candidate_links_and_is_slow(kernel):
    (bad,) = texts(kernel, [""])
    device = Simulated(behave=lambda source: "slow" if source == bad else "")
    begun(device, kernel)
    handle = linked(device, kernel, "")
    assert device.sample(handle) == pytest.approx(SLOW * device.cost(bad))


def test_a_candidate_may_crash_later(kernel):
    (bad,) = texts(kernel, [""])
    device = Simulated(behave=lambda source: "crashes later" if source == bad else "")
    begun(device, kernel)
    handle = linked(device, kernel, "")
    assert isinstance(device.sample(handle), float)
    failure = device.sample(handle)
    assert isinstance(failure, Failure) and failure.kind == "crash"


def test_unknown_mishaps_and_texts_are_refused(kernel):
    with pytest.raises(ValueError, match="cannot behave as 'sulks'"):
        Simulated(behave=lambda source: "sulks").compile(["x"])
    device = Simulated()
    low = lowered(kernel)
    failure = device.link(code_of(low, b"no program"))
    assert isinstance(failure, Failure) and failure.kind == "compile_error"


def test_a_cost_of_ones_own_takes_any_text(kernel):
    device = Simulated(cost=lambda source: len(source) / 8)
    low = lowered(kernel)
    handle = device.link(code_of(low, b"1234"))
    assert device.sample(handle) == 0.5


def test_the_clock_moves_forward_only():
    clock = Clock(1.0)
    clock.advance(0.5)
    assert clock() == 1.5
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)
