"""Which nodes one kernel computes, and what its key depends on."""

import numpy as np
import pytest
from fusion_tools import (
    Memory,
    check,
    column,
    convolve,
    expand,
    full,
    layer_norm,
    leaf,
    log_softmax,
    matmul,
    mean,
    reduce,
    softmax,
    variance,
)

from tilewright.dtypes import bfloat16, float16, float32, int64
from tilewright.fusion import HostCall, fuse
from tilewright.graph import apply, buffer, constant
from tilewright.kernel.value import postorder
from tilewright.limits import Limits


def relu(x):
    return apply("maximum", x, full(0, x))


def biased_product():
    return relu(apply("add", matmul(leaf(6, 5), leaf(5, 4)), expand(leaf(4), (6, 4))))


def loss_and_gradient():
    d = apply("subtract", leaf(6, 8), leaf(6, 8, seed=1))
    loss = reduce(apply("multiply", d, d), "sum", 0, 1)
    return loss, apply("multiply", d, expand(loss, (6, 8)))


def two(x, first, second):
    return [first(x), second(x)]


ONE_KERNEL = {
    "chain": lambda: [apply("exp", apply("add", leaf(6, 8), full(1, leaf(6, 8))))],
    "softmax": lambda: [softmax(leaf(6, 8))],
    "log_softmax": lambda: [log_softmax(leaf(6, 8))],
    "layer_norm": lambda: [layer_norm(leaf(6, 8), leaf(8), leaf(8, seed=1))],
    "variance": lambda: [variance(leaf(6, 8))],
    "cumulative_sum": lambda: [apply("cumulate", leaf(6, 8), kind="sum", axis=1)],
    "product_bias_relu": lambda: [biased_product()],
    "convolution": lambda: [relu(convolve(leaf(2, 6, 7), leaf(3, 2, 3, 3), 1))],
    "relu_into_convolution": lambda: [convolve(relu(leaf(2, 6, 7)), leaf(3, 2, 3, 3), 1)],
    "loss_and_gradient": lambda: list(loss_and_gradient()),
    "two_outputs": lambda: two(leaf(6, 8), lambda x: apply("negative", x), relu),
    "two_reductions": lambda: two(leaf(6, 8), lambda x: reduce(x, "sum", 1),
                                  lambda x: reduce(x, "max", 1)),
    "gather": lambda: [apply("gather", leaf(6, 8), leaf(3, dtype=int64))],
    "scatter": lambda: [apply("scatter", leaf(6, 8), leaf(3, 8), leaf(3, dtype=int64),
                              mode="add")],
    "concat": lambda: [apply("concat", leaf(6, 8), leaf(6, 3), axis=1)],
    "argmax": lambda: [reduce(leaf(6, 8), "argmax", 1)],
    "sum_of_sums": lambda: [reduce(reduce(leaf(6, 8), "sum", 1), "sum", 0)],
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_composition_is_one_kernel(name):
    assert len(check(*ONE_KERNEL[name]())) == 1


def test_a_row_that_does_not_fit_is_read_by_separate_kernels():
    x = leaf(2, 40_000)
    assert len(check(softmax(x), limits=Limits(l2=1 << 20))) == 1
    assert len(check(softmax(x), limits=Limits(l2=1 << 14))) > 1


def test_a_dear_operand_of_a_product_is_stored_once():
    calls = check(matmul(apply("exp", leaf(4, 5)), leaf(5, 3)), tolerance=1e-4)
    assert len(calls) == 2


def test_attention_is_three_kernels():
    q, k, v = leaf(4, 6), leaf(5, 6, seed=1), leaf(5, 3, seed=2)
    scores = matmul(q, apply("permute", k, axes=(1, 0)))
    scores = apply("multiply", scores, full(0.125, scores))
    assert len(check(matmul(softmax(scores), v), tolerance=1e-4)) == 3


def test_a_contraction_is_never_computed_twice():
    h = matmul(leaf(4, 5), leaf(5, 6))
    calls = check(relu(h), matmul(h, leaf(6, 3)), tolerance=1e-4)
    sums = [s for c in calls for s in c.kernel.stages if s.is_contraction]
    assert len(sums) == 2
    assert len(calls) == 2


# --- keys


def key(node):
    (call,) = fuse([node], Limits())
    return call.kernel.key, call


def row(x, number):
    n = x.shape[1]
    view = apply("slice", x, starts=(number, 0), stops=(number + 1, n), steps=(1, 1))
    return apply("reshape", view, shape=(n,))


def test_key_does_not_depend_on_which_arrays_are_read():
    a, b, c = (leaf(6, 8, seed=n) for n in range(3))
    first, _ = key(apply("add", apply("multiply", a, b), a))
    assert key(apply("add", apply("multiply", c, a), c))[0] == first
    assert key(apply("add", apply("multiply", c, a), a))[0] != first


def test_key_does_not_depend_on_a_constant_offset_or_the_rest_of_an_array():
    x, y = leaf(6, 8), leaf(9, 8)
    first, one = key(apply("exp", row(x, 3)))
    second, other = key(apply("exp", row(y, 4)))
    assert first == second
    assert (one.inputs[0].offset, other.inputs[0].offset) == (24, 32)


def test_key_does_not_depend_on_the_order_of_building():
    x, y = leaf(6, 8, seed=1), leaf(6, 8, seed=2)
    left, right = apply("sin", x), apply("cos", y)
    first, _ = key(apply("subtract", left, right))
    x, y = leaf(6, 8, seed=3), leaf(6, 8, seed=4)
    right = apply("cos", y)
    assert key(apply("subtract", apply("sin", x), right))[0] == first


# --- size


def scalar_chain(steps):
    x = buffer(Memory(np.ones(1, np.float32)), (1,), float32)
    half, one = full(0.5, x), full(1, x)
    for _ in range(steps):
        x = apply("add", apply("multiply", x, half), one)
    return x


def count_values(calls):
    return sum(len(postorder(s.roots())) for c in calls for s in c.kernel.stages)


def test_chain_is_one_kernel_until_the_cap_and_grows_linearly():
    assert len(fuse([scalar_chain(1000)], Limits())) == 1
    long = fuse([scalar_chain(4000)], Limits())
    assert 1 < len(long) <= 4
    assert count_values(long) <= 4.1 * count_values(fuse([scalar_chain(1000)], Limits()))


def test_deep_chain_needs_no_recursion():
    calls = fuse([scalar_chain(25_000)], Limits())
    assert len({c.kernel.key for c in calls}) <= 3


def test_doublings_of_a_shared_value_are_linear():
    x = leaf(4)
    for _ in range(40):
        x = apply("add", x, x)
    calls = check(x)
    assert count_values(calls) <= 50


def test_wide_concat_is_cut_into_equal_kernels():
    pieces = [leaf(4, 1, seed=n) for n in range(200)]
    calls = check(apply("concat", *pieces, axis=1))
    assert len(calls) == 7
    assert len({c.kernel.key for c in calls}) == 2
    assert [c.outputs[0].offset for c in calls] == list(range(0, 200, 32))


def test_intermediates_are_made_near_their_use():
    h, w = leaf(4, 4), leaf(4, 4, seed=1)
    for n in range(5):
        h = apply("add", matmul(leaf(4, 4, seed=n + 2), w), matmul(h, w))
    calls = fuse([h], Limits())
    made = {id(o.node): n for n, c in enumerate(calls) for o in c.outputs}
    gaps = [n - made[id(o.node)] for n, c in enumerate(calls) for o in c.inputs
            if id(o.node) in made]
    assert max(gaps) <= 2


# --- particular nodes


def test_host_calls_read_whole_arrays():
    x = apply("exp", leaf(4, 3))
    sort = apply("call", x, function=np.sort, shape=(4, 3), dtype=float32)
    calls = check(apply("add", sort, x))
    assert [isinstance(c, HostCall) for c in calls] == [False, True, False]


def test_constants_and_views_are_copied_out():
    x = leaf(4, 3)
    check(constant(2, float32), apply("permute", x, axes=(1, 0)), full(3, x), x)


@pytest.mark.parametrize("dtype", [float16, bfloat16])
def test_sums_of_16_bit_floats_have_a_float32_state(dtype):
    (call,) = check(reduce(leaf(4, 6, dtype=dtype), "sum", 1))
    (stage,) = call.kernel.stages
    assert stage.state.init[0].dtype == float32


def test_empty_arrays():
    x = leaf(3, 0, 2)
    check(reduce(x, "sum", 0, 1, 2), reduce(x, "prod", 1), reduce(x, "max", 2),
          apply("concat", x, leaf(3, 4, 2), axis=1), apply("cumulate", x, kind="sum", axis=1))
    check(matmul(leaf(5, 0), leaf(0, 7)), matmul(leaf(0, 3), leaf(3, 2)))
    check(apply("concat", x, x, axis=0), apply("pad", x, low=(0, 1, 0), high=(0, 1, 0),
                                               interior=(0, 0, 0)))


def test_reductions_along_axes_of_size_one():
    x = leaf(4, 1, 3)
    check(reduce(x, "sum", 1), reduce(x, "argmax", 1), apply("cumulate", x, kind="max", axis=1),
          softmax(leaf(4, 1)))


def test_a_scan_and_its_reader_of_another_shape():
    x = leaf(2, 8)
    total = apply("cumulate", apply("reshape", x, shape=(16,)), kind="sum", axis=0)
    check(apply("add", apply("reshape", total, shape=(2, 8)), x))


def test_permuted_reader_of_a_product():
    h = apply("reshape", matmul(leaf(4, 6), leaf(6, 4)), shape=(2, 2, 4))
    check(apply("permute", apply("negative", h), axes=(1, 2, 0)))


def test_mean_is_finished_once_per_row():
    (call,) = check(apply("subtract", leaf(6, 8), column(mean(leaf(6, 8), 1), 8)))
    first = call.kernel.stages[0]
    assert [v.op for v in postorder([first.stores[0].value])] == ["state", "const", "divide"]


# --- sums that lose an axis


def test_gradient_of_pooling_is_a_map():
    g = apply("unshear", leaf(3, 4, 2), axis=1, size=8, stride=2, dilation=1)
    (call,) = check(reduce(g, "sum", 2))
    (stage,) = call.kernel.stages
    assert stage.state is None
    assert "divides" not in call.kernel.key and "//" not in call.kernel.key


def test_one_hot_sum_is_a_gather():
    x, picked = leaf(5, 7), leaf(5, dtype=int64)
    here = expand(apply("iota", size=7, dtype=int64), (5, 7))
    mask = apply("equal", here, column(picked, 7))
    (call,) = check(reduce(apply("where", mask, x, full(0, x)), "sum", 1))
    (stage,) = call.kernel.stages
    assert stage.state is None and len(stage.lets) == 1


def test_a_masked_product_is_no_gather():
    x, picked = leaf(5, 7), leaf(5, dtype=int64)
    here = expand(apply("iota", size=7, dtype=int64), (5, 7))
    mask = apply("cast", apply("equal", here, column(picked, 7)), dtype=float32)
    (call,) = check(reduce(apply("multiply", mask, x), "sum", 1))  # 0 * inf is not 0
    assert call.kernel.stages[0].state is not None


def test_gradient_of_a_convolution_is_one_contraction():
    dy, weight = leaf(6, 3), leaf(3, 8)  # positions x outputs, outputs x (channels * taps)
    taps = apply("reshape", matmul(dy, weight), shape=(6, 4, 2))
    taps = apply("permute", taps, axes=(1, 0, 2))
    spread = apply("unshear", taps, axis=1, size=7, stride=1, dilation=1)
    (call,) = check(reduce(spread, "sum", 2))
    (stage,) = call.kernel.stages
    assert stage.is_contraction and len(stage.axes("reduce")) == 2


@pytest.mark.parametrize("axis", [0, 1])
def test_the_sum_of_a_products_rows_or_columns_leaves_it_a_contraction(axis):
    output = reduce(matmul(leaf(6, 5), leaf(5, 4)), "sum", axis)
    stages = [s for call in check(output) for s in call.kernel.stages]
    assert [s.is_contraction for s in stages] == [True, False]
    assert len(stages[0].axes("free")) == 2
