"""Activations, norms, losses, attention and optimisers, against PyTorch."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import nn, random

torch = pytest.importorskip("torch")
F = torch.nn.functional


def close(ours, wanted, tolerance=2e-6):
    wanted = wanted.detach().numpy()
    assert ours.shape == wanted.shape
    assert ours.dtype == wanted.dtype
    np.testing.assert_allclose(np.asarray(ours), wanted, rtol=tolerance, atol=tolerance)


def pair(rng, *shape, dtype="float32"):
    a = rng.standard_normal(shape).astype(dtype)
    return tw.asarray(a), torch.from_numpy(a)


EDGES = np.array([0.0, -0.0, 1.0, -1.0, 5.0, -20.0, 90.0, -90.0, 200.0, -200.0], "float32")


@pytest.mark.parametrize("name", ["relu", "silu", "sigmoid", "softplus", "gelu", "mish",
                                  "leaky_relu", "elu"])
def test_activations(name, rng):
    function = getattr(torch, name, None) or getattr(F, name)
    for a in (EDGES, rng.standard_normal((2, 3)).astype("float32"), np.zeros((0, 2), "float32")):
        close(getattr(nn, name)(a), getattr(F, name, function)(torch.from_numpy(a)), 5e-6)


def test_gelu_tanh_and_nan():
    close(nn.gelu(EDGES, "tanh"), F.gelu(torch.from_numpy(EDGES), approximate="tanh"), 5e-6)
    assert np.isnan(nn.relu([np.nan]).item())


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(name, axis, rng):
    x, t = pair(rng, 3, 4)
    close(getattr(nn, name)(x * 100, axis=axis), getattr(F, name)(t * 100, dim=axis), 1e-5)
    assert getattr(nn, name)(tw.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_single(dtype, rng):
    a = rng.standard_normal((2, 64)).astype("float32")
    x, t = tw.asarray(a).astype(dtype), torch.from_numpy(a).to(getattr(torch, dtype))
    for ours, wanted in [(nn.softmax(x), F.softmax(t, -1)), (nn.gelu(x), F.gelu(t)),
                         (nn.layer_norm(x), F.layer_norm(t, (64,)))]:
        assert ours.dtype == dtype
        np.testing.assert_allclose(np.asarray(ours.astype("float32")), wanted.float().numpy(),
                                   rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("count", [1, 2])
def test_norms(shape, count, rng):
    if count > len(shape):
        pytest.skip("fewer axes")
    x, t = pair(rng, *shape)
    sizes = shape[-count:]
    (w, tw_), (b, tb) = pair(rng, *sizes), pair(rng, *sizes)
    close(nn.layer_norm(x, sizes), F.layer_norm(t, sizes), 5e-6)
    close(nn.layer_norm(x, sizes, w, b, eps=1e-3), F.layer_norm(t, sizes, tw_, tb, 1e-3), 5e-6)
    close(nn.rms_norm(x, sizes), F.rms_norm(t, sizes), 5e-6)
    close(nn.rms_norm(x, sizes, w, eps=1e-3), F.rms_norm(t, sizes, tw_, 1e-3), 5e-6)


def test_group_and_batch_norm(rng):
    x, t = pair(rng, 2, 6, 3)
    (w, tw_), (b, tb), (m, tm) = pair(rng, 6), pair(rng, 6), pair(rng, 6)
    v, tv = abs(m) + 1, tm.abs() + 1
    close(nn.group_norm(x, 3, w, b), F.group_norm(t, 3, tw_, tb), 5e-6)
    close(nn.batch_norm(x, m, v, w, b), F.batch_norm(t, tm, tv, tw_, tb), 5e-6)
    close(nn.batch_norm(x), F.batch_norm(t, None, None, training=True), 5e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 5, 3)])
def test_cross_entropy(shape, reduction, smoothing, rng):
    x, t = pair(rng, *shape)
    rest = shape[:0] + shape[2:] if len(shape) == 1 else (shape[0], *shape[2:])
    target = np.asarray(rng.integers(0, 5, rest))
    if target.size > 1:
        target.reshape(-1)[0] = -100
    w, tw_ = pair(rng, 5)
    w, tw_ = abs(w), tw_.abs()
    options = {"reduction": reduction, "label_smoothing": smoothing}
    close(nn.cross_entropy(x, target, **options),
          F.cross_entropy(t, torch.from_numpy(target), **options), 5e-6)
    close(nn.cross_entropy(x, target, weight=w, **options),
          F.cross_entropy(t, torch.from_numpy(target), weight=tw_, **options), 5e-6)
    axis = 0 if len(shape) == 1 else 1
    shares, ts = nn.softmax(x, axis=axis), F.softmax(t, axis)
    if len(shape) == 2 or reduction != "mean":
        close(nn.cross_entropy(x, shares, **options), F.cross_entropy(t, ts, **options), 5e-6)


def test_other_losses(rng):
    (x, t), (y, ty) = pair(rng, 3, 4), pair(rng, 3, 4)
    close(nn.mse_loss(x, y), F.mse_loss(t, ty))
    close(nn.binary_cross_entropy_with_logits(x * 50, nn.sigmoid(y)),
          F.binary_cross_entropy_with_logits(t * 50, torch.sigmoid(ty)), 5e-6)


@pytest.mark.parametrize("mode", ["plain", "causal", "bool", "float", "scale", "groups"])
def test_attention(mode, rng):
    heads = 4
    (q, tq), (k, tk), (v, tv) = (pair(rng, 2, n, s, 8) for n, s in [
        (heads, 5), (2 if mode == "groups" else heads, 7), (2 if mode == "groups" else heads, 7)])
    ours, theirs = {}, {}
    if mode == "causal":
        ours = theirs = {"is_causal": True}
    elif mode == "scale":
        ours = theirs = {"scale": 0.3}
    elif mode == "groups":
        ours = theirs = {"enable_gqa": True}
    elif mode != "plain":
        mask = rng.random((5, 7)) < 0.7
        mask[:, 0] = True
        mask = mask if mode == "bool" else rng.standard_normal((5, 7)).astype("float32")
        ours, theirs = {"mask": mask}, {"attn_mask": torch.from_numpy(mask)}
    close(nn.scaled_dot_product_attention(q, k, v, **ours),
          F.scaled_dot_product_attention(tq, tk, tv, **theirs), 5e-6)


def test_one_hot_and_embedding(rng):
    a = np.array([[0, 2], [1, 1]])
    assert (nn.one_hot(a, 3, dtype="int64").numpy()
            == F.one_hot(torch.from_numpy(a), 3).numpy()).all()
    assert nn.one_hot(a, 3, axis=0).shape == (3, 2, 2)
    w, tw_ = pair(rng, 3, 4)
    close(nn.embedding(a, w), F.embedding(torch.from_numpy(a), tw_))


def test_dropout():
    x = tw.ones((40, 50))
    y = nn.dropout(x, 0.25, key=random.key(1)).numpy()
    assert set(np.unique(y)) == {0, np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.05
    assert (nn.dropout(x, 0.25, key=random.key(1)).numpy() == y).all()
    assert (nn.dropout(x, 0.0, key=random.key(1)).numpy() == 1).all()
    assert (nn.dropout(x, 1.0, key=random.key(1)).numpy() == 0).all()


OPTIMIZERS = [
    (nn.SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    (nn.SGD(0.1, momentum=0.9, weight_decay=0.01),
     lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01)),
    (nn.SGD(0.1, momentum=0.9, nesterov=True),
     lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True)),
    (nn.Adam(0.1), lambda p: torch.optim.Adam(p, 0.1)),
    (nn.Adam(0.1, weight_decay=0.1), lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.1)),
    (nn.AdamW(0.1, weight_decay=0.1), lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.1)),
]


@pytest.mark.parametrize(("ours", "theirs"), OPTIMIZERS, ids=range(len(OPTIMIZERS)))
def test_optimizers(ours, theirs, rng):
    (w, tw_), (b, tb) = pair(rng, 3, 2), pair(rng, 2)
    tw_, tb = tw_.clone().requires_grad_(), tb.clone().requires_grad_()
    optimizer = theirs([tw_, tb])
    parameters = {"w": w, "layers": [b, None]}
    state = ours.init(parameters)
    for _ in range(3):
        gradients = {"w": parameters["w"] * 2, "layers": [parameters["layers"][0] + 1, None]}
        tw_.grad, tb.grad = tw_.detach() * 2, tb.detach() + 1
        parameters, state = ours.update(gradients, state, parameters)
        optimizer.step()
    close(parameters["w"], tw_, 1e-5)
    close(parameters["layers"][0], tb, 1e-5)
