"""Convolutions over one to three axes, and their transposes; PyTorch's layouts and arguments."""

from __future__ import annotations

from typing import Any

from tilewright.array import build as b
from tilewright.array.convert import ArrayLike, unify
from tilewright.array.tensor import Tensor
from tilewright.dtypes import accumulator
from tilewright.errors import ShapeError
from tilewright.graph import Node
from tilewright.nn.windows import paddings, per_axis, window_count, windows


def _batched(name: str, x: Node, weight: Node, rank: int) -> tuple[Node, bool]:
    """Return x as (batch, channels, spatial..) and whether the batch axis was added."""
    if weight.ndim != rank + 2 or x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"{name}: cannot apply weight {b.describe(weight)} to {b.describe(x)} "
                         f"(needs {rank + 2} axes each; the batch axis of x may be left out)")
    return (b.reshape(x, (1, *x.shape)), True) if x.ndim == rank + 1 else (x, False)


def _with_bias(name: str, result: Tensor, bias: ArrayLike, rank: int) -> Tensor:
    if bias is None:
        return result
    value, node = unify(name, bias, result)
    if value.shape != (node.shape[1],):
        raise ShapeError(f"{name}: cannot add bias {b.describe(value)} to {b.describe(node)} "
                         f"(needs shape [{node.shape[1]}])")
    return Tensor(node) + Tensor(b.reshape(value, (value.size, *(1,) * rank)))


