"""Look at, time and replace the kernels of a compiled function.

    c = f.compile(x)
    k = c.kernels[0].with_schedule("Split(i0, 64)")     # checked against the original
    c.replace(k)                                        # f runs it from now on
    print(c.kernels[0].search(beam=4).explain())        # f runs the winner from now on
"""

from __future__ import annotations

import numpy as np

from tilewright.actions import Nest, Schedule, parse_schedule
from tilewright.config import Tune
from tilewright.errors import VerifyError
from tilewright.fusion.calls import KernelCall
from tilewright.kernel import Kernel
from tilewright.plan import kernels
from tilewright.plan.cost import bytes_moved, flops
from tilewright.plan.kernels import Built, Work
from tilewright.plan.naming import kernel_name
from tilewright.plan.plan import Plan
from tilewright.plan.scratch import Bench, difference, tolerance
from tilewright.plan.tuning import Tuner
from tilewright.program import Program
from tilewright.search import Budget
from tilewright.search.record import Record


class CompiledKernel:
    """One kernel at every level, and a way to ask what if.

    name        what it does and over which shape
    key, kernel the kernel's text, and the kernel: what is computed
    schedule, nest, programs, source, assembly    how, from actions down to the machine
    flops, bytes    arithmetic operations, and bytes of inputs and outputs, of one run
    calls       launches of it in the plan
    """

    def __init__(self, built: Built, calls: int = 1, reference: Built | None = None):
        self.built, self.calls = built, calls
        self._reference = reference or built

    @property
    def kernel(self) -> Kernel:
        return self.built.kernel

    @property
    def name(self) -> str:
        return kernel_name(self.kernel)

    @property
    def key(self) -> str:
        return self.kernel.key

    @property
    def schedule(self) -> Schedule:
        return self.built.schedule

    @property
    def nest(self) -> Nest:
        return self.built.nest

    @property
    def programs(self) -> tuple[Program, ...]:
        return self.built.programs

    @property
    def program(self) -> Program:
        """The first program; most kernels have one."""
        return self.programs[0]

    @property
    def source(self) -> str:
        return self.built.source

    @property
    def assembly(self) -> str:
        return self.built.assembly

    @property
    def flops(self) -> int:
        return flops(self.kernel)

    @property
    def bytes(self) -> int:
        return bytes_moved(self.kernel)

    def time(self, repeats: int = 10) -> np.ndarray:
        """Return `repeats` durations in seconds of one run on inputs of its own.

        Floats are uniform in [-0.5, 0.5), integers small. A native kernel is timed natively; runs
        under 20 us repeat within a sample.
        """
        bench = Bench(self.built)
        return bench.time(repeats)

    def with_schedule(self, schedule: Schedule | str) -> CompiledKernel:
        """Return the kernel under another schedule, checked against the original.

        Raises ScheduleError for text that does not parse, Illegal where an action does not apply,
        VerifyError with the greatest difference where values differ.
        """
        if isinstance(schedule, str):
            schedule = parse_schedule(schedule)
        built = kernels.build(self.built.origin, self.built.target, Work(), schedule,
                              self.built.alternative)
        return self._checked("with_schedule", built)

    def search(self, beam: int = 4, seconds: float = Budget.seconds, seed: int = 0,
               caches: str = "plan") -> Record:
        """Return the record of a search for a faster schedule, starting from this one.

        `caches` is their state when candidates are timed: see `Tune`. The winner is recorded and
        compiled functions with this kernel run it from now on. Raises BackendError where the
        kernel cannot be compiled or run where candidates are timed.
        """
        return Tuner(Tune(beam, seconds, seed, caches=caches)).search(self.built)

    def with_source(self, text: str) -> CompiledKernel:
        """Return the kernel with `text` for its source, checked against the original.

        Entries keep their names and order. Raises BackendError where the text does not compile,
        VerifyError where values differ.
        """
        return self._checked("with_source", kernels.with_source(self.built, text))

    def with_assembly(self, text: str) -> CompiledKernel:
        """Return the kernel with `text` for its assembly, checked against the original.

        Raises BackendError where the text does not assemble, VerifyError where values differ.
        """
        return self._checked("with_assembly", kernels.with_assembly(self.built, text))

    def _checked(self, operation: str, built: Built) -> CompiledKernel:
        wanted, found = Bench(self._reference).values(), Bench(built).values()
        for name, a, b in zip((o.name for o in self.kernel.outputs), wanted, found):
            error = difference(a, b)
            if error > tolerance(a):
                raise VerifyError(
                    f"{operation}: cannot replace {self.name} (its {name} differs from the "
                    f"original's by up to {error:.3g}; {tolerance(a):.3g} is allowed)")
        return CompiledKernel(built, self.calls, self._reference)

    def __repr__(self) -> str:
        return f"<kernel {self.name}: {self.flops} FLOP, {self.bytes} bytes, {self.calls} calls>"

    def __str__(self) -> str:
        return f"{self.name}\n{self.kernel}\n{self.schedule}"


class Compiled:
    """A compiled function as seen by a person.

    kernels   its distinct kernels, in order of first launch
    plan      launches, buffers and bytes; prints
    stages    seconds in trace, fuse, schedule, lower, compile, first run
    counts    nodes, kernels, distinct kernels, programs compiled, instructions
    """

    def __init__(self, plan: Plan, trace_seconds: float = 0.0):
        self.plan, self._trace_seconds = plan, trace_seconds

    @property
    def kernels(self) -> list[CompiledKernel]:
        calls: dict[str, int] = {}
        for call in self.plan.bound.calls:
            if isinstance(call, KernelCall):
                calls[call.kernel.key] = calls.get(call.kernel.key, 0) + 1
        return [CompiledKernel(self.plan.built[key], count) for key, count in calls.items()]

    @property
    def stages(self) -> dict[str, float]:
        order = ("fuse", "schedule", "lower", "compile", "first run")
        return {"trace": self._trace_seconds,
                **{name: self.plan.seconds.get(name, 0.0) for name in order}}

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.plan.counts)

    def replace(self, kernel: CompiledKernel) -> None:
        """Run `kernel` in place of the one it was made from, from the next call on.

        Raises ValueError if the function has no such kernel.
        """
        key = kernel.built.origin.key
        if key not in self.plan.built:
            raise ValueError(f"replace: cannot put {kernel.name} in place (not a kernel of this "
                             f"function; it has {', '.join(k.name for k in self.kernels)})")
        self.plan.replace(key, kernel.built)

    def __repr__(self) -> str:
        return f"<compiled: {', '.join(k.name for k in self.kernels) or 'no kernels'}>"

    def __str__(self) -> str:
        return str(self.plan)
