"""One stage's values at one point of the tree: loads, arithmetic, stores, for one register copy.

Values that do not differ between lanes stay scalars and are spread where they meet a vector. Where
a point may lie outside a ragged axis, a guard masks loads and stores.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.actions.nest import base, nominal
from tilewright.dtypes import bool_
from tilewright.index import Expr, Sym, as_expr, const, substitute, symbols
from tilewright.kernel.value import Value, const_number, divides
from tilewright.kernel.value import test as make_test
from tilewright.lower import scalar
from tilewright.lower.address import LANE
from tilewright.lower.band import band_of
from tilewright.lower.regions import axes_of, copy_strides, indices
from tilewright.lower.transfers import Memory, Transfers
from tilewright.lower.transpose import transpose
from tilewright.program import Builder, Instr, MemRef, Type


@dataclass
class Point:
    """Where a leaf is being emitted: its axes' indices, lane count, guard, and values so far."""

    owner: str
    known: dict[str, Expr]  # the indices of loops, parts and axes
    axes: dict[Sym, Expr]
    lanes: int
    guard: Instr | None = None  # the lanes inside every ragged axis
    guard_first: Instr | None = None  # whether lane 0 is: then a uniform address is valid
    memo: dict[int, Instr] = field(default_factory=dict)
    jam: tuple[str, int, int] | None = None  # (interleaved loop, this copy, copies)
    others: tuple[int, ...] = ()  # the copies of the interleaved loops around it


