"""What a backend is: the protocol that its folder fulfils.

    render(programs, binding) -> source      text that people can read and edit
    compile(source)           -> object      bytes that may be kept on disk
    load(object)              -> Executable  addresses of the programs' entries
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tilewright.limits import Limits
from tilewright.program.ir import Binding, Program


@runtime_checkable
class Executable(Protocol):
    """Loaded code. `addresses` holds one entry per Program, in order, with the ABI of `Binding`.

    The code stays mapped while the object lives, and is freed with it or by `close`.
    """

    addresses: tuple[int, ...]

    def close(self) -> None: ...


@runtime_checkable
class Backend(Protocol):
    """A target that turns Programs into code of this process."""

    name: str

    @property
    def limits(self) -> Limits:
        """What the device can hold."""

    @property
    def device(self) -> str:
        """The hardware that times depend on, whatever the compiler; its first word is a name."""

    @property
    def identity(self) -> str:
        """What object code depends on, besides its source: the device and the compiler.

        Empty where compiling is so cheap that object code is not worth keeping.
        """

    def render(self, programs: Sequence[Program], binding: Binding) -> str:
        """Return the source of a kernel. Raises BackendError for what the target lacks."""

    def compile(self, source: str) -> bytes:
        """Return the object code of a source. Raises BackendError if it is not accepted."""

    def assembly(self, source: str) -> str:
        """Return the assembly text that `compile` would encode."""

    def assemble(self, text: str) -> bytes:
        """Return the object code of an assembly text, as `assembly` gives and a person edits."""

    def load(self, code: bytes) -> Executable:
        """Map object code into this process."""
