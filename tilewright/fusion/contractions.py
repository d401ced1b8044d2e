"""What may share a kernel with a contraction: parts of it, rows of it, a product of those rows.

    scores = q @ k.T;  m = max(scores);  e = exp(scores - m);  s = sum(e);  out = (e / s) @ v

is one kernel where the scores of a block of rows, and the factor that every block reads again, stay
in cache: the reductions run over the contraction's columns, and so does the second product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.fusion import spaces
from tilewright.fusion.clusters import Cluster, Info
from tilewright.fusion.spaces import Space
from tilewright.graph import Node

if TYPE_CHECKING:
    from tilewright.fusion.group import Grouping

BLOCK = 32  # rows below which a block reads the other factor again too often


def narrow(grouping: Grouping, node: Node, info: Info) -> bool:
    """Have a contraction whose only reader is the slice `node` compute that part alone."""
    base = node.inputs[0]
    chain = [base]
    while base.op.name == "permute" or base.op.name == "reshape" \
            and spaces.frame_of(base.shape) == spaces.frame_of(base.inputs[0].shape):
        base = base.inputs[0]
        chain.append(base)
    found = grouping.infos[id(base)].home
    if base.op.kind != "reduce" or found is None or found.merged is not None \
            or not found.contraction or found.read or found.roots or 0 in node.shape \
            or found.count != 1 + found.start or min(node.attrs.steps, default=1) < 1 \
            or any(grouping.uses[id(n)] > 1 for n in chain):
        return False
    grouping.narrow.add(id(base))
    kept = spaces.frame_of(node.shape)
    gone = [base.inputs[0].shape[a] for a in base.attrs.axes]
    found.frame = (*kept, *spaces.frame_of(gone))
    found.free = frozenset(range(len(kept)))
    found.steps = frozenset(range(len(found.frame))) - found.free
    info.home, info.space, info.staged = found, spaces.whole(kept), True
    return True


def growth(chain: list[Node]) -> int:
    """Return how often a value may be repeated to save a pass over memory.

    What `unshear` spreads over its steps is not repeated: all but one of them are zeros.
    """
    result = 2
    for node in chain:
        if node.op.name == "unshear" and node.shape[node.attrs.axis] % node.attrs.stride == 0:
            result *= node.attrs.stride
    return result


def may_follow(grouping: Grouping, node: Node, cluster: Cluster, x: Info, space: Space) -> bool:
    """Return whether a reduction of a contraction's values along its rows may join it.

    Sums, maxima and minima of whole rows; after them one product along the same rows.
    """
    if node.attrs.kind not in ("sum", "max", "min") or cluster.rows == 2 or x.space is None:
        return False
    limits = grouping.limits
    frame = cluster.frame
    kept, all_ = spaces.axes_of(space, frame), spaces.axes_of(x.space, frame)
    free = cluster.free & kept
    again = grouping.is_contraction(node)
    if cluster.rows and free != cluster.free or again and not cluster.rows:
        return False
    columns = spaces.size_outside(frozenset(range(len(frame))) - (all_ - kept), frame)
    depth = spaces.size_outside(frozenset(range(len(frame))) - cluster.steps, frame)
    rows = spaces.size_outside(frozenset(range(len(frame))) - free, frame)
    size = cluster.row_bytes
    return rows >= BLOCK // 2 and not all_ - kept & cluster.steps \
        and BLOCK * 2 * columns * size <= limits.l2 // 2 \
        and columns * depth * size <= limits.l3 // 4


def follow(grouping: Grouping, node: Node, cluster: Cluster) -> None:
    """Note that a reduction along rows has joined a contraction; what it reads stays in scratch."""
    if grouping.is_contraction(node):
        cluster.rows = 2
    else:
        cluster.rows = 1
        grouping.keep_row(node.inputs[0])


def spread(grouping: Grouping, node: Node, space: Space | None, cluster: Cluster) -> Space | None:
    """Return the space of an expanded row value, or of rows expanded for a product, or None.

    A product's own axis is added to the cluster's frame.
    """
    if cluster.rows != 1 or space is None or node.op.name != "expand":
        return None
    frame = [-1 if a in cluster.steps else n for a, n in enumerate(cluster.frame)]
    found = spaces.moved(node, space, frame)
    if found is None:
        more = [n for old, n in zip(node.inputs[0].shape, node.shape) if old != n]
        found = spaces.moved(node, space, frame + more)
        if found is None:
            return None
        cluster.frame += tuple(more)
    if not spaces.axes_of(space, cluster.frame) <= cluster.free:
        grouping.keep_row(node.inputs[0])
    return found
