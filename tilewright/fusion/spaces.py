"""Which axes of a cluster's frame a node's elements run over.

    Frame := extents of the cluster's widest index space, axes of size 1 left out
    Space := (axis, divisor, extent)..      digits of the node's flat index, most significant first

A digit is ``(axis // divisor) % extent``. Reshapes keep a space, whatever the shapes: so two nodes
of one space are the same elements in the same order. Grouping only compares spaces: where one
cannot be followed (None), nodes are kept apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.graph import Node

Digit = tuple[int, int, int]
Space = tuple[Digit, ...]


def frame_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the frame of a node that is a cluster's widest."""
    return tuple(n for n in shape if n != 1)


def whole(frame: Sequence[int]) -> Space:
    """Return the space that runs over all of a frame."""
    return tuple((axis, 1, n) for axis, n in enumerate(frame))


def _joined(digits: Sequence[Digit]) -> Space:
    result: list[Digit] = []
    for axis, divisor, extent in digits:
        if result and result[-1][0] == axis and result[-1][1] == divisor * extent:
            extent *= result.pop()[2]
        result.append((axis, divisor, extent))
    return tuple(result)


def by_dimension(space: Space, shape: Sequence[int]) -> list[list[Digit]] | None:
    """Return the digits of each dimension of `shape`, or None where one straddles a boundary."""
    if 0 in shape:
        return None
    rest = list(reversed(space))
    dimensions = []
    for extent in shape:
        digits: list[Digit] = []
        while extent > 1:
            axis, divisor, size = rest.pop()
            if size > extent:
                if size % extent:
                    return None
                inner = size // extent
                rest.append((axis, divisor, inner))
                axis, divisor, size = axis, divisor * inner, extent
            if extent % size:
                return None
            extent //= size
            digits.append((axis, divisor, size))
        dimensions.append(digits)
    return dimensions


def moved(node: Node, space: Space, frame: Sequence[int]) -> Space | None:
    """Return the space of a movement node whose input has `space`, or None."""
    name, x = node.op.name, node.inputs[0]
    if name in ("reshape", "reduce", "cumulate"):  # the latter along axes of size 1
        return space
    dimensions = by_dimension(space, x.shape)
    if dimensions is None:
        return None
    if name == "permute":
        return _joined([d for axis in node.attrs.axes for d in dimensions[axis]])
    if name != "expand":
        return space if node.shape == x.shape and name == "slice" and min(
            node.attrs.steps, default=1) > 0 else None
    used = {axis for axis, _, _ in space}
    for d, (old, extent) in enumerate(zip(x.shape, node.shape)):
        if old != extent:
            free = [a for a, n in enumerate(frame) if n == extent and a not in used]
            if not free:
                return None
            used.add(free[0])
            dimensions[d] = [(free[0], 1, extent)]
    return _joined([d for digits in dimensions for d in digits])


def reduced(space: Space, shape: Sequence[int], axes: Sequence[int]) -> Space | None:
    """Return the space left when the dimensions `axes` are reduced over."""
    dimensions = by_dimension(space, shape)
    if dimensions is None:
        return None
    return _joined([d for n, digits in enumerate(dimensions) if n not in axes for d in digits])


def axes_of(space: Space, frame: Sequence[int]) -> frozenset[int]:
    """Return the frame axes that the space runs over whole."""
    sizes: dict[int, int] = {}
    for axis, _, extent in space:
        sizes[axis] = sizes.get(axis, 1) * extent
    return frozenset(a for a, n in sizes.items() if n == frame[a])


def size_outside(axes: frozenset[int], frame: Sequence[int]) -> int:
    """Return the number of elements of one row: the product of the frame axes not in `axes`."""
    return prod(n for a, n in enumerate(frame) if a not in axes)
