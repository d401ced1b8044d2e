"""The kinds of a GPU's loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.actions.mark import Mark
from tilewright.actions.nest import Loop, Nest, leaves
from tilewright.errors import Illegal


@dataclass(frozen=True)
class _Grid(Mark):
    inside: ClassVar[tuple[str, ...]] = ()

    def check(self, nest: Nest, loop: Loop) -> None:
        for outer in nest.paths[loop.name][:-1]:
            if outer.kind not in self.inside:
                raise Illegal(f"{self.kind}: cannot map {loop.name} inside {outer.name} "
                              f"({outer.kind} loop; may stand in {self.inside or 'nothing'})")
        for leaf in leaves((loop,)):
            if nest.role(loop.name, leaf) in ("reduce", "carry"):
                raise Illegal(f"{self.kind}: cannot map {loop.name} (a reduction of {leaf})")


@dataclass(frozen=True)
class Block(_Grid):
    """Run each iteration as one block of the grid; only blocks around it."""

    kind: ClassVar[str] = "block"
    inside: ClassVar[tuple[str, ...]] = ("block",)


@dataclass(frozen=True)
class Thread(_Grid):
    """Run each iteration on one thread of a block; blocks, threads and serial loops around it."""

    kind: ClassVar[str] = "thread"
    inside: ClassVar[tuple[str, ...]] = ("block", "thread", "serial")


@dataclass(frozen=True)
class Lane(_Grid):
    """Run each iteration on one lane of a warp."""

    kind: ClassVar[str] = "lane"
    inside: ClassVar[tuple[str, ...]] = ("block", "thread", "serial")
