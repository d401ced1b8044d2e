"""Sums of cotangents, with disjoint parts joined instead of added.

The gradient of reading n parts of one array is n padded arrays. Added, they would cost n times the
array; where the parts do not overlap they are one concat.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from tilewright.graph import Node
from tilewright.rewrite import build, full
from tilewright.transforms.expressions import add, along, concat


class Block(NamedTuple):
    """`part`, placed with its first element at `low` in an array of zeros."""

    low: tuple[int, ...]
    part: Node


def total(parts: Sequence[Node]) -> Node:
    """Return the sum of nodes of one shape and dtype; parts padded with zeros are joined."""
    blocks = [Block(p.attrs.low, p.inputs[0]) for p in parts if _is_block(p)]
    terms = [p for p in parts if not _is_block(p)]
    shape = parts[0].shape
    if len(blocks) > 1:
        for axis in reversed(range(len(shape))):
            blocks = _join(blocks, axis, shape[axis])
    terms += [_place(block, shape) for block in blocks]
    result = terms[0]
    for term in terms[1:]:
        result = add(result, term)
    return result


def _is_block(node: Node) -> bool:
    return node.op.name == "pad" and not any(node.attrs.interior)


def _place(block: Block, shape: tuple[int, ...]) -> Node:
    high = tuple(n - lo - m for n, lo, m in zip(shape, block.low, block.part.shape))
    return build("pad", block.part, low=block.low, high=high, interior=(0,) * len(shape))


def _join(blocks: list[Block], axis: int, extent: int) -> list[Block]:
    """Join blocks that are disjoint along `axis` and equally placed along all others."""
    groups: dict[tuple, list[Block]] = defaultdict(list)
    for block in blocks:
        groups[tuple((lo, n) for d, (lo, n) in enumerate(zip(block.low, block.part.shape))
                     if d != axis)].append(block)
    return [_row(layer, axis, extent) if len(layer) > 1 else layer[0]
            for group in groups.values() for layer in _layers(group, axis)]


def _layers(group: list[Block], axis: int) -> list[list[Block]]:
    """Divide blocks into as few rows as possible, none overlapping within its row."""
    layers: list[list[Block]] = []
    free: list[tuple[int, int]] = []  # (where the row ends, its number)
    for block in sorted(group, key=lambda block: block.low[axis]):
        start = block.low[axis]
        if free and free[0][0] <= start:
            _, number = heapq.heappop(free)
        else:
            number = len(layers)
            layers.append([])
        layers[number].append(block)
        heapq.heappush(free, (start + block.part.shape[axis], number))
    return layers


def _row(layer: list[Block], axis: int, extent: int) -> Block:
    """Return one block that spans the whole axis."""
    pieces, end = [], 0
    for low, part in layer:
        pieces += [_gap(part, axis, low[axis] - end), part]
        end = low[axis] + part.shape[axis]
    pieces.append(_gap(layer[0].part, axis, extent - end))
    low = layer[0].low
    return Block((*low[:axis], 0, *low[axis + 1:]), concat(pieces, axis))


def _gap(part: Node, axis: int, length: int) -> Node:
    return full(0, along(part, axis, length), part.dtype)
