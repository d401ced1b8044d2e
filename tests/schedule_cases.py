"""Kernels with their inputs, and the values that every schedule of them has to give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from fusion_tools import Memory, convolve, expand, full, matmul, reduce, softmax, variance

from tilewright.dtypes import float16, float32, float64, int64, uint8
from tilewright.fusion import KernelCall, fuse
from tilewright.graph import Node, apply, buffer
from tilewright.kernel import Kernel
from tilewright.kernel.evaluate import evaluate
from tilewright.limits import Limits

LIMITS = Limits(vector_bytes=32, registers=16, threads=2, instruction_cap=4_000)


@dataclass(frozen=True)
class Case:
    """A kernel with arrays for its inputs; `exact`: any order of reduction gives the same bits."""

    name: str
    kernel: Kernel
    inputs: dict[str, np.ndarray]
    exact: bool = True
    wanted: dict[str, np.ndarray] = field(default_factory=dict)


def cases_of(name: str, output: Node, exact: bool = True) -> list[Case]:
    """Return a case for every kernel that fusion makes of a graph."""
    memory: dict[int, np.ndarray] = {}
    found = []
    for call in fuse([output], LIMITS):
        assert isinstance(call, KernelCall)
        inputs = {}
        for b, o in zip(call.kernel.inputs, call.inputs, strict=True):
            source = memory.get(id(o.node))
            if source is None:
                source = o.node.attrs.storage.array.reshape(-1)
            inputs[b.name] = source[o.offset:o.offset + int(b.shape[0])]
        wanted = evaluate(call.kernel, inputs)
        for b, o in zip(call.kernel.outputs, call.outputs, strict=True):
            memory[id(o.node)] = wanted[b.name]
        found.append(Case(name, call.kernel, inputs, exact, wanted))
    return found


def values(*shape: int, dtype=float32, low: int = -3, high: int = 4, seed: int = 0) -> Node:
    rng = np.random.default_rng(seed)
    return held(rng.integers(low, high, shape).astype(dtype.numpy), dtype)


def held(array: np.ndarray, dtype) -> Node:
    return buffer(Memory(array), array.shape, dtype)


def _matmul(dtype) -> Node:
    product = matmul(values(7, 37, dtype=dtype), values(37, 9, dtype=dtype, seed=1))
    biased = apply("add", product, expand(values(9, dtype=dtype, seed=2), (7, 9)))
    return apply("maximum", biased, full(0, biased))


def _argmax() -> Node:
    array = np.random.default_rng(0).integers(-3, 4, (5, 43)).astype(np.float32)
    array[1, 7] = array[1, 30] = array[3, 42] = np.nan
    array[4] = -np.inf
    return reduce(held(array, float32), "argmax", 1)


def _padded_sum() -> Node:
    x = apply("pad", values(5, 19), low=(1, 3), high=(2, 4), interior=(0, 1))
    return reduce(x, "sum", 1)


def _gather() -> Node:
    where = held(np.array([3, 0, -1, 9, 6, 2, 2, 7, 1], np.int64), int64)
    return apply("gather", values(7, 11), where)


def _scatter(mode: str) -> Node:
    where = held(np.array([3, 0, 3, 9, -1, 3, 0, 5, 5], np.int64), int64)
    return apply("scatter", values(6, 10), values(9, 10, seed=1), where, mode=mode)


def _split_sum() -> Node:
    """A reduction in two stages: pieces, then their sum."""
    pieces = reduce(apply("reshape", values(6, 45), shape=(6, 5, 9)), "sum", 2)
    return reduce(apply("multiply", pieces, pieces), "sum", 1)


def _strided() -> Node:
    x = apply("slice", values(9, 41), starts=(8, 1), stops=(0, 40), steps=(-2, 3))
    return apply("add", x, full(1, x))


def _windows() -> Node:
    """Maxima of pairs: both lie side by side, and are picked from the same vectors."""
    return reduce(apply("reshape", values(4, 38), shape=(4, 19, 2)), "max", 2)


def _stacked() -> Node:
    """Three columns of rows, written by three stages, each a third of every line."""
    x, y = values(7, 9), values(7, 9, seed=1)
    columns = [apply("reshape", v, shape=(7, 9, 1)) for v in (apply("add", x, y), y, x)]
    return apply("concat", *columns, axis=2)


def _bools() -> Node:
    x = values(6, 35, low=0, high=9)
    return reduce(apply("less", x, full(8, x)), "min", 1)


def _broadcast() -> Node:
    a = apply("expand", values(3, 1, 13), shape=(3, 5, 13))
    return apply("multiply", apply("add", a, expand(values(5, 13, seed=1), (3, 5, 13))),
                 values(3, 5, 13, seed=2))


def _attention() -> Node:
    """A product of a softmax: stages that share axes and hand scratch over."""
    scores = matmul(values(5, 4), values(4, 11, seed=1))
    return matmul(softmax(scores), values(11, 6, seed=2))


GRAPHS: dict[str, tuple[Callable[[], Node], bool]] = {
    "matmul-f32": (lambda: _matmul(float32), True),
    "matmul-i64": (lambda: _matmul(int64), True),
    "conv": (lambda: convolve(values(3, 6, 7), values(4, 3, 3, 3, seed=1), 1), True),
    "softmax": (lambda: softmax(values(6, 37)), False),
    "variance": (lambda: variance(values(5, 41)), False),
    "argmax": (_argmax, True),
    "cumsum": (lambda: apply("cumulate", values(5, 23), kind="sum", axis=1), True),
    "cumsum-0": (lambda: apply("cumulate", values(9, 13), kind="sum", axis=0), True),
    "concat": (lambda: apply("concat", values(3, 9), values(4, 9, seed=1), axis=0), True),
    "concat-1": (lambda: apply("concat", values(5, 9), values(5, 4, seed=1), axis=1), True),
    "padded-sum": (_padded_sum, True),
    "transpose": (lambda: apply("permute", values(11, 19), axes=(1, 0)), True),
    "gather": (_gather, True),
    "scatter-add": (lambda: _scatter("add"), True),
    "scatter-set": (lambda: _scatter("set"), True),
    "broadcast": (_broadcast, True),
    "split-sum": (_split_sum, True),
    "strided": (_strided, True),
    "windows": (_windows, True),
    "stacked": (_stacked, True),
    "bool-all": (_bools, True),
    "uint8-sum": (lambda: reduce(values(7, 33, dtype=uint8, low=0, high=255), "sum", 0), True),
    "uint8-max": (lambda: reduce(values(7, 33, dtype=uint8, low=0, high=255), "max", 1), True),
    "f16-sum": (lambda: reduce(values(4, 70, dtype=float16), "sum", 1), True),
    "f64-sum": (lambda: reduce(values(3, 1100, dtype=float64), "sum", 0, 1), True),
    "size-1": (lambda: reduce(values(1, 6, 1), "sum", 0, 2), True),
    "size-0": (lambda: reduce(values(4, 0), "sum", 1), True),
    "size-0-out": (lambda: apply("negative", values(0, 5)), True),
    "attention": (_attention, False),
}

_made: dict[str, list[Case]] = {}


def cases(name: str) -> list[Case]:
    """Return the kernels of a graph, made once."""
    if name not in _made:
        make, exact = GRAPHS[name]
        _made[name] = cases_of(name, make(), exact)
    return _made[name]
