"""Products of matrices and tensors: expand, multiply and sum, recognised as contractions later.

float16 and bfloat16 are multiplied and summed in float32, then rounded. Integers keep their dtype
and wrap; bool products are "or of ands".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from tilewright.array import build as b
from tilewright.array.convert import ArrayLike, to_node, unify
from tilewright.array.tensor import Tensor
from tilewright.dtypes import DType, accumulator, int64
from tilewright.errors import ShapeError
from tilewright.graph import Node


def _working(dtype: DType) -> DType:
    return int64 if dtype.is_bool else accumulator(dtype)


def _multiply_sum(x: Node, y: Node, axes: tuple[int, ...], dtype: DType) -> Node:
    """Sum x * y (of one shape once broadcast) over `axes`, in the accumulator of `dtype`."""
    shape = b.broadcast_shape("matmul", [x.shape, y.shape])
    wide = _working(dtype)
    left, right = (b.expand(b.cast(n, wide), shape) for n in (x, y))
    product = b.build("multiply", left, right)
    total = b.build("reduce", product, kind="sum", axes=axes) if axes else product
    return b.cast(total, dtype)


def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Multiply matrices: (..., m, k), (..., k, n) -> (..., m, n).

    A one-axis input is a row on the left, a column on the right, and its axis is absent from the
    result. Other axes broadcast; dtypes promote. Raises ShapeError if the inner sizes differ.
    """
    x, y = unify("matmul", x1, x2)
    if not x.ndim or not y.ndim:
        raise ShapeError(f"matmul: cannot multiply {b.describe(x)} and {b.describe(y)} "
                         "(needs at least one axis; use *)")
    left = b.reshape(x, (1, *x.shape)) if x.ndim == 1 else x
    right = b.reshape(y, (*y.shape, 1)) if y.ndim == 1 else y
    inner = left.shape[-1]
    if inner != right.shape[-2]:
        raise ShapeError(f"matmul: cannot multiply {b.describe(x)} and {b.describe(y)} "
                         f"(inner sizes {inner} and {right.shape[-2]} differ)")
    try:
        b.broadcast_shape("matmul", [left.shape[:-2], right.shape[:-2]])
    except ShapeError:
        raise ShapeError(f"matmul: cannot multiply {b.describe(x)} and {b.describe(y)} "
                         "(leading axes do not broadcast)") from None
    rows = b.reshape(left, (*left.shape[:-1], 1, inner))
    turned = b.permute(right, (*range(right.ndim - 2), right.ndim - 1, right.ndim - 2))
    columns = b.reshape(turned, (*turned.shape[:-2], 1, *turned.shape[-2:]))
    last = max(rows.ndim, columns.ndim) - 1
    result = _multiply_sum(rows, columns, (last,), x.dtype)
    shape = list(result.shape)
    if y.ndim == 1:
        shape.pop(-1)
    if x.ndim == 1:
        shape.pop(-1 if y.ndim == 1 else -2)
    return Tensor(b.reshape(result, tuple(shape)))


def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """Return the sum of x1 * x2 over `axis`; the other axes broadcast."""
    x, y = unify("vecdot", x1, x2)
    places = [b.normalize_axis("vecdot", axis, n.ndim) for n in (x, y)]
    x, y = (b.permute(n, [d for d in range(n.ndim) if d != p] + [p])
            for n, p in zip((x, y), places))
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"vecdot: cannot multiply {b.describe(x)} and {b.describe(y)} "
                         f"(sizes along axis {axis} differ)")
    b.broadcast_shape("vecdot", [x.shape, y.shape])
    return Tensor(_multiply_sum(x, y, (max(x.ndim, y.ndim) - 1,), x.dtype))


def _contracted(axes: Any, x: Node, y: Node) -> tuple[list[int], list[int]]:
    if isinstance(axes, int):
        if not 0 <= axes <= min(x.ndim, y.ndim):
            raise ShapeError(f"tensordot: cannot contract {axes} axes of {b.describe(x)} and "
                             f"{b.describe(y)}")
        return list(range(x.ndim - axes, x.ndim)), list(range(axes))
    first, second = ([a] if isinstance(a, int) else list(a) for a in axes)
    return ([b.normalize_axis("tensordot", a, x.ndim) for a in first],
            [b.normalize_axis("tensordot", a, y.ndim) for a in second])


