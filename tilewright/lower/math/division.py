"""Floor division and remainder: integers that never trap, floats exact for any quotient."""

from __future__ import annotations

import math

from tilewright.dtypes import float64, int64
from tilewright.lower.math.number import Number, any_lane, copysign, fma, where

# A quotient below 2**52 is found to within one by a rounded division.
_STEP = 52


def _constant(y: Number) -> int | None:
    """Return the value of an integer constant."""
    instr = y.instr
    if instr.op != "const":
        return None
    return int.from_bytes(instr.data, "little", signed=y.dtype.kind == "i")  # type: ignore[arg-type]


def _divisor(x: Number, y: Number) -> Number:
    """Return a divisor for which the machine's division cannot trap; 1 instead of 0 and -1."""
    known = _constant(y)
    if known is not None:
        return y.const(1) if known in (0, -1) else y
    bad = y.eq(0)
    if y.dtype.kind == "i":
        bad = bad | y.eq(-1)
    return where(bad, y.const(1), y)


def floor_divide_integer(x: Number, y: Number) -> Number:
    """Return the quotient rounded down; 0 for a zero divisor; the lowest by -1 wraps."""
    known, signed = _constant(y), x.dtype.kind == "i"
    if known == 0:
        return x.const(0)
    if known is not None and known > 0 and known & (known - 1) == 0:
        return x >> (known.bit_length() - 1)
    safe = _divisor(x, y)
    quotient = x.div(safe)
    if signed:
        rest = x - quotient * safe
        below = rest.ne(0) & ((rest ^ safe) < 0)
        quotient = where(below, quotient - 1, quotient)
        if known is None or known == -1:
            quotient = where(y.eq(-1), -x, quotient)
    return quotient if known is not None else where(y.eq(0), x.const(0), quotient)


def remainder_integer(x: Number, y: Number) -> Number:
    """Return the remainder with the sign of the divisor; 0 for a zero divisor."""
    known, signed = _constant(y), x.dtype.kind == "i"
    if known is not None and known > 0 and known & (known - 1) == 0:
        return x & (known - 1)
    rest = x.rem(_divisor(x, y))
    if not signed:
        return rest if known else where(y.eq(0), x.const(0), rest)
    return where(rest.ne(0) & ((rest ^ y) < 0), rest + y, rest)


def _exponent(x: Number) -> Number:
    """Return the biased exponent of x >= 0, below zero for subnormals."""
    scaled = ((x * 2.0**54).bits() >> 52) - 54
    return where(x < 2.0**-1022, scaled, x.bits() >> 52)


def modulo(x: Number, y: Number) -> Number:
    """Return x - trunc(x / y) * y exactly, in float64, with the sign of x.

    Each step takes up to 2**51 times y away: more than one only for quotients beyond that, which a
    loop does while any lane needs it.
    """
    builder = x.builder
    rest, divisor = x.abs(), y.abs()
    valid = (rest < math.inf) & (divisor > 0)
    rest = where(valid, rest, rest.const(math.nan))
    rest = _step(rest, divisor)
    more = rest >= divisor
    trips = any_lane(more).to(int64) * 44
    with builder.loop(0, trips.instr, [rest.instr, divisor.instr]) as loop:
        r, d = (Number(builder, c) for c in loop.carries)
        loop.yields = [_step(r, d).instr, d.instr]
    rest = Number(builder, builder.result(loop, 0))
    result = where(divisor.eq(math.inf) & valid, x, copysign(rest, x))
    return where(y.isnan(), y, result)


def _step(rest: Number, divisor: Number) -> Number:
    """Return the rest less a multiple of the divisor; reduced if the quotient was below 2**51."""
    gap = _exponent(rest) - _exponent(divisor)
    shift = gap - (_STEP - 1)
    shift = where(shift > 0, shift, shift.const(0))
    # divisor * 2**shift in two factors, as a power may pass the exponent range
    half = shift >> 1
    scaled = divisor * _two_to(half, rest) * _two_to(shift - half, rest)
    quotient = (rest / scaled).trunc()
    left = fma(-quotient, scaled, rest)
    left = where(left < 0, left + scaled, left)
    left = where(left >= scaled, left - scaled, left)
    return where(rest < divisor, rest, left)


def _two_to(power: Number, like: Number) -> Number:
    return ((power + 1023) << 52).as_float()


def remainder_float(x: Number, y: Number) -> Number:
    """Return NumPy's remainder: exact, with the sign of the divisor."""
    rest = modulo(x.to(float64), y.to(float64)).to(x.dtype)
    return _floor_rest(rest, y)


def _floor_rest(rest: Number, y: Number) -> Number:
    opposite = (rest < 0) & (y > 0) | (rest > 0) & (y < 0)
    zero = copysign(rest.const(0.0), y)
    return where(rest.eq(0) & y.ne(0), zero, where(opposite, rest + y, rest))


def floor_divide_float(x: Number, y: Number) -> Number:
    """Return NumPy's floor division: (x - remainder) / y brought to an integer."""
    rest = modulo(x.to(float64), y.to(float64)).to(x.dtype)
    opposite = (rest < 0) & (y > 0) | (rest > 0) & (y < 0)
    quotient = (x - rest) / y
    quotient = where(opposite, quotient - 1.0, quotient)
    floor = quotient.floor()
    floor = where(quotient - floor > 0.5, floor + 1.0, floor)
    plain = x / y
    result = where(quotient.eq(0), copysign(quotient.abs(), plain), floor)
    return where(y.eq(0), plain, result)
