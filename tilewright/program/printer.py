"""Print Programs as text that `tilewright.program.parser` reads back.

    program name [parallel]
    input|output name type
    scratch name type elements space
    v0 = const i64 16                              a float prints shortest; ``0x..`` where that
    v1 = load f32x16 a0[v0 + 4] mask v9 align 64   would lose a bit (a NaN's payload)
    store o0[v0] v1 mask v9 stream
    loop L0 serial v2 = v0 .. v3 carry v4 = v1     its body is indented; a constant multiple of the
      v5 = scaled i64 v2 4                         index comes first, the values of the next round
      yield v6                                     last
    v7 = result f32x16 L0 0
    if v8                                          its body is indented

Values and loops are numbered in the order in which the text defines them, so equal Programs print
equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.dtypes import DType

if TYPE_CHECKING:
    from tilewright.program.ir import Block, Fragment, Instr, MemRef, Program


def print_program(program: Program) -> str:
    """Return the text of a Program; it ends with a newline."""
    return Printer(program).text()


def print_constant(bits: bytes, dtype: DType) -> str:
    """Return a text for one element; `parse_constant` gives the same bits. A wrong size is ?.."""
    if len(bits) != dtype.itemsize:
        return f"?{bits.hex()}"
    value = np.frombuffer(bits, dtype.numpy)[0]
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_integer:
        return str(int(value))
    text = str(value)
    return text if parse_constant(text, dtype) == bits else "0x" + bits[::-1].hex()


def parse_constant(text: str, dtype: DType) -> bytes:
    """Return the bytes of one element; raises ValueError where the text is no constant."""
    if dtype.is_bool:
        if text not in ("true", "false"):
            raise ValueError(text)
        return b"\1" if text == "true" else b"\0"
    if dtype.is_integer:
        return int(text).to_bytes(dtype.itemsize, "little", signed=dtype.kind == "i")
    if text.startswith("0x"):
        return int(text, 16).to_bytes(dtype.itemsize, "little")
    with np.errstate(all="ignore"):
        return np.asarray(float(text)).astype(dtype.numpy).tobytes()


class Printer:
    """Names the values of a Program and prints its lines; `line` serves error messages."""

    def __init__(self, program: Program):
        self.program = program
        self.names: dict[Any, str] = {}
        self._values = self._loops = 0
        self._number(program.body)

    def _define(self, instr: Instr) -> None:
        self.names[instr] = f"v{self._values}"
        self._values += 1

    def _number(self, block: Block) -> None:
        for instr in block:
            if instr.op == "loop":
                self.names[instr] = f"L{self._loops}"
                self._loops += 1
                for value in (instr.var, *instr.carries, *instr.scaled):
                    self._define(value)
                self._number(instr.body)
            elif instr.op == "if":
                self._number(instr.body)
            elif instr.type is not None:
                self._define(instr)

    def name(self, instr: Instr) -> str:
        """Return a value's name; one that the Program does not define prints as ``?op``."""
        return self.names.get(instr) or f"?{instr.op}"

    def text(self) -> str:
        program = self.program
        lines = [f"program {program.name}{' parallel' if program.parallel else ''}"]
        lines += [f"{p.kind} {p.name} {short_name(p.dtype)}" for p in program.params]
        lines += [f"scratch {s.name} {short_name(s.dtype)} {s.elements} {s.space}"
                  for s in program.scratch]
        self._block(program.body, "", lines)
        return "\n".join(lines) + "\n"

    def _block(self, block: Block, indent: str, lines: list[str]) -> None:
        for instr in block:
            lines.append(indent + self.line(instr))
            if instr.op == "loop":
                inner = indent + "  "
                lines.extend(inner + self.line(value) for value in instr.scaled)
                self._block(instr.body, inner, lines)
                if instr.yields:
                    lines.append(f"{inner}yield {', '.join(map(self.name, instr.yields))}")
            elif instr.op == "if":
                self._block(instr.body, indent + "  ", lines)

    def line(self, instr: Instr) -> str:
        """Return the instruction's own line, without indentation; a loop's or if's head."""
        if instr.op == "loop":
            return self._loop(instr)
        words = [] if instr.type is None else [self.name(instr), "="]
        words.append(instr.op)
        if instr.type is not None:
            words.append(str(instr.type))
        return " ".join(words + self._operands(instr))

    def _loop(self, loop: Any) -> str:
        name = self.name
        head = (f"loop {name(loop)} {loop.kind} {name(loop.var)} = {name(loop.lo)} .. "
                f"{name(loop.hi)}")
        pairs = [f"{name(c)} = {name(i)}" for c, i in zip(loop.carries, loop.inits, strict=False)]
        return f"{head} carry {', '.join(pairs)}" if pairs else head

    def _operands(self, instr: Instr) -> list[str]:
        args = [self.name(a) for a in instr.args]
        data: Any = instr.data
        match instr.op:
            case "const":
                return [print_constant(data, instr.type.dtype)]  # type: ignore[union-attr]
            case "lane" | "result":
                return [*args, str(data)]
            case "scaled":
                return [*args, str(data[1])]
            case "shuffle":
                return [*args, f"({', '.join(map(str, data))})"]
            case "load" | "gather" | "prefetch":
                return [_place(data, args[0]), *_mask(args[1:]), *_hints(data)]
            case "store" | "scatter":
                return [_place(data, args[0]), args[1], *_mask(args[2:]), *_hints(data)]
            case "frag_zero" | "frag_mma":
                return [_fragment(data), *args]
            case "frag_load" | "frag_store":
                return [_fragment(data[0]), _place(data[1], args[0]), *args[1:], *_hints(data[1])]
        return args


def short_name(dtype: DType) -> str:
    """Return the dtype as a Type prints it: ``f32``, ``bf16``, ``b1``."""
    return {"bool": "b1", "bfloat16": "bf16"}.get(dtype.name, f"{dtype.kind}{dtype.bits}")


def _place(ref: MemRef, offset: str) -> str:
    return f"{ref.buffer}[{offset}{f' + {ref.offset}' if ref.offset else ''}]"


def _mask(args: list[str]) -> list[str]:
    return ["mask", *args] if args else []


def _hints(ref: MemRef) -> list[str]:
    return [*(["align", str(ref.align)] if ref.align else []), *(["stream"] if ref.stream else [])]


def _fragment(f: Fragment) -> str:
    return f"<{f.role} {'x'.join(map(str, f.shape))} {short_name(f.dtype)} {f.layout}>"