def tensordot(x1: ArrayLike, x2: ArrayLike, /, axes: Any = 2) -> Tensor:
    """Sum products over `axes`: a count (last of x1, first of x2) or a pair of lists of axes."""
    x, y = unify("tensordot", x1, x2)
    over_x, over_y = _contracted(axes, x, y)
    if [x.shape[a] for a in over_x] != [y.shape[a] for a in over_y]:
        raise ShapeError(f"tensordot: cannot contract axes {over_x} of {b.describe(x)} with axes "
                         f"{over_y} of {b.describe(y)} (sizes differ)")
    free_x = [a for a in range(x.ndim) if a not in over_x]
    free_y = [a for a in range(y.ndim) if a not in over_y]
    left, right = b.permute(x, free_x + over_x), b.permute(y, free_y + over_y)
    count = len(over_x)
    rows, columns = left.shape[:len(free_x)], right.shape[:len(free_y)]
    left = b.reshape(left, (*rows, *(1,) * len(columns), *left.shape[len(free_x):]))
    right = b.reshape(right, (*(1,) * len(rows), *right.shape))
    axes_summed = tuple(range(left.ndim - count, left.ndim))
    return Tensor(_multiply_sum(left, right, axes_summed, x.dtype))


def outer(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return x1[i] * x2[j]; inputs are flattened."""
    x, y = (b.reshape(n, (n.size,)) for n in unify("outer", x1, x2))
    return tensordot(Tensor(x), Tensor(y), axes=0)


def dot(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """NumPy's dot: * with a scalar, else the sum over x1's last and x2's second-to-last axis."""
    x, y = unify("dot", x1, x2)
    if not x.ndim or not y.ndim:
        return tensordot(Tensor(x), Tensor(y), axes=0)
    return tensordot(Tensor(x), Tensor(y), axes=([x.ndim - 1], [max(y.ndim - 2, 0)]))


def diagonal(x: ArrayLike, /, *, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Return the diagonal `offset` of two axes as the last axis of the result."""
    node = to_node(x)
    if node.ndim < 2:
        raise ShapeError(f"diagonal: cannot read {b.describe(node)} (needs at least 2 axes)")
    first, second = (b.normalize_axis("diagonal", a, node.ndim) for a in (axis1, axis2))
    rest = [d for d in range(node.ndim) if d not in (first, second)]
    node = b.permute(node, [*rest, first, second])
    rows, columns = node.shape[-2:]
    down, across = max(-offset, 0), max(offset, 0)
    count = max(0, min(rows - down, columns - across))
    if not count:
        return Tensor(b.full(0, node.dtype, (*node.shape[:-2], 0)))
    node = b.cut(b.cut(node, node.ndim - 2, down, down + count), node.ndim - 1, across,
                 across + count)
    # in a flat square the diagonal is every (count + 1)-th element
    flat = b.reshape(node, (*node.shape[:-2], count * count))
    return Tensor(b.cut(flat, flat.ndim - 1, 0, count * count, count + 1))


def trace(x: ArrayLike, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Return the sum of the diagonal `offset` of the last two axes."""
    from_diagonal = diagonal(x, offset=offset)
    node = from_diagonal._node
    target = node.dtype if node.dtype.is_float else int64
    total = b.build("reduce", b.cast(node, accumulator(target)), kind="sum", axes=(node.ndim - 1,))
    return Tensor(b.cast(total, target if dtype is None else dtype))


# --- einsum --------------------------------------------------------------------------------------

Labelled = tuple[Node, list[str]]  # a node and the label of each of its axes

EVERY_ORDER = 5  # operands of which every order is weighed; of more, a greedy one is taken
LABELS = 52  # that numpy.einsum_path can tell apart


def _labels(subscripts: str, operands: Sequence[Node]) -> tuple[list[list[str]], list[str]]:
    """Parse subscripts into one list of labels per operand and one for the result."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ShapeError(f"einsum: cannot apply {subscripts!r} to {len(operands)} operands "
                         f"(it has {len(terms)} terms)")
    spans = [n.ndim - len(t.replace("...", "")) for t, n in zip(terms, operands)]
    width = max([s for s, t in zip(spans, terms) if "..." in t], default=0)
    parsed = []
    for term, node, span in zip(terms, operands, spans):
        before, dots, after = term.partition("...")
        middle = [f"...{d}" for d in range(width - span, width)] if dots else []
        if span < 0 or (span and not dots):
            raise ShapeError(f"einsum: cannot name the axes of {b.describe(node)} by {term!r} "
                             f"(it has {node.ndim})")
        parsed.append([*before, *middle, *after])
    dotted = [f"...{d}" for d in range(width)]
    if arrow:
        before, dots, after = right.partition("...")
        return parsed, [*before, *(dotted if dots else []), *after]
    letters = [x for x in left if x.isalpha()]
    return parsed, dotted + sorted(x for x in set(letters) if letters.count(x) == 1)


def _without_repeats(node: Node, labels: list[str]) -> tuple[Node, list[str]]:
    """Take the diagonal of axes that share a label."""
    labels = list(labels)
    for label in sorted(set(labels)):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            node = diagonal(Tensor(node), axis1=first, axis2=second)._node
            labels = [x for d, x in enumerate(labels) if d not in (first, second)] + [label]
    return node, labels


def einsum(subscripts: str, /, *operands: ArrayLike) -> Tensor:
    """Sum products of `operands` named axis by axis, as in ``einsum("ij,jk->ik", a, b)``.

    Operands are combined two at a time in the order of fewest operations that
    ``numpy.einsum_path`` finds; a label is summed as soon as nothing else needs it.
    """
    nodes = unify("einsum", *operands)
    terms, result = _labels(subscripts, nodes)
    dtype = nodes[0].dtype
    missing = [x for x in result if all(x not in t for t in terms)]
    if missing or len(set(result)) != len(result):
        raise ShapeError(f"einsum: cannot give {subscripts!r} (the result's labels must be "
                         "different and come from the operands)")
    nodes = [b.cast(n, _working(dtype)) for n in nodes]
    pairs = [_without_repeats(n, t) for n, t in zip(nodes, terms)]
    every = list(dict.fromkeys(x for _, labels in pairs for x in labels))
    b.broadcast_shape(f"einsum {subscripts!r}", [_aligned(*p, every).shape for p in pairs])
    for place, (node, labels) in enumerate(pairs):  # what one operand alone has is summed first
        pairs[place] = _combine([(node, labels)], _needed(pairs, [place], result))
    for places in _path(pairs, result):
        needed = _needed(pairs, places, result)
        chosen = [pairs[place] for place in places]
        pairs = [p for place, p in enumerate(pairs) if place not in places]
        pairs.append(_combine(chosen, needed))
    ((node, labels),) = pairs
    return Tensor(b.cast(b.permute(node, [labels.index(x) for x in result]), dtype))


def _needed(pairs: Sequence[Labelled], places: Sequence[int], result: Sequence[str]) -> set[str]:
    """Return labels of the result, and of operands but those at `places`."""
    return set(result).union(*(labels for place, (_, labels) in enumerate(pairs)
                               if place not in places))


def _path(pairs: Sequence[Labelled], result: Sequence[str]) -> Sequence[tuple[int, ...]]:
    """Return places of the operands to combine; each combination is put at the end."""
    numbers = {x: i for i, x in enumerate(dict.fromkeys(x for _, t in pairs for x in t))}
    if len(pairs) < 3 or len(numbers) > LABELS:
        return [(0, 1)] * (len(pairs) > 1) + [(0, n) for n in range(len(pairs) - 2, 0, -1)]
    arguments: list[Any] = []
    for node, labels in pairs:
        arguments += [np.broadcast_to(np.zeros(()), node.shape), [numbers[x] for x in labels]]
    found, _ = np.einsum_path(*arguments, [numbers[x] for x in result],
                              optimize="optimal" if len(pairs) <= EVERY_ORDER else "greedy")
    return found[1:]


def _combine(chosen: Sequence[Labelled], needed: set[str]) -> Labelled:
    """Multiply labelled operands, the smallest product first; sum labels that are not `needed`."""
    every = list(dict.fromkeys(x for _, labels in chosen for x in labels))
    every = [x for x in every if x in needed] + [x for x in every if x not in needed]
    factors = [_aligned(node, labels, every) for node, labels in chosen]
    while len(factors) > 1:
        i, j = min(combinations(range(len(factors)), 2),
                   key=lambda two: prod(_common(*(factors[place] for place in two))))
        right, left = factors.pop(j), factors.pop(i)
        shape = _common(left, right)
        factors.append(b.build("multiply", b.expand(left, shape), b.expand(right, shape)))
    (product,) = factors
    summed = tuple(d for d, x in enumerate(every) if x not in needed)
    total = b.build("reduce", product, kind="sum", axes=summed) if summed else product
    return total, [x for x in every if x in needed]


def _common(x: Node, y: Node) -> tuple[int, ...]:
    return b.broadcast_shape("einsum", [x.shape, y.shape])


def _aligned(node: Node, labels: list[str], every: list[str]) -> Node:
    """Order a labelled operand's axes as in `every`, with size 1 for labels it has not."""
    present = [x for x in every if x in labels]
    node = b.permute(node, [labels.index(x) for x in present])
    sizes = dict(zip(present, node.shape))
    return b.reshape(node, tuple(sizes.get(x, 1) for x in every))
