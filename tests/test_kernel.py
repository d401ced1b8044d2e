"""The NumPy evaluation of kernels and the verifier."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.dtypes import bool_, float32, int64
from tilewright.errors import VerifyError
from tilewright.index import const, sym
from tilewright.kernel import Axis, Buffer, Kernel, Let, Stage, Store
from tilewright.kernel.evaluate import evaluate
from tilewright.kernel.reductions import ROWS, make_state
from tilewright.kernel.value import const as value
from tilewright.kernel.value import index, load, make, state
from tilewright.kernel.value import test as not_negative
from tilewright.kernel.verify import verify

I0, I1 = sym("i0", 0, 2), sym("i1", 0, 3)
AXES = (Axis("i0", const(3)), Axis("i1", const(4)))
X = np.arange(12, dtype=np.float32)[::-1].copy()


def memory(name, kind, *shape, dtype=float32):
    return Buffer(name, kind, dtype, tuple(const(n) for n in shape))


A, OUT = memory("a0", "input", 12), memory("out0", "output", 12)
READ = load("a0", (I0 * 4 + I1,), float32)


def row_reduction(name, dtype=float32, slot=0):
    inputs = [READ] + ([index(I1)] if name.startswith("arg") else [])
    made = make_state(name, inputs)
    stage = Stage("s0", (("i0", "free"), ("i1", "reduce")),
                  (Store("out0", (I0,), state(slot, dtype)),), made)
    return Kernel(AXES, (A, memory("out0", "output", 3, dtype=dtype)), (stage,))


@pytest.mark.parametrize("name", ROWS)
def test_each_reduction(name):
    is_arg = name.startswith("arg")
    kernel = row_reduction(name, int64 if is_arg else float32, int(is_arg))
    got = evaluate(verify(kernel), {"a0": X})["out0"]
    np.testing.assert_array_equal(got, getattr(np, name)(X.reshape(3, 4), axis=1))


@pytest.mark.parametrize("row, best", [([1, np.nan, 9, np.nan], 1), ([2, 8, 8, 0], 1),
                                       ([0, 0, 0, 0], 0), ([-np.inf] * 4, 0)])
def test_argmax_takes_the_first_winner_and_the_first_nan(row, best):
    kernel = row_reduction("argmax", int64, 1)
    assert list(evaluate(kernel, {"a0": np.array(row * 3, np.float32)})["out0"]) == [best] * 3


def test_scan_stores_after_every_step():
    stage = Stage("s0", (("i0", "free"), ("i1", "carry")),
                  (Store("out0", (I0 * 4 + I1,), state(0, float32)),), make_state("sum", [READ]))
    got = evaluate(verify(Kernel(AXES, (A, OUT), (stage,))), {"a0": X})["out0"]
    np.testing.assert_array_equal(got.reshape(3, 4), X.reshape(3, 4).cumsum(1))


def test_guarded_loads_read_zero_and_unwritten_elements_stay_garbage():
    inside = not_negative(I1 - 1)
    shifted = load("a0", (I0 * 4 + I1 - 1,), float32, (inside,))
    stage = Stage("s0", (("i0", "free"), ("i1", "free")),
                  (Store("out0", (I0 * 4 + I1,), shifted, "", (not_negative(2 - I1),)),))
    got = evaluate(verify(Kernel(AXES, (A, OUT), (stage,))), {"a0": X})["out0"].reshape(3, 4)
    assert list(got[:, 0]) == [0, 0, 0]
    np.testing.assert_array_equal(got[:, 1:3], X.reshape(3, 4)[:, 0:2])
    assert all(got[:, 3].view(np.uint32) == 0xA5A5A5A5)


def test_duplicates_of_a_scatter_are_applied_in_order():
    where = make("minimum", (load("a1", (I0,), int64), value(1, int64)), int64)
    let = Let(sym("g0", 0, 1).terms[0][0], where)
    buffers = (A, memory("a1", "input", 3, dtype=int64), memory("out0", "output", 2))
    stage = Stage("s0", (("i0", "carry"),),
                  (Store("out0", (sym("g0", 0, 1),), load("a0", (I0,), float32)),), None, (let,))
    kernel = verify(Kernel(AXES[:1], buffers, (stage,)))
    got = evaluate(kernel, {"a0": X, "a1": np.array([1, 0, 1])})["out0"]
    assert list(got) == [X[1], X[2]]


def test_an_output_may_be_filled_in_part():
    stage = Stage("s0", (("i0", "free"),), (Store("out0", (I0 * 4,), value(5, float32)),))
    kernel = Kernel(AXES[:1], (memory("out0", "output", 12),), (stage,))
    got = evaluate(kernel, {"out0": np.zeros(12, np.float32)})["out0"]
    assert list(np.nonzero(got)[0]) == [0, 4, 8]


COPY = Stage("s0", (("i0", "free"), ("i1", "free")), (Store("out0", (I0 * 4 + I1,), READ),))
GOOD = Kernel(AXES, (A, OUT), (COPY,))


def broken(**changes):
    return replace(GOOD, stages=(replace(COPY, **changes),))


@pytest.mark.parametrize("kernel, reason", [
    (broken(roles=(("i0", "free"),)), "uses .'i1'."),
    (broken(roles=(("i0", "free"), ("i1", "reduce"))), "a map with reduce axes"),
    (broken(roles=(("i0", "free"), ("i2", "free"))), "unknown axis i2"),
    (broken(stores=()), "no stores"),
    (broken(stores=(Store("a0", (I0,), READ),)), "writes input a0"),
    (broken(stores=(Store("out0", (I0 * 5 + I1,), READ),)), "reaches 0..13 of 12"),
    (broken(stores=(Store("out0", (I0,), value(True, bool_)),)), "bool into out0"),
    (broken(stores=(Store("out0", (I0,), state(0, float32)),)), "a state outside a reduction"),
    (broken(stores=(Store("out0", (I0,), make("exp", (index(I0),), int64)),)), "exp"),
    (replace(GOOD, buffers=(A, OUT, memory("out1", "output", 3))), "out1: never written"),
    (replace(GOOD, axes=(*AXES, AXES[0])), "names repeat"),
])
def test_the_verifier_names_what_is_broken(kernel, reason):
    verify(GOOD)
    with pytest.raises(VerifyError, match=reason) as error:
        verify(kernel, "a test")
    assert "a test" in str(error.value)
