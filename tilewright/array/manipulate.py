"""Manipulation functions: they move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.array import build as b
from tilewright.array.convert import ArrayLike, broadcast, to_node, unify
from tilewright.array.tensor import Tensor
from tilewright.dtypes import int64
from tilewright.errors import ShapeError
from tilewright.graph import Node


def reshape(x: ArrayLike, /, shape: Any, *, copy: bool | None = None) -> Tensor:
    """Return x with `shape`, one size of which may be -1; row-major order is kept."""
    node = to_node(x)
    return Tensor(b.reshape(node, b.infer_shape("reshape", node.shape, shape)))


def permute_dims(x: ArrayLike, /, axes: Sequence[int]) -> Tensor:
    """Return x with its axes in the order `axes`."""
    node = to_node(x)
    order = tuple(b.normalize_axis("permute_dims", a, node.ndim) for a in axes)
    if sorted(order) != list(range(node.ndim)):
        raise ShapeError(f"permute_dims: cannot order the axes of {b.describe(node)} by "
                         f"{list(axes)} (needs each of its {node.ndim} axes once)")
    return Tensor(b.permute(node, order))


def transpose(x: ArrayLike, /, axes: Sequence[int] | None = None) -> Tensor:
    """Return x with its axes reversed, or in the order `axes`."""
    return permute_dims(x, range(to_node(x).ndim)[::-1] if axes is None else axes)


def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """Return x with its last two axes exchanged."""
    node = to_node(x)
    if node.ndim < 2:
        raise ShapeError(f"matrix_transpose: cannot transpose {b.describe(node)} "
                         "(needs at least 2 axes)")
    return swapaxes(x, -1, -2)


def swapaxes(x: ArrayLike, /, axis1: int, axis2: int) -> Tensor:
    """Return x with two axes exchanged."""
    node = to_node(x)
    first, second = (b.normalize_axis("swapaxes", a, node.ndim) for a in (axis1, axis2))
    order = list(range(node.ndim))
    order[first], order[second] = order[second], order[first]
    return Tensor(b.permute(node, order))


def moveaxis(x: ArrayLike, source: Any, destination: Any, /) -> Tensor:
    """Return x with the axes `source` moved to the places `destination`; the others keep order."""
    node = to_node(x)
    pairs = []
    for given in (source, destination):
        listed = given if isinstance(given, (tuple, list)) else (given,)
        pairs.append([b.normalize_axis("moveaxis", a, node.ndim) for a in listed])
    old, new = pairs
    if len(old) != len(new) or len(set(old)) != len(old) or len(set(new)) != len(new):
        raise ShapeError(f"moveaxis: cannot move axes {source} to {destination} "
                         "(needs as many different places as different axes)")
    order = [a for a in range(node.ndim) if a not in old]
    for place, axis in sorted(zip(new, old)):
        order.insert(place, axis)
    return Tensor(b.permute(node, order))


def expand_dims(x: ArrayLike, /, axis: Any = 0) -> Tensor:
    """Return x with new axes of size 1 at the places `axis` of the result."""
    node = to_node(x)
    listed = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = b.normalize_axes("expand_dims", tuple(listed), node.ndim + len(listed))
    sizes = iter(node.shape)
    return Tensor(b.reshape(node, tuple(
        1 if d in axes else next(sizes) for d in range(node.ndim + len(axes)))))


def squeeze(x: ArrayLike, /, axis: Any = None) -> Tensor:
    """Return x without the size-1 axes `axis` (None: all of them)."""
    node = to_node(x)
    axes = tuple(d for d, n in enumerate(node.shape) if n == 1) if axis is None else \
        b.normalize_axes("squeeze", axis, node.ndim)
    if any(node.shape[a] != 1 for a in axes):
        raise ShapeError(f"squeeze: cannot remove axes {list(axes)} of {b.describe(node)} "
                         "(only axes of size 1 can go)")
    return Tensor(b.reshape(node, tuple(n for d, n in enumerate(node.shape) if d not in axes)))


def flatten(x: ArrayLike, /) -> Tensor:
    """Return x as one axis, in row-major order."""
    node = to_node(x)
    return Tensor(b.reshape(node, (node.size,)))


ravel = flatten


def broadcast_to(x: ArrayLike, /, shape: Any) -> Tensor:
    """Return x repeated to `shape`."""
    node, target = to_node(x), b.normalize_shape("broadcast_to", shape)
    padded = (1,) * (len(target) - node.ndim) + node.shape
    if len(padded) != len(target) or any(n not in (1, t) for n, t in zip(padded, target)):
        raise ShapeError(f"broadcast_to: cannot broadcast {b.describe(node)} to {list(target)} "
                         "(only axes of size 1 grow)")
    return Tensor(b.expand(node, target))


def broadcast_arrays(*arrays: ArrayLike) -> list[Tensor]:
    """Return `arrays` broadcast to one shape; dtypes stay."""
    if not arrays:
        return []
    return [Tensor(n) for n in broadcast("broadcast_arrays", [to_node(a) for a in arrays])]


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """Return the shape that `shapes` broadcast to."""
    listed = [b.normalize_shape("broadcast_shapes", s) for s in shapes]
    return b.broadcast_shape("broadcast_shapes", listed or [()])


def _several(name: str, arrays: Sequence[ArrayLike]) -> list[Node]:
    listed = list(arrays)
    if not listed:
        raise ShapeError(f"{name}: cannot join no tensors (needs at least one)")
    return unify(name, *listed)


def concat(arrays: Sequence[ArrayLike], /, axis: int | None = 0) -> Tensor:
    """Return `arrays` joined along `axis`; flattened first if None. Dtypes promote."""
    nodes = _several("concat", arrays)
    if axis is None:
        return Tensor(b.concat([b.reshape(n, (n.size,)) for n in nodes], 0))
    place = b.normalize_axis("concat", axis, nodes[0].ndim)
    for other in nodes[1:]:
        if other.ndim != nodes[0].ndim or any(
                m != n for d, (m, n) in enumerate(zip(other.shape, nodes[0].shape)) if d != place):
            raise ShapeError(f"concat: cannot join {b.describe(nodes[0])} and {b.describe(other)} "
                             f"along axis {place} (all other sizes must be equal)")
    return Tensor(b.concat(nodes, place))


def stack(arrays: Sequence[ArrayLike], /, axis: int = 0) -> Tensor:
    """Return `arrays` of one shape joined along a new axis at place `axis`. Dtypes promote."""
    nodes = _several("stack", arrays)
    shape = nodes[0].shape
    for other in nodes[1:]:
        if other.shape != shape:
            raise ShapeError(f"stack: cannot join {b.describe(nodes[0])} and {b.describe(other)} "
                             "(shapes must be equal)")
    place = b.normalize_axis("stack", axis, len(shape) + 1)
    with_axis = (*shape[:place], 1, *shape[place:])
    return Tensor(b.concat([b.reshape(n, with_axis) for n in nodes], place))


def vstack(arrays: Sequence[ArrayLike], /) -> Tensor:
    """Return `arrays` joined along axis 0; one-axis tensors count as rows."""
    nodes = [to_node(a) for a in arrays]
    return concat([Tensor(b.reshape(n, (1,) * (2 - n.ndim) + n.shape)) for n in nodes], axis=0)


def hstack(arrays: Sequence[ArrayLike], /) -> Tensor:
    """Return `arrays` joined along axis 1, or along axis 0 if they have one axis."""
    nodes = [to_node(a) for a in arrays]
    nodes = [b.reshape(n, (1,)) if not n.ndim else n for n in nodes]
    return concat([Tensor(n) for n in nodes], axis=0 if nodes and nodes[0].ndim == 1 else 1)


def unstack(x: ArrayLike, /, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the slices of x along `axis`, without that axis."""
    node = to_node(x)
    place = b.normalize_axis("unstack", axis, node.ndim)
    rest = node.shape[:place] + node.shape[place + 1:]
    return tuple(Tensor(b.reshape(b.cut(node, place, i, i + 1), rest))
                 for i in range(node.shape[place]))


