"""Sliding windows over the last axes: the shared part of convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.array import build as b
from tilewright.errors import ShapeError
from tilewright.graph import Node


def per_axis(name: str, what: str, value: Any, count: int, least: int = 1) -> tuple[int, ...]:
    """Return one integer per spatial axis from an integer or a sequence."""
    listed = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    if len(listed) != count or any(not isinstance(v, int) or v < least for v in listed):
        raise ShapeError(f"{name}: cannot use {what}={value!r} (needs an integer of at least "
                         f"{least}, or {count} of them)")
    return listed


def paddings(name: str, padding: Any, kernel: Sequence[int], stride: Sequence[int],
             dilation: Sequence[int]) -> list[tuple[int, int]]:
    """Return (before, after) per axis from "valid", "same", an integer, or one entry per axis."""
    count = len(kernel)
    if padding == "valid":
        return [(0, 0)] * count
    if padding == "same":
        if any(s != 1 for s in stride):
            raise ShapeError(f"{name}: cannot pad 'same' with stride {tuple(stride)} (needs 1)")
        spans = [d * (k - 1) for k, d in zip(kernel, dilation)]
        return [(s // 2, s - s // 2) for s in spans]
    listed = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * count
    pairs = [tuple(p) if isinstance(p, (tuple, list)) else (p, p) for p in listed]
    if len(pairs) != count or any(len(p) != 2 or not all(isinstance(v, int) and v >= 0 for v in p)
                                  for p in pairs):
        raise ShapeError(f"{name}: cannot pad by {padding!r} (needs 'same', 'valid', an integer, "
                         f"or {count} integers or pairs, at least 0)")
    return pairs  # type: ignore[return-value]


def window_count(size: int, kernel: int, stride: int, dilation: int) -> int:
    """Return how many whole windows fit into `size` elements."""
    return (size - dilation * (kernel - 1) - 1) // stride + 1


def windows(node: Node, first: int, counts: Sequence[int], kernel: Sequence[int],
            stride: Sequence[int], dilation: Sequence[int]) -> Node:
    """(lead.., n1, n2..) -> (lead.., p1, p2.., k1, k2..): element k of window p on each axis.

    Spatial axes begin at `first`; `counts` are the numbers of windows.
    """
    rank = len(kernel)
    for place, (count, k, s, d) in enumerate(zip(counts, kernel, stride, dilation)):
        axis = first + 2 * place
        shape = node.shape
        wide = b.build("expand", b.reshape(node, (*shape[:axis + 1], 1, *shape[axis + 1:])),
                       shape=(*shape[:axis + 1], k, *shape[axis + 1:]))
        node = b.build("shear", wide, axis=axis, size=count, stride=s, dilation=d)
    places = [first + 2 * i for i in range(rank)]
    return b.permute(node, [*range(first), *places, *(p + 1 for p in places)])
