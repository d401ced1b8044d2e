"""Building blocks on graph nodes that the whole frontend shares.

Every node that the frontend makes goes through `build`, and every Python number becomes a node in
`scalar`; both are single places to observe or replace.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilewright.dtypes import DType, bool_
from tilewright.errors import ShapeError
from tilewright.graph import Node, constant
from tilewright.graph import apply as plain_apply
from tilewright.rewrite import build

Shape = tuple[int, ...]


def scalar(value: object, dtype: DType) -> Node:
    """Return a node of shape () holding the Python or NumPy number `value` as `dtype`.

    Raises OverflowError where an integer does not fit, as NumPy does.
    """
    if dtype.is_integer and isinstance(value, (int, np.integer)):
        limits = np.iinfo(dtype.numpy)
        if not limits.min <= value <= limits.max:
            raise OverflowError(f"scalar: cannot hold {value} in {dtype} "
                                f"(range {limits.min} to {limits.max})")
    return constant(value, dtype)


def full(value: object, dtype: DType, shape: Shape) -> Node:
    """Return a node of `shape` filled with the number `value`."""
    return expand(scalar(value, dtype), shape)


def cast(node: Node, dtype: DType) -> Node:
    return node if node.dtype == dtype else build("cast", node, dtype=dtype)


def reshape(node: Node, shape: Shape) -> Node:
    return node if node.shape == shape else build("reshape", node, shape=shape)


def permute(node: Node, axes: Sequence[int]) -> Node:
    axes = tuple(axes)
    return node if axes == tuple(range(node.ndim)) else build("permute", node, axes=axes)


def expand(node: Node, shape: Shape) -> Node:
    """Broadcast `node` to `shape` by NumPy's rule; the caller has checked that it fits."""
    if node.shape == shape:
        return node
    aligned = reshape(node, (1,) * (len(shape) - node.ndim) + node.shape)
    return aligned if aligned.shape == shape else build("expand", aligned, shape=shape)


