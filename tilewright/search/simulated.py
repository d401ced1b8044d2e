"""A device that only pretends: seconds from a model, its own clock, mishaps by wish.

Decisions of the search are tested on it, without a machine: equal inputs and seed give equal
answers, bit for bit, on every host.

    clock = Clock()
    device = Simulated(noise=0.05, seed=1, clock=clock)
    search(kernel, start, Target("interpreter", Limits()), device, budget, seed, clock=clock)

Sources are those of the interpreter backend, whose text is the Programs themselves. With `cost`, a
function of the source, they may be any text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tilewright.backends.interpreter import Interpreter
from tilewright.errors import BackendError
from tilewright.kernel import Kernel
from tilewright.limits import Limits
from tilewright.program.ir import Instr, Loop, Program
from tilewright.search.measurer import Code, Failure

COMPILE_MISHAPS = ("rejected", "compiles forever", "compiler dies", "compiler eats memory")
RUN_MISHAPS = ("hangs", "crashes", "eats memory", "returns zeros", "slow", "crashes later")
COMPILE_TIMEOUT, LEAST_RUN_TIMEOUT, RUN_TIMEOUT_FACTOR = 10.0, 1.0, 50.0  # as the real device's
SLOW = 100.0
BURST = 4.0

_COMPILE_FAILURES = {
    "rejected": ("compile_error", "the source is not accepted", 1e-3),
    "compiles forever": ("timeout", f"compiling took over {COMPILE_TIMEOUT:g} s", COMPILE_TIMEOUT),
    "compiler dies": ("crash", "the compiler died of signal 11", 0.3),
    "compiler eats memory": ("memory", "the compiler ran out of memory", 1.0),
}


class Clock:
    """Seconds that pass only when told; call it as one calls `time.monotonic`."""

    def __init__(self, now: float = 0.0):
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        if seconds < 0:
            raise ValueError(f"advance: cannot go back in time (by {-seconds} s)")
        self.now += seconds


class Simulated:
    """A `Measurer` whose figures come from a model.

    cost       seconds of one run by source (default: `Processor` of `limits`)
    noise      relative spread: samples are ``seconds * (1 + noise * |n|)``, n standard normal, as
               disturbances only ever delay
    bursts     probability that a sample takes `BURST` times as long
    behave     what goes wrong with a source, by name, from COMPILE_MISHAPS and RUN_MISHAPS; "" for
               nothing. A mishap takes as much of the clock as the real device's limits allow
    workers    compilers that share the sources; each takes 2 ms and 10 us per line

    compiled, linked, sampled    how often each was done
    """

    def __init__(self, cost: Callable[[str], float] | None = None, *, noise: float = 0.0,
                 bursts: float = 0.0, seed: int = 0, behave: Callable[[str], str] | None = None,
                 clock: Clock | None = None, limits: Limits | None = None, workers: int = 2):
        self.cost = cost or Processor(limits or Limits()).seconds
        self.noise_level, self.bursts, self.workers = noise, bursts, workers
        self.behave = behave or (lambda source: "")
        self.clock = clock or Clock()
        self.compiled = self.linked = self.sampled = 0
        self._random = np.random.default_rng(seed)
        self._handles: list[_Linked] = []
        self._deadline = LEAST_RUN_TIMEOUT

    def begin(self, kernel: Kernel, given: Code) -> int | Failure:
        """Make `given` the reference, which is trusted: only its seconds are asked."""
        self._handles.clear()
        self._deadline = float("inf")
        handle = self.link(given)
        if isinstance(handle, int):
            reference = self._handles[handle].seconds
            self._deadline = max(LEAST_RUN_TIMEOUT, RUN_TIMEOUT_FACTOR * reference)
        return handle

    def compile(self, sources: Iterable[str]) -> list[bytes | Failure]:
        """Accept every source but those that misbehave; the clock moves by the compilers' time."""
        results: list[bytes | Failure] = []
        seconds = []
        for source in sources:
            self.compiled += 1
            mishap = self._mishap(source)
            kind, reason, taken = _COMPILE_FAILURES.get(mishap, ("", "", 0.0))
            results.append(Failure(kind, reason) if kind else source.encode())
            seconds.append(taken or 2e-3 + 10e-6 * source.count("\n"))
        busy = [0.0] * self.workers
        for each in seconds:
            busy[busy.index(min(busy))] += each
        self.clock.advance(max(busy))
        return results

    def link(self, code: Code) -> int | Failure:
        """Return a handle, or what came of the first run."""
        self.linked += 1
        source = code.code.decode()
        mishap = self._mishap(source)
        try:
            seconds = self.cost(source) * (SLOW if mishap == "slow" else 1.0)
        except BackendError as error:
            return Failure("compile_error", str(error))
        failure, taken = self._first_run(mishap, seconds)
        self.clock.advance(1e-3 + taken)
        if failure is not None:
            return failure
        self._handles.append(_Linked(seconds, mishap))
        return len(self._handles) - 1

    def sample(self, handle: int) -> float | Failure:
        """Return the model's seconds with noise."""
        linked = self._handles[handle]
        self.sampled += 1
        linked.samples += 1
        if linked.mishap == "crashes later" and linked.samples > 1:
            self.clock.advance(0.3)
            return Failure("crash", "the run died of signal 11")
        normal, chance = self._random.standard_normal(), self._random.random()
        seconds = linked.seconds * (1 + self.noise_level * abs(float(normal)))
        if chance < self.bursts:
            seconds *= BURST
        self.clock.advance(max(seconds, 20e-6))  # short runs repeat within a sample
        return seconds

    def samples(self, handle: int, count: int) -> list[float] | Failure:
        """Return `count` samples, or the first failure."""
        found = []
        for _ in range(count):
            seconds = self.sample(handle)
            if isinstance(seconds, Failure):
                return seconds
            found.append(seconds)
        return found

    def move(self) -> None:
        """Nothing: its memory has no places."""

    def noise(self) -> float:
        """Return the relative spread that was asked for."""
        return self.noise_level

    def close(self) -> None:
        """Forget every handle."""
        self._handles.clear()

    def __enter__(self) -> Simulated:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _mishap(self, source: str) -> str:
        mishap = self.behave(source)
        if mishap and mishap not in (*COMPILE_MISHAPS, *RUN_MISHAPS):
            raise ValueError(f"simulated: cannot behave as {mishap!r} (known: "
                             f"{', '.join((*COMPILE_MISHAPS, *RUN_MISHAPS))})")
        return mishap

    def _first_run(self, mishap: str, seconds: float) -> tuple[Failure | None, float]:
        """Return what came of a first run, and the seconds until that was known."""
        limit = self._deadline
        if mishap == "hangs" or seconds > limit:
            return Failure("timeout", f"the first run took over {limit:.3g} s"), limit
        if mishap == "crashes":
            return Failure("crash", "the run died of signal 11"), 0.3
        if mishap == "eats memory":
            return Failure("memory", "the run died of running out of memory"), 0.3
        if mishap == "returns zeros":
            return Failure("wrong", "out0 differs by up to 0.5 (1e-05 is allowed)"), 1e-6
        return None, seconds


