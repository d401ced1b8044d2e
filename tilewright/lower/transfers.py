"""Loads and stores of elements and lanes at an offset: contiguous, strided, scattered, masked."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.actions.access import picked
from tilewright.actions.nest import Nest
from tilewright.dtypes import DType
from tilewright.index import Expr, multiple_of
from tilewright.limits import LINE
from tilewright.lower import scalar
from tilewright.lower.address import Addresses
from tilewright.lower.regions import Region
from tilewright.lower.strided import pick, spread
from tilewright.program import Builder, Instr, MemRef, Type


def type_of(x: Instr) -> Type:
    """Return the type of an instruction that has a value."""
    assert x.type is not None
    return x.type


@dataclass
class Memory:
    """Where each buffer of the kernel lies, which operands were copied, and how memory is written.

    streamed    bytes of the least vector that is stored past the caches
    """

    nest: Nest
    env: dict[str, Expr]
    regions: dict[str, Region]
    streamed: int


class Transfers:
    """Moves values between registers and memory; knows nothing of stages."""

    def __init__(self, builder: Builder, memory: Memory):
        self.builder, self.memory = builder, memory
        self.addresses = Addresses(builder)

    def place(self, buffer: str, where: tuple[Expr, ...]) -> Expr:
        """Return the flat offset of an element under the current loops."""
        if buffer in self.memory.regions:
            return self.memory.regions[buffer].offset(where, self.memory.env)
        return where[0]

    def reference(self, buffer: str, offset: int, rest: Expr, itemsize: int) -> MemRef:
        align = 0
        if buffer in self.memory.regions or buffer.endswith(".copy"):
            step = multiple_of(Expr(rest.terms, offset)) * itemsize
            align = LINE if step % LINE == 0 else (step & -step)
        return MemRef(buffer, offset, align)

    def load(self, n: int, dtype: DType, buffer: str, e: Expr, mask: Instr | None) -> Instr:
        """Load the element, or `n` lanes, at offset e; masked-off ones give 0."""
        b, a = self.builder, self.addresses
        coef, rest = a.split_lane(e)
        if coef == 0 and (mask is None or type_of(mask).lanes == 1):
            return self._load_scalar(dtype, buffer, rest, mask)
        wide = Type(dtype, n)
        if mask is not None:
            mask = b.splat(mask, n)
        if coef in (1, -1):
            if coef == -1:
                rest = rest - (n - 1)
                mask = None if mask is None else b.shuffle(mask, mask, tuple(range(n - 1, -1, -1)))
            offset, constant = a.parts(rest)
            ref = self.reference(buffer, constant, rest, dtype.itemsize)
            loaded = b.load(wide, offset, ref, mask)
            return loaded if coef == 1 else b.shuffle(loaded, loaded, tuple(range(n - 1, -1, -1)))
        if coef is not None and picked(coef, n):
            return self._load_strided(wide, buffer, rest, coef, mask)
        offsets = a.vector(Expr(e.terms, 0), n)
        return b.load(wide, offsets, MemRef(buffer, e.const), mask, op="gather")

    def _load_strided(self, wide: Type, buffer: str, rest: Expr, coef: int, mask: Instr | None
                      ) -> Instr:
        """Load lanes a few elements apart; loads are shared with the elements between, if known
        to be in the buffer."""
        n, step = wide.lanes, abs(coef)
        if coef < 0:
            rest = rest + coef * (n - 1)
        first = rest.const % step
        begin = rest - first
        known = self.memory.nest.kernel.buffer.get(buffer)
        room = mask is None and known is not None and known.kind == "input" and begin.lo >= 0 \
            and begin.hi + step * n <= prod(int(e) for e in known.shape)
        if not room:
            first, begin = 0, rest

        def load(start: int, inside: Instr | None) -> Instr:
            offset, constant = self.addresses.parts(begin + start)
            ref = self.reference(buffer, constant, begin + start, wide.dtype.itemsize)
            return self.builder.load(wide, offset, ref, inside)
        return pick(self.builder, load, coef, n, first, room, mask)

    def _load_scalar(self, dtype: DType, buffer: str, e: Expr, mask: Instr | None) -> Instr:
        b = self.builder
        if mask is None:
            offset, constant = self.addresses.parts(e)
            return b.load(Type(dtype), offset, MemRef(buffer, constant))
        if buffer not in b.read_only:  # another worker may be writing at offset 0
            offset, constant = self.addresses.parts(e)
            return b.load(Type(dtype), offset, MemRef(buffer, constant), mask)
        safe = b.op("select", mask, self.addresses.scalar(e), b.as_index(0))
        loaded = b.load(Type(dtype), safe, MemRef(buffer))
        return b.op("select", mask, loaded, b.const(0, Type(dtype)))

    def store(self, n: int, buffer: str, e: Expr, value: Instr, mask: Instr | None,
              combine: str = "", stream: bool = False) -> None:
        """Store a scalar, or `n` lanes, at offset e, combined with what is there on request."""
        combine = {"max": "maximum", "min": "minimum"}.get(combine, combine)
        b, a = self.builder, self.addresses
        coef, rest = a.split_lane(e)
        if coef == 0 and mask is not None and type_of(mask).lanes > 1:
            coef = None
        if combine and n > 1 and not coef:
            self._combine_lanes(n, buffer, e, value, mask, combine)
            return
        if coef == 0:
            if type_of(value).lanes > 1:
                value = b.lane(value, n - 1)
            self._store_scalar(buffer, rest, value, mask, combine)
            return
        value = b.splat(value, n)
        if mask is not None:
            mask = b.splat(mask, n)
        if coef == 1:
            offset, constant = a.parts(rest)
            ref = self.reference(buffer, constant, rest, type_of(value).dtype.itemsize)
            if stream and mask is None:
                ref = self._streamed(ref, rest, type_of(value))
            if combine:
                old = b.load(type_of(value), offset, ref, mask)
                value = scalar.emit(b, combine, [old, value], type_of(value).dtype)
            b.store(offset, value, ref, mask)
            return
        if coef is not None and picked(coef, n) and not combine:
            self._store_strided(buffer, rest, coef, value, mask)
            return
        offsets = a.vector(Expr(e.terms, 0), n)
        ref = MemRef(buffer, e.const)
        if combine:
            old = b.load(type_of(value), offsets, ref, mask, op="gather")
            value = scalar.emit(b, combine, [old, value], type_of(value).dtype)
        b.store(offsets, value, ref, mask, op="scatter")

    def _store_strided(self, buffer: str, rest: Expr, coef: int, value: Instr,
                       mask: Instr | None) -> None:
        """Store lanes a few elements apart; those between stay as they are."""
        lanes, itemsize = type_of(value).lanes, type_of(value).dtype.itemsize
        lowest = rest if coef > 0 else rest + coef * (lanes - 1)

        def store(start: int, part: Instr, inside: Instr) -> None:
            offset, constant = self.addresses.parts(lowest + start)
            ref = self.reference(buffer, constant, lowest + start, itemsize)
            self.builder.store(offset, part, ref, inside)
        spread(self.builder, store, value, coef, mask)

    def _streamed(self, ref: MemRef, rest: Expr, type_: Type) -> MemRef:
        """Return a non-temporal reference, if every vector stored there is aligned to its size.

        Not of small parts of a line: at times it is written out before it is whole, which costs
        more than the caches do.
        """
        whole = type_.lanes * type_.dtype.itemsize
        width = min(whole, LINE)
        aligned = multiple_of(rest) * type_.dtype.itemsize % width == 0
        if whole < self.memory.streamed or whole & (whole - 1) or not aligned:
            return ref
        return MemRef(ref.buffer, ref.offset, width, stream=True)

    def _combine_lanes(self, n: int, buffer: str, e: Expr, value: Instr, mask: Instr | None,
                       combine: str) -> None:
        """Combine lane after lane: several may hit one element."""
        b = self.builder
        value, offsets = b.splat(value, n), self.addresses.vector(e, n)
        mask = None if mask is None else b.splat(mask, n)
        for lane in range(n):
            offset, new = b.lane(offsets, lane), b.lane(value, lane)

            def put(offset: Instr = offset, new: Instr = new) -> None:
                old = b.load(type_of(new), offset, MemRef(buffer))
                b.store(offset, scalar.emit(b, combine, [old, new], type_of(new).dtype),
                        MemRef(buffer))
            if mask is None:
                put()
            else:
                with b.when(b.lane(mask, lane)):
                    put()

    def _store_scalar(self, buffer: str, e: Expr, value: Instr, mask: Instr | None,
                      combine: str) -> None:
        b = self.builder

        def put() -> None:
            offset, constant = self.addresses.parts(e)
            ref = MemRef(buffer, constant)
            new = value
            if combine:
                old = b.load(type_of(value), offset, ref)
                new = scalar.emit(b, combine, [old, value], type_of(value).dtype)
            b.store(offset, new, ref)
        if mask is None:
            put()
        else:
            with b.when(mask):
                put()
