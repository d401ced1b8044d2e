"""Kernels, random schedules, and a way to run what is lowered of them."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from fusion_tools import (
    Memory,
    convolve,
    expand,
    full,
    matmul,
    reduce,
    softmax,
    variance,
)

from tilewright.actions import ACTIONS, Action, Loop, Nest, Schedule, start
from tilewright.actions.nest import nominal, operands
from tilewright.backends import backend
from tilewright.dtypes import float16, float32, float64, int64, uint8
from tilewright.errors import Illegal, TooLarge
from tilewright.fusion import KernelCall, fuse
from tilewright.graph import Node, apply, buffer
from tilewright.kernel import Kernel
from tilewright.kernel.evaluate import evaluate
from tilewright.limits import Limits
from tilewright.lower import Lowered, lower
from tilewright.program.verify import verify

LIMITS = Limits(vector_bytes=32, registers=16, threads=2, instruction_cap=4_000)
RED_ZONE = 64  # bytes around every array that must stay as they are


# --- kernels


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


# --- random schedules


def loops_of(nest: Nest) -> list[str]:
    return [n for n, p in nest.paths.items() if p and p[-1].name == n]


class Walk:
    """Random walks from a kernel's plain nest; an action that is Illegal is passed over."""

    def __init__(self, kernel: Kernel, rng: random.Random):
        self.kernel, self.rng = kernel, rng
        self.nest = start(kernel)
        self.actions: list[Action] = []
        self.refused: list[str] = []

    def go(self, steps: int) -> Schedule:
        for step in range(steps):
            late = step >= steps // 2
            for _ in range(4):
                action = self._draw(late)
                if action is None:
                    continue
                try:
                    self.nest = action.apply(self.nest)
                except Illegal as reason:
                    self.refused.append(str(reason))
                    continue
                self.actions.append(action)
                break
        return Schedule(tuple(self.actions))

    def _draw(self, late: bool) -> Action | None:
        rng = self.rng
        if late and rng.random() < 0.3:
            return self._band()
        if rng.random() < 0.2:
            found = [a for kind in ACTIONS.values() for a in kind.candidates(self.nest, LIMITS)]
            return rng.choice(found) if found else None
        early = (self._split, self._split, self._reorder, self._reorder, self._merge, self._place,
                 self._place, self._copy, self._partition)
        marks = (self._mark, self._mark, self._mark, self._parallel, self._stream, self._copy)
        return rng.choice(early + marks if late else early)()

    def _loop(self) -> str | None:
        loops = loops_of(self.nest)
        return self.rng.choice(loops) if loops else None

    def _split(self) -> Action | None:
        loop = self._loop()
        if loop is None:
            return None
        most = max(nominal(self.nest, loop), 1)
        factor = self.rng.choice((2, 3, 4, 8, self.rng.randint(1, most)))
        return ACTIONS["Split"](loop, factor)

    def _reorder(self) -> Action | None:
        leaf = self.rng.choice([n for n in self.nest.paths if n not in loops_of(self.nest)])
        path = [p.name for p in self.nest.paths[leaf]]
        if len(path) < 2:
            return None
        chosen = self.rng.sample(path, self.rng.randint(2, len(path)))
        return ACTIONS["Reorder"](tuple(chosen))

    def _merge(self) -> Action | None:
        pairs = [(p[-2].name, p[-1].name) for n, p in self.nest.paths.items()
                 if len(p) > 1 and p[-1].name == n]
        return ACTIONS["Merge"](*self.rng.choice(pairs)) if pairs else None

    def _place(self) -> Action | None:
        if len(self.kernel.stages) < 2 and self.rng.random() < 0.8:
            return None
        stage = self.rng.choice(self.kernel.stages).name
        return ACTIONS["Place"](stage, self.rng.choice(["root", *loops_of(self.nest)]))

    def _copy(self) -> Action | None:
        stage = self.rng.choice(self.kernel.stages)
        found = operands(stage)
        path = [p.name for p in self.nest.paths[stage.name]]
        if not found or not path:
            return None
        at = self.rng.choice(["root", *path])
        inside = path if at == "root" else path[path.index(at) + 1:]
        operand = self.rng.choice(list(found))
        layouts = self.rng.sample(inside, len(inside))
        for _ in range(6):  # drop what the operand does not depend on
            layout = tuple(layouts)
            action = ACTIONS["Copy"](f"{stage.name}:{operand}", at, layout, "scratch")
            if not layouts or self.rng.random() < 0.3:
                return action
            fewer = [x for x in layouts if x != self.rng.choice(layouts)]
            try:
                ACTIONS["Copy"](f"{stage.name}:{operand}", at, tuple(fewer),
                                "scratch").apply(self.nest)
            except Illegal:
                continue
            layouts = fewer
        return action

    def _partition(self) -> Action | None:
        loop = self._loop()
        if loop is None:
            return None
        return ACTIONS["Partition"](loop, self.rng.randint(1, max(nominal(self.nest, loop), 1)))

    def _mark(self) -> Action | None:
        loop = self._loop()
        kind = self.rng.choice(("Vectorize", "Vectorize", "Interleave", "Unroll"))
        return None if loop is None else ACTIONS[kind](loop)

    def _band(self) -> Action | None:
        """Mark an innermost loop that is not yet marked."""
        inner = [next((p.name for p in reversed(path) if p.kind == "serial"), None)
                 for name, path in self.nest.paths.items() if name not in loops_of(self.nest)]
        inner = [x for x in inner if x is not None]
        if not inner:
            return None
        kind = self.rng.choice(("Vectorize", "Vectorize", "Interleave"))
        return ACTIONS[kind](self.rng.choice(inner))

    def _parallel(self) -> Action | None:
        top = [x.name for x in self.nest.body if isinstance(x, Loop)]
        return ACTIONS["Parallel"](self.rng.choice(top)) if top else None

    def _stream(self) -> Action | None:
        return ACTIONS["StreamStore"](self.rng.choice(self.kernel.outputs).name)


