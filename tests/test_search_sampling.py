"""Which samples are taken: in turns, twice after a long first run, fewer and fewer at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from search_kernels import SMALL, Watching, number_of, simulate
from search_tools import LIMITS, addition, product

from tilewright.actions import Schedule
from tilewright.search import Record
from tilewright.search.decide import Rules, midmean
from tilewright.search.finish import FINAL, MOST_RUNS
from tilewright.search.looks import TURNS, Looks
from tilewright.search.sampler import Sampler
from tilewright.search.simulated import Clock, Simulated


class Listening(Watching):
    """Also keeps the samples of each batch, in order, and moves as -1.

    First samples of all but the given schedule take `late` times as long.
    """

    def __init__(self, device: Simulated, late: float = 1.0):
        super().__init__(device)
        self.batches: list[list[int]] = []
        self.late = late
        self.seen: Counter[int] = Counter()

    def compile(self, sources):
        self.batches.append([])
        return super().compile(sources)

    def sample(self, handle: int):
        self.batches[-1].append(handle)
        self.seen[handle] += 1
        sample = super().sample(handle)
        first = handle > 0 and self.seen[handle] == 1
        return sample * self.late if first and isinstance(sample, float) else sample

    def move(self) -> None:
        self.batches[-1].append(-1)
        super().move()


def listening(late: float = 1.0, **device) -> Listening:
    return Listening(Simulated(clock=Clock(), limits=LIMITS, **device), late)


def test_a_batch_is_sampled_in_turns_at_several_places():
    watching = listening(cost=lambda source: 1e-5)
    simulate(addition(64, 64), budget=replace(SMALL, rounds=1), watching=watching)
    batch = max(watching.batches[:-1], key=lambda handles: len(set(handles)))  # the last: the end
    size = batch.index(-1)
    assert size > 3
    turns = [batch[:size]]
    end = 2 * Rules().samples * (size + 1) - 1  # all are as fast as the best
    for start in range(size, end, size + 1):
        assert batch[start] == -1
        turns.append(batch[start + 1:start + 1 + size])
    assert all(sorted(turn) == sorted(turns[0]) for turn in turns)
    looks = Counter(batch[end:])  # at the fastest, beside the given
    assert len(looks) == 3 and looks[0] == TURNS and set(looks.values()) == {TURNS}


class Turning(Simulated):
    """After some seconds, all but the given schedule take `factor` times as long."""

    def __init__(self, after: float, factor: float):
        super().__init__(lambda source: 1e-5 * (0.9 + 0.2 * number_of(source, 2)),
                         clock=Clock(), limits=LIMITS)
        self.after, self.factor = after, factor

    def sample(self, handle: int):
        found = super().sample(handle)
        late = self.clock() > self.after
        return found * (1.15 if handle == 0 else self.factor if late else 1.0)


LONG = replace(SMALL, rounds=8, per_round=16)


def turning(share: float, factor: float) -> Record:
    """Search where all but the given are slower by a factor after a share of the rounds."""
    kernel = addition(64, 64)
    calm = simulate(kernel, budget=LONG, watching=Watching(Turning(float("inf"), 1.0)))
    assert calm.winner
    after = share * calm.rounds[-1].ended
    return simulate(kernel, budget=LONG, watching=Watching(Turning(after, factor)))


def test_a_state_of_the_machine_at_the_end_does_not_lose_a_gain():
    record = turning(1.0, 1.2)
    assert record.winner and record.duel[0] == "a"


def test_a_state_that_lasts_keeps_the_given_schedule():
    assert turning(0.3, 1.4).winner == 0


def looks_of(ratios: dict[int, list[float]]) -> Looks:
    watching = listening()
    sampler = Sampler(None, None, watching, Rules(), 0.0, 0.0, lambda: False, watching.device.clock)
    return Looks(sampler, watching, 1.0, ratios)


def test_what_is_slower_in_the_mean_loses_though_it_was_faster_at_the_end():
    looks = looks_of( {3: [0.9, 0.92, 0.9, 0.91, 0.9]})
    assert looks.overrule(3, ("a", 1.02, 1.01, 1.03))[0] == "b"
    assert looks.overrule(4, ("a", 1.02, 1.01, 1.03)) == ("a", 1.02, 1.01, 1.03)


def test_few_looks_overrule_nothing():
    looks = looks_of( {3: 4 * [0.9]})
    assert looks.overrule(3, ("a", 1.02, 1.01, 1.03))[0] == "a"


def test_one_long_sample_does_not_lose_a_candidate():
    """Every candidate's first run is five times as long, as under a burst of other work."""
    def cost(source: str) -> float:
        return 1e-5 * (1.0 if number_of(source, 2) < 0.5 else 0.8)
    budget = replace(SMALL, seconds=100.0)
    record = simulate(addition(64, 64), budget=budget, watching=listening(5.0, cost=cost))
    assert "slow" not in {t.fate for t in record.trials}
    assert record.best.seconds == pytest.approx(0.8e-5)


