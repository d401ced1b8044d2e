"""Every exact elementwise operation against its NumPy meaning: bit-equal, scalar and vector."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
from scalar_runs import call, run

from tilewright.dtypes import ALL, DType, bool_, float16, float32, float64, int64
from tilewright.errors import BackendError
from tilewright.graph import meaning
from tilewright.graph.ops import OPS
from tilewright.lower import scalar
from tilewright.program import Binding, Builder, MemRef, Param, Type

To = namedtuple("To", "dtype")
INTEGERS = [d for d in ALL if d.is_integer]
FLOATS = [d for d in ALL if d.is_float]
NUMBERS = INTEGERS + FLOATS
BITS = [*INTEGERS, bool_]
LANES = [1, 8]


def samples(dtype: DType, seed: int, count: int = 400) -> np.ndarray:
    """Return special values, every scale, and their mixtures."""
    rng = np.random.default_rng(seed)
    if dtype.is_bool:
        return rng.integers(0, 2, count).astype(bool)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        special = [0, 1, 2, 3, 7, 8, info.bits - 1, info.bits, info.max, info.max - 1, info.min]
        special += [-1, -2, -3, info.min + 1] if dtype.kind == "i" else []
        wide = rng.integers(info.min, info.max, count, dtype=dtype.numpy, endpoint=True)
        small = rng.integers(0 if dtype.kind == "u" else -9, 9, count).astype(dtype.numpy)
        return np.concatenate([np.array(special, dtype.numpy), wide, small])
    special = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-40, 7, 3]
    with np.errstate(all="ignore"):
        drawn = rng.integers(0, 1 << 16, 2 * count, dtype=np.uint16) if dtype.bits == 16 else \
            rng.integers(0, 1 << dtype.bits, 2 * count, dtype=f"uint{dtype.bits}")
        parts = [np.array(special), rng.normal(0, 10, count), rng.integers(-9, 9, count)]
        return np.concatenate([*(p.astype(dtype.numpy) for p in parts), drawn.view(dtype.numpy)])


def pairs(dtype: DType) -> list[np.ndarray]:
    a = samples(dtype, 1)
    b = np.random.default_rng(2).permutation(samples(dtype, 3))
    special = a[:15]
    x, y = (g.ravel() for g in np.meshgrid(special, special))
    return [np.concatenate([a, x]), np.concatenate([b, y])]


def assert_same(got: np.ndarray, want: np.ndarray, inputs, zeros: bool = True) -> None:
    """Bits are equal, apart from NaN payloads (and signs of zero unless `zeros`)."""
    assert got.dtype == want.dtype
    same = got == want
    if got.dtype.kind not in "biu":
        if zeros:
            same &= np.signbit(got) == np.signbit(want)
        same |= np.isnan(got) & np.isnan(want)
    bad = np.flatnonzero(~same)
    shown = [tuple(x[k] for x in (*inputs, got, want)) for k in bad[:5]]
    assert not bad.size, f"{bad.size} differ: (inputs, got, want) {shown}"


def check(op: str, arrays, dtype: DType, lanes: int, zeros: bool = True) -> None:
    want = getattr(meaning, op)(arrays, To(dtype))
    assert_same(run(op, arrays, dtype, lanes), want, arrays, zeros)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "minimum", "maximum",
                                "floor_divide", "remainder"])
def test_arithmetic(op, dtype, lanes):
    check(op, pairs(dtype), dtype, lanes, zeros=op not in ("minimum", "maximum"))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_divide(dtype):
    check("divide", pairs(dtype), dtype, 8)


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "minimum", "maximum"])
def test_bool_arithmetic(op):
    check(op, pairs(bool_), bool_, 8)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_power(dtype, lanes):
    check("power", pairs(dtype), dtype, lanes)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("op", ["floor_divide", "remainder", "power"])
@pytest.mark.parametrize("value", [0, 1, 2, 3, 5, 7, 8, 100])
def test_constant_right_operand(op, dtype, value):
    a = samples(dtype, 4)
    want = getattr(meaning, op)([a, np.full_like(a, value)], None)
    assert_same(run(op, [a], dtype, 8, [(value, dtype)]), want, [a])


@pytest.mark.parametrize("op", ["floor_divide", "remainder", "power"])
@pytest.mark.parametrize("value", [-1, -2, -3])
def test_constant_negative_right_operand(op, value):
    a = samples(int64, 4)
    want = getattr(meaning, op)([a, np.full_like(a, value)], None)
    assert_same(run(op, [a], int64, 8, [(value, int64)]), want, [a])


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", BITS, ids=str)
@pytest.mark.parametrize("op", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bitwise(op, dtype, lanes):
    check(op, pairs(dtype), dtype, lanes)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("op", ["bitwise_left_shift", "bitwise_right_shift"])
def test_shift(op, dtype):
    check(op, pairs(dtype), dtype, 8)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("op", ["equal", "not_equal", "less", "less_equal"])
def test_comparison(op, dtype, lanes):
    check(op, pairs(dtype), bool_, lanes)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("op", ["negative", "abs", "sign"])
def test_sign(op, dtype):
    check(op, [samples(dtype, 5)], dtype, 8, zeros=op != "sign")  # libraries differ there


@pytest.mark.parametrize("dtype", BITS, ids=str)
def test_invert(dtype):
    check("bitwise_invert", [samples(dtype, 5)], dtype, 8)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", ["sqrt", "floor", "ceil", "trunc", "round"])
def test_rounding(op, dtype, lanes):
    check(op, [samples(dtype, 6)], dtype, lanes)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("op", ["isnan", "isinf", "signbit"])
def test_predicate(op, dtype):
    check(op, [samples(dtype, 7)], bool_, 8)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_where(dtype):
    a, b = pairs(dtype)
    condition = np.random.default_rng(8).integers(0, 2, len(a)).astype(bool)
    want = meaning.where([condition, a, b], None)
    assert_same(run("where", [condition, a, b], dtype, 8), want, [condition, a, b])


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("source", ALL, ids=str)
@pytest.mark.parametrize("target", ALL, ids=str)
def test_cast(source, target, lanes):
    check("cast", [samples(source, 9)], target, lanes)


def test_float64_to_float16_rounds_once():
    """Halfway cases that a detour over float32 would move."""
    base = np.arange(1, 4000, dtype=np.float64) / 8
    half = (base.astype(np.float16).astype(np.float64)
            + np.spacing(base.astype(np.float16)).astype(np.float64) / 2)
    x = np.concatenate([half, half * (1 + 2.0**-40), half * (1 - 2.0**-40), half * 2.0**-24,
                        [65519.999999999, 65520.0, 2.0**-25, 2.0**-25 * (1 + 2.0**-50), 1e300]])
    check("cast", [x], float16, 8)
    check("cast", [-x], float16, 1)


@pytest.mark.parametrize(("source", "target"), [(float32, "int32"), (float64, "uint64"),
                                                (bool_, "int8"), (float16, "uint16")])
def test_bitcast(source, target):
    x = samples(source, 10)
    got = run("bitcast", [x], next(d for d in ALL if d.name == target), 8)
    assert np.array_equal(got, x.view(target))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, -1, 0.5, -2.5])
def test_power_with_a_constant_exponent(exponent):
    x = np.abs(samples(float64, 11))
    got = run("power", [x], float64, 8, [(exponent, float64)])
    with np.errstate(all="ignore"):
        want = x * x if exponent == 2 else np.power(x, exponent)
        close = np.abs(got - want) <= (0 if exponent == 2 else 2) * np.spacing(np.abs(want))
    assert np.all(close | (got == want) | (np.isnan(got) & np.isnan(want)))


def test_products_are_not_contracted():
    """p*q - r*s of equal products is 0: nothing fuses the subtraction."""
    rng = np.random.default_rng(12)
    x, y = rng.normal(size=(2, 64))
    b = Builder("strict", [Param("x", "input", float64), Param("y", "input", float64),
                           Param("out", "output", float64)])
    with b.loop(0, 8) as loop:
        at = b.scaled(loop, 8)
        p, q = (b.load(Type(float64, 8), at, MemRef(n)) for n in "xy")
        left, right = b.op("mul", p, q), b.op("mul", q, p)
        b.store(at, b.op("sub", left, right), MemRef("out"))
    out = np.ones(64)
    call([b.program], Binding(b.program.params, 0, 0), [x, y, out])
    assert not out.any()


def test_unknown_operation():
    b = Builder("none", [])
    with pytest.raises(BackendError, match="lower: cannot emit 'frobnicate'"):
        scalar.emit(b, "frobnicate", [b.const(1.0, Type(float32))], float32)


def test_every_elementwise_operation_has_a_rule():
    names = {name for name, row in OPS.items() if row.kind == "elementwise"}
    assert names - {"cast", "bitcast"} == set(scalar.RULES)
