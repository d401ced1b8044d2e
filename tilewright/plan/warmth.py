"""Which kernels of a plan find their data gone from the caches when they start."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from tilewright.fusion.calls import HostCall, KernelCall
from tilewright.graph import Node

Call = KernelCall | HostCall
Buffers = dict[int, int]  # bytes by identity


def cold_kernels(calls: Sequence[Call], capacity: int) -> set[str]:
    """Return the keys of kernels for which most bytes are out of a cache of `capacity` bytes.

    The plan is taken to run again and again. A buffer is out where other launches touched more than
    `capacity` since its last use: what a kernel does to its own data is in its own times.
    """
    launches = [(call.kernel.key if isinstance(call, KernelCall) else "", _touched(call))
                for call in calls]
    if sum({node: size for _, found in launches for node, size in found.items()}.values()) \
            <= capacity or len(launches) == 1:
        return set()
    recent: OrderedDict[int, int] = OrderedDict()  # the latest last
    out: dict[str, int] = {}
    whole: dict[str, int] = {}
    for again in (False, True):
        for key, buffers in launches:
            if again:
                whole[key] = whole.get(key, 0) + sum(buffers.values())
                out[key] = out.get(key, 0) + _gone(buffers, recent, capacity)
            for node, size in buffers.items():
                recent[node] = size
                recent.move_to_end(node)
    return {key for key, size in out.items() if key and 2 * size > whole[key]}


def _gone(buffers: Buffers, recent: OrderedDict[int, int], capacity: int) -> int:
    """Return the bytes of `buffers` since whose use others took more than the capacity."""
    left, between = dict(buffers), 0
    for node in reversed(recent):
        if node in left:
            del left[node]
        else:
            between += recent[node]
        if between > capacity or not left:
            break
    return sum(left.values())


def _touched(call: Call) -> Buffers:
    nodes: list[Node] = [call.node, *call.node.inputs] if isinstance(call, HostCall) \
        else [operand.node for operand in (*call.inputs, *call.outputs)]
    return {id(n): n.dtype.itemsize * _size(n) for n in nodes}


def _size(node: Node) -> int:
    size = 1
    for extent in node.shape:
        size *= extent
    return size
