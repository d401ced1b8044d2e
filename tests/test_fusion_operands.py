"""Operands of contractions in a pass of their own, parts of contractions, products of rows."""

import numpy as np
import pytest
from fusion_tools import check, convolve, leaf, matmul, softmax
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import nn
from tilewright.fusion.operands import worth_storing
from tilewright.graph import apply
from tilewright.kernel.value import postorder
from tilewright.limits import Limits


def ops(stage):
    return [v.op for v in postorder(stage.roots())]


def transposed(node):
    axes = (*range(node.ndim - 2), node.ndim - 1, node.ndim - 2)
    return apply("permute", node, axes=axes)


def attention(rows=64, keys=32, width=8, limits=None):
    q, k, v = (leaf(2, n, width, seed=s) for s, n in enumerate((rows, keys, keys)))
    scores = batched(q, transposed(k))
    return check(batched(softmax(scores), v), limits=limits or Limits())


def batched(a, b):
    """Multiply stacks of matrices: (n, i, k), (n, k, j) -> (n, i, j)."""
    (n, i, k), j = a.shape, b.shape[-1]
    left = apply("expand", apply("reshape", a, shape=(n, i, k, 1)), shape=(n, i, k, j))
    right = apply("expand", apply("reshape", b, shape=(n, 1, k, j)), shape=(n, i, k, j))
    return apply("reduce", apply("multiply", left, right), kind="sum", axes=(2,))


# --- operands


def test_a_padded_image_is_padded_once_before_the_contraction():
    (call,) = check(convolve(leaf(4, 20, 20), leaf(32, 4, 3, 3, seed=1), 1))
    pad, product = call.kernel.stages
    assert "test" in ops(pad) and "test" not in ops(product)
    assert product.is_contraction


def test_a_padded_image_that_is_hardly_read_again_stays_where_it_is():
    (call,) = check(convolve(leaf(4, 20, 20), leaf(1, 4, 1, 1, seed=1), 1))
    assert len(call.kernel.stages) == 1


def test_a_product_of_plain_matrices_has_one_stage():
    (call,) = check(matmul(leaf(64, 48), apply("permute", leaf(80, 48), axes=(1, 0))))
    assert len(call.kernel.stages) == 1


def test_the_rule_weighs_reuse_against_bytes():
    assert worth_storing(points=1000 * 64, elements=1000, work=4, itemsize=4)
    assert not worth_storing(points=1000 * 8, elements=1000, work=4, itemsize=4)
    assert not worth_storing(points=1000 * 64, elements=1000, work=0, itemsize=4)


def test_scratch_that_does_not_fit_is_not_made():
    small = Limits(scratch_bytes=1 << 10)
    (call,) = check(convolve(leaf(4, 20, 20), leaf(32, 4, 3, 3, seed=1), 1), limits=small)
    assert len(call.kernel.stages) == 1


def gradients(x, w, **options):
    """Return the gradients of a weighted sum of a convolution, computed by tilewright."""
    def loss(pair):
        y = nn.conv2d(*pair, **options)
        weights = tw.reshape(tw.arange(y.size, dtype=tw.float32) % 5 - 2, y.shape)
        return tw.sum(y * weights)
    dx, dw = tw.jit(tw.grad(loss))((tw.asarray(x), tw.asarray(w)))
    return np.asarray(dx), np.asarray(dw)


