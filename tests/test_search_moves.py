"""Which moves a search makes, and when it has none left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fusion_tools import leaf
from search_kernels import SMALL, Watching, number_of
from search_tools import LIMITS, addition, kernel_of, product, total

from tilewright.actions import Recipe, default_recipe, default_schedule
from tilewright.actions.sketches.pointwise import Pointwise
from tilewright.backends import backend
from tilewright.graph import apply
from tilewright.search import search
from tilewright.search.candidates import Candidate, moves
from tilewright.search.decide import Rules
from tilewright.search.near import near
from tilewright.search.simulated import Clock, Simulated


def tiles(recipe: Recipe) -> set[tuple[int, int]]:
    return {(s.lanes, s.copies) for s in recipe.sketches if hasattr(s, "copies")}


@pytest.mark.parametrize("make", [lambda: addition(64, 4096), lambda: total(1 << 16)],
                         ids=["add", "sum"])
def test_lanes_are_traded_for_copies(make):
    kernel = make()
    start = default_recipe(kernel, LIMITS)
    ((lanes, copies),) = tiles(start)
    found = {tile for r in near(start, kernel, LIMITS) for tile in tiles(r)}
    same = {(n, lanes * copies // n) for n in (lanes // 2, 2 * lanes, 4 * lanes)
            if lanes * copies % n == 0}
    assert same <= found
    if isinstance(start.sketches[0], Pointwise):
        assert (1, LIMITS.lanes(4)) in found


def test_near_schedules_apply_and_are_each_there_once():
    kernel = product(64, 64, 64)
    start = default_recipe(kernel, LIMITS)
    found = near(start, kernel, LIMITS)
    assert len({str(r) for r in found}) == len(found) and str(start) not in map(str, found)


def test_sketches_of_the_same_numbers_move_together():
    kernel = kernel_of(apply("concat", leaf(64, 256), leaf(32, 256, seed=1), axis=0))
    start = default_recipe(kernel, LIMITS)
    first, second = start.sketches
    assert (first.lanes, first.copies) == (second.lanes, second.copies)
    both = [r.sketches for r in near(start, kernel, LIMITS)
            if all(new != old for new, old in zip(r.sketches, start.sketches))]
    assert both and all((a.lanes, a.copies) == (b.lanes, b.copies) for a, b in both)
    other = replace(start, sketches=(first, replace(second, copies=1)))
    assert not [r for r in near(other, kernel, LIMITS)
                if all(new != old for new, old in zip(r.sketches, other.sketches))]


def test_actions_are_also_taken_in_all_stages_that_are_alike():
    kernel = kernel_of(apply("concat", leaf(64, 256), leaf(64, 128, seed=1), axis=1))
    recipe = replace(default_recipe(kernel, LIMITS), joined=0)
    start = Candidate(0, kernel, recipe.schedule(kernel, LIMITS), recipe)
    texts = ["\n".join(map(str, m.extra)) for m in moves(start, LIMITS)
             if isinstance(m, Candidate)]
    one, other = "Merge(s0:i0, s0:i1.0)", "Merge(s1:i0, s1:i2.0)"
    assert texts.count(one) == texts.count(other) == texts.count(f"{one}\n{other}") == 1
    assert f"{other}\n{one}" not in texts
    first, second = recipe.sketches
    unlike = replace(recipe, sketches=(first, replace(second, copies=1)))
    start = Candidate(0, kernel, unlike.schedule(kernel, LIMITS), unlike)
    assert not any(len(m.extra) > 1 for m in moves(start, LIMITS) if isinstance(m, Candidate))


def whole(rules: Rules, beam: int = 4, **device):
    """Return a record of a search that nothing but its rules ends."""
    kernel = addition(64, 4096)
    watching = Watching(Simulated(clock=Clock(), limits=LIMITS, **device))
    budget = replace(SMALL, beam=beam, rounds=99)
    return search(kernel, default_schedule(kernel, LIMITS), backend("interpreter"), LIMITS,
                  watching, budget, watching.device.clock, rules=rules)


def test_all_that_is_nearly_as_fast_has_its_moves():
    record = whole(Rules(dry_rounds=99, most_dry_rounds=99), beam=1,
                   cost=lambda source: 1e-3 * (1 + 4 * number_of(source, 5)))
    assert record.why.startswith("every move")
    parents = {t.parent for t in record.trials}
    near_best = {t.number for t in record.trials
                 if t.fate == "timed" and t.seconds <= 1.1 * record.best.seconds}
    assert len(near_best) > 1 and near_best <= parents


def test_more_dry_rounds_follow_where_most_of_the_seconds_are_left():
    record = whole(Rules(), cost=lambda source: 1e-3)
    assert record.why == f"{Rules().most_dry_rounds} rounds without progress"
