"""Elementary functions: within 2 ulp over the whole range, scalar and vector, special values."""

from __future__ import annotations

import numpy as np
import pytest
from scalar_runs import run

from tilewright.dtypes import bfloat16, float16
from tilewright.graph import meaning

EXACT = np.finfo(np.longdouble).nmant > 60  # the reference needs bits to spare
pytestmark = pytest.mark.skipif(not EXACT, reason="long double is no wider than double here")

FUNCTIONS = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}
SPECIAL = [0.0, -0.0, 1, -1, 0.5, -0.5, 2, np.inf, -np.inf, np.nan, np.pi, np.pi / 2, np.pi / 4]


def limits(dtype) -> list[float]:
    info = np.finfo(dtype)
    values = [info.max, info.tiny, info.smallest_subnormal, info.eps]
    return [*values, *(-v for v in values)]


def samples(dtype, count: int) -> np.ndarray:
    """Return every bit pattern's scale, the interesting ranges and the special values."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << np.dtype(dtype).itemsize * 8, count,
                        dtype=f"u{np.dtype(dtype).itemsize}")
    parts = [rng.uniform(-1.5, 1.5, count), rng.normal(0, 3, count), rng.uniform(-20, 20, count),
             rng.uniform(-750, 750, count), 1 + rng.normal(0, 1e-3, count),
             np.exp(rng.uniform(-40, 3, count)), rng.uniform(-1, 1, count),
             rng.normal(size=count) * 10.0 ** rng.integers(0, 12, count),
             np.pi / 2 * rng.integers(-10**6, 10**6, count), SPECIAL, limits(dtype)]
    with np.errstate(all="ignore"):
        return np.concatenate([bits.view(dtype), *(np.asarray(p, dtype) for p in parts)])


def distance(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Return |got - want| in units of the last place; 0 for equal NaN, infinities and zeros."""
    dtype = got.dtype
    with np.errstate(all="ignore"):
        near = want.astype(dtype)
        top = np.finfo(dtype).max
        unit = np.spacing(np.where(np.isfinite(near), np.abs(near), top).astype(dtype))
        error = np.abs(got.astype(np.longdouble) - want) / unit
    same = (np.isnan(got) & np.isnan(want)) | (np.isinf(near) & (got == near)) | (
        (near == 0) & (got == 0) & (np.signbit(got) == np.signbit(near)))
    return np.where(same, 0, np.where(np.isnan(error), np.inf, error))


def assert_close(got: np.ndarray, want: np.ndarray, *inputs: np.ndarray) -> None:
    error = distance(got, want)
    k = int(np.argmax(error))
    assert error[k] <= 2, (float(error[k]), [x[k] for x in inputs], got[k], want[k])


def reference(function, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return function(x.astype(np.longdouble))


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_two_ulp(name, dtype, lanes):
    x = samples(dtype, 20_000 if lanes == 16 else 1_000)
    assert_close(run(name, [x], lanes=lanes), reference(FUNCTIONS[name], x), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_within_two_ulp(dtype):
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(-6.5, 6.5, 3000), rng.uniform(-1.1, 1.1, 2000),
                        rng.normal(0, 1e-3, 500), limits(dtype)[1:], SPECIAL]).astype(dtype)

    def exact(v: float) -> np.longdouble:
        with mpmath.workprec(150):
            whole = mpmath.erf(mpmath.mpf(v)) if v else v
            high = float(whole)
            low = float(whole - high) if np.isfinite(high) else 0.0
        return np.longdouble(high) + np.longdouble(low)

    assert_close(run("erf", [x]), np.array([exact(float(v)) for v in x]), x)


def grid() -> np.ndarray:
    values = [*SPECIAL, 3, -3, 2.5, -2.5, 7, -7, 1e30, -1e30, 1e-30, 2.0**53, 1e20]
    return np.array(np.meshgrid(values, values)).reshape(2, -1)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_power_within_two_ulp(dtype, lanes):
    """Results of every scale: bases near 1 with large exponents are the hard ones."""
    rng = np.random.default_rng(2)
    n = 3000
    top = 85 if dtype is np.float32 else 700
    base = np.exp(rng.uniform(-top, top, n))
    near = 1 + rng.normal(0, 1e-3, n)
    x = np.concatenate([base, near, rng.normal(0, 10, n)]).astype(dtype)
    y = np.concatenate([rng.uniform(-1, 1, n) * top / np.log(base),
                        rng.uniform(-1, 1, n) * top / np.log(near) * 0.9,
                        rng.integers(-20, 20, n)]).astype(dtype)
    with np.errstate(all="ignore"):
        if dtype is np.float64:
            mpmath = pytest.importorskip("mpmath")
            with mpmath.workprec(150):
                exact = [mpmath.power(abs(mpmath.mpf(float(a))), mpmath.mpf(float(b)))
                         for a, b in zip(x, y)]
                want = np.array([np.longdouble(float(v)) + np.longdouble(float(v - float(v)))
                                 for v in exact])
            want = np.copysign(want, np.power(x, y))
        else:
            want = np.power(x.astype(np.float64), y).astype(np.longdouble)
    assert_close(run("power", [x, y], lanes=lanes), want, x, y)


@pytest.mark.parametrize("op", ["power", "atan2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_values_of_two_arguments(op, dtype):
    x, y = grid().astype(dtype)
    got, want = run(op, [x, y]), getattr(meaning, op)([x, y], None)
    assert_close(got, want.astype(np.longdouble), x, y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_atan2_within_two_ulp(dtype):
    rng = np.random.default_rng(3)
    y, x = (np.concatenate([rng.normal(0, 1, 5000), rng.normal(size=5000)
                            * 10.0 ** rng.uniform(-30, 30, 5000)]).astype(dtype) for _ in "yx")
    want = np.arctan2(y.astype(np.longdouble), x.astype(np.longdouble))
    assert_close(run("atan2", [y, x]), want, y, x)


@pytest.mark.parametrize("op", ["floor_divide", "remainder"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_division_of_every_scale(op, dtype):
    """The quotient may be far beyond the fraction's bits; the remainder is exact all the same."""
    a = samples(dtype, 1000)
    b = np.random.default_rng(4).permutation(a)
    got, want = run(op, [a, b]), getattr(meaning, op)([a, b], None)
    bad = ~((got == want) & (np.signbit(got) == np.signbit(want)) | np.isnan(got) & np.isnan(want))
    assert not bad.any(), (a[bad][:3], b[bad][:3], got[bad][:3], want[bad][:3])


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_short_floats_round_the_float32_result(name, dtype):
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    with np.errstate(all="ignore"):
        want = run(name, [x.astype(np.float32)]).astype(dtype.numpy)
    got = run(name, [x])
    assert np.all((got.view(np.uint16) == want.view(np.uint16)) | np.isnan(got) & np.isnan(want))
