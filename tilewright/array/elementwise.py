"""Elementwise functions of the array API standard 2024.12, and NumPy's further spellings.

Inputs broadcast and promote (see `array.convert`). Functions of real numbers take integers and bool
as ``float32``. Integer division by zero gives 0.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log as _log

import numpy as np

from tilewright.array import build as b
from tilewright.array.convert import (
    DEFAULT_FLOAT,
    ArrayLike,
    all_weak,
    broadcast,
    is_weak,
    to_node,
    unify,
)
from tilewright.array.tensor import Tensor
from tilewright.dtypes import bool_, float64
from tilewright.errors import DTypeError
from tilewright.graph import Node

Unary = Callable[[ArrayLike], Tensor]
Binary = Callable[[ArrayLike, ArrayLike], Tensor]


def _refuse(name: str, nodes: list[Node], wanted: str) -> DTypeError:
    listed = " and ".join(b.describe(n) for n in nodes)
    return DTypeError(f"{name}: cannot accept {listed} (needs {wanted})")


def _as_float(nodes: list[Node]) -> list[Node]:
    return nodes if nodes[0].dtype.is_float else [b.cast(n, DEFAULT_FLOAT) for n in nodes]


def _named(function: Callable, name: str, text: str) -> Callable:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def _check(name: str, kind: str, nodes: list[Node]) -> list[Node]:
    """Apply the dtype rule `kind`: any, number, integer, bits or float."""
    dtype = nodes[0].dtype
    if kind == "number" and dtype.is_bool:
        raise _refuse(name, nodes, "numbers, not bool; cast first")
    if kind == "integer" and not dtype.is_integer:
        raise _refuse(name, nodes, "integers")
    if kind == "bits" and dtype.is_float:
        raise _refuse(name, nodes, "integers or bool")
    return _as_float(nodes) if kind == "float" else nodes


def _binary(name: str, kind: str, text: str, op: str | None = None) -> Binary:
    row = op or name

    def function(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
        nodes = broadcast(name, _check(name, kind, unify(name, x1, x2)))
        return Tensor(b.build(row, *nodes), all_weak((x1, x2)))
    return _named(function, name, f"{text}\n\n    Inputs broadcast and promote; lazy.\n    ")


def _unary(name: str, kind: str, text: str, op: str | None = None) -> Unary:
    row = op or name

    def function(x: ArrayLike, /) -> Tensor:
        nodes = _check(name, kind, [to_node(x)])
        return Tensor(b.build(row, *nodes), all_weak((x,)))
    return _named(function, name, text)


# --- arithmetic ----------------------------------------------------------------------------------

add = _binary("add", "any", "Return x1 + x2; for bool, logical or.")
subtract = _binary("subtract", "number", "Return x1 - x2; bool is refused.")
multiply = _binary("multiply", "any", "Return x1 * x2; for bool, logical and.")
divide = _binary("divide", "float", "Return x1 / x2; integers divide as float32.")
floor_divide = _binary("floor_divide", "number", "Return floor(x1 / x2) in the inputs' dtype.")
remainder = _binary("remainder", "number", "Return x1 - x2 * floor(x1 / x2): the sign of x2.")
maximum = _binary("maximum", "any", "Return the greater of x1 and x2; NaN if either is.")
minimum = _binary("minimum", "any", "Return the lesser of x1 and x2; NaN if either is.")
atan2 = _binary("atan2", "float", "Return the angle of the point (x2, x1), in radians.")
_pow = _binary("pow", "number", "Return x1 to the power x2.", op="power")


def pow(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:  # noqa: A001
    """Return x1 to the power x2.

    A Python exponent of 0, 1, 2, 3 or -1 is written with products and one division. Raises
    ValueError for an integer base with a negative Python exponent.
    """
    if isinstance(x2, (int, float)) and is_weak(x2) and not is_weak(x1):
        base = Tensor(unify("pow", x1, x2)[0])
        if base.dtype.is_integer and x2 < 0:
            raise ValueError(f"pow: cannot raise {b.describe(base._node)} to {x2} (integers have "
                             "no negative powers; cast to a float first)")
        if x2 == 0:
            return Tensor(b.full(1, base.dtype, base.shape))
        if x2 in (1, 2, 3) and not base.dtype.is_bool:
            return base if x2 == 1 else multiply(base, base) if x2 == 2 else \
                multiply(multiply(base, base), base)
        if x2 == -1:
            return divide(1, base)
    return _pow(x1, x2)


def negative(x: ArrayLike, /) -> Tensor:
    """Return -x; bool is refused."""
    nodes = _check("negative", "number", [to_node(x)])
    return Tensor(b.build("negative", *nodes), all_weak((x,)))


def positive(x: ArrayLike, /) -> Tensor:
    """Return x as a new handle; bool is refused."""
    return Tensor(_check("positive", "number", [to_node(x)])[0])


def abs(x: ArrayLike, /) -> Tensor:  # noqa: A001
    """Return the magnitude of x; unsigned integers and bool unchanged."""
    node = to_node(x)
    plain = node.dtype.is_bool or node.dtype.kind == "u"
    return Tensor(node if plain else b.build("abs", node), all_weak((x,)))


def sign(x: ArrayLike, /) -> Tensor:
    """Return -1, 0 or 1 by the sign of x; NaN stays NaN."""
    return Tensor(b.build("sign", *_check("sign", "number", [to_node(x)])))


def square(x: ArrayLike, /) -> Tensor:
    """Return x * x."""
    return multiply(x, x)


def reciprocal(x: ArrayLike, /) -> Tensor:
    """Return 1 / x; integers as float32."""
    return divide(1, x)


# --- bits and logic ------------------------------------------------------------------------------

bitwise_and = _binary("bitwise_and", "bits", "Return the bits set in both x1 and x2.")
bitwise_or = _binary("bitwise_or", "bits", "Return the bits set in x1 or x2.")
bitwise_xor = _binary("bitwise_xor", "bits", "Return the bits set in exactly one of x1 and x2.")
bitwise_invert = _unary("bitwise_invert", "bits", "Return x with every bit flipped.")
bitwise_left_shift = _binary(
    "bitwise_left_shift", "integer", "Return x1 << x2; 0 from the dtype's width on.")
bitwise_right_shift = _binary(
    "bitwise_right_shift", "integer",
    "Return x1 >> x2, keeping the sign; 0 or -1 from the dtype's width on.")


def _truth(x: ArrayLike) -> Node:
    return b.cast(to_node(x), bool_)


def _logical(name: str, op: str, text: str) -> Binary:
    def function(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
        return Tensor(b.build(op, *broadcast(name, [_truth(x1), _truth(x2)])))
    return _named(function, name, f"{text} Anything but 0 is true; the result is bool.")


logical_and = _logical("logical_and", "bitwise_and", "Return x1 and x2.")
logical_or = _logical("logical_or", "bitwise_or", "Return x1 or x2.")
logical_xor = _logical("logical_xor", "bitwise_xor", "Return whether exactly one is true.")


def logical_not(x: ArrayLike, /) -> Tensor:
    """Return whether x is 0."""
    return Tensor(b.build("bitwise_invert", _truth(x)))


# --- comparison ----------------------------------------------------------------------------------


def _outside(value: ArrayLike, other: ArrayLike) -> int:
    """Return 1 or -1 if the Python integer `value` is above or below all integers of `other`."""
    if not isinstance(value, int) or isinstance(value, bool) or is_weak(other):
        return 0
    dtype = to_node(other).dtype
    if not dtype.is_integer:
        return 0
    limits = np.iinfo(dtype.numpy)
    return 1 if value > limits.max else -1 if value < limits.min else 0


def _compare(name: str, op: str, swap: bool, text: str) -> Binary:
    def function(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
        if far := _outside(x2, x1):
            return Tensor(b.expand(function(0, far)._node, to_node(x1).shape))
        if far := _outside(x1, x2):
            return Tensor(b.expand(function(far, 0)._node, to_node(x2).shape))
        nodes = broadcast(name, unify(name, x1, x2))
        return Tensor(b.build(op, *(reversed(nodes) if swap else nodes)))
    return _named(function, name, f"Return {text} elementwise, as bool.")


equal = _compare("equal", "equal", False, "x1 == x2")
not_equal = _compare("not_equal", "not_equal", False, "x1 != x2")
less = _compare("less", "less", False, "x1 < x2")
less_equal = _compare("less_equal", "less_equal", False, "x1 <= x2")
greater = _compare("greater", "less", True, "x1 > x2")
greater_equal = _compare("greater_equal", "less_equal", True, "x1 >= x2")


def _predicate(name: str, text: str) -> Unary:
    def function(x: ArrayLike, /) -> Tensor:
        node = to_node(x)
        if not node.dtype.is_float:
            return Tensor(b.full(False, bool_, node.shape))
        return Tensor(b.build(name, node))
    return _named(function, name, text)


isnan = _predicate("isnan", "Return whether x is NaN.")
isinf = _predicate("isinf", "Return whether x is an infinity.")


def isfinite(x: ArrayLike, /) -> Tensor:
    """Return whether x is neither NaN nor an infinity."""
    return logical_not(logical_or(isnan(x), isinf(x)))


def signbit(x: ArrayLike, /) -> Tensor:
    """Return whether the sign of x is negative; true of -0.0."""
    return Tensor(b.build("signbit", *_check("signbit", "number", [to_node(x)])))


# --- rounding ------------------------------------------------------------------------------------


def _rounding(name: str, text: str) -> Unary:
    def function(x: ArrayLike, /) -> Tensor:
        node = to_node(x)
        return Tensor(b.build(name, node) if node.dtype.is_float else node)
    return _named(function, name, f"Return {text}; integers unchanged.")


floor = _rounding("floor", "the greatest whole number not above x")
ceil = _rounding("ceil", "the least whole number not below x")
trunc = _rounding("trunc", "x without its fraction")


def round(x: ArrayLike, /, decimals: int = 0) -> Tensor:  # noqa: A001
    """Return x rounded to `decimals` places, halves to even; integers unchanged if that is >= 0."""
    node = to_node(x)
    if not node.dtype.is_float:
        if decimals >= 0:
            return Tensor(node)
        raise DTypeError(f"round: cannot round {b.describe(node)} to {decimals} decimals "
                         "(negative decimals need floats)")
    if decimals == 0:
        return Tensor(b.build("round", node))
    scale = 10.0 ** decimals
    return divide(Tensor(b.build("round", multiply(Tensor(node), scale)._node)), scale)


# --- functions of real numbers -------------------------------------------------------------------

exp = _unary("exp", "float", "Return e to the power x.")
exp2 = _unary("exp2", "float", "Return 2 to the power x.")
expm1 = _unary("expm1", "float", "Return exp(x) - 1, exact near 0.")
log = _unary("log", "float", "Return the natural logarithm of x.")
log2 = _unary("log2", "float", "Return the base-2 logarithm of x.")
log1p = _unary("log1p", "float", "Return log(1 + x), exact near 0.")
sqrt = _unary("sqrt", "float", "Return the square root of x; NaN below 0.")
sin = _unary("sin", "float", "Return the sine of x in radians.")
cos = _unary("cos", "float", "Return the cosine of x in radians.")
tan = _unary("tan", "float", "Return the tangent of x in radians.")
asin = _unary("asin", "float", "Return the inverse sine of x, in radians.")
acos = _unary("acos", "float", "Return the inverse cosine of x, in radians.")
atan = _unary("atan", "float", "Return the inverse tangent of x, in radians.")
sinh = _unary("sinh", "float", "Return the hyperbolic sine of x.")
cosh = _unary("cosh", "float", "Return the hyperbolic cosine of x.")
tanh = _unary("tanh", "float", "Return the hyperbolic tangent of x.")
asinh = _unary("asinh", "float", "Return the inverse hyperbolic sine of x.")
acosh = _unary("acosh", "float", "Return the inverse hyperbolic cosine of x.")
atanh = _unary("atanh", "float", "Return the inverse hyperbolic tangent of x.")
erf = _unary("erf", "float", "Return the error function of x.")


def rsqrt(x: ArrayLike, /) -> Tensor:
    """Return 1 / sqrt(x)."""
    return divide(1, sqrt(x))


def log10(x: ArrayLike, /) -> Tensor:
    """Return the base-10 logarithm of x; computed in float64."""
    (node,) = _as_float([to_node(x)])
    wide = Tensor(b.build("log", b.cast(node, float64)))
    return Tensor(b.cast(divide(wide, _log(10.0))._node, node.dtype))


def select(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """Return x1 where `condition` is true, else x2; all three broadcast, x1 and x2 promote."""
    nodes = broadcast("where", [_truth(condition), *unify("where", x1, x2)])
    return Tensor(b.build("where", *nodes))


def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return sqrt(x1**2 + x2**2) without overflow on the way."""
    x, y = (abs(Tensor(n)) for n in _as_float(unify("hypot", x1, x2)))
    large, small = maximum(x, y), minimum(x, y)
    ratio = divide(small, select(equal(large, 0), 1, large))
    plain = multiply(large, sqrt(add(1, multiply(ratio, ratio))))
    return select(logical_or(isinf(x), isinf(y)), float("inf"), plain)


