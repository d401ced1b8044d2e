"""The operations of the graph, one row each.

A row gives the name, number of inputs, typed attributes, shape and dtype rule, NumPy meaning and
algebraic flags. The gradient of each row is in `transforms.gradients`, its scalar code in
`lower.scalar`. Elementwise operations take inputs of one shape; binary arithmetic takes inputs of
one dtype: the frontend inserts `expand` and `cast`.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tilewright.graph import infer, meaning


@dataclass(frozen=True)
class OpDef:
    """One row of the table.

    name        the operation
    kind        source, elementwise, movement, concat, gather, scatter, reduce, cumulate or call
    arity       number of inputs; -1 for any number
    attributes  named tuple class of its attributes
    infer       (inputs, attrs) -> (shape, dtype); raises ShapeError or DTypeError
    numpy       (arrays, attrs) -> array: the meaning, runnable
    commutative, costly (a transcendental: many instructions per element)
    """

    name: str
    kind: str
    arity: int
    attributes: Callable
    infer: Callable
    numpy: Callable
    commutative: bool = False
    costly: bool = False
    formula: str = field(default="", compare=False)

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return self is other


def _attributes(name: str, names: Sequence[str]) -> Callable:
    return namedtuple(name.title().replace("_", ""), names)  # noqa: PYI024


def _row(name: str, kind: str, arity: int, infer_rule: Callable, numpy_rule: Callable,
         attributes: Sequence[str] = (), **flags) -> OpDef:
    return OpDef(name, kind, arity, _attributes(name, attributes), infer_rule, numpy_rule, **flags)


def _elementwise(name: str, arity: int, rule: Callable, **flags) -> OpDef:
    return _row(name, "elementwise", arity, rule, getattr(meaning, name), **flags)


def _arithmetic() -> list[OpDef]:
    return [
        # arithmetic: both inputs and the result of one dtype
        *[_elementwise(n, 2, infer.arithmetic, commutative=c) for n, c in [
            ("add", True), ("subtract", False), ("multiply", True), ("minimum", True),
            ("maximum", True), ("floor_divide", False), ("remainder", False)]],
        _elementwise("divide", 2, infer.floating, commutative=False),
        *[_elementwise(n, 2, infer.arithmetic, costly=True) for n in ("power",)],
        *[_elementwise(n, 2, infer.floating, costly=True) for n in ("atan2",)],
        # bits: integers and bool; shifts: integers
        *[_elementwise(n, 2, infer.bitwise, commutative=True)
          for n in ("bitwise_and", "bitwise_or", "bitwise_xor")],
        *[_elementwise(n, 2, infer.shift) for n in ("bitwise_left_shift", "bitwise_right_shift")],
        # comparisons: result bool
        *[_elementwise(n, 2, infer.comparison, commutative=c) for n, c in [
            ("equal", True), ("not_equal", True), ("less", False), ("less_equal", False)]],
        # one input
        *[_elementwise(n, 1, infer.numeric) for n in ("negative", "abs", "sign")],
        _elementwise("bitwise_invert", 1, infer.bitwise),
        *[_elementwise(n, 1, infer.floating) for n in ("sqrt", "floor", "ceil", "trunc", "round")],
        *[_elementwise(n, 1, infer.predicate) for n in ("isnan", "isinf", "signbit")],
        *[_elementwise(n, 1, infer.floating, costly=True) for n in (
            "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "asin", "acos",
            "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf")],
    ]


def _table() -> dict[str, OpDef]:
    rows = [
        # sources
        _row("buffer", "source", 0, infer.given, meaning.buffer, ["storage"]),
        _row("parameter", "source", 0, infer.given, meaning.parameter, ["index"]),
        _row("constant", "source", 0, infer.given, meaning.constant, ["value"]),
        _row("iota", "source", 0, infer.iota, meaning.iota, ["size", "dtype"]),
        *_arithmetic(),
        # selection and conversion
        _elementwise("where", 3, infer.where),
        _row("cast", "elementwise", 1, infer.cast, meaning.cast, ["dtype"]),
        _row("bitcast", "elementwise", 1, infer.bitcast, meaning.bitcast, ["dtype"]),
        # movement: views by index maps
        _row("reshape", "movement", 1, infer.reshape, meaning.reshape, ["shape"]),
        _row("permute", "movement", 1, infer.permute, meaning.permute, ["axes"]),
        _row("expand", "movement", 1, infer.expand, meaning.expand, ["shape"]),
        _row("slice", "movement", 1, infer.slice_, meaning.slice_, ["starts", "stops", "steps"]),
        _row("pad", "movement", 1, infer.pad, meaning.pad, ["low", "high", "interior"]),
        _row("shear", "movement", 1, infer.shear, meaning.shear,
             ["axis", "size", "stride", "dilation"]),
        _row("unshear", "movement", 1, infer.unshear, meaning.unshear,
             ["axis", "size", "stride", "dilation"]),
        # assembly
        _row("concat", "concat", -1, infer.concat, meaning.concat, ["axis"]),
        _row("gather", "gather", -1, infer.gather, meaning.gather),
        _row("scatter", "scatter", -1, infer.scatter, meaning.scatter, ["mode"]),
        # reductions
        _row("reduce", "reduce", 1, infer.reduce, meaning.reduce, ["kind", "axes"]),
        _row("cumulate", "cumulate", 1, infer.cumulate, meaning.cumulate, ["kind", "axis"]),
        # opaque host functions
        _row("call", "call", -1, infer.call, meaning.call, ["function", "shape", "dtype"]),
    ]
    return {row.name: row for row in rows}


OPS: dict[str, OpDef] = _table()
