"""Scalar expressions of a kernel's stages: a hash-consed DAG evaluated once per iteration.

    Value := const(bits)                      a constant of the value's dtype
           | index(expr)                      an index expression as int64
           | test(expr)                       bool: expr >= 0
           | divides(expr, d)                 bool: expr is a multiple of d
           | load(buffer, [expr..], guard)    an element; 0 where a guard (test, divides) is false,
                                              and then memory is not touched
           | state(i) | other(i)              state i of the stage's reduction; of the one merged in
           | op(Value..)                      an elementwise operation of the graph's table

Elementwise operations keep their graph names, rules and meaning; `cast` and `bitcast` take the
target from the value's dtype.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from tilewright.dtypes import DType, bool_, int64
from tilewright.index import Expr, symbols


class Value:
    """One interned scalar expression; see the module's grammar."""

    __slots__ = ("__weakref__", "args", "data", "dtype", "op")

    op: str
    args: tuple[Value, ...]
    dtype: DType
    data: Any  # by op, as the grammar has it

    def __repr__(self) -> str:
        return f"<{self.op}: {self.dtype}>"


_interned: weakref.WeakValueDictionary[tuple, Value] = weakref.WeakValueDictionary()


def make(op: str, args: tuple[Value, ...], dtype: DType, data: object = None) -> Value:
    """Return the interned value `op(args)`."""
    key = (op, tuple(map(id, args)), dtype.name, data)
    value = _interned.get(key)
    if value is None:
        value = Value()
        value.op, value.args, value.dtype, value.data = op, args, dtype, data
        _interned[key] = value
    return value


def const(number: object, dtype: DType) -> Value:
    """Return a constant; `number` is converted with NumPy's rules."""
    return make("const", (), dtype, np.asarray(number).astype(dtype.numpy).tobytes())


def const_bits(bits: bytes, dtype: DType) -> Value:
    """Return a constant from its bytes in memory."""
    return make("const", (), dtype, bits)


def const_number(value: Value) -> np.generic:
    """Return the NumPy scalar of a constant."""
    return np.frombuffer(value.data, dtype=value.dtype.numpy)[0]


def index(expr: Expr) -> Value:
    """Return an index expression as an int64 value."""
    return make("index", (), int64, expr)


def test(expr: Expr) -> Value:
    """Return whether expr >= 0; a constant where the bounds decide."""
    if expr.lo >= 0:
        return const(True, bool_)
    if expr.hi < 0:
        return const(False, bool_)
    return make("test", (), bool_, expr)


def divides(expr: Expr, divisor: int) -> Value:
    """Return whether divisor divides expr; a constant where known."""
    rest = expr % divisor
    if rest.is_const:
        return const(rest.const == 0, bool_)
    return make("divides", (), bool_, (rest, divisor))


def load(buffer: str, where: tuple[Expr, ...], dtype: DType,
         guard: tuple[Value, ...] = ()) -> Value:
    """Return an element of a buffer; guard values are `test` or `divides`, all must hold."""
    return make("load", guard, dtype, (buffer, where))


def state(slot: int, dtype: DType) -> Value:
    return make("state", (), dtype, slot)


def other(slot: int, dtype: DType) -> Value:
    return make("other", (), dtype, slot)


def postorder(roots: Iterable[Value]) -> list[Value]:
    """Return every value that `roots` need, arguments first; iterative, each once."""
    order: list[Value] = []
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        value, done = stack.pop()
        if done:
            order.append(value)
        elif id(value) not in seen:
            seen.add(id(value))
            stack.append((value, True))
            stack.extend((a, False) for a in reversed(value.args) if id(a) not in seen)
    return order


def rewrite(roots: Iterable[Value], leaf, memo: dict[int, Value] | None = None) -> list[Value]:
    """Rebuild values bottom-up; `leaf(value, args)` gives a replacement or None to keep the op.

    A `memo` of earlier calls (same `leaf`, its values still alive) is kept and extended.
    """
    memo = {} if memo is None else memo
    roots = list(roots)
    stack = [root for root in reversed(roots) if id(root) not in memo]
    while stack:  # values that the memo knows are not walked again
        value = stack[-1]
        if id(value) in memo:
            stack.pop()
            continue
        missing = [a for a in value.args if id(a) not in memo]
        if missing:
            stack += reversed(missing)
            continue
        stack.pop()
        args = tuple(memo[id(a)] for a in value.args)
        new = leaf(value, args)
        if new is None:
            same = all(a is b for a, b in zip(args, value.args))
            new = value if same else make(value.op, args, value.dtype, value.data)
        memo[id(value)] = new
    return [memo[id(root)] for root in roots]


def symbols_of(root: Value) -> set[str]:
    """Return the axes (and lets) that a value depends on through its index expressions."""
    found: set[str] = set()
    for value in postorder([root]):
        if value.op == "load":
            for e in value.data[1]:
                found |= {s.name for s in symbols(e)}
        elif value.op in ("index", "test"):
            found |= {s.name for s in symbols(value.data)}
        elif value.op == "divides":
            found |= {s.name for s in symbols(value.data[0])}
    return found
