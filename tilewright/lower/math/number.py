"""Arithmetic on a Program's values written as formulas: ``fma(p, z, 0.5) * x``.

Python numbers in a formula become constants of the other operand's type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tilewright.dtypes import DType, bool_, float32, float64, int32, int64, uint32, uint64
from tilewright.program.builder import Builder
from tilewright.program.ir import Instr

Operand: TypeAlias = "Number | float | int"


class Number:
    """A value of a Program, scalar or vector, with operators that emit instructions."""

    __slots__ = ("builder", "instr")

    def __init__(self, builder: Builder, instr: Instr):
        self.builder, self.instr = builder, instr

    @property
    def dtype(self) -> DType:
        return self.instr.type.dtype

    def const(self, value: float | int) -> Number:
        """Return a constant of this type."""
        return Number(self.builder, self.builder.const(value, self.instr.type))

    def _of(self, value: Operand) -> Instr:
        return value.instr if isinstance(value, Number) else \
            self.builder.const(value, self.instr.type)

    def _op(self, name: str, *others: Operand) -> Number:
        return Number(self.builder,
                      self.builder.op(name, self.instr, *(self._of(o) for o in others)))

    def _reverse(self, name: str, other: Operand) -> Number:
        return Number(self.builder, self.builder.op(name, self._of(other), self.instr))

    def __add__(self, other: Operand) -> Number:
        return self._op("add", other)

    def __sub__(self, other: Operand) -> Number:
        return self._op("sub", other)

    def __mul__(self, other: Operand) -> Number:
        return self._op("mul", other)

    def __truediv__(self, other: Operand) -> Number:
        return self._op("div", other)

    def __radd__(self, other: Operand) -> Number:
        return self._reverse("add", other)

    def __rsub__(self, other: Operand) -> Number:
        return self._reverse("sub", other)

    def __rmul__(self, other: Operand) -> Number:
        return self._reverse("mul", other)

    def __rtruediv__(self, other: Operand) -> Number:
        return self._reverse("div", other)

    def __neg__(self) -> Number:
        return self._op("neg")

    def __invert__(self) -> Number:
        return self._op("not")

    def __and__(self, other: Operand) -> Number:
        return self._op("and", other)

    def __or__(self, other: Operand) -> Number:
        return self._op("or", other)

    def __xor__(self, other: Operand) -> Number:
        return self._op("xor", other)

    def __lshift__(self, other: Operand) -> Number:
        return self._op("shl", other)

    def __rshift__(self, other: Operand) -> Number:
        return self._op("shr", other)

    def __lt__(self, other: Operand) -> Number:
        return self._op("lt", other)

    def __le__(self, other: Operand) -> Number:
        return self._op("le", other)

    def __gt__(self, other: Operand) -> Number:
        return self._reverse("lt", other)

    def __ge__(self, other: Operand) -> Number:
        return self._reverse("le", other)

    def eq(self, other: Operand) -> Number:
        return self._op("eq", other)

    def ne(self, other: Operand) -> Number:
        return self._op("ne", other)

    def div(self, other: Operand) -> Number:
        """Return the truncated quotient of integers."""
        return self._op("idiv", other)

    def rem(self, other: Operand) -> Number:
        """Return the truncated remainder of integers."""
        return self._op("irem", other)

    def min(self, other: Operand) -> Number:
        return self._op("min", other)

    def max(self, other: Operand) -> Number:
        return self._op("max", other)

    def abs(self) -> Number:
        return self._op("abs")

    def sqrt(self) -> Number:
        return self._op("sqrt")

    def floor(self) -> Number:
        return self._op("floor")

    def ceil(self) -> Number:
        return self._op("ceil")

    def trunc(self) -> Number:
        return self._op("trunc")

    def round(self) -> Number:
        return self._op("round")

    def to(self, dtype: DType) -> Number:
        """Return the value converted to a dtype."""
        return Number(self.builder, self.builder.cast(self.instr, dtype))

    def view(self, dtype: DType) -> Number:
        """Return the bits as another dtype of the same width."""
        if self.dtype == dtype:
            return self
        return Number(self.builder, self.builder.op("bitcast", self.instr, dtype=dtype))

    def bits(self) -> Number:
        """Return a float's bits as a signed integer."""
        return self.view(int64 if self.dtype.bits == 64 else int32)

    def ubits(self) -> Number:
        """Return a float's bits as an unsigned integer."""
        return self.view(uint64 if self.dtype.bits == 64 else uint32)

    def as_float(self) -> Number:
        """Return an integer's bits as a float."""
        return self.view(float64 if self.dtype.bits == 64 else float32)

    def isnan(self) -> Number:
        return self.ne(self)


def fma(a: Operand, b: Operand, c: Operand) -> Number:
    """Return a * b + c with one rounding; at least one is a Number."""
    x = next(v for v in (a, b, c) if isinstance(v, Number))
    return Number(x.builder, x.builder.op("fma", x._of(a), x._of(b), x._of(c)))


def where(condition: Number, a: Operand, b: Operand) -> Number:
    """Return a where the condition holds, else b; at least one of them is a Number."""
    x = a if isinstance(a, Number) else b
    assert isinstance(x, Number)
    assert condition.dtype == bool_
    return Number(x.builder, x.builder.op("select", condition.instr, x._of(a), x._of(b)))


def polynomial(x: Number, coefficients: Sequence[float]) -> Number:
    """Return c0 + x*(c1 + x*(c2 + ..)) by Horner's rule."""
    total: Operand = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = fma(total, x, c)
    assert isinstance(total, Number)
    return total


def copysign(magnitude: Number, sign: Number) -> Number:
    """Return a nonnegative magnitude with the sign bit of `sign`."""
    return (magnitude.bits() | sign_bit(sign)).as_float()


def sign_bit(x: Number) -> Number:
    """Return the bits of x with all but its sign cleared."""
    return x.bits() & (-1 << (x.dtype.bits - 1))


def two_sum(a: Number, b: Number) -> tuple[Number, Number]:
    """Return a + b rounded, and what the rounding lost."""
    total = a + b
    bb = total - a
    return total, (a - (total - bb)) + (b - bb)


def fast_two_sum(a: Number, b: Number) -> tuple[Number, Number]:
    """As `two_sum`, where the exponent of a is at least that of b."""
    total = a + b
    return total, b - (total - a)


def two_product(a: Number, b: Number) -> tuple[Number, Number]:
    """Return a * b rounded, and what the rounding lost."""
    product = a * b
    return product, fma(a, b, -product)


def any_lane(condition: Number) -> Number:
    """Return a scalar bool: whether the condition holds in a lane."""
    builder, instr = condition.builder, condition.instr
    lanes = instr.type.lanes
    if lanes == 1:
        return condition
    flags = builder.cast(instr, int32)
    while lanes > 1:
        half = (lanes + 1) // 2
        low = builder.shuffle(flags, flags, tuple(range(half)))
        high = builder.shuffle(flags, flags, tuple(min(half + k, lanes - 1) for k in range(half)))
        flags, lanes = builder.op("or", low, high), half
    return Number(builder, builder.cast(flags, bool_))