def test_the_last_heat_halves_until_few_are_left():
    watching = listening(cost=lambda source: 1e-4 * (1 + 0.05 * number_of(source, 1)))
    budget = replace(SMALL, per_round=64, rounds=1)
    record = simulate(product(64, 64, 64), Schedule(), budget, watching=watching)
    timed = [t for t in record.trials if t.fate == "timed"]
    counts = sorted((len(t.samples) for t in timed if t.number not in (0, record.winner)),
                    reverse=True)
    assert len(counts) > 3 * FINAL
    most = [c for c in counts if c == counts[0]]
    assert len(most) <= FINAL and len(set(counts)) >= 3
    assert record.best.seconds <= 1.006 * min(t.seconds for t in timed)


class Places(Watching):
    """At one of three places, which moves lead to in turn, the fastest takes three times as long.

    As code does whose pages collide in the instruction cache where it happens to lie.
    """

    def __init__(self, device: Simulated, fastest: float):
        super().__init__(device)
        self.place, self.fastest = 0, fastest

    def sample(self, handle: int):
        sample = super().sample(handle)
        bad = self.place % 3 == 1 and sample < 1.01 * self.fastest
        return 3 * sample if bad else sample

    def move(self) -> None:
        self.place += 1
        super().move()


def without_and_with(kind: type[Places]) -> tuple[Record, Record]:
    """Return records of the same search on a steady device, and where its fastest is disturbed."""
    def run(watch: Callable[[Simulated], Watching]) -> Record:
        device = Simulated(clock=Clock(), limits=LIMITS,
                           cost=lambda source: 1e-2 * (1 + 0.5 * number_of(source, 3)))
        return simulate(product(64, 64, 64), Schedule(), watching=watch(device))
    alone = run(Watching)
    return alone, run(lambda device: kind(device, alone.best.seconds))


def test_a_bad_place_does_not_lose_the_fastest():
    alone, record = without_and_with(Places)
    assert record.best.schedule == alone.best.schedule


class Moody(Places):
    """The fastest takes three times as long from the end of the last heat on."""

    def sample(self, handle: int):
        sample = self.device.sample(handle)
        late = self.place >= Rules().places - 1
        return 3 * sample if late and sample == self.fastest else sample


def test_the_next_has_a_chance_where_the_first_of_the_heat_does_not_win():
    alone, record = without_and_with(Moody)
    first = min((t for t in record.trials if t.samples), key=lambda t: t.seconds)
    assert first.schedule == alone.best.schedule and max(first.samples) == 3 * first.seconds
    assert record.winner not in (0, first.number) and record.duel[0] == "a"
    assert alone.best.seconds < record.best.seconds < 1.1 * alone.best.seconds


@pytest.mark.parametrize("seconds, runs", [(1e-5, MOST_RUNS), (1e-2, 1)])
def test_pairs_of_short_runs_are_of_several(seconds, runs):
    record = simulate(product(64, 64, 64), Schedule(), replace(SMALL, seconds=10.0),
                      cost=lambda source: seconds * (1 + 0.5 * number_of(source, 3)))
    samples, pairs = len(record.trials[0].samples), Rules().last
    assert pairs // 3 * runs <= samples <= pairs * runs + 50


def test_the_midmean_forgets_a_quarter_at_each_end():
    assert midmean([2.0]) == 2.0
    assert midmean([1.0, 2.0]) == 1.5
    assert midmean([9.0, 1.0, 2.0, 3.0, 0.0]) == 2.0
    assert midmean([1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 9.0, 9.0, 0.0]) == 1.6
