"""Where a search starts, and the moves from one candidate to the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tilewright.actions import ACTIONS, Nest, Recipe, Schedule, default_recipe
from tilewright.actions.nest import nominal
from tilewright.actions.sketches.contraction import Contraction
from tilewright.actions.sketches.pointwise import Pointwise, Transpose
from tilewright.actions.sketches.reduction import Reduction, Rows
from tilewright.errors import Illegal
from tilewright.fusion.alternatives import alternatives
from tilewright.kernel import Kernel
from tilewright.limits import Limits


@dataclass(frozen=True)
class Candidate:
    """A form of the kernel and a schedule of it.

    `recipe` holds the parameters that made the schedule, before `extra` actions were added to it.
    """

    alternative: int  # 0: the kernel itself; n: the n-th of its alternatives
    kernel: Kernel = field(repr=False)
    schedule: Schedule
    recipe: Recipe | None = None
    label: str = field(default="", compare=False)

    def nest(self) -> Nest:
        """Return the loops. Raises Illegal where an action does not apply."""
        return self.schedule.apply(self.kernel)


def forms(kernel: Kernel, limits: Limits) -> list[Kernel]:
    """Return the kernel and its alternatives, in the order that `Candidate.alternative` counts."""
    return [kernel, *alternatives(kernel, limits)]


def starts(kernel: Kernel, limits: Limits, sketches: str = "default") -> list[Candidate]:
    """Return what a search looks at first, besides the given schedule.

    sketches: "default", each form's sketches with the model's parameters; "bare", with the
    smallest parameters; "none". Plain loops always.
    """
    found = []
    for number, form in enumerate(forms(kernel, limits)):
        found.append(Candidate(number, form, Schedule(), None, "plain loops"))
        if sketches != "none":
            recipe = default_recipe(form, limits)
            if sketches == "bare":
                recipe = bare(recipe)
            try:
                found.append(Candidate(number, form, recipe.schedule(form, limits), recipe,
                                       f"{sketches} sketches"))
            except Illegal:
                continue
    return found


def bare(recipe: Recipe) -> Recipe:
    """Return a recipe with every parameter at its smallest."""
    small = []
    for sketch in recipe.sketches:
        if isinstance(sketch, Contraction):
            small.append(replace(sketch, rows=1, vectors=1, block=1 << 30, steps=1 << 30,
                                 pack=False, pack_rows=""))
        elif isinstance(sketch, (Pointwise, Reduction)):
            small.append(replace(sketch, copies=1))
        elif isinstance(sketch, Transpose):
            small.append(Pointwise(sketch.stage, sketch.vector, sketch.lanes, 1))
        elif isinstance(sketch, Rows):
            small.append(replace(sketch, rows=1))
        else:
            small.append(sketch)
    return replace(recipe, sketches=tuple(small), parallel=False, stream=())


def moves(candidate: Candidate, limits: Limits) -> Iterator[Candidate | tuple[str, str]]:
    """Yield the neighbours of a candidate; (label, reason) for one that is illegal.

    Parameters of its recipe move by one step; single actions are added to its schedule.
    """
    if candidate.recipe is not None:
        for recipe in candidate.recipe.neighbours(candidate.kernel, limits):
            label = _difference(candidate.recipe, recipe)
            try:
                yield replace(candidate, schedule=recipe.schedule(candidate.kernel, limits),
                              recipe=recipe, label=label)
            except Illegal as reason:
                yield label, str(reason)
    yield from _single_actions(candidate, limits)


def _single_actions(candidate: Candidate, limits: Limits) -> Iterator[Candidate | tuple[str, str]]:
    nest = candidate.nest()
    scheduled = candidate.recipe is not None
    for name, kind in ACTIONS.items():
        if scheduled and name in ("Split", "Reorder", "Parallel", "Vectorize"):
            continue  # the recipe's own parameters reach these
        for action in kind.candidates(nest, limits):
            label = f"+ {action}"
            try:
                action.apply(nest)
                yield replace(candidate, schedule=candidate.schedule.then(action), recipe=None,
                              label=label)
            except Illegal as reason:
                yield label, str(reason)


def _difference(old: Recipe, new: Recipe) -> str:
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


