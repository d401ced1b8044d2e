"""Reading by index: ``x[key]`` with integers, slices, None, Ellipsis, integer arrays, bool masks.

A key is first resolved against a shape (`resolve`): each axis gets a slice, and some axes an index
array besides. Reads slice, then gather. Writes (`array.writes`) use the same resolved key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.array import build as b
from tilewright.array.convert import asarray, broadcast
from tilewright.array.tensor import Tensor
from tilewright.dtypes import int64
from tilewright.errors import DTypeError, IndexOutOfBounds, ShapeError
from tilewright.graph import Node
from tilewright.graph.node import constant_value


@dataclass
class Resolved:
    """A key against a shape.

    starts, stops, steps  the slice of each axis, clamped; an integer is a slice of size 1
    dropped   axes indexed by an integer: size 1 in the region, absent from the result
    arrays    axis -> int64 index array, all of one shape; the axis' slice is whole
    layout    what the result's axes are, in order: an axis number, None (new), or "arrays", which
              stands for all axes of the index arrays
    """

    starts: list[int]
    stops: list[int]
    steps: list[int]
    dropped: list[int] = field(default_factory=list)
    arrays: dict[int, Node] = field(default_factory=dict)
    layout: list[Any] = field(default_factory=list)

    @property
    def region(self) -> tuple[int, ...]:
        """Sizes of the slices, one per axis of the indexed tensor."""
        return tuple(len(range(a, z, s)) for a, z, s in zip(self.starts, self.stops, self.steps))

    @property
    def index_shape(self) -> tuple[int, ...]:
        return next(iter(self.arrays.values())).shape if self.arrays else ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        sizes: list[int] = []
        for entry in self.layout:
            if entry == "arrays":
                sizes.extend(self.index_shape)
            else:
                sizes.append(1 if entry is None else self.region[entry])
        return tuple(sizes)

    @property
    def kept(self) -> list[int]:
        """Axes of the indexed tensor that only a slice applies to, and that stay."""
        return [d for d in range(len(self.starts))
                if d not in self.dropped and d not in self.arrays]


def _is_integer(item: Any) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_))


def known_values(node: Node) -> np.ndarray | None:
    """Return the values of a node that holds them already, else None."""
    if node.op.name == "buffer":
        return node.attrs.storage.array.reshape(node.shape)
    return np.asarray(constant_value(node)) if node.op.name == "constant" else None


def _as_item(item: Any, shape: tuple[int, ...]) -> Any:
    """Return a key's entry as int, slice, None, Ellipsis or Tensor of integers or bool."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if _is_integer(item):
        return int(item)
    if isinstance(item, (bool, np.bool_)):
        raise IndexOutOfBounds(f"index: cannot index {list(shape)} with the single bool {item} "
                               "(use a mask with at least one axis)")
    if isinstance(item, (list, tuple)) and not len(item):
        return asarray(np.zeros(0, np.int64))
    try:
        tensor = asarray(item)
    except DTypeError:
        raise IndexOutOfBounds(
            f"index: cannot index {list(shape)} with {item!r} (integers, slices, None, ..., "
            "integer arrays and bool masks are understood)") from None
    if tensor.dtype.is_float:
        raise IndexOutOfBounds(f"index: cannot index {list(shape)} with {b.describe(tensor._node)} "
                               "(needs integers or bool)")
    if not tensor.ndim and tensor.dtype.is_integer:
        known = known_values(tensor._node)
        return tensor if known is None else int(known)
    return tensor


def _expand_masks(items: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """Replace each bool mask by the integer arrays of its true places; reads the mask."""
    result: list[Any] = []
    axis = 0
    for item in items:
        if isinstance(item, Tensor) and item.dtype.is_bool:
            if not item.ndim or item.shape != shape[axis:axis + item.ndim]:
                raise IndexOutOfBounds(
                    f"index: cannot mask axes {axis} to {axis + item.ndim - 1} of {list(shape)} "
                    f"with {b.describe(item._node)} (sizes must be equal)")
            result.extend(asarray(i.astype(np.int64)) for i in np.nonzero(item.numpy()))
            axis += item.ndim
        else:
            result.append(item)
            axis += item is not None
    return result


def _axes_used(item: Any) -> int:
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, Tensor) and item.dtype.is_bool else 1


def split_key(key: Any, shape: tuple[int, ...]) -> list[Any]:
    """Return the key's entries with Ellipsis, and missing trailing ones, written out as slices."""
    items = [_as_item(i, shape) for i in (key if isinstance(key, tuple) else (key,))]
    used = sum(_axes_used(i) for i in items)
    if used > len(shape):
        raise IndexOutOfBounds(f"index: cannot index {list(shape)} with {used} indices "
                               f"(it has {len(shape)} axes)")
    places = [n for n, i in enumerate(items) if i is Ellipsis]
    if len(places) > 1:
        raise IndexOutOfBounds("index: cannot use ... more than once in an index")
    place = places[0] if places else len(items)
    rest = [slice(None)] * (len(shape) - used)
    return items[:place] + rest + items[place + 1:]


