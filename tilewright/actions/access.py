"""How a stage walks memory: the stride of each access along each axis."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.index import Expr, Sym, symbols
from tilewright.kernel import Kernel, Stage
from tilewright.kernel.value import Value, postorder, symbols_of

OPAQUE = 1 << 40  # the stride of an index that is no linear form of its axis
MOST_PICKED = 8  # elements between lanes; beyond, little of what is loaded is wanted


def picked(stride: int, lanes: int) -> bool:
    """Return whether lanes so far apart are picked from vectors side by side, not gathered."""
    return 2 <= abs(stride) <= min(MOST_PICKED, lanes // 2)


@dataclass(frozen=True)
class Access:
    """One load or store: elements advanced per step of each axis (absent axes: 0)."""

    buffer: str
    itemsize: int
    strides: dict[str, int]
    guarded: bool
    value: Value | None = None

    def stride(self, axis: str) -> int:
        return self.strides.get(axis, 0)


def accesses(kernel: Kernel, stage: Stage) -> tuple[list[Access], list[Access]]:
    """Return the stage's (loads, stores)."""
    lets = {let.sym.name: symbols_of(let.value) for let in stage.lets}
    loads = [_access(kernel, v.data[0], v.data[1], lets, bool(v.args), v) for v in stage.loads]
    stores = [_access(kernel, s.buffer, s.index, lets, bool(s.guard), None) for s in stage.stores]
    return loads, stores


def loads_of(kernel: Kernel, root: Value) -> list[Access]:
    """Return the loads beneath a value."""
    return [_access(kernel, v.data[0], v.data[1], {}, bool(v.args), v)
            for v in postorder([root]) if v.op == "load"]


def _access(kernel: Kernel, buffer: str, where: tuple[Expr, ...], lets: dict[str, set[str]],
            guarded: bool, value: Value | None) -> Access:
    found = kernel.buffer[buffer]
    strides: dict[str, int] = {}
    step = 1
    for e, extent in reversed(list(zip(where, found.shape))):
        for atom, coef in e.terms:
            if isinstance(atom, Sym) and atom.name not in lets:
                strides[atom.name] = strides.get(atom.name, 0) + coef * step
            else:
                names = {s.name for s in symbols(Expr(((atom, 1),), 0))}
                for name in list(names):
                    names |= lets.get(name, set())
                for name in names:
                    strides[name] = OPAQUE
        step *= max(int(extent), 1)
    return Access(buffer, found.dtype.itemsize, strides, guarded, value)
