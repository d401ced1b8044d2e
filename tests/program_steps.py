"""The steps that random programs are made of: each draws its operands and adds a line.

A step that fits none of the values so far adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import program_reference as ref
from hypothesis import strategies as st
from program_builder import INT, Builder, literal, spell
from program_reference import FLOATS, SIGNED, UNSIGNED, Value

Step = Callable[[Builder], object]


def exact(v: Value) -> bool:
    return v.exact


def real(v: Value) -> bool:
    return v.is_float


# --- elementwise, one operand

_IEEE = {"negative": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor,
         "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "sqrt": np.sqrt,
         "reciprocal": lambda x: np.divide(x.dtype.type(1), x), "square": lambda x: x * x,
         "positive": np.positive}
_TESTS = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}


def unary(b: Builder) -> None:
    name = b.draw(st.sampled_from([*_IEEE, *_TESTS, "logical_not", "bitwise_invert", "signbit",
                                   "nan_to_num"]))
    v = b.pick(exact)
    if v is None:
        return
    x = v.array
    text = f"tw.{name}({{0}})"
    if name == "logical_not":
        b.add(text, ref.convert(x, "bool") == np.False_, parts=(v,))
    elif name in _TESTS:
        result = _TESTS[name](x.astype(ref.WIDE)) if v.is_float else np.full(
            x.shape, name == "isfinite")
        b.add(text, result, parts=(v,))
    elif name == "bitwise_invert":
        if not v.is_float:
            b.add(text, ~x, parts=(v,))
    elif name == "signbit":
        if v.dtype != "bool" and not np.isnan(x.astype(ref.WIDE)).any():
            b.add(text, np.signbit(x.astype(ref.WIDE)), parts=(v,))
    elif name == "nan_to_num":
        most = float(ref.LARGEST[v.dtype]) if v.is_float else 0
        b.add(text, x if not v.is_float else ref.rounded_to(
            np.nan_to_num(x.astype(ref.WIDE), nan=0, posinf=most, neginf=-most), v.dtype),
            parts=(v,))
    elif v.dtype == "bool":
        if name in ("abs", "square", "floor", "ceil", "trunc", "round"):
            b.add(text, x, parts=(v,))
    else:
        _arithmetic_unary(b, name, text, v)


def _arithmetic_unary(b: Builder, name: str, text: str, v: Value) -> None:
    if v.is_integer and name in ("floor", "ceil", "trunc", "round"):
        b.add(text, v.array, parts=(v,))
        return
    w = b.cast(v, "float32") if v.is_integer and name in ("sqrt", "reciprocal") else v
    result = ref.native(_IEEE[name], w.array).astype(w.array.dtype)
    rounded = v.rounded
    if name == "square" and v.is_float:
        rounded |= _inexact_product(w.array, w.array, result)
    b.add(text, result, rounded=rounded, parts=(v,))


def _inexact_product(x: np.ndarray, y: np.ndarray, result: np.ndarray) -> bool:
    true = x.astype(ref.WIDE) * y.astype(ref.WIDE)
    wide = result.astype(ref.WIDE)
    if result.dtype.name == "float64":  # a longdouble has too few digits to tell
        return not ((x == np.rint(x)) & (y == np.rint(y)) & (np.abs(true) < 2.0**53)).all()
    return not ((true == wide) | (np.isnan(true) & np.isnan(wide))).all()


def function_of_a_real_number(b: Builder) -> None:
    name = b.draw(st.sampled_from(list(ref.TRANSCENDENTAL)))
    v = b.pick(lambda v: v.exact or name in ref.SLOPES)
    if v is None:
        return
    w = v if v.is_float else b.cast(v, "float32")
    result, error = ref.transcendental(ref.TRANSCENDENTAL[name], [w.array])
    if not v.exact:
        error = ref.bounded(result, error + ref.SLOPES[name] * v.slack)
        error = np.where(np.isinf(v.slack), np.inf, error)
    b.add(f"tw.{name}({{0}})", result, error, parts=(v,))


def cast(b: Builder) -> None:
    name = b.draw(st.sampled_from(ref.NAMES))
    v = b.pick(lambda v: v.exact or name in FLOATS)
    if v is None:
        return
    if v.is_float and name in SIGNED + UNSIGNED:
        wide = v.array.astype(ref.WIDE)
        if not (np.isfinite(wide) & (np.abs(wide) < 2.0**63)).all():
            return
    w = b.cast(v, name)
    b.add(f"{{0}}.astype(tw.{name})", w.array, w.error, w.rounded, (v,))


# --- elementwise, two operands


def operands(b: Builder, test: Callable[[Value], bool]):
    """Draw a value and a value or literal beside it: (values, converted values, text)."""
    x = b.pick(test)
    if x is None:
        return None
    if b.draw(INT(0, 3)) == 0:
        number = literal(b.draw, x)
        name = x.dtype
        if isinstance(number, float) and not x.is_float:
            name = "float32"
        elif x.dtype == "bool":
            name = "int64"
        other = Value("", np.asarray(number).astype(ref.DTYPES[name]))
        swapped = b.draw(st.booleans())
        pair = (other, b.cast(x, name)) if swapped else (b.cast(x, name), other)
        return (x,), pair, (f"{spell(number)}, {{0}}" if swapped else f"{{0}}, {spell(number)}")
    y = b.pick(lambda v: test(v) and _fits(b, v, x))
    if y is None:
        return None
    name = ref.promote(x.dtype, y.dtype)
    return (x, y), (b.cast(x, name), b.cast(y, name)), "{0}, {1}"


def _fits(b: Builder, x: Value, y: Value) -> bool:
    try:
        return int(np.prod(np.broadcast_shapes(x.array.shape, y.array.shape))) <= b.most
    except ValueError:
        return False


def _wide(v: Value, shape: tuple[int, ...]) -> Value:
    error = None if v.exact else np.broadcast_to(v.slack, shape)
    return Value(v.name, np.broadcast_to(v.array, shape), error, v.rounded)


def _spread(pair: tuple[Value, Value]) -> tuple[Value, Value]:
    shape = np.broadcast_shapes(pair[0].array.shape, pair[1].array.shape)
    return _wide(pair[0], shape), _wide(pair[1], shape)


_ARITHMETIC = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply,
               "divide": np.divide, "maximum": np.maximum, "minimum": np.minimum}


def arithmetic(b: Builder) -> None:
    name = b.draw(st.sampled_from(list(_ARITHMETIC)))
    drawn = operands(b, lambda v: name not in ("subtract",) or v.dtype != "bool")
    if drawn is None:
        return
    parts, pair, text = drawn
    if name == "subtract" and pair[0].dtype == "bool":
        return
    if name == "divide" and not pair[0].is_float:
        pair = (b.cast(pair[0], "float32"), b.cast(pair[1], "float32"))
    x, y = _spread(pair)
    result = ref.native(_ARITHMETIC[name], x.array, y.array).astype(x.array.dtype)
    error = ref.binary_error(name, x, y, result) if x.is_float else None
    rounded = x.rounded or y.rounded
    if name == "multiply" and x.is_float:
        rounded |= error is not None or _inexact_product(x.array, y.array, result)
    symbol = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}.get(name)
    call = text.replace(", ", f" {symbol} ") if symbol else f"tw.{name}({text})"
    v = b.add(call, result, error, rounded, parts)
    if name in ("maximum", "minimum"):
        b.settle(v)


_COMPARE = {"==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
            ">": np.greater, ">=": np.greater_equal}


def compare(b: Builder) -> None:
    symbol = b.draw(st.sampled_from(list(_COMPARE)))
    drawn = operands(b, exact)
    if drawn is not None:
        parts, pair, text = drawn
        b.add(text.replace(", ", f" {symbol} "),
              ref.native(_COMPARE[symbol], *(v.array for v in pair)), parts=parts)


_BITS = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
         "bitwise_xor": np.bitwise_xor}
_LOGICAL = {"logical_and": np.logical_and, "logical_or": np.logical_or,
            "logical_xor": np.logical_xor}


def bits(b: Builder) -> None:
    name = b.draw(st.sampled_from([*_BITS, *_LOGICAL]))
    drawn = operands(b, lambda v: v.exact and (name in _LOGICAL or not v.is_float))
    if drawn is None:
        return
    parts, pair, text = drawn
    if name in _LOGICAL:
        result = _LOGICAL[name](*(ref.convert(v.array, "bool") for v in pair))
    elif any(v.is_float for v in pair):
        return
    else:
        result = _BITS[name](*(v.array for v in pair))
    b.add(f"tw.{name}({text})", result, parts=parts)


_WHOLE = {"floor_divide": ref.floor_divide, "remainder": ref.remainder, "pow": ref.power,
          "bitwise_left_shift": ref.shift(True), "bitwise_right_shift": ref.shift(False)}


def division_power_shift(b: Builder) -> None:
    name = b.draw(st.sampled_from(list(_WHOLE)))
    drawn = operands(b, lambda v: v.exact and v.dtype != "bool" and (
        v.is_integer or "shift" not in name))
    if drawn is None:
        return
    parts, pair, text = drawn
    x, y = _spread(pair)
    if "shift" in name and x.is_float:
        return
    if name == "pow":
        _power(b, parts, (x, y), text)
        return
    with np.errstate(all="ignore"):
        b.add(f"tw.{name}({text})", _WHOLE[name](x.array, y.array), parts=parts)


def _power(b: Builder, parts, pair: tuple[Value, Value], text: str) -> None:
    x, y = pair
    call = f"tw.pow({text})"
    weak = text.startswith("{0}, ") and len(parts) == 1
    if x.is_integer:
        if not (weak and (y.array < 0).any()):
            b.add(call, ref.power(x.array, y.array), parts=parts)
    elif weak and y.array.size and y.array.flat[0] in (1, 2, 3, -1):
        _product_power(b, call, x, int(y.array.flat[0]), parts)
    else:
        result, error = ref.transcendental(np.power, [x.array, y.array])
        b.add(call, result, error, parts=parts)


def _product_power(b: Builder, call: str, x: Value, exponent: int, parts) -> None:
    if exponent == -1:
        result = ref.native(_IEEE["reciprocal"], x.array).astype(x.array.dtype)
        b.add(call, result, parts=parts)
        return
    result = x.array
    for _ in range(exponent - 1):
        result = ref.native(np.multiply, result, x.array).astype(x.array.dtype)
    b.add(call, result, rounded=exponent > 1, parts=parts)


def two_real_numbers(b: Builder) -> None:
    name = b.draw(st.sampled_from(["atan2", "hypot", "logaddexp", "copysign"]))
    drawn = operands(b, exact)
    if drawn is None:
        return
    parts, pair, text = drawn
    if not pair[0].is_float:
        pair = (b.cast(pair[0], "float32"), b.cast(pair[1], "float32"))
    x, y = _spread(pair)
    if name == "copysign":
        if not any(np.isnan(v.array.astype(ref.WIDE)).any() for v in (x, y)):
            result = ref.native(np.copysign, x.array, y.array).astype(x.array.dtype)
            b.add(f"tw.copysign({text})", result, parts=parts)
        return
    function = {"atan2": np.arctan2, "hypot": np.hypot, "logaddexp": np.logaddexp}[name]
    result, error = ref.transcendental(function, [x.array, y.array], 2.5 if name == "atan2" else 6)
    if name == "logaddexp":
        most = np.maximum(np.abs(x.array.astype(ref.WIDE)), np.abs(y.array.astype(ref.WIDE))) + 1
        close = np.isfinite(most) & np.isfinite(result.astype(ref.WIDE))
        slack = ref.unit(np.where(close, most, 1), x.dtype).astype(np.float64)
        error = error + np.where(close, 4 * slack, 0)
    if name == "hypot":  # squares of ratios may vanish, never the larger side
        error = np.where(np.isnan(result.astype(ref.WIDE)), 0, error)
    b.add(f"tw.{name}({text})", result, error, parts=parts)


def where(b: Builder) -> None:
    test = b.pick(exact)
    drawn = operands(b, lambda v: test is not None and _fits(b, v, test))
    if test is None or drawn is None:
        return
    parts, pair, text = drawn
    try:
        shape = np.broadcast_shapes(test.array.shape, *(v.array.shape for v in pair))
    except ValueError:
        return
    flags = np.broadcast_to(ref.convert(test.array, "bool"), shape)
    x, y = (_wide(v, shape) for v in pair)
    error = None if x.exact and y.exact else np.where(flags, x.slack, y.slack)
    shifted = text.replace("{1}", "{2}").replace("{0}", "{1}")
    b.add(f"tw.where({{0}}, {shifted})", np.where(flags, x.array, y.array), error,
          x.rounded or y.rounded, (test, *parts))


def clip(b: Builder) -> None:
    v = b.pick(lambda v: v.dtype != "bool")
    if v is None:
        return
    low, high = sorted((b.draw(INT(0, 3)), b.draw(INT(0, 3))))
    lows, highs = (np.asarray(n).astype(v.array.dtype) for n in (low, high))
    result = ref.native(np.minimum, ref.native(np.maximum, v.array, lows).astype(v.array.dtype),
                        highs).astype(v.array.dtype)
    b.settle(b.add(f"tw.clip({{0}}, {low}, {high})", result, v.error, v.rounded, (v,)))


# Each step, and how often it is drawn.
STEPS = {
    unary: 4, function_of_a_real_number: 3, cast: 3, arithmetic: 9, compare: 2, bits: 2,
    division_power_shift: 3, two_real_numbers: 1, where: 2, clip: 1,
}
