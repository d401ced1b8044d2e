"""Integer index arithmetic: canonical expressions, bounds, divisibility and proofs.

This package knows no tensors and imports only the standard library. Division is floor division and
the remainder has the divisor's sign (divisors are positive constants), stated here once.
"""

from tilewright.index.expr import (
    Expr,
    Sym,
    as_expr,
    const,
    evaluate,
    floordiv,
    mod,
    multiple_of,
    sym,
    symbols,
    to_int,
)
from tilewright.index.prove import (
    bounds,
    prove_different,
    prove_divides,
    prove_nonnegative,
    simplify,
    substitute,
)

__all__ = [
    "Expr", "Sym", "as_expr", "bounds", "const", "evaluate", "floordiv", "mod", "multiple_of",
    "prove_different", "prove_divides", "prove_nonnegative", "simplify", "substitute", "sym",
    "symbols", "to_int",
]
