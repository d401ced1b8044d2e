"""log, log2, log1p and their inverses hyperbolic: asinh, acosh, atanh.

``x = 2**k m`` with m between sqrt(1/2) and sqrt(2), f = m - 1. float32 takes a minimax polynomial
in f; float64 one in s*s with s = f / (2 + f), where log(m) = 2s + s**3 L(s*s) (Remez exchange).
"""

from __future__ import annotations

import math

from tilewright.lower.math.number import (
    Number,
    copysign,
    fast_two_sum,
    fma,
    polynomial,
    two_product,
    two_sum,
    where,
)

_F32 = (0.3333331346511841, -0.25000008940696716, 0.2000211775302887, -0.16667993366718292,
        0.14219558238983154, -0.12405604869127274, 0.11888157576322556, -0.11675635725259781,
        0.06746648252010345)
_L64 = (0.6666666666666735, 0.3999999999941245, 0.28571428742984367, 0.2222219850137755,
        0.1818356859444751, 0.15313928266038979, 0.14797296684236913)
_LN2_32 = (0.693359375, -2.12194440e-4)
_LN2_64 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
_LOG2E = (1.4426950408889634, 2.0355273740931033e-17)


def split(x: Number) -> tuple[Number, Number]:
    """Return (k, m): x = 2**k m, k as a float, for positive finite x, subnormals included."""
    single = x.dtype.bits == 32
    fraction, least = (23, 2.0**-126) if single else (52, 2.0**-1022)
    half = 0x3F3504F3 if single else 0x3FE6A09E667F3BCD  # sqrt(1/2)
    tiny = x < least
    bits = where(tiny, x * 2.0**fraction, x).bits()
    k = (bits - half) >> fraction
    m = (bits - (k << fraction)).as_float()
    return k.to(x.dtype) - where(tiny, m.const(fraction), 0.0), m


def _finish(x: Number, result: Number) -> Number:
    """Return the result where x is positive and finite, and what logarithms give elsewhere."""
    outside = where(x.eq(0), x.const(-math.inf), math.nan)
    return where(x > 0, where(x < math.inf, result, x), outside)


def _tail32(f: Number) -> Number:
    """Return log(1 + f) - f in float32."""
    z = f * f
    return fma(z, -0.5, f * z * polynomial(f, _F32))


def _odd(f: Number, z_half: Number) -> Number:
    """Return log(1 + f) - (f - f*f/2) in float64; z_half is f*f/2."""
    s = f / (f + 2.0)
    z = s * s
    return s * (z_half + z * polynomial(z, _L64))


def log(x: Number) -> Number:
    k, m = split(x)
    f = m - 1.0
    if x.dtype.bits == 32:
        high, low = _LN2_32
        return _finish(x, fma(k, high, f + fma(k, low, _tail32(f))))
    return _finish(x, _assemble(k, f, None))


def _assemble(k: Number, f: Number, low: Number | None) -> Number:
    """Return k ln 2 + log(1 + f) + low in float64."""
    z_half = f * f * 0.5
    rest = fma(k, _LN2_64[1], low) if low is not None else k * _LN2_64[1]
    return fma(k, _LN2_64[0], f - (z_half - (_odd(f, z_half) + rest)))


def log2(x: Number) -> Number:
    k, m = split(x)
    f = m - 1.0
    if x.dtype.bits == 32:
        return _finish(x, fma(f + _tail32(f), _LOG2E[0], k))
    z_half = f * f * 0.5
    high = f - z_half
    low = ((f - high) - z_half) + _odd(f, z_half)
    product, lost = two_product(high, high.const(_LOG2E[0]))
    lost = fma(high, _LOG2E[1], fma(low, _LOG2E[0], lost))
    total, rest = fast_two_sum(k, product)
    return _finish(x, total + (rest + lost))


def log1p(x: Number) -> Number:
    """Return log(1 + x) in float64."""
    result = log1p_pair(x, None)
    result = where(x > -1.0, where(x < math.inf, result, x), x.const(math.nan))
    result = where(x.eq(-1.0), x.const(-math.inf), result)
    return where(x.eq(0), x, result)


def log1p_pair(high: Number, low: Number | None) -> Number:
    """Return log(1 + high + low) in float64 for finite values with a positive sum."""
    u, lost = two_sum(high, high.const(1.0))
    if low is not None:
        lost = lost + low
    k, m = split(u)
    return _assemble(k, m - 1.0, lost / u)


def asinh(x: Number) -> Number:
    """Return asinh(x) = log1p(|x| + x*x / (1 + sqrt(1 + x*x))) in float64.

    The argument is held in two parts; beyond 2**28 it is 2|x|.
    """
    size = x.abs()
    large = size > 2.0**28
    a = where(large, size.const(1.0), size)
    square, square_low = two_product(a, a)
    t, t_low = two_sum(square, square.const(1.0))
    root, root_low = _root(t, t_low + square_low)
    d, d_low = fast_two_sum(root, root.const(1.0))
    q = square / d
    q_low = (fma(-q, d, square) + square_low - q * (d_low + root_low)) / d
    sum_, lost = fast_two_sum(a, q)
    near = log1p_pair(sum_, lost + q_low)
    result = where(large, log(size) + math.log(2), near)
    return where(x.eq(0), x, copysign(result, x))


def _root(high: Number, low: Number) -> tuple[Number, Number]:
    """Return the square root of high + low in two parts; 0 where it is 0."""
    root = high.sqrt()
    lost = (fma(-root, root, high) + low) / (root + root)
    return root, where(root.eq(0), lost.const(0.0), lost)


def acosh(x: Number) -> Number:
    """Return acosh(x) = log1p(t + sqrt(t*t + 2t)), t = x - 1, in float64."""
    large = x > 2.0**28
    t = where(large, x.const(1.0), x) - 1.0
    square, square_low = two_product(t, t)
    sum_, lost = two_sum(t + t, square)
    root, root_low = _root(sum_, lost + square_low)
    high, low = two_sum(t, root)
    near = log1p_pair(high, low + root_low)
    result = where(large, log(x) + math.log(2), near)
    return where(x >= 1.0, result, x.const(math.nan))


def atanh(x: Number) -> Number:
    """Return atanh(x) = log1p(2|x| / (1 - |x|)) / 2 in float64."""
    size = x.abs()
    inside = where(size < 1.0, size, size.const(0.5))
    top = inside + inside
    d, d_low = two_sum(-inside, inside.const(1.0))
    q = top / d
    q_low = (fma(-q, d, top) - q * d_low) / d
    result = log1p_pair(q, q_low) * 0.5
    result = where(size < 1.0, result, where(size.eq(1.0), x.const(math.inf), math.nan))
    return where(x.eq(0), x, copysign(result, x))
