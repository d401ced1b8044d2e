"""Statistical functions and cumulative ones: array API names, and NumPy's.

`axis` is None (all), an integer or a tuple. Sums and products of small integers and bool are made
in int64 or uint64; float16 and bfloat16 accumulate in float32. Means of integers are float32.
"""

from __future__ import annotations

import builtins
from math import prod as _prod
from typing import Any

import numpy as np

from tilewright.array import build as b
from tilewright.array import elementwise as e
from tilewright.array.convert import DEFAULT_FLOAT, ArrayLike, broadcast, to_node
from tilewright.array.tensor import Tensor
from tilewright.dtypes import DType, accumulator, as_dtype, bool_, int64, uint64
from tilewright.errors import DTypeError, ShapeError
from tilewright.graph import Node

Axis = Any


def _keep(node: Node, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> Node:
    if not keepdims:
        return node
    return b.reshape(node, tuple(1 if d in axes else n for d, n in enumerate(shape)))


def _reduce(kind: str, node: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    result = b.build("reduce", node, kind=kind, axes=axes) if axes else node
    return _keep(result, node.shape, axes, keepdims)


def _total_dtype(dtype: DType) -> DType:
    """Return the dtype of a sum or product: the standard's default."""
    if dtype.is_float:
        return dtype
    return uint64 if dtype.kind == "u" else int64


def _total(kind: str, x: ArrayLike, axis: Axis, dtype: Any, keepdims: bool) -> Tensor:
    node = to_node(x)
    axes = b.normalize_axes(kind, axis, node.ndim)
    target = _total_dtype(node.dtype) if dtype is None else as_dtype(dtype)
    wide = b.cast(node, accumulator(target))
    return Tensor(b.cast(_reduce(kind, wide, axes, keepdims), target))


def sum(x: ArrayLike, /, axis: Axis = None, *, dtype: Any = None,  # noqa: A001
        keepdims: bool = False) -> Tensor:
    """Return the sum over `axis`; 0 of no elements."""
    return _total("sum", x, axis, dtype, keepdims)


def prod(x: ArrayLike, /, axis: Axis = None, *, dtype: Any = None,
         keepdims: bool = False) -> Tensor:
    """Return the product over `axis`; 1 of no elements."""
    return _total("prod", x, axis, dtype, keepdims)


def _extreme(kind: str, x: ArrayLike, axis: Axis, keepdims: bool) -> Tensor:
    node = to_node(x)
    axes = b.normalize_axes(kind, axis, node.ndim)
    return Tensor(_reduce(kind, node, axes, keepdims))


def max(x: ArrayLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:  # noqa: A001
    """Return the greatest element over `axis`; NaN if any is. Raises ShapeError of no elements."""
    return _extreme("max", x, axis, keepdims)


def min(x: ArrayLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:  # noqa: A001
    """Return the least element over `axis`; NaN if any is. Raises ShapeError of no elements."""
    return _extreme("min", x, axis, keepdims)


def _arg(kind: str, x: ArrayLike, axis: Axis, keepdims: bool) -> Tensor:
    node = to_node(x)
    flat = b.reshape(node, (node.size,)) if axis is None else node
    place = 0 if axis is None else b.normalize_axis(kind, axis, node.ndim)
    if not flat.shape[place]:
        raise ShapeError(f"{kind}: cannot search {b.describe(node)} along axis {axis} "
                         "(no elements)")
    result = b.build("reduce", flat, kind=kind, axes=(place,))
    if keepdims:
        result = b.reshape(result, tuple(1 if axis is None or d == place else n
                                         for d, n in enumerate(node.shape)))
    return Tensor(result)


def argmax(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Return int64 places of the first greatest element, or of the first NaN, along `axis`.

    Without `axis` the place in the flattened tensor. Raises ShapeError if there are no elements.
    """
    return _arg("argmax", x, axis, keepdims)


def argmin(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Return int64 places of the first least element, or of the first NaN, along `axis`."""
    return _arg("argmin", x, axis, keepdims)


def _quantify(kind: str, identity: bool, x: ArrayLike, axis: Axis, keepdims: bool) -> Tensor:
    node = b.cast(to_node(x), bool_)
    axes = b.normalize_axes(kind, axis, node.ndim)
    if not _prod(node.shape[a] for a in axes):
        shape = tuple(n for d, n in enumerate(node.shape) if d not in axes)
        return Tensor(_keep(b.full(identity, bool_, shape), node.shape, axes, keepdims))
    return Tensor(_reduce("min" if identity else "max", node, axes, keepdims))


def all(x: ArrayLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:  # noqa: A001
    """Return whether every element over `axis` is true; true of no elements."""
    return _quantify("all", True, x, axis, keepdims)


def any(x: ArrayLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:  # noqa: A001
    """Return whether some element over `axis` is true; false of no elements."""
    return _quantify("any", False, x, axis, keepdims)


def count_nonzero(x: ArrayLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Return how many elements over `axis` are not 0, as int64."""
    return sum(Tensor(b.cast(to_node(x), bool_)), axis=axis, keepdims=keepdims)


def _floating(x: ArrayLike, dtype: Any = None) -> tuple[Node, DType]:
    """Return x in the dtype it is accumulated in, and the dtype of the result."""
    node = to_node(x)
    target = as_dtype(dtype) if dtype is not None else (
        node.dtype if node.dtype.is_float else DEFAULT_FLOAT)
    if not target.is_float:
        raise DTypeError(f"mean: cannot give the mean of {b.describe(node)} as {target} "
                         "(needs a floating-point dtype)")
    return b.cast(node, accumulator(target)), target


def mean(x: ArrayLike, /, axis: Axis = None, *, dtype: Any = None,
         keepdims: bool = False) -> Tensor:
    """Return the arithmetic mean over `axis`: float32 of integers and bool; NaN of no elements."""
    node, target = _floating(x, dtype)
    axes = b.normalize_axes("mean", axis, node.ndim)
    count = _prod(node.shape[a] for a in axes)
    total = Tensor(_reduce("sum", node, axes, keepdims))
    return Tensor(b.cast(e.divide(total, float(count))._node, target))


def var(x: ArrayLike, /, axis: Axis = None, *, correction: float = 0.0,
        keepdims: bool = False) -> Tensor:
    """Return the variance over `axis`: squared distance from the mean, over n - `correction`.

    Two passes, so that a large mean costs no accuracy. NaN where n <= `correction`.
    """
    node, target = _floating(x)
    axes = b.normalize_axes("var", axis, node.ndim)
    wide = Tensor(node)
    centred = e.subtract(wide, mean(wide, axis=axes, keepdims=True))
    total = Tensor(_reduce("sum", e.multiply(centred, centred)._node, axes, keepdims))
    count = _prod(node.shape[a] for a in axes) - correction
    return Tensor(b.cast(e.divide(total, float(count if count > 0 else 0))._node, target))


def std(x: ArrayLike, /, axis: Axis = None, *, correction: float = 0.0,
        keepdims: bool = False) -> Tensor:
    """Return the square root of `var`."""
    return e.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def logsumexp(x: ArrayLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Return log(sum(exp(x))) over `axis` without overflow on the way; -inf of no elements."""
    node, target = _floating(x)
    axes = b.normalize_axes("logsumexp", axis, node.ndim)
    shape = tuple(1 if d in axes else n for d, n in enumerate(node.shape))
    if not _prod(node.shape[a] for a in axes):
        result = b.full(-np.inf, target, shape)
    else:
        wide = Tensor(node)
        top = max(wide, axis=axes, keepdims=True)
        top = e.select(e.isfinite(top), top, 0.0)  # inf - inf would be NaN
        total = sum(e.exp(e.subtract(wide, top)), axis=axes, keepdims=True)
        result = b.cast(e.add(e.log(total), top)._node, target)
    return Tensor(result if keepdims else b.reshape(
        result, tuple(n for d, n in enumerate(node.shape) if d not in axes)))


# --- cumulative ----------------------------------------------------------------------------------


def _cumulative(kind: str, x: ArrayLike, axis: int | None, dtype: Any, initial: bool) -> Tensor:
    name, node = f"cumulative_{kind}", to_node(x)
    if axis is None:
        if node.ndim != 1:
            raise ShapeError(f"{name}: cannot choose an axis of {b.describe(node)} "
                             "(give one: it has not exactly 1)")
        axis = 0
    place = b.normalize_axis(name, axis, node.ndim)
    target = _total_dtype(node.dtype) if dtype is None else as_dtype(dtype)
    wide = b.cast(node, accumulator(target))
    result = b.cast(b.build("cumulate", wide, kind=kind, axis=place), target)
    if initial:
        first = tuple(1 if d == place else n for d, n in enumerate(node.shape))
        result = b.concat([b.full(0 if kind == "sum" else 1, target, first), result], place)
    return Tensor(result)


def cumulative_sum(x: ArrayLike, /, axis: int | None = None, *, dtype: Any = None,
                   include_initial: bool = False) -> Tensor:
    """Return running sums along `axis` (needed unless x has one axis), from 0 if asked."""
    return _cumulative("sum", x, axis, dtype, include_initial)


def cumulative_prod(x: ArrayLike, /, axis: int | None = None, *, dtype: Any = None,
                    include_initial: bool = False) -> Tensor:
    """Return running products along `axis` (needed unless x has one axis), from 1 if asked."""
    return _cumulative("prod", x, axis, dtype, include_initial)


def _flat_if_none(x: ArrayLike, axis: int | None) -> tuple[Tensor, int]:
    node = to_node(x)
    return (Tensor(b.reshape(node, (node.size,))), 0) if axis is None else (Tensor(node), axis)


def cumsum(x: ArrayLike, /, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Return running sums along `axis`, of the flattened tensor if None (NumPy's rule)."""
    x, axis = _flat_if_none(x, axis)
    return _cumulative("sum", x, axis, dtype, False)


def cumprod(x: ArrayLike, /, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Return running products along `axis`, of the flattened tensor if None (NumPy's rule)."""
    x, axis = _flat_if_none(x, axis)
    return _cumulative("prod", x, axis, dtype, False)


def cummax(x: ArrayLike, /, axis: int) -> Tensor:
    """Return the running maximum along `axis`."""
    node = to_node(x)
    return Tensor(b.build("cumulate", node, kind="max",
                          axis=b.normalize_axis("cummax", axis, node.ndim)))


def cummin(x: ArrayLike, /, axis: int) -> Tensor:
    """Return the running minimum along `axis`."""
    node = to_node(x)
    return Tensor(b.build("cumulate", node, kind="min",
                          axis=b.normalize_axis("cummin", axis, node.ndim)))


def diff(x: ArrayLike, /, *, axis: int = -1, n: int = 1, prepend: ArrayLike = None,
         append: ArrayLike = None) -> Tensor:
    """Return the `n`-th difference of neighbours along `axis`; bool differs by xor."""
    node = to_node(x)
    place = b.normalize_axis("diff", axis, node.ndim)
    if n < 0:
        raise ShapeError(f"diff: cannot take {n} differences (needs at least 0)")
    edge = tuple(1 if d == place else s for d, s in enumerate(node.shape))
    pieces = [to_node(p, node.dtype) for p in (prepend, append) if p is not None]
    pieces = [b.expand(p, edge) if not p.ndim else p for p in pieces]
    split = 1 if prepend is not None else 0
    node = b.concat([*pieces[:split], node, *pieces[split:]], place)
    for _ in range(n):
        size = node.shape[place]
        after = Tensor(b.cut(node, place, builtins.min(1, size), size))
        before = Tensor(b.cut(node, place, 0, builtins.max(size - 1, 0)))
        node = (e.not_equal if node.dtype.is_bool else e.subtract)(after, before)._node
    return Tensor(node)


def nansum(x: ArrayLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Return the sum over `axis` of the elements that are not NaN."""
    return sum(e.select(e.isnan(x), 0, x), axis=axis, keepdims=keepdims)


def nanmean(x: ArrayLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Return the mean over `axis` of the elements that are not NaN."""
    count = sum(e.logical_not(e.isnan(x)), axis=axis, keepdims=keepdims)
    return e.divide(nansum(x, axis=axis, keepdims=keepdims), count)


def allclose(x1: ArrayLike, x2: ArrayLike, /, rtol: float = 1e-5, atol: float = 1e-8,
             equal_nan: bool = False) -> bool:
    """Return whether all elements are close (see `isclose`); computes."""
    return bool(all(e.isclose(x1, x2, rtol, atol, equal_nan)))


def array_equal(x1: ArrayLike, x2: ArrayLike, /) -> bool:
    """Return whether shapes and all elements are equal; computes."""
    a, c = Tensor(to_node(x1)), Tensor(to_node(x2))
    return a.shape == c.shape and bool(all(e.equal(a, c)))


def average(x: ArrayLike, /, axis: Axis = None, *, weights: ArrayLike = None) -> Tensor:
    """Return the mean over `axis`, weighted by `weights` of a shape that broadcasts to x's."""
    if weights is None:
        return mean(x, axis=axis)
    values, share = (Tensor(n) for n in broadcast("average", [to_node(x), to_node(weights)]))
    return e.divide(sum(e.multiply(values, share), axis=axis), sum(share, axis=axis))
