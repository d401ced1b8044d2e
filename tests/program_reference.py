"""What steps of random programs mean, in NumPy, and how far from it a right answer may be.

A `Value` is an array and a bound on its error. Arithmetic that IEEE 754 fixes has no error: it is
compared bit by bit, and may be fed to what is not continuous (roundings, comparisons, arg-max).
Everything else carries an absolute bound through the steps that follow; infinity means unknown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np

WIDE = np.longdouble
FLOATS = ("float16", "bfloat16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
NAMES = ("bool", *SIGNED, *UNSIGNED, *FLOATS)
DTYPES = {n: np.dtype(ml_dtypes.bfloat16 if n == "bfloat16" else n) for n in NAMES}
BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
LEAST = {"float16": -14, "bfloat16": -126, "float32": -126, "float64": -1022}
LARGEST = {n: WIDE(2) ** (-LEAST[n] + 1) * (2 - WIDE(2) ** (1 - BITS[n])) for n in FLOATS}
ULPS = 2.5  # of a transcendental: 2 promised, and half for the rounding of the reference


@dataclass
class Value:
    """A value of a program.

    error     absolute bound per element, float64; None where the bits are known
    rounded   whether a product was rounded on the way, which a fused multiply-add does not do
    """

    name: str
    array: np.ndarray
    error: np.ndarray | None = None
    rounded: bool = False

    @property
    def dtype(self) -> str:
        return self.array.dtype.name

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def is_integer(self) -> bool:
        return self.dtype in SIGNED + UNSIGNED

    @property
    def exact(self) -> bool:
        return self.error is None

    @property
    def slack(self) -> np.ndarray:
        """The error as an array."""
        return np.zeros(self.array.shape) if self.error is None else self.error


# --- dtypes and rounding


def promote(a: str, b: str) -> str:
    """Return the dtype of a step on dtypes `a` and `b`."""
    floats = [d for d in (a, b) if d in FLOATS]
    if len(floats) == 2 and {a, b} == {"float16", "bfloat16"}:
        return "float32"
    if floats:
        return max(floats, key=lambda d: DTYPES[d].itemsize)
    return np.promote_types(a, b).name


def accumulator(name: str) -> str:
    return "float32" if name in ("float16", "bfloat16") else name


def unit(x: np.ndarray, name: str) -> np.ndarray:
    """Return the distance of neighbouring floats of dtype `name` around finite x."""
    x = np.asarray(x, WIDE)
    exponent = np.where(x == 0, LEAST[name], np.frexp(x)[1] - 1)
    return np.ldexp(WIDE(1), np.maximum(exponent, LEAST[name]) - BITS[name] + 1)


def rounded_to(x: np.ndarray, name: str) -> np.ndarray:
    """Return x rounded to nearest, ties to even, overflow to infinity."""
    x = np.asarray(x, WIDE)
    finite = np.isfinite(x)
    safe = np.where(finite, x, 0)
    step = unit(safe, name)
    near = np.copysign(np.rint(safe / step) * step, safe)
    near = np.where(np.abs(near) > LARGEST[name], np.copysign(WIDE(np.inf), safe), near)
    near = np.where(finite, near, x)
    if DTYPES[name].itemsize == 2:
        near = near.astype(np.float32)
    return near.astype(DTYPES[name])


def convert(x: np.ndarray, name: str) -> np.ndarray:
    """Return x as dtype `name`; floats made integers must be finite and below 2**63."""
    source = x.dtype.name
    if name == source:
        return x
    if name == "bool":
        return x != DTYPES[source].type(0)
    if name in FLOATS:
        return rounded_to(x.astype(WIDE), name)
    if source in FLOATS:
        return np.trunc(x.astype(WIDE)).astype(np.int64).astype(name)
    return x.astype(name)


def native(function, *arrays: np.ndarray) -> np.ndarray:
    """Apply a function in the arrays' dtype; bfloat16 is computed in float32 and rounded."""
    name = arrays[0].dtype.name
    wide = [a.astype(np.float32) if name == "bfloat16" else a for a in arrays]
    with np.errstate(all="ignore"):
        result = np.asarray(function(*wide))
    if name != "bfloat16":
        return result
    return result if result.dtype == bool else rounded_to(result, name)


