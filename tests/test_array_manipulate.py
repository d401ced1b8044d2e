"""Functions that move elements, against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw


def same(ours, wanted):
    wanted = np.asarray(wanted)
    assert ours.shape == wanted.shape
    assert ours.dtype == wanted.dtype
    np.testing.assert_array_equal(np.asarray(ours), wanted)


SHAPES = st.sampled_from([(6,), (2, 3), (1, 4), (2, 0, 3), (2, 1, 3), (1,), (3, 2, 2)])


@given(st.data())
def test_axes(data):
    shape = data.draw(SHAPES)
    a = np.arange(np.prod(shape)).reshape(shape)
    x = tw.asarray(a)
    order = data.draw(st.permutations(range(a.ndim)))
    same(tw.permute_dims(x, order), a.transpose(order))
    same(x.transpose(*order), a.transpose(order))
    same(x.T, a.T)
    source, target = (data.draw(st.integers(-a.ndim, a.ndim - 1)) for _ in range(2))
    same(tw.moveaxis(x, source, target), np.moveaxis(a, source, target))
    same(tw.swapaxes(x, source, target), np.swapaxes(a, source, target))
    same(tw.flip(x, axis=source), np.flip(a, source))
    same(tw.flip(x), np.flip(a))
    same(tw.expand_dims(x, axis=source), np.expand_dims(a, source))
    same(tw.squeeze(x), np.squeeze(a))
    shift = data.draw(st.integers(-7, 7))
    same(tw.roll(x, shift, axis=source), np.roll(a, shift, source))
    same(tw.roll(x, shift), np.roll(a, shift))
    same(x.reshape(-1) if a.size else x.reshape(0), a.reshape(-1))
    same(x.flatten(), a.ravel())
    same(tw.ravel(x), a.ravel())


@given(st.data())
def test_repetition(data):
    shape = data.draw(SHAPES)
    a = np.arange(np.prod(shape)).reshape(shape)
    x = tw.asarray(a)
    axis = data.draw(st.one_of(st.none(), st.integers(-a.ndim, a.ndim - 1)))
    count = data.draw(st.integers(0, 3))
    same(tw.repeat(x, count, axis=axis), np.repeat(a, count, axis))
    counts = np.arange(a.size if axis is None else a.shape[axis]) % 3
    same(tw.repeat(x, counts, axis=axis), np.repeat(a, counts, axis))
    times = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=4))
    same(tw.tile(x, tuple(times)), np.tile(a, times))


@given(st.data())
def test_joining(data):
    shape = list(data.draw(SHAPES))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    arrays = []
    for i, dtype in enumerate(data.draw(st.lists(st.sampled_from(
            ["int32", "int64", "float64"]), min_size=1, max_size=4))):
        shape[axis] = data.draw(st.integers(0, 3))
        arrays.append(np.full(shape, i, dtype))
    same(tw.concat([tw.asarray(a) for a in arrays], axis=axis), np.concatenate(arrays, axis))
    same(tw.concat(arrays, axis=None), np.concatenate(arrays, None))
    equal = [a[:0] + 1 if a.ndim else a for a in arrays[:1]] * 3
    same(tw.stack(equal, axis=axis), np.stack(equal, axis))
    parts = tw.unstack(tw.asarray(arrays[0]), axis=axis)
    assert len(parts) == arrays[0].shape[axis]
    same(tw.vstack(equal), np.vstack(equal))
    same(tw.hstack(equal), np.hstack(equal))


def test_splitting():
    a = np.arange(24).reshape(4, 6)
    for sections, axis in [(2, 0), (3, 1), ([1, 3], 1), ([0, 9], 0)]:
        for ours, wanted in zip(tw.split(a, sections, axis=axis), np.split(a, sections, axis)):
            same(ours, wanted)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("width", [1, (2, 1), ((0, 2), (1, 0)), 0])
def test_pad(mode, width):
    a = np.arange(12.0).reshape(3, 4)
    same(tw.pad(a, width, mode), np.pad(a, width, mode))
    if mode == "constant":
        same(tw.pad(a, width, constant_values=-2.5), np.pad(a, width, constant_values=-2.5))
        mask = a > 4
        same(tw.pad(mask, width, constant_values=True), np.pad(mask, width, constant_values=True))


def test_negative_pads_crop():
    a = np.arange(12.0).reshape(3, 4)
    same(tw.pad(a, ((0, 0), (0, -1))), a[:, :-1])
    same(tw.pad(a, ((-1, 1), (2, -2)), constant_values=9.0),
         np.pad(a, ((0, 1), (2, 0)), constant_values=9.0)[1:, :-2])


def test_broadcasting():
    a = np.arange(3).reshape(3, 1)
    same(tw.broadcast_to(a, (2, 3, 4)), np.broadcast_to(a, (2, 3, 4)))
    b = np.zeros(4)
    for ours, wanted in zip(tw.broadcast_arrays(a, b), np.broadcast_arrays(a, b)):
        same(ours, wanted)
    assert tw.broadcast_shapes((2, 1), (3,), ()) == (2, 3)
    same(tw.atleast_1d(3), np.atleast_1d(3))
    same(tw.atleast_2d(np.arange(3)), np.atleast_2d(np.arange(3)))
    same(tw.squeeze(np.zeros((1, 2, 1)), (0,)), np.zeros((2, 1)))
    same(tw.matrix_transpose(a), a.T)


def test_searching_and_sorting():
    a = np.array([[3.0, np.nan, -1.0, 3.0], [0.0, -0.0, 2.0, np.inf]])
    x = tw.asarray(a)
    for axis in (0, 1):
        same(x.sort(axis), np.sort(a, axis, kind="stable"))
        same(x.argsort(axis), np.argsort(a, axis, kind="stable"))
    b = np.array([3, 1, 3, 2])
    assert tw.argsort(b, descending=True).tolist() == [0, 2, 3, 1]
    assert tw.sort(b, descending=True).tolist() == [3, 3, 2, 1]
    for ours, wanted in zip(tw.nonzero(b > 1), np.nonzero(b > 1)):
        same(ours, wanted)
    same(tw.searchsorted([1, 2, 4], [0, 2, 5], side="right"), np.array([0, 2, 3]))
    same(tw.where(b > 2, b, 0), np.where(b > 2, b, 0))
    same(tw.where(b > 2)[0], np.array([0, 2]))


@pytest.mark.parametrize("dtype", [tw.bfloat16, tw.float16, tw.float32, tw.float64])
def test_nans_sort_last_in_every_float(dtype):
    values = np.array([3.0, np.nan, -1.0, -2.0, np.inf, np.nan, 0.5], np.float32)
    x = tw.asarray(values).astype(dtype)
    np.testing.assert_array_equal(tw.sort(x).astype(tw.float32).numpy(), np.sort(values))
    np.testing.assert_array_equal(tw.argsort(x).numpy(), np.argsort(values, kind="stable"))
    assert tw.searchsorted(tw.sort(x), tw.asarray(np.nan, dtype=dtype)).item() == 5
