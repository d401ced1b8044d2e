"""Unroll and jam: independent copies in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tilewright.actions.base import Action
from tilewright.actions.mark import Mark, check_band
from tilewright.actions.nest import Loop, Nest, nominal
from tilewright.errors import Illegal
from tilewright.limits import Limits

MOST_COPIES = 64


@dataclass(frozen=True)
class Interleave(Mark):
    """Run all iterations of an innermost loop side by side, step by step.

    for i in 4: load(i); compute(i)  ->  load(0) .. load(3); compute(0) .. compute(3)

    A reduce loop becomes independent accumulators, merged after the loops.
    """

    kind: ClassVar[str] = "interleave"

    def check(self, nest: Nest, loop: Loop) -> None:
        check_band(nest, loop, self.kind)
        if nominal(nest, loop.name) > MOST_COPIES:
            raise Illegal(f"interleave: cannot interleave {loop.name} of "
                          f"{nominal(nest, loop.name)} iterations (at most {MOST_COPIES})")

    @classmethod
    def candidates(cls, nest: Nest, limits: Limits) -> Iterator[Action]:
        for name, path in nest.paths.items():
            if path and path[-1].name == name and path[-1].kind == "serial" \
                    and 2 <= nominal(nest, name) <= limits.registers:
                yield cls(name)
