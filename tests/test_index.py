"""Index expressions against plain integer arithmetic, over every assignment of small variables."""

import ast
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright.index
from tilewright.index import (
    Expr,
    as_expr,
    bounds,
    const,
    evaluate,
    floordiv,
    mod,
    multiple_of,
    prove_different,
    prove_divides,
    prove_nonnegative,
    simplify,
    substitute,
    sym,
    symbols,
    to_int,
)

I, J, K = sym("i", 0, 6), sym("j", -3, 4), sym("k", 0, 8, 4)
RANGES = {"i": range(0, 7), "j": range(-3, 5), "k": range(0, 9, 4)}
ASSIGNMENTS = [dict(zip(RANGES, values)) for values in itertools.product(*RANGES.values())]
TABLE = {name: np.array([a[name] for a in ASSIGNMENTS]) for name in RANGES}


@st.composite
def programs(draw):
    """Return an expression and its values over all assignments, computed beside it."""
    pool = [(e, TABLE[n]) for e, n in ((I, "i"), (J, "j"), (K, "k"))]
    for _ in range(draw(st.integers(1, 7))):
        (a, x), (b, y) = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        n, d = draw(st.integers(-7, 7)), draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12]))
        pool.append(draw(st.sampled_from([
            (a + b, x + y), (a - b, x - y), (a * n, x * n), (n * a + b, n * x + y),
            (a + n, x + n), (n - a, n - x), (a // d, x // d), (a % d, x % d), (a * b, x * y),
            (a * d + b % d, x * d + y % d), (a // d * d + a % d, x), (-a, -x)])))
    return pool[-1]


@given(programs())
def test_values_bounds_and_proofs(program):
    expr, values = program
    values = values + np.zeros(len(ASSIGNMENTS), np.int64)
    np.testing.assert_array_equal(evaluate(expr, TABLE) + 0 * values, values)
    assert evaluate(expr, ASSIGNMENTS[7]) == values[7]
    low, high = bounds(expr)
    assert low <= values.min() and values.max() <= high
    sign = prove_nonnegative(expr)
    assert sign is None or ((values >= 0).all() == sign and (values < 0).all() != sign)
    known = multiple_of(expr)
    assert (values % known == 0).all() if known else not values.any()
    for divisor in (1, 2, 3, 4, 8):
        proof = prove_divides(divisor, expr)
        divides = values % divisor == 0
        assert proof is None or (divides.all() == proof and divides.any() == proof)
    if expr.is_const:
        assert (values == to_int(expr)).all()


@given(programs())
def test_canonical_form_is_stable(program):
    expr, _ = program
    again = simplify(expr)
    assert again == expr and hash(again) == hash(expr) and str(again) == str(expr)
    assert expr - expr == 0 and expr + 0 == expr and expr * 1 == expr
    assert {s.name for s in symbols(expr)} <= set(RANGES)


@given(programs(), programs(), st.sampled_from(["i", "j"]))
def test_substitution_equals_substituting_the_values(outer, inner, name):
    expr, (replacement, values) = outer[0], inner
    (symbol,) = symbols({"i": I, "j": J}[name])
    result = substitute(expr, {symbol: replacement})
    values = values + np.zeros(len(ASSIGNMENTS), np.int64)
    expected = evaluate(expr, {**TABLE, name: values})
    # the bounds of a variable hold for what replaces it
    inside = (values >= symbol.lo) & (values <= symbol.hi)
    zeros = 0 * values
    np.testing.assert_array_equal((evaluate(result, TABLE) + zeros)[inside],
                                  (expected + zeros)[inside])


@given(programs(), programs())
def test_order_of_addition_does_not_matter(a, b):
    assert a[0] + b[0] == b[0] + a[0]
    assert a[0] * b[0] == b[0] * a[0]
    assert (a[0] == b[0]) <= bool((a[1] == b[1]).all())


@pytest.mark.parametrize("value, text", [
    (I * 4 + J, "i*4 + j"), ((I * 4 + 3) // 4, "i"), ((I * 4 + 3) % 4, "3"),
    ((I * 8 + J + 3) // 8, "i"), ((I // 2) // 3, "((i) // 6)"), (I // 7, "0"), (I % 7, "i"),
    ((I * 2 + 1) // 4, "((i) // 2)"), (I // 4 * 4 + I % 4, "i"), (I - 3, "i - 3"),
    ((I + J) % 1, "0"), (const(-7) // 2, "-4"), (const(-7) % 2, "1"),
    ((I * 4 + J % 4) // 4 * 4 + (I * 4 + J % 4) % 4, "i*4 + ((j) % 4)"),
])
def test_canonical_text(value, text):
    assert str(value) == text


@pytest.mark.parametrize("divisor, value, proof", [
    (4, I * 4, True), (4, I * 4 + 2, False), (8, I * 4 + 2, False), (4, K, True), (8, K, None),
    (4, K + I * 8, True), (8, K * 2 + 4, False), (2, I, None), (3, const(9), True),
    (4, (I % 3) * 4 + K, True)])
def test_divisibility(divisor, value, proof):
    assert prove_divides(divisor, value) is proof


@pytest.mark.parametrize("a, b, proof", [
    (I * 2, I * 2 + 1, True), (I * 2, J * 4 + 1, True), (I * 2, J * 3 + 1, False),
    (I * 8 + J % 4, I * 8 + J % 4 + 4, True), (I * 8 + J % 4, I * 8 + J % 4 + 3, False),
    (I, I + 7, True), (I, I + 6, False), (const(3), const(4), True), (const(3), const(3), False)])
def test_values_that_are_never_equal(a, b, proof):
    assert prove_different(a, b) is prove_different(b, a) is proof


@given(programs(), programs())
def test_what_is_proved_different_is(a, b):
    if prove_different(a[0], b[0]):
        assert not set(np.ravel(a[1])) & set(np.ravel(b[1]))


def test_multiples():
    assert multiple_of(K * 3 + 24) == 12
    assert multiple_of(const(0)) == 0 and multiple_of(const(-6)) == 6


def test_constants_are_integers():
    assert int(const(5)) == 5 and range(10)[const(3)] == 3
    assert const(5) == 5 and hash(const(5)) == hash(5) and const(5) != 6
    assert {5: "five"}[const(5)] == "five"
    assert isinstance(as_expr(3), Expr) and to_int(3) == 3
    with pytest.raises(ValueError, match="index: cannot convert i to an integer"):
        int(I)


@pytest.mark.parametrize("divisor", [0, -2])
def test_divisors_are_positive(divisor):
    with pytest.raises(ValueError, match=rf"index: cannot divide i by {divisor}"):
        floordiv(I, divisor)
    with pytest.raises(ValueError, match=rf"index: cannot divide i by {divisor}"):
        mod(I, divisor)


def test_a_long_sum_is_quick_to_build():
    total = as_expr(0)
    for n in range(300):
        total = total + sym(f"s{n}", 0, 9) * (n + 1)
    assert len(symbols(total)) == 300 and bounds(total) == (0, 9 * 300 * 301 // 2)


def test_the_package_imports_only_the_standard_library():
    for path in Path(tilewright.index.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else \
                [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.startswith("tilewright.index") or \
                    name.split(".")[0] in sys.stdlib_module_names, (path.name, name)
