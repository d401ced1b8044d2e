"""The `contraction` sketch: register tiles, cache blocks, packing.

A sum of products over axes of three kinds: rows (free, in one factor), columns (free, in the other,
among them the vector axis), batch (free in both). A tile of `rows` x `vectors` accumulators is in
registers over all reduce steps; each step loads one vector of the column factor per vector and one
scalar of the row factor per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tilewright.actions.access import OPAQUE, Access, accesses, loads_of
from tilewright.actions.copy import Copy
from tilewright.actions.sketches.base import Sketch
from tilewright.actions.sketches.draft import Draft
from tilewright.actions.sketches.tile import best_tile, tall_tile
from tilewright.errors import Illegal
from tilewright.kernel import Stage
from tilewright.kernel.value import symbols_of
from tilewright.limits import LINE, Limits

MOST_PAGES = 1024  # that steps of rows across memory may walk before they come back


@dataclass(frozen=True)
class Shape:
    """The parts of a contraction: which factor has the columns, and every axis by kind."""

    columns: str  # operand letter of the factor that is read by vectors
    vector: str
    row: str
    other_rows: tuple[str, ...]
    other_columns: tuple[str, ...]
    batch: tuple[str, ...]
    steps: tuple[str, ...]

    @property
    def rows(self) -> str:
        """The operand letter of the factor that is read by scalars."""
        return "ba"["ab".index(self.columns)]


def analyse(draft: Draft, stage: Stage, limits: Limits) -> Shape | None:
    """Return the contraction's parts; None where it has no tile of rows and columns, as in a scan.

    The vector axis is the cheapest one; see `_cost`.
    """
    if not stage.is_contraction or stage.lets or stage.axes("carry"):
        return None
    assert stage.state is not None
    loops = draft.own(stage)
    used = [symbols_of(f) for f in stage.state.update[0].args[1].args]
    free = [a for a in stage.axes("free") if a in loops and draft.size(loops[a]) > 1]
    sided = [a for a in free if (a in used[0]) != (a in used[1])]
    batch = tuple(a for a in free if a in used[0] and a in used[1])
    _, stores = accesses(draft.kernel, stage)
    unit = {a for a in sided if any(s.stride(a) == 1 for s in stores)}
    best: Shape | None = None
    for vector in reversed(sided):
        columns = 0 if vector in used[0] else 1
        rows = [a for a in sided if a not in used[columns]]
        if rows:
            row = max(rows, key=lambda a: (draft.size(loops[a]) >= 8, a in unit,
                                           draft.size(loops[a])))
            shape = Shape("ab"[columns], vector, row, tuple(a for a in rows if a != row),
                          tuple(a for a in sided if a in used[columns] and a != vector),
                          batch, stage.axes("reduce"))
            if best is None or _cost(draft, stage, shape, limits) \
                    < 0.9 * _cost(draft, stage, best, limits):
                best = shape
    return best


def _cost(draft: Draft, stage: Stage, shape: Shape, limits: Limits) -> float:
    """Return the time of a multiply-add against that of a full tile's, edges and memory included.

    A result that is stored across memory takes a cycle or two, an element that is packed half a
    cycle, where the tile reads it across memory a cycle; a cycle does two vectors of multiply-adds.
    """
    loops = draft.own(stage)
    lanes = limits.lanes(stage.state.init[0].dtype.itemsize)  # type: ignore[union-attr]
    m, n = draft.size(loops[shape.row]), draft.size(loops[shape.vector])
    efficiency, rows, _ = best_tile(m, n, lanes, limits)
    depth = prod(int(draft.kernel.axis[a].extent) for a in shape.steps)
    _, stores = accesses(draft.kernel, stage)
    time = 1 / efficiency
    if not any(s.stride(shape.vector) == 1 for s in stores):
        time += 1.5 * 2 * lanes / max(depth, 1)
    loads = _operand(draft, stage, shape.columns)
    if any(x.stride(shape.vector) != 1 for x in loads):
        tiles = m * prod(draft.size(loops[a]) for a in shape.other_rows)
        inside = (shape.vector, *shape.steps)
        repeats = any(_overlaps(draft, x, inside) or x.guarded for x in loads)
        time += 2 * lanes / rows if repeats else 0.5 * 2 * lanes / tiles
    return time


@dataclass(frozen=True)
class Contraction(Sketch):
    """Rows and vectors of the register tile, columns and steps of a cache block, what is packed.

    batch: columns: block.0: [pack] steps.0: rows: row.0: block.1: steps: [rows x vectors x lanes]
    """

    rows: int
    vectors: int
    block: int
    steps: int
    pack: bool
    pack_rows: str = ""  # "", "tile" or "root"

    def apply(self, draft: Draft, limits: Limits) -> None:
        stage = draft.kernel.stage[self.stage]
        shape = analyse(draft, stage, limits)
        if shape is None:
            raise Illegal(f"contraction: cannot tile {self.stage} (no rows and columns)")
        if self.rows * self.vectors + self.vectors + 1 > limits.registers:
            raise Illegal(f"contraction: cannot keep {self.rows} x {self.vectors} vectors in "
                          f"{limits.registers} registers")
        loops = draft.own(stage)
        lanes = self._lanes(draft, stage, shape, limits)
        row0, row1 = draft.split(loops[shape.row], self.rows)
        block0, inner = draft.split(loops[shape.vector], self.block)
        block1, inner = draft.split(inner, self.vectors * lanes)
        jam, lane = draft.split(inner, lanes)
        far_steps, walk = self._walk(draft, [loops[a] for a in shape.steps])
        near, far = _divide_columns(draft, stage, shape, loops, self.pack, limits)
        draft.order([*[loops[a] for a in shape.batch], *far, block0, *far_steps,
                     *[loops[a] for a in shape.other_rows], row0, *near, block1, *walk,
                     row1, jam, lane])
        if self.pack:
            inside = [x for x in (*near, block1, *walk, jam, lane) if x is not None]
            outer = [*[loops[a] for a in shape.batch], *far, *filter(None, (block0,)), *far_steps]
            at, repeated = _head(draft, stage, shape.columns)
            if repeated:
                inside = [*outer, *inside]
            elif outer:
                at = outer[-1]
            _pack(draft, stage, shape, inside, at, lanes)
        if self.pack_rows and row0 is not None:
            _pack_rows(draft, stage, shape, row0, [*walk, row1], self.pack_rows)
        draft.vectorize(lane)
        if jam is not None:
            draft.interleave(jam)
        draft.interleave(row1)

    def _walk(self, draft: Draft, loops: list[str]) -> tuple[list[str], list[str]]:
        """Cut the reduce loops into (outside, inside) so that `steps` steps are inside."""
        inside: list[str] = []
        left = self.steps
        while loops and left >= draft.size(loops[-1]):
            inside.insert(0, loops[-1])
            left //= max(draft.size(loops[-1]), 1)
            loops = loops[:-1]
        if loops and left > 1:
            outer, inner = draft.split(loops[-1], left)
            loops = [*loops[:-1], *filter(None, (outer,))]
            inside.insert(0, inner)
        return loops, inside

    @staticmethod
    def _lanes(draft: Draft, stage: Stage, shape: Shape, limits: Limits) -> int:
        """Return a full vector, or the power of two that holds a narrow axis."""
        lanes = limits.lanes(stage.state.init[0].dtype.itemsize)  # type: ignore[union-attr]
        size = draft.size(draft.own(stage)[shape.vector])
        return min(lanes, 1 << (size - 1).bit_length())

    def neighbours(self, draft: Draft, limits: Limits) -> Iterator[Sketch]:
        for rows in (self.rows - 2, self.rows - 1, self.rows + 1, self.rows + 2):
            if 1 <= rows <= limits.registers:
                yield replace(self, rows=rows)
        for vectors in (self.vectors - 1, self.vectors + 1):
            if 1 <= vectors <= 6:
                panel = self.block // self.vectors * vectors
                yield replace(self, vectors=vectors, block=panel)
        for factor in (0.5, 2):
            yield replace(self, block=max(1, int(self.block * factor)))
            yield replace(self, steps=max(16, int(self.steps * factor)))
        yield replace(self, pack=not self.pack)
        for where in ("", "tile", "root"):
            if where != self.pack_rows:
                yield replace(self, pack_rows=where)


def sketch_contraction(draft: Draft, stage: Stage, limits: Limits) -> Contraction | None:
    """Return the default sketch: fill the registers, waste little, fit the caches.

    None where the stage has no tile of rows and columns.
    """
    shape = analyse(draft, stage, limits)
    if shape is None:
        return None
    loops, itemsize = draft.own(stage), stage.state.init[0].dtype.itemsize  # type: ignore[union-attr]
    lanes = limits.lanes(itemsize)
    m, n = draft.size(loops[shape.row]), draft.size(loops[shape.vector])
    depth = max(prod(draft.size(loops[a]) for a in shape.steps), 1)
    _, rows, vectors = best_tile(m, n, lanes, limits)
    across = _rows_lie_across(draft, stage, shape)
    if across:
        rows, vectors = tall_tile(m, n, lanes, limits)
    panel = vectors * lanes
    # a block of packed columns takes half of L2, the rows stream past it
    block = _fitting(min(depth, 512) * itemsize * panel, limits) * panel
    pack = _pays_to_pack(draft, stage, shape, m // max(rows, 1))
    steps = depth
    if depth * block * itemsize <= limits.l2 and not (across and depth > MOST_PAGES):
        block = _fitting(depth * itemsize * panel, limits) * panel
    elif len(shape.steps) > 1:
        if pack:
            steps = limits.l2 // 2 // (min(block, n) * itemsize)
    elif pack and not across:  # results are read and written once for so many steps
        block = 2 * panel
        steps = limits.l2 // 2 // (block * itemsize)
    else:
        steps = 512
    pack_rows = ""
    factor = _row_bytes(draft, stage, shape)
    little = 2 * rows * itemsize < LINE and factor > limits.l2 // 2  # of a line, from far away
    if across and little and min(block, n) >= 4 * lanes and m > rows:
        pack_rows = "root" if factor <= limits.l3 // 2 and len(draft.nest.body) == 1 else "tile"
    return Contraction(stage.name, rows, vectors, min(block, n), steps, pack, pack_rows)


def _operand(draft: Draft, stage: Stage, letter: str) -> list[Access]:
    factors = stage.state.update[0].args[1].args  # type: ignore[union-attr]
    return loads_of(draft.kernel, factors["ab".index(letter)])


def _fitting(nbytes: int, limits: Limits) -> int:
    """Return how many panels of so many bytes half of L2 holds: one at least, four at most."""
    return max(1, min(limits.l2 // 2 // nbytes, 4))


def _pays_to_pack(draft: Draft, stage: Stage, shape: Shape, tiles: int) -> bool:
    """Pack the column factor where many row tiles reread it and packing repeats no element."""
    loads = _operand(draft, stage, shape.columns)
    strided = any(x.stride(shape.vector) != 1 for x in loads)
    inside = (shape.vector, *shape.steps)
    repeats = any(_overlaps(draft, x, inside) for x in loads)
    return strided or (tiles >= 4 and not repeats)


def _overlaps(draft: Draft, load: Access, axes: tuple[str, ...]) -> bool:
    """Return whether two points of the axes read one element (windows do)."""
    reach = 0
    for stride, size in sorted((abs(load.stride(a)), int(draft.kernel.axis[a].extent))
                               for a in axes if int(draft.kernel.axis[a].extent) > 1):
        if stride <= reach or stride == OPAQUE:
            return True
        reach += stride * (size - 1)
    return False


def in_one_factor(stage: Stage, axis: str) -> bool:
    """Return whether an axis is a row or a column of a contraction."""
    if not stage.is_contraction or stage.role.get(axis) != "free":
        return False
    factors = stage.state.update[0].args[1].args  # type: ignore[union-attr]
    return sum(axis in symbols_of(f) for f in factors) == 1


def _head(draft: Draft, stage: Stage, letter: str) -> tuple[str, bool]:
    """Return the innermost loop around several stages on which a factor depends, or root.

    And whether other loops inside of it repeat the whole factor.
    """
    around = [p.name for p in draft.nest.paths[stage.name]]
    around = around[:len(around) - len(draft.loops(stage.name))]
    factors = stage.state.update[0].args[1].args  # type: ignore[union-attr]
    used = symbols_of(factors["ab".index(letter)])
    needed = [n for n, name in enumerate(around) if set(draft.nest.axes_of(name)) & used]
    if not needed:
        return "root", bool(around)
    return around[needed[-1]], needed[-1] < len(around) - 1


def _divide_columns(draft: Draft, stage: Stage, shape: Shape, loops: dict[str, str], pack: bool,
                    limits: Limits) -> tuple[list[str], list[str]]:
    """Return the other column loops as (inside, outside) of the row loop.

    Inside go those whose share of the column factor, packed or in place, still fits L2.
    """
    loads = _operand(draft, stage, shape.columns)
    inside = [shape.vector, *shape.steps]
    near: list[str] = []
    far: list[str] = []
    for a in reversed(shape.other_columns):
        inside.append(a)
        held = sum(x.itemsize * footprint(draft, x, inside, pack) for x in loads)
        if not far and held <= limits.l2 * 2 // 3:
            near.insert(0, loops[a])
        else:
            far.insert(0, loops[a])
    return near, far


def footprint(draft: Draft, load: Access, axes: list[str], copied: bool = False) -> int:
    """Return how many elements a load touches over the axes; `copied`, how many a copy holds."""
    count, reach = 1, 0  # elements so far, and the distance from the first to the last
    for stride, size in sorted((abs(load.stride(a)), int(draft.kernel.axis[a].extent))
                               for a in axes):
        if size <= 1 or stride == 0:
            continue
        if copied or stride > reach:
            count *= size
        else:  # the axis overlaps those before it: windows
            count = min(count * size, count + stride * (size - 1))
        reach += stride * (size - 1)
    return count


def _pack(draft: Draft, stage: Stage, shape: Shape, inside: list[str], at: str,
          lanes: int) -> None:
    """Copy the column factor, lanes innermost, transposed in registers where it lies across."""
    operand = f"{stage.name}:{shape.columns}"
    factors = stage.state.update[0].args[1].args  # type: ignore[union-attr]
    used = symbols_of(factors["ab".index(shape.columns)])
    layout = [x for x in inside if set(draft.nest.axes_of(x)) & used]
    draft.do(Copy(operand, at, tuple(layout)))
    name = f"{operand}.copy"
    lane = f"{name}:{layout[-1]}"
    loads = _operand(draft, stage, shape.columns)
    across = [s for s in shape.steps if any(
        x.stride(shape.vector) not in (0, 1) and x.stride(s) == 1 and not x.guarded for x in loads)]
    step = next((f"{name}:{x}" for x in layout if draft.nest.axes_of(x)[0] in across), None)
    if step is not None and draft.size(step) >= lanes and draft.size(lane) == lanes:
        outer, tile = draft.split(step, lanes)
        others = [f"{name}:{x}" for x in layout if f"{name}:{x}" not in (step, lane)]
        draft.order([*others, *filter(None, (outer,)), tile, lane])
        draft.vectorize(lane)
        draft.interleave(tile)
        return
    draft.vectorize(lane)
    jam = f"{name}:{layout[-2]}" if len(layout) > 1 else None
    if jam is not None and draft.size(jam) <= 4:
        draft.interleave(jam)


def _rows_lie_across(draft: Draft, stage: Stage, shape: Shape) -> bool:
    """Return whether each reduce step reads the row factor from another cache line."""
    return all(x.stride(shape.row) == 1 and not any(x.stride(s) == 1 for s in shape.steps)
               for x in _operand(draft, stage, shape.rows))


def _row_bytes(draft: Draft, stage: Stage, shape: Shape) -> int:
    """Return the bytes of the whole row factor, packed."""
    factors = stage.state.update[0].args[1].args  # type: ignore[union-attr]
    used = symbols_of(factors["ab".index(shape.rows)])
    size = stage.state.init[0].dtype.itemsize  # type: ignore[union-attr]
    for axis in used & set(stage.axes()):
        size *= int(draft.kernel.axis[axis].extent)
    return size


def _pack_rows(draft: Draft, stage: Stage, shape: Shape, tile: str, inside: list[str],
               where: str) -> None:
    """Copy the rows, tile by tile and step by step: each tile in turn, or all of them first."""
    operand = f"{stage.name}:{shape.rows}"
    name = f"{operand}.copy"
    factors = stage.state.update[0].args[1].args  # type: ignore[union-attr]
    used = symbols_of(factors["ab".index(shape.rows)])
    if where == "root":
        path = [x.name for x in draft.nest.paths[stage.name]]
        whole = [x for x in path[:path.index(inside[0])] if set(draft.nest.axes_of(x)) & used]
        draft.do(Copy(operand, "root", (*whole, *inside)))
        draft.order([*[f"{name}:{x}" for x in inside[:-1]], *[f"{name}:{x}" for x in whole],
                     f"{name}:{inside[-1]}"])
    else:
        draft.do(Copy(operand, tile, tuple(inside)))
    draft.vectorize(f"{name}:{inside[-1]}")