def bounded(result: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return the error, unknown where the result might overflow or was not finite by chance."""
    name = result.dtype.name
    wide = np.abs(result.astype(WIDE))
    error = np.where(np.isnan(error), np.inf, np.asarray(error, np.float64))
    close = np.isfinite(wide) & ~(wide + error < LARGEST[name] * (1 - WIDE(2) ** (3 - BITS[name])))
    lost = ~np.isfinite(wide) & (error > 0)
    return np.where(close | lost, np.inf, error)


def step_of(result: np.ndarray) -> np.ndarray:
    """Return the rounding error of a result; 0 where it is not finite."""
    wide = result.astype(WIDE)
    finite = np.isfinite(wide)
    step = unit(np.where(finite, wide, 0), result.dtype.name).astype(np.float64)
    return np.where(finite, step, 0)


# --- elementwise


def floor_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.name in FLOATS:
        return _short(np.floor_divide, a, b)
    pairs = [x // y if y else 0 for x, y in zip(a.ravel().tolist(), b.ravel().tolist())]
    return wrapped(pairs, a)


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.name in FLOATS:
        return _short(np.remainder, a, b)
    return wrapped([x % y if y else 0 for x, y in zip(a.ravel().tolist(), b.ravel().tolist())], a)


def _short(function, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.itemsize > 2:
        return function(a, b)
    return rounded_to(function(a.astype(np.float32), b.astype(np.float32)), a.dtype.name)


def wrapped(integers: list[int], like: np.ndarray) -> np.ndarray:
    """Return Python integers wrapped to the dtype and shape of `like`."""
    bits = like.dtype.itemsize * 8
    raw = np.array([i % 2**bits for i in integers], f"uint{bits}")
    return raw.view(like.dtype).reshape(like.shape)


def power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return integer powers; a negative exponent gives the integer part of the true value."""
    bits = a.dtype.itemsize * 8

    def one(x: int, n: int) -> int:
        if n >= 0:
            return pow(x, n, 2**bits)
        return {1: 1, -1: -1 if n % 2 else 1}.get(x, 0)
    return wrapped([one(x, n) for x, n in zip(a.ravel().tolist(), b.ravel().tolist())], a)


def shift(left: bool):
    def function(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bits = a.dtype.itemsize * 8

        def one(x: int, n: int) -> int:
            if not 0 <= n < bits:
                return 0 if left or x >= 0 else -1
            return x << n if left else x >> n
        return wrapped([one(x, n) for x, n in zip(a.ravel().tolist(), b.ravel().tolist())], a)
    return function


_ERF = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: np.ndarray) -> np.ndarray:
    return _ERF(x.astype(np.float64)) if x.size else x


TRANSCENDENTAL = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log1p": np.log1p, "log10": np.log10, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "erf": erf,
}
# The greatest slope of those that may take an inexact argument.
SLOPES = {"sin": 1, "cos": 1, "atan": 1, "tanh": 1, "asinh": 1, "erf": 1.13}


def transcendental(function, arrays: list[np.ndarray], ulps: float = ULPS):
    """Return the rounded true value and its error."""
    name = arrays[0].dtype.name
    true = np.asarray(function(*(a.astype(WIDE) for a in arrays)), WIDE)
    result = rounded_to(true, name)
    edge = np.isfinite(true) & (np.abs(true / LARGEST[name] - 1) < WIDE(2) ** (3 - BITS[name]))
    return result, np.where(edge, np.inf, bounded(result, ulps * step_of(result)))


def binary_error(op: str, a: Value, b: Value, result: np.ndarray) -> np.ndarray | None:
    """Return the error of add, subtract, multiply, divide, maximum or minimum."""
    if a.exact and b.exact:
        return None
    x, y = (np.abs(v.array.astype(np.float64)) for v in (a, b))
    dx, dy = a.slack, b.slack
    if op in ("add", "subtract"):
        error = dx + dy + step_of(result)
    elif op == "multiply":
        error = x * dy + y * dx + dx * dy + step_of(result)
    elif op == "divide":
        room = np.where(dy > 0, np.maximum(y - dy, 0), y)
        error = (dx + np.abs(result.astype(np.float64)) * dy) / room + step_of(result)
    else:
        return np.where(np.isnan(result.astype(WIDE)) & (dx + dy > 0), np.inf, np.maximum(dx, dy))
    return bounded(result, error)


# --- reductions: each returns (array, error)


