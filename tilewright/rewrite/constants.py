"""Rules for uniform and empty nodes: their values are known without running anything."""

from __future__ import annotations

import numpy as np

from tilewright import dtypes
from tilewright.graph import OPS, Node, constant
from tilewright.graph.node import constant_value
from tilewright.rewrite.rule import Rule
from tilewright.rewrite.terms import Build, Leaf, Literal, term
from tilewright.rewrite.uniform import full, is_zero, spread, uniform_constant

ELEMENTWISE = tuple(name for name, op in OPS.items() if op.kind == "elementwise")
MOVEMENT = tuple(name for name, op in OPS.items() if op.kind == "movement")
_FILLS_WITH_ZERO = ("pad", "unshear")
_two = Literal(2.0, dtypes.float32)
_PURE = tuple(name for name, op in OPS.items() if op.kind not in ("source", "call"))


def empty(node: Node, build: Build) -> Node | None:
    """A node without elements = full(0, shape): it needs none of its inputs."""
    if 0 in node.shape and uniform_constant(node) is None:
        return full(0, node.shape, node.dtype)
    return None


def elementwise_of_uniforms(node: Node, build: Build) -> Node | None:
    """f(full(a), full(b), ..) = full(f(a, b, ..)), by the operation's NumPy meaning."""
    values = []
    for child in node.inputs:
        found = uniform_constant(child)
        if found is None:
            return None
        values.append(np.asarray(constant_value(found)))
    return spread(constant(node.op.numpy(values, node.attrs), node.dtype), node.shape)


def movement_of_uniform(node: Node, build: Build) -> Node | None:
    """move(full(a)) = full(a) in the new shape; where the move fills in zeros, for a = 0 only."""
    (x,) = node.inputs
    found = uniform_constant(x)
    if found is None or (node.op.name in _FILLS_WITH_ZERO and not is_zero(x) and x.size):
        return None
    result = spread(found if x.size else constant(0, node.dtype), node.shape)
    return None if result is node else result


def pad_of_empty(node: Node, build: Build) -> Node | None:
    """pad(a node without elements) = full(0)."""
    return None if node.inputs[0].size else full(0, node.shape, node.dtype)


def gather_of_uniform(node: Node, build: Build) -> Node | None:
    """gather(full(a), ..) = full(a)."""
    found = uniform_constant(node.inputs[0])
    return spread(found, node.shape) if found is not None and node.inputs[0].size else None


CONSTANT_RULES: tuple[Rule, ...] = (
    Rule("empty", _PURE, empty, (term("exp", Leaf(0, (2, 0))),)),
    Rule("elementwise-of-uniforms", ELEMENTWISE, elementwise_of_uniforms,
         (term("add", _two, _two), term("cast", _two, dtype=dtypes.int8))),
    Rule("pad-of-empty", ("pad", "unshear"), pad_of_empty,
         (term("pad", Leaf(0, (2, 0)), low=(0, 1), high=(0, 0), interior=(0, 0)),)),
    Rule("movement-of-uniform", MOVEMENT, movement_of_uniform,
         (term("permute", term("expand", term("reshape", _two, shape=(1, 1)), shape=(2, 3)),
               axes=(1, 0)),
          term("reshape", term("expand", term("reshape", _two, shape=(1, 1)), shape=(2, 3)),
               shape=(6,)))),
    Rule("gather-of-uniform", ("gather",), gather_of_uniform,
         (term("gather", term("expand", term("reshape", _two, shape=(1,)), shape=(3,)),
               Leaf(0, (4,), dtypes.int64)),)),
)
