"""Small graph walks that tracing needs: what a graph depends on, and substitution of leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.array.build import KNOWN
from tilewright.graph import Node, apply, postorder

_OPEN = "depends on a parameter"


def is_open(node: Node) -> bool:
    """Tell whether the value of `node` depends on a parameter of unknown value.

    Remembered on the nodes.
    """
    if _OPEN in node.memo:
        return node.memo[_OPEN]
    stack = [node]
    while stack:
        top = stack[-1]
        unknown = [i for i in top.inputs if _OPEN not in i.memo]
        if unknown:
            stack.extend(unknown)
            continue
        top.memo[_OPEN] = KNOWN not in top.memo and (
            top.op.name == "parameter" or any(i.memo[_OPEN] for i in top.inputs))
        stack.pop()
    return node.memo[_OPEN]


def leaves(outputs: Sequence[Node], name: str) -> list[Node]:
    """Return the leaves of operation `name` that `outputs` need, each once."""
    return [n for n in postorder(outputs) if n.op.name == name]


def substitute(outputs: Sequence[Node], replaced: Mapping[Node, Node]) -> list[Node]:
    """Return `outputs` with each key of `replaced` (an old node) standing for its value.

    The new nodes are not rewritten further. Time is linear in the nodes that `outputs` need.
    """
    done: dict[int, Node] = {id(old): new for old, new in replaced.items()}
    for node in postorder(outputs):
        if id(node) in done:
            continue
        inputs = tuple(done[id(i)] for i in node.inputs)
        same = all(a is b for a, b in zip(inputs, node.inputs))
        done[id(node)] = node if same else apply(node.op.name, *inputs, **node.attrs._asdict())
    return [done[id(node)] for node in outputs]
