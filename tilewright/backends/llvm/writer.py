"""The state of a function's text while it is written: names, labels, pointers, declarations."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.backends.llvm.host import Host
from tilewright.backends.llvm.types import MEMORY, register
from tilewright.errors import BackendError
from tilewright.program.ir import Instr, MemRef, Program

# Instructions of one basic block: LLVM's scheduler is quadratic in it.
BLOCK = 500
# More buffers than this are read from the table where they are used, not kept in registers.
KEPT_POINTERS = 24
# With more written buffers than this, telling them apart costs more than it gives.
SCOPES = 32

# The module's first metadata: a non-temporal store, an invariant load, the domain of alias scopes.
METADATA = ("!{i32 1}", "!{}", "distinct !{!2}")
STREAM, INVARIANT, DOMAIN = range(3)


class _Buffers(dict):
    """Buffer name -> something; an unknown name is an error of the Program."""

    def __init__(self, program: Program, items: dict):
        super().__init__(items)
        self._program = program.name

    def __missing__(self, name: str) -> str:
        raise BackendError(f"llvm: cannot find buffer {name!r} of {self._program} "
                           "(it is neither a parameter nor scratch)")


class Writer:
    """Writes one function. Values are numbered, labels are named; numbers grow with the text."""

    def __init__(self, program: Program, private_bytes: int, declarations: dict[str, str],
                 metadata: list[str], host: Host):
        self.program = program
        self.private_bytes = private_bytes
        self.declarations = declarations
        self.metadata = metadata
        self.host = host
        dtypes = {p.name: p.dtype.name for p in program.params}
        dtypes.update({s.name: s.dtype.name for s in program.scratch})
        self.dtypes = _Buffers(program, dtypes)
        self.out: list[str] = []
        self.names: dict[Instr, str] = {}
        self.results: dict[Instr, list[str]] = {}
        self.constants: dict[tuple, str] = {}
        self.next = 0
        self.label = ""
        self.started = 0
        self._labels = 0
        self._addresses: dict[tuple, str] = {}
        self._pointers: dict[str, str] = {}
        self._sources = _Buffers(program, self._places())
        self._kept = len(self._sources) <= KEPT_POINTERS
        self.tags = _Buffers(program, self._scopes())

    # -- values and labels -------------------------------------------------------------------

    def new(self, text: str) -> str:
        """Write ``%n = text`` and return ``%n``."""
        name = f"%{self.next}"
        self.next += 1
        self.out.append(f"{name} = {text}")
        return name

    def reserve(self) -> tuple[str, int]:
        """Return a new name and the line kept for its definition, to be set later."""
        name = f"%{self.next}"
        self.next += 1
        self.out.append("")
        return name, len(self.out) - 1

    def fresh_label(self) -> str:
        self._labels += 1
        return f"b{self._labels}"

    def start(self, label: str) -> None:
        """Begin a basic block; what was cached for the last one no longer holds."""
        self.out.append(f"{label}:")
        self.label = label
        self.started = len(self.out)
        self._addresses.clear()
        if not self._kept:
            self._pointers.clear()

    def jump(self, label: str) -> None:
        self.out.append(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.out.append(f"br i1 {condition}, label %{yes}, label %{no}")

    def breathe(self) -> None:
        """Begin a new basic block where the current one has grown long."""
        if len(self.out) - self.started > BLOCK:
            label = self.fresh_label()
            self.jump(label)
            self.start(label)

    def call(self, function: str, result: str, arguments: str, signature: str) -> str:
        """Write a call of an intrinsic with a result."""
        self.declare(function, result, signature)
        return self.new(f"call {result} @{function}({arguments})")

    def declare(self, function: str, result: str, signature: str) -> None:
        if function not in self.declarations:
            self.declarations[function] = f"declare {result} @{function}({signature})"

    # -- memory ------------------------------------------------------------------------------

    def _places(self) -> dict[str, tuple]:
        """Return where each buffer's address comes from: (slot of the table, private, bytes)."""
        params = self.program.params
        places: dict[str, tuple] = {p.name: (i, False, 0) for i, p in enumerate(params)}
        for s in self.program.scratch:
            if s.space not in ("global", "private"):
                raise BackendError(f"llvm: cannot place scratch {s.name} in {s.space} memory "
                                   "(a CPU has global and private memory)")
        for slot, space in ((len(params), "global"), (len(params) + 1, "private")):
            offsets, _ = self.program.area(space)
            places.update({n: (slot, space == "private", o) for n, o in offsets.items()})
        return places

    def _scopes(self) -> dict[str, str]:
        """Return the alias tags of each buffer's accesses.

        Inputs share a scope: nothing writes them. Other buffers have one each while they are few.
        """
        scope = {p.name: 0 for p in self.program.params if p.kind == "input"}
        others = [name for name in self._sources if name not in scope]
        if len(others) > SCOPES:
            return dict.fromkeys(self._sources, "")
        scope.update({name: i + 1 for i, name in enumerate(others)})
        count = len(others) + 1
        first = len(self.metadata)
        self.metadata += [f"distinct !{{!{first + s}, !{DOMAIN}}}" for s in range(count)]
        lists = first + count
        for s in range(count):
            rest = ", ".join(f"!{first + k}" for k in range(count) if k != s)
            self.metadata += [f"!{{!{first + s}}}", f"!{{{rest}}}"]
        return {name: f", !alias.scope !{lists + 2 * s}, !noalias !{lists + 2 * s + 1}"
                for name, s in scope.items()}

    def pointer(self, buffer: str) -> str:
        """Return the address of a buffer."""
        name = self._pointers.get(buffer)
        if name is None:
            name = self._pointers[buffer] = self._load_pointer(buffer)
        return name

    def _load_pointer(self, buffer: str) -> str:
        slot, private, offset = self._sources[buffer]
        entry = self.new(f"getelementptr ptr, ptr %buffers, i64 {slot}")
        name = self.new(f"load ptr, ptr {entry}, align 8, !invariant.load !{{}}")
        if private and self.private_bytes:
            skip = self.new(f"mul i64 %worker, {self.private_bytes}")
            name = self.new(f"getelementptr inbounds i8, ptr {name}, i64 {skip}")
        if offset:
            name = self.new(f"getelementptr inbounds i8, ptr {name}, i64 {offset}")
        return name

    def keep_pointers(self) -> None:
        """At the entry: read the table once if its addresses fit the registers."""
        if self._kept:
            for buffer in self._sources:
                self.pointer(buffer)

    def address(self, ref: MemRef, offset: Instr, dtype: str) -> str:
        """Return the address of an element."""
        key = (ref.buffer, offset)
        scalar = MEMORY[dtype]
        base = self._addresses.get(key)
        if base is None:
            base = self._addresses[key] = self.new(
                f"getelementptr inbounds {scalar}, ptr {self.pointer(ref.buffer)}, "
                f"i64 {self.names[offset]}")
        if not ref.offset:
            return base
        return self.new(f"getelementptr inbounds {scalar}, ptr {base}, i64 {ref.offset}")


Emitter = Callable[[Writer, Instr], "str | None"]


def spell(instr: Instr) -> str:
    """Return the register type of an instruction's value."""
    type_ = instr.type
    return register[type_.dtype.name, type_.lanes]
