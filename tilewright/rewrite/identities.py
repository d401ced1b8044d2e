"""Elementwise identities, as formulas.

Floats: only what holds for every bit pattern but a NaN's payload. So ``x - 0`` is x and ``x + 0``
is not (-0.0 + 0.0 is 0.0), and ``x * 0``, ``x - x`` stay (infinity, NaN).
"""

from __future__ import annotations

from tilewright.dtypes import bool_
from tilewright.rewrite.rule import Rule, formula
from tilewright.rewrite.terms import Literal, Variable, term, where

x, y, c = Variable("x"), Variable("y"), Variable("c")
zero, true, false = Literal(0), Literal(True, bool_), Literal(False, bool_)
ones = Literal(-1)  # every bit set; True for a bool

ARITHMETIC: tuple[Rule, ...] = (
    formula("add-zero", x + 0, x, "biu"),
    formula("add-negative-zero", x + -0.0, x, "f"),
    formula("subtract-zero", x - 0, x, "biuf"),
    formula("subtract-itself", x - x, zero, "biu"),
    formula("multiply-one", x * 1, x),
    formula("multiply-zero", x * 0, zero, "biu"),
    formula("divide-one", x / 1, x, "f"),
    formula("floor-divide-one", x // 1, x, "iu"),
    formula("remainder-one", x % 1, zero, "iu"),
    formula("power-one", x ** 1, x, "iuf"),
    formula("power-zero", x ** 0, Literal(1), "iuf"),
    formula("negative-negative", term("negative", -x), x, "iuf"),
    formula("abs-negative", abs(-x), abs(x), "if"),
    formula("abs-abs", abs(abs(x)), abs(x), "iuf"),
    formula("minimum-itself", term("minimum", x, x), x),
    formula("maximum-itself", term("maximum", x, x), x),
)

BITS: tuple[Rule, ...] = (
    formula("and-itself", x & x, x, "biu"),
    formula("and-zero", x & 0, zero, "biu"),
    formula("and-ones", x & ones, x, "biu"),
    formula("or-itself", x | x, x, "biu"),
    formula("or-zero", x | 0, x, "biu"),
    formula("or-ones", x | ones, ones, "biu"),
    formula("xor-itself", x ^ x, zero, "biu"),
    formula("xor-zero", x ^ 0, x, "biu"),
    formula("invert-invert", ~~x, x, "biu"),
    formula("left-shift-zero", x << 0, x, "iu"),
    formula("right-shift-zero", x >> 0, x, "iu"),
)

CHOICES: tuple[Rule, ...] = (
    formula("equal-itself", term("equal", x, x), true, "biu"),
    formula("equal-true", term("equal", x, ones), x, "b"),
    formula("not-equal-itself", term("not_equal", x, x), false, "biu"),
    formula("not-equal-false", term("not_equal", x, 0), x, "b"),
    formula("less-itself", term("less", x, x), false),
    formula("less-equal-itself", term("less_equal", x, x), true, "biu"),
    formula("where-true", where(true, x, y), x),
    formula("where-false", where(false, x, y), y),
    formula("where-itself", where(c, x, x), x),
    formula("where-not", where(~c, x, y), where(c, y, x)),
)
