"""The table of rules, and `build`, which tries those of the operation at hand."""

from __future__ import annotations

from tilewright.graph import OPS, Node, apply
from tilewright.rewrite.constants import CONSTANT_RULES
from tilewright.rewrite.identities import ARITHMETIC, BITS, CHOICES
from tilewright.rewrite.joins import JOIN_RULES, REDUCE_RULES
from tilewright.rewrite.movement import MOVEMENT_RULES
from tilewright.rewrite.rule import Rule
from tilewright.rewrite.slices import SLICE_RULES

# Constants first: they leave nothing to be simplified. Other orders reach the same result.
RULES: tuple[Rule, ...] = (*CONSTANT_RULES, *ARITHMETIC, *BITS, *CHOICES, *MOVEMENT_RULES,
                           *SLICE_RULES, *JOIN_RULES, *REDUCE_RULES)

_BY_OP: dict[str, tuple[Rule, ...]] = {
    name: tuple(rule for rule in RULES if name in rule.ops) for name in OPS}


def build(name: str, *inputs: Node, **attributes: object) -> Node:
    """Return a node equal to ``graph.apply(name, *inputs, **attributes)``, simplified at its root.

    Inputs are taken as they are: a graph made by `build` throughout is simplified throughout.
    Shape and dtype are those of the plain node. Raises ShapeError or DTypeError as `apply` does.
    """
    node = apply(name, *inputs, **attributes)
    if "irreducible" in node.memo:
        return node
    for rule in _BY_OP[name]:
        result = rule.replace(node, build)
        if result is not None:
            return result
    node.memo["irreducible"] = True
    return node
