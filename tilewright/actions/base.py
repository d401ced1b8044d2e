"""What every action is: a frozen value that turns one nest into another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields

from tilewright.actions.nest import Nest
from tilewright.limits import Limits


@dataclass(frozen=True)
class Action(ABC):
    """A schedule step. Prints as ``Name(argument, ..)``; fields: names, integers, name tuples."""

    @abstractmethod
    def apply(self, nest: Nest) -> Nest:
        """Return the changed nest. Raises Illegal with the reason where it cannot be applied."""

    @classmethod
    def candidates(cls, nest: Nest, limits: Limits) -> Iterator[Action]:
        """Yield the instances of this action worth trying on `nest`."""
        return iter(())

    def __str__(self) -> str:
        parts = []
        for field in fields(self):
            value = getattr(self, field.name)
            parts.append(f"({', '.join(value)})" if isinstance(value, tuple) else str(value))
        return f"{type(self).__name__}({', '.join(parts)})"
