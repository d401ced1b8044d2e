"""Small builders of nodes that several gradients share."""

from __future__ import annotations

from tilewright.dtypes import int64
from tilewright.graph import Node, apply
from tilewright.rewrite import build, full, full_like


def add(a: Node, b: Node) -> Node:
    return build("add", a, b)


def multiply(a: Node, b: Node) -> Node:
    return build("multiply", a, b)


def select(condition: Node, yes: Node, no: Node) -> Node:
    return build("where", condition, yes, no)


def reshape(x: Node, shape: tuple[int, ...]) -> Node:
    return build("reshape", x, shape=tuple(shape))


def expand(x: Node, shape: tuple[int, ...]) -> Node:
    return build("expand", x, shape=tuple(shape))


def permute(x: Node, axes: tuple[int, ...]) -> Node:
    return build("permute", x, axes=tuple(axes))


def concat(pieces: list[Node], axis: int) -> Node:
    return build("concat", *pieces, axis=axis)


def cut(x: Node, axis: int, start: int, stop: int, step: int = 1) -> Node:
    """Return x[start:stop:step] along one axis, in the sense of `range`: -1 ends a reversal."""
    starts, stops, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return build("slice", x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def flip(x: Node, axis: int) -> Node:
    """Return x with the order of one axis reversed."""
    return cut(x, axis, x.shape[axis] - 1, -1, -1)


def along(x: Node, axis: int, extent: int) -> tuple[int, ...]:
    """Return x's shape with another extent at one axis."""
    return (*x.shape[:axis], extent, *x.shape[axis + 1:])


def cumulate(x: Node, kind: str, axis: int) -> Node:
    return build("cumulate", x, kind=kind, axis=axis)


def inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the permutation that undoes `axes`."""
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


def spread_over(x: Node, shape: tuple[int, ...], axes: tuple[int, ...]) -> Node:
    """Return a reduced x repeated along the `axes` of `shape` that it was reduced over."""
    kept = tuple(1 if d in axes else n for d, n in enumerate(shape))
    return expand(reshape(x, kept), shape)


def repeat_last(x: Node, shape: tuple[int, ...]) -> Node:
    """Return x, whose shape starts `shape`, repeated over the axes that follow."""
    return expand(reshape(x, (*x.shape, *(1,) * (len(shape) - x.ndim))), shape)


def positions(shape: tuple[int, ...], axis: int) -> Node:
    """Return an int64 node of `shape` that holds each element's index along `axis`."""
    line = apply("iota", size=shape[axis], dtype=int64)
    ones = tuple(n if d == axis else 1 for d, n in enumerate(shape))
    return expand(reshape(line, ones), shape)


def clamped(index: Node, extent: int) -> Node:
    """Return an index limited to 0..extent-1."""
    low = build("maximum", index, full_like(index, 0))
    return build("minimum", low, full_like(index, extent - 1))


def inside(indices: list[Node], shape: tuple[int, ...]) -> Node:
    """Return where every index lies within its axis of `shape`."""
    tests = [test for i, n in zip(indices, shape) for test in (
        build("less_equal", full_like(i, 0), i), build("less", i, full_like(i, n)))]
    result = tests[0]
    for test in tests[1:]:
        result = build("bitwise_and", result, test)
    return result


def zeros_like(x: Node) -> Node:
    return full(0, x.shape, x.dtype)
