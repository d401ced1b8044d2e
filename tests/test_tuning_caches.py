"""The caches as a plan leaves them: which kernels are timed cold, and where that is recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fusion_tools import matmul
from tuning_tools import SimulatedDevice, exponential, plan_of, sums

from tilewright.config import Tune, using
from tilewright.plan.kernels import KernelCache
from tilewright.plan.recorded import key_of, opened, records_in
from tilewright.plan.tuning import Tuner
from tilewright.plan.usage import Device
from tilewright.plan.warmth import cold_kernels
from tilewright.search.device import CpuMeasurer

SHAPE = (24, 160)


@pytest.fixture(autouse=True)
def simulated(tmp_path):
    with using(backend="interpreter", threads=1, cache_dir=tmp_path, disk_cache=True):
        yield
    opened.close(tmp_path)


def entry(built, caches: str):
    return records_in(built.target.records).lookup(key_of(built.origin, "interpreter", 1, caches))


def tuned(plan, inputs, cache, device, **options):
    tuner = Tuner(Tune(2, 30.0, skip_under=0.0, **options), device, cache)
    tuner.attend(plan, inputs)
    return tuner


def calls_of(function, *shapes):
    return plan_of(function, *shapes, cache=KernelCache())[0].bound.calls


def test_a_kernel_alone_is_warm_however_large():
    assert cold_kernels(calls_of(lambda p: [exponential(p[0])], SHAPE), 1) == set()


def test_what_others_touch_between_two_uses_decides():
    """Two kernels that share nothing: each finds what it uses behind the other's bytes."""
    calls = calls_of(lambda p: [sums(p[0]), sums(p[1])], (8, 100), (4, 100))
    large, small = (c.kernel.key for c in calls)
    moved = {large: 4 * 808, small: 4 * 404}
    assert cold_kernels(calls, moved[large] + moved[small]) == set()
    assert cold_kernels(calls, moved[large]) == set()
    assert cold_kernels(calls, moved[large] - 1) == {small}
    assert cold_kernels(calls, moved[small] - 1) == {small, large}


def test_what_the_kernel_before_wrote_is_warm():
    def chain(p):
        return [exponential(sums(p[0])), sums(p[1])]
    calls = calls_of(chain, (64, 100), (64, 200))
    keys = [c.kernel.key for c in calls]
    cold = cold_kernels(calls, 4 * 64 * 100)
    assert len(keys) == len(calls) and cold <= set(keys) and cold


def test_equal_layers_with_weights_of_their_own_are_cold():
    def layers(p):
        x = p[0]
        for weights in p[1:]:
            x = matmul(x, weights)
        return [x]
    calls = calls_of(layers, (1, 64), *[(64, 64)] * 4)
    assert len({c.kernel.key for c in calls}) == 1
    assert cold_kernels(calls, 3 * 64 * 64 * 4 + 4096) == set()
    assert len(cold_kernels(calls, 2 * 64 * 64 * 4)) == 1


def test_a_plan_larger_than_its_cache_has_cold_kernels(monkeypatch):
    def function(p):
        return [sums(exponential(p[0])), exponential(sums(p[1]))]
    cache = KernelCache()
    plan, _ = plan_of(function, SHAPE, (48, 320), cache=cache)
    assert {b.target.caches for b in plan.built.values()} == {"warm"}
    monkeypatch.setattr("tilewright.plan.plan.cold_kernels",
                        lambda calls, capacity: {calls[0].kernel.key})
    plan, _ = plan_of(function, SHAPE, (48, 320), cache=cache)
    assert sorted(b.target.caches for b in plan.built.values()) == ["cold", "warm"]


@pytest.mark.parametrize("caches", ["warm", "cold"])
def test_a_choice_of_caches_is_asked_for_and_filed(caches):
    cache, device = KernelCache(), SimulatedDevice()
    plan, inputs = plan_of(lambda p: [sums(p[0])], SHAPE, cache=cache)
    device.make_slow(plan)
    (result,) = tuned(plan, inputs, cache, device, caches=caches).results
    assert result.fate == "faster" and [t.caches for t in device.targets] == [caches]
    assert entry(result.built, caches) is not None
    assert entry(result.built, "cold" if caches == "warm" else "warm") is None


def test_a_record_of_other_caches_is_used_until_there_is_one():
    device = SimulatedDevice()
    plan, inputs = plan_of(lambda p: [sums(p[0])], SHAPE, cache=(cache := KernelCache()))
    device.make_slow(plan)
    (result,) = tuned(plan, inputs, cache, device, caches="cold").results
    plan, inputs = plan_of(lambda p: [sums(p[0])], SHAPE, cache=(cache := KernelCache()))
    (built,) = plan.built.values()
    assert built.target.caches == "warm"
    assert str(built.schedule) == result.record.best.schedule
    (result,) = tuned(plan, inputs, cache, device).results
    assert result.fate != "recorded" and entry(built, "warm") is not None


def test_caches_that_are_no_choice_are_refused():
    with pytest.raises(ValueError, match="cannot time with caches 'tepid'.*plan, warm or cold"):
        Tune(caches="tepid")


def test_cold_kernels_are_measured_and_compared_cold():
    with using(backend="llvm"):
        cache = KernelCache()
        plan, _ = plan_of(lambda p: [sums(p[0])], (256, 1024), cache=cache)
        (built,) = plan.built.values()
        device = Device()
        times = []
        for caches in ("warm", "cold"):
            target = replace(built.target, caches=caches)
            with device.measurer(target) as measurer:
                assert isinstance(measurer, CpuMeasurer) and measurer.cold == (caches == "cold")
            given = replace(built, target=target)
            first, second = device.alone(given, given)
            times.append(min(min(first(), second()) for _ in range(5)))
        assert 0 < times[0] < times[1]
