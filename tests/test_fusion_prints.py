"""What fusion makes of eight graphs, in full: graph in, kernel out."""

import pytest
from fusion_tools import apply, check, convolve, expand, full, leaf, matmul, softmax

from tilewright.dtypes import int64


def product():
    y = apply("add", matmul(leaf(6, 5), leaf(5, 4)), expand(leaf(4), (6, 4)))
    return apply("maximum", y, full(0, y))


def split():
    return apply("permute", apply("reshape", leaf(4, 12), shape=(2, 6, 4)), axes=(2, 0, 1))


GRAPHS = {
    "product_bias_relu": product,
    "softmax": lambda: softmax(leaf(6, 8)),
    "concat": lambda: apply("concat", leaf(6, 8), leaf(6, 3), axis=1),
    "convolution": lambda: convolve(leaf(2, 6, 7), leaf(3, 2, 3, 3), 1),
    "running_sum": lambda: apply("cumulate", leaf(6, 8), kind="sum", axis=0),
    "gather": lambda: apply("gather", leaf(6, 8), leaf(3, dtype=int64)),
    "scatter": lambda: apply("scatter", leaf(6, 8), leaf(3, 8), leaf(3, dtype=int64), mode="add"),
    "reshape": split,
}

KERNELS = {
    "product_bias_relu": """\
kernel i0=6 i1=4 k0=5
  a0: input float32[30]
  a1: input float32[20]
  a2: input float32[4]
  out0: output float32[24]
  s0  sum free[i0 i1] reduce[k0]
    v0 = a0[i0*5 + k0] : float32
    v1 = a1[i1 + k0*4] : float32
    v2 = multiply(v0, v1) : float32
    v3 = add(state0, v2) : float32
    v4 = a2[i1] : float32
    v5 = add(state0, v4) : float32
    v6 = maximum(v5, 0.0) : float32
    state init (0.0) update (v3)
    out0[i0*4 + i1] = v6""",
    "softmax": """\
kernel i0=6 i1=8
  a0: input float32[48]
  out0: output float32[48]
  t0: scratch float32[6]
  t1: scratch float32[6, 8]
  t2: scratch float32[6]
  s0  max free[i0] reduce[i1]
    v0 = a0[i0*8 + i1] : float32
    v1 = maximum(state0, v0) : float32
    state init (-inf) update (v1)
    t0[i0] = state0
  s1  map free[i0 i1]
    v0 = a0[i0*8 + i1] : float32
    v1 = t0[i0] : float32
    v2 = subtract(v0, v1) : float32
    v3 = exp(v2) : float32
    t1[i0, i1] = v3
  s2  sum free[i0] reduce[i1]
    v0 = t1[i0, i1] : float32
    v1 = add(state0, v0) : float32
    state init (0.0) update (v1)
    t2[i0] = state0
  s3  map free[i0 i1]
    v0 = t1[i0, i1] : float32
    v1 = t2[i0] : float32
    v2 = divide(v0, v1) : float32
    out0[i0*8 + i1] = v2""",
    "concat": """\
kernel i0=6 i1=8 i2=3
  a0: input float32[48]
  a1: input float32[18]
  out0: output float32[66]
  s0  map free[i0 i1]
    v0 = a0[i0*8 + i1] : float32
    out0[i0*11 + i1] = v0
  s1  map free[i0 i2]
    v0 = a1[i0*3 + i2] : float32
    out0[i0*11 + i2 + 8] = v0""",
    "convolution": """\
kernel i0=3 i1=6 i2=7 k0=2 k1=3 k2=3
  a0: input float32[84]
  a1: input float32[54]
  out0: output float32[126]
  s0  sum free[i0 i1 i2] reduce[k0 k1 k2]
    v0 = a0[i1*7 + i2 + k0*42 + k1*7 + k2 - 8] if [i1 + k1 - 1 >= 0] and [i1*-1 + k1*-1 + 6 >= 0] and [i2 + k2 - 1 >= 0] and [i2*-1 + k2*-1 + 7 >= 0] : float32
    v1 = a1[i0*18 + k0*9 + k1*3 + k2] : float32
    v2 = multiply(v0, v1) : float32
    v3 = add(state0, v2) : float32
    state init (0.0) update (v3)
    out0[i0*42 + i1*7 + i2] = state0""",  # noqa: E501
    "running_sum": """\
kernel i0=6 i1=8
  a0: input float32[48]
  out0: output float32[48]
  s0  sum free[i1] carry[i0]
    v0 = a0[i0*8 + i1] : float32
    v1 = add(state0, v0) : float32
    state init (0.0) update (v1)
    out0[i0*8 + i1] = state0""",
    "gather": """\
kernel i0=3 i1=8
  a0: input int64[3]
  a1: input float32[48]
  out0: output float32[24]
  s0  map free[i0 i1]
    v0 = a0[i0] : int64
    v1 = maximum(v0, 0:int64) : int64
    v2 = minimum(v1, 5:int64) : int64
    v3 = a1[g0*8 + i1] : float32
    let g0 = v2 in 0..5
    out0[i0*8 + i1] = v3""",
    "scatter": """\
kernel i0=6 i1=8 i2=3
  a0: input float32[48]
  a1: input int64[3]
  a2: input float32[24]
  out0: output float32[48]
  s0  map free[i0 i1]
    v0 = a0[i0*8 + i1] : float32
    out0[i0*8 + i1] = v0
  s1  map free[i1] carry[i2]
    v0 = a1[i2] : int64
    v1 = maximum(v0, 0:int64) : int64
    v2 = minimum(v1, 5:int64) : int64
    v3 = a2[i1 + i2*8] : float32
    v4 = less(-1:int64, v0) : bool
    v5 = less(v0, 6:int64) : bool
    let g0 = v2 in 0..5
    out0[g0*8 + i1] add= v3 if v4 and v5""",
    "reshape": """\
kernel i0=4 i1=12
  a0: input float32[48]
  out0: output float32[48]
  s0  map free[i0 i1]
    v0 = a0[i0 + i1*4] : float32
    out0[i0*12 + i1] = v0""",
}


@pytest.mark.parametrize("name", GRAPHS)
def test_kernel_reads(name):
    (call,) = check(GRAPHS[name](), tolerance=1e-4)
    assert str(call.kernel) == KERNELS[name]
