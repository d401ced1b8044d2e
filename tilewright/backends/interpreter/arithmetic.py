"""Operations that NumPy does not have: fused multiply-add, C's division, shuffles, fragments.

All take NumPy arrays or NumPy scalars and return the like. Floating point warnings are off where
these run.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

_F8 = np.dtype(np.float64)
_SPLITTER = float(2**27 + 1)
_FAR = 2.0**400  # factors within 1/_FAR.._FAR split and multiply without underflow or overflow


def _nudge(near, error, word):
    """Return `near` rounded to odd instead of nearest, where its exact value is near + error."""
    wrong = (error != 0) & np.isfinite(near) & np.isfinite(error) & (near != 0)
    if not np.any(wrong):
        return near
    bits = near.view(word)
    step = np.where((error > 0) == (near > 0), word(1), word(-1))
    return np.where(wrong & (bits & word(1) == 0), bits + step, bits).view(near.dtype)[()]


def _two_sum(x, y):
    s = x + y
    t = s - x
    return s, (x - (s - t)) + (y - t)


def _sum_to_odd(x, y):
    return _nudge(*_two_sum(x, y), np.int64)


def fma(a, b, c):
    """Return a*b + c rounded once, for any float dtype.

    Up to 32 bits the product is exact in float64, and a sum rounded to odd can be rounded again.
    """
    dtype = a.dtype
    if dtype == _F8:
        return _fma64(a, b, c)
    wide = _sum_to_odd(a.astype(_F8) * b.astype(_F8), c.astype(_F8))
    if dtype.name == "bfloat16":  # its conversion from float64 goes through float32
        near = wide.astype(np.float32)
        wide = _nudge(near, wide - near.astype(_F8), np.int32)
    return wide.astype(dtype)


def _fma64(a, b, c):
    a, b, c = (np.atleast_1d(x) for x in (a, b, c)) if a.ndim == 0 else (a, b, c)
    scalar = a.ndim == 1 and a.size == 1
    finite = np.isfinite(a) & np.isfinite(b)
    plain = np.where(finite & ~np.isfinite(c), c, a * b + c)
    exact = finite & np.isfinite(c) & (a != 0) & (b != 0)
    near = exact & (np.abs(c) <= _FAR * _FAR)
    for x in (a, b):
        near &= (np.abs(x) <= _FAR) & (np.abs(x) >= 1 / _FAR)
    out = np.where(near, _fma64_near(a, b, c), plain)
    for i in np.flatnonzero(exact & ~near):
        out[i] = _fma64_exact(float(a[i]), float(b[i]), float(c[i]))
    return out[0] if scalar else out


def _fma64_near(a, b, c):
    """Boldo and Melquiond's way: sum the product, its error and c; the small parts to odd."""
    ta, tb = _SPLITTER * a, _SPLITTER * b
    ah, bh = ta - (ta - a), tb - (tb - b)
    al, bl = a - ah, b - bh
    p = a * b
    e = al * bl - (((p - ah * bh) - al * bh) - ah * bl)
    th, tl = _two_sum(c, e)
    vh, vl = _two_sum(p, th)
    return vh + _sum_to_odd(tl, vl)


def _fma64_exact(a: float, b: float, c: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return 0.0
    try:
        size = float(abs(exact))
    except OverflowError:
        size = math.inf
    return size if exact > 0 else -size


def idiv(a, b):
    """Return the quotient of integers rounded towards zero."""
    return ((a - np.fmod(a, b)) // b).astype(a.dtype)


def shuffle(x, y, lanes):
    """Return lanes of x then y; -1 gives a value that nobody should use."""
    x, y = np.atleast_1d(x), np.atleast_1d(y)
    out = np.concatenate((x, y, garbage(1, x.dtype)))[lanes]
    return out if len(lanes) > 1 else out[0]


def garbage(elements: int, dtype: np.dtype) -> np.ndarray:
    """Return what undefined memory holds here: NaN, -1 or the largest unsigned, True."""
    if dtype == np.bool_:
        return np.ones(elements, dtype)
    return np.full(elements * dtype.itemsize, 0xFF, np.uint8).view(dtype)


def mma(a, b, acc, shape):
    """Return acc + a @ b of row-major tiles, summed in float64 or int64, rounded once."""
    m, n, k = shape
    wide = np.int64 if acc.dtype.kind in "iu" else _F8
    total = a.astype(wide).reshape(m, k) @ b.astype(wide).reshape(k, n)
    return (total.ravel() + acc.astype(wide)).astype(acc.dtype)
