"""sin, cos, tan, and asin, acos, atan, atan2.

sin and cos are minimax polynomials on [-pi/4, pi/4]; asin is one on [0, 1/2], atan one on
[0, tan(pi/8)] (Remez exchange, error relative to the function).
"""

from __future__ import annotations

import math

from tilewright.dtypes import float32, float64, int32
from tilewright.lower.math.number import (
    Number,
    copysign,
    fast_two_sum,
    fma,
    polynomial,
    sign_bit,
    where,
)
from tilewright.lower.math.reduction import reduce

_SIN32 = (-0.1666666716337204, 0.008333329111337662, -0.0001983930415008217,
          2.7180462893738877e-06)
_COS32 = (0.0416666679084301, -0.0013888883404433727, 2.479945214872714e-05,
          -2.7205044261791045e-07)
_SIN64 = (-0.1666666666666663, 0.00833333333332202, -0.00019841269829505836,
          2.7557313590683696e-06, -2.5050742710946057e-08, 1.5895924199933898e-10)
_COS64 = (0.041666666666666595, -0.0013888888888872902, 2.480158728875082e-05,
          -2.755731414919193e-07, 2.087569663012162e-09, -1.1358312678359858e-11)
_ASIN = (0.1666666666666676, 0.07499999999970633, 0.044642857174779116, 0.030381942699375473,
         0.022372215234765576, 0.017351607400918498, 0.013980877827600005, 0.011398427978611245,
         0.010783051369515058, 0.003695528107003427, 0.021734655134856076,
         -0.021038581921550677, 0.032653960202800474)
_ATAN = (-0.3333333333333319, 0.1999999999995282, -0.14285714280121414, 0.11111110779802373,
         -0.09090897655156936, 0.07692058431341679, -0.06663084177468007, 0.05847747206951652,
         -0.05038674040336377, 0.03804874846006091, -0.017890094716065754)
_PI_LOW = 1.2246467991473532e-16  # pi - math.pi


def _sin_cos32(x: Number) -> tuple[Number, Number, Number]:
    """Return (quadrant, sin, cos) of the rest of a float32 angle."""
    quadrant, r, _ = reduce(x.to(float64))
    r = r.to(float32)
    z = r * r
    sin = fma(r * z, polynomial(z, _SIN32), r)
    cos = fma(z * z, polynomial(z, _COS32), fma(z, -0.5, 1.0))
    return quadrant.to(int32), sin, cos


def _pairs(x: Number) -> tuple[Number, Number, Number, Number, Number]:
    """Return (quadrant, sin, its rest, cos, its rest) of the rest of a float64 angle.

    sin(r + low) = sin r + low cos r, cos(r + low) = cos r - low r to the precision kept.
    """
    quadrant, r, low = reduce(x)
    z = r * r
    sin_rest = fma(r * z, polynomial(z, _SIN64), fma(low * z, -0.5, low))
    half = z * 0.5
    one = 1.0 - half
    cos_rest = fma(z * z, polynomial(z, _COS64), -(r * low)) + ((1.0 - one) - half)
    return quadrant, r, sin_rest, one, cos_rest


def _sin_cos(x: Number) -> tuple[Number, Number, Number]:
    """Return (quadrant, sin, cos) of the angle's rest, in the dtype of x."""
    if x.dtype.bits == 32:
        return _sin_cos32(x)
    quadrant, sin, sin_rest, cos, cos_rest = _pairs(x)
    return quadrant, sin + sin_rest, cos + cos_rest


def _turn(quadrant: Number, even: Number, odd: Number) -> Number:
    """Return even or odd by the quadrant's last bit, negated where its second is set."""
    chosen = where((quadrant & 1).eq(0), even, odd)
    flip = (quadrant & 2) << (quadrant.dtype.bits - 2)
    return (chosen.bits() ^ flip).as_float()


def sin(x: Number) -> Number:
    quadrant, s, c = _sin_cos(x)
    return where(x.eq(0), x, _turn(quadrant, s, c))


def cos(x: Number) -> Number:
    quadrant, s, c = _sin_cos(x)
    return _turn(quadrant + 1, s, c)


