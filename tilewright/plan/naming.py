"""Readable names of kernels, from what they do and over which shape."""

from __future__ import annotations

from tilewright.index import symbols
from tilewright.kernel import Kernel
from tilewright.kernel.kernel import Stage
from tilewright.kernel.value import Value, postorder

_SILENT = frozenset(("const", "index", "test", "divides", "load", "state", "other", "cast",
                     "bitcast", "isnan", "bitwise_and", "bitwise_or", "bitwise_invert"))
_MOST_PARTS = 4


def kernel_name(kernel: Kernel) -> str:
    """Return a name such as ``matmul_512x512x512``, ``sum_2048x2048`` or ``exp_add_4096``.

    Parts are the kernel's reductions and elementwise operations in order, the first few; a kernel
    that only moves data is a ``copy``. Names need not be unique.
    """
    parts: list[str] = []
    for stage in kernel.stages:
        parts += [p for p in _stage_parts(stage) if p not in parts]
    if len(parts) > _MOST_PARTS:
        parts = [*parts[:_MOST_PARTS], f"{len(parts) - _MOST_PARTS}more"]
    extents = [str(a.extent.hi) for a in kernel.axes if a.extent.hi != 1]
    return "_".join(parts or ["copy"]) + "_" + ("x".join(extents) or "1")


def _stage_parts(stage: Stage) -> list[str]:
    product = _product(stage)
    if product:
        factors = stage.state.update[0].args[1].args  # type: ignore[union-attr]
        return [*_operations(factors), product, *_operations(s.value for s in stage.stores)]
    stored = _operations(s.value for s in stage.stores)
    scatter = ["scatter_" + s.combine for s in stage.stores if s.combine][:1]
    if stage.state is None:
        lets = ["gather"] if stage.lets and not scatter else []
        return [*lets, *stored, *scatter]
    inner = [u.args[1] for u in stage.state.update if len(u.args) > 1][:1]
    if stage.axes("carry"):
        return [*_operations(inner), "cumulative_" + stage.state.name, *stored]
    reduced = _operations(inner) if not stage.state.name.startswith("arg") else []
    return [*reduced, stage.state.name, *stored]


def _product(stage: Stage) -> str:
    """Return what a sum of products is, by the free axes that each factor does without."""
    if not stage.is_contraction:
        return ""
    free = set(stage.axes("free"))
    factors = stage.state.update[0].args[1].args  # type: ignore[union-attr]
    missing = [free - _axes_read(f) for f in factors]
    if all(missing):
        plain = len(free) == 2 and len(stage.axes("reduce")) == 1
        return "matmul" if plain else "contract"
    if any(missing):
        return "matvec" if len(free) == 1 else "batched_matvec"
    return ""


def _axes_read(value: Value) -> set[str]:
    """Return the axes that a value depends on through memory."""
    return {symbol.name for v in postorder([value]) if v.op == "load"
            for expression in v.data[1] for symbol in symbols(expression)}  # type: ignore[index]


def _operations(values) -> list[str]:
    names: list[str] = []
    for value in postorder(values):
        if value.op not in _SILENT and value.op not in names:
            names.append(value.op)
    return names
