"""Creation and dtype functions, against NumPy."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.limits import LINE


def test_default_dtypes():
    assert tw.asarray([1.5]).dtype == tw.asarray(1.5).dtype == tw.zeros(3).dtype == tw.float32
    assert tw.asarray([1]).dtype == tw.arange(5).dtype == tw.full(2, 7).dtype == tw.int64
    assert tw.asarray([True]).dtype == tw.full((), False).dtype == tw.bool
    assert tw.arange(5.0).dtype == tw.linspace(0, 1, 3).dtype == tw.eye(2).dtype == tw.float32
    assert tw.asarray(np.array([1.5])).dtype == tw.float64
    assert tw.asarray([np.float64(1.5)]).dtype == tw.float64
    assert tw.asarray(np.float16(1)).dtype == tw.float16
    assert tw.asarray([]).dtype == tw.float32


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "bfloat16",
                                   "float64"])
def test_filled(dtype):
    for shape in ((), 3, (2, 0), (2, 3)):
        for ours, theirs in [(tw.zeros, np.zeros), (tw.ones, np.ones)]:
            made = ours(shape, dtype=dtype)
            wanted = theirs(shape, dtype=made.dtype.numpy)
            assert made.dtype == dtype
            np.testing.assert_array_equal(np.asarray(made), wanted)
        assert tw.zeros_like(made).dtype == tw.full_like(made, 1).dtype == dtype
        assert tw.empty_like(made).shape == tw.ones_like(made, dtype=tw.int32).shape == made.shape


@given(st.integers(-20, 20), st.integers(-20, 20), st.sampled_from([1, 2, 3, -1, -4, 0.5, -0.25]))
def test_arange(start, stop, step):
    ours = tw.arange(start, stop, step)
    wanted = np.arange(start, stop, step)
    np.testing.assert_array_equal(np.asarray(ours), wanted)
    np.testing.assert_array_equal(np.asarray(tw.arange(abs(stop), dtype="int16")),
                                  np.arange(abs(stop), dtype="int16"))


@pytest.mark.parametrize("num", [0, 1, 2, 7, 50])
@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace(num, endpoint):
    ours = tw.linspace(-1.5, 2, num, endpoint=endpoint)
    np.testing.assert_allclose(np.asarray(ours), np.linspace(-1.5, 2, num, endpoint=endpoint),
                               rtol=1e-6)
    if endpoint and num > 1:
        assert ours[-1].item() == 2


@pytest.mark.parametrize("k", [-2, 0, 1, 5])
def test_diagonals_and_triangles(k):
    for rows, columns in [(3, 3), (2, 4), (4, 1), (0, 3)]:
        np.testing.assert_array_equal(np.asarray(tw.eye(rows, columns, k=k)),
                                      np.eye(rows, columns, k=k))
        np.testing.assert_array_equal(np.asarray(tw.tri(rows, columns, k=k)),
                                      np.tri(rows, columns, k=k))
        a = np.arange(2.0 * rows * columns).reshape(2, rows, columns) + 1
        np.testing.assert_array_equal(np.asarray(tw.tril(a, k=k)), np.tril(a, k))
        np.testing.assert_array_equal(np.asarray(tw.triu(a, k=k)), np.triu(a, k))


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_meshgrid(indexing):
    parts = [np.arange(2), np.arange(3.0), np.arange(1)]
    for count in (1, 2, 3):
        ours = tw.meshgrid(*parts[:count], indexing=indexing)
        for one, wanted in zip(ours, np.meshgrid(*parts[:count], indexing=indexing)):
            np.testing.assert_array_equal(np.asarray(one), wanted)


def test_nested_lists_with_tensors():
    x = tw.asarray(2.0)
    assert tw.asarray([[x, 1], [3, x * 2]]).tolist() == [[2, 1], [3, 4]]
    assert tw.asarray([tw.ones(2), np.zeros(2)]).dtype == tw.float64


@pytest.mark.parametrize("source", ["float16", "float32", "float64", "int8", "int64", "uint8",
                                    "bool"])
@pytest.mark.parametrize("target", ["float16", "float32", "float64", "int8", "uint16", "int64",
                                    "bool"])
def test_astype(source, target):
    a = np.array([0, 1, 1, 0]).astype(source) if source == "bool" else \
        np.array([0, 1, 100, 77]).astype(source)
    np.testing.assert_array_equal(np.asarray(tw.asarray(a).astype(target)), a.astype(target))


def test_astype_accepts_python_types_and_names():
    x = tw.ones(2)
    assert x.astype(int).dtype == tw.int64
    assert x.astype(float).dtype == tw.float64
    assert x.astype(bool).dtype == tw.bool
    assert x.astype("bfloat16").dtype == tw.bfloat16
    assert tw.view_bits(x, tw.uint32).tolist() == [0x3F800000] * 2


def test_dtype_functions():
    assert tw.finfo(tw.float32).eps == np.finfo("float32").eps
    assert tw.finfo(tw.bfloat16).bits == 16
    assert tw.iinfo("int8").max == 127
    assert tw.can_cast(tw.int8, tw.float32)
    assert not tw.can_cast(tw.float32, tw.int8)
    assert tw.isdtype(tw.uint8, "integral")
    assert tw.isdtype(tw.bool, ("bool", "numeric"))
    assert not tw.isdtype(tw.float16, tw.float32)
    assert tw.promote_types("int8", "uint8") == tw.int16


class Interface:
    """An object known only by the array protocol."""

    def __array__(self, dtype=None, copy=None):
        return np.arange(3)


def test_other_objects():
    assert tw.asarray(Interface()).tolist() == [0, 1, 2]
    assert tw.asarray(range(3)).tolist() == [0, 1, 2]
    assert tw.asarray(np.arange(3).astype(">i4")).tolist() == [0, 1, 2]
    assert tw.asarray(np.arange(6).reshape(2, 3).T).tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (33, 7), (1024, 1024)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
def test_copies_start_at_a_cache_line(shape, dtype):
    a = np.asarray(np.ones(shape), dtype)
    assert np.array_equal(tw.asarray(a).numpy(), a)
    for t in (tw.asarray(a), pickle.loads(pickle.dumps(tw.asarray(a)))):
        assert t._storage().address % LINE == 0
