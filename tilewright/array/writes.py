"""Writing by index: ``x.at[key].set(v)`` and its kin, ``x[key] = v``.

Nothing is written in place: each write builds a new value. A contiguous write is a `concat` of what
lies before, the new value and what lies after, so that later slices read the parts; a strided one
selects between the padded value and x; integer arrays scatter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.array import build as b
from tilewright.array import elementwise as e
from tilewright.array.convert import ArrayLike, asarray, is_weak, to_node
from tilewright.array.indexing import Resolved, read, read_region, resolve, split_key
from tilewright.array.tensor import Tensor
from tilewright.dtypes import DType, bool_
from tilewright.errors import DTypeError, ShapeError
from tilewright.graph import Node

_COMBINE = {"add": e.add, "multiply": e.multiply, "min": e.minimum, "max": e.maximum}


def _value(name: str, value: ArrayLike, dtype: DType) -> Node:
    """Return `value` in x's dtype; only `set` may lose a fraction."""
    if is_weak(value):
        fits = dtype.is_float or not isinstance(value, float) or name == "set"
        node = None if not fits else to_node(value, dtype)
    else:
        node = asarray(value)._node
        fits = name == "set" or dtype.is_float or not node.dtype.is_float
        node = b.cast(node, dtype) if fits else None
    if node is None:
        raise DTypeError(f"at.{name}: cannot write floats into {dtype} (cast one of them)")
    return node


def _fit(name: str, node: Node, shape: tuple[int, ...], target: Node) -> Node:
    """Broadcast a value to the indexed shape; leading size-1 axes may be too many."""
    while node.ndim > len(shape) and node.shape[0] == 1:
        node = b.reshape(node, node.shape[1:])
    padded = (1,) * (len(shape) - node.ndim) + node.shape
    if len(padded) != len(shape) or any(n not in (1, t) for n, t in zip(padded, shape)):
        raise ShapeError(f"at.{name}: cannot write {b.describe(node)} into a region of shape "
                         f"{list(shape)} of {b.describe(target)} (shapes do not broadcast)")
    return b.expand(node, shape)


def _gathered_layout(node: Node, key: Resolved) -> Node:
    """The result's layout -> (index axes, kept axes): the inverse of `arrange`."""
    count = len(key.index_shape)
    entries = [entry for entry in key.layout if entry is not None]
    plain = b.reshape(node, tuple(
        n for entry in entries
        for n in (key.index_shape if entry == "arrays" else (key.region[entry],))))
    places: dict[Any, int] = {}
    axis = 0
    for entry in entries:
        places[entry] = axis
        axis += count if entry == "arrays" else 1
    order = list(range(places["arrays"], places["arrays"] + count)) if key.arrays else []
    return b.permute(plain, order + [places[d] for d in key.kept])


def _region_layout(node: Node, key: Resolved) -> Node:
    """(array axes, kept axes) -> one axis per axis of x, integer axes of size 1."""
    order = [*key.arrays, *key.kept]
    node = b.permute(node, [order.index(d) for d in sorted(order)])
    return b.reshape(node, key.region)


def _write_region(node: Node, value: Node, key: Resolved, axes: list[int]) -> Node:
    """Return `node` with the slices of `axes` (whole on the others) replaced by `value`."""
    if not axes:
        return value
    axis, *rest = axes
    start, stop, size = key.starts[axis], key.stops[axis], node.shape[axis]
    before, after = b.cut(node, axis, 0, start), b.cut(node, axis, stop, size)
    middle = _write_region(b.cut(node, axis, start, stop), value, key, rest)
    return b.concat([before, middle, after], axis)


def _write_strided(node: Node, value: Node, key: Resolved, axes: list[int]) -> Node:
    """Select between `node` and `value` spread over every `step`-th element of `axes`."""
    low, high, interior = [0] * node.ndim, [0] * node.ndim, [0] * node.ndim
    for axis in axes:
        last = key.starts[axis] + (value.shape[axis] - 1) * key.steps[axis]
        low[axis], high[axis] = key.starts[axis], node.shape[axis] - 1 - last
        interior[axis] = key.steps[axis] - 1
    ones = b.full(True, bool_, value.shape)
    mask = b.build("pad", ones, low=tuple(low), high=tuple(high), interior=tuple(interior))
    spread = b.build("pad", value, low=tuple(low), high=tuple(high), interior=tuple(interior))
    return b.build("where", mask, spread, node)


