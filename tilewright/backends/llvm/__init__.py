"""The CPU backend: LLVM IR text, compiled and loaded in process by llvmlite."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.backends.llvm import compiler
from tilewright.backends.llvm.host import Host
from tilewright.backends.llvm.render import render
from tilewright.errors import BackendError
from tilewright.limits import Limits
from tilewright.program.ir import Binding, Program


class LLVM:
    """The `Backend` of a CPU; `host` is another than this machine's only to read what is made."""

    name = "llvm"

    def __init__(self, host: Host | None = None):
        self.host = host or Host.here()
        if self.host.x86 and not self.host.rounds:
            raise BackendError(f"llvm: cannot compile for {self.host.cpu} (SSE4.1 is needed)")
        self._compiler = compiler.Compiler(self.host)

    @property
    def limits(self) -> Limits:
        return self.host.limits()

    @property
    def device(self) -> str:
        return self.host.device

    @property
    def identity(self) -> str:
        return self.host.identity

    def render(self, programs: Sequence[Program], binding: Binding) -> str:
        return render(programs, binding, self.host)

    def compile(self, source: str) -> bytes:
        return self._compiler.compile(source)

    def assembly(self, source: str) -> str:
        return self._compiler.assembly(source)

    def assemble(self, text: str) -> bytes:
        return self._compiler.assemble(text)

    def load(self, code: bytes) -> compiler.Loaded:
        return self._compiler.load(code)


__all__ = ["LLVM", "Host"]
