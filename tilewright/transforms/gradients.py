"""The gradient of every operation: one row each, as equations or as a stated reason for none.

In the equations, `g` is the cotangent of the result, `y` the result, `a` and `b` the inputs.

Choices at points where the derivative does not exist: abs and sign have 0 at 0; minimum and maximum
give each of two equal inputs half; max and min reductions give tied elements equal shares; running
max and min give all to the latest of tied elements; power has 0 for an exponent of 0, and 0 for
the exponent's own gradient at a base of 0. ``where`` passes 0 to the branch not taken: if that
branch's own derivative is infinite there, the product is NaN, as in other frameworks; guard the
branch's input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, pi, sqrt

from tilewright.graph import Node
from tilewright.rewrite.terms import Term, Variable, term, where
from tilewright.transforms import structural


@dataclass(frozen=True)
class Equations:
    """One term per input, None where the input (a condition) has no gradient."""

    terms: tuple[Term | None, ...]


@dataclass(frozen=True)
class Computed:
    """(node, g) -> one cotangent, or None, per input."""

    function: Callable[[Node, Node], Sequence[Node | None]]


@dataclass(frozen=True)
class Nothing:
    """No gradient, and why.

    kind  source (has no inputs), zero (constant almost everywhere, or no real numbers involved),
          undefined or unwritten (both raise when a gradient is asked for)
    """

    kind: str
    reason: str


Gradient = Equations | Computed | Nothing

g, y, a, b, c = (Variable(name) for name in "gyabc")


def _f(name: str) -> Callable[..., Term]:
    return lambda *args: term(name, *args)


_exp, _log, _sqrt, _sign, _sin, _cos, _sinh, _cosh, _less, _equal = map(_f, (
    "exp", "log", "sqrt", "sign", "sin", "cos", "sinh", "cosh", "less", "equal"))


def _either(wins: Term) -> Term:
    """g where this input wins, half of it on a tie."""
    return where(_equal(a, b), g * 0.5, where(wins, g, 0.0))


ELEMENTWISE: dict[str, tuple[Term | None, ...]] = {
    "add": (g, g),
    "subtract": (g, -g),
    "multiply": (g * b, g * a),
    "divide": (g / b, -(g / b * y)),
    "remainder": (g, -(g * (a // b))),
    "minimum": (_either(_less(a, b)), _either(_less(b, a))),
    "maximum": (_either(_less(b, a)), _either(_less(a, b))),
    # both exponents and logarithms are taken of safe values: the guards must hold at second order
    "power": (where(_equal(b, 0.0), 0.0, g * (b * a ** where(_equal(b, 0.0), 1.0, b - 1.0))),
              where(_equal(a, 0.0), 0.0, g * (y * _log(where(_equal(a, 0.0), 1.0, a))))),
    "atan2": (g * b / (a * a + b * b), -(g * a / (a * a + b * b))),
    "negative": (-g,),
    "abs": (g * _sign(a),),
    "sqrt": (g * 0.5 / y,),
    "exp": (g * y,),
    "exp2": (g * y * log(2),),
    "expm1": (g * _exp(a),),
    "log": (g / a,),
    "log2": (g / (a * log(2)),),
    "log1p": (g / (a + 1.0),),
    "sin": (g * _cos(a),),
    "cos": (-(g * _sin(a)),),
    "tan": (g * (y * y + 1.0),),
    "asin": (g / _sqrt((1.0 - a) * (1.0 + a)),),
    "acos": (-(g / _sqrt((1.0 - a) * (1.0 + a))),),
    "atan": (g / (a * a + 1.0),),
    "sinh": (g * _cosh(a),),
    "cosh": (g * _sinh(a),),
    "tanh": (g * (1.0 - y * y),),
    "asinh": (g / _sqrt(a * a + 1.0),),
    "acosh": (g / _sqrt((a - 1.0) * (a + 1.0)),),
    "atanh": (g / ((1.0 - a) * (1.0 + a)),),
    "erf": (g * (_exp(-(a * a)) * (2 / sqrt(pi))),),
    # inputs a, b, c: the condition comes first
    "where": (None, where(a, g, 0.0), where(a, 0.0, g)),
}

_STEP = Nothing("zero", "its result is constant almost everywhere")
_DISCRETE = Nothing("zero", "its result is not a real number")
_SOURCE = Nothing("source", "it has no inputs")

GRADIENTS: dict[str, Gradient] = {
    **dict.fromkeys(("buffer", "parameter", "constant", "iota"), _SOURCE),
    **{name: Equations(terms) for name, terms in ELEMENTWISE.items()},
    **dict.fromkeys(("floor_divide", "sign", "floor", "ceil", "trunc", "round"), _STEP),
    **dict.fromkeys((
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert", "bitwise_left_shift",
        "bitwise_right_shift", "equal", "not_equal", "less", "less_equal", "isnan", "isinf",
        "signbit"), _DISCRETE),
    "bitcast": Nothing("undefined", "the bits of a number are not a differentiable function of it"),
    "cast": Computed(structural.cast),
    "reshape": Computed(structural.reshape),
    "permute": Computed(structural.permute),
    "expand": Computed(structural.expand),
    "slice": Computed(structural.slice_),
    "pad": Computed(structural.pad),
    "shear": Computed(structural.shear),
    "unshear": Computed(structural.unshear),
    "concat": Computed(structural.concat),
    "gather": Computed(structural.gather),
    "scatter": Computed(structural.scatter),
    "reduce": Computed(structural.reduce),
    "cumulate": Computed(structural.cumulate),
    "call": Computed(structural.call),
}
