"""Gradients of the operations that move, join and reduce: (node, g) -> a cotangent per input.

Movement is linear, so each gradient is the transposed movement; the docstrings name it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from tilewright.dtypes import accumulator, int64
from tilewright.errors import GradientError
from tilewright.graph import Node
from tilewright.graph.infer import describe
from tilewright.rewrite import build, full, full_like
from tilewright.transforms import expressions as e

Cotangents = Sequence[Node | None]


def refusal(node: Node, reason: str) -> GradientError:
    """Return the error for an operation whose gradient cannot be taken."""
    return GradientError(f"{node.op.name}: cannot differentiate {describe(node.inputs)} -> "
                         f"{describe([node])} ({reason})")


def cast(node: Node, g: Node) -> Cotangents:
    """Cast back, between floats."""
    (x,) = node.inputs
    return [build("cast", g, dtype=x.dtype) if x.dtype.is_float else None]


def reshape(node: Node, g: Node) -> Cotangents:
    """Reshape back."""
    return [e.reshape(g, node.inputs[0].shape)]


def permute(node: Node, g: Node) -> Cotangents:
    """Permute back."""
    return [e.permute(g, e.inverse(node.attrs.axes))]


def expand(node: Node, g: Node) -> Cotangents:
    """Sum over the axes that grew."""
    (x,) = node.inputs
    grown = tuple(d for d, (n, m) in enumerate(zip(x.shape, node.shape)) if n != m)
    return [e.reshape(build("reduce", g, kind="sum", axes=grown), x.shape)]


def slice_(node: Node, g: Node) -> Cotangents:
    """Pad with zeros where nothing was read; reverse first where the step is negative."""
    (x,) = node.inputs
    if not node.size:
        return [e.zeros_like(x)]
    low, high, interior = [], [], []
    for axis, (n, *span) in enumerate(zip(x.shape, *node.attrs)):
        r = range(*span)
        if r.step < 0:
            g, r = e.flip(g, axis), r[::-1]
        low.append(r[0])
        high.append(n - 1 - r[-1])
        interior.append(r.step - 1 if len(r) > 1 else 0)
    return [build("pad", g, low=tuple(low), high=tuple(high), interior=tuple(interior))]


def pad(node: Node, g: Node) -> Cotangents:
    """Read back the elements that are not padding."""
    (x,) = node.inputs
    stops = tuple(lo + n + max(n - 1, 0) * mid
                  for n, lo, mid in zip(x.shape, node.attrs.low, node.attrs.interior))
    return [build("slice", g, starts=node.attrs.low, stops=stops,
                  steps=tuple(mid + 1 for mid in node.attrs.interior))]


def shear(node: Node, g: Node) -> Cotangents:
    """Unshear: add each window where it was read."""
    axis, _, stride, dilation = node.attrs
    return [build("unshear", g, axis=axis, size=node.inputs[0].shape[axis], stride=stride,
                  dilation=dilation)]


def unshear(node: Node, g: Node) -> Cotangents:
    """Shear; what unshear had dropped past the end reads zeros."""
    axis, size, stride, dilation = node.attrs
    windows, taps = node.inputs[0].shape[axis:axis + 2]
    missing = (windows - 1) * stride + (taps - 1) * dilation + 1 - size
    if missing > 0 and windows and taps:
        g = e.concat([g, full(0, e.along(g, axis, missing), g.dtype)], axis)
    return [build("shear", g, axis=axis, size=windows, stride=stride, dilation=dilation)]


def concat(node: Node, g: Node) -> Cotangents:
    """Slice each piece's part."""
    axis = node.attrs.axis
    ends = list(accumulate(i.shape[axis] for i in node.inputs))
    return [e.cut(g, axis, end - i.shape[axis], end) for i, end in zip(node.inputs, ends)]


def gather(node: Node, g: Node) -> Cotangents:
    """Scatter with addition, at the indices limited to the axis as gather limits them."""
    x, *indices = node.inputs
    where_read = [e.clamped(i, n) for i, n in zip(indices, x.shape)]
    gx = build("scatter", e.zeros_like(x), g, *where_read, mode="add")
    return [gx, *[None] * len(indices)]


def scatter(node: Node, g: Node) -> Cotangents:
    """set: x gets 0 where written; an update gets its element unless overwritten or outside.

    add: x gets g; an update gets its element unless outside.
    """
    x, updates, *indices = node.inputs
    mode, shape = node.attrs.mode, indices[0].shape
    if not x.size:  # nothing can be written
        return [g, e.zeros_like(updates), *[None] * len(indices)]
    if mode == "set":
        # the number of the update that each element holds in the end, -1 for none
        number = e.reshape(build("iota", size=indices[0].size, dtype=int64), shape)
        last = build("scatter", full(-1, x.shape[:len(indices)], int64), number, *indices,
                     mode="set")
        kept = build("equal", build("gather", last, *indices), number)
        gx = build("scatter", g, e.zeros_like(updates), *indices, mode="set")
    elif mode == "add":
        kept, gx = e.inside(indices, x.shape), g
    else:
        raise refusal(node, f"unwritten: the gradient of scatter with mode {mode!r}")
    read = build("gather", g, *indices)
    gu = e.select(e.repeat_last(kept, updates.shape), read, e.zeros_like(updates))
    return [gx, gu, *[None] * len(indices)]


