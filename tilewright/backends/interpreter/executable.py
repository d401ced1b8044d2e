"""A kernel's Programs ready to run on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.backends.interpreter import translate
from tilewright.backends.interpreter.arithmetic import garbage
from tilewright.backends.interpreter.machine import Machine
from tilewright.errors import BackendError
from tilewright.program.ir import Binding, Instr, Program


class Executable:
    """Programs translated once, at their first run. It has no addresses: `execute` runs it."""

    addresses: tuple[int, ...] = ()

    def __init__(self, programs: Sequence[Program], binding: Binding):
        self.programs, self.binding = tuple(programs), binding
        self._loaded: dict[tuple[int, bool], tuple[translate.Run, list[Instr]]] = {}

    def execute(self, arrays: Sequence[np.ndarray], workers: int = 1,
                check_races: bool = False) -> None:
        """Run the Programs in order; outputs are written in place.

        `arrays` pair with the binding's params: flat, C-contiguous, of the param's dtype. Workers
        run one after another. Raises IndexOutOfBounds for an access outside of its buffer, and
        VerifyError for a broken promise: a divisor of zero, an alignment, a barrier that not all
        threads reach and, with `check_races`, an element that one worker, block or thread touches
        while another writes it.
        """
        memory = self._memory(arrays)
        area = np.full(self.binding.global_bytes, 0xFF, np.uint8)
        defined: set[str] = set()
        with np.errstate(all="ignore"):
            for number, program in enumerate(self.programs):
                held = memory | self._global(program, area, defined)
                key = (number, check_races)
                if key not in self._loaded:
                    self._loaded[key] = translate.load(program, check_races)
                run, sites = self._loaded[key]
                machine = Machine(program, sites, held, check_races)
                for worker in range(workers if program.parallel else 1):
                    machine.enter(worker)
                    run(machine, held, worker, workers if program.parallel else 1)

    def close(self) -> None:
        """Forget the translations."""
        self._loaded.clear()

    def _memory(self, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        params = self.binding.params
        if len(arrays) != len(params):
            raise BackendError(f"interpreter: cannot bind {len(arrays)} arrays to {len(params)} "
                               "params")
        for p, array in zip(params, arrays):
            if array.ndim != 1 or array.dtype != p.dtype.numpy or not array.flags.c_contiguous:
                raise BackendError(f"interpreter: cannot bind {array.dtype}{list(array.shape)} to "
                                   f"{p.kind} {p.name} (a flat array of {p.dtype} is needed)")
        return {p.name: array for p, array in zip(params, arrays)}

    def _global(self, program: Program, area: np.ndarray, defined: set[str]
                ) -> dict[str, np.ndarray]:
        """Return views of the global area, where the ABI has them."""
        for space, held in (("global", area.size), ("private", self.binding.private_bytes)):
            needed = program.area(space)[1]
            if needed > held:
                raise BackendError(f"interpreter: cannot run {program.name} (it needs {needed} "
                                   f"{space} bytes, its binding has {held})")
        offsets, _ = program.area("global")
        views = {}
        for s in program.scratch:
            if s.space == "global":
                size = s.elements * s.dtype.itemsize
                view = area[offsets[s.name]:offsets[s.name] + size].view(s.dtype.numpy)
                if s.name not in defined and s.dtype.is_bool:
                    view[:] = garbage(s.elements, s.dtype.numpy)
                defined.add(s.name)
                views[s.name] = view
        return views


def execute(programs: Sequence[Program], binding: Binding, arrays: Sequence[np.ndarray],
            workers: int = 1, check_races: bool = False) -> None:
    """Run Programs once (`Executable.execute`)."""
    Executable(programs, binding).execute(arrays, workers, check_races)
