"""Clusters of nodes that one kernel computes, and what grouping knows of a node."""

from __future__ import annotations

from tilewright.fusion.spaces import Space
from tilewright.graph import Node


class Cluster:
    """Nodes that one kernel computes; `frame` is its widest index space."""

    __slots__ = ("contraction", "count", "frame", "free", "kind", "level", "merged", "number",
                 "read", "roots", "row_bytes", "rows", "staged", "start", "steps")

    def __init__(self, number: int, kind: str, frame: tuple[int, ...], level: int, itemsize: int):
        self.number, self.kind, self.frame, self.level = number, kind, frame, level
        self.count = self.start = 0  # operations now, and those of its first node's operands
        self.merged: Cluster | None = None
        self.read = False  # others rely on its level
        self.staged = self.contraction = False
        self.rows = 0  # of a contraction: 1 with reductions along its rows, 2 with another product
        self.steps: frozenset[int] = frozenset()  # axes that its first stage reduces over
        self.free = frozenset(range(len(frame)))  # axes that every stage keeps free
        self.row_bytes = itemsize
        self.roots: dict[int, Node] = {}


class Info:
    """What grouping knows of one node."""

    __slots__ = ("cost", "dear", "expanded", "home", "lead", "level", "space", "staged")

    def __init__(self) -> None:
        self.home: Cluster | None = None
        self.space: Space | None = None
        self.level = 0  # the highest level read, where it floats
        self.cost = 0  # elementwise operations since memory
        self.dear = False  # a transcendental since memory or a stage
        self.expanded = False  # a broadcast since the last operation
        self.staged = False  # needs a reduction of its own cluster
        self.lead = (0, 0)  # size and serial of the largest memory read


def find(cluster: Cluster) -> Cluster:
    """Return the cluster that `cluster` has been merged into."""
    while cluster.merged is not None:
        if cluster.merged.merged is not None:
            cluster.merged = cluster.merged.merged
        cluster = cluster.merged
    return cluster
