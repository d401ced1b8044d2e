"""The tensor graph: interned immutable nodes, and one row per operation."""

from tilewright.graph.node import Node, apply, buffer, constant, parameter, postorder
from tilewright.graph.ops import OPS, OpDef

__all__ = ["OPS", "Node", "OpDef", "apply", "buffer", "constant", "parameter", "postorder"]
