"""Reads and writes by index, against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw


@st.composite
def basic_keys(draw, shape):
    key = []
    for n in shape:
        kind = draw(st.sampled_from(["slice", "int", "full", "none+slice"]))
        if kind == "int" and n:
            key.append(draw(st.integers(-n, n - 1)))
            continue
        if kind == "none+slice":
            key.append(None)
        if kind == "full":
            key.append(slice(None))
        else:
            bound = st.one_of(st.none(), st.integers(-n - 2, n + 2))
            step = st.sampled_from([None, 1, 2, 3, -1, -2, -3])
            key.append(slice(draw(bound), draw(bound), draw(step)))
    cut = draw(st.integers(0, len(key)))
    if draw(st.booleans()):
        return (*key[:cut], ...)
    return tuple(key[:cut])


SHAPES = st.sampled_from([(5,), (1,), (0,), (3, 4), (1, 6), (2, 3, 4), (2, 0, 3), ()])


@given(st.data())
def test_basic_reads(data):
    shape = data.draw(SHAPES)
    a = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    key = data.draw(basic_keys(shape))
    np.testing.assert_array_equal(np.asarray(tw.asarray(a)[key]), a[key])


@given(st.data())
def test_basic_writes(data):
    shape = data.draw(SHAPES)
    a = np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape)
    key = data.draw(basic_keys(shape))
    region = a[key].shape
    value = -1.0 - np.arange(np.prod(region, dtype=int)).reshape(region)
    if data.draw(st.booleans()) and value.ndim:
        value = value[..., :1] if value.shape[-1] else value
    x = tw.asarray(a)
    for name, function in [("set", None), ("add", np.add), ("multiply", np.multiply),
                           ("min", np.minimum), ("max", np.maximum)]:
        wanted = a.copy()
        wanted[key] = value if function is None else function(a[key], value)
        np.testing.assert_array_equal(np.asarray(getattr(x.at[key], name)(value)), wanted)
    np.testing.assert_array_equal(np.asarray(x), a)
    np.testing.assert_array_equal(np.asarray(x.at[key].get()), a[key])
    x[key] = value
    wanted = a.copy()
    wanted[key] = value
    np.testing.assert_array_equal(np.asarray(x), wanted)


ADVANCED = [
    ([0, -1, 2],), (slice(None), [1, 0, 1]), ([[0, 1], [2, -1]],), ([0, 1], [2, 3]),
    ([[0], [2]], [1, 3, 0]), (slice(1, None), [0, 2], slice(None)), ([0, 1], slice(None), [0, 1]),
    (..., [1, 0]), (1, slice(None), [0, 1]), (1, [0, 1]), ([0, 2], None, [1, 1]),
    (slice(None, None, -2), [1, 2]), (None, [0, 1]), ([], ), (slice(None), [0, 1], 2),
    (0, slice(None), [[1, 2]]), ([True, False, True],), (slice(None), [True, False, True, False]),
    (np.int64(1), [2, 0]), (np.array([0, 1], np.uint8),), (np.array(1), slice(None), [0]),
    ([0, 2], slice(0, 0)),
]


@pytest.mark.parametrize("key", ADVANCED, ids=str)
def test_advanced_reads_and_writes(key):
    a = np.arange(60.0).reshape(3, 4, 5)
    x = tw.asarray(a)
    np.testing.assert_array_equal(np.asarray(x[key]), a[key])
    value = -1.0 - np.arange(a[key].size).reshape(a[key].shape)
    wanted = a.copy()
    wanted[key] = value
    np.testing.assert_array_equal(np.asarray(x.at[key].set(value)), wanted)
    for name, function in [("add", np.add), ("multiply", np.multiply), ("max", np.maximum),
                           ("min", np.minimum)]:
        wanted = a.copy()
        function.at(wanted, key, value)
        np.testing.assert_array_equal(np.asarray(getattr(x.at[key], name)(value)), wanted)


@given(st.data())
def test_random_mixtures_of_index_kinds(data):
    shape = data.draw(st.sampled_from([(3, 4), (2, 3, 4), (4, 2, 3, 2)]))
    a = np.arange(np.prod(shape)).reshape(shape)
    key = []
    for n in shape:
        kind = data.draw(st.sampled_from(["array", "slice", "int", "none"]))
        if kind == "none":
            key.append(None)
            kind = "slice"
        index = st.integers(-n, n - 1)
        if kind == "array":
            key.append(np.array(data.draw(st.lists(index, min_size=2, max_size=2))))
        else:
            key.append(data.draw(index) if kind == "int" else slice(None, None, 2))
    key = tuple(key)
    np.testing.assert_array_equal(np.asarray(tw.asarray(a)[key]), a[key])
    wanted = a.copy()
    wanted[key] = 7
    np.testing.assert_array_equal(np.asarray(tw.asarray(a).at[key].set(7)), wanted)


def test_duplicate_places():
    x = tw.zeros(3)
    assert x.at[[0, 0, 2]].add([1.0, 2.0, 4.0]).tolist() == [3, 0, 4]
    assert x.at[[0, 0]].set([1.0, 2.0]).tolist() == [2, 0, 0]  # the last wins
    x[[0, 0, 1]] += 1
    assert x.tolist() == [1, 1, 0]  # read, added, written: once each


@pytest.mark.parametrize("value", [7.0, [1.0, 2.0, 3.0, 4.0], "per place"])
def test_masks(value):
    a = np.arange(12.0).reshape(3, 4)
    mask = a % 3 == 0
    x = tw.asarray(a)
    np.testing.assert_array_equal(np.asarray(x[tw.asarray(mask)]), a[mask])
    rows = np.array([True, False, True])
    where, new = (mask, np.arange(mask.sum()) + 100.0) if value == "per place" else (
        (mask, value) if isinstance(value, float) else (rows, np.array(value)))
    wanted = a.copy()
    wanted[where] = new
    x[tw.asarray(where)] = new
    np.testing.assert_array_equal(np.asarray(x), wanted)
    wanted[where] += 1
    x[where] += 1
    np.testing.assert_array_equal(np.asarray(x), wanted)


def test_a_masked_write_of_one_value_does_not_read_the_mask():
    x = tw.asarray(np.arange(4.0))
    lazy = x * 2
    y = lazy.at[lazy > 2].set(0)
    assert lazy._node.op.name != "buffer"
    assert y.tolist() == [0, 2, 0, 0]


def test_writes_cast_to_the_tensor():
    x = tw.zeros(2, dtype=tw.int32)
    x[0] = 2.7
    x[1] = np.int64(-3)
    assert x.tolist() == [2, -3]
    assert x.dtype == tw.int32


def test_reads_of_written_parts_build_no_towers():
    x = tw.zeros((51, 2))
    state = tw.asarray([1.0, 2.0])
    for i in range(50):
        x = x.at[i].set(state)
        state = x[i] * 0.5
    from tilewright.graph import postorder
    assert len(postorder([x[49]._node])) < 250
    assert x[1].tolist() == [0.5, 1.0]


def test_lazy_indices_are_wrapped_and_clamped():
    x = tw.asarray([5, 6, 7])
    lazy = tw.asarray([0, 1]) - 1
    assert x[lazy].tolist() == [7, 5]


def test_take_and_take_along_axis():
    a = np.arange(24.0).reshape(2, 3, 4)
    x = tw.asarray(a)
    for axis in (0, 1, 2, -1, None):
        np.testing.assert_array_equal(np.asarray(tw.take(x, [1, 0, -1], axis=axis)),
                                      np.take(a, [1, 0, -1], axis=axis))
    for axis in (0, 1, -1):
        where = np.argsort(np.sin(a), axis=axis)
        np.testing.assert_array_equal(np.asarray(tw.take_along_axis(x, where, axis=axis)),
                                      np.take_along_axis(a, where, axis))
        wanted = a.copy()
        np.put_along_axis(wanted, where, 1.0, axis)
        np.testing.assert_array_equal(
            np.asarray(tw.put_along_axis(x, where, 1.0, axis=axis)), wanted)
