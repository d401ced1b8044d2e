"""Rules that move a slice towards the sources, so that it reads as little as it can.

    slice(f(x)) = f(slice(x))        f a permute, an expand, a reshape of unit axes, a pad
    slice(concat(a, b, ..))          reads the pieces that it touches

A slice is handled as one `range` per axis. Walking is a loop with a fixed limit, so deep nests of
movements cost neither recursion nor more than a bounded time per slice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from tilewright.graph import Node, apply
from tilewright.rewrite.rule import Rule
from tilewright.rewrite.terms import Build, Leaf, Term, term
from tilewright.rewrite.uniform import full

Ranges = tuple[range, ...]
Wrap = tuple[str, dict[str, object]]
MAX_STEPS = 64  # movements that one slice walks through
MAX_SPREAD = 3  # nested concats that one slice is spread over


class Moved(NamedTuple):
    """slice(node) = wrap(slice(source)[ranges]); wrap is an operation and its attributes."""

    source: Node
    ranges: Ranges
    wrap: Wrap | None = None


def span(start: int, count: int, step: int) -> range:
    """Return `count` indices from `start` in the one form that slices are stored in."""
    if count <= 1:
        return range(start, start + count)
    return range(start, start + (count - 1) * step + (1 if step > 0 else -1), step)


def ranges_of(node: Node) -> Ranges:
    """Return the range that a slice node reads along each axis."""
    return tuple(span(a, len(range(a, b, s)), s) for a, b, s in zip(*node.attrs))


def counts(ranges: Ranges) -> tuple[int, ...]:
    return tuple(len(r) for r in ranges)


def through_slice(node: Node, ranges: Ranges) -> Moved | None:
    """slice(slice(x)) = slice(x)."""
    inner = ranges_of(node)
    return Moved(node.inputs[0], tuple(
        span(i.start + r.start * i.step, len(r), i.step * r.step) for i, r in zip(inner, ranges)))


def through_permute(node: Node, ranges: Ranges) -> Moved | None:
    """slice(permute(x)) = permute(slice(x))."""
    moved = list(ranges)
    for r, axis in zip(ranges, node.attrs.axes):
        moved[axis] = r
    return Moved(node.inputs[0], tuple(moved), ("permute", {"axes": node.attrs.axes}))


def through_expand(node: Node, ranges: Ranges) -> Moved | None:
    """slice(expand(x)) = expand(slice(x))."""
    (x,) = node.inputs
    inner = tuple(r if n == m else range(1) for r, n, m in zip(ranges, x.shape, node.shape))
    shape: object = counts(ranges)
    return Moved(x, inner, ("expand", {"shape": shape}))


def through_reshape(node: Node, ranges: Ranges) -> Moved | None:
    """slice(reshape(x)) = reshape(slice(x)), for one element, or if only unit axes come or go."""
    (x,) = node.inputs
    shape = counts(ranges)
    wrap: Wrap = ("reshape", {"shape": shape})
    if all(n == 1 for n in shape):
        flat = 0
        for r, n in zip(ranges, node.shape):
            flat = flat * n + r.start
        inner = []
        for n in reversed(x.shape):
            flat, i = divmod(flat, n)
            inner.append(range(i, i + 1))
        return Moved(x, tuple(reversed(inner)), wrap)
    long = [(n, r) for n, r in zip(node.shape, ranges) if n != 1]
    if [n for n, _ in long] != [n for n in x.shape if n != 1]:
        return None
    rest = iter(long)
    return Moved(x, tuple(range(1) if n == 1 else next(rest)[1] for n in x.shape), wrap)


def _unpadded(r: range, n: int, low: int, interior: int) -> range | bool | None:
    """Return the range of x's own elements that `r` reads, False if none, None if mixed."""
    period, first = interior + 1, r.start - low
    last = first + (len(r) - 1) * r.step
    if max(first, last) < 0 or min(first, last) > (n - 1) * period:
        return False
    if len(r) > 1 and r.step % period:
        return None
    if first % period:
        return False
    if min(first, last) < 0 or max(first, last) > (n - 1) * period:
        return None
    return span(first // period, len(r), r.step // period)


def through_pad(node: Node, ranges: Ranges) -> Moved | None:
    """slice(pad(x)) = slice(x), or zeros, where it reads no mixture of the two."""
    (x,) = node.inputs
    inner = [_unpadded(r, n, low, mid) for r, n, low, mid in
             zip(ranges, x.shape, node.attrs.low, node.attrs.interior)]
    if any(i is False for i in inner):
        shape = counts(ranges)
        return Moved(full(0, shape, x.dtype), tuple(map(range, shape)))
    if any(i is None for i in inner):
        return None
    return Moved(x, tuple(inner))  # type: ignore[arg-type]


def _offsets(node: Node) -> list[int]:
    """Return where each piece of a concat starts, and the end; kept on the node."""
    offsets = node.memo.get("offsets")
    if offsets is None:
        axis = node.attrs.axis
        offsets = node.memo["offsets"] = list(
            accumulate((i.shape[axis] for i in node.inputs), initial=0))
    return offsets


def _replace(ranges: Ranges, axis: int, new: range) -> Ranges:
    return (*ranges[:axis], new, *ranges[axis + 1:])


def through_concat(node: Node, ranges: Ranges) -> Moved | None:
    """slice(concat(.., a, ..)) = slice(a), where a alone is read."""
    axis, offsets = node.attrs.axis, _offsets(node)
    r = ranges[axis]
    piece = bisect_right(offsets, r[0]) - 1
    if not offsets[piece] <= r[-1] < offsets[piece + 1]:
        return None
    moved = span(r.start - offsets[piece], len(r), r.step)
    return Moved(node.inputs[piece], _replace(ranges, axis, moved))


THROUGH: dict[str, Callable[[Node, Ranges], Moved | None]] = {
    "slice": through_slice, "permute": through_permute, "expand": through_expand,
    "reshape": through_reshape, "pad": through_pad, "concat": through_concat,
}


def is_whole(node: Node, ranges: Ranges) -> bool:
    return all(r.step == 1 and len(r) == n for r, n in zip(ranges, node.shape))


def plain_slice(source: Node, ranges: Ranges) -> Node:
    """Return the slice node in its stored form, or `source` where all of it is read."""
    if is_whole(source, ranges):
        return source
    return apply("slice", source, starts=tuple(r.start for r in ranges),
                 stops=tuple(r.stop for r in ranges), steps=tuple(r.step for r in ranges))


def read(source: Node, ranges: Ranges, build: Build, spread: int = 0) -> Node:
    """Return the slice of `source`, moved towards the sources as far as it goes.

    No range is empty. `spread` counts the concats that the slice was already divided over.
    """
    wraps = []
    for _ in range(MAX_STEPS):
        if is_whole(source, ranges) or source.op.name not in THROUGH:
            break
        moved = THROUGH[source.op.name](source, ranges)
        if moved is None:
            break
        source, ranges, wrap = moved
        if wrap:
            wraps.append(wrap)
    if source.op.name == "concat" and not is_whole(source, ranges) and spread < MAX_SPREAD:
        result = _read_pieces(source, ranges, build, spread)
    else:
        result = plain_slice(source, ranges)
    for op, attributes in reversed(wraps):
        result = build(op, result, **attributes)
    return result


def _read_pieces(node: Node, ranges: Ranges, build: Build, spread: int) -> Node:
    """slice(concat(a, b, ..)) = concat(slice(a), slice(b), ..) of the pieces that it touches."""
    axis, offsets = node.attrs.axis, _offsets(node)
    r, parts, done = ranges[axis], [], 0
    while done < len(r):
        first = r[done]
        piece = bisect_right(offsets, first) - 1
        low, high = offsets[piece], offsets[piece + 1]
        room = high - 1 - first if r.step > 0 else first - low
        count = min(len(r) - done, room // abs(r.step) + 1)
        inner = _replace(ranges, axis, span(first - low, count, r.step))
        parts.append(read(node.inputs[piece], inner, build, spread + 1))
        done += count
    return build("concat", *parts, axis=axis)


@dataclass(frozen=True)
class Through:
    """The rule that moves a slice through one kind of node."""

    op: str

    def __call__(self, node: Node, build: Build) -> Node | None:
        (x,) = node.inputs
        if x.op.name != self.op or 0 in node.shape:
            return None
        result = read(x, ranges_of(node), build)
        return None if result is node else result


def slice_stored_form(node: Node, build: Build) -> Node | None:
    """slice(x) = x where all is read; else stops just past the last index, step 1 for one index."""
    result = plain_slice(node.inputs[0], ranges_of(node))
    return None if result is node else result


def _slice(x: object, *spans: tuple[int, int, int]) -> Term:
    starts, stops, steps = zip(*spans)
    return term("slice", x, starts=starts, stops=stops, steps=steps)


_x, _y = Leaf(0, (4, 6)), Leaf(1, (3, 6))

SLICE_RULES: tuple[Rule, ...] = (
    Rule("slice-of-slice", ("slice",), Through("slice"),
         (_slice(_slice(_x, (0, 4, 1), (5, -1, -2)), (1, 3, 1), (2, 0, -1)),)),
    Rule("slice-of-permute", ("slice",), Through("permute"),
         (_slice(term("permute", _x, axes=(1, 0)), (1, 5, 2), (0, 2, 1)),)),
    Rule("slice-of-expand", ("slice",), Through("expand"),
         (_slice(term("expand", Leaf(0, (4, 1)), shape=(4, 6)), (3, 0, -1), (1, 6, 2)),)),
    Rule("slice-of-reshape", ("slice",), Through("reshape"),
         (_slice(term("reshape", _x, shape=(24,)), (7, 8, 1)),
          _slice(term("reshape", _x, shape=(4, 1, 6)), (1, 3, 1), (0, 1, 1), (0, 6, 5)))),
    Rule("slice-of-pad", ("slice",), Through("pad"),
         (_slice(term("pad", _x, low=(1, 2), high=(1, 0), interior=(0, 1)), (1, 4, 1), (2, 9, 2)),
          _slice(term("pad", _x, low=(1, 2), high=(1, 0), interior=(0, 1)), (0, 6, 1), (3, 8, 2)))),
    Rule("slice-of-concat", ("slice",), Through("concat"),
         (_slice(term("concat", _x, _y, axis=0), (4, 6, 1), (0, 6, 1)),
          _slice(term("concat", _x, _y, axis=0), (6, -1, -2), (0, 6, 1)))),
    Rule("slice-stored-form", ("slice",), slice_stored_form,
         (_slice(_x, (0, 4, 1), (0, 6, 1)), _slice(_x, (0, 4, 3), (2, 3, 5)))),
)
