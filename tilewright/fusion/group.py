"""Which nodes are computed together: every node gets a home cluster, or floats.

A *floating* node depends only on memory; whoever needs it computes it in place. A node with a home
is computed in that cluster, and read from memory by the others. A cluster has a level above those
of all clusters it reads, so the clusters stay acyclic whatever joins: a node may join a cluster
only if everything else it needs has a lower level. One forward walk, constant work per node.

    floats     sources, movements, cheap elementwise nodes, dear ones with one reader, gathers
    new home   reductions, scans, concat, scatter, host calls; dear nodes with several readers,
               or read by an expand or a gather; outputs
    joins      what continues a cluster over the same elements; a reduction or a broadcast of its
               results, where a row fits the cache
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.fusion import contractions, spaces
from tilewright.fusion.clusters import Cluster, Info, find
from tilewright.fusion.spaces import Space
from tilewright.graph import Node
from tilewright.limits import Limits
from tilewright.rewrite.joins import loses_tiles

CHEAP = 4  # elementwise operations that are better repeated than stored
SOLO = ("concat", "scatter", "call")


class Grouping:
    """The result of `group`: infos by node id, clusters, and the row values to keep in scratch."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.cap = max(64, limits.instruction_cap // 10)
        self.infos: dict[int, Info] = {}
        self.clusters: list[Cluster] = []
        self.rows: set[int] = set()
        self.uses: dict[int, int] = {}
        self.wanted: set[int] = set()
        self.inside: dict[int, Node] = {}  # reduction -> the one dissolved in it
        self.dissolved: set[int] = set()
        self.narrow: set[int] = set()  # reductions computed only where a slice reads them
        self.beside: dict[tuple, Cluster] = {}  # by level, frame and lead

    def home(self, node: Node) -> Cluster | None:
        """Return the cluster that computes `node`, or None where it floats."""
        home = self.infos[id(node)].home
        return home if home is None or home.merged is None else find(home)

    # --- clusters

    def new(self, node: Node, info: Info, level: int, shape: Sequence[int],
            kind: str = "") -> Cluster:
        """Give `node` a cluster of its own over the index space `shape`."""
        cluster = Cluster(len(self.clusters), kind, spaces.frame_of(shape), level,
                          node.dtype.itemsize)
        cluster.count, cluster.start = 1 + info.cost, info.cost
        self.clusters.append(cluster)
        info.home, info.cost = cluster, 0
        return cluster

    def anchor(self, node: Node, info: Info) -> Cluster:
        """Give a floating node a home."""
        cluster = self.new(node, info, info.level + 1, node.shape)
        info.space = spaces.whole(cluster.frame)
        return self.join_beside(cluster, info)

    def join_beside(self, cluster: Cluster, info: Info) -> Cluster:
        """Unite a new cluster with one that reads the same memory over the same frame, if any."""
        key = (cluster.level, cluster.frame, info.lead)
        other = self.beside.setdefault(key, cluster)
        if other is cluster or info.lead == (0, 0):
            return cluster
        return self.unite(find(other), cluster) or cluster

    def fits(self, cluster: Cluster, free: frozenset[int]) -> bool:
        """Return whether a row of the cluster stays in cache while its stages walk it."""
        row = spaces.size_outside(free, cluster.frame) * cluster.row_bytes
        return row * 4 <= self.limits.l2

    def join(self, node: Node, cluster: Cluster, inputs: Sequence[Info], others: int) -> bool:
        """Return whether `node` may join `cluster`; `others` is the level its other inputs need."""
        cost = 1 + sum(i.cost for i in inputs)
        if cluster.kind or cluster.count + cost > self.cap:
            return False
        if cluster.level <= others:
            if cluster.read:
                return False
            cluster.level = others + 1
        cluster.count += cost
        return True

    def unite(self, a: Cluster, b: Cluster) -> Cluster | None:
        """Merge two clusters of one level and frame; None where that does not pay."""
        if a.level != b.level or a.frame != b.frame or a.kind or b.kind \
                or a.contraction or b.contraction or a.count + b.count > self.cap:
            return None
        free = a.free & b.free
        if free not in (a.free, b.free) or a.free != b.free and not self.fits(a, free):
            return None
        if b.number < a.number:
            a, b = b, a
        b.merged = a
        a.count += b.count
        a.read |= b.read
        a.staged |= b.staged
        a.free = free
        a.row_bytes = max(a.row_bytes, b.row_bytes)
        a.roots.update(b.roots)
        return a

    def level_of(self, info: Info) -> int:
        """Return the level that a reader of this node must exceed, and hold it there."""
        if info.home is None:
            return info.level
        cluster = find(info.home)
        cluster.read = True
        return cluster.level

    # --- nodes

    def visit(self, node: Node) -> None:
        info = self.infos[id(node)] = Info()
        inputs = [self.infos[id(i)] for i in node.inputs]
        self._lead(node, info, inputs)
        kind = node.op.kind
        if kind == "elementwise":
            self._elementwise(node, info, inputs)
        elif kind == "movement" or kind in ("reduce", "cumulate") and is_trivial(node):
            self._movement(node, info, inputs[0])
        elif kind in ("reduce", "cumulate"):
            self._reduce(node, info, inputs[0])
        elif kind == "gather":
            self._gather(node, info, inputs)
        elif kind in SOLO:
            self._solo(node, info, inputs)
        if id(node) in self.wanted:
            if info.home is None and kind == "elementwise":
                self.anchor(node, info)
            self.want(node, info)

    def _lead(self, node: Node, info: Info, inputs: list[Info]) -> None:
        if not inputs:
            info.lead = (0, 0) if node.op.name in ("constant", "iota") else (node.size, node.serial)
            return
        info.lead = max(i.lead if i.home is None else (n.size, n.serial)
                        for n, i in zip(node.inputs, inputs))

    def want(self, node: Node, info: Info) -> Cluster | None:
        """Make some cluster store `node`, and return it; None for a source in memory."""
        if node.op.name in ("buffer", "parameter"):
            return None
        if info.home is not None:
            cluster = find(info.home)
        else:  # stored here, but computed in place by its other readers
            cluster = Cluster(len(self.clusters), "", spaces.frame_of(node.shape),
                              info.level + 1, node.dtype.itemsize)
            cluster.count = info.cost
            self.clusters.append(cluster)
        cluster.roots[id(node)] = node
        return cluster

    def _elementwise(self, node: Node, info: Info, inputs: list[Info]) -> None:
        homes = {id(c): c for c in (find(i.home) for i in inputs if i.home is not None)}
        info.dear = node.op.costly or any(i.dear for i in inputs)
        if homes and self._continue(node, info, inputs, list(homes.values())):
            return
        info.level = max(map(self.level_of, inputs), default=0)
        info.cost = 1 + sum(i.cost for i in inputs if i.home is None)
        heavy = info.dear or info.cost > CHEAP
        if heavy and self.uses[id(node)] > 1 or info.cost > self.cap // 2:
            self.anchor(node, info)

    def _continue(self, node: Node, info: Info, inputs: list[Info],
                  homes: list[Cluster]) -> bool:
        """Join the cluster of an input where the elements are the same; see `join`."""
        homes.sort(key=lambda c: (-c.level, c.read, c.number))
        cluster = homes[0]
        inside = [i for i in inputs if i.home is not None and find(i.home) is cluster]
        space = inside[0].space
        if space is None or any(i.space != space for i in inside):
            return False
        for other in homes[1:]:
            if all(i.space == space for i in inputs
                   if i.home is not None and find(i.home) is other):
                cluster = self.unite(cluster, other) or cluster
        outside = [i for i in inputs if i.home is None or find(i.home) is not cluster]
        others = max(map(self.level_of, outside), default=0)
        if not self.join(node, cluster, [i for i in outside if i.home is None], others):
            return False
        info.home, info.space = cluster, space
        info.staged = any(i.staged for i in inputs
                          if i.home is not None and find(i.home) is cluster)
        return True

    def _movement(self, node: Node, info: Info, x: Info) -> None:
        if node.op.name == "slice" and contractions.narrow(self, node, info):
            return
        growing = node.op.name == "expand" and node.size > node.inputs[0].size
        if x.home is None and (growing or self.uses[id(node)] > 1) \
                and (x.dear or x.cost > CHEAP):
            self._anchor_below(node.inputs[0])
            x = self.infos[id(node.inputs[0])]
        self._follow(node, info, x)

    def _follow(self, node: Node, info: Info, x: Info) -> None:
        """Fill in a movement node's info from its input's."""
        growing = node.op.name == "expand" and node.size > node.inputs[0].size
        info.expanded = growing or x.expanded or node.op.name == "shear"
        info.dear = x.dear
        if x.home is None:
            info.level, info.cost = x.level, x.cost
            return
        cluster = find(x.home)
        space = None if x.space is None else spaces.moved(node, x.space, cluster.frame)
        if growing and x.staged and cluster.contraction:
            space = contractions.spread(self, node, x.space, cluster)
        elif growing and space is not None and x.staged:
            if self.fits(cluster, cluster.free):
                self.keep_row(node.inputs[0])
            else:
                space = None
        if space is None:
            info.level = self.level_of(x)
        else:
            info.home, info.space, info.staged = cluster, space, x.staged

    def keep_row(self, node: Node) -> None:
        while node.op.kind == "movement":
            node = node.inputs[0]
        if node.op.kind == "elementwise":
            self.rows.add(id(node))

    def _anchor_below(self, node: Node) -> None:
        """Give a home to the operation under a chain of movements with one reader each."""
        chain = []
        while node.op.kind == "movement":
            chain.append(node)
            node = node.inputs[0]
        info = self.infos[id(node)]
        if info.home is None and node.op.kind == "elementwise":
            self.anchor(node, info)
            for view in reversed(chain):
                again = self.infos[id(view)] = Info()
                again.lead = (view.size, view.serial)
                self._follow(view, again, self.infos[id(view.inputs[0])])

    def _reduce(self, node: Node, info: Info, x: Info) -> None:
        source = node.inputs[0]
        gone = node.attrs.axes if node.op.kind == "reduce" else (node.attrs.axis,)
        if self._dissolve(node):
            x = self.infos[id(source)]
        if x.home is not None and x.space is not None and node.op.kind == "reduce":
            cluster = find(x.home)
            space = spaces.reduced(x.space, source.shape, gone)
            if space is not None and self._may_reduce(node, cluster, x, space) \
                    and self.join(node, cluster, [], 0):
                cluster.free &= spaces.axes_of(space, cluster.frame)
                cluster.staged = info.staged = True
                info.home, info.space = cluster, space
                if cluster.contraction:
                    contractions.follow(self, node, cluster)
                return
            self._evict(source, cluster)
        info.cost = x.cost if x.home is None else 0
        cluster = self.new(node, info, self.level_of(x) + 1, source.shape)
        cluster.staged = info.staged = True
        cluster.contraction = self.is_contraction(node)
        cluster.row_bytes = source.dtype.itemsize
        full = spaces.whole(cluster.frame)
        kept = spaces.reduced(full, source.shape, gone) if 0 not in source.shape else None
        cluster.free = frozenset() if kept is None else spaces.axes_of(kept, cluster.frame)
        cluster.steps = frozenset(range(len(cluster.frame))) - cluster.free
        info.space = kept if node.op.kind == "reduce" or kept is None else full
        self.join_beside(cluster, info)

    def _dissolve(self, node: Node) -> bool:
        """Merge a reduction of a reduction: ``sum_k sum_j x -> sum_kj x``, also through movements.

        Only where the inner one has no other reader and is not computed much more often for it,
        and a matrix product keeps its tiles.
        """
        if node.op.kind != "reduce" or node.attrs.kind.startswith("arg"):
            return False
        chain: list[Node] = []
        inner = node.inputs[0]
        while inner.op.kind == "movement" and self.uses[id(inner)] == 1:
            chain.append(inner)
            inner = inner.inputs[0]
        info = self.infos[id(inner)]
        if inner.op.kind != "reduce" or inner.attrs.kind != node.attrs.kind \
                or self.uses[id(inner)] > 1 or is_trivial(inner) or info.home is None \
                or not 0 < node.inputs[0].size <= contractions.growth(chain) * inner.size \
                or 0 in inner.inputs[0].shape or loses_tiles(node):
            return False
        cluster, x = info.home, self.infos[id(inner.inputs[0])]
        if cluster.merged is not None or cluster.kind or cluster.count != 1 + cluster.start \
                or cluster.roots:
            return False
        cluster.kind = "dissolved"
        self.inside[id(node)] = inner
        self.dissolved.add(id(inner))
        info.home, info.space, info.staged = None, None, False
        info.level, info.cost, info.dear = self.level_of(x), cluster.start, x.dear
        for view in reversed(chain):
            again = self.infos[id(view)] = Info()
            again.lead = info.lead
            self._follow(view, again, self.infos[id(view.inputs[0])])
        return True

    def is_contraction(self, node: Node) -> bool:
        """Return whether a sum of products reuses each operand along some axis."""
        if node.op.kind != "reduce" or node.attrs.kind != "sum":
            return False
        body = node.inputs[0]
        while body.op.name == "cast" or body.op.kind == "movement" or id(body) in self.dissolved:
            body = body.inputs[0]
        return body.op.name == "multiply" and all(self.infos[id(i)].expanded for i in body.inputs)

    def _evict(self, node: Node, cluster: Cluster) -> None:
        """Let the last cheap operations before `node`'s only reader float, to be computed there.

        Otherwise a product made for a reduction elsewhere would be stored.
        """
        chain: list[Node] = []
        work = [node]
        cost = 0
        while work:
            current = work.pop()
            info = self.infos[id(current)]
            if info.home is None or find(info.home) is not cluster \
                    or current.op.kind not in ("elementwise", "movement"):
                continue
            if self.uses[id(current)] > 1 or current.op.costly or cost > CHEAP:
                if current is node:
                    return
                continue
            cost += current.op.kind == "elementwise"
            chain.append(current)
            work += current.inputs
        cluster.read = True
        for current in chain:
            info = self.infos[id(current)]
            info.home, info.space, info.level = None, None, cluster.level
            info.staged, info.dear, info.cost = False, False, cost
            cluster.count -= current.op.kind == "elementwise"

    def _may_reduce(self, node: Node, cluster: Cluster, x: Info, space: Space) -> bool:
        if cluster.contraction:
            return contractions.may_follow(self, node, cluster, x, space)
        if not cluster.staged:
            return True
        kept = spaces.axes_of(space, cluster.frame)
        free = cluster.free & kept
        return free in (cluster.free, kept) and self.fits(cluster, free)

    def _gather(self, node: Node, info: Info, inputs: list[Info]) -> None:
        x = inputs[0]
        if x.home is None and (x.dear or x.cost > CHEAP):
            self._anchor_below(node.inputs[0])
            inputs[0] = self.infos[id(node.inputs[0])]
        info.level = max(map(self.level_of, inputs))
        info.cost = 2 + sum(i.cost for i in inputs if i.home is None)
        info.dear = any(i.dear for i in inputs[1:] if i.home is None)

    def _solo(self, node: Node, info: Info, inputs: list[Info]) -> None:
        if node.op.kind == "call":
            level = 0
            for source, i in zip(node.inputs, inputs):
                cluster = self.want(source, i)
                if cluster is not None:
                    cluster.read = True
                    level = max(level, cluster.level)
        else:
            level = max(map(self.level_of, inputs), default=0)
            info.cost = sum(i.cost for i in inputs if i.home is None)
        self.new(node, info, level + 1, node.shape, node.op.kind)


def is_trivial(node: Node) -> bool:
    """Return whether a reduction or scan runs along axes of size 1 only."""
    axes = node.attrs.axes if node.op.kind == "reduce" else (node.attrs.axis,)
    return all(node.inputs[0].shape[a] == 1 for a in axes)


def group(order: Sequence[Node], outputs: Sequence[Node], limits: Limits) -> Grouping:
    """Return the grouping of the nodes in `order`, inputs before users."""
    grouping = Grouping(limits)
    uses = grouping.uses
    for node in order:
        uses.setdefault(id(node), 0)
        for i in node.inputs:
            uses[id(i)] += 1
    grouping.wanted = {id(node) for node in outputs}
    for node in outputs:
        uses[id(node)] += 1
    for node in order:
        grouping.visit(node)
    return grouping
