"""From a nest to Programs: scratch is planned, the tree cut at barriers, each piece emitted."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.actions.nest import Copy, Item, Loop, Nest, leaves, nominal
from tilewright.dtypes import DType
from tilewright.errors import Illegal
from tilewright.limits import LINE, Limits
from tilewright.lower.emit import Emitter
from tilewright.lower.leaf import Leaves
from tilewright.lower.regions import Region, copy_strides, plan_region, users
from tilewright.lower.states import partial_in_output, partial_name, partial_region
from tilewright.lower.transfers import Memory
from tilewright.program import Binding, Builder, Param, Program, Scratch


@dataclass(frozen=True)
class Lowered:
    """A kernel ready for a backend: Programs run in order, all workers meet between them."""

    programs: tuple[Program, ...]
    binding: Binding


def lower(nest: Nest, limits: Limits, name: str = "kernel") -> Lowered:
    """Return the Programs of a nest. Pure: the same nest and limits give the same Programs.

    Raises TooLarge past the instruction cap, and Illegal for a nest that the target cannot run.
    """
    params = tuple(Param(b.name, b.kind, b.dtype)
                   for b in (*nest.kernel.inputs, *nest.kernel.outputs))
    pieces = _pieces(nest)
    scratch, regions = _plan_scratch(nest, pieces)
    bytes_private = sum(s.elements * s.dtype.itemsize for s in scratch if s.space == "private")
    if bytes_private > limits.scratch_bytes:
        raise Illegal(f"lower: cannot keep {bytes_private} bytes of scratch per worker "
                      f"(the target has {limits.scratch_bytes})")
    programs = []
    left = limits.instruction_cap
    for number, piece in enumerate(pieces):
        builder = Builder(f"{name}.{number}" if len(pieces) > 1 else name, params, left)
        for s in scratch:
            builder.add_scratch(s)
        memory = Memory(nest, {}, regions, min(LINE // 2, limits.vector_bytes))
        Emitter(nest, builder, Leaves(builder, memory)).items(piece)
        left -= builder.program.count
        programs.append(builder.program)
    areas = [p.area("global")[1] for p in programs], [p.area("private")[1] for p in programs]
    return Lowered(tuple(programs), Binding(params, max(areas[0]), max(areas[1])))


def _pieces(nest: Nest) -> list[tuple[Item, ...]]:
    """Cut the tree's top into launches: a parallel loop alone, serial items together."""
    pieces: list[list[Item]] = []
    serial = False
    for item in nest.body:
        parallel = isinstance(item, Loop) and item.kind == "parallel"
        if parallel or not serial:
            pieces.append([])
        pieces[-1].append(item)
        serial = not parallel
    return [tuple(p) for p in pieces] or [()]


def _plan_scratch(nest: Nest, pieces: list[tuple[Item, ...]]) \
        -> tuple[list[Scratch], dict[str, Region]]:
    """Return the scratch of every Program (the same list for all) and the regions by name."""
    piece_of = {leaf: i for i, piece in enumerate(pieces) for leaf in leaves(piece)}
    parallel = {i for i, piece in enumerate(pieces)
                if any(isinstance(x, Loop) and x.kind == "parallel" for x in piece)}
    regions: dict[str, Region] = {}
    found: list[Scratch] = []

    def space(leaves_: set[str], common: tuple[str, ...]) -> str:
        used = {piece_of[u] for u in leaves_}
        if len(used) > 1:
            return "global"
        (piece,) = used
        return "private" if piece not in parallel or common else "global"

    kernel = nest.kernel
    for buffer in kernel.buffers:
        if buffer.kind == "scratch":
            region = regions[buffer.name] = plan_region(nest, buffer.name)
            found.append(Scratch(buffer.name, buffer.dtype, region.elements,
                                 space(users(nest, buffer.name), region.common)))
    for copy in nest.copies:
        _, elements = copy_strides(nest, copy.name)
        common = tuple(x.name for x in nest.paths[copy.name] if x in nest.paths[copy.stage])
        where = "shared" if copy.space == "shared" else space({copy.name, copy.stage}, common)
        found.append(Scratch(copy.name, _copy_dtype(nest, copy), elements, where))
    for stage in kernel.stages:
        outer = _partial_outer(nest, stage.name)
        if outer is not None and not partial_in_output(stage):
            region = partial_region(nest, stage.name, outer)
            for slot, v in enumerate(stage.state.init):  # type: ignore[union-attr]
                name = partial_name(stage.name, slot)
                regions[name] = region
                found.append(Scratch(name, v.dtype, region.elements, space({stage.name}, outer)))
    return found, regions


def _copy_dtype(nest: Nest, copy: Copy) -> DType:
    return nest.kernel.stage[copy.stage].operands[copy.operand].dtype


def _partial_outer(nest: Nest, stage: str) -> tuple[str, ...] | None:
    """Return the loops around the first reduce loop that has free loops within; None if none."""
    found = nest.kernel.stage[stage]
    if found.state is None:
        return None
    path = nest.paths[stage]
    for i, loop in enumerate(path):
        if loop.kind in ("vectorize", "interleave"):
            return None
        if nest.role(loop.name, stage) in ("reduce", "carry"):
            inner = [p for p in path[i + 1:] if p.kind not in ("vectorize", "interleave")
                     and nest.role(p.name, stage) == "free" and nominal(nest, p.name) > 1]
            if inner:
                return tuple(p.name for p in path[:i])
    return None