def reduce(node: Node, g: Node) -> Cotangents:
    """sum: g everywhere; prod: g times the product of the others; max, min: shared by the ties."""
    (x,) = node.inputs
    kind, axes = node.attrs
    if kind == "prod":
        return [_reduce_product(x, g, axes)]
    if kind == "sum":
        return [e.spread_over(g, x.shape, axes)]
    tied = build("equal", x, e.spread_over(node, x.shape, axes))
    wide = accumulator(x.dtype)  # a count may pass the largest float16
    count = build("reduce", build("cast", tied, dtype=wide), kind="sum", axes=axes)
    share = build("cast", build("divide", build("cast", g, dtype=wide), count), dtype=x.dtype)
    return [e.select(tied, e.spread_over(share, x.shape, axes), e.zeros_like(x))]


def _product_before(x: Node, axis: int) -> Node:
    """Return the product of all elements before each one along an axis: 1, x0, x0*x1, .."""
    if not x.shape[axis]:
        return x
    first = full(1, e.along(x, axis, 1), x.dtype)
    return e.cumulate(e.concat([first, e.cut(x, axis, 0, x.shape[axis] - 1)], axis), "prod", axis)


def _reduce_product(x: Node, g: Node, axes: tuple[int, ...]) -> Node:
    """g times the product of all others: of those before and of those after; no division."""
    kept = tuple(d for d in range(x.ndim) if d not in axes)
    order = (*kept, *axes)
    turned = e.permute(x, order)
    rest, count = tuple(x.shape[d] for d in kept), 1
    for d in axes:
        count *= x.shape[d]
    rows, last = e.reshape(turned, (*rest, count)), len(rest)
    after = e.flip(_product_before(e.flip(rows, last), last), last)
    others = e.multiply(_product_before(rows, last), after)
    result = e.multiply(e.repeat_last(g, rows.shape), others)
    return e.permute(e.reshape(result, turned.shape), e.inverse(order))


def cumulate(node: Node, g: Node) -> Cotangents:
    """sum: the running sum from the end; prod and max, min: see the functions below."""
    (x,) = node.inputs
    kind, axis = node.attrs
    if not node.size:
        return [e.zeros_like(x)]
    if kind == "sum":
        return [e.flip(e.cumulate(e.flip(g, axis), "sum", axis), axis)]
    if kind == "prod":
        return [_running_product(x, g, axis)]
    return [_running_extreme(node, g, axis)]


def _running_product(x: Node, g: Node, axis: int) -> Node:
    """(product before i) * r[i], with r[i] = g[i] + x[i+1] * r[i+1]; no division.

    The recurrence is solved by doubling: after t rounds r covers 2**t elements, p their product.
    """
    n = x.shape[axis]
    r, distance = g, 1
    p = e.concat([e.cut(x, axis, 1, n), full(1, e.along(x, axis, 1), x.dtype)], axis)
    while distance < n:
        keep = n - distance
        p_head, r_tail = e.cut(p, axis, 0, keep), e.cut(r, axis, distance, n)
        r_head = e.add(e.cut(r, axis, 0, keep), e.multiply(p_head, r_tail))
        r = e.concat([r_head, e.cut(r, axis, keep, n)], axis)
        p_next = e.multiply(p_head, e.cut(p, axis, distance, n))
        p = e.concat([p_next, e.cut(p, axis, keep, n)], axis)
        distance *= 2
    return e.multiply(_product_before(x, axis), r)


def _running_extreme(node: Node, g: Node, axis: int) -> Node:
    """Add each g[j] at the latest i <= j where x[i] is the running extreme."""
    (x,) = node.inputs
    line = e.positions(x.shape, axis)
    found = e.select(build("equal", x, node), line, full_like(line, 0))
    order = (axis, *(d for d in range(x.ndim) if d != axis))
    columns = (x.shape[axis], x.size // x.shape[axis])

    def turn(z: Node) -> Node:
        return e.reshape(e.permute(z, order), columns)

    result = build("scatter", full(0, columns, x.dtype), turn(g),
                   turn(e.cumulate(found, "max", axis)), e.positions(columns, 1), mode="add")
    turned = tuple(x.shape[d] for d in order)
    return e.permute(e.reshape(result, turned), e.inverse(order))


def call(node: Node, g: Node) -> Cotangents:
    """What the function's own ``vjp(node, g)`` attribute returns: a cotangent or None per input."""
    rule = getattr(node.attrs.function, "vjp", None)
    if rule is None:
        name = getattr(node.attrs.function, "__name__", type(node.attrs.function).__name__)
        raise refusal(node, f"unwritten: the host function {name!r} has no gradient; "
                            "give it a vjp attribute")
    return rule(node, g)
