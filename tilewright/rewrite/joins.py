"""Rules for concat, scatter and the reductions."""

from __future__ import annotations

from tilewright import dtypes
from tilewright.graph import Node
from tilewright.rewrite.rule import Rule
from tilewright.rewrite.slices import Ranges, plain_slice, ranges_of, span
from tilewright.rewrite.terms import Build, Leaf, Term, term
from tilewright.rewrite.uniform import full, is_zero, spread, uniform_constant

# A longer concat stays a concat of concats: flattening costs time per piece, and repeated doubling
# would have exponentially many.
MAX_PIECES = 512


def concat_one(node: Node, build: Build) -> Node | None:
    """concat(x) = x."""
    return node.inputs[0] if len(node.inputs) == 1 else None


def concat_empty_pieces(node: Node, build: Build) -> Node | None:
    """concat(a, empty, b) = concat(a, b)."""
    kept = [i for i in node.inputs if i.shape[node.attrs.axis]]
    if len(kept) == len(node.inputs) or not kept:
        return None
    return build("concat", *kept, axis=node.attrs.axis)


def _is_join(piece: Node, axis: int) -> bool:
    return piece.op.name == "concat" and piece.attrs.axis == axis


def concat_of_concat(node: Node, build: Build) -> Node | None:
    """concat(concat(a, b), c) = concat(a, b, c), along one axis, up to MAX_PIECES pieces."""
    axis = node.attrs.axis
    nested = [i for i in node.inputs if _is_join(i, axis)]
    total = sum(len(i.inputs) for i in nested) + len(node.inputs) - len(nested)
    if not nested or total > MAX_PIECES:
        return None
    pieces = [p for i in node.inputs for p in (i.inputs if _is_join(i, axis) else (i,))]
    return build("concat", *pieces, axis=axis)


def _following(a: range, b: range) -> range | None:
    """Return the range that reads `a` and then `b`, or None."""
    gap = b.start - a[-1]
    step = a.step if len(a) > 1 else b.step if len(b) > 1 else gap
    if gap != step or (len(b) > 1 and b.step != step):
        return None
    if len(a) == len(b) == 1 and abs(gap) != 1:
        return None
    return span(a.start, len(a) + len(b), step)


def _without(ranges: Ranges, axis: int) -> Ranges:
    return ranges[:axis] + ranges[axis + 1:]


def _merged(a: Node, b: Node, axis: int) -> Node | None:
    """Return the one node equal to concat(a, b), or None."""
    if a.op.name == b.op.name == "slice" and a.inputs[0] is b.inputs[0]:
        first, second = ranges_of(a), ranges_of(b)
        joined = _following(first[axis], second[axis])
        if joined is None or _without(first, axis) != _without(second, axis):
            return None
        return plain_slice(a.inputs[0], (*first[:axis], joined, *first[axis + 1:]))
    value = uniform_constant(a)
    if value is not None and value is uniform_constant(b):
        length = a.shape[axis] + b.shape[axis]
        return spread(value, (*a.shape[:axis], length, *a.shape[axis + 1:]))
    return None


def concat_neighbours(node: Node, build: Build) -> Node | None:
    """concat(x[a:b], x[b:c]) = x[a:c]; concat(full(v), full(v)) = full(v)."""
    pieces = [node.inputs[0]]
    for piece in node.inputs[1:]:
        merged = _merged(pieces[-1], piece, node.attrs.axis)
        if merged is None:
            pieces.append(piece)
        else:
            pieces[-1] = merged
    if len(pieces) == len(node.inputs):
        return None
    return build("concat", *pieces, axis=node.attrs.axis)


def scatter_nothing(node: Node, build: Build) -> Node | None:
    """scatter(x, no updates) = x."""
    return None if node.inputs[1].size else node.inputs[0]


def reduce_nothing(node: Node, build: Build) -> Node | None:
    """reduce(x, no axes) = x."""
    return None if node.attrs.axes else node.inputs[0]


def reduce_unit_axes(node: Node, build: Build) -> Node | None:
    """reduce(x, axes) = reduce(reshape(x), axes longer than 1); an arg-reduction over 1 is 0."""
    (x,) = node.inputs
    axes, kind = node.attrs.axes, node.attrs.kind
    unit = [a for a in axes if x.shape[a] == 1]
    if not unit:
        return None
    if kind.startswith("arg"):
        return full(0, node.shape, node.dtype)
    shape = tuple(n for d, n in enumerate(x.shape) if d not in unit)
    kept = tuple(a - sum(u < a for u in unit) for a in axes if a not in unit)
    return build("reduce", build("reshape", x, shape=shape), kind=kind, axes=kept)


