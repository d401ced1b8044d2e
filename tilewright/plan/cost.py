"""What a kernel costs by its definition: arithmetic and bytes, whatever its schedule."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.kernel import Kernel
from tilewright.kernel.kernel import Stage
from tilewright.kernel.value import Value, postorder

# Values that compute nothing countable: leaves, selections, conversions.
_FREE = frozenset(("const", "index", "test", "divides", "load", "state", "other", "where", "cast",
                   "bitcast"))


def _points(kernel: Kernel, axes: Iterable[str]) -> int:
    points = 1
    for name in axes:
        points *= kernel.axis[name].extent.hi
    return points


def _arithmetic(roots: Iterable[Value], known: set[int]) -> int:
    """Count arithmetic values under `roots` that are not known yet, and add them to `known`."""
    count = 0
    for value in postorder(roots):
        if id(value) not in known:
            known.add(id(value))
            count += value.op not in _FREE
    return count


def _stage_flops(kernel: Kernel, stage: Stage) -> int:
    known: set[int] = set()
    every = _points(kernel, stage.axes())
    step = [let.value for let in stage.lets] + list(stage.state.update if stage.state else ())
    flops = _arithmetic(step, known) * every
    # a reduction's stores run once per point of the free axes, all others at every point
    finish = every if not stage.axes("reduce") else _points(kernel, stage.axes("free"))
    stores = [v for store in stage.stores for v in (store.value, *store.guard)]
    combined = sum(1 for store in stage.stores if store.combine)
    return flops + (_arithmetic(stores, known) + combined) * finish


def flops(kernel: Kernel) -> int:
    """Return the arithmetic operations of one run: values times points, transcendentals as one."""
    return sum(_stage_flops(kernel, stage) for stage in kernel.stages)


def elements(kernel: Kernel, name: str) -> int:
    """Return the elements of an input or output."""
    count = 1
    for extent in kernel.buffer[name].shape:
        count *= extent.hi
    return count


def bytes_moved(kernel: Kernel) -> int:
    """Return the bytes of all inputs and outputs, each once: the least that memory must move."""
    return sum(elements(kernel, b.name) * b.dtype.itemsize
               for b in (*kernel.inputs, *kernel.outputs))
