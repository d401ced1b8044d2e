"""Read the text of a Program (the grammar: `tilewright.program.printer`).

Lines are independent of each other but for indentation; parentheses, brackets and commas only help
the reader. Whether the Program means anything is the verifier's question.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tilewright import dtypes
from tilewright.errors import TilewrightError
from tilewright.program.ir import (
    INDEX,
    Block,
    Fragment,
    If,
    Instr,
    Loop,
    MemRef,
    Param,
    Program,
    Scratch,
    Type,
)
from tilewright.program.printer import parse_constant, short_name

_DTYPES = {short_name(d): d for d in dtypes.ALL}
_TOKEN = re.compile(r"<[^>]*>|\.\.|[^\s,()\[\]=<>]+")
_TYPE = re.compile(r"([a-z]+\d+)(?:x(\d+))?")
_MEMORY = ("load", "gather", "prefetch", "store", "scatter")


class ParseError(TilewrightError, ValueError):
    """A text is not a Program; the message holds the line and its number."""


def parse_program(text: str) -> Program:
    """Return the Program of a text; printing it gives the text again.

    Raises ParseError with the line where the text breaks the grammar.
    """
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str):
        self.lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        self.values: dict[str, Instr] = {}
        self.loops: dict[str, Loop] = {}
        self.program = Program("", (), ())

    def parse(self) -> Program:
        blocks: list[tuple[Block, Loop | None]] = [(self.program.body, None)]
        if not self.lines or self._words(self.lines[0][1])[0] != "program":
            raise ParseError("program: cannot read a text without a line `program name`")
        for number, line in self.lines:
            depth = (len(line) - len(line.lstrip(" "))) // 2
            try:
                if depth >= len(blocks):
                    raise ValueError("indentation")
                del blocks[depth + 1:]
                self._line(self._words(line), line, blocks)
            except (ValueError, KeyError, IndexError, StopIteration, OverflowError) as error:
                raise ParseError(f"program: cannot read line {number}, {line.strip()!r} "
                                 f"({type(error).__name__}: {error})") from None
        return self.program

    @staticmethod
    def _words(line: str) -> list[str]:
        return _TOKEN.findall(line)

    def _line(self, words: list[str], line: str, blocks: list) -> None:
        block, loop = blocks[-1]
        level = len(blocks) - 1
        match words[0]:
            case "program":
                self.program.name, self.program.parallel = words[1], words[2:] == ["parallel"]
            case "input" | "output":
                self.program.params += (Param(words[1], words[0], _DTYPES[words[2]]),)
            case "scratch":
                self.program.scratch += (
                    Scratch(words[1], _DTYPES[words[2]], int(words[3]), words[4]),)
            case "loop":
                new = self._loop(words, level)
                self._append(block, new)
                blocks.append((new.body, new))
            case "if":
                branch = If(self.values[words[1]], level)
                self._append(block, branch)
                blocks.append((branch.body, None))
            case "yield":
                if loop is None:
                    raise ValueError("a yield stands in a loop")
                loop.yields = [self.values[w] for w in words[1:]]
            case _:
                self._instruction(words, "=" in line, block, level)

    def _append(self, block: Block, instr: Instr) -> None:
        block.append(instr)
        self.program.count += 1

    def _loop(self, words: list[str], level: int) -> Loop:
        _, name, kind, var, lo, dots, hi, *rest = words
        if dots != ".." or rest[:1] not in ([], ["carry"]):
            raise ValueError("a loop reads `loop L0 serial v0 = v1 .. v2 carry v3 = v4`")
        pairs = rest[1:]
        inits = tuple(self.values[w] for w in pairs[1::2])
        loop = Loop(kind, self.values[lo], self.values[hi], inits, level)
        self.loops[name] = loop
        self.values[var] = loop.var
        self.values.update(zip(pairs[0::2], loop.carries, strict=True))
        return loop

    def _instruction(self, words: list[str], defines: bool, block: Block, level: int) -> None:
        name, type_ = "", None
        if defines:
            name, *words = words
            type_ = _type(words.pop(1))
        op, *operands = words
        if op == "scaled":
            loop = self.values[operands[0]].data
            if not isinstance(loop, Loop):
                raise ValueError(f"{operands[0]} is no loop's index")
            instr = Instr(op, INDEX, (loop.var,), (loop, int(operands[1])), level)
            loop.scaled.append(instr)
        else:
            args, data = self._operands(op, type_, operands)
            instr = Instr(op, type_, args, data, level)
            self._append(block, instr)
        if defines:
            self.values[name] = instr

    def _operands(self, op: str, type_: Type | None, words: list[str]) -> tuple[tuple, object]:
        values = self.values
        take: Callable[[list[str]], tuple] = lambda ws: tuple(values[w] for w in ws)  # noqa: E731
        if op == "const":
            if type_ is None:
                raise ValueError("a const reads `v0 = const i64 1`")
            return (), parse_constant(words[0], type_.dtype)
        if op == "lane":
            return take(words[:-1]), int(words[-1])
        if op == "result":
            return (self.loops[words[0]],), int(words[1])
        if op == "shuffle":
            return take(words[:2]), tuple(map(int, words[2:]))
        if op in _MEMORY:
            names, ref = _memory(words)
            return take(names), ref
        if op.startswith("frag_"):
            fragment = _fragment(words[0])
            if op in ("frag_zero", "frag_mma"):
                return take(words[1:]), fragment
            names, ref = _memory(words[1:])
            return take(names), (fragment, ref)
        return take(words), None


def _type(text: str) -> Type:
    found = _TYPE.fullmatch(text)
    if not found or found[1] not in _DTYPES:
        raise ValueError(f"{text} is no type")
    return Type(_DTYPES[found[1]], int(found[2] or 1))


def _memory(words: list[str]) -> tuple[list[str], MemRef]:
    """Split ``a0 v1 + 4 v2 mask v3 align 64 stream`` into value names and a MemRef."""
    rest = iter(words)
    buffer, names, offset, align, stream = next(rest), [], 0, 0, False
    for word in rest:
        match word:
            case "+":
                offset = int(next(rest))
            case "align":
                align = int(next(rest))
            case "stream":
                stream = True
            case "mask":
                pass
            case _:
                names.append(word)
    return names, MemRef(buffer, offset, align, stream)


def _fragment(text: str) -> Fragment:
    role, shape, dtype, layout = text.strip("<>").split()
    m, n, k = map(int, shape.split("x"))
    return Fragment(role, (m, n, k), _DTYPES[dtype], layout)
