"""What counts as equal values, and the messages between processes."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.dtypes import ALL
from tilewright.worker.messages import Inbox, pack, unpack
from tilewright.worker.values import (
    deviation,
    difference,
    flip_last_bits,
    make_values,
    scale,
    tolerance,
)

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner))


@given(st.lists(PLAIN, max_size=4), st.integers(1, 40))
def test_messages_arrive_in_any_pieces(messages, size):
    inbox, found = Inbox(), []
    data = b"".join(map(pack, messages))
    for start in range(0, len(data), size):
        inbox.add(data[start:start + size])
        while inbox.complete:
            found.append(inbox.take())
    assert found == messages


def test_messages_hold_plain_types_only():
    with pytest.raises(pickle.UnpicklingError, match="no plain type"):
        unpack(pickle.dumps(np.float32(1)))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_values_are_small_and_reproducible(dtype):
    first, second = (make_values(np.random.default_rng(0), 1000, dtype) for _ in range(2))
    assert first.dtype == dtype.numpy and np.array_equal(first, second)
    wide = first.astype(np.float64)
    assert (wide >= (-0.5 if dtype.is_float else 0)).all() and (wide <= 3).all()
    assert len(np.unique(wide)) > 1


@pytest.mark.parametrize("dtype", [d for d in ALL if d.is_float], ids=str)
@pytest.mark.parametrize("count", [1, 1000, 200_000])
def test_flipped_last_bits_are_near_and_flip_back(dtype, count):
    array = make_values(np.random.default_rng(0), count, dtype)
    before = array.copy()
    flip_last_bits(array, 1)
    gap = np.abs(array.astype(np.float64) - before.astype(np.float64))
    eps = float(ml_dtypes.finfo(dtype.numpy).eps)
    assert (gap <= eps * np.abs(before.astype(np.float64)) + 1e-6).all()
    if count > 1:
        assert 0.3 < (gap > 0).mean() < 0.7
    flip_last_bits(array, 1)
    assert array.tobytes() == before.tobytes()


def test_differences_of_specials():
    nan, inf = np.nan, np.inf
    same = np.array([nan, inf, -inf, 1], np.float32)
    assert difference(same, same.copy()) == 0
    assert difference(same, np.array([nan, inf, -inf, 1.5], np.float32)) == 0.5
    for other in ([0, inf, -inf, 1], [nan, -inf, -inf, 1], [nan, inf, -inf, nan]):
        assert difference(same, np.array(other, np.float32)) == inf
    assert difference(np.array([0.0]), np.array([-0.0])) == 0


def test_integers_and_bools_differ_by_at_least_one():
    assert difference(np.array([1, 5]), np.array([1, 2])) >= 1
    assert difference(np.array([2**62]), np.array([2**62 + 1])) >= 1
    assert difference(np.array([True]), np.array([False])) == 1
    assert difference(np.array([True]), np.array([2], np.uint8).view(np.bool_)) == 1
    assert tolerance(np.array([1000]), 10**6, 1e-7, 1.0) == 0


def test_differences_are_found_beyond_the_first_piece():
    wanted = np.zeros(300_000, np.float32)
    found = wanted.copy()
    found[-1] = 3
    assert difference(wanted, found) == 3
    assert scale(found) == 3
    assert deviation(wanted, found) == pytest.approx(3 / 300_000 ** 0.5)


def test_scale_ignores_what_is_not_finite():
    assert scale(np.array([1.0, -4.0, np.inf, np.nan])) == 4
    assert scale(np.array([np.nan])) == 0


@pytest.mark.parametrize("terms", [2, 1000, 1 << 20])
def test_orders_of_a_sum_are_tolerated_and_mistakes_are_not(terms):
    rng = np.random.default_rng(terms)
    rows = make_values(rng, 32 * terms if terms < 10**5 else terms, ALL[9 + 1]).astype(np.float32)
    rows = rows.reshape(-1, terms)
    wanted = np.cumsum(rows, 1, dtype=np.float32)[:, -1]  # one after another
    flipped = rows.copy().reshape(-1)
    flip_last_bits(flipped, 0)
    moved = np.cumsum(flipped.reshape(rows.shape), 1, dtype=np.float32)[:, -1]
    eps = float(np.finfo(np.float32).eps)
    allowed = tolerance(wanted, terms, eps, deviation(wanted, moved))
    assert difference(wanted, rows.sum(1, dtype=np.float32)) <= allowed  # pairwise
    assert difference(wanted, rows[:, ::-1].sum(1, dtype=np.float64).astype(np.float32)) <= allowed
    assert difference(wanted, np.zeros_like(wanted)) > allowed
    assert difference(wanted, wanted * np.float32(1.5)) > allowed or terms == 2
