"""What every sketch is: a frozen value whose parameters the search moves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields

from tilewright.actions.sketches.draft import Draft
from tilewright.actions.vectorize import MOST_LANES
from tilewright.graph.ops import OPS
from tilewright.kernel import Kernel, Stage
from tilewright.limits import Limits

SMALL_BODY = 24  # values up to which several registers of each pay


@dataclass(frozen=True)
class Sketch(ABC):
    """A named, parametrised list of actions for one stage."""

    stage: str

    @abstractmethod
    def apply(self, draft: Draft, limits: Limits) -> None:
        """Add the sketch's actions to a draft. Raises Illegal where the parameters do not fit."""

    @abstractmethod
    def neighbours(self, draft: Draft, limits: Limits) -> Iterator[Sketch]:
        """Yield the sketch with one parameter moved one step, each once; `draft` is not changed."""

    def written_far(self, draft: Draft) -> Sketch:
        """Return the default sketch where what it stores goes past the caches."""
        return self

    def __str__(self) -> str:
        values = ", ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self)
                           if f.name != "stage")
        return f"{type(self).__name__.lower()}({self.stage}: {values})"


def moved_bytes(kernel: Kernel) -> int:
    """Return the bytes of a kernel's inputs and outputs."""
    return sum(int(b.shape[0]) * b.dtype.itemsize for b in (*kernel.inputs, *kernel.outputs))


def lanes_of(stage: Stage, limits: Limits) -> int:
    """Return the lanes that fill a vector register with the stage's widest element."""
    widest = max((v.dtype.itemsize for v in stage.values
                  if v.op not in ("index", "test", "divides")), default=4)
    return limits.lanes(widest)


def wide(stage: Stage, lanes: int) -> int:
    """Return how many registers one vector should span, each of `lanes`.

    Four where a function takes many instructions, as far as `Vectorize` allows, else one.

    The steps of one such function wait for each other; those of four registers alternate. Copies
    side by side do not: each is a chain by itself, longer than a core looks ahead.
    """
    costly = any(v.op in OPS and OPS[v.op].costly for v in stage.values)
    if not costly or len(stage.values) > SMALL_BODY:
        return 1
    return max(1, min(4, MOST_LANES // lanes))


def steps(value: int, least: int, most: int) -> list[int]:
    """Return the halved and the doubled value, within bounds."""
    return [v for v in (value // 2, value * 2) if least <= v <= most and v != value]
