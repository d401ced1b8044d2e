"""Random schedules, and a way to run what is lowered of them."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator, Sequence

import numpy as np
from schedule_cases import GRAPHS, LIMITS, Case, cases, cases_of, values

from tilewright.actions import ACTIONS, Action, Loop, Nest, Schedule, start
from tilewright.actions.nest import nominal
from tilewright.backends import backend
from tilewright.errors import Illegal, TooLarge
from tilewright.kernel import Kernel
from tilewright.limits import Limits
from tilewright.lower import Lowered, lower
from tilewright.program.verify import verify

RED_ZONE = 64  # bytes around every array that must stay as they are

__all__ = ["GRAPHS", "LIMITS", "Case", "Native", "cases", "cases_of", "check", "compare",
           "interpret", "lowered", "schedules", "values", "walk"]


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
        found = stage.operands
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
