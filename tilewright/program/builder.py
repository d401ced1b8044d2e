"""Emits Programs: hoists, shares and counts while emitting.

Every pure instruction goes to the outermost open block where its arguments are known, and is
emitted there once: loop-invariant code motion and common subexpressions are by construction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from tilewright.dtypes import DType, bool_, int64
from tilewright.errors import TooLarge
from tilewright.program.ir import (
    BOOL,
    INDEX,
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

PURE = frozenset(
    "const lanes splat lane shuffle add sub mul fma div idiv irem min max and or xor not shl shr "
    "neg abs sqrt floor ceil trunc round eq ne lt le select cast bitcast thread threads".split())


class Builder:
    """Build one Program. `cap` is the most instructions it may hold; beyond, TooLarge is raised."""

    def __init__(self, name: str, params: Sequence[Param], cap: int = 1 << 60):
        self.program = Program(name, tuple(params), ())
        self.cap = cap
        self.read_only = {p.name for p in params if p.kind == "input"}
        self._blocks: list[Block] = [self.program.body]
        self._shared: list[dict[tuple, Instr]] = [{}]
        self._barrier = [0]  # loads are not hoisted above these levels (conditions)
        self._loops: list[Loop | None] = [None]

    # -- blocks ------------------------------------------------------------------------------

    @property
    def level(self) -> int:
        return len(self._blocks) - 1

    def _open(self, block: Block, barrier: int, loop: Loop | None) -> None:
        self._blocks.append(block)
        self._shared.append({})
        self._barrier.append(barrier)
        self._loops.append(loop)

    def _close(self) -> None:
        for stack in (self._blocks, self._shared, self._barrier, self._loops):
            stack.pop()

    @contextmanager
    def loop(self, lo: Instr | int, hi: Instr | int, inits: Sequence[Instr] = (),
             kind: str = "serial") -> Iterator[Loop]:
        """Open a loop; set ``loop.yields`` before the block ends; results by `result`."""
        lo, hi = self.as_index(lo), self.as_index(hi)
        loop = Loop(kind, lo, hi, tuple(inits), self.level)
        self._open(loop.body, self._barrier[-1], loop)
        yield loop
        assert len(loop.yields) == len(loop.carries)
        self._close()
        self._append(loop, self.level)
        self.program.parallel |= kind == "parallel"

    def result(self, loop: Loop, slot: int) -> Instr:
        """Return the final value of a carried value, after the loop is closed."""
        return self._append(Instr("result", loop.carries[slot].type, (loop,), slot, self.level),
                            self.level)

    @contextmanager
    def when(self, condition: Instr) -> Iterator[None]:
        """Open a block that runs where the scalar condition holds."""
        branch = If(condition, self.level)
        self._open(branch.body, self.level + 1, None)
        yield
        self._close()
        self._append(branch, self.level)

    def _append(self, instr: Instr, level: int) -> Instr:
        self.program.count += 1
        if self.program.count > self.cap:
            raise TooLarge(f"{self.program.name}: cannot emit more than {self.cap} instructions "
                           "(the cap of one kernel)")
        instr.level = level
        self._blocks[level].append(instr)
        return instr

    # -- instructions ------------------------------------------------------------------------

    def emit(self, op: str, type_: Type, *args: Instr, data: object = None) -> Instr:
        """Emit a pure instruction, hoisted and shared."""
        assert op in PURE, op
        level = 0
        for a in args:
            if a.level > level:
                level = a.level
        key = (op, type_, data, *map(id, args))
        shared = self._shared[level]
        found = shared.get(key)
        if found is None:
            found = shared[key] = self._append(Instr(op, type_, args, data), level)
        return found

    def const(self, value: object, type_: Type) -> Instr:
        """Return a constant with every lane equal to `value` (converted with NumPy's rules)."""
        bits = np.asarray(value).astype(type_.dtype.numpy).tobytes()
        return self.emit("const", type_, data=bits)

    def as_index(self, value: Instr | int) -> Instr:
        return value if isinstance(value, Instr) else self.const(value, INDEX)

    def splat(self, x: Instr, lanes: int) -> Instr:
        """Return x in every lane; a vector is returned as it is."""
        if x.type.lanes == lanes:
            return x
        if x.op == "const":
            return self.emit("const", x.type.with_lanes(lanes), data=x.data)
        return self.emit("splat", x.type.with_lanes(lanes), x)

    def op(self, name: str, *args: Instr, dtype: DType | None = None) -> Instr:
        """Emit an operation; scalars meet vectors by splat.

        The result has the last argument's dtype; comparisons give bool; `dtype` overrides (cast,
        bitcast).
        """
        lanes = max(a.type.lanes for a in args)
        if lanes > 1:
            args = tuple(self.splat(a, lanes) for a in args)
        result = dtype or (bool_ if name in ("eq", "ne", "lt", "le") else args[-1].type.dtype)
        return self.emit(name, Type(result, lanes), *args)

    def cast(self, x: Instr, dtype: DType) -> Instr:
        return x if x.type.dtype == dtype else self.op("cast", x, dtype=dtype)

    def lanes(self, count: int) -> Instr:
        return self.emit("lanes", Type(int64, count))

    def shuffle(self, x: Instr, y: Instr, lanes: tuple[int, ...]) -> Instr:
        return self.emit("shuffle", x.type.with_lanes(len(lanes)), x, y, data=lanes)

    def lane(self, x: Instr, i: int) -> Instr:
        return self.emit("lane", x.type.with_lanes(1), x, data=i)

    def scaled(self, loop: Loop, coef: int) -> Instr:
        """Return the loop's index times a constant, kept by addition instead of multiplied."""
        if coef == 1:
            return loop.var
        key = ("scaled", coef)
        shared = self._shared[loop.level + 1]
        if key not in shared:
            shared[key] = Instr("scaled", INDEX, (loop.var,), (loop, coef), loop.level + 1)
            loop.scaled.append(shared[key])
        return shared[key]

    # -- memory ------------------------------------------------------------------------------

    def load(self, type_: Type, offset: Instr, ref: MemRef, mask: Instr | None = None,
             op: str = "load") -> Instr:
        """Load, or gather; loads of read-only buffers are hoisted and shared."""
        args = (offset,) if mask is None else (offset, mask)
        if ref.buffer not in self.read_only:
            return self._append(Instr(op, type_, args, ref), self.level)
        level = max(self._barrier[-1], *(a.level for a in args))
        key = (op, type_, ref, *map(id, args))
        shared = self._shared[level]
        if key not in shared:
            shared[key] = self._append(Instr(op, type_, args, ref), level)
        return shared[key]

    def store(self, offset: Instr, value: Instr, ref: MemRef, mask: Instr | None = None,
              op: str = "store") -> None:
        args = (offset, value) if mask is None else (offset, value, mask)
        self._append(Instr(op, None, args, ref), self.level)

    def barrier(self) -> None:
        self._append(Instr("barrier", None), self.level)

    def add_scratch(self, scratch: Scratch) -> None:
        self.program.scratch = (*self.program.scratch, scratch)

    def true(self) -> Instr:
        return self.const(True, BOOL)