class Leaves:
    """Emits values of stages; knows nothing of loops."""

    def __init__(self, builder: Builder, memory: Memory):
        self.builder, self.memory = builder, memory
        self.transfers = Transfers(builder, memory)
        self.addresses = self.transfers.addresses
        self._tiles: dict[tuple, list[Instr]] = {}
        self._tiled: dict[tuple, bool] = {}

    def forget_tiles(self) -> None:
        """Start a leaf: tiles that were loaded before may be stale, or out of sight."""
        self._tiles.clear()
        self._tiled.clear()

    # -- guards ------------------------------------------------------------------------------

    def guard_of(self, owner: str, known: dict[str, Expr], vector: str | None, lanes: int,
                 lane: Sym, finish: bool) -> list[Expr]:
        """Return expressions that are >= 0 at a point inside every ragged part of its axes.

        At the `finish` of a reduction only its free axes count.
        """
        nest = self.memory.nest
        found = [as_expr(step.size - 1) - known[step.whole] for step in nest.derived[owner]
                 if step.kind == "split" and step.size % step.factor and step.whole in known
                 and not (finish and nest.role(step.whole, owner) in ("reduce", "carry"))]
        if vector is not None and nominal(nest, vector) != lanes:
            found.append(as_expr(nominal(nest, vector) - 1) - as_expr(lane))
        return found

    def conjunction(self, exprs: list[Expr], lanes: int) -> Instr | bool | None:
        """Return the mask of ``all(e >= 0)``: None if always, False if never."""
        mask: Instr | None = None
        for e in exprs:
            value = make_test(e)
            if value.op == "const":
                if not const_number(value):
                    return False
                continue
            mask = self._and(mask, self._test(e, lanes))
        return mask

    def _and(self, a: Instr | None, b: Instr) -> Instr:
        return b if a is None else self.builder.op("and", a, b)

    def _test(self, e: Expr, lanes: int) -> Instr:
        return self.builder.op("le", self.builder.as_index(0), self.addresses.value(e, lanes))

    # -- values ------------------------------------------------------------------------------

    def evaluate(self, point: Point, order: list[Value], cut: dict[int, str]) -> None:
        """Emit every value of `order` into the point's memo."""
        memo = point.memo
        for value in order:
            if id(value) in memo:
                continue
            if id(value) in cut:
                memo[id(value)] = self._load_copy(point, cut[id(value)], value)
            else:
                memo[id(value)] = self._emit(point, value)

    def _emit(self, point: Point, value: Value) -> Instr:
        b = self.builder
        if value.op == "const":
            return b.const(const_number(value), Type(value.dtype))
        if value.op == "load":
            return self._load(point, value)
        if value.op == "index":
            return self.addresses.value(substitute(value.data, point.axes), point.lanes)
        if value.op in ("test", "divides"):
            return self._condition(point, value)
        args = [point.memo[id(a)] for a in value.args]
        return scalar.emit(b, value.op, args, value.dtype)

    def _condition(self, point: Point, value: Value) -> Instr:
        b = self.builder
        if value.op == "test":
            e = substitute(value.data, point.axes)
            known = make_test(e)
            if known.op == "const":
                return b.const(const_number(known), Type(bool_))
            return self._test(e, point.lanes)
        e, divisor = value.data
        e = substitute(e, point.axes)
        known = divides(e, divisor)
        if known.op == "const":
            return b.const(const_number(known), Type(bool_))
        return b.op("eq", self.addresses.value(e % divisor, point.lanes), b.as_index(0))

    # -- memory ------------------------------------------------------------------------------

    def _load(self, point: Point, value: Value) -> Instr:
        buffer, where = value.data
        e = self.transfers.place(buffer, tuple(substitute(w, point.axes) for w in where))
        mask: Instr | None = None
        for guard in value.args:
            test = point.memo[id(guard)]
            if test.op == "const":
                if not test.data[0]:  # type: ignore[index]
                    return self.builder.const(0, Type(value.dtype))
                continue
            mask = self._and(mask, test)
        kernel_buffer = self.memory.nest.kernel.buffer[buffer]
        if any(int(n) == 0 for n in kernel_buffer.shape):
            return self.builder.const(0, Type(value.dtype))
        inside = self._guard(point, e)
        if inside is not None:
            mask = self._and(mask, inside)
        return self.load(point, value.dtype, buffer, e, mask, self._is_tile(point, value))

    def _is_tile(self, point: Point, value: Value) -> bool:
        """Return whether consecutive copies of the interleaved loop read consecutive elements.

        Then a square tile is loaded whole, so all of its copies and lanes have to be inside.
        """
        if point.jam is None or point.guard is not None or value.args:
            return False
        _, here, copies = point.jam
        if copies < point.lanes or copies % point.lanes:
            return False
        if any(s not in point.axes for w in value.data[1] for s in symbols(w)):
            return False  # a value read from memory may differ from copy to copy
        key = (id(value), point.others, here // point.lanes)
        if key not in self._tiled:
            self._tiled[key] = self._is_tile_at(point, value, here - here % point.lanes)
        return self._tiled[key]

    def _is_tile_at(self, point: Point, value: Value, first: int) -> bool:
        nest, env = self.memory.nest, self.memory.env
        loop = point.jam[0]  # type: ignore[index]
        buffer, where = value.data
        copy = Sym(loop, first, first + point.lanes - 1)
        known = indices(nest, point.owner, env | {loop: as_expr(copy)})
        axes = axes_of(nest, point.owner, known)
        offset = self.transfers.place(buffer, tuple(substitute(w, axes) for w in where))
        vector = band_of(nest, point.owner).vector
        lane = Sym(LANE, 0, point.lanes - 1)
        return offset.coefficient(copy) == 1 and copy not in symbols(offset - as_expr(copy)) \
            and all(e.lo >= 0 for e in self.guard_of(
                point.owner, known, vector, point.lanes, lane, False))

    def load(self, point: Point, dtype, buffer: str, e: Expr, mask: Instr | None,
             tiled: bool = False) -> Instr:
        """Load the element, or the lanes, at offset e; masked-off ones give 0."""
        coef, rest = self.addresses.split_lane(e)
        if tiled and mask is None and coef is not None and abs(coef) > 1:
            return self._load_tile(point, dtype, buffer, rest, coef)
        return self.transfers.load(point.lanes, dtype, buffer, e, mask)

    def _load_tile(self, point: Point, dtype, buffer: str, rest: Expr, coef: int) -> Instr:
        """Load a square tile along the interleaved loop, one vector per lane, and transpose it."""
        b, n = self.builder, point.lanes
        _, here, _ = point.jam  # type: ignore[misc]
        row = here % n
        first = rest - row
        key = (buffer, first, coef)
        if key not in self._tiles:
            rows = []
            for lane in range(n):
                offset, constant = self.addresses.parts(first + lane * coef)
                rows.append(b.load(Type(dtype, n), offset, MemRef(buffer, constant)))
            self._tiles[key] = transpose(b, rows)
        return self._tiles[key][row]

    def _load_copy(self, point: Point, name: str, value: Value) -> Instr:
        e, inside = self.copy_offset(point, name)
        if inside:
            return self.load(point, value.dtype, name, e, None)
        return self.load(point, value.dtype, name, e, self._guard(point, e))

    def _guard(self, point: Point, e: Expr) -> Instr | None:
        """Return the mask under which the memory at offset e may be touched."""
        return point.guard if self.addresses.is_vector(e) else point.guard_first

    def copy_offset(self, point: Point, name: str) -> tuple[Expr, bool]:
        """Return a point's offset in a copy's layout, and whether it never leaves it."""
        nest = self.memory.nest
        e, inside = const(0), True
        for loop, stride in copy_strides(nest, name)[0]:
            index = point.known.get(base(loop), const(0))
            inside &= index.hi < max(nominal(nest, loop), 1)
            e = e + index * stride
        return e, inside
