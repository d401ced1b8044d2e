"""Crossing candidates: what comes of several differences at once, and of those that do not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from search_tools import LIMITS, product

from tilewright.actions import Schedule, default_recipe, parse_schedule
from tilewright.actions.sketches.recipe import Recipe
from tilewright.search.candidates import Candidate, Move, moves, with_recipe
from tilewright.search.cross import MOST, crossings

KERNEL = product(128, 128, 128)
SKETCH = replace(default_recipe(KERNEL, LIMITS).sketches[0], rows=2, vectors=1, block=4, steps=64,
                 pack=False)
RECIPE = Recipe(None, (SKETCH,), False)


def made(recipe: Recipe = RECIPE, *actions: str) -> Candidate:
    extra = tuple(a for text in actions for a in parse_schedule(text).actions)
    bare = Candidate(0, KERNEL, Schedule(), extra=extra)
    move = with_recipe(bare, recipe, "", LIMITS)
    assert isinstance(move, Candidate)
    return move


def changed(**values: object) -> Recipe:
    return replace(RECIPE, sketches=(replace(SKETCH, **values),))


def crossed(base: Candidate, *others: tuple[Candidate, float]) -> list[Move]:
    return list(crossings(base, 1.0, others, LIMITS))


def test_the_differences_of_two_are_joined_and_their_ratios_multiplied():
    base, one, two = made(), made(changed(rows=4)), made(changed(steps=32))
    (move,) = crossed(base, (one, 1.02), (two, 1.03))
    assert move == made(changed(rows=4, steps=32)) and move.built is not None
    assert move.expected == pytest.approx(1.02 * 1.03)
    assert "rows=4" in move.label and "steps=32" in move.label


def test_three_are_joined_and_the_most_promising_come_first():
    others = [made(changed(rows=4)), made(changed(steps=32)), made(changed(block=2))]
    found = crossed(made(), *zip(others, (0.99, 1.01, 1.05)))
    assert len(found) == 4
    assert [m.expected for m in found] == sorted(m.expected for m in found)
    assert made(changed(rows=4, steps=32, block=2)) in found


def test_actions_are_joined_after_the_parameters():
    nest = made().nest()
    (outer, *_) = nest.body
    action = f"Unroll({outer.name})"
    (move,) = crossed(made(), (made(changed(rows=4)), 1.0), (made(RECIPE, action), 1.0))
    assert move == made(changed(rows=4), action)
    assert move.label.endswith(f"+ {action}")


def test_two_values_of_one_parameter_are_not_joined():
    assert crossed(made(), (made(changed(rows=4)), 1.0), (made(changed(rows=6)), 1.0)) == []


def test_what_is_there_is_not_made_again():
    both = made(changed(rows=4, steps=32))
    assert crossed(made(), (both, 1.0), (made(changed(rows=4)), 1.0),
                   (made(changed(steps=32)), 1.0)) == []


def test_other_forms_and_plain_schedules_are_left_out():
    other = replace(made(changed(steps=32)), alternative=1)
    plain = Candidate(0, KERNEL, Schedule())
    assert crossed(made(), (made(changed(rows=4)), 1.0), (other, 1.0), (plain, 1.0)) == []
    assert list(crossings(plain, 1.0, [(made(), 1.0), (made(changed(rows=4)), 1.0)], LIMITS)) == []


def test_what_does_not_fit_is_told():
    """Rows and vectors share the registers: each alone may be had."""
    (move,) = crossed(made(), (made(changed(rows=12)), 1.0), (made(changed(vectors=4)), 1.0))
    assert isinstance(move, tuple) and "registers" in move[1]


def test_there_are_not_too_many():
    others = [made(changed(rows=r, steps=s)) for r in (4, 6) for s in (8, 16, 32)]
    others += [made(changed(block=b)) for b in (1, 2, 8)]
    assert len(crossed(made(), *((o, 1.0) for o in others))) <= MOST


def test_moves_of_a_crossing_are_left_to_the_models():
    (move,) = crossed(made(), (made(changed(rows=4)), 1.0), (made(changed(steps=32)), 1.0))
    assert all(m.expected == 0.0 for m in moves(move, LIMITS) if isinstance(m, Candidate))
