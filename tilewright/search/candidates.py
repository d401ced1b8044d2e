"""Where a search starts, and the moves from one candidate to the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from math import prod

from tilewright.actions import ACTIONS, Action, Nest, Recipe, Schedule, default_recipe
from tilewright.actions.nest import nominal
from tilewright.actions.sketches import Sketch
from tilewright.actions.sketches.base import lanes_of
from tilewright.actions.sketches.contraction import Contraction, analyse
from tilewright.actions.sketches.draft import Draft
from tilewright.actions.sketches.pointwise import Pointwise, Transpose
from tilewright.actions.sketches.recipe import open_axis
from tilewright.actions.sketches.reduction import Reduction, Rows
from tilewright.errors import Illegal
from tilewright.fusion.alternatives import alternatives
from tilewright.kernel import Kernel
from tilewright.limits import Limits

# what a recipe's own parameters reach
_PARAMETERS = ("Split", "Reorder", "Parallel", "Vectorize", "StreamStore")
MOST_VECTORS = 4  # of a register tile's rows


@dataclass(frozen=True)
class Candidate:
    """A form of the kernel and a schedule of it.

    `recipe` holds the parameters that made the schedule's first actions; `extra` follow them.
    `expected` are seconds, where measurements tell them; 0 leaves it to the models.
    """

    alternative: int  # 0: the kernel itself; n: the n-th of its alternatives
    kernel: Kernel = field(repr=False)
    schedule: Schedule
    recipe: Recipe | None = None
    extra: tuple[Action, ...] = ()
    label: str = field(default="", compare=False)
    built: Nest | None = field(default=None, repr=False, compare=False)  # where it is at hand
    expected: float = field(default=0.0, compare=False)

    def nest(self) -> Nest:
        """Return the loops. Raises Illegal where an action does not apply."""
        return self.built or self.schedule.apply(self.kernel)


Move = Candidate | tuple[str, str]  # (label, reason) of a move that is illegal


def forms(kernel: Kernel, limits: Limits) -> list[Kernel]:
    """Return the kernel and its alternatives, in the order that `Candidate.alternative` counts."""
    return [kernel, *alternatives(kernel, limits)]


def starts(kernel: Kernel, limits: Limits, sketches: str = "default") -> Iterator[Move]:
    """Yield what a search looks at first, besides the given schedule.

    sketches: "default", each form's sketches with the model's parameters; "bare", with the
    smallest parameters; "none". Plain loops always.
    """
    for number, form in enumerate(forms(kernel, limits)):
        plain = Candidate(number, form, Schedule(), label="plain loops")
        yield plain
        if sketches != "none":
            recipe = default_recipe(form, limits)
            if sketches == "bare":
                recipe = bare(recipe, form, limits)
            yield with_recipe(plain, recipe, f"{sketches} sketches", limits)


def bare(recipe: Recipe, kernel: Kernel, limits: Limits) -> Recipe:
    """Return a recipe with nothing in it that a model chose: every parameter at its smallest."""
    small: list[Sketch] = []
    for sketch in recipe.sketches:
        if isinstance(sketch, Contraction):
            small.append(_whole_axes(sketch, recipe, kernel, limits))
        elif isinstance(sketch, Reduction):
            small.append(replace(sketch, copies=1, block=0))
        elif isinstance(sketch, Pointwise):
            small.append(replace(sketch, copies=1))
        elif isinstance(sketch, Transpose):
            small.append(Pointwise(sketch.stage, sketch.vector, sketch.lanes, 1))
        elif isinstance(sketch, Rows):
            small.append(replace(sketch, rows=1))
        else:
            small.append(sketch)
    return replace(recipe, sketches=tuple(small), parallel=False, stream=())


def _whole_axes(sketch: Contraction, recipe: Recipe, kernel: Kernel, limits: Limits) -> Contraction:
    """Return the smallest tile, over whole axes."""
    draft = Draft(kernel)
    if recipe.opened is not None:
        open_axis(draft, *recipe.opened)
    stage = kernel.stage[sketch.stage]
    shape = analyse(draft, stage, limits)
    block = steps = 1
    if shape is not None:
        loops = draft.own(stage)
        block = draft.size(loops[shape.vector])
        steps = prod(draft.size(loops[a]) for a in shape.steps if a in loops)
    return replace(sketch, rows=1, vectors=1, block=block, steps=steps, pack=False, pack_rows="")


def moves(candidate: Candidate, limits: Limits) -> Iterator[Move]:
    """Yield the neighbours of a candidate.

    Parameters of its recipe move by one step, or several of one kind; actions are added to its
    schedule.
    """
    if candidate.recipe is not None:
        for recipe in (*near(candidate.recipe, candidate.kernel, limits),
                       *full_tiles(candidate.recipe, limits)):
            yield with_recipe(candidate, recipe, difference(candidate.recipe, recipe), limits)
    yield from _single_actions(candidate, limits)


def pairs(candidate: Candidate, limits: Limits) -> Iterator[Move]:
    """Yield the candidate with two moves made: ways out where each alone is worse.

    The first moves a parameter, the second another one, or adds an action.
    """
    first = candidate.recipe
    if first is None:
        return
    singles = near(first, candidate.kernel, limits)
    for one in singles:
        moved = with_recipe(candidate, one, difference(first, one), limits)
        if isinstance(moved, Candidate):
            for move in _single_actions(moved, limits):
                if isinstance(move, Candidate):
                    yield replace(move, label=f"{moved.label} {move.label}")
    met = {str(first), *map(str, singles)}
    for one in first.neighbours(candidate.kernel, limits):
        try:
            found = list(one.neighbours(candidate.kernel, limits))
        except Illegal:
            continue
        for two in found:
            if str(two) not in met:
                met.add(str(two))
                yield with_recipe(candidate, two, difference(first, two), limits)


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
    numbers = {f.name: getattr(after, f.name) for f in fields(after)
               if type(getattr(after, f.name)) is int}
    kept = [f.name for f in fields(after) if f.name != "stage" and f.name not in numbers]
    if any(getattr(before, n) != getattr(after, n) for n in kept):
        return new
    alike = [type(s) is type(before) and all(getattr(s, n) == getattr(before, n) for n in numbers)
             for s in old.sketches]
    return replace(new, sketches=tuple(replace(s, **numbers) if like else s  # type: ignore[arg-type]
                                       for s, like in zip(old.sketches, alike)))


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


def with_recipe(candidate: Candidate, recipe: Recipe, label: str, limits: Limits) -> Move:
    """Return the candidate with another recipe under its own extra actions."""
    try:
        draft = recipe.draft(candidate.kernel, limits)
        for action in candidate.extra:
            draft.do(action)
    except Illegal as reason:
        return label, str(reason)
    return replace(candidate, schedule=draft.schedule, recipe=recipe, label=label,
                   built=draft.nest, expected=0.0)


def _single_actions(candidate: Candidate, limits: Limits) -> Iterator[Move]:
    nest = candidate.nest()
    for name, kind in ACTIONS.items():
        if candidate.recipe is not None and name in _PARAMETERS:
            continue
        for action in kind.candidates(nest, limits):
            label = f"+ {action}"
            try:
                after = action.apply(nest)
            except Illegal as reason:
                yield label, str(reason)
                continue
            yield replace(candidate, schedule=candidate.schedule.then(action),
                          extra=(*candidate.extra, action), label=label, built=after,
                          expected=0.0)


def difference(old: Recipe, new: Recipe) -> str:
    """Return what a move changed, as text."""
    before, after = str(old).split("; "), str(new).split("; ")
    changed = [a for a in after if a not in before]
    dropped = [b for b in before if b not in after]
    return "; ".join(changed) if changed else "without " + "; ".join(dropped)


def spills(nest: Nest, limits: Limits) -> str:
    """Return why a nest's register copies cannot be kept, "" where they can.

    Counts accumulators of stages with state: copies, times the registers that one takes.
    """
    for stage in nest.kernel.stages:
        if stage.state is None:
            continue
        copies, lanes = 1, 1
        for loop in nest.paths[stage.name]:
            if loop.kind == "interleave":
                copies *= max(nominal(nest, loop.name), 1)
            elif loop.kind == "vectorize":
                lanes = 1 << max(nominal(nest, loop.name) - 1, 0).bit_length()
        registers = sum(copies * max(1, lanes * v.dtype.itemsize // limits.vector_bytes)
                        for v in stage.state.init)
        if registers > limits.registers:
            return f"{stage.name} needs {registers} registers of {limits.registers}"
    return ""
