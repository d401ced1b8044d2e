"""What a nest costs, from its loops alone: cache lines moved, and roughly its instructions.

It orders candidates before they are lowered. Footprints are those of affine accesses: the lines
that the loops from some level inwards touch. What fits a cache is read from further away once for
each iteration of the loops outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2, prod

from tilewright.actions.access import OPAQUE, accesses, loads_of
from tilewright.actions.nest import BAND, Nest, base, merge_of, nominal, split_factor
from tilewright.kernel import Stage
from tilewright.kernel.value import postorder
from tilewright.limits import LINE, Limits
from tilewright.lower.regions import users

NEAR, FAR, MEMORY = 1.5, 3.0, 6.0  # cycles of a line from L2, from L3, from memory
SHORT_RUN = 4  # lines in a row below which prefetching fails
ALIAS, WAYS = 4096, 8  # bytes apart, and how many such lines the first cache holds
LATENCY = 4.0
OVERLAP = 0.3  # share of the lesser of arithmetic and memory that does not hide in the other
_NONE = frozenset("const state other index test divides load".split())
_WEIGHT = {"exp": 14.0, "exp2": 12.0, "log": 18.0, "log2": 18.0, "log1p": 22.0, "expm1": 20.0,
           "tanh": 22.0, "sin": 22.0, "cos": 22.0, "tan": 30.0, "erf": 22.0, "pow": 45.0,
           "power": 45.0, "divide": 5.0, "sqrt": 6.0, "rsqrt": 8.0, "floor_divide": 12.0,
           "remainder": 14.0}


@dataclass(frozen=True)
class Walk:
    """One access of a leaf: bytes advanced by each loop around it, outermost first."""

    itemsize: int
    strides: tuple[int, ...]
    store: bool = False
    stream: bool = False

    def lines(self, sizes: tuple[int, ...], level: int) -> tuple[float, float]:
        """Return (cache lines, lines in a row) that the loops from `level` inwards touch."""
        count, reach = 1.0, float(self.itemsize)
        for stride, size in sorted(zip(map(abs, self.strides[level:]), sizes[level:])):
            if stride == 0 or size <= 1:
                continue
            if stride <= max(reach, LINE):
                reach += stride * (size - 1)
            else:
                count *= size
        row = max(1.0, reach / LINE)
        return count * row, row

    def aliases(self, sizes: tuple[int, ...], level: int) -> bool:
        """Return whether lines collide in the first cache however few they are."""
        return any(s % ALIAS == 0 and s and n > WAYS
                   for s, n in zip(self.strides[level:], sizes[level:]))


def predict(nest: Nest, limits: Limits) -> float:
    """Return the cycles of a nest, a guess that orders nests of one kernel."""
    total = 0.0
    for leaf in nest.derived:
        sizes, walks = _sizes(nest, leaf), _walks(nest, leaf)
        work = _work(nest, leaf, sizes, walks, limits)
        total += blend(work, _memory(sizes, walks, limits)) / _share(nest, leaf, limits)
    return total


def memory_cycles(nest: Nest, limits: Limits) -> float:
    """Return the cycles that cache lines take to arrive, over all leaves."""
    return sum(_memory(_sizes(nest, leaf), _walks(nest, leaf), limits)
               / _share(nest, leaf, limits) for leaf in nest.derived)


def code_size(nest: Nest, limits: Limits) -> float:
    """Return roughly how many instructions a nest becomes, edges not counted."""
    total = 0.0
    for leaf in nest.derived:
        lanes, copies = 1, 1
        for loop in nest.paths[leaf]:
            if loop.kind == "vectorize":
                lanes = nominal(nest, loop.name)
            elif loop.kind in ("interleave", "unroll"):
                copies *= max(nominal(nest, loop.name), 1)
        walks = _walks(nest, leaf)
        size = max((w.itemsize for w in walks), default=4)
        parts = max(1.0, lanes * size / limits.vector_bytes)
        values = len(walks) if leaf in nest.copy else len(nest.stage_of(leaf).values)
        total += copies * parts * values
    return total


def blend(work: float, memory: float) -> float:
    """Return the cycles of work and memory that partly hide in one another."""
    return max(work, memory) + OVERLAP * min(work, memory)


def _sizes(nest: Nest, leaf: str) -> tuple[int, ...]:
    return tuple(max(nominal(nest, loop.name), 1) for loop in nest.paths[leaf])


def _share(nest: Nest, leaf: str, limits: Limits) -> float:
    """Return how many workers share a leaf."""
    shared = [nominal(nest, x.name) for x in nest.paths[leaf] if x.kind == "parallel"]
    return max(1.0, min(limits.threads, max(shared, default=1)))


# -- accesses as loops walk them --------------------------------------------------------------

def _steps(nest: Nest, loop: str) -> dict[str, int]:
    """Return what one iteration of a loop advances: itself, loops it was made from, and its axis.

    A merged loop counts as its inner part.
    """
    found = {base(loop): 1}
    times = 1
    while True:
        merged = merge_of(nest, loop)
        if merged is not None:
            loop = merged[1]
        elif loop.endswith((".0", ".1")):
            whole = loop[:-2]
            times *= split_factor(nest, whole) if loop.endswith(".0") else 1
            loop = whole
        else:
            return found
        found[base(loop)] = times


def _walks(nest: Nest, leaf: str) -> list[Walk]:
    kernel, stage = nest.kernel, nest.stage_of(leaf)
    path = [loop.name for loop in nest.paths[leaf]]
    steps = [_steps(nest, name) for name in path]
    found = []

    def affine(access, store: bool) -> Walk:
        strides = []
        shared = _shared(nest, access.buffer)
        for name, advanced in zip(path, steps):
            parts = [access.stride(a) * times for a, times in advanced.items()]
            stride = 0 if name in shared else sum(parts)
            strides.append(min(stride, OPAQUE) * access.itemsize)
        return Walk(access.itemsize, tuple(strides), store,
                    store and access.buffer in nest.streams)

    def dense(name: str, store: bool) -> Walk:
        copy = nest.copy[name]
        size = kernel.stage[copy.stage].operands[copy.operand].dtype.itemsize
        strides = [0] * len(path)
        step = size
        for loop in reversed(copy.layout):
            for i, advanced in enumerate(steps):
                strides[i] += step * advanced.get(base(loop), 0)
            step *= max(nominal(nest, loop), 1)
        return Walk(size, tuple(strides), store)

    if leaf in nest.copy:
        value = stage.operands[nest.copy[leaf].operand]
        return [*(affine(a, False) for a in loads_of(kernel, value)), dense(leaf, True)]
    copied: set[int] = set()
    for copy in nest.copies:
        if copy.stage == leaf:
            copied |= {id(v) for v in postorder([stage.operands[copy.operand]])}
            found.append(dense(copy.name, False))
    loads, stores = accesses(kernel, stage)
    found += [affine(a, False) for a in loads if id(a.value) not in copied]
    return found + [affine(a, True) for a in stores]


def _shared(nest: Nest, buffer: str) -> set[str]:
    """Return the loops around all that touch a scratch buffer: it is as large as one iteration."""
    if nest.kernel.buffer[buffer].kind != "scratch":
        return set()
    around = [{x.name for x in nest.paths[leaf]} for leaf in users(nest, buffer)]
    return set.intersection(*around) if around else set()


# -- memory -----------------------------------------------------------------------------------

def _memory(sizes: tuple[int, ...], walks: list[Walk], limits: Limits) -> float:
    cycles = 0.0
    for capacity, cost in ((limits.l1, NEAR), (limits.l2, FAR), (limits.l3, MEMORY)):
        level = _fits(sizes, walks, capacity, capacity == limits.l1)
        outer = max(level - 1, 0)
        times = prod(sizes[:outer])
        if level == 0 and capacity != limits.l1:
            whole = sum(w.lines(sizes, 0)[0] for w in walks) * LINE
            if whole <= capacity // 2:
                continue  # stays in this cache from one run to the next
        for walk in walks:
            lines, row = walk.lines(sizes, outer)
            if walk.stream:
                price = cost if cost == MEMORY else 0.0
            else:
                price = cost * (1.5 if walk.store else 1.0)
            cycles += lines * times * price * (2.0 if row < SHORT_RUN and cost > NEAR else 1.0)
    return cycles


def _fits(sizes: tuple[int, ...], walks: list[Walk], capacity: int, first: bool) -> int:
    """Return the outermost level from which inwards everything touched fits a cache."""
    level = len(sizes)
    while level > 0:
        bytes_ = sum(w.lines(sizes, level - 1)[0] for w in walks) * LINE
        if bytes_ > 0.75 * capacity or (first and any(w.aliases(sizes, level - 1)
                                                      for w in walks)):
            return level
        level -= 1
    return 0


# -- work -------------------------------------------------------------------------------------

def _work(nest: Nest, leaf: str, sizes: tuple[int, ...], walks: list[Walk],
          limits: Limits) -> float:
    """Return cycles of instructions: vectors, gathers, chains, loops."""
    path = nest.paths[leaf]
    serial = [i for i, x in enumerate(path) if x.kind not in BAND]
    lane = next((i for i, x in enumerate(path) if x.kind == "vectorize"), None)
    lanes = sizes[lane] if lane is not None else 1
    loads = stores = shuffles = 0.0
    for walk in walks:
        inner = max((i for i in serial if walk.strides[i] and sizes[i] > 1), default=-1)
        times = prod(sizes[i] for i in serial if i <= inner)
        moved, mixed = _per_visit(walk, path, sizes, lane, limits)
        shuffles += mixed * times
        if walk.store:
            stores += moved * times
            passed = [i for i in serial if i < inner and not walk.strides[i] and sizes[i] > 1]
            loads += moved * times if passed else 0.0  # partial results come back
        else:
            loads += moved * times
    points = prod(sizes)
    itemsize = max((w.itemsize for w in walks), default=4)
    arithmetic = 0.0 if leaf in nest.copy else _operations(nest.stage_of(leaf))
    vectors = points / lanes * max(1.0, lanes * itemsize / limits.vector_bytes)
    arithmetic *= vectors
    visits = prod(sizes[i] for i in serial)
    cycles = max(arithmetic / 2, loads / 2, stores, shuffles,
                 (arithmetic + loads + stores + shuffles + 2 * visits) / 5)
    innermost = next((path[i].name for i in reversed(serial) if sizes[i] > 1), None)
    if innermost is not None and nest.role(innermost, leaf) in ("reduce", "carry"):
        cycles = max(cycles, LATENCY * visits)
    return cycles


def _per_visit(walk: Walk, path: tuple, sizes: tuple[int, ...], lane: int | None,
               limits: Limits) -> tuple[float, float]:
    """Return (loads or stores, shuffles) of one visit to the band."""
    jams = [i for i, x in enumerate(path) if x.kind in BAND and i != lane]
    copies = prod(sizes[i] for i in jams if walk.strides[i])
    if lane is None or walk.strides[lane] == 0:
        return float(copies), 0.0
    lanes = sizes[lane]
    if abs(walk.strides[lane]) == walk.itemsize:
        return copies * max(1.0, lanes * walk.itemsize / limits.vector_bytes), 0.0
    if any(walk.strides[i] == walk.itemsize and sizes[i] >= 4 for i in jams):
        return float(copies), copies * log2(max(lanes, 2))
    return float(copies * lanes), float(copies * lanes)


def _operations(stage: Stage) -> float:
    """Return the operations of one point, a multiply-add as one."""
    found = sum(_WEIGHT.get(v.op, 1.0) for v in stage.values if v.op not in _NONE)
    return max(found - 1.0, 1.0) if stage.is_contraction else found