def _correlate(x: Node, weight: Node, counts: list[int], stride: tuple[int, ...],
               dilation: tuple[int, ...], groups: int) -> Node:
    """(B, C, n..), (O, C/G, k..) -> (B, O, p..), already padded; sums C/G and k.. last."""
    batch, channels = x.shape[:2]
    outputs, inner, *kernel = weight.shape
    rank = len(kernel)
    x = b.reshape(x, (batch, groups, channels // groups, *x.shape[2:]))
    view = windows(x, 3, counts, kernel, stride, dilation)  # B G C p.. k..
    places = range(3, 3 + rank)
    view = b.permute(view, [0, 1, *places, 2, *range(3 + rank, 3 + 2 * rank)])
    view = b.reshape(view, (*view.shape[:2], 1, *view.shape[2:]))
    weight = b.reshape(weight, (1, groups, outputs // groups, *(1,) * rank, inner, *kernel))
    shape = b.broadcast_shape("conv", [view.shape, weight.shape])
    product = b.build("multiply", b.expand(view, shape), b.expand(weight, shape))
    axes = tuple(range(3 + rank, len(shape)))
    total = b.build("reduce", product, kind="sum", axes=axes)
    return b.reshape(total, (batch, outputs, *counts))


def _conv(rank: int, x: ArrayLike, weight: ArrayLike, bias: ArrayLike, stride: Any, padding: Any,
          dilation: Any, groups: int) -> Tensor:
    name = f"conv{rank}d"
    node, kernel_node = unify(name, x, weight)
    dtype = node.dtype
    node, added = _batched(name, node, kernel_node, rank)
    outputs, inner, *kernel = kernel_node.shape
    if groups < 1 or node.shape[1] != inner * groups or outputs % groups:
        raise ShapeError(f"{name}: cannot apply weight {b.describe(kernel_node)} to "
                         f"{b.describe(node)} in {groups} groups (needs {inner} * groups input "
                         "channels, and outputs that divide by groups)")
    strides = per_axis(name, "stride", stride, rank)
    dilations = per_axis(name, "dilation", dilation, rank)
    pairs = paddings(name, padding, kernel, strides, dilations)
    node = b.pad(node, [0, 0, *(p for p, _ in pairs)], [0, 0, *(q for _, q in pairs)])
    counts = [window_count(n, k, s, d)
              for n, k, s, d in zip(node.shape[2:], kernel, strides, dilations)]
    if any(c < 1 for c in counts):
        raise ShapeError(f"{name}: cannot slide a {kernel} window (dilation {dilations}) over "
                         f"{list(node.shape[2:])} elements, padding included (it does not fit)")
    wide = accumulator(dtype)
    total = _correlate(b.cast(node, wide), b.cast(kernel_node, wide), counts, strides, dilations,
                       groups)
    result = _with_bias(name, Tensor(b.cast(total, dtype)), bias, rank)
    return result[0] if added else result


def conv1d(x: ArrayLike, weight: ArrayLike, bias: ArrayLike = None, *, stride: Any = 1,
           padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """Correlate: (batch, channels, n), (outputs, channels/groups, k) -> (batch, outputs, p).

    See `conv2d`.
    """
    return _conv(1, x, weight, bias, stride, padding, dilation, groups)


def conv2d(x: ArrayLike, weight: ArrayLike, bias: ArrayLike = None, *, stride: Any = 1,
           padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """Slide (batch, channels, h, w), (outputs, channels/groups, kh, kw) -> (batch, outputs, ..).

    The batch axis may be left out. `padding` is "same", "valid", an integer, or one integer or
    (before, after) pair per axis; `stride` and `dilation` are integers or one per axis; `bias` has
    one value per output. Raises ShapeError where sizes do not fit.
    """
    return _conv(2, x, weight, bias, stride, padding, dilation, groups)


def conv3d(x: ArrayLike, weight: ArrayLike, bias: ArrayLike = None, *, stride: Any = 1,
           padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """Correlate over three axes; see `conv2d`."""
    return _conv(3, x, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(rank: int, x: ArrayLike, weight: ArrayLike, bias: ArrayLike, stride: Any,
                    padding: Any, output_padding: Any, groups: int, dilation: Any) -> Tensor:
    """A correlation of x, spread by `stride`, with the flipped and transposed weight."""
    name = f"conv_transpose{rank}d"
    node, kernel_node = unify(name, x, weight)
    dtype = node.dtype
    node, added = _batched(name, node, kernel_node, rank)
    inputs, inner, *kernel = kernel_node.shape
    if groups < 1 or node.shape[1] != inputs or inputs % groups:
        raise ShapeError(f"{name}: cannot apply weight {b.describe(kernel_node)} to "
                         f"{b.describe(node)} in {groups} groups (needs {inputs} input channels "
                         "that divide by groups)")
    strides = per_axis(name, "stride", stride, rank)
    dilations = per_axis(name, "dilation", dilation, rank)
    pads = per_axis(name, "padding", padding, rank, 0)
    extra = per_axis(name, "output_padding", output_padding, rank, 0)
    if any(o >= max(s, d) for o, s, d in zip(extra, strides, dilations)):
        raise ShapeError(f"{name}: cannot add output padding {extra} (must be smaller than stride "
                         f"{strides} or dilation {dilations})")
    low = [d * (k - 1) - p for k, d, p in zip(kernel, dilations, pads)]
    high = [a + o for a, o in zip(low, extra)]
    counts = [(n - 1) * s + 1 + a + h - d * (k - 1) for n, s, a, h, d, k in zip(
        node.shape[2:], strides, low, high, dilations, kernel)]
    if any(c < 1 for c in counts):
        raise ShapeError(f"{name}: cannot make outputs of size {counts} from {b.describe(node)} "
                         f"(padding {pads} is too large)")
    node = b.pad(node, [0, 0, *low], [0, 0, *high], [0, 0, *(s - 1 for s in strides)])
    turned = b.flip(kernel_node, range(2, 2 + rank))
    turned = b.reshape(turned, (groups, inputs // groups, inner, *kernel))
    turned = b.permute(turned, [0, 2, 1, *range(3, 3 + rank)])
    turned = b.reshape(turned, (groups * inner, inputs // groups, *kernel))
    wide = accumulator(dtype)
    total = _correlate(b.cast(node, wide), b.cast(turned, wide), counts, (1,) * rank, dilations,
                       groups)
    result = _with_bias(name, Tensor(b.cast(total, dtype)), bias, rank)
    return result[0] if added else result


def conv_transpose1d(x: ArrayLike, weight: ArrayLike, bias: ArrayLike = None, *, stride: Any = 1,
                     padding: Any = 0, output_padding: Any = 0, groups: int = 1,
                     dilation: Any = 1) -> Tensor:
    """Transpose of `conv1d`; see `conv_transpose2d`."""
    return _conv_transpose(1, x, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(x: ArrayLike, weight: ArrayLike, bias: ArrayLike = None, *, stride: Any = 1,
                     padding: Any = 0, output_padding: Any = 0, groups: int = 1,
                     dilation: Any = 1) -> Tensor:
    """The transpose (gradient) of `conv2d`: weight is (channels, outputs/groups, kh, kw).

    An axis of n becomes (n-1)*stride - 2*padding + dilation*(k-1) + output_padding + 1.
    """
    return _conv_transpose(2, x, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(x: ArrayLike, weight: ArrayLike, bias: ArrayLike = None, *, stride: Any = 1,
                     padding: Any = 0, output_padding: Any = 0, groups: int = 1,
                     dilation: Any = 1) -> Tensor:
    """Transpose of `conv3d`; see `conv_transpose2d`."""
    return _conv_transpose(3, x, weight, bias, stride, padding, output_padding, groups, dilation)
