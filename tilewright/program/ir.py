"""The Program: what every backend renders and the interpreter executes.

    Program := name(params) scratch.. body
    Param   := input | output, name, dtype              a flat array, element alignment only
    Scratch := name, dtype, elements, space             private (per worker), global, shared;
                                                        64-byte aligned, undefined at entry
    Block   := Instr*
    Instr   := op type args data                        the instruction is the value it defines

Types are a dtype and a lane count; ``bool`` in registers is one bit per lane, in memory one byte
(0 or 1). Offsets are int64 element counts. Operations, with n lanes or one:

    const                 data: the bytes of one element (every lane equal)
    lanes                 int64 0, 1, .. n-1
    splat x               n copies of a scalar
    lane x                data i: one element of a vector
    shuffle x y           data: a tuple of lanes of x then y; -1 for any
    add sub mul           integers wrap; floats are strict (never contracted, never reassociated)
    fma a b c             a*b + c with one rounding
    div                   floats
    idiv irem             integers, truncating; the divisor is nonzero and the result representable
    min max               as NumPy: a NaN in either operand gives NaN
    and or xor not        integers and bool;   shl shr: amount in 0..bits-1, shr by signedness
    neg abs sqrt floor ceil trunc round          round: to nearest, ties to even
    eq ne lt le           result bool; false on NaN, except ne, which is true
    select c a b
    cast x                to the type's dtype: integers wrap, extend by signedness; float to integer
                          needs a value in range; to bool is != 0
    bitcast x             same width
    load off [mask]       data MemRef: contiguous; masked-off lanes read nothing and give 0
    gather offs [mask]    data MemRef: one offset per lane
    store off x [mask]    scatter offs x [mask]      lanes in order
    prefetch off          data MemRef
    barrier               all threads of the block meet
    thread threads        the worker's number, and how many there are (int64)
    iv                    the index of a loop (int64)
    scaled                data (Loop, c): iv * c, kept by addition
    carry                 a value carried by a loop;     result: data i, args (loop): its end value
    frag_zero             data Fragment;              frag_load off ld: data (Fragment, MemRef)
    frag_mma a b acc      data Fragment, acc's;       frag_store off ld acc: data (Fragment, MemRef)

    Loop := kind lo hi carries body yields     kind: serial, parallel (workers share the range),
                                               block, thread, lane (a GPU's grid, block, warp)
    If   := condition body                     no values leave it

A parallel loop stands at the top of a program and has no carries. Code outside of it has its
effects on one worker.
In a block, code outside of the thread loops runs once; a thread or lane loop's end is no barrier.

A fragment is a tile spread over the lanes of a warp: role a (m x k), b (k x n) or acc (m x n). Its
value has the type of dtype times the tile's elements; only fragment ops, carries and yields take
it. Element (r, c) lies at off + r*ld + c in layout row, off + c*ld + r in col. frag_mma gives
acc + a@b, summed in any order at the accumulator's precision or better (integers wrap). A warp
executes a fragment op once: it stands outside of lane loops; thread loops around it count warps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.dtypes import DType, bool_, int64
from tilewright.program.printer import print_program


@dataclass(frozen=True)
class Type:
    """A dtype with a number of lanes; ``Type(float32, 16)`` prints ``f32x16``."""

    dtype: DType
    lanes: int = 1

    def __str__(self) -> str:
        short = {"bool": "b1", "bfloat16": "bf16"}.get(
            self.dtype.name, f"{self.dtype.kind}{self.dtype.bits}")
        return short if self.lanes == 1 else f"{short}x{self.lanes}"

    def with_lanes(self, lanes: int) -> Type:
        return Type(self.dtype, lanes)

    def with_dtype(self, dtype: DType) -> Type:
        return Type(dtype, self.lanes)


INDEX = Type(int64)
BOOL = Type(bool_)


@dataclass(frozen=True)
class Fragment:
    """A tile held by a warp: role a, b or acc; shape (m, n, k); dtype; layout row or col."""

    role: str
    shape: tuple[int, int, int]
    dtype: DType
    layout: str = "row"

    @property
    def extents(self) -> tuple[int, int]:
        """Rows and columns of this tile."""
        m, n, k = self.shape
        return {"a": (m, k), "b": (k, n), "acc": (m, n)}[self.role]


@dataclass(frozen=True)
class MemRef:
    """A place in memory: a buffer, a constant offset in elements, a known alignment in bytes."""

    buffer: str
    offset: int = 0
    align: int = 0  # 0: the element's own alignment
    stream: bool = False  # a non-temporal store


class Instr:
    """One instruction and the value it defines. `level` is the depth of the block it stands in."""

    __slots__ = ("args", "data", "level", "op", "type")

    def __init__(self, op: str, type_: Type | None, args: tuple[Instr, ...] = (),
                 data: Any = None, level: int = 0):
        self.op, self.args, self.data, self.level = op, args, data, level
        self.type: Type = type_  # type: ignore[assignment]  # None for what has no value: a store

    def __repr__(self) -> str:
        return f"<{self.op} {self.type}>"


Block = list


class Loop(Instr):
    """``for var in lo..hi`` with carried values. args are (lo, hi, init..)."""

    __slots__ = ("body", "carries", "kind", "scaled", "var", "yields")

    def __init__(self, kind: str, lo: Instr, hi: Instr, inits: tuple[Instr, ...], level: int):
        super().__init__("loop", None, (lo, hi, *inits), None, level)
        self.kind = kind
        self.var = Instr("iv", INDEX, (), self, level + 1)
        self.carries = [Instr("carry", i.type, (), self, level + 1) for i in inits]
        self.scaled: list[Instr] = []
        self.body: Block = []
        self.yields: list[Instr] = []

    @property
    def lo(self) -> Instr:
        return self.args[0]

    @property
    def hi(self) -> Instr:
        return self.args[1]

    @property
    def inits(self) -> tuple[Instr, ...]:
        return self.args[2:]


class If(Instr):
    """Run the body where the scalar condition holds."""

    __slots__ = ("body",)

    def __init__(self, condition: Instr, level: int):
        super().__init__("if", None, (condition,), None, level)
        self.body: Block = []


@dataclass(frozen=True)
class Param:
    """An array argument, in order of the entry's pointer table."""

    name: str
    kind: str  # input, output
    dtype: DType


@dataclass(frozen=True)
class Scratch:
    """Memory of the program itself; global scratch lasts from Program to Program of a kernel."""

    name: str
    dtype: DType
    elements: int
    space: str = "private"  # private, global, shared


@dataclass
class Program:
    """One launch. `parallel` says that it holds a parallel loop, so all workers enter it."""

    name: str
    params: tuple[Param, ...]
    scratch: tuple[Scratch, ...]
    body: Block = field(default_factory=list)
    parallel: bool = False
    count: int = 0  # instructions

    def __str__(self) -> str:
        return print_program(self)

    def area(self, space: str) -> tuple[dict[str, int], int]:
        """Return (byte offset of each scratch of a space, bytes of the whole), 64-byte steps."""
        offsets: dict[str, int] = {}
        total = 0
        for s in self.scratch:
            if s.space == space:
                offsets[s.name] = total
                total += -(-max(s.elements, 1) * s.dtype.itemsize // 64) * 64
        return offsets, total


@dataclass(frozen=True)
class Binding:
    """A compiled entry's signature, the ABI of CPU backends.

    ``void entry(void** buffers, int64* extents, int64 worker, int64 workers)``: `buffers` holds
    the params in order, then the global area, then the private area of worker 0; each worker's
    private area follows at `private_bytes`.
    """

    params: tuple[Param, ...]
    global_bytes: int
    private_bytes: int
