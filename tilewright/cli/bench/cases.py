"""What the benchmark measures: each case written once, against any library in `libraries`.

A case is a function of a `Library` and arrays of it. Inputs are float32, uniform in [-0.5, 0.5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilewright.cli.bench.libraries import Library

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """One row of a suite.

    name      as it is printed, and what ``--filter`` looks at
    shapes    of the inputs
    function  (library, *arrays) -> array
    flops     floating-point operations, one for each arithmetic operation or function of an element
    terms     values that are added up into one element of the result
    scale     size of the values added up; with `terms` it sets the tolerance
    """

    name: str
    shapes: tuple[Shape, ...]
    function: Callable[..., Any]
    flops: float
    terms: int = 1
    scale: float = 1.0

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        """Return fresh inputs: C-contiguous float32, the same for the same seed."""
        rng = np.random.default_rng(seed)
        return [rng.random(s, dtype=np.float32) - np.float32(0.5) for s in self.shapes]

    def tolerance(self, reference: np.ndarray) -> np.ndarray:
        """Return the absolute error that float32 arithmetic may make in each element."""
        size = np.abs(np.nan_to_num(np.asarray(reference, np.float64)))
        return 2e-5 * size + 2e-6 * self.scale * np.sqrt(self.terms)


def _elementwise(name: str, n: int, arity: int, ops: int, function: Callable[..., Any]) -> Case:
    return Case(f"{name} {n}x{n}", ((n, n),) * arity, function, float(ops * n * n))


def _reduction(name: str, n: int, function: Callable[..., Any], terms: int, arity: int = 1) -> Case:
    return Case(f"{name} {n}x{n}", ((n, n),) * arity, function, float(arity * n * n), terms)


def _move(name: str, shape: Shape, order: tuple[int, ...]) -> Case:
    return Case(name, (shape,), lambda lib, a: lib.permute(a, order), 0.0)


def _concat(axis: int, n: int = 2048) -> Case:
    return Case(f"cat axis {axis} {n}x{n}", ((n, n),) * 2,
                lambda lib, a, b: lib.concat([a, b], axis), 0.0)


def _matmul(n: int, left: bool = False, right: bool = False) -> Case:
    def function(lib: Library, a: Any, b: Any) -> Any:
        return lib.matmul(lib.transposed(a) if left else a, lib.transposed(b) if right else b)

    suffix = f" {'At' if left else 'A'}@{'Bt' if right else 'B'}" if left or right else ""
    return Case(f"matmul {n}{suffix}", ((n, n), (n, n)), function, 2.0 * n ** 3, n)


def _vecmat(k: int, n: int) -> Case:
    return Case(f"vecmat {k}x{n}", ((1, k), (k, n)), lambda lib, a, b: lib.matmul(a, b),
                2.0 * k * n, k)


def _conv(name: str, x: Shape, w: Shape, padding: int = 0, channels_last: bool = False) -> Case:
    batch, c, height, width = x
    out, _, kh, kw = w
    pixels = (height + 2 * padding - kh + 1) * (width + 2 * padding - kw + 1)

    def function(lib: Library, image: Any, weight: Any) -> Any:
        if channels_last:
            image = lib.view_permuted(image, (0, 3, 1, 2))
        return lib.conv2d(image, weight, padding)

    stored = (batch, height, width, c) if channels_last else x
    return Case(name, (stored, w), function, 2.0 * batch * out * pixels * c * kh * kw, c * kh * kw)


def _softmax(rows: int, columns: int) -> Case:
    return Case(f"softmax {rows}x{columns}", ((rows, columns),), lambda lib, a: lib.softmax(a),
                5.0 * rows * columns, scale=1 / columns)


def _layer_norm(rows: int, columns: int) -> Case:
    return Case(f"layer norm {rows}x{columns}", ((rows, columns),),
                lambda lib, a: lib.layer_norm(a), 7.0 * rows * columns, 8)


def _attention(batch: int, heads: int, length: int, size: int) -> Case:
    shape = (batch, heads, length, size)
    scores = batch * heads * length * length
    return Case(f"attention {'x'.join(map(str, shape))}", (shape,) * 3,
                lambda lib, q, k, v: lib.attention(q, k, v), scores * (4.0 * size + 6.0), length,
                scale=1 / length)


def kernels() -> list[Case]:
    """Return the suite `kernels`: single operations as people write them."""
    add = partial(_elementwise, "add", arity=2, ops=1, function=lambda lib, a, b: a + b)
    return [
        add(1), add(1024), add(4096),
        _elementwise("add constant", 4096, 1, 1, lambda lib, a: a + 2.0),
        _elementwise("neg", 4096, 1, 1, lambda lib, a: -a),
        _elementwise("sub", 4096, 2, 1, lambda lib, a, b: a - b),
        _elementwise("a*a+b*b", 4096, 2, 3, lambda lib, a, b: a * a + b * b),
        _elementwise("relu", 4096, 1, 1, lambda lib, a: lib.relu(a)),
        _elementwise("exp", 2048, 1, 1, lambda lib, a: lib.exp(a)),
        _elementwise("sqrt", 2048, 1, 1, lambda lib, a: lib.sqrt(a)),
        _elementwise("pow", 2048, 2, 1, lambda lib, a, b: a ** b),
        _reduction("sum", 2048, lambda lib, a: lib.sum(a), 2048 * 2048),
        _reduction("sum", 4096, lambda lib, a: lib.sum(a), 4096 * 4096),
        _reduction("max", 4096, lambda lib, a: lib.max(a), 1),
        _reduction("sum axis 0", 4096, lambda lib, a: lib.sum(a, 0), 4096),
        Case("partial sum 16x1M", ((4096, 4096),),
             lambda lib, a: lib.sum(lib.reshape(a, (16, 1 << 20)), 1), float(4096 * 4096), 1 << 20),
        _reduction("mul-sum", 4096, lambda lib, a, b: lib.sum(a * b), 4096 * 4096, arity=2),
        _concat(0), _concat(1),
        _move("permute 1024x1024", (1024, 1024), (1, 0)),
        _move("permute 4096x4096", (4096, 4096), (1, 0)),
        _move("array packing 2048x64x32", (2048, 64, 32), (1, 0, 2)),
        _move("double permute 64^4", (64,) * 4, (1, 0, 3, 2)),
        *(_matmul(n) for n in (256, 512, 1024, 2048)),
        _matmul(512, right=True), _matmul(512, left=True, right=True), _matmul(512, left=True),
        _vecmat(1024, 1024), _vecmat(1024, 4096), _vecmat(4096, 1024), _vecmat(4096, 4096),
        *(_conv(f"conv 3x3 batch 32 {c}->32", (32, c, 34, 34), (32, c, 3, 3)) for c in (4, 16, 64)),
        _conv("conv 3x3 channels-last 12->32", (1, 12, 64, 128), (32, 12, 3, 3), 1, True),
        _conv("conv 1x1 batch 4 128->128", (4, 128, 128, 128), (128, 128, 1, 1)),
        _softmax(64, 1000), _softmax(4096, 1024),
        _layer_norm(4096, 1024),
        _attention(8, 8, 256, 64),
    ]


SUITES: dict[str, Callable[[], list[Case]]] = {"kernels": kernels}


def select(suite: str, pattern: str = "") -> list[Case]:
    """Return the cases of `suite` whose names hold every word of `pattern` (case-insensitive)."""
    words = pattern.lower().split()
    return [c for c in SUITES[suite]() if all(w in c.name.lower() for w in words)]
