"""Shared by the actions that give a loop its kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright.actions.base import Action
from tilewright.actions.nest import BAND, Loop, Nest, is_band, leaves
from tilewright.errors import Illegal


@dataclass(frozen=True)
class Mark(Action):
    """Give a serial loop a kind."""

    axis: str
    kind: ClassVar[str] = ""

    def apply(self, nest: Nest) -> Nest:
        name = self.kind
        loop = nest.loop(self.axis, name)
        if loop.kind != "serial":
            raise Illegal(f"{name}: cannot change {self.axis} (already {loop.kind})")
        self.check(nest, loop)
        return nest.with_body(
            nest.rebuild(self.axis, lambda found: (replace(found, kind=self.kind),)))

    def check(self, nest: Nest, loop: Loop) -> None:
        """Raise Illegal where the loop cannot have this kind."""


def check_band(nest: Nest, loop: Loop, name: str) -> str:
    """Return the one leaf of a loop that may join the band; raise Illegal otherwise."""
    if not is_band(replace(loop, kind=BAND[1])):
        raise Illegal(f"{name}: cannot {name} {loop.name} "
                      "(only a leaf and loops vectorised or interleaved may stand inside)")
    leaf = next(leaves(loop.body))
    if nest.role(loop.name, leaf) == "carry":
        raise Illegal(f"{name}: cannot {name} {loop.name} (steps of {leaf} run in order)")
    return leaf


def band_loops(loop: Loop) -> list[Loop]:
    """Return the loops from `loop` inwards down to the leaf."""
    found = []
    item: object = loop
    while isinstance(item, Loop):
        found.append(item)
        item = item.body[0]
    return found
