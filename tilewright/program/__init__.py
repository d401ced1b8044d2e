"""Programs: linear typed SSA instructions with explicit loops, vectors, fragments and barriers."""

from tilewright.program.builder import Builder
from tilewright.program.ir import (
    Binding,
    Block,
    If,
    Instr,
    Loop,
    MemRef,
    Param,
    Program,
    Scratch,
    Type,
)

__all__ = ["Binding", "Block", "Builder", "If", "Instr", "Loop", "MemRef", "Param", "Program",
           "Scratch", "Type"]