def set_region(node: Node, value: Node, key: Resolved) -> Node:
    """Return `node` with its region of slices replaced by `value` (one axis per axis of node)."""
    if not value.size:
        return node
    backwards = [d for d, step in enumerate(key.steps) if step < 0]
    value = b.flip(value, backwards)
    forward = Resolved(list(key.starts), list(key.stops), list(key.steps))
    for axis, count in enumerate(value.shape):
        start, step = key.starts[axis], key.steps[axis]
        low = min(start, start + (count - 1) * step)
        forward.starts[axis] = low
        forward.steps[axis] = 1 if count == 1 else abs(step)
        forward.stops[axis] = low + (count - 1) * forward.steps[axis] + 1
    strided = [d for d, step in enumerate(forward.steps) if step > 1]
    plain = [d for d, n in enumerate(node.shape) if d not in strided and value.shape[d] != n]
    if strided:
        inner = node
        for axis in plain:
            inner = b.cut(inner, axis, forward.starts[axis], forward.stops[axis])
        value = _write_strided(inner, value, forward, strided)
    return _write_region(node, value, forward, plain)


def _write_mask(name: str, x: Tensor, key: Any, value: Node) -> Node | None:
    """Write through a bool mask without reading it, where the value's shape does not need that."""
    items = split_key(key, x.shape)
    masks = [i for i in items if isinstance(i, Tensor) and i.dtype.is_bool]
    plain = [i for i in items if isinstance(i, slice) and i == slice(None)]
    if len(masks) != 1 or len(masks) + len(plain) != len(items):
        return None
    mask, place = masks[0], items.index(masks[0]) if items[0] is masks[0] else None
    rest = x.ndim - mask.ndim
    if place != 0 or mask.shape != x.shape[:mask.ndim]:
        return None
    if value.ndim > rest:
        if value.ndim > rest + 1 or value.shape[0] != 1:
            return None
        value = b.reshape(value, value.shape[1:])
    full = _fit(name, value, x.shape, x._node)
    wide = b.expand(b.reshape(mask._node, mask.shape + (1,) * rest), x.shape)
    new = full if name == "set" else _COMBINE[name](x, Tensor(full))._node
    return b.build("where", wide, new, x._node)


def write(name: str, x: Tensor, key: Any, value: ArrayLike) -> Node:
    """Return x with `value` combined into x[key] by `name`: set, add, multiply, min or max.

    With integer arrays, repeated places are combined one after the other (the last wins for set).
    Known indices outside raise IndexOutOfBounds; unknown ones outside are dropped.
    """
    update = _value(name, value, x.dtype)
    masked = _write_mask(name, x, key, update)
    if masked is not None:
        return masked
    resolved = resolve(key, x.shape)
    update = _fit(name, update, resolved.shape, x._node)
    if not update.size:
        return x._node
    update = _gathered_layout(update, resolved)
    region = read_region(x._node, resolved)
    if resolved.arrays:
        region = b.build("scatter", region, update, *resolved.arrays.values(), mode=name)
    elif name == "set":
        region = update
    else:
        region = _COMBINE[name](Tensor(region), Tensor(update))._node
    return set_region(x._node, _region_layout(region, resolved), resolved)


class At:
    """``x.at``: functional writes. ``x.at[key].set(v)`` returns a new tensor."""

    __slots__ = ("_x",)

    def __init__(self, x: Tensor):
        self._x = x

    def __getitem__(self, key: Any) -> AtKey:
        return AtKey(self._x, key)


class AtKey:
    """``x.at[key]``: each method returns a new tensor, x with x[key] combined with a value.

    Places that an index array names twice are combined one after the other.
    """

    __slots__ = ("_key", "_x")

    def __init__(self, x: Tensor, key: Any):
        self._x, self._key = x, key

    def get(self) -> Tensor:
        """Return x[key]."""
        return read(self._x, self._key)

    def set(self, value: ArrayLike) -> Tensor:
        """Return x with x[key] = value."""
        return Tensor(write("set", self._x, self._key, value))

    def add(self, value: ArrayLike) -> Tensor:
        """Return x with `value` added at key."""
        return Tensor(write("add", self._x, self._key, value))

    def multiply(self, value: ArrayLike) -> Tensor:
        """Return x multiplied by `value` at key."""
        return Tensor(write("multiply", self._x, self._key, value))

    def min(self, value: ArrayLike) -> Tensor:
        """Return x with the lesser of x and `value` at key."""
        return Tensor(write("min", self._x, self._key, value))

    def max(self, value: ArrayLike) -> Tensor:
        """Return x with the greater of x and `value` at key."""
        return Tensor(write("max", self._x, self._key, value))


def put_along_axis(x: ArrayLike, indices: ArrayLike, values: ArrayLike, *, axis: int) -> Tensor:
    """Return x with `values` set at integer `indices` along `axis` (see `take_along_axis`)."""
    x, where = asarray(x), asarray(indices)
    place = b.normalize_axis("put_along_axis", axis, x.ndim)
    key = tuple(where if d == place else np.arange(n).reshape(
        [n if i == d else 1 for i in range(x.ndim)]) for d, n in enumerate(x.shape))
    return At(x)[key].set(values)
