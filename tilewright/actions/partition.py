"""Break a loop in two at a point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.actions.base import Action
from tilewright.actions.nest import Nest, nominal
from tilewright.errors import Illegal
from tilewright.index import symbols
from tilewright.limits import Limits


@dataclass(frozen=True)
class Partition(Action):
    """Lower a loop as two, before and from `point`, so that tests on its index fall away.

    for i in n: if i < p: f(i) else: g(i)   ->   for i in p: f(i);  for i in p..n: g(i)
    """

    axis: str
    point: int

    def apply(self, nest: Nest) -> Nest:
        loop = nest.loop(self.axis, "partition")
        size = nominal(nest, self.axis)
        if not 0 < self.point < size:
            raise Illegal(f"partition: cannot break {self.axis}={size} at {self.point} "
                          f"(needs a point of 1..{size - 1})")
        if loop.kind not in ("serial", "parallel"):
            raise Illegal(f"partition: cannot break {self.axis} ({loop.kind} loop)")
        return replace(nest, partitions=tuple(sorted({*nest.partitions, (self.axis, self.point)})))

    @classmethod
    def candidates(cls, nest: Nest, limits: Limits) -> Iterator[Action]:
        for stage in nest.kernel.stages:
            for value in stage.values:
                if value.op != "test" or len(symbols(value.data)) != 1:
                    continue
                (atom, coef), point = value.data.terms[0], value.data.const
                if abs(coef) == 1:
                    cut = -point if coef == 1 else point + 1
                    for name in (atom.name if hasattr(atom, "name") else "",
                                 f"{stage.name}:{getattr(atom, 'name', '')}"):
                        if name in nest.paths and 0 < cut < nominal(nest, name):
                            yield cls(name, cut)