def reference(x, w, stride, padding, dilation):
    """Return the same gradients, tap by tap in NumPy."""
    p = padding
    wide = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    k = w.shape[2]
    h, v = ((n - dilation * (k - 1) - 1) // stride + 1 for n in wide.shape[2:])
    shape = (x.shape[0], w.shape[0], h, v)
    g = (np.arange(np.prod(shape)) % 5 - 2).reshape(shape).astype(np.float64)
    dwide, dw = np.zeros_like(wide), np.zeros_like(w)
    for i in range(k):
        for j in range(k):
            a = slice(i * dilation, i * dilation + stride * (h - 1) + 1, stride)
            b = slice(j * dilation, j * dilation + stride * (v - 1) + 1, stride)
            dw[:, :, i, j] = np.einsum("bohw,bchw->oc", g, wide[:, :, a, b])
            dwide[:, :, a, b] += np.einsum("bohw,oc->bchw", g, w[:, :, i, j])
    return dwide[:, :, p:wide.shape[2] - p, p:wide.shape[3] - p], dw


@settings(max_examples=25)
@given(st.data())
def test_gradients_of_convolutions(data):
    batch, inputs, outputs = (data.draw(st.sampled_from(s)) for s in ((1, 3), (1, 4), (2, 16)))
    size, other = (data.draw(st.sampled_from([5, 8, 18, 19])) for _ in range(2))
    kernel = data.draw(st.sampled_from([1, 2, 3]))
    stride, padding, dilation = (data.draw(st.sampled_from(s)) for s in
                                 ((1, 2, 3), (0, 1, 2), (1, 2)))
    rng = np.random.default_rng(size)
    x = rng.integers(-3, 4, (batch, inputs, size, other)).astype(np.float64)
    w = rng.integers(-3, 4, (outputs, inputs, kernel, kernel)).astype(np.float64)
    got = gradients(x.astype(np.float32), w.astype(np.float32), stride=stride, padding=padding,
                    dilation=dilation)
    for a, b in zip(got, reference(x, w, stride, padding, dilation)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("stride", [1, 2])
def test_the_data_gradient_is_one_kernel_that_computes_no_margin(stride):
    x, w = tw.ones((2, 8, 16, 16)), tw.ones((16, 8, 3, 3))
    grad = tw.jit(tw.grad(lambda x, w: tw.sum(nn.conv2d(x, w, stride=stride, padding=1) ** 2)))
    kernels = [k.key for k in grad.compile(x, w).kernels]
    assert len(kernels) == 2  # the convolution, and its gradient
    assert "divides" not in kernels[-1] and "float32[4096]" in kernels[-1].split("scratch")[0]


def test_a_slice_of_a_product_is_all_that_is_computed():
    product = matmul(leaf(40, 24), leaf(24, 36))
    (call,) = check(apply("slice", product, starts=(4, 2), stops=(20, 34), steps=(1, 2)))
    sizes = [int(a.extent) for a in call.kernel.axes]
    assert sizes == [16, 16, 24]


def test_a_product_with_another_reader_is_computed_whole():
    product = matmul(leaf(40, 24), leaf(24, 36))
    part = apply("slice", product, starts=(4, 2), stops=(20, 34), steps=(1, 2))
    check(part, apply("negative", product))


# --- rows


def test_attention_is_one_kernel_that_divides_its_results():
    (call,) = attention()
    stages = call.kernel.stages
    assert [s.state.name if s.state else "map" for s in stages] \
        == ["sum", "max", "map", "sum", "sum"]
    assert "divide" in ops(stages[-1]) and "divide" not in ops(stages[2])
    assert len(call.kernel.outputs) == 1


def test_scores_that_do_not_fit_are_stored():
    assert len(attention(limits=Limits(l2=1 << 12))) == 3


def test_few_rows_are_no_block():
    assert len(attention(rows=4)) > 1


def test_equal_widths_and_lengths():
    attention(rows=32, keys=32, width=32)
    attention(rows=16, keys=8, width=16)


def test_the_scores_may_be_an_output_too():
    q, k, v = (leaf(2, 32, 8, seed=s) for s in range(3))
    weights = softmax(batched(q, transposed(k)))
    check(weights, batched(weights, v))


def test_a_softmax_of_a_product_is_one_kernel():
    assert len(check(softmax(matmul(leaf(64, 24), leaf(24, 40, seed=1))))) == 1


def test_a_reduction_of_columns_does_not_join():
    scores = matmul(leaf(64, 24), leaf(24, 40, seed=1))
    check(apply("reduce", scores, kind="max", axes=(0,)))
    check(apply("reduce", scores, kind="sum", axes=(0, 1)))
