"""Convolutions and pools, against PyTorch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright import nn

torch = pytest.importorskip("torch")
F = torch.nn.functional


def both(data, *shape):
    seed = data.draw(st.integers(0, 9)) if data else 0
    a = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    return tw.asarray(a), torch.from_numpy(a)


def close(ours, wanted):
    assert ours.shape == tuple(wanted.shape)
    np.testing.assert_allclose(np.asarray(ours), wanted.numpy(), rtol=1e-4, atol=1e-5)


@given(st.data())
def test_convolutions(data):
    rank = data.draw(st.sampled_from([1, 2, 2, 3]))
    groups = data.draw(st.sampled_from([1, 1, 2]))
    small = st.integers(1, 3 if rank < 3 else 2)

    def per_axis(values):
        return tuple(data.draw(values) for _ in range(rank))
    kernel, stride, dilation = per_axis(small), per_axis(small), per_axis(st.integers(1, 2))
    padding = per_axis(st.integers(0, 2))
    sizes = tuple(d * (k - 1) + data.draw(st.integers(1, 4)) for k, d in zip(kernel, dilation))
    x, t = both(data, 2, 2 * groups, *sizes)
    w, tw_ = both(data, 3 * groups, 2, *kernel)
    b, tb = both(data, 3 * groups)
    close(getattr(nn, f"conv{rank}d")(x, w, b, stride=stride, padding=padding, dilation=dilation,
                                      groups=groups),
          getattr(F, f"conv{rank}d")(t, tw_, tb, stride, padding, dilation, groups))


@given(st.data())
def test_transposed_convolutions(data):
    rank = data.draw(st.sampled_from([1, 2, 2, 3]))
    groups = data.draw(st.sampled_from([1, 1, 2]))
    small = st.integers(1, 3 if rank < 3 else 2)

    def per_axis(values):
        return tuple(data.draw(values) for _ in range(rank))
    kernel, stride, dilation = per_axis(small), per_axis(small), per_axis(st.integers(1, 2))
    extra = tuple(data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation))
    sizes = per_axis(st.integers(2, 4))
    padding = tuple(data.draw(st.integers(0, 2)) for _ in range(rank))
    outs = [(n - 1) * s - 2 * p + d * (k - 1) + o + 1 for n, s, p, d, k, o in zip(
        sizes, stride, padding, dilation, kernel, extra)]
    if min(outs) < 1:
        padding = (0,) * rank
    x, t = both(data, 2, 2 * groups, *sizes)
    w, tw_ = both(data, 2 * groups, 3, *kernel)
    b, tb = both(data, 3 * groups)
    close(getattr(nn, f"conv_transpose{rank}d")(
        x, w, b, stride=stride, padding=padding, output_padding=extra, groups=groups,
        dilation=dilation),
        getattr(F, f"conv_transpose{rank}d")(t, tw_, tb, stride, padding, extra, groups, dilation))


@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_named_and_uneven_padding():
    (x, t), (w, tw_) = both(None, 2, 3, 5, 6), both(None, 4, 3, 2, 3)
    for padding in ("same", "valid"):
        close(nn.conv2d(x, w, padding=padding), F.conv2d(t, tw_, padding=padding))
    close(nn.conv2d(x, w, padding="same", dilation=2), F.conv2d(t, tw_, padding="same", dilation=2))
    close(nn.conv2d(x, w, padding=((0, 1), (2, 0))), F.conv2d(F.pad(t, (2, 0, 0, 1)), tw_))
    close(nn.conv2d(x[0], w), F.conv2d(t[0], tw_))
    half = nn.conv2d(x.astype("float16"), w.astype("float16"))
    assert half.dtype == tw.float16


@given(st.data())
def test_pools(data):
    rank = data.draw(st.sampled_from([1, 2, 2, 3]))

    def per_axis(values):
        return tuple(data.draw(values) for _ in range(rank))
    kernel, stride = per_axis(st.integers(1, 3)), per_axis(st.integers(1, 3))
    padding = tuple(data.draw(st.integers(0, k // 2)) for k in kernel)
    sizes = tuple(k + data.draw(st.integers(0, 4)) for k in kernel)
    ceil_mode, include = data.draw(st.booleans()), data.draw(st.booleans())
    x, t = both(data, 2, 3, *sizes)
    close(getattr(nn, f"max_pool{rank}d")(x, kernel, stride, padding, ceil_mode=ceil_mode),
          getattr(F, f"max_pool{rank}d")(t, kernel, stride, padding, ceil_mode=ceil_mode))
    close(getattr(nn, f"avg_pool{rank}d")(x, kernel, stride, padding, ceil_mode=ceil_mode,
                                          count_include_pad=include),
          getattr(F, f"avg_pool{rank}d")(t, kernel, stride, padding, ceil_mode, include))


def test_dilated_and_integer_max_pool():
    x, t = both(None, 1, 2, 9, 8)
    close(nn.max_pool2d(x, 3, 2, 1, dilation=2), F.max_pool2d(t, 3, 2, 1, dilation=2))
    a = np.arange(-8, 8, dtype=np.int8).reshape(1, 4, 4)
    assert nn.max_pool2d(a, 3, 2, 1).tolist() == [[[-3, -1], [5, 7]]]
