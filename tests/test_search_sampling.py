"""Which samples are taken: in turns, twice after a long first run, fewer and fewer at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from search_kernels import SMALL, Watching, number_of, simulate
from search_tools import LIMITS, addition, product

from tilewright.actions import Schedule
from tilewright.search.decide import Rules
from tilewright.search.finish import FINAL
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
    size = len(set(batch) - {-1})
    assert size > 3
    turns = [batch[:size]]
    for start in range(size, len(batch), size + 1):
        assert batch[start] == -1
        turns.append(batch[start + 1:start + 1 + size])
    assert len(turns) == 2 * Rules().samples  # all are as fast as the best
    assert all(sorted(turn) == sorted(turns[0]) for turn in turns)


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
