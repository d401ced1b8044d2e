"""Crossing candidates: one of them, with what tells several others from it.

A move that gains nothing is not gone on from, but several at once may gain: the vectors of a tile
and the steps of its block share the registers and the caches. What each one took by itself is
measured, and the product of these ratios says which to try first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from math import prod

from tilewright.actions import Action, Recipe
from tilewright.actions.sketches import Sketch
from tilewright.limits import Limits
from tilewright.search.candidates import Candidate, Move, difference, with_recipe

MATES = 8  # others of which some are crossed
AT_ONCE = 3  # at most
MOST = 32  # crossings of one candidate

Place = tuple[int, str]  # of a parameter: the number of its sketch, -1 for the recipe's own; a name


@dataclass(frozen=True)
class Difference:
    """What tells a candidate from another of the same form, and by how much it is slower."""

    ratio: float
    values: dict[Place, object]
    actions: tuple[Action, ...]

    def fits(self, other: Difference) -> bool:
        """Return whether both can be had at once."""
        return all(other.values.get(place, value) == value
                   for place, value in self.values.items())


def crossings(base: Candidate, seconds: float, others: Sequence[tuple[Candidate, float]],
              limits: Limits) -> Iterator[Move]:
    """Yield a candidate with the differences of two or three others, each result once.

    The most promising come first. `seconds` are what the candidate took; `others` come with theirs,
    the fastest first. Those of another form, or with other kinds of sketches, are left out.
    """
    told = (_told(base, other, taken / seconds) for other, taken in others)
    found = [d for d in told if d is not None]
    groups = [group for count in range(2, AT_ONCE + 1)
              for group in combinations(found[:MATES], count)
              if all(a.fits(b) for a, b in combinations(group, 2))]
    met = {(base.recipe, base.extra), *((other.recipe, other.extra) for other, _ in others)}
    for group in sorted(groups, key=_ratio)[:MOST]:
        crossed = _joined(base, group)
        if (crossed.recipe, crossed.extra) not in met:
            met.add((crossed.recipe, crossed.extra))
            yield _built(base, crossed, _ratio(group) * seconds, limits)


def _ratio(group: Sequence[Difference]) -> float:
    return prod(d.ratio for d in group)


def _told(base: Candidate, other: Candidate, ratio: float) -> Difference | None:
    """Return what tells `other` from `base`; None where they have too little in common."""
    if base.recipe is None or other.recipe is None or base.alternative != other.alternative:
        return None
    one, two = _values(base.recipe), _values(other.recipe)
    if one.keys() != two.keys():
        return None
    values = {place: value for place, value in two.items() if one[place] != value}
    actions = tuple(a for a in other.extra if a not in base.extra)
    return Difference(ratio, values, actions) if values or actions else None


def _values(recipe: Recipe) -> dict[Place, object]:
    """Return every parameter of a recipe; the kinds of its sketches are part of the places."""
    own = {(-1, f.name): getattr(recipe, f.name) for f in fields(recipe) if f.name != "sketches"}
    return own | {(i, f"{type(sketch).__name__}.{f.name}"): getattr(sketch, f.name)
                  for i, sketch in enumerate(recipe.sketches) for f in fields(sketch)}


def _joined(base: Candidate, group: Sequence[Difference]) -> Candidate:
    """Return the candidate with new parameters and actions, its schedule not yet made."""
    assert base.recipe is not None
    values = {place: value for d in group for place, value in d.values.items()}
    sketches = tuple(_changed(s, i, values) for i, s in enumerate(base.recipe.sketches))
    own = {name: value for (i, name), value in values.items() if i < 0}
    recipe = replace(base.recipe, sketches=sketches, **own)  # type: ignore[arg-type]
    actions = dict.fromkeys(a for d in group for a in d.actions)
    return replace(base, recipe=recipe, extra=(*base.extra, *actions))


def _changed(sketch: Sketch, number: int, values: dict[Place, object]) -> Sketch:
    found = {name.partition(".")[2]: value for (i, name), value in values.items() if i == number}
    return replace(sketch, **found) if found else sketch  # type: ignore[arg-type]


def _built(base: Candidate, crossed: Candidate, expected: float, limits: Limits) -> Move:
    assert base.recipe is not None and crossed.recipe is not None
    told = [difference(base.recipe, crossed.recipe)] if base.recipe != crossed.recipe else []
    told += [f"+ {a}" for a in crossed.extra[len(base.extra):]]
    move = with_recipe(crossed, crossed.recipe, f"at once: {' '.join(told)}", limits)
    return move if isinstance(move, tuple) else replace(move, expected=expected)
