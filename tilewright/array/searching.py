"""Searching and sorting functions. Sorting is NumPy's, as an opaque call in the graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import build as b
from tilewright.array.convert import ArrayLike, asarray, to_node
from tilewright.array.elementwise import select
from tilewright.array.tensor import Tensor, from_numpy
from tilewright.dtypes import bfloat16, int64
from tilewright.errors import DTypeError, ShapeError


def where(condition: ArrayLike, x1: ArrayLike = None, x2: ArrayLike = None, /) -> Tensor | tuple:
    """Return x1 where `condition` is true, else x2; the three broadcast, x1 and x2 promote.

    With `condition` alone, the same as `nonzero`.
    """
    if x1 is None and x2 is None:
        return nonzero(condition)
    if x1 is None or x2 is None:
        raise DTypeError("where: cannot choose with one value (needs both or neither)")
    return select(condition, x1, x2)


def nonzero(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """Return the int64 places of the elements that are not 0, one tensor per axis; computes x."""
    node = to_node(x)
    if not node.ndim:
        raise ShapeError(f"nonzero: cannot search {b.describe(node)} (needs at least one axis)")
    return tuple(from_numpy(i.astype(np.int64), int64) for i in np.nonzero(asarray(x).numpy()))


@dataclass(frozen=True)
class _Sort:
    """NumPy's sort or argsort along one axis, stable; descending keeps the order of equals."""

    places: bool
    axis: int
    descending: bool

    def __call__(self, x: np.ndarray) -> np.ndarray:
        keys = _comparable(x)
        if not self.descending:
            order = np.argsort(keys, axis=self.axis, kind="stable")
            return order if self.places else np.take_along_axis(x, order, self.axis)
        turned = np.flip(keys, self.axis)
        order = np.flip(np.argsort(turned, axis=self.axis, kind="stable"), self.axis)
        order = x.shape[self.axis] - 1 - order
        return order if self.places else np.take_along_axis(x, order, self.axis)


def _comparable(x: np.ndarray) -> np.ndarray:
    """Return the array in a dtype whose NaNs NumPy sorts last: its order of bfloat16 has none."""
    return x.astype(np.float32) if x.dtype == bfloat16.numpy else x


def sort(x: ArrayLike, /, axis: int = -1, *, descending: bool = False,
         stable: bool = True) -> Tensor:
    """Return x sorted along `axis`; NaN sorts as the greatest. Always stable."""
    node = to_node(x)
    place = b.normalize_axis("sort", axis, node.ndim)
    return Tensor(b.build("call", node, function=_Sort(False, place, descending),
                          shape=node.shape, dtype=node.dtype))


def argsort(x: ArrayLike, /, axis: int = -1, *, descending: bool = False,
            stable: bool = True) -> Tensor:
    """Return the int64 places that sort x along `axis`. Always stable."""
    node = to_node(x)
    place = b.normalize_axis("argsort", axis, node.ndim)
    return Tensor(b.build("call", node, function=_Sort(True, place, descending),
                          shape=node.shape, dtype=int64))


@dataclass(frozen=True)
class _SearchSorted:
    """NumPy's searchsorted of a sorted vector."""

    side: str

    def __call__(self, x: np.ndarray, values: np.ndarray) -> np.ndarray:
        found = np.searchsorted(_comparable(x), _comparable(values), side=self.side)  # type: ignore
        return found.astype(np.int64)


def searchsorted(x1: ArrayLike, x2: ArrayLike, /, *, side: str = "left") -> Tensor:
    """Return where each element of x2 belongs in the sorted vector x1, before or after equals."""
    x, values = to_node(x1), to_node(x2)
    if x.ndim != 1 or side not in ("left", "right"):
        raise ShapeError(f"searchsorted: cannot search {b.describe(x)} from side {side!r} "
                         "(needs one axis, and 'left' or 'right')")
    return Tensor(b.build("call", x, values, function=_SearchSorted(side), shape=values.shape,
                          dtype=int64))
