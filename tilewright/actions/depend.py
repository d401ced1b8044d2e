"""Which stages depend on one another, through the buffers they touch."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.index import Expr, Sym, prove_different
from tilewright.kernel import Kernel, Stage


def conflict(first: Stage, second: Stage) -> frozenset[str]:
    """Return the buffers for whose sake two stages keep their order.

    Not those of which each writes a part of its own, as the pieces of a concatenation do.
    """
    a, b = first.writes, second.writes
    read = a & second.reads | b & first.reads
    return read | frozenset(n for n in (a & b) - read if not _apart(first, second, n))


def _apart(first: Stage, second: Stage, buffer: str) -> bool:
    """Return whether no element of a buffer is written by both stages."""
    mine, others = ([s for s in stage.stores if s.buffer == buffer] for stage in (first, second))
    return all(any(prove_different(x, y) for x, y in zip(a.index, b.index))
               for a in mine for b in others)


def dims_of(where: tuple[Expr, ...], symbol: Sym) -> set[int]:
    """Return the dimensions whose index is exactly the symbol (all for an axis of one step)."""
    if symbol.hi == 0:
        return set(range(len(where)))
    return {d for d, e in enumerate(where)
            if len(e.terms) == 1 and e.terms[0] == (symbol, 1) and not e.const}


def in_step(kernel: Kernel, stages: Iterable[Stage], buffer: str, axis: str) -> bool:
    """Return whether every access of `stages` to a buffer is at [.., axis, ..], in one dimension.

    Then step v of a shared loop over `axis` touches only what step v wrote.
    """
    symbol = kernel.axis[axis].sym
    dims = set(range(len(kernel.buffer[buffer].shape)))
    for stage in stages:
        for value in stage.loads:
            if value.data[0] == buffer:
                dims &= dims_of(value.data[1], symbol)
        for store in stage.stores:
            if store.buffer == buffer:
                dims &= dims_of(store.index, symbol)
    return bool(dims)


def may_share(kernel: Kernel, first: Stage, second: Stage, axis: str) -> str:
    """Return why two stages, in this order, cannot share a loop over `axis`; "" if they can."""
    shared = conflict(first, second)
    if not shared or int(kernel.axis[axis].extent) <= 1:
        return ""
    before, after = (s.role.get(axis, "absent") for s in (first, second))
    if before == "absent":
        undone = shared & second.writes
        return f"{second.name} would be undone by {first.name}" if undone else ""
    if before == "reduce":
        return f"{first.name} finishes after the loop"
    if after == "absent":
        return f"{second.name} needs all steps of {first.name}"
    for buffer in sorted(shared):
        if not in_step(kernel, (first, second), buffer, axis):
            return f"{buffer} is not handed over element by element"
    return ""
