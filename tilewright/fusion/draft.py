"""What pulling makes: stages and buffers before they are joined, merged and named."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.graph import Node
from tilewright.kernel.kernel import State, Store
from tilewright.kernel.value import Value


@dataclass
class Draft:
    """A stage being made: axes by symbol name and role, and what it computes."""

    free: tuple[str, ...]
    stores: list[Store]
    reduce: tuple[str, ...] = ()
    carry: tuple[str, ...] = ()
    state: State | None = None
    apart: bool = False  # never joined with another stage

    def roots(self) -> list[Value]:
        """Return the values that the stage is made of: updates, stores and their guards."""
        roots = list(self.state.update) if self.state else []
        for store in self.stores:
            roots += [store.value, *store.guard]
        return roots


@dataclass
class Memory:
    """A buffer of the kernel: what node it holds, or scratch over the dimensions `axes`."""

    name: str
    kind: str
    dtype: DType
    shape: tuple[int, ...]
    node: Node | None = None
    axes: tuple[str, ...] = ()
