"""Reverse-mode differentiation of graphs."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import DTypeError, GradientError, ShapeError
from tilewright.graph import Node
from tilewright.graph.infer import describe
from tilewright.rewrite import build
from tilewright.rewrite.terms import make
from tilewright.rewrite.uniform import is_zero
from tilewright.transforms.accumulate import total
from tilewright.transforms.expressions import zeros_like
from tilewright.transforms.gradients import GRADIENTS, Equations, Nothing
from tilewright.transforms.structural import refusal


def vjp(outputs: Sequence[Node], wrt: Sequence[Node], cotangents: Sequence[Node]) -> list[Node]:
    """Return, for each node of `wrt`, the sum over outputs of cotangent times derivative.

    Each result has the shape and dtype of its node of `wrt`; zeros where no output depends on it. A
    node of `wrt` may be any node, also one that another depends on, and then gets the derivative
    along all paths. Results are ordinary nodes: applying `vjp` to them gives higher orders. Time is
    linear in the nodes between `wrt` and `outputs`; nothing else is visited.

    Raises GradientError where an output or a node of `wrt` is not floating-point, or for an
    operation on the way that has no gradient (named); ShapeError or DTypeError where a cotangent
    does not fit its output.
    """
    _check(outputs, wrt, cotangents)
    wanted = {id(node) for node in wrt}
    order = _between(outputs, wrt)
    pending: dict[int, list[Node]] = {id(node): [] for node in order}
    for node, g in zip(outputs, cotangents):
        if id(node) in pending:
            pending[id(node)].append(g)
    found: dict[int, Node] = {}
    for node in reversed(order):
        parts = pending.pop(id(node))
        if not parts:
            continue
        g = total(parts)
        if id(node) in wanted:
            found[id(node)] = g
        for child, part in _pull(node, g, pending):
            if not is_zero(part):
                pending[id(child)].append(part)
    return [found[id(node)] if id(node) in found else zeros_like(node) for node in wrt]


def _check(outputs: Sequence[Node], wrt: Sequence[Node], cotangents: Sequence[Node]) -> None:
    for node in wrt:
        if not node.dtype.is_float:
            raise GradientError(f"vjp: cannot differentiate with respect to {describe([node])} "
                                "(needs a floating-point dtype)")
    if len(outputs) != len(cotangents):
        raise ShapeError(f"vjp: cannot pair {len(outputs)} outputs with {len(cotangents)} "
                         "cotangents (needs one each)")
    for node, g in zip(outputs, cotangents):
        if not node.dtype.is_float:
            raise GradientError(f"vjp: cannot differentiate {describe([node])} "
                                "(an output needs a floating-point dtype)")
        if node.shape != g.shape or node.dtype != g.dtype:
            error = ShapeError if node.shape != g.shape else DTypeError
            raise error(f"vjp: cannot take {describe([g])} as cotangent of {describe([node])} "
                        "(needs the same shape and dtype)")


def _between(outputs: Sequence[Node], wrt: Sequence[Node]) -> list[Node]:
    """Return the nodes that depend on `wrt` through real numbers and that `outputs` need.

    Inputs come before users. Nodes older than all of `wrt` cannot depend on them.
    """
    wanted = {id(node) for node in wrt}
    oldest = min((node.serial for node in wrt), default=0)
    order: list[Node] = []
    active: set[int] = set()
    seen: set[int] = set()
    stack = [(node, False) for node in outputs] if wrt else []
    while stack:
        node, done = stack.pop()
        if done:
            if id(node) in wanted or any(id(i) in active for i in node.inputs):
                active.add(id(node))
                order.append(node)
            continue
        if id(node) in seen or node.serial < oldest or not node.dtype.is_float:
            continue
        seen.add(id(node))
        row = GRADIENTS[node.op.name]
        if isinstance(row, Nothing) and row.kind in ("zero", "source"):
            if id(node) in wanted:
                active.add(id(node))
                order.append(node)
            continue
        stack.append((node, True))
        stack.extend((i, False) for i in node.inputs)
    return order


def _pull(node: Node, g: Node, active: dict[int, list[Node]]) -> list[tuple[Node, Node]]:
    """Return (input, cotangent) for each active input of a node whose cotangent is g."""
    if not any(id(i) in active for i in node.inputs):
        return []
    row = GRADIENTS[node.op.name]
    if isinstance(row, Nothing):
        # a zero row has active inputs only where they are reached on other ways too
        if row.kind in ("zero", "source"):
            return []
        raise refusal(node, f"{row.kind}: {row.reason}")
    if not isinstance(row, Equations):
        return [(child, part) for child, part in zip(node.inputs, row.function(node, g))
                if part is not None and id(child) in active]
    bound = {"g": g, "y": node, **dict(zip("abc", node.inputs))}
    return [(child, make(formula, bound, build, node.shape, node.dtype))
            for child, formula in zip(node.inputs, row.terms)
            if formula is not None and id(child) in active]
