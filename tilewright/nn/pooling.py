"""Pooling over the last one to three axes; PyTorch's meaning of every option."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.array import build as b
from tilewright.array.convert import ArrayLike, to_node
from tilewright.array.dtype_functions import iinfo
from tilewright.array.tensor import Tensor, from_numpy
from tilewright.dtypes import accumulator
from tilewright.errors import DTypeError, ShapeError
from tilewright.graph import Node
from tilewright.nn.windows import per_axis, windows


class _Pool:
    """Sizes of one pooling: windows, and how far the input must be padded."""

    def __init__(self, name: str, node: Node, rank: int, kernel: Any, stride: Any, padding: Any,
                 dilation: Any, ceil_mode: bool):
        if node.ndim < rank + 1:
            raise ShapeError(f"{name}: cannot pool {b.describe(node)} (needs at least {rank + 1} "
                             "axes)")
        self.first = node.ndim - rank
        self.sizes = node.shape[self.first:]
        self.kernel = per_axis(name, "kernel_size", kernel, rank)
        self.stride = per_axis(name, "stride", kernel if stride is None else stride, rank)
        self.padding = per_axis(name, "padding", padding, rank, 0)
        self.dilation = per_axis(name, "dilation", dilation, rank)
        if any(2 * p > k for p, k in zip(self.padding, self.kernel)):
            raise ShapeError(f"{name}: cannot pad by {self.padding} (at most half of the window "
                             f"{self.kernel})")
        self.counts, self.high = [], []
        for n, k, s, p, d in zip(self.sizes, self.kernel, self.stride, self.padding, self.dilation):
            room = n + 2 * p - d * (k - 1) - 1
            count = (-(-room // s) if ceil_mode else room // s) + 1
            if ceil_mode and (count - 1) * s >= n + p:
                count -= 1  # a window must begin inside the input or its left padding
            if count < 1 or room < 0 and not ceil_mode:
                raise ShapeError(f"{name}: cannot pool {b.describe(node)} by windows of "
                                 f"{self.kernel} (they do not fit)")
            self.counts.append(count)
            self.high.append(max(0, (count - 1) * s + d * (k - 1) + 1 - n - p))

    def view(self, node: Node, fill: object) -> Node:
        """Return (lead.., windows.., kernel..)."""
        zeros = [0] * self.first
        padded = b.pad(node, [*zeros, *self.padding], [*zeros, *self.high], value=fill)
        return windows(padded, self.first, self.counts, self.kernel, self.stride, self.dilation)

    def divisors(self, include_pad: bool) -> list[np.ndarray]:
        """Return, per axis, how many elements each window averages over."""
        result = []
        for n, k, s, p, count in zip(self.sizes, self.kernel, self.stride, self.padding,
                                     self.counts):
            start = np.arange(count) * s - p
            stop = np.minimum(start + k, n + p)
            if not include_pad:
                start, stop = np.maximum(start, 0), np.minimum(stop, n)
            result.append(stop - start)
        return result


def _max_pool(rank: int, x: ArrayLike, kernel: Any, stride: Any, padding: Any, dilation: Any,
              ceil_mode: bool) -> Tensor:
    node = to_node(x)
    pool = _Pool(f"max_pool{rank}d", node, rank, kernel, stride, padding, dilation, ceil_mode)
    if node.dtype.is_bool:
        raise DTypeError(f"max_pool{rank}d: cannot pool {b.describe(node)} (needs numbers)")
    least = -np.inf if node.dtype.is_float else iinfo(node.dtype).min
    axes = tuple(range(node.ndim, node.ndim + rank))
    return Tensor(b.build("reduce", pool.view(node, least), kind="max", axes=axes))


def _avg_pool(rank: int, x: ArrayLike, kernel: Any, stride: Any, padding: Any, ceil_mode: bool,
              count_include_pad: bool) -> Tensor:
    name, node = f"avg_pool{rank}d", to_node(x)
    if not node.dtype.is_float:
        raise DTypeError(f"{name}: cannot average {b.describe(node)} (needs a floating-point "
                         "dtype)")
    pool = _Pool(name, node, rank, kernel, stride, padding, 1, ceil_mode)
    wide = accumulator(node.dtype)
    axes = tuple(range(node.ndim, node.ndim + rank))
    total = Tensor(b.build("reduce", pool.view(b.cast(node, wide), 0), kind="sum", axes=axes))
    factor: Tensor | int = 1
    for place, counts in enumerate(pool.divisors(count_include_pad)):
        if (counts == counts[0]).all():
            factor = factor * int(counts[0])
        else:
            shape = [-1 if d == place else 1 for d in range(rank)]
            factor = factor * from_numpy(
                np.ascontiguousarray(counts.reshape(shape).astype(wide.numpy)), wide)
    return (total / factor).astype(node.dtype)


def max_pool1d(x: ArrayLike, kernel_size: Any, stride: Any = None, padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> Tensor:
    """Return the greatest element of each window of the last axis; see `max_pool2d`."""
    return _max_pool(1, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(x: ArrayLike, kernel_size: Any, stride: Any = None, padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> Tensor:
    """Return the greatest element of each window of the last two axes.

    Options are integers or one per axis; `stride` is the window's size unless given. Padding is
    never the greatest. `ceil_mode` adds a last window that overhangs, if it begins inside.
    """
    return _max_pool(2, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool3d(x: ArrayLike, kernel_size: Any, stride: Any = None, padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> Tensor:
    """Return the greatest element of each window of the last three axes; see `max_pool2d`."""
    return _max_pool(3, x, kernel_size, stride, padding, dilation, ceil_mode)


def avg_pool1d(x: ArrayLike, kernel_size: Any, stride: Any = None, padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True) -> Tensor:
    """Return the mean of each window of the last axis; see `avg_pool2d`."""
    return _avg_pool(1, x, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(x: ArrayLike, kernel_size: Any, stride: Any = None, padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True) -> Tensor:
    """Return the mean of each window of the last two axes.

    Padding counts as zeros, or not at all without `count_include_pad`; the overhang of `ceil_mode`
    never counts.
    """
    return _avg_pool(2, x, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool3d(x: ArrayLike, kernel_size: Any, stride: Any = None, padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True) -> Tensor:
    """Return the mean of each window of the last three axes; see `avg_pool2d`."""
    return _avg_pool(3, x, kernel_size, stride, padding, ceil_mode, count_include_pad)
