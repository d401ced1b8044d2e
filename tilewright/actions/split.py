"""Split one loop into two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.actions.base import Action
from tilewright.actions.nest import BAND, Loop, Nest, nominal
from tilewright.errors import Illegal
from tilewright.limits import Limits


@dataclass(frozen=True)
class Split(Action):
    """Split a loop into an outer and an inner one of `factor` iterations.

    for i in n: body(i)
      -> for i.0 in ceil(n / factor): for i.1 in factor: body(i.0*factor + i.1) where that is < n

    Where factor does not divide n the last outer iteration is lowered as a shorter copy of its own.
    """

    axis: str
    factor: int

    def apply(self, nest: Nest) -> Nest:
        loop = nest.loop(self.axis, "split")
        size = nominal(nest, self.axis)
        if not 1 <= self.factor <= max(size, 1):
            raise Illegal(f"split: cannot split {self.axis}={size} by {self.factor} "
                          f"(needs a factor of 1..{size})")
        if loop.kind != "serial":
            raise Illegal(f"split: cannot split {self.axis} (already {loop.kind})")

        def make(found: Loop):
            inner = Loop(f"{found.name}.1", found.body)
            return (Loop(f"{found.name}.0", (inner,)),)
        return nest.with_body(nest.rebuild(self.axis, make),
                              splits=(*nest.splits, (self.axis, self.factor)))

    @classmethod
    def candidates(cls, nest: Nest, limits: Limits) -> Iterator[Action]:
        for name, path in nest.paths.items():
            if path and path[-1].name == name and path[-1].kind not in BAND:
                size, factor = nominal(nest, name), 2
                while factor < size:
                    yield cls(name, factor)
                    factor *= 2