class _Linked:
    """A candidate on the device."""

    def __init__(self, seconds: float, mishap: str):
        self.seconds, self.mishap, self.samples = seconds, mishap, 0


# -- the default model -----------------------------------------------------------------------

_CYCLES = {"div": 4.0, "sqrt": 4.0, "idiv": 20.0, "irem": 20.0, "store": 1.0, "const": 0.0,
           "lanes": 0.0, "iv": 0.0, "scaled": 0.0, "carry": 0.0, "result": 0.0, "bitcast": 0.0,
           "lane": 1.0, "shuffle": 1.0}
_FREQUENCY = 3e9
_LATENCY = 4.0  # cycles from an operand to a result
_LAUNCH = 200.0  # cycles of a call
_ENTER = 3000.0  # cycles until all workers have entered
_UNKNOWN_TRIPS = 8.0
_LINE = 64


class Processor:
    """A toy of a processor: seconds of Programs, by throughput, latency, registers and strides.

    Two instructions per cycle; one cycle of a loop's own; a chain of carried values takes 4 cycles
    per link; carried vectors beyond the registers are spilled; an access that steps over more than
    a cache line per iteration of the innermost loop misses if its buffer could exceed L1.
    """

    def __init__(self, limits: Limits):
        self.limits = limits

    def seconds(self, source: str) -> float:
        """Return the seconds of one run. Raises BackendError for text that is no Program's."""
        programs = Interpreter().load(source.encode()).programs
        return sum(map(self._program, programs)) / _FREQUENCY

    def _program(self, program: Program) -> float:
        walk = _Walk(self.limits)
        cycles = walk.block(program.body, {})
        if program.parallel and self.limits.threads > 1:
            return _LAUNCH + _ENTER + cycles / self.limits.threads
        return _LAUNCH + cycles


