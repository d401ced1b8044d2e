"""Write a loop's iterations out one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tilewright.actions.base import Action
from tilewright.actions.mark import Mark
from tilewright.actions.nest import Loop, Nest, nominal
from tilewright.errors import Illegal
from tilewright.limits import Limits

MOST = 64


@dataclass(frozen=True)
class Unroll(Mark):
    """Emit the body of a loop once per iteration, in order.

    for i in 3: body(i)  ->  body(0); body(1); body(2)
    """

    kind: ClassVar[str] = "unroll"

    def check(self, nest: Nest, loop: Loop) -> None:
        if nominal(nest, loop.name) > MOST:
            raise Illegal(f"unroll: cannot unroll {loop.name} of {nominal(nest, loop.name)} "
                          f"iterations (at most {MOST})")

    @classmethod
    def candidates(cls, nest: Nest, limits: Limits) -> Iterator[Action]:
        for name, path in nest.paths.items():
            if path and path[-1].name == name and path[-1].kind == "serial" \
                    and 2 <= nominal(nest, name) <= 8:
                yield cls(name)
