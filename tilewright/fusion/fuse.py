"""From a graph to calls of kernels, in execution order."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import prod

from tilewright.fusion.axes import Splits
from tilewright.fusion.calls import HostCall, KernelCall
from tilewright.fusion.clusters import Cluster, find
from tilewright.fusion.deferred import defer_division
from tilewright.fusion.fold import fold
from tilewright.fusion.group import Grouping, group
from tilewright.fusion.operands import store_operands
from tilewright.fusion.pull import Puller
from tilewright.fusion.tidy import tidy
from tilewright.graph import Node, postorder
from tilewright.limits import Limits

MOST_PULLS = 8  # how often axes are split again for one kernel
MOST_PIECES = 32  # of a concat, in one kernel


def fuse(outputs: Sequence[Node], limits: Limits) -> list[KernelCall | HostCall]:
    """Return the calls that compute `outputs`, in execution order.

    Every output that is not a source in memory, and every intermediate that crosses calls, is an
    output of one call (of several where a concat has many pieces).
    """
    grouping = group(postorder(outputs), outputs, limits)
    clusters = [c for c in grouping.clusters if c.merged is None]
    clusters.sort(key=lambda c: (-c.level, c.number))
    calls: list[tuple[Cluster, list[KernelCall | HostCall]]] = []
    for cluster in clusters:  # readers first: they say what must be stored
        if cluster.roots:
            calls.append((cluster, [*(_host_calls(cluster) if cluster.kind == "call"
                                      else _kernel_calls(grouping, cluster))]))
    return _ordered(calls)


def _ordered(groups: list[tuple[Cluster, list[KernelCall | HostCall]]]) -> list:
    """Return the calls in the order in which the program made their outputs, as far as possible.

    That keeps intermediates short-lived, which an order by level would not.
    """
    maker = {id(node): n for n, (cluster, _) in enumerate(groups)
             for node in cluster.roots.values()}
    serial = [max(n.serial for n in cluster.roots.values()) for cluster, _ in groups]
    waiting: list[int] = []
    users: list[list[int]] = [[] for _ in groups]
    for n, (_, calls) in enumerate(groups):
        needs = {maker[id(node)] for call in calls for node in _inputs(call) if id(node) in maker}
        waiting.append(len(needs))
        for need in needs:
            users[need].append(n)
    ready = [(serial[n], n) for n in range(len(groups)) if not waiting[n]]
    heapify(ready)
    result: list[KernelCall | HostCall] = []
    while ready:
        _, n = heappop(ready)
        result += groups[n][1]
        for user in users[n]:
            waiting[user] -= 1
            if not waiting[user]:
                heappush(ready, (serial[user], user))
    return result


def _inputs(call: KernelCall | HostCall) -> list[Node]:
    if isinstance(call, HostCall):
        return list(call.node.inputs)
    return [operand.node for operand in call.inputs]


def _need(grouping: Grouping, node: Node) -> None:
    """Have the cluster that computes `node` store it."""
    home = grouping.home(node)
    if home is not None:
        home.roots[id(node)] = node


def _host_calls(cluster: Cluster) -> list[HostCall]:
    return [HostCall(node) for node in cluster.roots.values()]


def _kernel_calls(grouping: Grouping, cluster: Cluster) -> list[KernelCall]:
    """Build one cluster's kernel, and note what it reads."""
    roots = sorted(cluster.roots.values(), key=lambda n: -n.size)
    pieces = len(roots[0].inputs) if cluster.kind == "concat" else 1
    if pieces <= MOST_PIECES:
        calls = [tidy(_pull(grouping, cluster, roots, None))]
    else:
        calls = [tidy(_pull(grouping, cluster, roots, range(n, n + MOST_PIECES)))
                 for n in range(0, pieces, MOST_PIECES)]
    calls = [call for call in calls if call.kernel.stages]  # pieces may be empty
    for call in calls:
        for operand in call.inputs:
            _need(grouping, operand.node)
    return calls


def _pull(grouping: Grouping, cluster: Cluster, roots: list[Node],
          pieces: range | None) -> Puller:
    splits = Splits()
    for _ in range(MOST_PULLS):
        puller = Puller(grouping, cluster, splits)
        for node in roots:
            puller.root(node, pieces)
        fold(puller.drafts, puller.axes, puller.lets, puller.places)
        again = puller.axes.granted()
        if not _spill(puller, grouping) and not again:
            break
    defer_division(puller.drafts)
    store_operands(puller, grouping.limits)
    return puller


def _spill(puller: Puller, grouping: Grouping) -> bool:
    """Keep a dear value that several stages need in scratch, where a row of it fits."""
    drafts = puller.drafts
    if not puller.shared or not any(d.reduce or d.carry for d in drafts):
        return False
    common = set.intersection(*(set(d.free) for d in drafts))
    row = prod(n for a, n in puller.axes.sizes.items() if a not in common)
    before = len(puller.splits.spill)
    for node in puller.shared.values():
        while node.op.kind == "movement":
            node = node.inputs[0]
        info = grouping.infos[id(node)]
        if node.op.kind == "elementwise" and info.dear and info.home is not None \
                and find(info.home) is puller.cluster \
                and row * node.dtype.itemsize * 4 <= grouping.limits.l2:
            puller.splits.spill.add(id(node))
    return len(puller.splits.spill) > before
