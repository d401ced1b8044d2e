"""The table of reductions: init, update and merge of each, as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.dtypes import DType, bool_, int64
from tilewright.kernel.kernel import State
from tilewright.kernel.value import Value, const, make, other, state

# additions of one accumulator before a tree joins them; see the numerics contract
MOST_SEQUENTIAL = 32


@dataclass(frozen=True)
class Reduction:
    """One row. `init(dtype)` gives the identities; `step(old, new)` joins two states.

    `lift(inputs)` makes a one-element state of the stage's inputs.
    """

    name: str
    init: Callable[[DType], tuple[Value, ...]]
    step: Callable[[Sequence[Value], Sequence[Value]], tuple[Value, ...]]


def lowest(dtype: DType) -> object:
    """Return the identity of max: -inf, the smallest integer or False."""
    if dtype.is_float:
        return -np.inf
    return False if dtype.is_bool else np.iinfo(dtype.numpy).min


def highest(dtype: DType) -> object:
    """Return the identity of min: inf, the greatest integer or True."""
    if dtype.is_float:
        return np.inf
    return True if dtype.is_bool else np.iinfo(dtype.numpy).max


def _simple(name: str, op: str, identity: Callable[[DType], object]) -> Reduction:
    return Reduction(
        name, lambda d: (const(identity(d), d),),
        lambda old, new: (make(op, (old[0], new[0]), old[0].dtype),))


def _arg(name: str, compare: Callable[[Value, Value], Value],
         identity: Callable[[DType], object]) -> Reduction:
    """First winner; the first NaN wins: better = beats or first NaN, ties to the lower index."""

    def step(old, new):
        best, where = old
        value, index = new
        better = compare(value, best)
        tie = make("equal", (value, best), bool_)
        if value.dtype.is_float:
            new_nan, old_nan = (make("isnan", (v,), bool_) for v in (value, best))
            not_old = make("bitwise_invert", (old_nan,), bool_)
            better = _or(better, _and(new_nan, not_old))
            tie = _or(tie, _and(new_nan, old_nan))
        take = _or(better, _and(tie, make("less", (index, where), bool_)))
        return (make("where", (take, value, best), value.dtype),
                make("where", (take, index, where), int64))

    return Reduction(name, lambda d: (const(identity(d), d),
                                      const(np.iinfo(np.int64).max, int64)), step)


def _and(a: Value, b: Value) -> Value:
    return make("bitwise_and", (a, b), bool_)


def _or(a: Value, b: Value) -> Value:
    return make("bitwise_or", (a, b), bool_)


def _less(a: Value, b: Value) -> Value:
    return make("less", (a, b), bool_)


ROWS: dict[str, Reduction] = {row.name: row for row in (
    _simple("sum", "add", lambda d: 0),
    _simple("prod", "multiply", lambda d: 1),
    _simple("max", "maximum", lowest),
    _simple("min", "minimum", highest),
    _arg("argmax", lambda a, b: _less(b, a), lowest),
    _arg("argmin", _less, highest),
)}


def make_state(name: str, inputs: Sequence[Value]) -> State:
    """Return the state of reduction `name` over `inputs` (value; and index for arg-reductions)."""
    row = ROWS[name]
    init = row.init(inputs[0].dtype)
    old = [state(i, v.dtype) for i, v in enumerate(init)]
    partial = [other(i, v.dtype) for i, v in enumerate(init)]
    return State(name, init, row.step(old, inputs), row.step(old, partial))
