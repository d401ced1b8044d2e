"""How often noise leads the search astray, in a small size; see search_noise.py for a large one."""

from __future__ import annotations

import numpy as np
import pytest
from search_kernels import KERNELS, simulate
from search_noise import accepted_slower, missed, regret

from tilewright.search.decide import (
    Rules,
    drop_early,
    duel,
    interval,
    progressed,
    typical,
)

SEARCHES = 12
RULES = Rules()


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.2])
def test_a_slower_candidate_hardly_ever_wins(noise):
    assert accepted_slower(noise, SEARCHES) <= 1 / SEARCHES


@pytest.mark.parametrize(("treasure", "noise", "most"),
                         [(0.9, 0.01, 0.2), (0.8, 0.05, 0.2), (0.5, 0.2, 0.2)])
def test_a_much_faster_candidate_is_hardly_ever_missed(treasure, noise, most):
    assert missed(treasure, noise, SEARCHES) <= most


@pytest.mark.parametrize(("noise", "most"), [(0.01, 0.02), (0.05, 0.05), (0.2, 0.2)])
def test_winners_are_near_the_fastest(noise, most):
    lost = regret(noise, SEARCHES)
    assert lost[SEARCHES // 2] <= 0.01
    assert lost[-2] <= most


# -- the rules themselves ----------------------------------------------------------------------

def test_the_interval_is_that_of_the_sign_test():
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0)  # too few: the extremes
    assert interval([float(i) for i in range(6)]) == (0.0, 5.0)
    assert interval([float(i) for i in range(15)]) == (3.0, 11.0)


def test_the_interval_holds_the_median_often_enough():
    rng = np.random.default_rng(0)
    for count in (6, 9, 15):
        inside = 0
        for _ in range(2000):
            low, high = interval(list(rng.exponential(size=count)))
            inside += low <= np.log(2) <= high
        assert inside >= 0.945 * 2000


def test_progress_needs_a_gap_between_all_samples():
    assert progressed([0.9, 0.95], [1.0, 1.2], RULES)
    assert not progressed([0.9, 0.995], [1.0, 1.2], RULES)  # less than the least progress
    assert not progressed([0.9, 1.1], [1.0, 1.2], RULES)
    assert not progressed([0.9, 0.95], [1.0, 1.2], Rules(least_seconds=0.1))


def test_one_sample_drops_what_is_far_behind():
    assert drop_early(3.1, 1.0, RULES) and not drop_early(2.9, 1.0, RULES)


def test_the_typical_sample_ignores_bursts_and_one_lucky_run():
    assert typical([4.0, 1.0, 1.1, 4.0, 0.5, 1.2, 1.1]) == 1.0


@pytest.mark.parametrize(("ratio", "verdict"), [(0.8, "a"), (1.25, "b"), (1.0, "tie")])
def test_duels_find_the_faster(ratio, verdict):
    rng = np.random.default_rng(1)

    def runs(seconds: float):
        return lambda: seconds * (1 + 0.02 * abs(float(rng.standard_normal())))
    result, found, low, high = duel(runs(ratio), runs(1.0), RULES)
    assert result == verdict
    assert low <= found <= high
    assert found == pytest.approx(1 / ratio, rel=0.03)


def test_duels_take_turns_in_going_first_and_end_early():
    order: list[str] = []

    def runs(name: str, seconds: float):
        def take() -> float:
            order.append(name)
            return seconds
        return take
    duel(runs("a", 1.0), runs("b", 2.0), RULES)
    assert "".join(order) == "abba" * 3  # six pairs are enough
    order.clear()
    duel(runs("a", 1.0), runs("b", 1.0), RULES)
    assert len(order) == 2 * RULES.duel


def test_equal_candidates_are_hardly_ever_told_apart():
    rng = np.random.default_rng(2)

    def take() -> float:
        return 1 + 0.05 * abs(float(rng.standard_normal()))
    verdicts = [duel(take, take, RULES)[0] for _ in range(400)]
    assert verdicts.count("a") <= 0.06 * 400


def test_a_noisy_machine_gets_twice_the_samples():
    quiet, noisy = (simulate(KERNELS["add_3d"](), noise=level) for level in (0.01, 0.3))
    assert (quiet.noise, noisy.noise) == (0.01, 0.3)
    assert Rules().against(0.01) == Rules()
    least = [min(len(t.samples) for t in record.trials if t.fate == "timed")
             for record in (quiet, noisy)]
    assert least == [Rules().samples, 2 * Rules().samples]
