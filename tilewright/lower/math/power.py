"""power of floats and of integers.

Floats: x**y = 2**(y log2 |x|) in float64. For float64 results log2 is held in two parts, good to
some 2**-64: log(m) = 2s (1 + z/3 + z*z/5 + ..) with s = (m - 1) / (m + 1), z = s*s, the leading
terms in two parts, the others a minimax polynomial (Remez exchange).
"""

from __future__ import annotations

import math

from tilewright.dtypes import BY_NAME, DType, float64
from tilewright.lower.math.exponential import exp2
from tilewright.lower.math.logarithm import log2, split
from tilewright.lower.math.number import (
    Number,
    fast_two_sum,
    fma,
    polynomial,
    sign_bit,
    two_product,
    two_sum,
    where,
)

_TAIL = (0.14285714285716594, 0.11111111110000568, 0.09090909303623614, 0.07692286376758421,
         0.06667884698260376, 0.05842451467620502, 0.05956104918164501)
_LOG2E = (1.4426950408889634, 2.0355273740931033e-17)
_THIRD = (1 / 3, 1.850371707708594e-17)


def _log2_pair(x: Number) -> tuple[Number, Number]:
    """Return log2 of a positive finite x in two parts."""
    k, m = split(x)
    f = m - 1.0
    d, d_low = two_sum(m, m.const(1.0))
    s = f / d
    s_low = (fma(-s, d, f) - s * d_low) / d
    z, z_low = two_product(s, s)
    z_low = fma(s + s, s_low, z_low)
    w = z * fma(z, polynomial(z, _TAIL), 0.2)
    t, t_low = fast_two_sum(w.const(_THIRD[0]), w)
    t_low = t_low + _THIRD[1]
    p, p_low = two_product(z, t)
    p_low = p_low + fma(z, t_low, z_low * t)
    a, a_low = fast_two_sum(p.const(1.0), p)
    a_low = a_low + p_low
    twice = s + s
    h, h_low = two_product(twice, a)
    h_low = h_low + fma(twice, a_low, (s_low + s_low) * a)
    g, g_low = two_product(h, h.const(_LOG2E[0]))
    g_low = g_low + fma(h, _LOG2E[1], h_low * _LOG2E[0])
    total, lost = fast_two_sum(k, g)
    return fast_two_sum(total, lost + g_low)


def _magnitude(size: Number, y: Number) -> Number:
    """Return size**y in float64 for a nonnegative size, by the rules of limits."""
    high, low = _log2_pair(size)
    outside = where(size.eq(0), size.const(-math.inf), size)
    normal = (size > 0) & (size < math.inf)
    high = where(normal, high, outside)
    product, lost = two_product(y, high)
    lost = fma(y, low, lost)
    return exp2(product, where(product.abs() < 2048.0, lost, lost.const(0.0)))


def power(x: Number, y: Number) -> Number:
    """Return x**y, with the special values of C's pow; float32 is computed in float64."""
    single = x.dtype.bits == 32
    dtype = x.dtype
    a, b = x.to(float64), y.to(float64)
    size = a.abs()
    result = exp2(b * log2(size)) if single else _magnitude(size, b)
    half = b * 0.5
    whole = b.trunc().eq(b)
    odd = whole & half.trunc().ne(half)
    sign = where(odd, sign_bit(a), sign_bit(a).const(0))
    result = (result.bits() ^ sign).as_float()
    result = where((a < 0) & (a > -math.inf) & ~whole, result.const(math.nan), result)
    result = where(size.eq(1.0) & b.abs().eq(math.inf), result.const(1.0), result)
    return where(a.eq(1.0) | b.eq(0), result.const(1.0), result).to(dtype)


def constant_power(x: Number, exponent: float) -> Number | None:
    """Return x**exponent by multiplication where that is within 2 ulp, else None."""
    if exponent == 1:
        return x
    if exponent == 2:
        return x * x
    if exponent == 3:
        return x * x * x
    if exponent == 4:
        square = x * x
        return square * square
    if exponent == -1:
        return 1.0 / x
    return x.const(1.0) if exponent == 0 else None


def integer_power(x: Number, y: Number) -> Number:
    """Return x**y modulo 2**bits by repeated squaring; a negative y gives the integer part."""
    builder, dtype = x.builder, x.dtype
    exponent = where(y < 0, y.const(0), y) if dtype.kind == "i" else y
    steps = dtype.bits - (dtype.kind == "i")
    inits = [x.const(1).instr, x.instr, exponent.instr]
    with builder.loop(0, steps, inits) as loop:
        result, base, rest = (Number(builder, c) for c in loop.carries)
        loop.yields = [where((rest & 1).ne(0), result * base, result).instr,
                       (base * base).instr, (rest >> 1).instr]
    result = Number(builder, builder.result(loop, 0))
    if dtype.kind == "u":
        return result
    unit = where((y & 1).ne(0), x, x.const(1))
    inverse = where((x + 1).view(_unsigned(x)) <= 2, where(x.eq(0), x, unit), 0)
    return where(y < 0, inverse, result)


def _unsigned(x: Number) -> DType:
    return BY_NAME[f"uint{x.dtype.bits}"]


def constant_integer_power(x: Number, exponent: int) -> Number | None:
    """Return x**exponent by a chain of squarings for a constant exponent >= 0."""
    if exponent < 0:
        return None
    result: Number | None = None
    while exponent:
        if exponent & 1:
            result = x if result is None else result * x
        exponent >>= 1
        if exponent:
            x = x * x
    return x.const(1) if result is None else result
