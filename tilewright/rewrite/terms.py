"""Formulas over nodes, as values: the notation of rewrite rules and of gradient equations.

    Term := Variable(name) | Literal(value) | Leaf(index, shape, dtype)
          | Apply(op, terms, attributes)

Terms are written with Python's operators, ``x * 1``. `match` reads one as a pattern, `make` builds
the nodes that it stands for. A literal takes its shape and dtype from where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright import dtypes
from tilewright.dtypes import DType
from tilewright.graph import Node, parameter
from tilewright.rewrite.uniform import full, uniform_constant

Build = Callable[..., Node]


class Term:
    """Base of all terms; carries the operators."""

    __slots__ = ()

    def __add__(self, other): return term("add", self, other)
    def __radd__(self, other): return term("add", other, self)
    def __sub__(self, other): return term("subtract", self, other)
    def __rsub__(self, other): return term("subtract", other, self)
    def __mul__(self, other): return term("multiply", self, other)
    def __rmul__(self, other): return term("multiply", other, self)
    def __truediv__(self, other): return term("divide", self, other)
    def __rtruediv__(self, other): return term("divide", other, self)
    def __floordiv__(self, other): return term("floor_divide", self, other)
    def __mod__(self, other): return term("remainder", self, other)
    def __pow__(self, other): return term("power", self, other)
    def __and__(self, other): return term("bitwise_and", self, other)
    def __or__(self, other): return term("bitwise_or", self, other)
    def __xor__(self, other): return term("bitwise_xor", self, other)
    def __lshift__(self, other): return term("bitwise_left_shift", self, other)
    def __rshift__(self, other): return term("bitwise_right_shift", self, other)
    def __invert__(self): return term("bitwise_invert", self)
    def __neg__(self): return term("negative", self)
    def __abs__(self): return term("abs", self)


class Variable(Term):
    """A name that stands for any node."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name


class Literal(Term):
    """A number, everywhere; its dtype is that of its surroundings unless given."""

    __slots__ = ("bits", "dtype", "value")

    def __init__(self, value: object, dtype: DType | None = None):
        self.value, self.dtype = value, dtype
        with np.errstate(all="ignore"):
            self.bits = {d.name: np.asarray(value).astype(d.numpy).tobytes() for d in dtypes.ALL}

    def __repr__(self) -> str:
        return repr(self.value)


class Leaf(Term):
    """An input of an example: parameter `index` of the given shape and dtype."""

    __slots__ = ("dtype", "index", "shape")

    def __init__(self, index: int, shape: tuple[int, ...], dtype: DType = dtypes.float32):
        self.index, self.shape, self.dtype = index, shape, dtype

    def __repr__(self) -> str:
        return f"{'xyzw'[self.index]}:{self.dtype}{list(self.shape)}"


class Apply(Term):
    """An operation applied to terms."""

    __slots__ = ("args", "attributes", "likely_to_fail_first", "op")

    def __init__(self, op: str, args: tuple[Term, ...], attributes: Mapping[str, object]):
        self.op, self.args, self.attributes = op, args, dict(attributes)
        order = sorted(enumerate(args), key=lambda item: isinstance(item[1], Variable))
        self.likely_to_fail_first = tuple(order)

    def __repr__(self) -> str:
        extra = [f"{k}={v!r}" for k, v in self.attributes.items()]
        return f"{self.op}({', '.join([*map(repr, self.args), *extra])})"


def term(op: str, *args: object, **attributes: object) -> Term:
    """Return the term `op` of `args`; a plain number becomes a literal."""
    return Apply(op, tuple(a if isinstance(a, Term) else Literal(a) for a in args), attributes)


def where(condition: Term, yes: object, no: object) -> Term:
    """Return ``where(condition, yes, no)`` as a term."""
    return term("where", condition, yes, no)


def match(pattern: Term, node: Node, bound: dict[str, Node]) -> dict[str, Node] | None:
    """Return `bound` extended so that `pattern` equals `node`, or None.

    Both orders are tried where the operation is commutative. Nodes are equal when identical.
    """
    if isinstance(pattern, Variable):
        known = bound.get(pattern.name)
        if known is None:
            return {**bound, pattern.name: node}
        return bound if known is node else None
    if isinstance(pattern, Literal):
        found = uniform_constant(node)
        same = found is not None and found.attrs.value == pattern.bits[node.dtype.name]
        return bound if same else None
    if not isinstance(pattern, Apply) or node.op.name != pattern.op:
        return None
    orders = [node.inputs, node.inputs[::-1]] if node.op.commutative else [node.inputs]
    for inputs in orders:
        result: Any = bound
        for position, part in pattern.likely_to_fail_first:
            result = match(part, inputs[position], result)
            if result is None:
                break
        else:
            return result
    return None


def make(formula: Term, bound: Mapping[str, Node], build: Build, shape: tuple[int, ...],
         dtype: DType) -> Node:
    """Return the node that `formula` stands for.

    Variables are read from `bound`, operations are made by `build`, literals take `shape` and,
    where they name none, `dtype`.
    """
    if isinstance(formula, Variable):
        return bound[formula.name]
    if isinstance(formula, Literal):
        return full(formula.value, shape, formula.dtype or dtype)
    if isinstance(formula, Leaf):
        return parameter(formula.index, formula.shape, formula.dtype)
    assert isinstance(formula, Apply)
    parts = [make(part, bound, build, shape, dtype) for part in formula.args]
    return build(formula.op, *parts, **formula.attributes)
