"""Shape and dtype rules of the operations: (inputs, attrs) -> (shape, dtype)."""

from __future__ import annotations

from math import prod

from tilewright.dtypes import bool_, int64
from tilewright.errors import DTypeError, ShapeError

REDUCTIONS = ("sum", "prod", "max", "min", "argmax", "argmin")
SCATTER_MODES = ("set", "add", "multiply", "max", "min")


def describe(inputs) -> str:
    return ", ".join(f"{i.dtype}{list(i.shape)}" for i in inputs)


def _same_shape(inputs):
    shape = inputs[0].shape
    for other in inputs[1:]:
        if other.shape != shape:
            raise ShapeError(f"elementwise: cannot combine {describe(inputs)} (shapes differ)")
    return shape


def _same_dtype(inputs):
    dtype = inputs[0].dtype
    for other in inputs[1:]:
        if other.dtype != dtype:
            raise DTypeError(f"elementwise: cannot combine {describe(inputs)} (dtypes differ)")
    return dtype


def _need(ok: bool, inputs, wanted: str):
    if not ok:
        raise DTypeError(f"elementwise: cannot accept {describe(inputs)} (needs {wanted})")


def given(inputs, attrs):
    raise TypeError("sources are made by graph.buffer, graph.parameter and graph.constant")


def iota(inputs, attrs):
    return (attrs.size,), attrs.dtype


def arithmetic(inputs, attrs):
    return _same_shape(inputs), _same_dtype(inputs)


def numeric(inputs, attrs):
    _need(not inputs[0].dtype.is_bool, inputs, "a numeric dtype")
    return inputs[0].shape, inputs[0].dtype


def floating(inputs, attrs):
    dtype = _same_dtype(inputs)
    _need(dtype.is_float, inputs, "a floating-point dtype")
    return _same_shape(inputs), dtype


def bitwise(inputs, attrs):
    dtype = _same_dtype(inputs)
    _need(not dtype.is_float, inputs, "integers or bool")
    return _same_shape(inputs), dtype


def shift(inputs, attrs):
    dtype = _same_dtype(inputs)
    _need(dtype.is_integer, inputs, "integers")
    return _same_shape(inputs), dtype


def comparison(inputs, attrs):
    _same_dtype(inputs)
    return _same_shape(inputs), bool_


def predicate(inputs, attrs):
    return inputs[0].shape, bool_


def where(inputs, attrs):
    _need(inputs[0].dtype.is_bool, inputs, "a bool condition")
    return _same_shape(inputs), _same_dtype(inputs[1:])


def cast(inputs, attrs):
    return inputs[0].shape, attrs.dtype


def bitcast(inputs, attrs):
    _need(inputs[0].dtype.itemsize == attrs.dtype.itemsize, inputs, "equal widths")
    return inputs[0].shape, attrs.dtype


def reshape(inputs, attrs):
    (x,) = inputs
    if prod(attrs.shape) != prod(x.shape):
        raise ShapeError(f"reshape: cannot reshape {list(x.shape)} to {list(attrs.shape)} "
                         f"({prod(x.shape)} elements to {prod(attrs.shape)})")
    return tuple(attrs.shape), x.dtype


def permute(inputs, attrs):
    (x,) = inputs
    if sorted(attrs.axes) != list(range(x.ndim)):
        raise ShapeError(f"permute: cannot order axes of {list(x.shape)} by {attrs.axes} "
                         f"(needs each of 0..{x.ndim - 1} once)")
    return tuple(x.shape[a] for a in attrs.axes), x.dtype


def expand(inputs, attrs):
    (x,) = inputs
    if len(attrs.shape) != x.ndim or any(a not in (1, b) for a, b in zip(x.shape, attrs.shape)):
        raise ShapeError(f"expand: cannot expand {list(x.shape)} to {list(attrs.shape)} "
                         "(same rank needed, and only axes of size 1 grow)")
    return tuple(attrs.shape), x.dtype


def slice_(inputs, attrs):
    """Per axis start, stop, step in Python's sense, already clamped; step may be negative."""
    (x,) = inputs
    return tuple(len(range(a, b, s)) for a, b, s in zip(*attrs)), x.dtype


