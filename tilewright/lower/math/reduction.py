"""Reduction of an angle to a quadrant and a rest of at most pi/4, exact over the whole range.

Small angles subtract a multiple of pi/2 in parts (Cody and Waite). If any lane is large, a loop of
one iteration multiplies those by a window of the bits of 2/pi (Payne and Hanek) in 64-bit integers.
"""

from __future__ import annotations

import math

from tilewright.dtypes import int64, uint64
from tilewright.lower.math.number import (
    Number,
    any_lane,
    fast_two_sum,
    fma,
    sign_bit,
    two_sum,
    where,
)

# pi/2 in parts: two of 33 bits, so that a multiple below 2**20 is exact, and the rest.
_PARTS = (1.57079632673412561417e+00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
_MAGIC = 1.5 * 2.0**52
_LIMIT = 2.0**20
# 64 zero bits, then the bits of 2/pi.
_WORDS = tuple(int(text, 16) for text in """
    0000000000000000 a2f9836e4e441529 fc2757d1f534ddc0 db6295993c439041 fe5163abdebbc561
    b7246e3a424dd2e0 06492eea09d1921c fe1deb1cb129a73e e88235f52ebb4484 e99c7026b45f7e41
    3991d639835339f4 9c845f8bbdf9283b 1ff897ffde05980f ef2f118b5a0a6d1f 6d367ecf27cb09b7
    4f463f669e5fea2d 7527bac7ebe5f17b 3d0739f78a5292ea 6bfb5fb11f8d5d08 56033046fc7b6bab
    """.split())


def reduce(x: Number) -> tuple[Number, Number, Number]:
    """Return (quadrant, high, low) of a float64: x = quadrant pi/2 + high + low.

    The quadrant is an int64 of which the last two bits count; infinities and NaN give NaN.
    """
    size = x.abs()
    shifted = fma(x, 2 / math.pi, _MAGIC)
    n = shifted - _MAGIC
    a, lost = two_sum(fma(n, -_PARTS[0], x), n * -_PARTS[1])
    high, low = fast_two_sum(a, fma(n, -_PARTS[2], lost))
    large = (size > _LIMIT) & (size < math.inf)
    return _reduce_large(x, large, (shifted.bits(), high, low))


def _reduce_large(x: Number, large: Number,
                  near: tuple[Number, Number, Number]) -> tuple[Number, Number, Number]:
    builder = x.builder
    trips = any_lane(large).to(int64)
    # x is carried so that nothing of the body is hoisted out of a loop that hardly ever runs
    with builder.loop(0, trips.instr, [x.instr, *(v.instr for v in near)]) as loop:
        x_in, *before = (Number(builder, c) for c in loop.carries)
        size = x_in.abs()
        chosen = (size > _LIMIT) & (size < math.inf)
        far = _payne_hanek(x_in)
        loop.yields = [x_in.instr,
                       *(where(chosen, new, old).instr for new, old in zip(far, before))]
    quadrant, high, low = (Number(builder, builder.result(loop, k)) for k in (1, 2, 3))
    return quadrant, high, low


def _window(position: Number) -> list[Number]:
    """Return the 192 bits of the table from a position on, as three words."""
    index, shift = (position >> 6).view(uint64), (position & 63).view(uint64)
    words: list[Number | int] = list(_WORDS)

    def number(word: Number | int) -> Number:
        return word if isinstance(word, Number) else index.const(word)
    for step in (16, 8, 4, 2, 1):
        take = (index & step).ne(0)
        words = [where(take, words[k + step], number(words[k])) if k + step < len(words)
                 else words[k] for k in range(3 + step)]
    picked = [number(w) for w in words]
    back = 63 - shift
    return [(a << shift) | ((b >> 1) >> back) for a, b in zip(picked, picked[1:])]


def _wide_product(a: Number, b: Number) -> tuple[Number, Number]:
    """Return the upper and lower word of a product of words."""
    mask = 0xFFFFFFFF
    a0, a1, b0, b1 = a & mask, a >> 32, b & mask, b >> 32
    cross, other = a0 * b1, a1 * b0
    middle = (a0 * b0 >> 32) + (cross & mask) + (other & mask)
    return a1 * b1 + (cross >> 32) + (other >> 32) + (middle >> 32), a * b


def _payne_hanek(x: Number) -> tuple[Number, Number, Number]:
    """Return (quadrant, high, low) of a finite |x| >= 1.

    With |x| = m 2**e the bits of 2/pi above 2**(1 - e) give multiples of four quadrants; the
    next 192 times m, modulo 2**192, are the angle in units of 2**-190 quadrants.
    """
    bits = x.abs().bits()
    exponent = bits >> 52
    m = ((bits & ((1 << 52) - 1)) | (1 << 52)).view(uint64)
    first, second, third = _window(exponent - (1075 - 62))
    top, _ = _wide_product(m, third)
    upper, lower = _wide_product(m, second)
    low = lower + top
    high = first * m + upper + (low < lower).to(uint64)
    fraction = ((high << 2) | (low >> 62)).view(int64)
    quadrant = ((high >> 62) + (fraction < 0).to(uint64)).view(int64)
    a = (fraction >> 32).to(x.dtype) * 2.0**-32
    b = (fraction & 0xFFFFFFFF).to(x.dtype) * 2.0**-64
    c = ((low << 2) >> 12).view(int64).to(x.dtype) * 2.0**-116
    s, lost = fast_two_sum(a, b)
    s, lost = fast_two_sum(s, lost + c)
    r = s * _HALF_PI[0]
    r_low = fma(s, _HALF_PI[0], -r) + fma(s, _HALF_PI[1], lost * _HALF_PI[0])
    r, r_low = fast_two_sum(r, r_low)
    sign = sign_bit(x)
    negative = sign < 0
    return (where(negative, -quadrant, quadrant), (r.bits() ^ sign).as_float(),
            (r_low.bits() ^ sign).as_float())