def walk(kernel: Kernel, seed: int) -> tuple[Schedule, Nest, list[str]]:
    """Return a random legal schedule, its nest, and the reasons of what was refused on the way."""
    rng = random.Random(seed)
    made = Walk(kernel, rng)
    schedule = made.go(rng.randint(2, 12))
    return schedule, made.nest, made.refused


# --- running


def lowered(nest: Nest, limits: Limits = LIMITS) -> Lowered:
    """Lower a nest and verify its programs."""
    result = lower(nest, limits)
    for program in result.programs:
        verify(program, "lower")
    return result


def interpret(made: Lowered, case: Case, workers: int) -> dict[str, np.ndarray]:
    """Run on the interpreter; garbage in outputs and scratch, races are errors."""
    arrays = [case.inputs[p.name].copy() if p.kind == "input" else garbage_like(case, p.name)
              for p in made.binding.params]
    backend("interpreter").load(backend("interpreter").compile(
        backend("interpreter").render(made.programs, made.binding))).execute(
            arrays, workers, check_races=True)
    return {p.name: a for p, a in zip(made.binding.params, arrays) if p.kind == "output"}


def garbage_like(case: Case, name: str) -> np.ndarray:
    array = np.empty_like(case.wanted[name])
    array.view(np.uint8)[...] = 1 if array.dtype == bool else 0xA5
    return array


class Native:
    """A lowered kernel compiled by LLVM and called entry by entry, one worker after another."""

    def __init__(self, made: Lowered):
        self.made = made
        llvm = backend("llvm")
        self.loaded = llvm.load(llvm.compile(llvm.render(made.programs, made.binding)))
        self.entries = [ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                                         ctypes.c_int64)(a) for a in self.loaded.addresses]

    def run(self, case: Case, workers: int, aligned: bool = False) -> dict[str, np.ndarray]:
        """Run with garbage in outputs and scratch. Arrays lie off a line unless `aligned`."""
        binding = self.made.binding
        held, arrays = [], []
        for p in binding.params:
            like = case.inputs[p.name] if p.kind == "input" else garbage_like(case, p.name)
            whole, array = _fenced(like, 0 if aligned else like.dtype.itemsize)
            held.append((whole, whole.copy(), array, p.kind))
            arrays.append(array)
        areas = [_fenced(np.full(n, 0xFF, np.uint8), 0)[1]
                 for n in (binding.global_bytes, binding.private_bytes * workers)]
        table = np.array([a.ctypes.data for a in (*arrays, *areas)], np.uintp)
        extents = np.zeros(1, np.int64)
        for entry, program in zip(self.entries, self.made.programs):
            count = workers if program.parallel else 1
            for worker in range(count):
                entry(table.ctypes.data, extents.ctypes.data, worker, count)
        for whole, before, array, kind in held:
            start_ = array.ctypes.data - whole.ctypes.data
            outside = np.ones(whole.size, bool)
            if kind == "output":
                outside[start_:start_ + array.nbytes] = False
            assert np.array_equal(whole[outside], before[outside]), "wrote outside its arrays"
        return {p.name: a for p, a in zip(binding.params, arrays) if p.kind == "output"}


def _fenced(like: np.ndarray, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (bytes, array in their midst); the array lies `shift` bytes past a line's start."""
    whole = np.full(like.nbytes + 4 * RED_ZONE, 0x5A, np.uint8)
    first = -whole.ctypes.data % RED_ZONE + RED_ZONE + shift
    array = whole[first:first + like.nbytes].view(like.dtype)
    array[...] = like
    return whole, array


def compare(case: Case, got: dict[str, np.ndarray]) -> None:
    """Assert the values of a run: to the bit where the case is exact."""
    for name, want in case.wanted.items():
        if case.exact or not np.issubdtype(want.dtype, np.floating):
            np.testing.assert_array_equal(got[name], want, err_msg=name)
        else:
            np.testing.assert_allclose(got[name], want, rtol=2e-5, atol=2e-6, err_msg=name)


def check(case: Case, nest: Nest, backends: Sequence[str] = ("interpreter", "llvm"),
          workers: Sequence[int] = (1, 2), limits: Limits = LIMITS) -> bool:
    """Lower and run a nest everywhere; returns False where lowering refuses it."""
    try:
        made = lowered(nest, limits)
    except (Illegal, TooLarge):
        return False
    parallel = any(p.parallel for p in made.programs)
    for name in backends:
        native = Native(made) if name == "llvm" else None
        for count in workers if parallel else workers[:1]:
            if native is not None:
                compare(case, native.run(case, count, aligned=bool(nest.streams)))
            else:
                compare(case, interpret(made, case, count))
    return True


def schedules(name: str, count: int, seed: int = 0) -> Iterator[tuple[Case, Schedule, Nest]]:
    """Yield random schedules of a graph's kernels that print differently."""
    for case in cases(name):
        seen: set[str] = set()
        number = 0
        while len(seen) < count and number < 4 * count:
            schedule, nest, _ = walk(case.kernel, seed + number)
            number += 1
            text = str(nest)
            if text not in seen:
                seen.add(text)
                yield case, schedule, nest