class _Walk:
    """Cycles of blocks. `value` and `step` hold integers where they are known: at the middle of
    all loops, and the difference from one iteration of the innermost loop to the next."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.value: dict[Instr, float] = {}
        self.steps: dict[Instr, dict[Instr, float]] = {}  # per loop variable

    def block(self, body: list[Instr], depth: dict[Instr, float],
              inner: Instr | None = None) -> float:
        """Return a block's cycles of throughput; `depth` gains the latency since its carries."""
        total = 0.0
        for instr in body:
            if instr.op == "loop":
                cycles = self._loop(instr)  # type: ignore[arg-type]
            elif instr.op == "if":
                cycles = 1.0 + self.block(instr.body, depth, inner)  # type: ignore[attr-defined]
            else:
                self._evaluate(instr)
                cycles = self._cycles(instr, inner)
            total += cycles
            reached = [depth[a] for a in instr.args if a in depth]
            if reached:
                free = _CYCLES.get(instr.op) == 0
                depth[instr] = max(reached) + (cycles if instr.op == "loop" else
                                               0.0 if free else _LATENCY)
        return total

    def _loop(self, loop: Loop) -> float:
        low, high = (self.value.get(x) for x in (loop.lo, loop.hi))
        known = low is not None and high is not None
        trips = max(high - low, 0.0) if known else _UNKNOWN_TRIPS  # type: ignore[operator]
        self.value[loop.var] = (low or 0.0) + max(trips - 1, 0.0) / 2
        self.steps[loop.var] = {loop.var: 1.0}
        for scaled in loop.scaled:
            factor = float(scaled.data[1])  # type: ignore[index]
            self.value[scaled] = self.value[loop.var] * factor
            self.steps[scaled] = {loop.var: factor}
        depth = dict.fromkeys(loop.carries, 0.0)
        throughput = self.block(loop.body, depth, loop.var) + 1.0
        chain = max((depth.get(y, 0.0) for y in loop.yields), default=0.0)
        vectors = sum(c.type is not None and c.type.lanes > 1 for c in loop.carries)
        spilled = max(vectors - (self.limits.registers - 4), 0)
        return trips * (max(throughput, chain) + spilled)

    def _cycles(self, instr: Instr, inner: Instr | None) -> float:
        if instr.op in ("gather", "scatter"):
            return float(instr.args[0].type.lanes)  # type: ignore[union-attr]
        cycles = _CYCLES.get(instr.op, 0.5)
        if instr.op in ("load", "store"):
            kind = instr.type or instr.args[1].type
            step = self.steps.get(instr.args[0], {}).get(inner, 0.0)  # type: ignore[arg-type]
            size = kind.dtype.itemsize  # type: ignore[union-attr]
            far = self.value.get(instr.args[0], 0.0) * size * 2 > self.limits.l1
            if abs(step) * size > _LINE * kind.lanes and far:  # type: ignore[union-attr]
                cycles += 6.0
        return cycles

    def _evaluate(self, instr: Instr) -> None:
        """Follow integers, as far as they are sums, multiples and the like."""
        if instr.type is None or not instr.type.dtype.is_integer:
            return
        if instr.op == "const":
            self.value[instr] = float(int.from_bytes(instr.data, "little",  # type: ignore[arg-type]
                                                     signed=True))
            return
        values = [self.value[a] for a in instr.args if a in self.value]
        if len(values) != 2 or len(instr.args) != 2:
            return
        a, b = values
        left, right = (self.steps.get(x, {}) for x in instr.args)
        match instr.op:
            case "add" | "sub":
                sign = 1 if instr.op == "add" else -1
                self.value[instr] = a + sign * b
                self.steps[instr] = {v: left.get(v, 0.0) + sign * right.get(v, 0.0)
                                     for v in {**left, **right}}
            case "mul":
                self.value[instr] = a * b
                self.steps[instr] = {v: left.get(v, 0.0) * b + right.get(v, 0.0) * a
                                     for v in {**left, **right}}
            case "min" | "max":
                pick = min if instr.op == "min" else max
                self.value[instr] = pick(a, b)
            case "idiv" if b:
                self.value[instr] = float(a // b)
