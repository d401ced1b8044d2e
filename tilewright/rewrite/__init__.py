"""Construction-time local simplification of graph nodes.

`build` takes the place of `graph.apply`: it applies an operation, then the rules of that operation.
A rule costs a bounded number of steps, whatever the size of the graph, and never changes a value:
floating-point identities that fail for a signed zero, an infinity or a NaN are not in the table.
"""

from tilewright.rewrite.driver import RULES, build
from tilewright.rewrite.rule import Rule
from tilewright.rewrite.uniform import full, full_like, uniform_constant

__all__ = ["RULES", "Rule", "build", "full", "full_like", "uniform_constant"]
