"""Source to object code to addresses, through llvmlite."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys

import llvmlite.binding as llvm

from tilewright.backends.llvm.host import Host, initialize
from tilewright.backends.llvm.render import ENTRIES
from tilewright.errors import BackendError

_LOADS = 32
# LLVM ends the process at a mistake in assembly text, so that is read in a process of its own.
_ASSEMBLER = """
import sys
import llvmlite.binding as llvm
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
llvm.initialize_native_asmparser()
triple, cpu, features = sys.argv[1:]
text = "".join(chr(c) if 32 <= c < 127 and c not in b'\\"\\\\' else f"\\\\{c:02X}"
               for c in sys.stdin.buffer.read())
machine = llvm.Target.from_triple(triple).create_target_machine(
    cpu=cpu, features=features, reloc="pic", codemodel="small")
module = llvm.parse_assembly(f'module asm "{text}"')
module.triple = triple
sys.stdout.buffer.write(machine.emit_object(module))
"""
_serial = itertools.count()


class Compiler:
    """Compiles and loads for one CPU. LLVM's middle end does not run: lowering left it no work."""

    def __init__(self, host: Host, level: int = 2):
        initialize()
        self.host = host
        self._level = level
        self._machine = self._make_machine()
        self._session = _Session()

    def _make_machine(self) -> llvm.TargetMachine:
        target = llvm.Target.from_triple(self.host.triple)
        return target.create_target_machine(
            cpu=self.host.cpu, features=self.host.feature_text, opt=self._level, reloc="pic",
            codemodel="small", jit=True)

    def _parse(self, source: str) -> llvm.ModuleRef:
        # A context of its own: what a module interns there is freed with it.
        try:
            module = llvm.parse_assembly(source, context=llvm.create_context())
        except RuntimeError as error:
            raise BackendError(f"llvm: cannot compile the source ({error})") from None
        module.triple = self.host.triple
        module.data_layout = str(self._machine.target_data)
        return module

    def compile(self, source: str) -> bytes:
        """Return the object code of LLVM IR text. Raises BackendError if it is not valid."""
        with self._parse(source) as module:
            return self._machine.emit_object(module)

    def assembly(self, source: str) -> str:
        """Return the assembly of LLVM IR text. Raises BackendError if it is not valid."""
        with self._parse(source) as module:
            return self._machine.emit_assembly(module)

    def assemble(self, text: str) -> bytes:
        """Return the object code of an assembly text. Raises BackendError if it is not valid."""
        command = [sys.executable, "-c", _ASSEMBLER, self.host.triple, self.host.cpu,
                   self.host.feature_text]
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
        if done.returncode:
            reason = done.stderr.decode(errors="replace").strip()
            raise BackendError(f"llvm: cannot assemble the text ({reason})")
        return done.stdout

    def load(self, code: bytes) -> Loaded:
        """Map object code into this process. Raises BackendError if it is not a kernel's."""
        if self._session.loads >= _LOADS:
            self._session = _Session()
        return Loaded(code, self._session)


class _Session:
    """A JIT session. LLVM keeps a few kilobytes per load until the session ends, so each serves
    some loads and ends with the last of them."""

    def __init__(self) -> None:
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self.jit = llvm.create_lljit_compiler(machine, suppress_errors=True)
        self.loads = 0


class Loaded:
    """An `Executable`: code that stays mapped until `close`, or until the object dies."""

    def __init__(self, code: bytes, session: _Session):
        self._session: _Session | None = None
        session.loads += 1
        library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        try:
            tracker = library.export_symbol(ENTRIES).link(session.jit, f"kernel{next(_serial)}")
        except RuntimeError as error:
            raise BackendError(f"llvm: cannot load the object ({error})") from None
        self._session, self._tracker = session, tracker
        table = tracker[ENTRIES]
        count = ctypes.c_int64.from_address(table).value
        self.addresses: tuple[int, ...] = tuple((ctypes.c_uint64 * count).from_address(table + 8))

    def close(self) -> None:
        """Free the code; its addresses must not be called any more."""
        if self._session is not None:
            self.addresses = ()
            self._tracker.close()
            self._session = None

    def __del__(self) -> None:
        self.close()
