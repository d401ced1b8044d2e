"""Faults that users of other tensor compilers reported, each generalised to its kind.

`call(f, *args)` runs f on realised arrays in one of the modes (see conftest); every one of them
must give the same values.
"""

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright import nn, random

SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]


# --- integers, casts, bool


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
def test_shifts_by_the_width_or_more(call, dtype):
    width = np.dtype(dtype).itemsize * 8
    values = np.array([37, 1, 0, 5, -9 if dtype in SIGNED else 9]).astype(dtype)
    for count in (0, 1, width - 1, width, width + 6, 100):
        counts = np.full(5, count, dtype)
        left, right = call(lambda a, k: (a << k, a >> k), values, counts)
        wanted_left = [(int(v) << count) % 2**width for v in values]
        np.testing.assert_array_equal(left, np.array(wanted_left, f"uint{width}").astype(dtype))
        np.testing.assert_array_equal(right, np.array([int(v) >> count for v in values], dtype))


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
def test_integer_division_neither_traps_nor_rounds_towards_zero(call, dtype):
    info = np.iinfo(dtype)
    values = np.array([info.min, info.max, 0, 1, 7, info.min + 1] + [-7] * (info.min < 0), dtype)
    a, b = (g.ravel() for g in np.meshgrid(values, values))
    q, r = call(lambda x, y: (x // y, x % y), a, b)
    for x, y, div, mod in zip(a.tolist(), b.tolist(), q.tolist(), r.tolist()):
        if y == 0:
            assert (div, mod) == (0, 0)
        elif (x, y) == (info.min, -1):
            assert (div, mod) == (info.min, 0)
        else:
            assert (div, mod) == (x // y, x % y)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
@pytest.mark.parametrize("divisor", [3, 7, 41, 127, 1000])
def test_exact_multiples(call, dtype, divisor):
    k = np.arange(1, 50).astype(dtype)
    q, r = call(lambda a: (a // divisor, a % divisor), k * np.array(divisor, dtype))
    np.testing.assert_array_equal(q, k)
    assert not r.any()
    d = np.array(divisor, dtype)
    q, r = call(lambda a, d: (a // d, a % d), k * d, d)
    np.testing.assert_array_equal(q, k)
    assert not r.any()


@given(a=st.integers(-40, 40), b=st.integers(-40, 40),
       c=st.integers(-12, 12).filter(bool))
def test_floor_of_affine_expressions(a, b, c):
    x = tw.arange(-12, 4)
    q, r = (a * x + b) // c, (a * x + b) % c
    for i, div, mod in zip(range(-12, 4), q.tolist(), r.tolist()):
        assert (div, mod) == divmod(a * i + b, c)


@pytest.mark.parametrize("target", SIGNED + UNSIGNED)
def test_casts_out_of_range_truncate_then_wrap(call, target):
    v = np.array([2.7, -0.4, -3.9, 130.2, -1.0, 70000.5, -70000.5, 0.0], "float32")
    bits = np.dtype(target).itemsize * 8
    wanted = [int(x) % 2**bits for x in v.tolist()]
    wanted = np.array(wanted, f"uint{bits}").astype(target)
    np.testing.assert_array_equal(call(lambda x: x.astype(target), v), wanted)
    folded = [tw.asarray(x, dtype=tw.float32).astype(target).item() for x in v.tolist()]
    np.testing.assert_array_equal(np.array(folded, target), wanted)


def test_casts_that_must_round(call):
    v = np.array([70000, 65519, 3e-9, 2049], "float32")
    half = call(lambda x: x.astype(tw.float16).astype(tw.float32), v)
    np.testing.assert_array_equal(half, [np.inf, 65504, 0, 2048])
    brain = call(lambda x: x.astype(tw.bfloat16).astype(tw.float32), np.float32([257.0, 1e-45]))
    np.testing.assert_array_equal(brain, [256, 0])
    whole = call(lambda x: x.astype(tw.int32).astype(tw.float32), np.float32([1.7, -1.7]))
    np.testing.assert_array_equal(whole, [1, -1])


def test_bool_is_not_an_integer(call):
    b = np.array([True, False, True, True])
    total, mean, running, product, negated = call(
        lambda x: (x.sum(), x.mean(), x.cumsum(), x.prod(), (~x).sum()), b)
    assert (total, mean, product, negated) == (3, 0.75, 0, 1)
    np.testing.assert_array_equal(running, [1, 1, 2, 3])
    either, scaled = call(lambda x: (x + x, x * 3), b)
    assert either.dtype == bool
    np.testing.assert_array_equal(either, b)
    np.testing.assert_array_equal(scaled, [3, 0, 3, 3])
    for refused in (operator.sub, operator.mod, operator.floordiv, operator.pow):
        with pytest.raises(TypeError, match="bool"):
            refused(tw.asarray(b), tw.asarray(b))


# --- floating point


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_identities_of_real_numbers_are_not_applied_to_floats(call, dtype):
    v = np.array([2, np.nan, np.inf, -np.inf], dtype)
    for function in (lambda x: x * 0.0, lambda x: x - x, lambda x: x * 0, lambda x: 0 * x):
        np.testing.assert_array_equal(call(function, v), np.array([0, *[np.nan] * 3], dtype))
    quotient = call(lambda x: x / x, np.append(v, 0).astype(dtype))
    np.testing.assert_array_equal(quotient, [1, *[np.nan] * 4])
    assert call(lambda x: tw.isnan(x * 0).sum(), v) == 3


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sign_of_zero(call, dtype):
    z = np.array([0.0, -0.0], dtype)
    wanted = [(lambda x: x + 0.0, [False, False]), (lambda x: x - 0.0, [False, True]),
              (lambda x: -x, [True, False]), (lambda x: 0.0 - x, [False, False]),
              (tw.sqrt, [False, True]), (lambda x: x * 1.0, [False, True]),
              (lambda x: x * -1.0, [True, False]), (lambda x: x + -0.0, [False, True]),
              (tw.abs, [False, False]), (tw.floor, [False, True])]
    for function, signs in wanted:
        np.testing.assert_array_equal(call(lambda x, f=function: tw.signbit(f(x)), z), signs)
    np.testing.assert_array_equal(call(lambda x: 1 / x, z), [np.inf, -np.inf])
    both = tw.concat([tw.full(1, 0.0), tw.full(1, -0.0)])
    assert tw.signbit(both).tolist() == [False, True]


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_cancel_exactly(call, value, dtype):
    p, q, r, s = (np.full(19, value, dtype) for _ in range(4))
    assert (call(lambda p, q, r, s: p * q - r * s, p, q, r, s) == 0).all()
    assert (call(lambda p, q, r, s: p * q + -(r * s), p, q, r, s) == 0).all()


def test_powers(call):
    base = np.array([0.0, -0.0, np.nan, np.inf, -2.0])
    assert (call(lambda a: tw.power(a, 0.0), base) == 1).all()
    assert (call(tw.power, base, np.zeros(5)) == 1).all()
    bases, exponents = np.array([0, 2, -3, 0], "int32"), np.array([0, 5, 3, 4], "int32")
    np.testing.assert_array_equal(call(tw.power, bases, exponents), [1, 32, -27, 0])
    for exponent in (2, 3, 0.5, -1, -2.5):
        np.testing.assert_allclose(call(lambda a, e=exponent: a ** e, np.array([0.25, 4.0])),
                                   np.array([0.25, 4.0]) ** exponent)


# --- reductions


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_arg_reductions_take_the_first_winner_and_the_first_nan(call, dtype):
    a = np.array([1, np.nan, 9, np.nan], dtype)
    assert call(tw.argmax, a) == 1
    assert call(tw.argmin, a) == 1
    for n in (1, 2, 15, 16, 17, 37, 64, 100):
        assert call(tw.argmax, np.zeros(n, dtype)) == 0
        assert call(lambda x: tw.argmin(x, axis=0), np.ones((n, 3), dtype)).tolist() == [0] * 3
        one = np.zeros(n, dtype)
        one[[n // 2, n - 1]] = 1
        assert call(tw.argmax, one) == min(n // 2, n - 1)
    assert call(tw.argmax, np.array([2, 8, 8, 0])) == 1
    assert call(tw.argmin, np.array([5, -1, -1])) == 1


@pytest.mark.parametrize("n", [1, 5, 17, 33, 63])
@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
def test_short_and_ragged_reductions(call, n, dtype):
    info = np.iinfo(dtype)
    assert call(tw.min, np.full(n, info.max - 5, dtype)) == info.max - 5
    assert call(tw.max, np.full(n, info.min + 4, dtype)) == info.min + 4
    assert call(tw.prod, np.full(n, 1, dtype)) == 1
    assert call(tw.all, np.ones(n, bool))
    assert not call(tw.any, np.zeros(n, bool))


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (0, 0), (2, 3, 0)])
def test_empty_arrays(call, shape):
    z = np.zeros(shape, "float32")
    total, product, mean, every, some = call(
        lambda x: (x.sum(), x.prod(), x.mean(), x.all(), x.any()), z)
    assert (total, product, every, some) == (0, 1, True, False)
    assert np.isnan(mean)
    assert call(lambda x: tw.cumsum(x, x.ndim - 1), z).shape == shape
    joined = tw.concat([tw.asarray(z), tw.ones(shape[:-1] + (3,))], axis=-1)
    assert joined.shape == (*shape[:-1], shape[-1] + 3)
    for function in (tw.max, tw.min, tw.argmax, tw.argmin):
        with pytest.raises(ValueError, match="no elements"):
            function(tw.asarray(z))


def test_extremes_over_full_axes_of_empty_arrays(call):
    assert call(lambda x: x.max(axis=2), np.zeros((3, 0, 2))).shape == (3, 0)
    assert call(lambda x: x.argmax(axis=1), np.zeros((0, 2))).shape == (0,)


# --- movement, indexing, writes


@given(low=st.integers(0, 3), high=st.integers(0, 3), value=st.integers(-5, 5))
def test_padded_elements_are_read(low, high, value):
    p = tw.pad([7, 9], (low, high), constant_values=value)
    wanted = [value] * low + [7, 9] + [value] * high
    assert p.tolist() == wanted
    assert [p[i].item() for i in range(len(wanted))] == wanted
    assert p[1:].tolist() == wanted[1:]
    assert p.sum().item() == sum(wanted)


def test_a_negative_pad_crops_before_a_product(call):
    x = np.arange(12.0).reshape(3, 4)
    y = call(lambda a: tw.pad(a, ((0, 0), (0, -1))) @ tw.ones((3, 2), dtype=tw.float64), x)
    np.testing.assert_array_equal(y, [[3, 3], [15, 15], [27, 27]])


@pytest.mark.parametrize("step", [1, 2, 3, 4, 8])
def test_writes_with_gaps(step):
    a = np.arange(27).reshape(3, 9)
    x = tw.asarray(a)
    x[:, ::step] *= 3
    wanted = a.copy()
    wanted[:, ::step] *= 3
    np.testing.assert_array_equal(np.asarray(x), wanted)
    # no two tensors alias: a write through a reshaped tensor leaves the first alone
    m = tw.ones((3, 3))
    flat = m.reshape(-1)
    flat[::step] += 2
    m.reshape(-1)[::step] += 2
    assert (m == 1).all()
    assert flat.tolist() == [3 if i % step == 0 else 1 for i in range(9)]


def test_negative_steps_and_clamped_bounds(call):
    r = np.arange(9)
    keys = [slice(None, None, -1), slice(7, 1, -3), slice(-2, -8, -2), slice(50, 2, -5),
            slice(2, 6, -1), slice(-50, 50, 4), slice(-1, None, -4), slice(0, None, -1)]
    for key in keys:
        np.testing.assert_array_equal(call(lambda x, k=key: x[k], r), r[key])
        np.testing.assert_array_equal(call(lambda x, k=key: x[k][::-1], r), r[key][::-1])


def test_bad_indices_are_not_silent(call):
    v = tw.asarray([5, 6, 7, 8])
    assert v[[-1, -4, 1]].tolist() == [8, 5, 6]
    scattered = call(lambda x, u: x.at[[0, -1, 0]].add(u), np.zeros(4), np.array([1.0, 2, 4]))
    np.testing.assert_array_equal(scattered, [5, 0, 0, 2])
    for bad in ([4], [-5], [[0, 1], [2, 9]]):
        with pytest.raises(IndexError, match="on axis 0"):
            v[bad]
        with pytest.raises(IndexError):
            v[tw.asarray(bad)]
        with pytest.raises(IndexError):
            v.at[bad].add(1)
        with pytest.raises(IndexError):
            tw.take(v, bad, axis=0)


# --- products, windows


def test_products_with_sizes_of_0_and_1(call):
    np.testing.assert_array_equal(call(operator.matmul, np.zeros((5, 0)), np.zeros((0, 7))),
                                  np.zeros((5, 7)))
    assert call(operator.matmul, np.zeros((0, 3)), np.zeros(3)).shape == (0,)
    assert call(operator.matmul, np.ones((1, 2, 4)), np.ones((0, 4, 3))).shape == (0, 2, 3)
    assert call(operator.matmul, np.ones((1, 1)), np.full((1, 1), 5.0)).tolist() == [[5]]
    assert call(operator.matmul, np.ones((2, 1)), np.ones((1, 3))).sum() == 6


def test_pools_that_overhang(call):
    x = np.array([[2, 4, 6, 8, 10]], "float32")
    grid = np.arange(25, dtype="float32").reshape(1, 5, 5)
    a = call(lambda x: nn.avg_pool1d(x, 2, 2, ceil_mode=True), x)
    b = call(lambda x: nn.avg_pool1d(x, 3, 2, 1, ceil_mode=True), x)
    c = call(lambda x: nn.avg_pool1d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), x)
    d = call(lambda x: nn.avg_pool2d(x, 2, 2, ceil_mode=True), grid)
    e = call(lambda x: nn.max_pool1d(-x, 2, 2, ceil_mode=True), x)
    assert (a.tolist(), b.tolist(), c.tolist()) == ([[3, 7, 10]], [[2, 6, 6]], [[3, 6, 9]])
    assert d.tolist() == [[[3, 5, 6.5], [13, 15, 16.5], [20.5, 22.5, 24]]]
    assert e.tolist() == [[-2, -6, -10]]


def test_transposed_convolutions(call):
    x = np.array([[[1, 2, 3]]], "float32")
    a = call(lambda x, w: nn.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1),
             x, np.array([[[1, 10, 100]]], "float32"))
    b = call(lambda x, w: nn.conv_transpose1d(x, w, stride=2, dilation=3),
             x, np.array([[[1, 10]]], "float32"))
    assert a.tolist() == [[[10, 102, 20, 203, 30, 300]]]
    assert b.tolist() == [[[1, 0, 2, 10, 3, 20, 0, 30]]]


# --- state, exchange, size


def test_a_draw_is_fixed_when_it_is_called():
    random.seed(7)
    a, b = random.rand(3), random.rand(3)
    vb, va = b.tolist(), a.tolist()
    random.seed(7)
    c = random.rand(3)
    vc = c.tolist()
    vd = random.rand(3).tolist()
    assert va != vb
    assert (va, vb) == (vc, vd)
    assert len({random.rand(1).item() for _ in range(6)}) == 6


@pytest.mark.parametrize("dtype", ["int64", "float32", "uint8"])
def test_dlpack_import_of_any_strides(dtype):
    n = np.arange(12).reshape(3, 4).astype(dtype)
    for v in (n, n.T, n[:, 1:3], n[::-1], n[:, ::2], n[1:1], n[:, ::-1], n[2, 1]):
        t = tw.from_dlpack(np.asarray(v))
        assert t.shape == v.shape
        np.testing.assert_array_equal(np.asarray(t), v)
    m = np.arange(4)
    shared, copied = tw.from_dlpack(m), tw.from_dlpack(m, copy=True)
    m[0] = 9
    assert shared.tolist() == [9, 1, 2, 3]  # row-major memory is shared, as documented
    assert copied.tolist() == [0, 1, 2, 3]


def test_a_very_deep_graph():
    y = tw.asarray(np.array([1.0], np.float32))
    for _ in range(5000):
        y = y * 0.5 + 1.0
    assert y.item() == 2.0


def test_a_very_wide_concat():
    parts = [tw.full((4, 1), i, dtype=tw.float32) for i in range(1500)]
    c = tw.concat(parts, axis=1)
    assert c.shape == (4, 1500)
    assert c.sum().item() == 4497000
    assert c[2, 777].item() == 777