def slices(node: Node, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Node:
    """Slice every axis by range(start, stop, step), bounds already clamped."""
    whole = all(a == 0 and b == n and s == 1
                for a, b, s, n in zip(starts, stops, steps, node.shape))
    return node if whole else build("slice", node, starts=tuple(starts), stops=tuple(stops),
                                    steps=tuple(steps))


def cut(node: Node, axis: int, start: int, stop: int, step: int = 1) -> Node:
    """Slice one axis."""
    starts, stops, steps = [0] * node.ndim, list(node.shape), [1] * node.ndim
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return slices(node, starts, stops, steps)


def flip(node: Node, axes: Sequence[int]) -> Node:
    starts, stops, steps = [0] * node.ndim, list(node.shape), [1] * node.ndim
    for axis in axes:
        if node.shape[axis] > 1:
            starts[axis], stops[axis], steps[axis] = node.shape[axis] - 1, -1, -1
    return slices(node, starts, stops, steps)


def pad(node: Node, low: Sequence[int], high: Sequence[int],
        interior: Sequence[int] | None = None, value: object = 0) -> Node:
    """Pad every axis, with `interior` new elements between neighbours; negative amounts crop.

    `value` is a number or a scalar node of the same dtype.
    """
    interior = tuple(interior) if interior is not None else (0,) * node.ndim
    grown = [(max(a, 0), max(b, 0)) for a, b in zip(low, high)]
    result = node
    if any(a or b for a, b in grown) or any(interior):
        lows, highs = tuple(a for a, _ in grown), tuple(b for _, b in grown)
        result = build("pad", node, low=lows, high=highs, interior=interior)
        filler = value if isinstance(value, Node) else scalar(value, node.dtype)
        if filler is not scalar(0, node.dtype):
            ones = full(True, bool_, node.shape)
            inside = build("pad", ones, low=lows, high=highs, interior=interior)
            result = build("where", inside, result, expand(filler, result.shape))
    starts = [max(-a, 0) for a in low]
    stops = [n - max(-b, 0) for n, b in zip(result.shape, high)]
    if any(a > b for a, b in zip(starts, stops)):
        raise ShapeError(f"pad: cannot crop {list(node.shape)} by {list(low)} and {list(high)} "
                         "(more than its size)")
    return slices(result, starts, stops, (1,) * result.ndim)


def concat(nodes: Sequence[Node], axis: int) -> Node:
    """Join nodes along `axis`; empty pieces are left out."""
    pieces = [n for n in nodes if n.shape[axis]] or list(nodes[:1])
    return pieces[0] if len(pieces) == 1 else build("concat", *pieces, axis=axis)


def iota(size: int, dtype: DType, axis: int = 0, ndim: int = 1) -> Node:
    """Return 0, 1, .. size-1 along `axis` of an otherwise size-1 shape of `ndim` axes."""
    node = build("iota", size=size, dtype=dtype)
    return reshape(node, tuple(size if d == axis else 1 for d in range(ndim)))


def broadcast_shape(name: str, shapes: Sequence[Shape]) -> Shape:
    """Return the shape that `shapes` broadcast to; raises ShapeError naming the operation."""
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    rank = max(len(s) for s in shapes)
    result = []
    for axis in range(-rank, 0):
        sizes = {s[axis] for s in shapes if len(s) >= -axis and s[axis] != 1}
        if len(sizes) > 1:
            listed = " with ".join(str(list(s)) for s in shapes)
            raise ShapeError(f"{name}: cannot broadcast {listed} "
                             f"(axis {axis} has sizes {sorted(sizes)})")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def normalize_axis(name: str, axis: object, ndim: int) -> int:
    """Return `axis` counted from the front; raises ShapeError (out of range) or DTypeError."""
    try:
        number = axis.__index__()  # type: ignore[attr-defined]
    except AttributeError:
        raise ShapeError(f"{name}: cannot use {axis!r} as an axis (needs an integer)") from None
    if not -ndim <= number < ndim:
        raise ShapeError(f"{name}: cannot use axis {number} (the tensor has {ndim} axes)")
    return number % ndim


def normalize_axes(name: str, axis: object, ndim: int) -> tuple[int, ...]:
    """Return sorted axes meant by None (all), an integer or a sequence of them."""
    if axis is None:
        return tuple(range(ndim))
    listed = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(normalize_axis(name, a, ndim) for a in listed)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: cannot use axes {list(axes)} (one is repeated)")
    return tuple(sorted(axes))


def normalize_shape(name: str, shape: object) -> Shape:
    """Return `shape`, an integer or a sequence of them, as a tuple of sizes at least 0."""
    listed = shape if isinstance(shape, (tuple, list)) else (
        tuple(shape) if isinstance(shape, np.ndarray) and shape.ndim else (shape,))
    try:
        sizes = tuple(n.__index__() for n in listed)
    except AttributeError:
        raise ShapeError(f"{name}: cannot make a tensor of shape {shape!r} "
                         "(needs integers)") from None
    if any(n < 0 for n in sizes):
        raise ShapeError(f"{name}: cannot make a tensor of shape {list(sizes)} (negative size)")
    return sizes


def infer_shape(name: str, shape: Shape, requested: object) -> Shape:
    """Return `requested` with one -1 replaced so that it holds as many elements as `shape`."""
    listed = requested if isinstance(requested, (tuple, list)) else (requested,)
    sizes = [n.__index__() for n in listed]
    total, holes = prod(shape), [d for d, n in enumerate(sizes) if n == -1]
    rest = prod(n for n in sizes if n != -1)
    if len(holes) == 1 and rest and total % rest == 0:
        sizes[holes[0]] = total // rest
    if any(n < 0 for n in sizes) or prod(sizes) != total:
        raise ShapeError(f"{name}: cannot reshape {list(shape)} to {list(listed)} "
                         f"({total} elements do not fill it)")
    return tuple(sizes)


def describe(node: Node) -> str:
    return f"{node.dtype}{list(node.shape)}"


# --- known values --------------------------------------------------------------------------------

KNOWN = "buffer leaf that holds this node's value"


def remember(node: Node, leaf: Node) -> None:
    """Note that `leaf` holds the value of `node`: graphs built on it need not recompute it.

    Not of views, nor of constants and countings: to read them anew costs less than memory does.
    """
    source = node
    while source.op.kind == "movement":
        source = source.inputs[0]
    if source.op.kind != "source":
        node.memo[KNOWN] = leaf


def _reach_known(roots: Sequence[Node]) -> bool:
    """Tell whether some node that `roots` need has a known value."""
    seen = {id(node) for node in roots}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if KNOWN in node.memo:
            return True
        for i in node.inputs:
            if id(i) not in seen:
                seen.add(id(i))
                stack.append(i)
    return False


def with_known_values(roots: Sequence[Node]) -> list[Node]:
    """Return `roots` with every node of known value replaced by its leaf; iterative."""
    if not _reach_known(roots):  # the usual case, and a much shorter walk
        return list(roots)
    replaced: dict[int, Node] = {}
    stack = [(node, False) for node in roots]
    while stack:
        node, inputs_done = stack.pop()
        if id(node) in replaced:
            continue
        if KNOWN in node.memo:
            replaced[id(node)] = node.memo[KNOWN]
        elif not inputs_done:
            stack.append((node, True))
            stack.extend((i, False) for i in node.inputs if id(i) not in replaced)
        else:
            inputs = tuple(replaced[id(i)] for i in node.inputs)
            same = all(a is b for a, b in zip(inputs, node.inputs))
            replaced[id(node)] = node if same else plain_apply(
                node.op.name, *inputs, **node.attrs._asdict())
    return [replaced[id(node)] for node in roots]