def loses_tiles(node: Node) -> bool:
    """Return whether a sum of a sum of products is over an axis that one operand is repeated along.

    As one sum it would have rows or columns only, and read both operands again for each result.
    """
    (x,) = node.inputs
    if x.op.name != "reduce" or x.attrs.kind != "sum" or x.inputs[0].op.name != "multiply":
        return False
    left = [d for d in range(x.inputs[0].ndim) if d not in x.attrs.axes]
    operands = x.inputs[0].inputs
    repeated = [{d for d in left if o.op.name == "expand" and o.inputs[0].shape[d] != o.shape[d]}
                for o in operands]
    return all(repeated) and any((left[a] in repeated[0]) != (left[a] in repeated[1])
                                 for a in node.attrs.axes)


def reduce_of_reduce(node: Node, build: Build) -> Node | None:
    """sum(sum(x, p), q) = sum(x, p and q), and so for prod, max, min.

    Not for sums and products in 16 bits: their inner result was rounded from float32. Nor for a
    matrix product, along its rows or columns.
    """
    (x,) = node.inputs
    kind = node.attrs.kind
    if x.op.name != "reduce" or x.attrs.kind != kind or kind.startswith("arg"):
        return None
    if loses_tiles(node):
        return None
    if kind in ("sum", "prod") and dtypes.accumulator(node.dtype) != node.dtype:
        return None
    (source,) = x.inputs
    left = [d for d in range(source.ndim) if d not in x.attrs.axes]
    axes = tuple(sorted({*x.attrs.axes, *(left[a] for a in node.attrs.axes)}))
    return build("reduce", source, kind=kind, axes=axes)


def reduce_of_empty(node: Node, build: Build) -> Node | None:
    """sum of nothing = 0; prod of nothing = 1."""
    if node.inputs[0].size or not node.size or node.attrs.kind not in ("sum", "prod"):
        return None
    return full(int(node.attrs.kind == "prod"), node.shape, node.dtype)


def reduce_of_uniform(node: Node, build: Build) -> Node | None:
    """max(full(v)) = min(full(v)) = v; sum(full(0)) = 0."""
    (x,) = node.inputs
    value = uniform_constant(x)
    if value is None or not x.size:
        return None
    if node.attrs.kind in ("max", "min") or (node.attrs.kind == "sum" and is_zero(x)):
        return spread(value, node.shape)
    return None


def _half(start: int, stop: int) -> Term:
    return term("slice", Leaf(0, (4, 6)), starts=(0, start), stops=(4, stop), steps=(1, 1))


_x, _y = Leaf(0, (4, 6)), Leaf(1, (4, 2))
_zeros = term("expand", term("reshape", 0.0, shape=(1, 1)), shape=(4, 1))

JOIN_RULES: tuple[Rule, ...] = (
    Rule("concat-one", ("concat",), concat_one, (term("concat", _x, axis=0),)),
    Rule("concat-empty-pieces", ("concat",), concat_empty_pieces,
         (term("concat", _x, Leaf(1, (0, 6)), _x, axis=0),)),
    Rule("concat-of-concat", ("concat",), concat_of_concat,
         (term("concat", term("concat", _x, _y, axis=1), _y, axis=1),)),
    Rule("concat-neighbours", ("concat",), concat_neighbours,
         (term("concat", _half(0, 2), _half(2, 5), axis=1),
          term("concat", _y, _zeros, _zeros, axis=1))),
    Rule("scatter-nothing", ("scatter",), scatter_nothing,
         (term("scatter", _x, Leaf(1, (0, 6)), Leaf(2, (0,), dtypes.int64), mode="add"),)),
)

REDUCE_RULES: tuple[Rule, ...] = (
    Rule("reduce-nothing", ("reduce",), reduce_nothing,
         (term("reduce", _x, kind="max", axes=()),)),
    Rule("reduce-unit-axes", ("reduce",), reduce_unit_axes,
         (term("reduce", Leaf(0, (1, 6)), kind="sum", axes=(0, 1)),
          term("reduce", Leaf(0, (1, 6)), kind="prod", axes=(0,)),
          term("reduce", Leaf(0, (1, 6)), kind="argmax", axes=(0,)))),
    Rule("reduce-of-reduce", ("reduce",), reduce_of_reduce,
         tuple(term("reduce", term("reduce", Leaf(0, (2, 3, 4)), kind=k, axes=(1,)),
                    kind=k, axes=(1,)) for k in ("sum", "prod", "max", "min"))),
    Rule("reduce-of-empty", ("reduce",), reduce_of_empty,
         (term("reduce", Leaf(0, (2, 0)), kind="prod", axes=(1,)),)),
    Rule("reduce-of-uniform", ("reduce",), reduce_of_uniform,
         (term("reduce", _zeros, kind="sum", axes=(0,)),
          term("reduce", _zeros, kind="min", axes=(0, 1)))),
)
