"""What is known of an expression: bounds, signs, divisibility; and substitution."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from tilewright.index.expr import (
    Expr,
    Product,
    Quotient,
    Remainder,
    Sym,
    as_expr,
    const,
    floordiv,
    mod,
    multiple_of,
)


def bounds(value: Expr | int) -> tuple[int, int]:
    """Return inclusive bounds that hold for every assignment of the variables."""
    value = as_expr(value)
    return value.lo, value.hi


def prove_nonnegative(value: Expr | int) -> bool | None:
    """Return True if the value is never negative, False if it always is, None if unknown."""
    value = as_expr(value)
    if value.lo >= 0:
        return True
    return False if value.hi < 0 else None


def prove_divides(divisor: int, value: Expr | int) -> bool | None:
    """Return True if divisor divides every value, False if none, None if unknown."""
    value = as_expr(value)
    rest = mod(value, divisor)
    if rest.is_const:
        return rest.const == 0
    # every value is congruent to the constant modulo what divides all terms
    common = gcd(divisor, multiple_of(value - value.const))
    if value.const % common:
        return False
    return True if common == divisor else None


def prove_different(a: Expr | int, b: Expr | int) -> bool:
    """Return True if no values of the variables, each expression's its own, make the two equal.

    Looks at remainders by each coefficient: 2*i and 2*i + 1, or 8*i + j and 8*i + j + 4 for j < 4.
    """
    a, b = as_expr(a), as_expr(b)
    if a.hi < b.lo or b.hi < a.lo:
        return True
    for divisor in sorted({abs(c) for e in (a, b) for _, c in e.terms if abs(c) > 1}):
        x, y = mod(a, divisor), mod(b, divisor)
        if x.hi < y.lo or y.hi < x.lo:
            return True
    return False


def substitute(value: Expr, mapping: Mapping[Sym, Expr | int]) -> Expr:
    """Replace variables by expressions and bring the result to canonical form."""
    if not value.terms:
        return value
    result: Expr = const(0) + value.const if value.const else const(0)
    for atom, coef in value.terms:
        if isinstance(atom, Sym):
            part = as_expr(mapping[atom]) if atom in mapping else Expr(((atom, 1),), 0)
        elif isinstance(atom, Quotient):
            part = floordiv(substitute(atom.body, mapping), atom.divisor)
        elif isinstance(atom, Remainder):
            part = mod(substitute(atom.body, mapping), atom.divisor)
        else:
            assert isinstance(atom, Product)
            part = substitute(atom.left, mapping) * substitute(atom.right, mapping)
        result = result + part * coef
    return result


def simplify(value: Expr) -> Expr:
    """Return the canonical form again; expressions are canonical by construction."""
    return substitute(value, {})