def tan(x: Number) -> Number:
    """Return tan(x) in float64: sin / cos or -cos / sin, the quotient corrected once."""
    quadrant, *parts = _pairs(x)
    s, s_low = fast_two_sum(*parts[:2])
    c, c_low = fast_two_sum(*parts[2:])
    even = (quadrant & 1).eq(0)
    top, top_low = where(even, s, -c), where(even, s_low, -c_low)
    bottom, bottom_low = where(even, c, s), where(even, c_low, s_low)
    q = top / bottom
    rest = (fma(-q, bottom, top) + fma(-q, bottom_low, top_low)) / bottom
    return where(x.eq(0), x, q + rest)


def _asin_core(z: Number) -> Number:
    """Return (asin(x) - x) / x of z = x*x <= 1/4."""
    return z * polynomial(z, _ASIN)


def _complement(size: Number) -> tuple[Number, Number, Number]:
    """Return (z, root, its rest): z = (1 - |x|) / 2, root + rest = sqrt(z)."""
    z = fma(size, -0.5, 0.5)
    root = z.sqrt()
    rest = fma(-root, root, z) / (root + root)
    return z, root, where(root.eq(0), rest.const(0.0), rest)


def asin(x: Number) -> Number:
    """Return asin(x) in float64: beyond 1/2 it is pi/2 - 2 asin(sqrt((1 - |x|) / 2))."""
    size = x.abs()
    near = size <= 0.5
    z, root, rest = _complement(size)
    p = _asin_core(where(near, x * x, z))
    far = (math.pi / 2) - ((root + root) - (_PI_LOW / 2 - 2.0 * fma(root, p, rest)))
    return copysign(where(near, fma(size, p, size), far), x)


def acos(x: Number) -> Number:
    """Return acos(x) in float64: pi/2 - asin(x), or twice asin(sqrt((1 - |x|) / 2))."""
    size = x.abs()
    near = size <= 0.5
    z, root, rest = _complement(size)
    p = _asin_core(where(near, x * x, z))
    middle = (math.pi / 2) - (x - (_PI_LOW / 2 - x * p))
    twice = 2.0 * (root + fma(root, p, rest))
    left = math.pi - (twice - _PI_LOW)
    return where(near, middle, where(x < 0, left, twice))


def _atan_core(t: Number) -> Number:
    """Return atan(t) - t for |t| <= tan(pi/8)."""
    z = t * t
    return t * (z * polynomial(z, _ATAN))


def _quotient_atan(y: Number, x: Number) -> tuple[Number, Number, Number]:
    """Return (base, t, atan(t) - t) with atan(y / x) = base + atan(t); y and x nonnegative.

    base is 0, pi/4 or pi/2: t is y/x, (y - x) / (y + x) or -x/y.
    """
    steep, flat = y > x * (1 + math.sqrt(2)), y < x * (math.sqrt(2) - 1)
    top = where(flat, y, where(steep, -x, y - x))
    bottom = where(flat, x, where(steep, y, y + x))
    base = where(flat, x.const(0.0), where(steep, x.const(math.pi / 2), math.pi / 4))
    t = top / bottom
    return base, t, _atan_core(t)


def atan(x: Number) -> Number:
    """Return atan(x) in float64."""
    base, t, rest = _quotient_atan(x.abs(), x.const(1.0))
    return copysign(base + (t + fma(base, _PI_LOW / math.pi, rest)), x)


def atan2(y: Number, x: Number) -> Number:
    """Return the angle of (x, y) in float64, signed zeros and infinities as C's atan2."""
    a, b = y.abs(), x.abs()
    both = (a.eq(math.inf)) & (b.eq(math.inf))
    a, b = where(both, a.const(1.0), a), where(both, b.const(1.0), b)
    b = where(a.eq(0) & b.eq(0), b.const(1.0), b)
    # keep a + b finite
    shrink = where(a.max(b) > 2.0**1000, a.const(2.0**-30), 1.0)
    base, t, rest = _quotient_atan(a * shrink, b * shrink)
    left = sign_bit(x) < 0
    base = where(left, math.pi - base, base)
    t, rest = where(left, -t, t), where(left, -rest, rest)
    result = base + (t + fma(base, _PI_LOW / math.pi, rest))
    result = where(y.isnan() | x.isnan(), y + x, result)
    return where(result.isnan(), result, copysign(result, y))


