"""Normalisations. float16 and bfloat16 are computed in float32 and rounded."""

from __future__ import annotations

from typing import Any

from tilewright.array import build as b
from tilewright.array import elementwise as e
from tilewright.array import reductions as r
from tilewright.array.convert import ArrayLike, asarray
from tilewright.array.dtype_functions import finfo
from tilewright.array.tensor import Tensor
from tilewright.errors import ShapeError
from tilewright.nn.activations import widened


def _last_axes(name: str, x: Tensor, normalized_shape: Any) -> tuple[int, ...]:
    """Return the trailing axes whose sizes are `normalized_shape` (None: the last axis)."""
    if normalized_shape is None:
        normalized_shape = x.shape[-1:]
    sizes = b.normalize_shape(name, normalized_shape)
    if not sizes or x.shape[-len(sizes):] != sizes:
        raise ShapeError(f"{name}: cannot normalise {x.dtype}{list(x.shape)} over {list(sizes)} "
                         "(needs its last sizes)")
    return tuple(range(x.ndim - len(sizes), x.ndim))


def _scale_and_shift(x: Tensor, weight: ArrayLike, bias: ArrayLike) -> Tensor:
    if weight is not None:
        x = x * asarray(weight).astype(x.dtype)
    return x if bias is None else x + asarray(bias).astype(x.dtype)


def _standardise(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    centred = x - r.mean(x, axis=axes, keepdims=True)
    return centred / e.sqrt(r.mean(centred * centred, axis=axes, keepdims=True) + eps)


def layer_norm(x: ArrayLike, /, normalized_shape: Any = None, weight: ArrayLike = None,
               bias: ArrayLike = None, eps: float = 1e-5) -> Tensor:
    """Return (x - mean) / sqrt(var + eps) * weight + bias over the last axes.

    `normalized_shape` are the sizes of those axes (None: the last one alone).
    """
    wide, target = widened(x)
    axes = _last_axes("layer_norm", wide, normalized_shape)
    return _scale_and_shift(_standardise(wide, axes, eps), weight, bias).astype(target)


def rms_norm(x: ArrayLike, /, normalized_shape: Any = None, weight: ArrayLike = None,
             eps: float | None = None) -> Tensor:
    """Return x / sqrt(mean(x**2) + eps) * weight over the last axes; eps is the dtype's if None."""
    wide, target = widened(x)
    axes = _last_axes("rms_norm", wide, normalized_shape)
    small = finfo(target).eps if eps is None else eps
    scaled = wide / e.sqrt(r.mean(wide * wide, axis=axes, keepdims=True) + small)
    return _scale_and_shift(scaled, weight, None).astype(target)


def _per_channel(value: ArrayLike, ndim: int) -> Tensor | None:
    if value is None:
        return None
    tensor = asarray(value)
    return tensor.reshape(tensor.size, *(1,) * (ndim - 2))


def group_norm(x: ArrayLike, /, num_groups: int, weight: ArrayLike = None, bias: ArrayLike = None,
               eps: float = 1e-5) -> Tensor:
    """Normalise (batch, channels, ..) over each of `num_groups` groups of channels."""
    wide, target = widened(x)
    if wide.ndim < 2 or num_groups < 1 or wide.shape[1] % num_groups:
        raise ShapeError(f"group_norm: cannot form {num_groups} groups of the channels of "
                         f"{wide.dtype}{list(wide.shape)} (axis 1 must divide)")
    grouped = wide.reshape(wide.shape[0], num_groups, wide.shape[1] // num_groups, *wide.shape[2:])
    normal = _standardise(grouped, tuple(range(2, grouped.ndim)), eps).reshape(wide.shape)
    return _scale_and_shift(normal, _per_channel(weight, wide.ndim),
                            _per_channel(bias, wide.ndim)).astype(target)


def batch_norm(x: ArrayLike, /, running_mean: ArrayLike = None, running_var: ArrayLike = None,
               weight: ArrayLike = None, bias: ArrayLike = None, eps: float = 1e-5) -> Tensor:
    """Normalise each channel (axis 1) by the given statistics, or by the batch's if None."""
    wide, target = widened(x)
    if (running_mean is None) != (running_var is None) or wide.ndim < 2:
        raise ShapeError(f"batch_norm: cannot normalise {wide.dtype}{list(wide.shape)} (needs "
                         "2 axes or more, and both running statistics or neither)")
    centre, spread = _per_channel(running_mean, wide.ndim), _per_channel(running_var, wide.ndim)
    if centre is None or spread is None:
        axes = tuple(d for d in range(wide.ndim) if d != 1)
        normal = _standardise(wide, axes, eps)
    else:
        normal = (wide - centre) / e.sqrt(spread + eps)
    return _scale_and_shift(normal, _per_channel(weight, wide.ndim),
                            _per_channel(bias, wide.ndim)).astype(target)
