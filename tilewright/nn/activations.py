"""Activations. float16 and bfloat16 are computed in float32 and rounded; integers give float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import pi, sqrt

from tilewright.array import elementwise as e
from tilewright.array import reductions as r
from tilewright.array.convert import DEFAULT_FLOAT, ArrayLike, asarray
from tilewright.array.tensor import Tensor
from tilewright.dtypes import DType, accumulator


def widened(x: ArrayLike) -> tuple[Tensor, DType]:
    """Return x in the dtype it is computed in, and the dtype of the result."""
    tensor = asarray(x)
    target = tensor.dtype if tensor.dtype.is_float else DEFAULT_FLOAT
    return tensor.astype(accumulator(target)), target


def _wide(function: Callable) -> Callable:
    @wraps(function)
    def run(x: ArrayLike, *args: object, **options: object) -> Tensor:
        wide, target = widened(x)
        return function(wide, *args, **options).astype(target)
    return run


def relu(x: ArrayLike, /) -> Tensor:
    """Return x where it is positive, else 0; NaN stays NaN. Its gradient at 0 is 0."""
    tensor = asarray(x)
    return e.select(tensor <= 0, 0, tensor)


def _minus_magnitude(x: Tensor) -> Tensor:
    """Return -|x|, as a choice, so that the gradient at 0 is that of one side."""
    return e.select(x >= 0, -x, x)


@_wide
def sigmoid(x: ArrayLike, /) -> Tensor:
    """Return 1 / (1 + exp(-x)), accurate at both ends."""
    small = e.exp(_minus_magnitude(x))
    return e.select(x >= 0, 1, small) / (1 + small)


@_wide
def silu(x: ArrayLike, /) -> Tensor:
    """Return x * sigmoid(x)."""
    return x * sigmoid(x)


@_wide
def softplus(x: ArrayLike, /) -> Tensor:
    """Return log(1 + exp(x)) without overflow on the way."""
    return e.select(x >= 0, x, 0) + e.log1p(e.exp(_minus_magnitude(x)))


@_wide
def mish(x: ArrayLike, /) -> Tensor:
    """Return x * tanh(softplus(x))."""
    return x * e.tanh(softplus(x))


@_wide
def gelu(x: ArrayLike, /, approximate: str = "none") -> Tensor:
    """Return x * Phi(x), Phi the normal distribution; "tanh" is the usual approximation."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: cannot approximate by {approximate!r} ('none' or 'tanh')")
    if approximate == "tanh":
        inner = sqrt(2 / pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + e.tanh(inner))
    return 0.5 * x * (1 + e.erf(x * sqrt(0.5)))


@_wide
def leaky_relu(x: ArrayLike, /, negative_slope: float = 0.01) -> Tensor:
    """Return x where it is positive, else negative_slope * x."""
    return e.select(x > 0, x, x * negative_slope)


@_wide
def elu(x: ArrayLike, /, alpha: float = 1.0) -> Tensor:
    """Return x where it is positive, else alpha * (exp(x) - 1)."""
    return e.select(x > 0, x, alpha * e.expm1(e.select(x > 0, 0, x)))


@_wide
def softmax(x: ArrayLike, /, axis: int = -1) -> Tensor:
    """Return exp(x) / sum(exp(x)) along `axis`."""
    if not x.size:
        return x
    powers = e.exp(x - r.max(x, axis=axis, keepdims=True))
    return powers / r.sum(powers, axis=axis, keepdims=True)


@_wide
def log_softmax(x: ArrayLike, /, axis: int = -1) -> Tensor:
    """Return x - log(sum(exp(x))) along `axis`."""
    if not x.size:
        return x
    shifted = x - r.max(x, axis=axis, keepdims=True)
    return shifted - e.log(r.sum(e.exp(shifted), axis=axis, keepdims=True))
