"""A schedule being written: each action is applied at once, so that names can be looked at."""

from __future__ import annotations

from tilewright.actions.base import Action
from tilewright.actions.interleave import Interleave
from tilewright.actions.nest import Loop, Nest, nominal, start
from tilewright.actions.reorder import Reorder
from tilewright.actions.schedule import Schedule
from tilewright.actions.split import Split
from tilewright.actions.vectorize import Vectorize
from tilewright.kernel import Kernel


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

    def split(self, loop: str, factor: int) -> tuple[str | None, str]:
        """Split where that leaves two loops; return (outer or None, inner)."""
        if factor >= self.size(loop):
            return None, loop
        self.do(Split(loop, factor))
        return loop + ".0", loop + ".1"

    def order(self, loops: list[str]) -> None:
        """Give the loops this order, if they have another."""
        if len(loops) < 2:
            return
        path = [p.name for p in self.nest.paths[loops[0]]]
        deepest = max(loops, key=lambda n: len(self.nest.paths[n]))
        path = [p.name for p in self.nest.paths[deepest] if p.name in loops]
        if path != loops:
            self.do(Reorder(tuple(loops)))

    def vectorize(self, loop: str) -> None:
        if self.size(loop) >= 2:
            self.do(Vectorize(loop))
        elif self._loop(loop).kind == "serial":
            self.do(Interleave(loop))

    def interleave(self, loop: str) -> None:
        self.do(Interleave(loop))

    def _loop(self, name: str) -> Loop:
        return self.nest.loop(name, "sketch")
