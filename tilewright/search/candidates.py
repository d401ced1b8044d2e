"""Where a search starts, and the moves from one candidate to the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from math import prod

from tilewright.actions import ACTIONS, Action, Nest, Recipe, Schedule, default_recipe
from tilewright.actions.nest import nominal
from tilewright.actions.sketches import Sketch
from tilewright.actions.sketches.contraction import Contraction, analyse
from tilewright.actions.sketches.pointwise import Pointwise, Strips, Transpose
from tilewright.actions.sketches.reduction import Reduction, Rows
from tilewright.errors import Illegal
from tilewright.fusion.alternatives import alternatives
from tilewright.kernel import Kernel
from tilewright.limits import Limits
from tilewright.search.near import alike, full_tiles, near

# what a recipe's own parameters reach
_PARAMETERS = ("Split", "Reorder", "Parallel", "Vectorize", "StreamStore")


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
        elif isinstance(sketch, (Strips, Transpose)):
            small.append(Pointwise(sketch.stage, sketch.vector, sketch.lanes, 1))
        elif isinstance(sketch, Rows):
            small.append(replace(sketch, rows=1))
        else:
            small.append(sketch)
    return replace(recipe, sketches=tuple(small), parallel=False, stream=(), joined=0)


def _whole_axes(sketch: Contraction, recipe: Recipe, kernel: Kernel, limits: Limits) -> Contraction:
    """Return the smallest tile, over whole axes."""
    draft = recipe.opening(kernel)
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
            yield _acted(candidate, (action,), after, label)
            yield from _in_alike(candidate, action, after)


def _acted(candidate: Candidate, actions: tuple[Action, ...], built: Nest, label: str) -> Candidate:
    """Return the candidate with actions added, which gave `built`."""
    return replace(candidate, schedule=candidate.schedule.then(*actions),
                   extra=(*candidate.extra, *actions), label=label, built=built, expected=0.0)


def _in_alike(candidate: Candidate, action: Action, nest: Nest) -> Iterator[Candidate]:
    """Yield the candidate with the same done in all stages whose sketches have the same numbers.

    `nest` is what the action in one of them, the first, gave.
    """
    recipe, owners = candidate.recipe, {n.split(":")[0] for n in _names(action)}
    if recipe is None or len(owners) != 1:
        return
    stages = [s.stage for s in recipe.sketches]
    (owner,) = owners
    group = alike(recipe, stages.index(owner)) if owner in stages else []
    if len(group) < 2 or stages[group[0]] != owner:
        return
    first, *others = (recipe.sketches[place] for place in group)
    actions = [action, *(_translated(action, first, other) for other in others)]
    for other in actions[1:]:
        try:
            nest = other.apply(nest)
        except Illegal:
            return
    yield _acted(candidate, tuple(actions), nest, " ".join(f"+ {a}" for a in actions))


def _names(action: Action) -> Iterator[str]:
    for value in (getattr(action, f.name) for f in fields(action)):
        yield from (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ()


def _translated(action: Action, one: Sketch, other: Sketch) -> Action:
    """Return an action on the loops of one sketch's stage as one on another's: s0:i1.0, s1:i2.0."""
    axes = {getattr(one, f.name): getattr(other, f.name) for f in fields(one)
            if type(getattr(one, f.name)) is str}

    def name(text: str) -> str:
        if text == one.stage:
            return other.stage
        parts = (p.partition(".") for p in text.removeprefix(f"{one.stage}:").split("*"))
        return f"{other.stage}:" + "*".join(axes.get(p[0], p[0]) + "".join(p[1:]) for p in parts)
    values = {f.name: getattr(action, f.name) for f in fields(action)}
    return replace(action, **{  # type: ignore[arg-type]
        k: name(v) if isinstance(v, str) else tuple(map(name, v)) if isinstance(v, tuple) else v
        for k, v in values.items()})


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
