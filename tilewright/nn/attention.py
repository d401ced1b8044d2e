"""Attention, embeddings, one-hot vectors and dropout."""

from __future__ import annotations

from math import sqrt
from typing import Any

from tilewright import random
from tilewright.array import build as b
from tilewright.array import elementwise as e
from tilewright.array.convert import DEFAULT_FLOAT, ArrayLike, asarray
from tilewright.array.creation import tri
from tilewright.array.linalg import matmul
from tilewright.array.manipulate import repeat, swapaxes, take
from tilewright.array.tensor import Tensor
from tilewright.dtypes import as_dtype, bool_
from tilewright.errors import DTypeError, ShapeError
from tilewright.nn.activations import softmax, widened


def scaled_dot_product_attention(query: ArrayLike, key: ArrayLike, value: ArrayLike,
                                 mask: ArrayLike = None, *, is_causal: bool = False,
                                 scale: float | None = None, enable_gqa: bool = False) -> Tensor:
    """Return softmax(query @ key.T * scale + mask) @ value over the last two axes.

    (.., l, e), (.., s, e), (.., s, v) -> (.., l, v). A bool `mask` keeps what is true, a float one
    is added; `is_causal` keeps keys up to the query's own place. `scale` defaults to 1 / sqrt(e).
    `enable_gqa` lets several query heads (axis -3) share one head of key and value.
    """
    (q, target), (k, _), (v, _) = widened(query), widened(key), widened(value)
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError("scaled_dot_product_attention: cannot attend with query "
                         f"{list(q.shape)}, key {list(k.shape)}, value {list(v.shape)} (widths of "
                         "query and key, and lengths of key and value, must be equal)")
    if enable_gqa:
        if q.ndim < 3 or q.shape[-3] % k.shape[-3] or k.shape[-3] != v.shape[-3]:
            raise ShapeError(f"scaled_dot_product_attention: cannot share {list(k.shape)} heads "
                             f"among {list(q.shape)} (axis -3 must divide)")
        copies = q.shape[-3] // k.shape[-3]
        k, v = repeat(k, copies, axis=-3), repeat(v, copies, axis=-3)
    factor = 1 / sqrt(q.shape[-1]) if scale is None else scale
    scores = matmul(q, swapaxes(k, -1, -2)) * factor
    if is_causal:
        scores = e.select(tri(*scores.shape[-2:], dtype=bool_), scores, -float("inf"))
    if mask is not None:
        allowed = asarray(mask)
        scores = e.select(allowed, scores, -float("inf")) if allowed.dtype.is_bool else \
            scores + allowed.astype(scores.dtype)
    return matmul(softmax(scores, axis=-1), v).astype(target)


def one_hot(x: ArrayLike, num_classes: int, *, dtype: Any = DEFAULT_FLOAT,
            axis: int = -1) -> Tensor:
    """Return 1 at the class x and 0 elsewhere on a new axis of `num_classes`."""
    classes = asarray(x)
    if not classes.dtype.is_integer:
        raise DTypeError(f"one_hot: cannot use {classes.dtype}{list(classes.shape)} as classes "
                         "(needs integers)")
    place = b.normalize_axis("one_hot", axis, classes.ndim + 1)
    places = Tensor(b.iota(num_classes, classes.dtype, place, classes.ndim + 1))
    lifted = classes.reshape(*classes.shape[:place], 1, *classes.shape[place:])
    return (lifted == places).astype(as_dtype(dtype))


def embedding(indices: ArrayLike, weight: ArrayLike) -> Tensor:
    """Return the rows of `weight` (rows, width) at integer `indices`: (.., width)."""
    return take(weight, indices, axis=0)


def dropout(x: ArrayLike, rate: float, *, key: ArrayLike) -> Tensor:
    """Return x with each element set to 0 with probability `rate`, the rest over 1 - rate."""
    if not 0 <= rate <= 1:
        raise ValueError(f"dropout: cannot drop at rate {rate} (needs 0 to 1)")
    tensor = asarray(x)
    keep = random.uniform(key, tensor.shape) >= rate
    return e.select(keep, tensor / (1 - rate) if rate < 1 else 0, 0)
