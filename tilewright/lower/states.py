"""A reduction's state while its loops run: in registers, and between passes in memory."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING

from tilewright.actions.nest import Nest, base, nominal
from tilewright.index import const, substitute
from tilewright.kernel import Stage
from tilewright.kernel.value import const_number, other, state
from tilewright.lower.band import Band
from tilewright.lower.regions import Region, axis_map, dimension, nominal_env
from tilewright.program import Builder, Instr, Type

if TYPE_CHECKING:
    from tilewright.lower.emit import Emitter


class Accumulators:
    """The register copies of one reduction's state.

    A band loop over a reduce axis gives partial states, over a free axis states of their own.
    `values` maps a copy (one index per interleaved loop) to its slots, each `lanes` wide.
    """

    def __init__(self, emitter: Emitter, name: str, stage: Stage, band: Band):
        nest = emitter.nest
        self.name, self.band, self.lanes = name, band, band.lanes
        assert stage.state is not None
        self.state = stage.state
        self.state_values = [state(i, v.dtype) for i, v in enumerate(self.state.init)]
        self.other_values = [other(i, v.dtype) for i, v in enumerate(self.state.init)]
        self.reduced = [nest.role(j, name) == "reduce" for j in band.jams]
        self.sizes = [nominal(nest, j) if r else emitter.size(j)
                      for j, r in zip(band.jams, self.reduced)]
        self.vector_reduced = band.vector is not None and nest.role(band.vector, name) == "reduce"
        self.values: dict[tuple[int, ...], list[Instr]] = {}

    @property
    def free_band(self) -> Band:
        """The band without its reduce loops: the copies that remain after merging."""
        loops = tuple(loop for loop in self.band.loops
                      if not (loop.name == self.band.vector and self.vector_reduced)
                      and not (loop.name in self.band.jams
                               and self.reduced[self.band.jams.index(loop.name)]))
        vector = None if self.vector_reduced else self.band.vector
        return Band(loops, vector, 1 if self.vector_reduced else self.lanes)

    def key(self, indices: tuple[int, ...]) -> tuple[int, ...]:
        return indices

    def key_free(self, indices: tuple[int, ...]) -> tuple[int, ...]:
        """Return the copy that holds the merged state of a free copy."""
        rest = iter(indices)
        return tuple(0 if r else next(rest) for r in self.reduced)

    def reset(self, builder: Builder) -> None:
        """Set every copy to the identity."""
        init = [builder.const(const_number(v), Type(v.dtype, self.lanes))
                for v in self.state.init]
        self.values = {c: list(init) for c in product(*(range(max(n, 1)) for n in self.sizes))}

    def copy(self) -> dict[tuple[int, ...], list[Instr]]:
        return dict(self.values)

    def join(self, merge: Callable[..., list[Instr]],
             before: dict[tuple[int, ...], list[Instr]]) -> None:
        """Merge every copy into what it was before."""
        for key, old in before.items():
            self.values[key] = merge(self.state, self.state_values, self.other_values, old,
                                     self.values[key])

    def flat(self) -> list[Instr]:
        return [v for slots in self.values.values() for v in slots]

    def take(self, instrs: list[Instr]) -> list[Instr]:
        """Set the copies from the head of a list; return the rest."""
        for key, slots in self.values.items():
            self.values[key], instrs = instrs[:len(slots)], instrs[len(slots):]
        return instrs

    def merge_copies(self, emitter: Emitter) -> None:
        """Merge partial copies, then lanes, by a balanced tree; index 0 holds the result."""
        groups: dict[tuple[int, ...], list[list[Instr]]] = {}
        for key, slots in self.values.items():
            free = tuple(0 if r else i for i, r in zip(key, self.reduced))
            groups.setdefault(free, []).append(slots)
        for key, parts in groups.items():
            while len(parts) > 1:
                pairs = [emitter.merge(self.state, self.state_values, self.other_values, a, b)
                         for a, b in zip(parts[::2], parts[1::2])]
                parts = pairs + ([parts[-1]] if len(parts) % 2 else [])
            self.values[key] = self._merge_lanes(emitter, parts[0])
        self.values = {k: v for k, v in self.values.items() if k in groups}

    def _merge_lanes(self, emitter: Emitter, slots: list[Instr]) -> list[Instr]:
        if not self.vector_reduced:
            return slots
        b, width = emitter.builder, self.lanes
        while width > 1:
            half = width // 2
            low = [b.shuffle(s, s, tuple(range(half))) if half > 1 else b.lane(s, 0) for s in slots]
            high = [b.shuffle(s, s, tuple(range(half, width))) if half > 1 else b.lane(s, 1)
                    for s in slots]
            slots = emitter.merge(self.state, self.state_values, self.other_values, low, high)
            width = half
        return slots


class PartialMemory:
    """Partial states of a reduction between iterations of a loop outside of its free loops.

    They lie in scratch, one element per point of the free axes inside `outer`, the loops around; or
    in the output itself where `finish` is the identity. `first` and `last` tell whether the
    segment being emitted holds the first and the last step.
    """

    def __init__(self, nest: Nest, name: str, outer: tuple[str, ...]):
        self.nest, self.name, self.outer = nest, name, outer
        self.first = self.last = True
        self.stage = nest.kernel.stage[name]
        self.region = partial_region(nest, name, outer)

    def buffer(self, slot: int) -> str:
        return partial_name(self.name, slot)

    @property
    def direct(self) -> bool:
        return partial_in_output(self.stage)

    def _each(self, emitter: Emitter, acc: Accumulators):
        band = acc.free_band
        for indices, point in emitter.copies(self.name, band, finish=True):
            key = acc.key_free(indices)
            for slot, v in enumerate(acc.state.init):
                if self.direct:
                    store = self.stage.stores[0]
                    yield point, key, slot, v.dtype, store.buffer, \
                        substitute(store.index[0], point.axes)
                else:
                    axes = [self.nest.kernel.axis[a].sym for a in self.stage.axes("free")]
                    where = tuple(point.axes[s] for s in axes)
                    offset = self.region.offset(where, emitter.env)
                    yield point, key, slot, v.dtype, self.buffer(slot), offset

    def load(self, emitter: Emitter, acc: Accumulators) -> None:
        """Merge the kept partial states into fresh accumulators: lane 0 of copy 0 where merged."""
        b = emitter.builder
        for point, key, slot, dtype, buffer, offset in self._each(emitter, acc):
            kept = emitter.leaves.transfers.load(point.lanes, dtype, buffer, offset, point.guard)
            if acc.vector_reduced and acc.lanes > 1:
                first = b.op("eq", b.lanes(acc.lanes), b.as_index(0))
                kept = b.op("select", first, b.splat(kept, acc.lanes), acc.values[key][slot])
            acc.values[key] = [*acc.values[key][:slot], b.splat(kept, acc.lanes),
                               *acc.values[key][slot + 1:]]

    def add(self, emitter: Emitter, acc: Accumulators) -> None:
        """Merge the kept partial states with merged accumulators: one addition per pass."""
        for point, key, slot, dtype, buffer, offset in self._each(emitter, acc):
            kept = emitter.leaves.transfers.load(point.lanes, dtype, buffer, offset, point.guard)
            width = acc.free_band.lanes
            acc.values[key] = emitter.merge(
                acc.state, acc.state_values[slot:slot + 1], acc.other_values[slot:slot + 1],
                [emitter.builder.splat(kept, width)], acc.values[key])

    def store(self, emitter: Emitter, acc: Accumulators) -> None:
        for point, key, slot, _, buffer, offset in self._each(emitter, acc):
            emitter.leaves.transfers.store(point.lanes, buffer, offset, acc.values[key][slot],
                                           point.guard)


def sums_floats(stage: Stage) -> bool:
    """Return whether a stage's additions are to be bounded by a tree, as the kernel demands."""
    return stage.state is not None and stage.state.name == "sum" and not stage.axes("carry") \
        and not stage.is_contraction and stage.state.init[0].dtype.is_float


def partial_name(stage: str, slot: int) -> str:
    return f"{stage}.partial{slot}"


def partial_in_output(stage: Stage) -> bool:
    """Return whether the output can hold the partial states: same dtype, identity finish.

    A scan's steps each have an element of their own, so its state lies elsewhere.
    """
    if len(stage.stores) != 1 or stage.state is None or len(stage.state.init) != 1 \
            or stage.axes("carry"):
        return False
    store = stage.stores[0]
    return store.value is state(0, stage.state.init[0].dtype) and not store.combine \
        and not store.guard and store.buffer.startswith("out")


def partial_region(nest: Nest, name: str, outer: tuple[str, ...]) -> Region:
    """Return the memory of a stage's partial states inside the loops `outer`."""
    stage = nest.kernel.stage[name]
    env = nominal_env(nest, nest.paths[name])
    mapping = axis_map(nest, name, env)
    loops = tuple(base(n) for n in outer)
    dims = []
    for axis in stage.axes("free"):
        a = nest.kernel.axis[axis]
        dims.append(dimension([mapping.get(a.sym, const(0))], loops, int(a.extent)))
    return Region(tuple(dims), outer)
