"""The NumPy meaning of each operation: (arrays, attrs) -> array.

This is the reference that every other way of running a graph is compared with. Special cases state
the contract where NumPy leaves a choice open: integer division by zero gives 0, shifts by the width
or more give 0 (or -1 for a negative left operand shifted right), casts of floats to integers
truncate to 64 bits and wrap, NaN and out-of-range values included as far as int64 reaches.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.dtypes import accumulator, as_dtype

_QUIET = {"over": "ignore", "under": "ignore", "divide": "ignore", "invalid": "ignore"}


def _binary(function):
    def run(arrays, attrs):
        a, b = arrays
        with np.errstate(**_QUIET):
            return np.asarray(function(a, b)).astype(a.dtype, copy=False)
    return run


def _compare(function):
    def run(arrays, attrs):
        return np.asarray(function(*arrays))
    return run


def _unary(function):
    def run(arrays, attrs):
        (x,) = arrays
        with np.errstate(**_QUIET):
            return np.asarray(function(x)).astype(x.dtype, copy=False)
    return run


def buffer(arrays, attrs):
    raise TypeError("a buffer's value is known to the runtime")


def parameter(arrays, attrs):
    raise TypeError("a parameter's value is known to the plan")


def constant(arrays, attrs):
    raise TypeError("a constant's value is read by graph.node.constant_value")


def iota(arrays, attrs):
    return np.arange(attrs.size, dtype=attrs.dtype.numpy)


def _floor_divide(a, b):
    if a.dtype.kind in "iu":
        safe = np.where(b == 0, 1, b).astype(a.dtype)
        if a.dtype.kind == "i":
            lowest = np.iinfo(a.dtype).min
            wraps = (a == lowest) & (b == -1)
            safe = np.where(wraps, 1, safe).astype(a.dtype)
        return np.where(b == 0, 0, a // safe)
    return np.floor_divide(a, b)


def _remainder(a, b):
    if a.dtype.kind in "iu":
        safe = np.where((b == 0) | (b == np.asarray(-1).astype(a.dtype)), 1, b).astype(a.dtype)
        if a.dtype.kind == "u":
            safe = np.where(b == 0, 1, b).astype(a.dtype)
        return np.where(b == 0, 0, a % safe)
    return np.remainder(a, b)


def _power(a, b):
    if a.dtype.kind == "i":  # a negative exponent: the integer part of the true value
        result = np.power(a, np.where(b < 0, 0, b).astype(a.dtype))
        odd = (b & 1).astype(bool)
        inverse = np.where(a == 1, 1, np.where(a == -1, np.where(odd, -1, 1), 0)).astype(a.dtype)
        return np.where(b < 0, inverse, result)
    return np.power(a, b)


def _shift_left(a, b):
    width = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < width)
    return np.where(inside, a << np.where(inside, b, 0).astype(a.dtype), 0)


def _shift_right(a, b):
    width = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < width)
    fill = np.where(a < 0, -1, 0).astype(a.dtype) if a.dtype.kind == "i" else np.zeros_like(a)
    return np.where(inside, a >> np.where(inside, b, 0).astype(a.dtype), fill)


def _logical(bitwise, logical):
    return lambda a, b: logical(a, b) if a.dtype.kind == "b" else bitwise(a, b)


add = _binary(np.add)
subtract = _binary(lambda a, b: a ^ b if a.dtype.kind == "b" else a - b)
multiply = _binary(np.multiply)
divide = _binary(np.divide)
floor_divide = _binary(_floor_divide)
remainder = _binary(_remainder)
power = _binary(_power)
minimum = _binary(np.minimum)
maximum = _binary(np.maximum)
atan2 = _binary(np.arctan2)
bitwise_and = _binary(np.bitwise_and)
bitwise_or = _binary(np.bitwise_or)
bitwise_xor = _binary(np.bitwise_xor)
bitwise_left_shift = _binary(_shift_left)
bitwise_right_shift = _binary(_shift_right)
equal = _compare(np.equal)
not_equal = _compare(np.not_equal)
less = _compare(np.less)
less_equal = _compare(np.less_equal)
negative = _unary(np.negative)
abs = _unary(np.abs)  # noqa: A001
sign = _unary(lambda x: np.where(x == 0, np.zeros_like(x), np.sign(x)))  # not -0.0, in bfloat16
bitwise_invert = _unary(np.invert)
sqrt = _unary(np.sqrt)
floor = _unary(np.floor)
ceil = _unary(np.ceil)
trunc = _unary(np.trunc)
round = _unary(np.rint)  # noqa: A001
isnan = _compare(lambda x: np.isnan(x) if x.dtype.kind not in "biu" else np.zeros(x.shape, bool))
isinf = _compare(lambda x: np.isinf(x) if x.dtype.kind not in "biu" else np.zeros(x.shape, bool))
signbit = _compare(lambda x: x < 0 if x.dtype.kind in "biu" else np.signbit(x))
exp, exp2, expm1 = _unary(np.exp), _unary(np.exp2), _unary(np.expm1)
log, log2, log1p = _unary(np.log), _unary(np.log2), _unary(np.log1p)
sin, cos, tan = _unary(np.sin), _unary(np.cos), _unary(np.tan)
asin, acos, atan = _unary(np.arcsin), _unary(np.arccos), _unary(np.arctan)
sinh, cosh, tanh = _unary(np.sinh), _unary(np.cosh), _unary(np.tanh)
asinh, acosh, atanh = _unary(np.arcsinh), _unary(np.arccosh), _unary(np.arctanh)


def _erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)) if x.size else x


erf = _unary(_erf)


def where(arrays, attrs):
    return np.where(*arrays)


def cast(arrays, attrs):
    (x,) = arrays
    target = attrs.dtype.numpy
    if as_dtype(x.dtype).is_float and attrs.dtype.is_integer:
        with np.errstate(**_QUIET):
            wide = x.astype(np.float64)
            if attrs.dtype.name == "uint64":
                high = wide >= 2.0**63
                low = np.where(high, wide - 2.0**63, wide).astype(np.int64).astype(np.uint64)
                return np.where(high, low + np.uint64(2**63), low)
            return wide.astype(np.int64).astype(target)
    with np.errstate(**_QUIET):
        return x.astype(target)


def bitcast(arrays, attrs):
    return np.ascontiguousarray(arrays[0]).view(attrs.dtype.numpy).reshape(arrays[0].shape)


def reshape(arrays, attrs):
    return arrays[0].reshape(attrs.shape)


def permute(arrays, attrs):
    return arrays[0].transpose(attrs.axes)


def expand(arrays, attrs):
    return np.broadcast_to(arrays[0], attrs.shape)


def slice_(arrays, attrs):
    (x,) = arrays
    for axis, (start, stop, step) in enumerate(zip(*attrs)):
        x = np.take(x, np.arange(start, stop, step), axis=axis)
    return x


def pad(arrays, attrs):
    (x,) = arrays
    shape = tuple(lo + hi + n + max(n - 1, 0) * mid for n, lo, hi, mid in zip(x.shape, *attrs))
    out = np.zeros(shape, x.dtype)
    where_to = tuple(slice(lo, lo + n + max(n - 1, 0) * mid, mid + 1)
                     for n, lo, _, mid in zip(x.shape, *attrs))
    out[where_to] = x
    return out


def shear(arrays, attrs):
    (x,) = arrays
    k = np.arange(x.shape[attrs.axis + 1])
    p = np.arange(attrs.size)
    moved = np.moveaxis(x, (attrs.axis, attrs.axis + 1), (0, 1))
    read = moved[p[:, None] * attrs.stride + k[None, :] * attrs.dilation, k[None, :]]
    return np.moveaxis(read, (0, 1), (attrs.axis, attrs.axis + 1))


def unshear(arrays, attrs):
    (x,) = arrays
    moved = np.moveaxis(x, (attrs.axis, attrs.axis + 1), (0, 1))
    p, k = np.meshgrid(np.arange(moved.shape[0]), np.arange(moved.shape[1]), indexing="ij")
    i = p * attrs.stride + k * attrs.dilation
    out = np.zeros((attrs.size, *moved.shape[1:]), x.dtype)
    keep = i < attrs.size
    out[i[keep], k[keep]] = moved[p[keep], k[keep]]
    return np.moveaxis(out, (0, 1), (attrs.axis, attrs.axis + 1))


def concat(arrays, attrs):
    return np.concatenate(arrays, axis=attrs.axis)


def gather(arrays, attrs):
    x, *indices = arrays
    return x[tuple(np.clip(i, 0, max(n - 1, 0)) for i, n in zip(indices, x.shape))]


def scatter(arrays, attrs):
    x, updates, *indices = arrays
    out = x.copy()
    inside = np.ones(indices[0].shape, bool)
    for i, n in zip(indices, x.shape):
        inside &= (i >= 0) & (i < n)
    where_to = tuple(i[inside] for i in indices)
    values = updates[inside]
    if attrs.mode == "set":
        for row in range(len(values)):
            out[tuple(i[row] for i in where_to)] = values[row]
    else:
        function = {"add": np.add, "multiply": np.multiply, "max": np.maximum,
                    "min": np.minimum}[attrs.mode]
        with np.errstate(**_QUIET):
            function.at(out, where_to, values)
    return out


def reduce(arrays, attrs):
    (x,) = arrays
    axes = tuple(attrs.axes)
    with np.errstate(**_QUIET):
        if attrs.kind.startswith("arg"):
            return np.asarray(getattr(np, attrs.kind)(x, axis=axes[0])).astype(np.int64)
        if attrs.kind in ("sum", "prod"):
            wide = accumulator(as_dtype(x.dtype)).numpy
            return np.asarray(getattr(np, attrs.kind)(x, axis=axes, dtype=wide)).astype(x.dtype)
        # an empty result is allowed where nothing is reduced over
        function = np.maximum if attrs.kind == "max" else np.minimum
        return np.asarray(function.reduce(x, axis=axes)) if axes else x


def cumulate(arrays, attrs):
    (x,) = arrays
    function = {"sum": np.add, "prod": np.multiply, "max": np.maximum,
                "min": np.minimum}[attrs.kind]
    with np.errstate(**_QUIET):
        wide = x.astype(accumulator(as_dtype(x.dtype)).numpy, copy=False)
        return function.accumulate(wide, axis=attrs.axis).astype(x.dtype) if x.size else x.copy()


def call(arrays, attrs):
    return np.asarray(attrs.function(*arrays), order="C").astype(attrs.dtype.numpy, copy=False)
