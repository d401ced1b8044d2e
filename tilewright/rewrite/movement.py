"""Rules for reshape, permute, expand, pad and cast."""

from __future__ import annotations

from tilewright import dtypes
from tilewright.dtypes import DType
from tilewright.graph import Node
from tilewright.rewrite.rule import Rule
from tilewright.rewrite.terms import Build, Leaf, term

_SIGNIFICAND = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def same_shape(node: Node, build: Build) -> Node | None:
    """reshape(x, x's shape) = x, and so for expand."""
    return node.inputs[0] if node.shape == node.inputs[0].shape else None


def composed(node: Node, build: Build) -> Node | None:
    """reshape(reshape(x)) = reshape(x), and so for expand."""
    (x,) = node.inputs
    return build(node.op.name, x.inputs[0], shape=node.shape) if x.op is node.op else None


def permute_identity(node: Node, build: Build) -> Node | None:
    """permute(x, (0, 1, ..)) = x."""
    return node.inputs[0] if node.attrs.axes == tuple(range(node.ndim)) else None


def permute_of_permute(node: Node, build: Build) -> Node | None:
    """permute(permute(x, p), q) = permute(x, p[q])."""
    (x,) = node.inputs
    if x.op.name != "permute":
        return None
    return build("permute", x.inputs[0], axes=tuple(x.attrs.axes[a] for a in node.attrs.axes))


def permute_unit_axes(node: Node, build: Build) -> Node | None:
    """permute(x, p) = reshape(x), where the axes longer than 1 keep their order."""
    (x,) = node.inputs
    long = [a for a in node.attrs.axes if x.shape[a] != 1]
    return build("reshape", x, shape=node.shape) if long == sorted(long) else None


def pad_nothing(node: Node, build: Build) -> Node | None:
    """pad(x, 0, 0) = x, whatever stands between the elements of an axis of 1."""
    return node.inputs[0] if node.shape == node.inputs[0].shape else None


def holds(narrow: DType, wide: DType) -> bool:
    """Tell whether `wide` represents every value of `narrow` exactly."""
    if narrow == wide or narrow.is_bool:
        return True
    if wide.is_bool or (narrow.is_float and not wide.is_float):
        return False
    if narrow.is_float:
        return wide.bits > narrow.bits
    digits = narrow.bits - (narrow.kind == "i")
    if wide.is_float:
        return digits <= _SIGNIFICAND[wide.name]
    return digits <= wide.bits - (wide.kind == "i") and (narrow.kind == "u" or wide.kind == "i")


def cast_same(node: Node, build: Build) -> Node | None:
    """cast(x, x's dtype) = x, and so for bitcast."""
    return node.inputs[0] if node.dtype == node.inputs[0].dtype else None


def cast_of_cast(node: Node, build: Build) -> Node | None:
    """cast(cast(x, d), e) = cast(x, e), where d holds every value of x's dtype."""
    (x,) = node.inputs
    if x.op.name != "cast" or not holds(x.inputs[0].dtype, x.dtype):
        return None
    return build("cast", x.inputs[0], dtype=node.dtype)


def bitcast_of_bitcast(node: Node, build: Build) -> Node | None:
    """bitcast(bitcast(x, d), e) = bitcast(x, e)."""
    (x,) = node.inputs
    return build("bitcast", x.inputs[0], dtype=node.dtype) if x.op.name == "bitcast" else None


_x = Leaf(0, (4, 6))
_row = Leaf(0, (1, 6))
_small = Leaf(0, (3,), dtypes.int8)

MOVEMENT_RULES: tuple[Rule, ...] = (
    Rule("same-shape", ("reshape", "expand"), same_shape, (term("reshape", _x, shape=(4, 6)),)),
    Rule("movement-composed", ("reshape", "expand"), composed,
         (term("reshape", term("reshape", _x, shape=(24,)), shape=(2, 12)),
          term("expand", term("expand", Leaf(0, (1, 1)), shape=(1, 6)), shape=(4, 6)))),
    Rule("permute-identity", ("permute",), permute_identity, (term("permute", _x, axes=(0, 1)),)),
    Rule("permute-of-permute", ("permute",), permute_of_permute,
         (term("permute", term("permute", Leaf(0, (2, 3, 4)), axes=(1, 2, 0)), axes=(1, 0, 2)),)),
    Rule("permute-unit-axes", ("permute",), permute_unit_axes,
         (term("permute", _row, axes=(1, 0)),)),
    Rule("pad-nothing", ("pad",), pad_nothing,
         (term("pad", _row, low=(0, 0), high=(0, 0), interior=(2, 0)),)),
    Rule("cast-same", ("cast", "bitcast"), cast_same, (term("cast", _x, dtype=dtypes.float32),)),
    Rule("cast-of-cast", ("cast",), cast_of_cast,
         (term("cast", term("cast", _small, dtype=dtypes.float16), dtype=dtypes.int32),)),
    Rule("bitcast-of-bitcast", ("bitcast",), bitcast_of_bitcast,
         (term("bitcast", term("bitcast", _small, dtype=dtypes.uint8), dtype=dtypes.int8),)),
)
