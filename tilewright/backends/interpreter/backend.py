"""The interpreter as a backend: source is the Programs' own text, so a person may edit it.

    binding global_bytes private_bytes
    input|output name type ..
    program ..                             as `tilewright.program.printer` prints them
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.backends.interpreter import translate
from tilewright.backends.interpreter.executable import Executable
from tilewright.errors import BackendError, VerifyError
from tilewright.limits import Limits
from tilewright.program.ir import Binding, Program
from tilewright.program.parser import ParseError, parse_program
from tilewright.program.printer import print_program
from tilewright.program.verify import verify


class Interpreter:
    """Executes Programs in NumPy, for tests and for machines without a compiler's target."""

    name = "interpreter"
    device = "numpy"
    identity = ""

    @property
    def limits(self) -> Limits:
        """Registers as AVX-512 has them, so that what runs here is what runs there."""
        return Limits(vector_bytes=64, registers=32)

    def render(self, programs: Sequence[Program], binding: Binding) -> str:
        params = print_program(Program("", binding.params, ())).partition("\n")[2]
        head = f"binding {binding.global_bytes} {binding.private_bytes}\n{params}"
        return "\n".join([head, *map(print_program, programs)])

    def compile(self, source: str) -> bytes:
        _read(source)
        return source.encode()

    def assembly(self, source: str) -> str:
        """Return the Python source that executes the Programs."""
        programs, _ = _read(source)
        return "\n".join(translate.translate(p, check_races=False)[0] for p in programs)

    def assemble(self, text: str) -> bytes:
        raise BackendError("interpreter: cannot assemble Python source (edit the Programs, "
                           "which are the source)")

    def load(self, code: bytes) -> Executable:
        """Return an Executable; it runs by `execute`, since it has no native entries."""
        return Executable(*_read(code.decode()))


def _read(source: str) -> tuple[list[Program], Binding]:
    parts = ("\n" + source).split("\nprogram ")
    try:
        head, _, params = parts[0].strip().partition("\n")
        word, global_bytes, private_bytes = head.split()
        if word != "binding":
            raise ValueError(head)
        binding = Binding(parse_program(f"program binding\n{params}").params, int(global_bytes),
                          int(private_bytes))
        programs = [parse_program(f"program {part}") for part in parts[1:]]
        for program in programs:
            verify(program, "source")
    except (ParseError, VerifyError, ValueError) as error:
        raise BackendError(f"interpreter: cannot compile the source ({error})") from error
    return programs, binding
