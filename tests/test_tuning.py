"""Tuning on a simulated device: what is searched, for how long, and what comes of it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tuning_tools import SimulatedDevice, exponential, plan_of, sums

from tilewright.actions import Schedule
from tilewright.actions.stream import StreamStore
from tilewright.config import Tune, using
from tilewright.errors import BackendError
from tilewright.graph import apply
from tilewright.plan import tuning
from tilewright.plan.contenders import contenders
from tilewright.plan.inspect import Compiled
from tilewright.plan.kernels import KernelCache, Work, build
from tilewright.plan.recorded import key_of, opened, records_in
from tilewright.plan.tuning import Tuner
from tilewright.plan.usage import Device, readers, streamed
from tilewright.search.entries import Entry
from tilewright.search.keys import code_version
from tilewright.search.record import Record, Trial

SHAPE = (24, 160)


@pytest.fixture(autouse=True)
def simulated(tmp_path):
    with using(backend="interpreter", threads=1, cache_dir=tmp_path, disk_cache=True):
        yield
    opened.close(tmp_path)


def tuner_for(device: SimulatedDevice, cache: KernelCache, **options) -> Tuner:
    options = {"beam": 2, "seconds": 30.0, "skip_under": 0.0, **options}
    return Tuner(Tune(**options), device, cache)


def summed(cache: KernelCache, slow: SimulatedDevice | None = None):
    plan, inputs = plan_of(lambda p: [sums(p[0])], SHAPE, cache=cache)
    if slow is not None:
        slow.make_slow(plan)
    return plan, inputs


def entry(built):
    return records_in(built.target.records).lookup(
        key_of(built.origin, built.target.backend, built.target.limits.threads))


# -- what is found is used ---------------------------------------------------------------------


def test_a_winner_is_recorded_and_runs_from_the_next_run_on():
    cache, device = KernelCache(), SimulatedDevice()
    plan, inputs = summed(cache, device)
    (before,) = plan.built.values()
    wanted = plan.run(inputs)[0].array.copy()
    tuner = tuner_for(device, cache)
    assert tuner.attend(plan, inputs)
    (result,) = tuner.results
    assert result.fate == "faster" and result.gain > 5 and result.share == 1.0
    assert next(iter(plan.built.values())) is before  # until it runs
    np.testing.assert_allclose(plan.run(inputs)[0].array, wanted, rtol=1e-5)
    (after,) = plan.built.values()
    assert after is cache.peek(before.origin.key, before.target) is not before
    found = entry(before)
    assert found.schedule == str(after.schedule) and found.start_seconds > 5 * found.seconds
    assert found.before and found.after and found.kernel == before.origin.key
    timings = records_in(before.target.records).timings(found.key)
    assert len(timings[code_version()]) > 3


def test_another_cache_finds_the_record():
    device = SimulatedDevice()
    plan, inputs = summed(KernelCache(), device)
    tuner = tuner_for(device, plan._cache)
    tuner.attend(plan, inputs)
    plan.run(inputs)
    (tuned,) = plan.built.values()
    fresh, more = KernelCache(), SimulatedDevice()
    again, inputs = summed(fresh)
    (found,) = again.built.values()
    assert (found.alternative, found.schedule) == (tuned.alternative, tuned.schedule)
    second = tuner_for(more, fresh)
    second.attend(again, inputs)
    assert [r.fate for r in second.results] == ["recorded"] and not more.searches


def test_a_plan_of_recorded_kernels_is_not_timed():
    device = SimulatedDevice()
    plan, inputs = summed(cache := KernelCache(), device)
    tuner_for(device, cache).attend(plan, inputs)
    plan, inputs = summed(cache := KernelCache())
    device.usages = None  # not to be asked
    tuner = tuner_for(device, cache)
    tuner.attend(plan, inputs)
    assert [r.fate for r in tuner.results] == ["recorded"]
    plan, inputs = plan_of(lambda p: [sums(p[0]), exponential(p[1])], SHAPE, (9, 99), cache=cache)
    with pytest.warns(RuntimeWarning, match="cannot time the kernels"):
        tuner.attend(plan, inputs)  # one of them is new


def test_a_plan_of_skipped_kernels_is_not_timed_again():
    device = SimulatedDevice()
    plan, inputs = summed(cache := KernelCache(), device)
    tuner_for(device, cache, skip_under=1.0).attend(plan, inputs)
    assert not device.searches and entry(next(iter(plan.built.values()))) is None
    usages = device.usages
    device.usages = None  # not to be asked
    plan, inputs = summed(cache := KernelCache())
    tuner = tuner_for(device, cache, skip_under=1.0)
    tuner.attend(plan, inputs)
    assert [r.fate for r in tuner.results] == ["short"]
    device.usages = usages
    plan, inputs = summed(cache := KernelCache())
    tuner = tuner_for(device, cache)  # now it is worth one: it is timed in the plan first
    tuner.attend(plan, inputs)
    assert [r.fate for r in tuner.results] == ["faster"] and len(device.searches) == 1


def test_again_searches_what_is_recorded():
    cache, device = KernelCache(), SimulatedDevice()
    plan, inputs = summed(cache, device)
    for again in (False, False, True):
        tuner_for(device, cache, again=again).attend(plan, inputs)
    assert len(device.searches) == 2


def test_a_kernel_that_stays_is_recorded_as_it_is():
    cache, device = KernelCache(), SimulatedDevice()
    device.cost = lambda source: 1e-3
    plan, inputs = summed(cache)
    tuner = tuner_for(device, cache)
    tuner.attend(plan, inputs)
    (built,) = plan.built.values()
    assert tuner.results[0].fate == "kept"
    assert entry(built).schedule == str(built.schedule)


def test_other_plans_of_the_kernel_change_too():
    cache, device = KernelCache(), SimulatedDevice()
    plan, inputs = summed(cache, device)
    other, other_inputs = plan_of(lambda p: [sums(p[0]), exponential(p[1])], SHAPE, (9,),
                                  cache=cache)
    key = next(iter(plan.built))
    before = other.built[key]
    tuner_for(device, cache).attend(plan, inputs)
    other.run(other_inputs)
    assert other.built[key] is not before
    assert other.built[key] is cache.peek(key, before.target)


def test_a_kernel_put_in_place_by_hand_stays():
    cache, device = KernelCache(), SimulatedDevice()
    plan, inputs = summed(cache, device)
    compiled = Compiled(plan)
    compiled.replace(compiled.kernels[0].with_schedule(""))
    (by_hand,) = plan.built.values()
    other, other_inputs = summed(cache)
    tuner_for(device, cache).attend(other, other_inputs)
    plan.run(inputs)
    assert next(iter(plan.built.values())) is by_hand


def test_a_record_that_does_not_apply_is_dropped():
    plan, _ = summed(KernelCache())
    (built,) = plan.built.values()
    records = opened.get(built.target.records)
    key = key_of(built.origin, "interpreter", 1)
    for alternative, schedule in ((0, "Split(i9, 4)"), (0, "Frobnicate(i0)"), (7, "")):
        records.put(Entry(key, "sum", alternative, schedule, 1e-6, 0.0, 3, 1e-6, code_version()))
        again, _ = summed(KernelCache())
        assert str(next(iter(again.built.values())).schedule) == str(built.schedule)
        assert records.lookup(key) is None


def test_forms_of_a_kernel_replay():
    plan, _ = plan_of(lambda p: [apply_sum(p[0])], (1 << 18,), cache=KernelCache())
    (built,) = plan.built.values()
    assert built.alternative == 1 and built.kernel.key != built.origin.key
    plain = build(built.origin, built.target, Work(), Schedule(), 0)
    assert plain.kernel is built.origin
    compiled = Compiled(plan)
    compiled.replace(compiled.kernels[0].with_schedule(built.schedule))
    assert compiled.kernels[0].key == built.kernel.key


def apply_sum(x):
    return apply("reduce", x, kind="sum", axes=(0,))


# -- what is searched ----------------------------------------------------------------------------


def test_the_second_of_two_equal_kernels_costs_nothing():
    cache, device = KernelCache(), SimulatedDevice()
    plan, inputs = plan_of(lambda p: [sums(p[0]), sums(p[1])], SHAPE, SHAPE, cache=cache)
    assert len(plan.bound.calls) == 2 or len(plan.built) == 1
    device.make_slow(plan)
    tuner = tuner_for(device, cache)
    tuner.attend(plan, inputs)
    spent = len(device.sources), device.samples
    assert len(device.searches) == len(plan.built)
    other, other_inputs = plan_of(lambda p: [sums(p[0]), sums(p[1])], SHAPE, SHAPE, cache=cache)
    tuner.attend(other, other_inputs)
    assert (len(device.sources), device.samples) == spent


def test_programs_compiled_are_distinct_across_all_rounds():
    cache, device = KernelCache(), SimulatedDevice()
    plan, inputs = summed(cache, device)
    tuner = tuner_for(device, cache, beam=4)
    tuner.attend(plan, inputs)
    record = tuner.results[0].record
    assert len(record.rounds) > 1
    assert len(set(device.sources)) == len(device.sources) == record.counts["compiled"]


@pytest.mark.parametrize(("options", "share", "fate"), [
    ({"skip_under": 1.0}, 0.0, "short"),
    ({}, 0.97, "near limit"),
    ({"near_limit": 0.01}, 0.97, "faster"),
    ({}, 0.94, "faster"),
])
def test_kernels_that_are_not_worth_it_are_skipped(options, share, fate):
    cache, device = KernelCache(), SimulatedDevice(share)
    plan, inputs = summed(cache, device)
    tuner = tuner_for(device, cache, **options)
    tuner.attend(plan, inputs)
    assert [r.fate for r in tuner.results] == [fate]
    assert bool(device.searches) == (fate == "faster")


def test_kernels_put_in_place_by_hand_are_left_alone():
    cache, device = KernelCache(), SimulatedDevice()
    plan, inputs = summed(cache)
    compiled = Compiled(plan)
    for edited in (compiled.kernels[0].with_source(compiled.kernels[0].source),
                   compiled.kernels[0].with_schedule("")):
        compiled.replace(edited)
        assert plan.by_hand == set(plan.built)
        tuner = tuner_for(device, cache)
        assert tuner.attend(plan, inputs) and not tuner.results and not device.searches


# -- the budget ------------------------------------------------------------------------------


def three_kernels(cache):
    return plan_of(lambda p: [sums(p[0]), exponential(p[1]), sums(p[2])],
                   (40, 320), (3000,), (8, 77), cache=cache)


@pytest.mark.parametrize("seconds", [5.0, 20.0])
def test_the_budget_is_kept_and_goes_to_the_greatest_share_first(seconds):
    cache, device = KernelCache(), SimulatedDevice(scale=2e4)  # runs take seconds
    plan, inputs = three_kernels(cache)
    tuner = tuner_for(device, cache, seconds=seconds, beam=1)
    tuner.attend(plan, inputs)
    assert device.clock.now <= 1.1 * seconds
    shares = [r.share for r in tuner.results]
    assert shares == sorted(shares, reverse=True) and sum(shares) == pytest.approx(1.0)
    assert tuner.left == pytest.approx(seconds - device.clock.now)


def test_kernels_left_without_seconds_are_named_and_met_again():
    cache, device = KernelCache(), SimulatedDevice(scale=1e5)
    plan, inputs = three_kernels(cache)
    tuner = tuner_for(device, cache, seconds=2.0, beam=1)
    tuner.attend(plan, inputs)
    assert "no budget" in {r.fate for r in tuner.results}
    assert tuner.left < 1.5
    later = tuner_for(SimulatedDevice(), cache, beam=1, seconds=5.0)
    later.attend(plan, inputs)
    assert "no budget" not in {r.fate for r in later.results}


def test_a_tuner_without_seconds_leaves_plans_alone():
    cache, device = KernelCache(), SimulatedDevice()
    plan, inputs = summed(cache, device)
    tuner = tuner_for(device, cache)
    tuner.left = 0.0
    assert tuner.attend(plan, inputs) and not tuner.results
    tuner.left = 1.0
    tuner.close()
    assert tuner.attend(plan, inputs) and not tuner.results


# -- what goes wrong -------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [150, 240, 330])
def test_an_interrupt_keeps_the_best_so_far(stop):
    cache, device = KernelCache(), SimulatedDevice(stop=stop)
    plan, inputs = summed(cache, device)
    (before,) = plan.built.values()
    tuner = tuner_for(device, cache)
    with pytest.raises(KeyboardInterrupt):
        tuner.attend(plan, inputs)
    (result,) = tuner.results
    assert result.record.why == "interrupted"
    assert result.fate == "faster"
    assert entry(before).schedule == str(cache.peek(before.origin.key, before.target).schedule)
    plan.run(inputs)
    assert next(iter(plan.built.values())) is not before


def test_an_interrupt_without_a_gain_is_not_recorded():
    cache, device = KernelCache(), SimulatedDevice(stop=2)
    plan, inputs = summed(cache)
    with pytest.raises(KeyboardInterrupt):
        tuner_for(device, cache).attend(plan, inputs)
    (built,) = plan.built.values()
    assert records_in(built.target.records) is None or entry(built) is None


@pytest.mark.parametrize("error", [BackendError("timer: cannot start it (no memory)"),
                                   OSError("the pipe is closed")])
def test_a_search_that_fails_warns_and_leaves_the_kernel(error):
    cache, device = KernelCache(), SimulatedDevice(fail=error)
    plan, inputs = summed(cache)
    (before,) = plan.built.values()
    tuner = tuner_for(device, cache)
    with pytest.warns(RuntimeWarning, match=re.escape(
            f"tune: cannot search sum_24x160 ({error})")) as seen:
        tuner.attend(plan, inputs)
    assert len(seen) == 1 and [r.fate for r in tuner.results] == ["failed"]
    plan.run(inputs)
    assert next(iter(plan.built.values())) is before


def test_a_winner_that_loses_in_this_process_is_not_used():
    cache, device = KernelCache(), SimulatedDevice()
    plan, inputs = summed(cache, device)
    (before,) = plan.built.values()
    honest, device.alone = device.alone, None
    device.alone = lambda given, other: honest(given, other)[::-1]
    tuner = tuner_for(device, cache)
    tuner.attend(plan, inputs)
    (result,) = tuner.results
    assert result.fate == "kept" and "did not win" in result.reason
    assert entry(before).schedule == str(before.schedule) and result.record.winner == 0


def trial(number: int, seconds: float, schedule: str) -> Trial:
    return Trial(number, 0, 1, "", "timed", schedule=schedule, samples=[seconds])


@pytest.mark.parametrize("winner, wanted", [(0, []), (1, [1, 3]), (2, [2])])
def test_a_winner_that_writes_past_the_caches_has_a_second(winner, wanted):
    trials = [trial(0, 4.0, "Split(i0, 8)"), trial(1, 1.0, "Split(i0, 16)\nStreamStore(out0)"),
              trial(2, 3.0, "Split(i0, 4)"), trial(3, 2.0, "Split(i0, 32)"),
              trial(4, 1.5, "StreamStore(out0)")]
    record = Record("", "", "", 4, 0, trials, winner=winner)
    assert [t.number for t in contenders(record)] == wanted


def test_the_second_has_a_chance_where_the_winner_loses(monkeypatch):
    """As where the next kernel reads what was written past the caches."""
    cache, device = KernelCache(), SimulatedDevice()
    plan, inputs = summed(cache, device)
    honest, tried = device.alone, []

    def alone(given, other):
        tried.append(str(other.schedule))
        return honest(given, other)[::-1 if len(tried) == 1 else 1]

    monkeypatch.setattr(device, "alone", alone)
    monkeypatch.setattr(tuning, "contenders", lambda record: [
        record.best, min((t for t in record.trials[1:] if t.samples and t is not record.best),
                         key=lambda t: t.seconds)])
    tuner = tuner_for(device, cache)
    tuner.attend(plan, inputs)
    (result,) = tuner.results
    assert result.fate == "faster" and len(tried) == 2
    plan.run(inputs)
    (built,) = plan.built.values()
    assert str(built.schedule) == tried[1] == result.record.best.schedule == entry(built).schedule


def test_readers_are_timed_with_a_kernel_that_begins_to_write_past_the_caches():
    def layers(p):
        return [apply("cumulate", apply("cumulate", p[0], kind="sum", axis=1), kind="sum", axis=0)]
    with using(backend="llvm"):
        plan, inputs = plan_of(layers, SHAPE, cache=KernelCache())
        first, second = plan.built.values()
        assert readers(plan, first.origin.key) == [second.origin.key]
        assert readers(plan, second.origin.key) == []
        assert not streamed(first)
        own, other = Device().usages(plan, inputs)[0].pair(first, build(
            first.origin, first.target, Work(), Schedule((StreamStore("out0"),)),
            first.alternative))
    assert own() > 0 and other() > 0