def pad(inputs, attrs):
    """Zeros: `low` before, `high` after, `interior` between elements; all at least 0."""
    (x,) = inputs
    return tuple(lo + hi + n + max(n - 1, 0) * mid
                 for n, lo, hi, mid in zip(x.shape, *attrs)), x.dtype


def shear(inputs, attrs):
    """(.., n, k) -> (.., size, k): out[p, k] = x[p*stride + k*dilation, k]; axis is n's."""
    (x,) = inputs
    shape = list(x.shape)
    n, k = shape[attrs.axis], shape[attrs.axis + 1]
    if (attrs.size - 1) * attrs.stride + (k - 1) * attrs.dilation >= n and attrs.size and k:
        raise ShapeError(f"shear: cannot read {attrs.size} windows of {k} from {n} elements "
                         f"(stride {attrs.stride}, dilation {attrs.dilation})")
    shape[attrs.axis] = attrs.size
    return tuple(shape), x.dtype


def unshear(inputs, attrs):
    """(.., p, k) -> (.., size, k): out[i, k] = x[(i - k*dilation)/stride, k] where whole, else 0.

    The transpose of shear.
    """
    (x,) = inputs
    shape = list(x.shape)
    shape[attrs.axis] = attrs.size
    return tuple(shape), x.dtype


def concat(inputs, attrs):
    first = inputs[0]
    _same_dtype(inputs)
    for other in inputs[1:]:
        if other.ndim != first.ndim or any(
                a != b for d, (a, b) in enumerate(zip(first.shape, other.shape))
                if d != attrs.axis):
            raise ShapeError(f"concat: cannot join {describe(inputs)} along axis {attrs.axis} "
                             "(other axes must be equal)")
    shape = list(first.shape)
    shape[attrs.axis] = sum(i.shape[attrs.axis] for i in inputs)
    return tuple(shape), first.dtype


def _indices(name, x, indices):
    for i in indices:
        if i.dtype != int64 or i.shape != indices[0].shape:
            raise DTypeError(f"{name}: cannot index with {describe(indices)} "
                             "(needs int64 indices of one shape)")
    if not indices or len(indices) > x.ndim:
        raise ShapeError(f"{name}: cannot index {describe([x])} with {len(indices)} arrays")
    return indices[0].shape + x.shape[len(indices):]


def gather(inputs, attrs):
    """x, i1..im -> x[i1, .., im]: indices of one shape I for x's first m axes; I + rest.

    An index outside its axis is clamped to it (the frontend adds the size to negative ones).
    """
    x, *indices = inputs
    return _indices("gather", x, indices), x.dtype


def scatter(inputs, attrs):
    """x, updates, i1..im -> x with updates[.., rest] combined at [i1, .., im], in order.

    Duplicates are applied one after the other (last wins for set); an index outside is dropped.
    """
    x, updates, *indices = inputs
    shape = _indices("scatter", x, indices)
    if updates.shape != shape or updates.dtype != x.dtype or attrs.mode not in SCATTER_MODES:
        raise ShapeError(f"scatter: cannot write {describe([updates])} into {describe([x])} "
                         f"(needs {x.dtype}{list(shape)}, mode in {SCATTER_MODES})")
    return x.shape, x.dtype


def reduce(inputs, attrs):
    """Remove `axes`; sum and prod keep the dtype (the frontend casts), arg-reductions give int64.

    argmax and argmin take one axis.
    """
    (x,) = inputs
    shape = tuple(n for d, n in enumerate(x.shape) if d not in attrs.axes)
    if attrs.kind not in REDUCTIONS or not all(0 <= a < x.ndim for a in attrs.axes):
        raise ShapeError(f"reduce: cannot take {attrs.kind} of {describe(inputs)} "
                         f"over {attrs.axes}")
    points = prod(x.shape[a] for a in attrs.axes)
    if attrs.kind not in ("sum", "prod") and points == 0 and prod(shape):
        raise ShapeError(f"{attrs.kind}: cannot reduce {describe(inputs)} over axes "
                         f"{list(attrs.axes)} (no elements, and {attrs.kind} has no identity)")
    return shape, (int64 if attrs.kind.startswith("arg") else x.dtype)


def cumulate(inputs, attrs):
    """Inclusive running sum, prod, max or min along one axis."""
    (x,) = inputs
    return x.shape, x.dtype


def call(inputs, attrs):
    return tuple(attrs.shape), attrs.dtype
