"""Graphs that differ in constants only: values, and how many plans they take."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.dtypes import ALL
from tilewright.plan import numbers
from tilewright.plan.kernels import kernel_cache
from tilewright.plan.realize import plan_cache


@pytest.fixture(autouse=True)
def forgotten():
    numbers.clear()
    plan_cache.clear()


@pytest.mark.parametrize("dtype", [d for d in ALL if not d.is_bool], ids=str)
def test_changing_constants_keep_their_values(backend, dtype):
    x = np.arange(1, 8).astype(dtype.numpy)
    t = tw.asarray(x)
    for number in (3, 1, 5, 2, 7, 4, 3, 100, 0, 6):
        n = np.asarray(number).astype(dtype.numpy)
        np.testing.assert_array_equal(np.asarray(t * number + 1), x * n + np.asarray(1, x.dtype))
        found = np.asarray(tw.maximum(t, number) // 3)
        np.testing.assert_array_equal(found, np.floor_divide(
            np.maximum(x, n).astype(np.float64), 3).astype(x.dtype))


def test_many_numbers_take_few_plans_and_kernels(backend):
    x = tw.asarray(np.arange(5.0))
    tw.block_until_ready(x)
    before = len(kernel_cache)
    for rate in range(1, 60):
        assert (x * (rate / 64) + 0.5).tolist() == [i * rate / 64 + 0.5 for i in range(5)]
        assert x[2:][tw.asarray([rate % 3])].tolist() == [2 + rate % 3]
    assert len(plan_cache) <= 2 * (numbers.FEW + 1)
    assert len(kernel_cache) - before <= 2 * (numbers.FEW + 1)


def test_constants_that_stay_are_compiled_in():
    x = tw.asarray(np.arange(8))
    for shift in range(9):
        ((x + shift * 100) // 7).tolist()
    (lifted,) = [key for _, key in plan_cache._table if any(e[0] == "number" for e in key)]
    assert [e[0] for e in lifted].count("number") == 1


def test_equal_constants_and_several_that_vary():
    x = tw.asarray(np.arange(4.0))
    pairs = [(2, 2), (3, 4), (5, 6), (7, 8), (9, 9), (2, 9), (4, 4), (1.5, 2.5), (8, 7), (6, 6)]
    for a, b in pairs:
        np.testing.assert_array_equal(np.asarray((x + a) * b - a), (np.arange(4.0) + a) * b - a)
