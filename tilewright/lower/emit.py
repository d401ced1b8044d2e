"""Walks the loop tree and emits it: loops, register bands, reductions.

A loop is emitted in segments: the last iteration of a ragged split, the first and last step of a
reduction whose partial states live in memory, and the sides of a `Partition` are code of their own,
so that no loop holds a test that a segment can decide. A segment of one iteration is no loop.

A reduction's state is carried in registers from its *root* on, the outermost of its loops inside
which no serial free loop of the stage stands. Further out, partial states live in memory.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from tilewright.actions.nest import (
    BAND,
    Item,
    Leaf,
    Loop,
    Nest,
    base,
    is_band,
    leaves,
    nominal,
    split_factor,
)
from tilewright.errors import Illegal
from tilewright.index import Expr, Sym, as_expr, substitute, symbols
from tilewright.kernel import Stage, State
from tilewright.kernel.reductions import MOST_SEQUENTIAL
from tilewright.kernel.value import Value
from tilewright.lower import scalar
from tilewright.lower.address import LANE
from tilewright.lower.band import Band, band_of
from tilewright.lower.leaf import Leaves, Point
from tilewright.lower.regions import axes_of, cut_operands, indices, uncut_order
from tilewright.lower.states import Accumulators, PartialMemory, sums_floats
from tilewright.lower.steps import Steps
from tilewright.program import Builder, Instr


class Emitter(Steps):
    """Emits items of a nest into one Program."""

    def __init__(self, nest: Nest, builder: Builder, leaves_: Leaves):
        self.nest, self.builder, self.leaves = nest, builder, leaves_
        self.env = leaves_.memory.env
        self.accumulators: dict[str, Accumulators] = {}
        self.partial: dict[str, PartialMemory] = {}
        self._orders: dict[tuple[str, str], tuple[list[Value], dict[int, str]]] = {}
        self._root: dict[str, str] = {}  # the loop from which a stage's state is in registers
        self._sequence: list[str] = []  # names of the loops around, outermost first

    # -- loops -------------------------------------------------------------------------------

    def items(self, items: tuple[Item, ...]) -> None:
        for item in items:
            if isinstance(item, Leaf):
                self.leaf(item.stage)
            elif is_band(item):
                self.leaf(next(leaves((item,))))
            else:
                self.loop(item)

    def size(self, name: str) -> int:
        """Return the extent of a loop here: the rest of a ragged split is shorter."""
        key = base(name)
        if key.endswith(".1") and key[:-2] + ".0" in self.env:
            factor = split_factor(self.nest, name[:-2])
            if factor:
                outer = self.env[key[:-2] + ".0"]
                whole = self.size(name[:-2])
                if (outer.hi + 1) * factor > whole and outer.is_const:
                    return max(whole - outer.const * factor, 0)
                return min(factor, whole) if whole else 0
        if key.endswith(".0"):
            factor = split_factor(self.nest, name[:-2])
            if factor:
                return -(-self.size(name[:-2]) // factor)
        return nominal(self.nest, name)

    def loop(self, loop: Loop) -> None:
        below = [s for s in leaves((loop,)) if s not in self.nest.copy]
        states = [s for s in below if self.nest.kernel.stage[s].state is not None
                  and self.nest.role(loop.name, s) in ("reduce", "carry")
                  and s not in self.accumulators]
        roots = [s for s in states if self.is_root(loop, s)]
        spilled = [s for s in states if s not in roots]
        for s in roots:
            self.open(s)
            self._root[s] = loop.name
        for s in spilled:
            if s not in self.partial:
                self.partial[s] = PartialMemory(self.nest, s, tuple(self._sequence))
        self._sequence.append(loop.name)
        n = max(self.size(loop.name), 1)
        for s in spilled:
            self._check_sequence(loop, s)
        segments = self._segments(loop, n, bool(spilled))
        unrolled = MOST_SEQUENTIAL if loop.kind == "unroll" else len(segments)
        sums = [s for s in below if s in self.accumulators and loop.kind == "unroll"
                and self._bounded(loop, s) and (s not in roots or n > MOST_SEQUENTIAL)]
        for first in range(0, len(segments), unrolled):
            self._fresh(sums, lambda part=segments[first:first + unrolled]: self._segments_of(
                loop, part, n, spilled))
        self._sequence.pop()
        for s in spilled:
            if self.partial[s].outer == tuple(self._sequence):
                del self.partial[s]
        self.env.pop(base(loop.name), None)
        for s in roots:
            self.close(s)

    def _check_sequence(self, loop: Loop, stage: str) -> None:
        """Refuse partial states in memory to which more is added in a row than a tree allows."""
        path = self.nest.paths[stage]
        trips = 1
        for outer in path[:[p.name for p in path].index(loop.name) + 1]:
            if self._bounded(outer, stage):
                trips *= nominal(self.nest, outer.name)
        if trips > MOST_SEQUENTIAL:
            raise Illegal(f"lower: cannot keep partial sums of {stage} in memory over {trips} "
                          f"steps of {loop.name} (at most {MOST_SEQUENTIAL} in a row)")

    def _segments_of(self, loop: Loop, segments: list[tuple[int, int]], n: int,
                     spilled: list[str]) -> None:
        """Emit segments of a loop of n steps; tell spilled states which is the first and last."""
        for lo, hi in segments:
            flags = {s: (self.partial[s].first, self.partial[s].last) for s in spilled}
            for s in spilled:
                self.partial[s].first &= lo == 0
                self.partial[s].last &= hi == n
            self._segment(loop, lo, hi)
            for s, (first, last) in flags.items():
                self.partial[s].first, self.partial[s].last = first, last

    def is_root(self, loop: Loop, stage: str) -> bool:
        """Return whether the stage's state can stay in registers from this loop inwards."""
        path = self.nest.paths[stage]
        inner = path[[p.name for p in path].index(loop.name) + 1:]
        return not any(p.kind not in BAND and self.nest.role(p.name, stage) == "free"
                       and nominal(self.nest, p.name) > 1 for p in inner)

    def _segments(self, loop: Loop, n: int, spilled: bool) -> list[tuple[int, int]]:
        points = {0, n}
        if loop.kind == "unroll":
            points = set(range(n + 1))
        if loop.name.endswith(".0") and n > 1:
            factor = split_factor(self.nest, loop.name[:-2])
            if factor and self.size(loop.name[:-2]) % factor:
                points.add(n - 1)
        if spilled:
            points |= {1, n - 1} if n > 1 else set()
        points |= {p for axis, p in self.nest.partitions if axis == loop.name and 0 < p < n}
        ordered = sorted(points)
        return list(zip(ordered, ordered[1:]))

    def _segment(self, loop: Loop, lo: int, hi: int) -> None:
        key = base(loop.name)
        if hi - lo == 1:
            self.env[key] = as_expr(lo)
            if loop.kind == "parallel":  # stands beside parallel loops, where others only compute
                with self.builder.loop(lo, hi, (), "parallel"):
                    self.items(loop.body)
            else:
                self.items(loop.body)
            return
        carried = [s for s in leaves((loop,)) if s in self.accumulators]
        sums = [s for s in carried if self._bounded(loop, s)]
        if sums and hi - lo > MOST_SEQUENTIAL:
            self._blocked(loop, lo, hi - lo, carried, sums)
            return
        self._fresh([s for s in sums if self._root.get(s) != loop.name], lambda: self._plain(
            loop, as_expr(lo), hi - lo, carried, lambda: self.items(loop.body)))

    # -- leaves ------------------------------------------------------------------------------

    def copies(self, owner: str, band: Band, finish: bool = False):
        """Bind the band's loops to each register copy in turn; yield (indices, point).

        At the finish of a reduction the loops around it over reduce axes do not count: their
        last step may lie outside of a ragged axis.
        """
        nest, env = self.nest, self.env
        jams = band.jams
        lane = Sym(LANE, 0, band.lanes - 1)
        ranges = [range(max(self.size(j), 1)) for j in jams]
        self.leaves.forget_tiles()
        if band.vector is not None:
            env[base(band.vector)] = as_expr(lane)
        for copies in product(*ranges):
            for j, i in zip(jams, copies):
                env[base(j)] = as_expr(i)
            known = indices(nest, owner, env)
            exprs = self.leaves.guard_of(owner, known, band.vector, band.lanes, lane, finish)
            guard = self.leaves.conjunction(exprs, band.lanes)
            if isinstance(guard, bool):
                continue
            first = guard
            if guard is not None and all(self._falls(e, lane) for e in exprs):
                at_zero = self.leaves.conjunction(
                    [self._at_lane_zero(e, lane) for e in exprs], 1)
                if isinstance(at_zero, bool):
                    continue
                first = at_zero
            jam = (base(jams[-1]), copies[-1], len(ranges[-1])) if jams else None
            yield copies, Point(owner, known, axes_of(nest, owner, known), band.lanes, guard,
                                first, {}, jam, copies[:-1])
        for loop in band.loops:
            env.pop(base(loop.name), None)

    @staticmethod
    def _falls(e: Expr, lane: Sym) -> bool:
        """Return whether lane 0 is inside if any lane is."""
        rest = Emitter._at_lane_zero(e, lane)
        return e.coefficient(lane) <= 0 and lane not in symbols(rest)

    @staticmethod
    def _at_lane_zero(e: Expr, lane: Sym) -> Expr:
        return Expr(tuple((a, c) for a, c in e.terms if a != lane), e.const)

    def leaf(self, name: str) -> None:
        nest = self.nest
        stage = nest.stage_of(name)
        empty = {a for a in stage.axes() if int(nest.kernel.axis[a].extent) == 0}
        if any(stage.role[a] == "free" for a in empty):
            return
        if name in nest.copy:
            if not empty:
                self._copy_leaf(name, stage)
        elif stage.state is None:
            if not empty:
                self._map_leaf(name, stage)
        else:
            opened = name not in self.accumulators
            if opened:
                self.open(name)
            if not empty:
                self._update_leaf(name, stage)
            if opened:
                self.close(name)

    def order(self, owner: str, kind: str, roots: list[Value]) \
            -> tuple[list[Value], dict[int, str]]:
        key = (owner, kind)
        if key not in self._orders:
            cut = {} if owner in self.nest.copy else cut_operands(self.nest, owner)
            self._orders[key] = (uncut_order(roots, cut), cut)
        return self._orders[key]

    def _copy_leaf(self, name: str, stage: Stage) -> None:
        copy = self.nest.copy[name]
        value = stage.operands[copy.operand]
        for _, point in self.copies(name, band_of(self.nest, name)):
            self._lets(point, stage)
            order, cut = self.order(name, "copy", [value])
            self.leaves.evaluate(point, order, cut)
            offset, _ = self.leaves.copy_offset(point, name)
            self.leaves.transfers.store(point.lanes, name, offset, point.memo[id(value)],
                                        point.guard)

    def _lets(self, point: Point, stage: Stage) -> None:
        for let in stage.lets:
            order = uncut_order([let.value], {})
            self.leaves.evaluate(point, order, {})
            self.leaves.addresses.bind(let.sym, point.memo[id(let.value)])

    def _map_leaf(self, name: str, stage: Stage) -> None:
        for _, point in self.copies(name, band_of(self.nest, name)):
            self._lets(point, stage)
            self.stores(name, stage, point)

    def stores(self, name: str, stage: Stage, point: Point) -> None:
        roots = [r for s in stage.stores for r in (s.value, *s.guard)]
        order, cut = self.order(name, "store", roots)
        self.leaves.evaluate(point, order, cut)
        for store in stage.stores:
            mask = point.guard
            never = False
            for g in store.guard:
                test = point.memo[id(g)]
                if test.op == "const":
                    never |= not test.data[0]  # type: ignore[index]
                    continue
                mask = test if mask is None else self.builder.op("and", mask, test)
            if never:
                continue
            where = tuple(substitute(e, point.axes) for e in store.index)
            offset = self.leaves.transfers.place(store.buffer, where)
            value = point.memo[id(store.value)]
            self.leaves.transfers.store(point.lanes, store.buffer, offset, value, mask,
                                        store.combine, store.buffer in self.nest.streams)

    def _update_leaf(self, name: str, stage: Stage) -> None:
        state = stage.state
        assert state is not None
        acc = self.accumulators[name]
        for copy, point in self.copies(name, acc.band):
            self._lets(point, stage)
            old = acc.values[acc.key(copy)]
            new = self._step(name, stage, state, point, old)
            if point.guard is not None:
                new = [self.builder.op("select", point.guard, n, o) for n, o in zip(new, old)]
            acc.values[acc.key(copy)] = new
            if stage.axes("carry"):
                for i, v in enumerate(new):
                    point.memo[id(acc.state_values[i])] = v
                self.stores(name, stage, replace(point, memo={
                    id(acc.state_values[i]): v for i, v in enumerate(new)}))

    def _step(self, name: str, stage: Stage, state: State, point: Point,
              old: list[Instr]) -> list[Instr]:
        """Return the next state; a contraction's ``state + a*b`` is one fused multiply-add."""
        acc = self.accumulators[name]
        for value, instr in zip(acc.state_values, old):
            point.memo[id(value)] = instr
        if stage.is_contraction:
            factors = state.update[0].args[1].args
            order, cut = self.order(name, "factors", list(factors))
            self.leaves.evaluate(point, order, cut)
            a, b = (point.memo[id(f)] for f in factors)
            return [self._spread(acc, self.builder.op("fma", a, b, old[0]))]
        order, cut = self.order(name, "update", list(state.update))
        self.leaves.evaluate(point, order, cut)
        return [self._spread(acc, point.memo[id(v)]) for v in state.update]

    def _spread(self, acc: Accumulators, x: Instr) -> Instr:
        return self.builder.splat(x, acc.lanes)

    # -- reductions --------------------------------------------------------------------------

    def open(self, name: str) -> None:
        """Start a reduction's register state: its init, or the partial state kept in memory."""
        stage = self.nest.kernel.stage[name]
        band = band_of(self.nest, name)
        acc = Accumulators(self, name, stage, band)
        self.accumulators[name] = acc
        acc.reset(self.builder)
        kept = self.partial.get(name)
        if kept is not None and not kept.first and not sums_floats(stage):
            kept.load(self, acc)

    def close(self, name: str) -> None:
        """Merge the register copies and finish: store the results, or keep the partial state."""
        stage = self.nest.kernel.stage[name]
        acc = self.accumulators.pop(name)
        acc.merge_copies(self)
        kept = self.partial.get(name)
        if kept is not None and not kept.first and sums_floats(stage):
            kept.add(self, acc)
        if kept is not None and not kept.last:
            kept.store(self, acc)
            return
        if stage.axes("carry"):
            return
        for copy, point in self.copies(name, acc.free_band, finish=True):
            for i, v in enumerate(acc.values[acc.key_free(copy)]):
                point.memo[id(acc.state_values[i])] = v
            self._lets(point, stage)
            self.stores(name, stage, point)

    def merge(self, state: State, slots: list[Value], others: list[Value], a: list[Instr],
              b: list[Instr]) -> list[Instr]:
        """Return two partial states joined."""
        memo: dict[int, Instr] = {}
        for value, instr in [*zip(slots, a), *zip(others, b)]:
            memo[id(value)] = instr
        for value in uncut_order(list(state.merge), {}):
            if id(value) not in memo:
                args = [memo[id(x)] for x in value.args]
                memo[id(value)] = scalar.emit(self.builder, value.op, args, value.dtype)
        return [memo[id(v)] for v in state.merge]
