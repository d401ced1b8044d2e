"""Index maps of the movement operations: where an element of the output comes from.

Each map takes the node and the index of one of its elements, and returns the index of its input's
element and the tests (values, all must hold) outside which the element is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.graph import Node
from tilewright.index import Expr, const
from tilewright.kernel.value import Value, divides, test

Index = tuple[Expr, ...]
Moved = tuple[Index, tuple[Value, ...]]
ZERO = const(0)


def flat(index: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """Return the row-major position of `index` in `shape`."""
    result = ZERO
    stride = 1
    for expr, extent in zip(reversed(index), reversed(shape)):
        result = expr * stride + result
        stride *= extent
    return result


def unflat(position: Expr, shape: Sequence[int]) -> Index:
    """Return the index in `shape` of a row-major position."""
    index = []
    for d in range(len(shape) - 1, -1, -1):
        extent = shape[d]
        if extent == 1:
            index.append(ZERO)
        else:
            # the outermost digit needs no remainder: the position lies inside
            outermost = all(n == 1 for n in shape[:d])
            index.append(position if outermost else position % extent)
            position = position // extent
    return tuple(reversed(index))


def _reshape(node: Node, index: Index) -> Moved:
    old, new = node.inputs[0].shape, node.shape
    if 0 in new:
        return (ZERO,) * len(old), ()
    result: list[Expr] = []
    a = b = 0
    while a < len(old) or b < len(new):  # runs of equal size are independent
        first, second, size, other = a, b, 1, 1
        while True:
            if size <= other and a < len(old) and (size < other or a == first):
                size *= old[a]
                a += 1
            elif b < len(new) and (other < size or b == second):
                other *= new[b]
                b += 1
            elif size == other:
                break
        inside = [n for n in new[second:b] if n != 1]
        if inside == [n for n in old[first:a] if n != 1]:
            kept = iter([i for i, n in zip(index[second:b], new[second:b]) if n != 1])
            result += [ZERO if n == 1 else next(kept) for n in old[first:a]]
        else:
            result += unflat(flat(index[second:b], new[second:b]), old[first:a])
    return tuple(result), ()


def _permute(node: Node, index: Index) -> Moved:
    result = [ZERO] * len(index)
    for position, axis in enumerate(node.attrs.axes):
        result[axis] = index[position]
    return tuple(result), ()


def _expand(node: Node, index: Index) -> Moved:
    return tuple(ZERO if old == 1 else i for i, old in zip(index, node.inputs[0].shape)), ()


def _slice(node: Node, index: Index) -> Moved:
    attrs = node.attrs
    return tuple(i * step + start for i, start, step in zip(index, attrs.starts, attrs.steps)), ()


def _pad(node: Node, index: Index) -> Moved:
    result, tests = [], []
    attrs, shape = node.attrs, node.inputs[0].shape
    for i, n, low, gap in zip(index, shape, attrs.low, attrs.interior):
        inner = i - low
        tests += [test(inner), test((n - 1) * (gap + 1) - inner) if n else test(const(-1))]
        if gap:
            tests.append(divides(inner, gap + 1))
            inner = inner // (gap + 1)
        result.append(inner)
    return tuple(result), tuple(tests)


def _shear(node: Node, index: Index) -> Moved:
    axis = node.attrs.axis
    result = list(index)
    result[axis] = index[axis] * node.attrs.stride + index[axis + 1] * node.attrs.dilation
    return tuple(result), ()


def _unshear(node: Node, index: Index) -> Moved:
    axis, stride = node.attrs.axis, node.attrs.stride
    n = node.inputs[0].shape[axis]
    result = list(index)
    inner = index[axis] - index[axis + 1] * node.attrs.dilation
    tests = [test(inner), test((n - 1) * stride - inner) if n else test(const(-1))]
    if stride > 1:
        tests.append(divides(inner, stride))
        inner = inner // stride
    result[axis] = inner
    return tuple(result), tuple(tests)


def _keep(node: Node, index: Index) -> Moved:
    """A reduction or a scan along axes of size 1."""
    if node.op.kind == "cumulate":
        return index, ()
    result = list(index)
    for axis in sorted(node.attrs.axes):
        result.insert(axis, ZERO)
    return tuple(result), ()


MAPS: dict[str, Callable[[Node, Index], Moved]] = {
    "reshape": _reshape, "permute": _permute, "expand": _expand, "slice": _slice, "pad": _pad,
    "shear": _shear, "unshear": _unshear,
    "reduce": _keep, "cumulate": _keep,
}
