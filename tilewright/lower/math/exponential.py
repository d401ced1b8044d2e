"""exp, exp2, expm1, tanh, sinh and cosh.

``x = n ln 2 + r`` with |r| <= ln 2 / 2, by adding a large number, whose low bits then hold n; ln 2
is subtracted in two parts. exp(r) is a minimax polynomial (Remez exchange, relative error).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.lower.math.number import Number, copysign, fma, polynomial, where

_E32 = (0.4999999403953552, 0.1666651964187622, 0.041668400168418884, 0.00836885068565607,
        0.0013814360136166215)
_M32 = (0.5, 0.1666666716337204, 0.04166632518172264, 0.008333219215273857,
        0.0013943423982709646, 0.00019962689839303493)
_E64 = (0.5, 0.1666666666666668, 0.041666666666667324, 0.008333333333320155,
        0.0013888888888563468, 0.00019841269889745748, 2.4801587944410966e-05,
        2.7557240479656678e-06, 2.755676296482401e-07, 2.511039451146112e-08,
        2.1065751960834943e-09)
_SINH = (0.16666666666666666, 0.008333333333333333, 0.000198412698412696,
         2.7557319224116293e-06, 2.5052108346508225e-08, 1.6059050601360622e-10,
         7.646482889259057e-13, 2.8482331806649994e-15)

_TANH32 = (-0.33333298563957214, 0.13331924378871918, -0.053783874958753586,
           0.020796075463294983, -0.005895230453461409)
_TANH64 = (-0.33333333333333126, 0.13333333333299663, -0.05396825394929568,
           0.021869488002564098, -0.00886322677748891, 0.003592037379676097,
           -0.0014552153651947364, 0.000587188412340702, -0.00023039682183453012,
           7.931395828078492e-05, -1.7178726265535952e-05)


@dataclass(frozen=True)
class _Format:
    """A float format's constants: ln 2 in two parts, q of exp(r) = 1 + r + r*r*q(r), clamps."""

    bits: int  # of the fraction
    bias: int
    ln2: tuple[float, float]
    q: tuple[float, ...]
    q_minus: tuple[float, ...]
    low: float
    high: float

    def magic(self, extra: int) -> float:
        """Return what rounds to an integer when added, and holds n + extra in its low bits."""
        return 1.5 * 2.0**self.bits + extra


_SINGLE = _Format(23, 127, (0.693145751953125, 1.42860682030941723212e-6), _E32, _M32, -104., 89.)
_DOUBLE = _Format(52, 1023, (6.93147180369123816490e-01, 1.90821492927058770002e-10), _E64, _E64,
                  -746., 710.)


def _format(dtype: DType) -> _Format:
    return _SINGLE if dtype.bits == 32 else _DOUBLE


def _reduce(x: Number, form: _Format, extra: int) -> tuple[Number, Number]:
    """Return (integer with n + extra in its low bits, r)."""
    magic = form.magic(extra)
    shifted = fma(x, 1 / math.log(2), magic)
    n = shifted - magic
    r = fma(n, -form.ln2[1], fma(n, -form.ln2[0], x))
    return shifted.bits(), r


def _scale(p: Number, bits: Number, form: _Format) -> Number:
    """Return p * 2**n, right down to subnormals; bits hold n + 2 * bias.

    The power is applied in two halves, as one may be out of range.
    """
    half = bits >> 1
    rest = bits - half
    return p * (half << form.bits).as_float() * (rest << form.bits).as_float()


def _exp_small(r: Number, form: _Format) -> Number:
    """Return exp(r) for |r| <= ln 2 / 2."""
    return polynomial(r, (1.0, 1.0, *form.q)) if form is _SINGLE else \
        1.0 + fma(r * r, polynomial(r, form.q), r)


def exp(x: Number) -> Number:
    return exp_times(x, 0)


def exp_times(x: Number, power: int) -> Number:
    """Return exp(x) * 2**power."""
    form = _format(x.dtype)
    x = x.min(form.high - power).max(form.low - power)
    bits, r = _reduce(x, form, 2 * form.bias)
    return _scale(_exp_small(r, form), bits + power if power else bits, form)


def exp2(x: Number, low: Number | None = None) -> Number:
    """Return 2**(x + low); low is a correction below the last bit of x."""
    form = _format(x.dtype)
    x = x.min(form.high * 1.5).max(form.low * 1.5)
    magic = form.magic(2 * form.bias)
    shifted = x + magic
    r = (x - (shifted - magic)) * math.log(2)
    if low is not None:
        r = fma(low, math.log(2), r)
    return _scale(_exp_small(r, form), shifted.bits(), form)


def _half_expm1(x: Number, high: float) -> Number:
    """Return expm1(x) / 2 for x <= high; it fits where expm1 itself just does not."""
    form = _format(x.dtype)
    x = x.min(high).max(-1.5 * form.bits)
    bits, r = _reduce(x, form, form.bias - 1)
    power = (bits << form.bits).as_float()
    return fma(power, fma(r * r, polynomial(r, form.q_minus), r), power - 0.5)


def expm1(x: Number) -> Number:
    half = _half_expm1(x, _format(x.dtype).high)
    return where(x.eq(0), x, half + half)


def tanh(x: Number) -> Number:
    """Return tanh(x): a series to 0.6, then 1 - 2 / (exp(2|x|) + 1)."""
    size, z = x.abs(), x * x
    near = fma(x * z, polynomial(z, _TANH32 if x.dtype.bits == 32 else _TANH64), x)
    far = 1.0 - 2.0 / (_exp_within(size + size, 2.0 * _format(x.dtype).bits) + 1.0)
    return where(size < 0.6, near, copysign(far, x))


def _exp_within(x: Number, high: float) -> Number:
    """Return exp(min(x, high)) for x >= 0 and a high for which it is finite."""
    form = _format(x.dtype)
    bits, r = _reduce(x.min(high), form, form.bias)
    return _exp_small(r, form) * (bits << form.bits).as_float()


def sinh(x: Number) -> Number:
    """Return sinh(x) in float64: a series to 1, then (exp(x) - exp(-x)) / 2."""
    z = x * x
    small = fma(x * z, polynomial(z.min(1.0), _SINH), x)
    size = x.abs()
    half = exp_times(size, -1)
    return where(size < 1.0, small, copysign(half - 0.25 / half, x))


def cosh(x: Number) -> Number:
    half = exp_times(x.abs(), -1)
    return half + 0.25 / half
