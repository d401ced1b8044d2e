"""Reductions and cumulative functions, against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw

SHAPES = [(), (5,), (1,), (2, 3), (3, 1), (2, 3, 4)]
EMPTY = [(0,), (2, 0), (0, 3), (2, 0, 3)]


def axes_of(ndim):
    single = st.integers(-ndim, ndim - 1) if ndim else st.none()
    several = st.lists(st.integers(0, max(ndim - 1, 0)), unique=True, max_size=ndim).map(tuple)
    return st.one_of(st.none(), single, several)


def close(ours, wanted, rtol=1e-5):
    wanted = np.asarray(wanted)
    assert ours.shape == wanted.shape
    np.testing.assert_allclose(np.asarray(ours).astype("float64"), wanted.astype("float64"),
                               rtol=rtol, atol=rtol)


@given(st.data())
def test_totals(data):
    shape = data.draw(st.sampled_from(SHAPES + EMPTY))
    dtype = data.draw(st.sampled_from(["bool", "int8", "uint8", "int64", "float32", "float64"]))
    a = (np.random.default_rng(1).standard_normal(shape) * 3).astype(dtype)
    axis, keepdims = data.draw(axes_of(len(shape))), data.draw(st.booleans())
    x = tw.asarray(a)
    for name in ("sum", "prod"):
        ours = getattr(tw, name)(x, axis=axis, keepdims=keepdims)
        wanted = getattr(np, name)(a, axis=axis, keepdims=keepdims)
        assert ours.dtype == wanted.dtype
        close(ours, wanted)
    for name in ("all", "any"):
        ours = getattr(x, name)(axis, keepdims=keepdims)
        assert ours.dtype == tw.bool
        close(ours, getattr(np, name)(a, axis=axis, keepdims=keepdims))
    close(tw.count_nonzero(x, axis=axis, keepdims=keepdims),
          np.count_nonzero(a, axis=axis, keepdims=keepdims))


@pytest.mark.filterwarnings("ignore")
@given(st.data())
def test_statistics(data):
    shape = data.draw(st.sampled_from(SHAPES + EMPTY))
    dtype = data.draw(st.sampled_from(["bool", "int16", "float32", "float64"]))
    a = (np.random.default_rng(2).standard_normal(shape) * 3).astype(dtype)
    axis, keepdims = data.draw(axes_of(len(shape))), data.draw(st.booleans())
    x = tw.asarray(a)
    wide = a.astype("float64")
    ours = x.mean(axis, keepdims=keepdims)
    assert ours.dtype == (dtype if dtype.startswith("f") else tw.float32)
    close(ours, wide.mean(axis=axis, keepdims=keepdims))
    correction = data.draw(st.sampled_from([0, 1]))
    with np.errstate(all="ignore"):
        close(x.var(axis, correction=correction, keepdims=keepdims),
              wide.var(axis=axis, ddof=correction, keepdims=keepdims))
        close(x.std(axis, correction=correction, keepdims=keepdims),
              wide.std(axis=axis, ddof=correction, keepdims=keepdims))


@given(st.data())
def test_extremes(data):
    shape = data.draw(st.sampled_from(SHAPES))
    dtype = data.draw(st.sampled_from(["bool", "int8", "uint64", "float32", "float64"]))
    a = (np.random.default_rng(3).standard_normal(shape) * 3).astype(dtype)
    axis, keepdims = data.draw(axes_of(len(shape))), data.draw(st.booleans())
    x = tw.asarray(a)
    for name in ("max", "min"):
        ours = getattr(x, name)(axis, keepdims=keepdims)
        assert ours.dtype == dtype
        close(ours, getattr(np, name)(a, axis=axis, keepdims=keepdims))
    if not isinstance(axis, tuple) and shape:
        for name in ("argmax", "argmin"):
            ours = getattr(x, name)(axis, keepdims=keepdims)
            assert ours.dtype == tw.int64
            close(ours, getattr(np, name)(a, axis=axis, keepdims=keepdims))


@given(st.data())
def test_cumulative(data):
    shape = data.draw(st.sampled_from(SHAPES[1:] + EMPTY))
    dtype = data.draw(st.sampled_from(["bool", "int8", "uint8", "float32", "float64"]))
    a = (np.random.default_rng(4).standard_normal(shape) * 2).astype(dtype)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = tw.asarray(a)
    for short, name in (("cumsum", "cumulative_sum"), ("cumprod", "cumulative_prod")):
        wanted = getattr(np, short)(a, axis=axis)
        ours = getattr(tw, name)(x, axis=axis)
        assert ours.dtype == wanted.dtype
        close(ours, wanted)
        close(getattr(x, short)(axis), wanted)
        close(getattr(x, short)(), getattr(np, short)(a))
        with_start = getattr(tw, name)(x, axis=axis, include_initial=True)
        close(with_start[(slice(None),) * (axis % len(shape)) + (slice(1, None),)], wanted)
    if dtype != "bool" and a.size:
        close(tw.cummax(x, axis=axis), np.maximum.accumulate(a, axis=axis))
        close(tw.cummin(x, axis=axis), np.minimum.accumulate(a, axis=axis))
    for n in (0, 1, 2):
        close(tw.diff(x, axis=axis, n=n), np.diff(a, axis=axis, n=n))
    close(tw.diff(x, axis=axis, prepend=1, append=0), np.diff(
        a, axis=axis, prepend=np.array(1, a.dtype), append=np.array(0, a.dtype)))


def test_logsumexp():
    a = np.array([[1.0, 1000.0, -np.inf], [-np.inf] * 3, [np.inf, 0.0, 1.0]])
    wanted = [1000.0, -np.inf, np.inf]
    np.testing.assert_allclose(np.asarray(tw.logsumexp(tw.asarray(a), axis=1)), wanted)
    assert tw.logsumexp(tw.zeros((2, 0)), axis=1, keepdims=True).tolist() == [[-np.inf]] * 2
    assert tw.logsumexp(tw.zeros(4)).item() == pytest.approx(np.log(4))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_accumulates_in_single(dtype):
    x = tw.full(4096, 1.0, dtype=dtype)
    assert x.sum().item() == 4096
    assert x.sum().dtype == x.mean().dtype == x.var().dtype == dtype
    assert x.mean().item() == 1
    assert x.cumsum()[-1].item() == 4096


def test_accuracy_of_a_variance_with_a_large_mean():
    a = (np.random.default_rng(0).standard_normal(1000) + 1e4).astype("float32")
    assert tw.asarray(a).var().item() == pytest.approx(a.astype("float64").var(), rel=1e-4)


def test_nan_reductions_and_average():
    a = np.array([[1.0, np.nan, 3.0], [4.0, 5.0, np.nan]])
    close(tw.nansum(a, axis=1), np.nansum(a, axis=1))
    close(tw.nanmean(a, axis=1), np.nanmean(a, axis=1))
    b = np.arange(6.0).reshape(2, 3)
    close(tw.average(b, axis=1, weights=[1.0, 2.0, 3.0]), np.average(b, 1, [1.0, 2.0, 3.0]))


def test_dtype_argument():
    x = tw.asarray(np.array([100, 100], np.int8))
    assert x.sum(dtype=tw.int8).item() == -56
    assert x.mean(dtype=tw.float64).dtype == tw.float64
    assert x.cumsum(dtype="float32").dtype == tw.float32
