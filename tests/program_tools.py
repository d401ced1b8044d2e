"""Random programs over the public namespace: source text, inputs and the values they must have.

`programs()` draws a `Program`; its repr is the function that was drawn, ready for a bug report.
Steps that are not continuous (roundings, comparisons, casts to integers, arg-max) are only given
values whose bits are known; see `program_reference`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import program_steps
import program_steps_arrays
import program_steps_more
from hypothesis import strategies as st
from program_builder import INT, Builder, numbers
from program_reference import NAMES, Value, mismatch

import tilewright as tw
from tilewright import config

_TABLES = program_steps.STEPS, program_steps_arrays.STEPS, program_steps_more.STEPS
STEPS = [function for table in _TABLES for function, weight in table.items()
         for _ in range(weight)]
SHAPES = [(), (1,), (3,), (7,), (0,), (2, 3), (3, 1), (1, 4), (4, 5), (3, 0), (2, 1, 3), (2, 3, 4),
          (1, 1, 1), (17,), (33,), (70,), (2, 19), (5, 2, 1, 3), (0, 2, 2)]
LARGE = [(4099,), (130, 257), (3, 70, 129), (1, 1000), (65000,), (17, 1, 700), (257, 130), (1,),
         (700,), (257,), (2, 0, 900), (128, 128), (513, 64), (7,)]


@dataclass
class Program:
    """A function of `inputs`: its source, and the values that it returns."""

    text: str
    inputs: list[Value]
    outputs: list[Value]
    stepwise: bool  # whether eager running computes every step before the next

    @property
    def function(self) -> Callable:
        return _compiled(self.text)

    def __repr__(self) -> str:
        given = "\n".join(
            f"{v.name} = {v.dtype}{list(v.array.shape)} {v.array.ravel()[:200].tolist()}"
            for v in self.inputs)
        return f"\n{given}\n{self.text}"

    def check(self, backend: str, threads: int, jitted: bool) -> None:
        """Run it, twice, and compare every output. Raises AssertionError."""
        with config.using(backend=backend, threads=threads):
            given = [tw.asarray(v.array) for v in self.inputs]
            function = self.function
            if jitted:
                function = tw.jit(function)
            elif self.stepwise:
                function = _compiled(_stepwise(self.text))
            for _ in range(2):
                for found, wanted in zip(function(*given), self.outputs, strict=True):
                    wrong = mismatch(np.asarray(found), wanted)
                    if wrong:
                        raise AssertionError(f"{wrong}\n{self!r}")


def _compiled(text: str) -> Callable:
    names: dict[str, Any] = {"tw": tw}
    exec(compile(text, "<program>", "exec"), names)
    return names["program"]


def _stepwise(text: str) -> str:
    """Return the program with every step computed before the next."""
    lines = []
    for line in text.splitlines():
        lines.append(line)
        if name := re.match(r" +(v\d+)(\[.*)? = ", line):
            lines.append(f"    tw.block_until_ready({name[1]})")
    return "\n".join(lines)


@st.composite
def programs(draw, most: int = 15, large: bool = False) -> Program:
    """Draw a program of at most about `most` steps; on arrays that make workers share, if large."""
    b = Builder(draw, 100_000 if large else 2000)
    for _ in range(draw(INT(1, 3))):
        name = draw(st.sampled_from(NAMES))
        shape = draw(st.sampled_from(LARGE if large else SHAPES))
        b.values.append(Value(f"v{len(b.values)}", numbers(draw, name, shape)))
    b.inputs = list(b.values)
    for _ in range(draw(INT(1, most))):
        draw(st.sampled_from(STEPS))(b)
        if len(b.lines) >= most:
            break
    made = b.values[len(b.inputs):]
    outputs = [v for v in made if v.name not in b.used]
    extra = [v for v in made if v.name in b.used and v.name not in b.unsettled]
    if extra and draw(st.booleans()):
        outputs.append(draw(st.sampled_from(extra)))
    outputs = outputs or b.inputs[:1]
    body = "".join(f"    {line}\n" for line in b.lines)
    head = f"def program({', '.join(v.name for v in b.inputs)}):\n"
    text = f"{head}{body}    return {', '.join(v.name for v in outputs)},\n"
    return Program(text, b.inputs, outputs, draw(st.booleans()))
