"""What a rewrite rule is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright import dtypes
from tilewright.graph import Node, apply, parameter
from tilewright.rewrite.terms import Build, Term, make, match

_OF_KIND = {"b": dtypes.bool_, "i": dtypes.int32, "u": dtypes.uint8, "f": dtypes.float32}


@dataclass(frozen=True)
class Rule:
    """A named local equation: node = replacement.

    name      unique, in words
    ops       the operations at whose nodes it is tried
    replace   (node, build) -> an equal, simpler node, or None where the rule does not apply;
              new nodes are made through `build`
    examples  terms on which it fires, for the test that walks all rules
    """

    name: str
    ops: tuple[str, ...]
    replace: Callable[[Node, Build], Node | None]
    examples: tuple[Term, ...]

    def example_nodes(self) -> list[Node]:
        """Return the examples as nodes, built without any rule."""
        return [make(example, {}, apply, (), dtypes.float32) for example in self.examples]


@dataclass(frozen=True)
class Formula:
    """left = right, for operands whose dtype kind is among `kinds` (``b i u f``).

    The variable ``c`` is a condition: bool, whatever the kind of the others.
    """

    left: Term
    right: Term
    kinds: str

    def __call__(self, node: Node, build: Build) -> Node | None:
        # the last input is never the condition, and all operands have one dtype
        if node.inputs[-1].dtype.kind not in self.kinds:
            return None
        bound = match(self.left, node, {})
        return make(self.right, bound, build, node.shape, node.dtype) if bound is not None else None


@dataclass(frozen=True)
class FormulaRule(Rule):
    """A rule whose two sides are terms; it is its own example."""

    def example_nodes(self) -> list[Node]:
        assert isinstance(self.replace, Formula)
        nodes = []
        for kind in self.replace.kinds:
            dtype = _OF_KIND[kind]
            bound = {"x": parameter(0, (2, 3), dtype), "y": parameter(1, (2, 3), dtype),
                     "c": parameter(2, (2, 3), dtypes.bool_)}
            nodes.append(make(self.replace.left, bound, apply, (2, 3), dtype))
        return nodes


def formula(name: str, left: Term, right: Term, kinds: str = "biuf") -> Rule:
    """Return the rule ``left = right``."""
    return FormulaRule(name, (left.op,), Formula(left, right, kinds), (left,))  # type: ignore[attr-defined]
