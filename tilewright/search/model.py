"""The analytic cost model: cycles of a Program, from counts of its instructions.

It orders candidates before they are compiled and gives a bound below which no machine goes. Ports,
widths and latencies are those that wide x86 and Arm cores share: two multiply-adds, two loads and
one store a cycle, six instructions in all, four cycles from one floating-point result to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.actions import Nest
from tilewright.limits import Limits
from tilewright.program import If, Instr, Loop, Program
from tilewright.search.traffic import blend, memory_cycles

WIDTH = 6.0  # instructions a cycle
LATENCY = 4.0  # cycles between dependent floating-point operations
LOOP = 2.0  # cycles of a loop's own step
FASTEST_HZ = 6e9  # no core is clocked higher: for bounds

_FREE = frozenset("const carry iv scaled result lanes splat bitcast thread threads lane".split())
_SLOW = {"div": 5.0, "sqrt": 6.0, "idiv": 12.0, "irem": 14.0}


@dataclass
class Count:
    """Work of one block, per run: port cycles, instructions, bytes."""

    fma: float = 0.0
    load: float = 0.0
    store: float = 0.0
    other: float = 0.0
    total: float = 0.0
    extra: float = 0.0  # cycles that nothing hides

    def add(self, other: Count, times: float) -> None:
        self.fma += other.fma * times
        self.load += other.load * times
        self.store += other.store * times
        self.other += other.other * times
        self.total += other.total * times
        self.extra += other.extra * times

    @property
    def cycles(self) -> float:
        return max(self.fma / 2, self.load / 2, self.store, self.other / 3,
                   self.total / WIDTH) + self.extra


@dataclass(frozen=True)
class Estimate:
    """cycles: what the model expects; bound: seconds below which no run can end."""

    cycles: float
    bound: float
    instructions: float = field(default=0.0, compare=False)


def estimate(programs: tuple[Program, ...], nest: Nest, limits: Limits) -> Estimate:
    """Return the cost of a nest's Programs on `limits.threads` workers, its memory's included."""
    cycles = 0.0
    instructions = 0.0
    for program in programs:
        count = _block(program.body, limits)
        share = limits.threads if program.parallel else 1
        cycles += count.cycles / share
        instructions += count.total / share
    cycles = blend(cycles, memory_cycles(nest, limits))
    return Estimate(cycles, instructions / (WIDTH + 2) / FASTEST_HZ, instructions)


def _block(body: list[Instr], limits: Limits) -> Count:
    count = Count()
    for instr in body:
        if isinstance(instr, Loop):
            count.add(_loop(instr, limits), 1.0)
        elif isinstance(instr, If):
            count.add(_block(instr.body, limits), 0.5)
            count.extra += 1.0
        else:
            _instruction(instr, count, limits)
    return count


def _loop(loop: Loop, limits: Limits) -> Count:
    trips = _trips(loop)
    inside = _block(loop.body, limits)
    total = Count()
    total.add(inside, trips)
    total.extra += LOOP * trips / 2
    chained = [c for c in loop.carries if c.type is not None and c.type.dtype.is_float]
    if chained:
        # each carried value waits for its own last step; independent ones overlap
        waiting = LATENCY * trips - total.cycles
        if waiting > 0:
            total.extra += waiting
        spilled = len(chained) - (limits.registers - 2)
        if spilled > 0:
            total.load += spilled * trips
            total.store += spilled * trips
    return total


def _trips(loop: Loop) -> float:
    lo, hi = loop.lo, loop.hi
    if lo.op == "const" and hi.op == "const":
        ends = [int.from_bytes(x.data, "little") for x in (lo, hi)]  # type: ignore[arg-type]
        return max(ends[1] - ends[0], 0)
    return 16.0


def _instruction(instr: Instr, count: Count, limits: Limits) -> None:
    op = instr.op
    if op in _FREE:
        return
    type_ = instr.type if instr.type is not None else instr.args[1].type
    lanes = type_.lanes if type_ is not None else 1
    size = type_.dtype.itemsize if type_ is not None else 8
    parts = max(1.0, lanes * size / limits.vector_bytes)  # registers that the value takes
    count.total += parts
    if op in ("fma", "mul", "add", "sub") and type_ is not None and type_.dtype.is_float:
        count.fma += parts
    elif op in ("load", "prefetch"):
        count.load += parts
    elif op == "store":
        count.store += parts
    elif op in ("gather", "scatter"):
        count.load += lanes
        count.total += lanes
        if op == "scatter":
            count.store += lanes
    elif op in _SLOW:
        count.other += _SLOW[op] * parts * (lanes if op.startswith("i") else 1)
    else:
        count.other += parts
