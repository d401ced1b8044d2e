"""The contraction sketch inside blocks of rows, over several reduce axes, along any vector axis."""

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tilewright import nn
from tilewright.actions.sketches import default_recipe
from tilewright.actions.sketches.contraction import Contraction, analyse
from tilewright.actions.sketches.draft import Draft
from tilewright.config import using
from tilewright.limits import Limits

LIMITS = Limits(vector_bytes=64, registers=32)


def kernels(function, *arrays):
    return [k.kernel for k in tw.jit(function).compile(*map(tw.asarray, arrays)).kernels]


def attend(q, k, v, mask):
    """Return softmax(q k^T / sqrt(e) + mask) v in float64."""
    scores = np.einsum("...qe,...ke->...qk", q, k) / np.sqrt(q.shape[-1]) + mask
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("...qk,...kv->...qv", e / e.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("backend", ["llvm", "interpreter"])
@pytest.mark.parametrize("shape", [(2, 3, 77, 40, 16), (1, 1, 64, 64, 64), (1, 2, 33, 5, 3),
                                   (1, 2, 35, 50, 24)])
def test_attention(shape, backend, threads):
    batch, heads, rows, keys, width = shape
    rng = np.random.default_rng(keys)
    q, k, v = (rng.random((batch, heads, n, width), np.float32) - 0.5 for n in (rows, keys, keys))
    add = rng.random((rows, keys), np.float32)
    causal = np.where(np.tri(rows, keys, dtype=bool), 0, -np.inf)
    with using(backend=backend, threads=threads):
        plain = tw.jit(nn.scaled_dot_product_attention)
        hidden = tw.jit(lambda *a: nn.scaled_dot_product_attention(*a, is_causal=True))
        got = [np.asarray(plain(*map(tw.asarray, (q, k, v, add)))),
               np.asarray(hidden(*map(tw.asarray, (q, k, v))))]
    for value, mask in zip(got, (add, causal)):
        np.testing.assert_allclose(value, attend(q, k, v, mask), rtol=2e-5, atol=2e-6)


def test_blocks_of_rows_fit_half_of_l2_and_shared_factors_are_packed_once():
    arrays = [np.zeros((2, 256, 16), np.float32)] * 3
    (kernel,) = kernels(nn.scaled_dot_product_attention, *arrays)
    recipe = default_recipe(kernel, LIMITS)
    assert recipe.opened == ("i1", 64)
    assert default_recipe(kernel, replace(LIMITS, l2=1 << 16)).opened == ("i1", 16)
    assert "Copy(s0:b, i0, " in str(recipe.schedule(kernel, LIMITS))


def test_a_weight_gradient_has_vectors_along_a_long_axis():
    x, w = np.zeros((2, 16, 16, 16), np.float32), np.zeros((32, 16, 3, 3), np.float32)

    def loss(w, x):
        return tw.sum(nn.conv2d(x, w, padding=1) ** 2)
    kernel = kernels(tw.grad(loss), w, x)[-1]
    stage = kernel.stages[-1]
    shape = analyse(Draft(kernel), stage, LIMITS)
    assert int(kernel.axis[shape.vector].extent) >= 16
    (sketch,) = [s for s in default_recipe(kernel, LIMITS).sketches if s.stage == stage.name]
    assert isinstance(sketch, Contraction) and sketch.pack


@pytest.mark.parametrize("steps", [7, 16, 100, 300])
def test_steps_of_several_axes_are_cut_anywhere(steps):
    rng = np.random.default_rng(steps)
    x = rng.integers(-3, 4, (2, 16, 12, 10)).astype(np.float32)
    g = rng.integers(-3, 4, (2, 32, 10, 8)).astype(np.float32)

    def correlate(x, g):
        w = tw.zeros((32, 16, 3, 3))
        return tw.grad(lambda w: tw.sum(nn.conv2d(x, w) * g))(w)
    compiled = tw.jit(correlate).compile(tw.asarray(x), tw.asarray(g))
    (made,) = compiled.kernels
    recipe = default_recipe(made.kernel, LIMITS)
    sketches = tuple(replace(s, steps=steps, pack=True) if isinstance(s, Contraction) else s
                     for s in recipe.sketches)
    schedule = replace(recipe, sketches=sketches).schedule(made.kernel, LIMITS)
    made.with_schedule(schedule)  # checked against the original
    taps = [[np.einsum("bohw,bchw->oc", g, x[:, :, i:i + 10, j:j + 8]) for j in range(3)]
            for i in range(3)]
    want = np.moveaxis(np.array(taps), (0, 1), (2, 3))
    np.testing.assert_allclose(np.asarray(tw.jit(correlate)(tw.asarray(x), tw.asarray(g))), want)
