"""A schedule being written: each action is applied at once, so that names can be looked at."""

from __future__ import annotations

from tilewright.actions.base import Action
from tilewright.actions.interleave import Interleave
from tilewright.actions.nest import Nest, nominal, start
from tilewright.actions.reorder import Reorder
from tilewright.actions.schedule import Schedule
from tilewright.actions.split import Split
from tilewright.actions.vectorize import Vectorize
from tilewright.errors import Illegal
from tilewright.kernel import Kernel, Stage


class Draft:
    """Collects actions on one kernel."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.nest: Nest = start(kernel)
        self.actions: list[Action] = []

    def do(self, action: Action) -> None:
        self.nest = action.apply(self.nest)
        self.actions.append(action)

    @property
    def schedule(self) -> Schedule:
        return Schedule(tuple(self.actions))

    def size(self, loop: str) -> int:
        return nominal(self.nest, loop)

    def loops(self, leaf: str) -> list[str]:
        """Return the loops around a leaf that hold nothing else, outermost first."""
        own: list[str] = []
        for loop in reversed(self.nest.paths[leaf]):
            if len(loop.body) != 1:
                break
            own.append(loop.name)
        return own[::-1]

    def own(self, stage: Stage) -> dict[str, str]:
        """Return {axis: loop} of the loops that hold only this stage."""
        return {axis: loop for loop in self.loops(stage.name) for axis in self.nest.axes_of(loop)}

    def over(self, stage: str, axis: str) -> str:
        """Return a stage's own loop over an axis. Raises Illegal where it has none."""
        found = self.own(self.kernel.stage[stage]).get(axis)
        if found is None:
            raise Illegal(f"sketch: cannot find a loop of {stage} alone over {axis}")
        return found

    def split(self, loop: str, factor: int) -> tuple[str | None, str]:
        """Split where that leaves two loops; return (outer or None, inner)."""
        if factor >= self.size(loop):
            return None, loop
        self.do(Split(loop, factor))
        return loop + ".0", loop + ".1"

    def order(self, loops: list[str | None]) -> None:
        """Give the loops this order, outermost first, if they have another; None is left out."""
        names = [x for x in loops if x is not None]
        if len(names) < 2:
            return
        deepest = max(names, key=lambda n: len(self.nest.paths[n]))
        if [p.name for p in self.nest.paths[deepest] if p.name in names] != names:
            self.do(Reorder(tuple(names)))

    def vectorize(self, loop: str) -> None:
        """Vectorise a loop; one of a single iteration has no lanes and joins the band as it is."""
        self.do(Vectorize(loop) if self.size(loop) >= 2 else Interleave(loop))

    def interleave(self, loop: str) -> None:
        self.do(Interleave(loop))