def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return log(exp(x1) + exp(x2)) without overflow on the way."""
    x, y = (Tensor(n) for n in _as_float(unify("logaddexp", x1, x2)))
    same = equal(x, y)  # infinities of one sign would subtract to NaN
    gap = negative(abs(subtract(select(same, 0, x), select(same, 0, y))))
    return add(maximum(x, y), log1p(exp(gap)))


def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the magnitude of x1 with the sign of x2."""
    x, y = (Tensor(n) for n in _as_float(unify("copysign", x1, x2)))
    return select(equal(signbit(x), signbit(y)), x, negative(x))


def clip(x: ArrayLike, /, min: ArrayLike = None, max: ArrayLike = None) -> Tensor:  # noqa: A002
    """Return x limited to [min, max]; a bound of None does not limit; NaN stays NaN.

    The result has x's dtype, except that float bounds make integers ``float32``.
    """
    result = Tensor(to_node(x))
    if min is not None:
        result = maximum(result, min)
    return result if max is None else minimum(result, max)


def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Tensor, Tensor]:  # noqa: A001
    """Return (x1 // x2, x1 % x2)."""
    return floor_divide(x1, x2), remainder(x1, x2)


def nan_to_num(x: ArrayLike, /, nan: float = 0.0, posinf: float | None = None,
               neginf: float | None = None) -> Tensor:
    """Return x with NaN and infinities replaced (by 0 and the dtype's largest values)."""
    node = to_node(x)
    if not node.dtype.is_float:
        return Tensor(node)
    limit = float(np.finfo(node.dtype.numpy).max) if node.dtype.name != "bfloat16" else 3.3895314e38
    high = limit if posinf is None else posinf
    low = -limit if neginf is None else neginf
    x = Tensor(node)
    return select(isnan(x), nan, select(equal(x, float("inf")), high,
                                        select(equal(x, -float("inf")), low, x)))


def isclose(x1: ArrayLike, x2: ArrayLike, /, rtol: float = 1e-5, atol: float = 1e-8,
            equal_nan: bool = False) -> Tensor:
    """Return whether |x1 - x2| <= atol + rtol * |x2|; equal infinities are close."""
    x, y = (Tensor(n) for n in _as_float(unify("isclose", x1, x2)))
    near = less_equal(abs(subtract(x, y)), add(atol, multiply(rtol, abs(y))))
    result = logical_or(equal(x, y), logical_and(near, isfinite(y)))
    return logical_or(result, logical_and(isnan(x), isnan(y))) if equal_nan else result


