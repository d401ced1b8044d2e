"""The neighbours of a recipe: its numbers a step on, or several, alone or together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from tilewright.actions import Recipe
from tilewright.actions.sketches import Sketch
from tilewright.actions.sketches.base import lanes_of
from tilewright.actions.sketches.contraction import Contraction
from tilewright.actions.sketches.pointwise import Pointwise
from tilewright.actions.sketches.reduction import Reduction
from tilewright.kernel import Kernel
from tilewright.limits import Limits

MOST_VECTORS = 4  # of a register tile's rows


def near(recipe: Recipe, kernel: Kernel, limits: Limits) -> list[Recipe]:
    """Return the recipe's neighbours, each once, and those two and four steps on.

    A step on repeats what a move did to a number: by the same difference, or the same ratio. Lanes
    also grow at the expense of copies, and shrink for them: the tile is the same. Sketches of the
    same numbers as the one that moved move with it, too.
    """
    found: dict[str, Recipe] = {}
    for moved in recipe.neighbours(kernel, limits):
        found.setdefault(str(moved), moved)
    for moved in list(found.values()):
        for further in _further(recipe, moved):
            found.setdefault(str(further), further)
    for traded in _traded(recipe, kernel, limits):
        found.setdefault(str(traded), traded)
    for moved in list(found.values()):
        together = _together(recipe, moved)
        found.setdefault(str(together), together)
    found.pop(str(recipe), None)
    return list(found.values())


def _traded(recipe: Recipe, kernel: Kernel, limits: Limits) -> Iterator[Recipe]:
    """Yield the recipe with more lanes and fewer copies of them, or the other way round.

    And with a register's lanes as scalars, where nothing is reduced: gathers can be faster so.
    """
    for i, sketch in enumerate(recipe.sketches):
        if not isinstance(sketch, (Pointwise, Reduction)):
            continue
        tile, one = sketch.lanes * sketch.copies, lanes_of(kernel.stage[sketch.stage], limits)
        lanes = 2 * sketch.lanes, 4 * sketch.lanes, sketch.lanes // 2, sketch.lanes // 4
        tiles = [(n, tile // n) for n in lanes
                 if max(one // 2, 1) <= n <= 4 * one and tile % n == 0]
        if isinstance(sketch, Pointwise):
            tiles.append((1, one))
        for n, copies in tiles:
            yield _with(recipe, i, replace(sketch, lanes=n, copies=copies))


def _together(old: Recipe, new: Recipe) -> Recipe:
    """Return the recipe with all sketches moved that had the numbers of the one that `new` moved.

    The parts of a concatenation are copied alike.
    """
    place = _moved(old, new)
    if place is None:
        return new
    before, after = old.sketches[place], new.sketches[place]
    numbers = {name: getattr(after, name) for name in _numbers(after)}
    kept = [f.name for f in fields(after) if f.name != "stage" and f.name not in numbers]
    if any(getattr(before, n) != getattr(after, n) for n in kept):
        return new
    same = alike(old, place)
    return replace(new, sketches=tuple(replace(s, **numbers) if i in same else s  # type: ignore[arg-type]
                                       for i, s in enumerate(old.sketches)))


def alike(recipe: Recipe, place: int) -> list[int]:
    """Return the places of the sketches of the kind and the numbers of one, it included."""
    one = recipe.sketches[place]
    return [i for i, s in enumerate(recipe.sketches) if type(s) is type(one)
            and all(getattr(s, n) == getattr(one, n) for n in _numbers(one))]


def _numbers(sketch: Sketch) -> list[str]:
    return [f.name for f in fields(sketch) if type(getattr(sketch, f.name)) is int]


def full_tiles(recipe: Recipe, limits: Limits) -> Iterator[Recipe]:
    """Yield the recipe with register tiles of each width and as many rows as then fit.

    Rows and vectors share the registers: neither grows where the other holds them all.
    """
    for i, sketch in enumerate(recipe.sketches):
        if not isinstance(sketch, Contraction):
            continue
        for vectors in range(1, MOST_VECTORS + 1):
            rows = (limits.registers - 1) // vectors - 1
            if rows >= 1 and vectors != sketch.vectors:
                panels = max(1, sketch.block // sketch.vectors)
                tile = replace(sketch, rows=rows, vectors=vectors, block=panels * vectors)
                yield _with(recipe, i, tile)


def _further(old: Recipe, new: Recipe) -> Iterator[Recipe]:
    place = _moved(old, new)
    if place is None:
        return
    before, after = old.sketches[place], new.sketches[place]
    numbers = {}
    for name in (f.name for f in fields(after)):
        a, b = getattr(before, name), getattr(after, name)
        if a != b:
            if type(a) is not int or type(b) is not int:
                return
            numbers[name] = (a, b)
    for steps in (2, 4):
        values = {n: _step_on(a, b, steps) for n, (a, b) in numbers.items()}
        if all(v >= 1 for v in values.values()):
            sketch = replace(after, **values)  # type: ignore[arg-type]
            yield _with(new, place, sketch)


def _moved(old: Recipe, new: Recipe) -> int | None:
    """Return the place of the only sketch that differs, None if others do or its kind does."""
    changed = [i for i, (a, b) in enumerate(zip(old.sketches, new.sketches)) if a != b]
    if len(changed) != 1 or type(old.sketches[changed[0]]) is not type(new.sketches[changed[0]]):
        return None
    return changed[0]


def _with(recipe: Recipe, place: int, sketch: Sketch) -> Recipe:
    """Return the recipe with another sketch at one place."""
    before, after = recipe.sketches[:place], recipe.sketches[place + 1:]
    return replace(recipe, sketches=(*before, sketch, *after))


def _step_on(before: int, after: int, steps: int) -> int:
    """Return where `steps` moves like that from `before` to `after` lead: 8, 16 -> 32, 128."""
    if before > 0 and after % before == 0 and after // before == 2:
        return before * 2 ** steps
    if after > 0 and before % after == 0 and before // after == 2:
        return before // 2 ** steps
    return before + (after - before) * steps