def _checked(node: Node, size: int, axis: int, shape: tuple[int, ...]) -> Node:
    """Return int64 indices counted from the front; raise if known ones lie outside."""
    known = known_values(node)
    node = b.cast(node, int64)
    if known is not None:
        if known.size and (known.min() < -size or known.max() >= size):
            bad = known[(known < -size) | (known >= size)].flat[0]
            raise IndexOutOfBounds(f"index: cannot read {bad} on axis {axis} of {list(shape)} "
                                   f"(size {size})")
        if not known.size or known.min() >= 0:
            return node
    negative = b.build("less", node, b.full(0, int64, node.shape))
    wrapped = b.build("add", node, b.full(size, int64, node.shape))
    return b.build("where", negative, wrapped, node)


def _slice(item: slice, size: int) -> tuple[int, int, int]:
    try:
        start, stop, step = item.indices(size)
    except (TypeError, ValueError) as error:
        raise IndexOutOfBounds(f"index: cannot slice an axis of size {size} by {item} "
                               f"({error})") from None
    return (start, stop, step) if len(range(start, stop, step)) else (0, 0, 1)


def resolve(key: Any, shape: tuple[int, ...]) -> Resolved:
    """Resolve `key` against `shape`; raises IndexOutOfBounds. Masks are read (and so computed)."""
    items = _expand_masks(split_key(key, shape), shape)
    result = Resolved([0] * len(shape), list(shape), [1] * len(shape))
    arrays: dict[int, Node] = {}
    advanced: list[int] = []  # places in the key of arrays, and of integers (scalar arrays)
    axis = 0
    layout: list[Any] = []
    for place, item in enumerate(items):
        if item is None:
            layout.append((place, None))
            continue
        size = shape[axis]
        if isinstance(item, slice):
            bounds = _slice(item, size)
            result.starts[axis], result.stops[axis], result.steps[axis] = bounds
            layout.append((place, axis))
        elif isinstance(item, int):
            if not -size <= item < size:
                raise IndexOutOfBounds(f"index: cannot read {item} on axis {axis} of {list(shape)} "
                                       f"(size {size})")
            result.starts[axis] = item % size
            result.stops[axis] = item % size + 1
            result.dropped.append(axis)
            advanced.append(place)
        else:
            arrays[axis] = _checked(item._node, size, axis, shape)
            advanced.append(place)
        axis += 1
    if not arrays:
        result.layout = [entry for _, entry in layout]
        return result
    try:
        nodes = broadcast("index", list(arrays.values()))
    except ShapeError as error:
        raise IndexOutOfBounds(str(error)) from None
    result.arrays = dict(zip(arrays, nodes))
    # NumPy's rule: the axes of adjacent arrays stay in place, of separated ones come first
    adjacent = advanced == list(range(advanced[0], advanced[-1] + 1))
    first = advanced[0] if adjacent else 0
    result.layout = [e for p, e in layout if p < first] + ["arrays"] + \
        [e for p, e in layout if p >= first]
    return result


def read_region(node: Node, key: Resolved) -> Node:
    """Slice `node`, drop integer axes and bring the array axes first: (array axes, kept axes)."""
    node = b.slices(node, key.starts, key.stops, key.steps)
    kept = tuple(n for d, n in enumerate(node.shape) if d not in key.dropped)
    order = [d for d in range(node.ndim) if d not in key.dropped]
    node = b.reshape(node, kept)
    return b.permute(node, [order.index(d) for d in (*key.arrays, *key.kept)])


def arrange(node: Node, key: Resolved) -> Node:
    """(index axes, kept axes) -> the result's layout, new axes included."""
    count = len(key.index_shape)
    order: list[int] = []
    for entry in key.layout:
        if entry == "arrays":
            order.extend(range(count))
        elif entry is not None:
            order.append(count + key.kept.index(entry))
    return b.reshape(b.permute(node, order), key.shape)


def read(x: Tensor, key: Any) -> Tensor:
    """Return x[key] by NumPy's rules. Known indices outside an axis raise IndexOutOfBounds.

    Indices that are not computed yet are not checked; those outside are clamped to the axis.
    """
    resolved = resolve(key, x.shape)
    node = read_region(x._node, resolved)
    if resolved.arrays:
        node = gather(node, list(resolved.arrays.values()))
    return Tensor(arrange(node, resolved))


def gather(node: Node, indices: Sequence[Node]) -> Node:
    """Gather along the first axes; a read of an axis of size 0 can only be empty."""
    if not node.size and any(n == 0 for n in node.shape[:len(indices)]):
        if indices[0].size:
            raise IndexOutOfBounds(f"index: cannot read {indices[0].size} elements of "
                                   f"{list(node.shape)} (it is empty)")
        return b.full(0, node.dtype, indices[0].shape + node.shape[len(indices):])
    return b.build("gather", node, *indices)