def split(x: ArrayLike, /, sections: Any, axis: int = 0) -> list[Tensor]:
    """Return x cut along `axis` into equal `sections`, or before each of the given places."""
    node = to_node(x)
    place = b.normalize_axis("split", axis, node.ndim)
    size = node.shape[place]
    if isinstance(sections, int):
        if sections <= 0 or size % sections:
            raise ShapeError(f"split: cannot cut axis {place} of {b.describe(node)} into "
                             f"{sections} equal parts")
        edges = [size // sections * i for i in range(sections + 1)]
    else:
        edges = [0, *(slice(None, int(s)).indices(size)[1] for s in sections), size]
    return [Tensor(b.cut(node, place, low, max(low, high))) for low, high in zip(edges, edges[1:])]


def flip(x: ArrayLike, /, axis: Any = None) -> Tensor:
    """Return x reversed along `axis` (None: all axes)."""
    node = to_node(x)
    return Tensor(b.flip(node, b.normalize_axes("flip", axis, node.ndim)))


def roll(x: ArrayLike, /, shift: Any, axis: Any = None) -> Tensor:
    """Return x with elements moved on by `shift` along `axis`, the last coming first."""
    node = to_node(x)
    if axis is None:
        flat = roll(flatten(x), shift, axis=0)._node
        return Tensor(b.reshape(flat, node.shape))
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ShapeError(f"roll: cannot move axes {axes} by {shifts} (lengths differ)")
    for step, one in zip(shifts, axes):
        place = b.normalize_axis("roll", one, node.ndim)
        size = node.shape[place]
        if size and step % size:
            point = size - step % size
            node = b.concat([b.cut(node, place, point, size), b.cut(node, place, 0, point)], place)
    return Tensor(node)


def repeat(x: ArrayLike, repeats: Any, /, axis: int | None = None) -> Tensor:
    """Return x with each element along `axis` repeated; flattened first if None.

    `repeats` is an integer, or integers (one per element, their values are needed at once).
    """
    node = to_node(x)
    if axis is None:
        node, axis = b.reshape(node, (node.size,)), 0
    place = b.normalize_axis("repeat", axis, node.ndim)
    size = node.shape[place]
    counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu" or counts.ndim > 1 or (counts < 0).any():
        raise ShapeError(f"repeat: cannot repeat {repeats!r} times (needs integers, at least 0)")
    if counts.size == 1:
        count = int(counts.reshape(()))
        shape = (*node.shape[:place + 1], count, *node.shape[place + 1:])
        wide = b.build("expand", b.reshape(node, (*shape[:place + 1], 1, *shape[place + 2:])),
                       shape=shape)
        return Tensor(b.reshape(wide, (*shape[:place], size * count, *shape[place + 2:])))
    if counts.size != size:
        raise ShapeError(f"repeat: cannot repeat axis {place} of {b.describe(node)} by "
                         f"{counts.size} counts (needs 1 or {size})")
    return take(Tensor(node), np.repeat(np.arange(size), counts), axis=place)


def tile(x: ArrayLike, repetitions: Any, /) -> Tensor:
    """Return x repeated as a whole, `repetitions` times along each axis (the last ones)."""
    node, counts = to_node(x), b.normalize_shape("tile", repetitions)
    rank = max(node.ndim, len(counts))
    counts = (1,) * (rank - len(counts)) + counts
    shape = (1,) * (rank - node.ndim) + node.shape
    split_shape = tuple(n for size in shape for n in (1, size))
    wide = b.expand(b.reshape(node, split_shape),
                    tuple(n for pair in zip(counts, shape) for n in pair))
    return Tensor(b.reshape(wide, tuple(c * n for c, n in zip(counts, shape))))


def take(x: ArrayLike, indices: ArrayLike, /, axis: int | None = None) -> Tensor:
    """Return x at integer `indices` along `axis` (None: of the flattened tensor).

    Negative indices count from the end. Known indices outside the axis raise IndexOutOfBounds.
    """
    from_flat = flatten(x) if axis is None else Tensor(to_node(x))
    place = b.normalize_axis("take", 0 if axis is None else axis, from_flat.ndim)
    return from_flat[(slice(None),) * place + (Tensor(to_node(indices)),)]


def take_along_axis(x: ArrayLike, indices: ArrayLike, /, axis: int = -1) -> Tensor:
    """Return x at integer `indices` along `axis`, matched element by element on the other axes."""
    node, where = to_node(x), to_node(indices)
    place = b.normalize_axis("take_along_axis", axis, node.ndim)
    if where.ndim != node.ndim:
        raise ShapeError(f"take_along_axis: cannot match {b.describe(where)} with "
                         f"{b.describe(node)} (needs as many axes)")
    key: list[Tensor] = []
    for d, n in enumerate(node.shape):
        if d == place:
            key.append(Tensor(where))
        elif where.shape[d] not in (1, n) and n != 1:
            raise ShapeError(f"take_along_axis: cannot match {b.describe(where)} with "
                             f"{b.describe(node)} (axis {d} differs)")
        elif n != 1:
            key.append(Tensor(b.iota(n, int64, d, node.ndim)))
        else:
            key.append(Tensor(b.full(0, int64, where.shape)))
    return Tensor(node)[tuple(key)]


def _pad_widths(width: Any, ndim: int) -> list[tuple[int, int]]:
    listed = np.asarray(width)
    if listed.dtype.kind not in "iu" or listed.ndim > 2:
        raise ShapeError(f"pad: cannot pad by {width!r} (needs integers)")
    try:
        return [(int(a), int(c)) for a, c in np.broadcast_to(listed, (ndim, 2))]
    except ValueError:
        raise ShapeError(f"pad: cannot pad {ndim} axes by {width!r} (needs one number, one pair, "
                         "or a pair per axis)") from None


def pad(x: ArrayLike, pad_width: Any, /, mode: str = "constant", *,
        constant_values: ArrayLike = 0) -> Tensor:
    """Return x with elements added before and after on each axis; negative widths crop.

    `pad_width` is a number, a pair (before, after) or a pair per axis. `mode` is "constant" (with
    the one value `constant_values`), or "edge", "reflect", "symmetric" or "wrap" as in NumPy.
    """
    node = to_node(x)
    widths = _pad_widths(pad_width, node.ndim)
    if mode == "constant":
        value = to_node(constant_values, node.dtype)
        if value.ndim:
            raise ShapeError(f"pad: cannot pad with {b.describe(value)} (needs one value)")
        before, after = [a for a, _ in widths], [c for _, c in widths]
        return Tensor(b.pad(node, before, after, value=value))
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise ShapeError(f"pad: cannot pad in mode {mode!r} (constant, edge, reflect, symmetric, "
                         "wrap)")
    result = Tensor(node)
    for axis, (low, high) in enumerate(widths):
        if (low or high) and not node.shape[axis]:
            raise ShapeError(f"pad: cannot pad the empty axis {axis} of {b.describe(node)} "
                             f"in mode {mode!r}")
        if low or high:
            places = np.pad(np.arange(node.shape[axis]), (low, high), mode=mode)  # type: ignore
            result = take(result, places, axis=axis)
    return result


def atleast_1d(x: ArrayLike, /) -> Tensor:
    """Return x with at least one axis."""
    node = to_node(x)
    return Tensor(node if node.ndim else b.reshape(node, (1,)))


def atleast_2d(x: ArrayLike, /) -> Tensor:
    """Return x with at least two axes, new ones in front."""
    node = to_node(x)
    return Tensor(b.reshape(node, (1,) * max(0, 2 - node.ndim) + node.shape))
