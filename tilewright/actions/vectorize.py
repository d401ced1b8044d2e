"""Run a loop in the lanes of vector registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tilewright.actions.base import Action
from tilewright.actions.mark import Mark, band_loops, check_band
from tilewright.actions.nest import Loop, Nest, nominal
from tilewright.errors import Illegal
from tilewright.limits import Limits

MOST_LANES = 64


@dataclass(frozen=True)
class Vectorize(Mark):
    """Run all iterations of an innermost loop at once, one per lane.

    for i in 16: out[i] = f(a[i])  ->  out[0:16] = f(a[0:16])

    A reduce loop becomes one partial state per lane, merged after the loops. Lanes past a ragged
    end are masked. One vectorised loop per stage, of at most 64 iterations.
    """

    kind: ClassVar[str] = "vectorize"

    def check(self, nest: Nest, loop: Loop) -> None:
        check_band(nest, loop, self.kind)
        if any(inner.kind == "vectorize" for inner in band_loops(loop)[1:]):
            raise Illegal(f"vectorize: cannot vectorize {loop.name} (a loop within already is)")
        if not 2 <= nominal(nest, loop.name) <= MOST_LANES:
            raise Illegal(f"vectorize: cannot vectorize {loop.name} of "
                          f"{nominal(nest, loop.name)} iterations (needs 2..{MOST_LANES})")

    @classmethod
    def candidates(cls, nest: Nest, limits: Limits) -> Iterator[Action]:
        for name, path in nest.paths.items():
            if path and path[-1].name == name and path[-1].kind == "serial" \
                    and 2 <= nominal(nest, name) <= MOST_LANES:
                yield cls(name)
