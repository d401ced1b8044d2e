"""Graph nodes.

    Node := op(inputs; attrs) : dtype[shape]

A node is immutable and interned: building the same operation on the same inputs twice gives the
same object, so common subexpressions are shared by construction. The table is weak. Sources are a
`buffer` (a realised array, identified by object), a `parameter` (a hole that a plan fills) and a
`constant` (one scalar, keyed by its bit pattern, so 0.0 and -0.0, or 1 and True, differ).
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from tilewright.dtypes import DType
from tilewright.graph.ops import OPS, OpDef


class Node:
    """One operation applied to inputs; see the module's grammar. Never build it directly."""

    __slots__ = ("__weakref__", "attrs", "dtype", "inputs", "memo", "op", "serial", "shape")

    op: OpDef
    inputs: tuple[Node, ...]
    attrs: Any  # the operation's named tuple
    shape: tuple[int, ...]
    dtype: DType
    memo: dict  # per-node results of passes, keyed by the pass
    serial: int  # creation order; inputs have smaller serials

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    def __repr__(self) -> str:
        return f"<{self.op.name}: {self.dtype}{list(self.shape)}>"


_interned: weakref.WeakValueDictionary[tuple, Node] = weakref.WeakValueDictionary()
_serial = itertools.count()


def _intern(key: tuple, op: OpDef, inputs: tuple[Node, ...], attrs: tuple,
            shape: tuple[int, ...], dtype: DType) -> Node:
    node = _interned.get(key)
    if node is None:
        node = Node()
        node.op, node.inputs, node.attrs = op, inputs, attrs
        node.shape, node.dtype, node.memo, node.serial = shape, dtype, {}, next(_serial)
        _interned[key] = node
    return node


def apply(name: str, *inputs: Node, **attributes: object) -> Node:
    """Return the node `name` applied to `inputs`.

    Attributes are given by name and must be hashable. Shapes and dtypes must already fit: the
    frontend promotes and broadcasts with explicit `cast` and `expand` nodes. Raises ShapeError or
    DTypeError naming the operation where they do not.
    """
    op = OPS[name]
    attrs = op.attributes(**attributes)
    # id() is safe as a key: the interned node keeps its inputs alive
    key = (name, tuple(map(id, inputs)), attrs)
    node = _interned.get(key)
    if node is None:
        shape, dtype = op.infer(inputs, attrs)
        node = _intern(key, op, inputs, attrs, shape, dtype)
    return node


def constant(value: object, dtype: DType) -> Node:
    """Return a scalar constant node (shape ()) of the given dtype."""
    scalar = np.asarray(value).astype(dtype.numpy)
    key = ("constant", dtype.name, scalar.tobytes())
    op = OPS["constant"]
    return _intern(key, op, (), op.attributes(value=scalar.tobytes()), (), dtype)


def buffer(storage: object, shape: tuple[int, ...], dtype: DType) -> Node:
    """Return the leaf that reads a realised, row-major contiguous array.

    `storage` is any object; the runtime knows what it holds. One leaf per storage object.
    """
    op = OPS["buffer"]
    return _intern(("buffer", id(storage)), op, (), op.attributes(storage=storage), shape, dtype)


def parameter(index: int, shape: tuple[int, ...], dtype: DType) -> Node:
    """Return the hole number `index` of a plan."""
    op = OPS["parameter"]
    return _intern(("parameter", index, shape, dtype.name), op, (),
                   op.attributes(index=index), shape, dtype)


def constant_value(node: Node) -> np.generic:
    """Return the NumPy scalar of a constant node."""
    return np.frombuffer(node.attrs.value, dtype=node.dtype.numpy)[0]


def postorder(outputs: Iterable[Node]) -> list[Node]:
    """Return every node that `outputs` need, inputs before users; iterative, each node once."""
    order: list[Node] = []
    seen: set[int] = set()
    stack = [(node, False) for node in reversed(list(outputs))]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((i, False) for i in reversed(node.inputs) if id(i) not in seen)
    return order
