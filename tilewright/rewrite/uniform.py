"""Uniform nodes: one constant everywhere, in one canonical form.

    Uniform := constant | reshape(constant, (1, ..)) | expand(reshape(constant, (1, ..)), shape)
"""

from __future__ import annotations

from tilewright.dtypes import DType
from tilewright.graph import Node, apply, constant


def spread(scalar: Node, shape: tuple[int, ...]) -> Node:
    """Return a scalar node repeated over `shape`."""
    node = scalar if not shape else apply("reshape", scalar, shape=(1,) * len(shape))
    return node if node.shape == shape else apply("expand", node, shape=shape)


def full(value: object, shape: tuple[int, ...], dtype: DType) -> Node:
    """Return a node of `shape` and `dtype` whose every element is `value`."""
    return spread(constant(value, dtype), tuple(shape))


def full_like(node: Node, value: object) -> Node:
    """Return `value` everywhere, in the shape and dtype of `node`."""
    return full(value, node.shape, node.dtype)


def uniform_constant(node: Node) -> Node | None:
    """Return the constant node that `node` repeats, or None."""
    if node.op.name == "expand":
        node = node.inputs[0]
    if node.op.name == "reshape":
        node = node.inputs[0]
    return node if node.op.name == "constant" else None


def is_zero(node: Node) -> bool:
    """Tell whether every bit of every element is known to be zero (so -0.0 is not)."""
    found = uniform_constant(node)
    return found is not None and not any(found.attrs.value)