def total(v: Value, run, target: str):
    """Sum by `run` (a sum or running sum of an array) in dtype `target`."""
    if target not in FLOATS:
        return run(v.array.astype(target)), None
    wide = v.array.astype(WIDE)
    finite = np.isfinite(wide)
    result = rounded_to(run(wide), target)
    size = run(np.where(finite, np.abs(wide), 0))
    acc = accumulator(target)
    whole = finite.all() and (wide == np.rint(wide)).all() and v.exact and not v.rounded
    if whole and (size < WIDE(2) ** BITS[acc]).all():
        return result, None
    count = run(np.ones(wide.shape))
    eps = 2.0 ** (1 - BITS[acc])
    least = 2.0 ** (LEAST[acc] - BITS[acc] + 1)
    error = run(v.slack) + (count + 3) * (eps * size.astype(np.float64) + least) + step_of(result)
    if (v.exact and not v.rounded):
        error = np.where(np.isfinite(result.astype(WIDE)), error, 0)
    return result, np.where(size > LARGEST[acc] / 4, np.inf, bounded(result, error))


def product(v: Value, run, target: str):
    """Multiply by `run` (a product or running product) in dtype `target`; v is exact."""
    if target not in FLOATS:
        return run(v.array.astype(target)), None
    wide = v.array.astype(WIDE)
    plain = np.isfinite(wide) & (wide != 0)
    result = rounded_to(run(wide), target)
    acc = accumulator(target)
    spread = np.log2(np.where(plain, np.abs(wide), 1))
    far = np.log2(run(np.exp2(np.minimum(np.abs(spread), 4000))))  # no partial product beyond
    count = np.log2(run(np.full(wide.shape, WIDE(2))))
    error = count.astype(np.float64) * 2.0 ** (1 - BITS[acc]) * np.abs(
        result.astype(np.float64)) + step_of(result)
    error = np.where(np.isfinite(result.astype(WIDE)), error, 0)
    return result, np.where(far > -LEAST[acc] - 3, np.inf, bounded(result, error))


def matmul(a: Value, b: Value):
    """Multiply two matrices of one dtype."""
    name = a.dtype
    if name == "bool":
        return (a.array.astype(np.int64) @ b.array.astype(np.int64)) != 0, None
    if name not in FLOATS:
        return np.matmul(a.array, b.array), None
    x, y = a.array.astype(WIDE), b.array.astype(WIDE)
    acc, count = accumulator(name), x.shape[-1]
    result = rounded_to(np.matmul(x, y), name)
    flat_x, flat_y = (np.where(np.isfinite(v), np.abs(v), 0) for v in (x, y))
    size = np.matmul(flat_x, flat_y)
    known = a.exact and b.exact
    whole = known and all(np.isfinite(v).all() and (v == np.rint(v)).all() for v in (x, y))
    if whole and (size < WIDE(2) ** BITS[acc]).all():
        return result, None
    eps = 2.0 ** (1 - BITS[acc])
    least = 2.0 ** (LEAST[acc] - BITS[acc] + 1)
    error = (count + 3) * (eps * size.astype(np.float64) + least) + step_of(result)
    if known:
        error = np.where(np.isfinite(result.astype(WIDE)), error, 0)
    else:
        dx, dy = a.slack.astype(WIDE), b.slack.astype(WIDE)
        spread = np.matmul(np.abs(x), dy) + np.matmul(dx, np.abs(y)) + np.matmul(dx, dy)
        error = error + spread.astype(np.float64)
    return result, np.where(size > LARGEST[acc] / 4, np.inf, bounded(result, error))


# --- comparison


def mismatch(found: np.ndarray, v: Value) -> str | None:
    """Return what is wrong with `found`, or None."""
    if found.shape != v.array.shape or found.dtype != v.array.dtype:
        return f"{found.dtype}{found.shape} instead of {v.array.dtype}{v.array.shape}"
    if not v.is_float:
        bad = found != v.array
    else:
        x, y = found.astype(WIDE), v.array.astype(WIDE)
        both_nan = np.isnan(x) & np.isnan(y)
        if v.exact:
            bad = ~((x == y) & (np.signbit(x) == np.signbit(y))) & ~both_nan
        else:
            near = np.abs(x - y) <= v.slack
            bad = ~(both_nan | near | (x == y) | np.isinf(v.slack))
    if not bad.any():
        return None
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    return (f"{v.name}{list(place)} is {found[place]!r} instead of {v.array[place]!r} "
            f"+- {v.slack[place]!r} ({int(bad.sum())} of {bad.size} elements, {v.dtype})")
