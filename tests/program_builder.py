"""A random program while it is drawn: its values so far, and how operands are picked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from program_reference import (
    DTYPES,
    FLOATS,
    LARGEST,
    SIGNED,
    Value,
    bounded,
    convert,
    rounded_to,
    step_of,
)

INT = st.integers
EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 3.0]


@dataclass
class Builder:
    """A program being drawn."""

    draw: Callable
    most: int = 2000  # elements of a value
    values: list[Value] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    unsettled: set[str] = field(default_factory=set)  # signs of zeros are not known

    def pick(self, test: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """Return one of the values that pass, the latest by preference; None if none does."""
        fitting = [v for v in reversed(self.values) if v.name not in self.unsettled and test(v)]
        return fitting[self.draw(INT(0, len(fitting) - 1))] if fitting else None

    def axis(self, v: Value) -> int:
        return self.draw(INT(-v.array.ndim, v.array.ndim - 1))

    def axes(self, v: Value) -> Any:
        """Draw None, an axis or several."""
        n = v.array.ndim
        kind = self.draw(INT(0, 2))
        if kind == 0 or not n:
            return None
        if kind == 1:
            return self.axis(v)
        return tuple(self.draw(st.lists(INT(0, n - 1), min_size=1, max_size=n, unique=True)))

    def add(self, text: str, array: np.ndarray, error: np.ndarray | None = None,
            rounded: bool = False, parts: tuple[Value, ...] = ()) -> Value | None:
        """Append a step; `{0}`, `{1}` in `text` are the names of `parts`."""
        array = np.asarray(array)
        if array.size > self.most:
            return None
        if error is not None and not np.any(error):
            error = None
        v = Value(f"v{len(self.values)}", array, error, rounded)
        self.used.update(p.name for p in parts)
        self.lines.append(f"{v.name} = {text.format(*(p.name for p in parts))}")
        self.values.append(v)
        return v

    def settle(self, v: Value | None) -> Value | None:
        """Make zeros positive, after a step that may give either sign; returns the new value."""
        if v is None or not v.is_float or not (v.array == 0).any():
            return v
        self.unsettled.add(v.name)
        plus = (v.array.astype(np.float32) if v.array.dtype.itemsize == 2 else v.array) + 0.0
        plus = plus.astype(v.array.dtype)
        return self.add("{0} + 0.0", plus, v.error, v.rounded, (v,))

    def cast(self, v: Value, name: str) -> Value:
        """Return what `v` means to a step that takes dtype `name`; adds no step."""
        if v.dtype == name:
            return v
        array = convert(v.array, name)
        error = v.error
        if error is not None and name in FLOATS:
            error = bounded(array, error + step_of(array))
        inexact = v.is_float and DTYPES[name].itemsize < v.array.dtype.itemsize
        return Value(v.name, array, error, v.rounded or inexact)


def numbers(draw, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw an array: small integers, edge values, or any."""
    kind = draw(st.sampled_from(["small", "edges", "any"]))
    rng = np.random.default_rng(draw(INT(0, 2**16)))
    if name == "bool":
        return rng.random(shape) < 0.5
    if name in FLOATS:
        if kind == "small":
            return rng.integers(-4, 5, shape).astype(np.float32).astype(DTYPES[name])
        if kind == "any":
            return rounded_to(rng.standard_normal(shape) * 2, name)
        info = np.finfo(np.float32 if name == "bfloat16" else name)
        some = [*EDGES, float(info.smallest_normal), -float(info.smallest_subnormal) * 3,
                float(LARGEST[name])]
        return rounded_to(rng.choice(some, shape), name)
    info = np.iinfo(name)
    if kind == "small":
        return rng.integers(0 if info.min == 0 else -4, 6, shape).astype(name)
    if kind == "any":
        return rng.integers(info.min, info.max, shape, dtype=name, endpoint=True)
    some = [info.min, info.max, 0, 1, 2, info.max - 1, info.min + 1, info.bits, info.bits - 1]
    return np.array([some[i] for i in rng.integers(0, len(some), int(np.prod(shape)))],
                    name).reshape(shape)


def literal(draw, v: Value) -> int | float:
    """Draw a Python number to stand beside `v`; exact in every float dtype."""
    if v.is_float:
        return draw(st.sampled_from([2.0, 1.0, 0.0, -0.0, -1.5, 0.5, 3, 1, 0, -1, float("inf"),
                                     float("nan")]))
    return draw(st.sampled_from([2, 1, 0, 3, 7, 1.0, 0.5, -2.0, *([-1] * (v.dtype in SIGNED))]))


def spell(number: object) -> str:
    """Return the source of a literal."""
    if isinstance(number, float) and number != number:
        return "tw.nan"
    if isinstance(number, float) and np.isinf(number):
        return "tw.inf" if number > 0 else "-tw.inf"
    return repr(number)
