"""Divide a loop among workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tilewright.actions.base import Action
from tilewright.actions.mark import Mark
from tilewright.actions.nest import Loop, Nest, leaves
from tilewright.errors import Illegal
from tilewright.limits import Limits


@dataclass(frozen=True)
class Parallel(Mark):
    """Give each worker thread a contiguous share of an outermost loop.

    Every stage beneath must be free along the loop, or not use it and hand its scratch over
    within it.
    """

    kind: ClassVar[str] = "parallel"

    def check(self, nest: Nest, loop: Loop) -> None:
        if len(nest.paths[loop.name]) != 1:
            raise Illegal(f"parallel: cannot divide {loop.name} among workers (not outermost)")
        below = set(leaves((loop,)))
        for leaf in sorted(below):
            role = nest.role(loop.name, leaf)
            if role in ("reduce", "carry"):
                raise Illegal(f"parallel: cannot divide {loop.name} among workers "
                              f"({role} axis of {leaf})")
            if role == "absent":
                self._check_absent(nest, loop, leaf, below)

    @staticmethod
    def _check_absent(nest: Nest, loop: Loop, leaf: str, below: set[str]) -> None:
        for buffer in sorted(nest.stage_of(leaf).writes):
            if nest.kernel.buffer[buffer].kind == "output":
                raise Illegal(f"parallel: cannot divide {loop.name} among workers "
                              f"(every worker would write the output of {leaf})")
            for other in nest.derived:
                if other not in below and buffer in nest.reads(other):
                    raise Illegal(f"parallel: cannot divide {loop.name} among workers "
                                  f"(every worker would write {buffer}, which {other} reads)")

    @classmethod
    def candidates(cls, nest: Nest, limits: Limits) -> Iterator[Action]:
        if limits.threads > 1:
            for item in nest.body:
                if isinstance(item, Loop) and item.kind == "serial":
                    yield cls(item.name)
