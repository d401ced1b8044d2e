"""The scalar code of every elementwise operation: one table from the graph's names.

An operation gets values of one lane count (scalars are spread) and emits Program instructions with
the meaning of `graph.meaning`. The 16-bit floats are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.dtypes import DType, bool_, float32, float64, int64, uint64
from tilewright.errors import BackendError
from tilewright.lower.math import (
    division,
    error,
    exponential,
    logarithm,
    power,
    trigonometric,
)
from tilewright.lower.math.number import Number, sign_bit, where
from tilewright.program.builder import Builder
from tilewright.program.ir import Instr

Rule = Callable[..., Number]


def emit(builder: Builder, op: str, args: Sequence[Instr], dtype: DType) -> Instr:
    """Emit an elementwise operation and return its value, of the given dtype.

    Raises BackendError for a name that is not an elementwise operation.
    """
    lanes = max(a.type.lanes for a in args)
    numbers = [Number(builder, builder.splat(a, lanes)) for a in args]
    if op == "cast":
        return _cast(numbers[0], dtype).instr
    if op == "bitcast":
        return numbers[0].view(dtype).instr
    rule = RULES.get(op)
    if rule is None:
        raise BackendError(f"lower: cannot emit {op!r} (it is not an elementwise operation)")
    if op not in _BITWISE and any(_is_short(n.dtype) for n in numbers):
        result = rule(*(_widen(n) for n in numbers))
        return result.to(dtype).instr if dtype.is_float else result.instr
    return rule(*numbers).instr


def _is_short(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits == 16


def _widen(x: Number) -> Number:
    """Return a 16-bit float as float32; a constant stays one."""
    if not _is_short(x.dtype):
        return x
    if x.instr.op == "const":
        value = np.frombuffer(x.instr.data, x.dtype.numpy)[0]  # type: ignore[call-overload]
        wide = x.instr.type.with_dtype(float32)
        return Number(x.builder, x.builder.const(np.float32(value), wide))
    return x.to(float32)


# -- arithmetic --------------------------------------------------------------------------------


def _add(x: Number, y: Number) -> Number:
    return x | y if x.dtype.is_bool else x + y


def _subtract(x: Number, y: Number) -> Number:
    return x ^ y if x.dtype.is_bool else x - y


def _multiply(x: Number, y: Number) -> Number:
    return x & y if x.dtype.is_bool else x * y


def _minimum(x: Number, y: Number) -> Number:
    return x & y if x.dtype.is_bool else x.min(y)


def _maximum(x: Number, y: Number) -> Number:
    return x | y if x.dtype.is_bool else x.max(y)


def _floor_divide(x: Number, y: Number) -> Number:
    return division.floor_divide_float(x, y) if x.dtype.is_float else \
        division.floor_divide_integer(x, y)


def _remainder(x: Number, y: Number) -> Number:
    return division.remainder_float(x, y) if x.dtype.is_float else \
        division.remainder_integer(x, y)


def _power(x: Number, y: Number) -> Number:
    simple: Number | None = None
    if y.instr.op == "const":
        exponent = np.frombuffer(y.instr.data, y.dtype.numpy)[0]  # type: ignore[call-overload]
        simple = power.constant_power(x, float(exponent)) if x.dtype.is_float else \
            power.constant_integer_power(x, int(exponent))
    if simple is not None:
        return simple
    return power.power(x, y) if x.dtype.is_float else power.integer_power(x, y)


def _left_shift(x: Number, y: Number) -> Number:
    inside = _inside(x, y)
    return where(inside, x << where(inside, y, 0), 0)


def _right_shift(x: Number, y: Number) -> Number:
    inside = _inside(x, y)
    fill: Number | int = x >> (x.dtype.bits - 1) if x.dtype.kind == "i" else 0
    return where(inside, x >> where(inside, y, 0), fill)


def _inside(x: Number, y: Number) -> Number:
    below = y < x.dtype.bits
    return below & (y >= 0) if y.dtype.kind == "i" else below


# -- one input ---------------------------------------------------------------------------------


def _sign(x: Number) -> Number:
    if x.dtype.is_bool:
        return x
    if x.dtype.kind == "u":
        return x.min(1)
    if x.dtype.kind == "i":
        return x.min(1).max(-1)
    return where(x > 0, x.const(1.0), where(x < 0, x.const(-1.0), where(x.eq(0), 0.0, x)))


def _never(x: Number) -> Number:
    return Number(x.builder, x.builder.const(False, x.instr.type.with_dtype(bool_)))


def _isnan(x: Number) -> Number:
    return x.isnan() if x.dtype.is_float else _never(x)


def _isinf(x: Number) -> Number:
    return x.abs().eq(math.inf) if x.dtype.is_float else _never(x)


def _signbit(x: Number) -> Number:
    if x.dtype.is_float:
        return sign_bit(x) < 0
    return x < 0 if x.dtype.kind == "i" else _never(x)


def _abs(x: Number) -> Number:
    return x.abs() if x.dtype.kind in "if" else x


def _negative(x: Number) -> Number:
    return ~x if x.dtype.is_bool else -x


# -- conversions -------------------------------------------------------------------------------


def _cast(x: Number, dtype: DType) -> Number:
    if not (x.dtype.is_float and dtype.is_integer):
        return x.to(dtype)
    if dtype.bits < 64:
        return _to_int64(_widen(x)).to(dtype)
    if dtype.kind == "i":
        return _to_int64(_widen(x))
    wide = x.to(float64)
    high = wide >= 2.0**63
    low = _to_int64(where(high, wide - 2.0**63, wide)).view(uint64)
    return where(high, low + (1 << 63), low)


def _to_int64(x: Number) -> Number:
    """Return x truncated; NaN and values that int64 does not hold give its lowest."""
    inside = (x >= -2.0**63) & (x < 2.0**63)
    return where(inside, where(inside, x, 0.0).to(int64), -1 << 63)


def _in_double(function: Rule) -> Rule:
    """Compute in float64: rarer functions, for which float32 gains little from code of its own."""
    def rule(*args: Number) -> Number:
        return function(*(a.to(float64) for a in args)).to(args[0].dtype)
    return rule


RULES: dict[str, Rule] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": lambda x, y: x / y,
    "minimum": _minimum,
    "maximum": _maximum,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "power": _power,
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "bitwise_invert": lambda x: ~x,
    "bitwise_left_shift": _left_shift,
    "bitwise_right_shift": _right_shift,
    "equal": lambda x, y: x.eq(y),
    "not_equal": lambda x, y: x.ne(y),
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "negative": _negative,
    "abs": _abs,
    "sign": _sign,
    "sqrt": Number.sqrt,
    "floor": Number.floor,
    "ceil": Number.ceil,
    "trunc": Number.trunc,
    "round": Number.round,
    "isnan": _isnan,
    "isinf": _isinf,
    "signbit": _signbit,
    "where": where,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "tanh": exponential.tanh,
    "sinh": _in_double(exponential.sinh),
    "cosh": _in_double(exponential.cosh),
    "log": logarithm.log,
    "log2": logarithm.log2,
    "log1p": _in_double(logarithm.log1p),
    "asinh": _in_double(logarithm.asinh),
    "acosh": _in_double(logarithm.acosh),
    "atanh": _in_double(logarithm.atanh),
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "tan": _in_double(trigonometric.tan),
    "asin": _in_double(trigonometric.asin),
    "acos": _in_double(trigonometric.acos),
    "atan": _in_double(trigonometric.atan),
    "atan2": _in_double(trigonometric.atan2),
    "erf": error.erf,
}

# Operations on 16-bit floats that only move or flip bits.
_BITWISE = frozenset(("where", "negative", "abs"))
