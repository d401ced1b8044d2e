"""Kernels and their code by schedule, for the tests of measuring devices."""

from __future__ import annotations

from collections.abc import Sequence

from fusion_tools import leaf, matmul, reduce, softmax

from tilewright.actions import Schedule, default_schedule, parse_schedule
from tilewright.backends import backend
from tilewright.dtypes import DType, float32
from tilewright.fusion import KernelCall, fuse
from tilewright.graph import Node, apply
from tilewright.kernel import Kernel
from tilewright.limits import Limits
from tilewright.lower import Lowered, lower
from tilewright.search.measurer import Code

LIMITS = Limits(vector_bytes=32, registers=16, threads=1)


def kernel_of(output: Node, limits: Limits = LIMITS) -> Kernel:
    """Return the one kernel that fusion makes of a graph."""
    (call,) = fuse([output], limits)
    assert isinstance(call, KernelCall)
    return call.kernel


def addition(*shape: int, dtype: DType = float32) -> Kernel:
    return kernel_of(apply("add", leaf(*shape, dtype=dtype, seed=1),
                           leaf(*shape, dtype=dtype, seed=2)))


def product(n: int, m: int, k: int) -> Kernel:
    return kernel_of(matmul(leaf(n, k, seed=1), leaf(k, m, seed=2)))


def rows(n: int, m: int) -> Kernel:
    return kernel_of(softmax(leaf(n, m)))


def total(n: int, dtype: DType = float32) -> Kernel:
    return kernel_of(reduce(leaf(n, dtype=dtype), "sum", 0))


def lowered(kernel: Kernel, schedule: Schedule | str | None = None,
            limits: Limits = LIMITS) -> Lowered:
    """Lower a kernel under a schedule (by default that of the rules; "" is plain loops)."""
    if schedule is None:
        schedule = default_schedule(kernel, limits)
    elif isinstance(schedule, str):
        schedule = parse_schedule(schedule)
    return lower(schedule.apply(kernel), limits)


def source_of(low: Lowered, name: str) -> str:
    return backend(name).render(low.programs, low.binding)


def code_of(low: Lowered, code: bytes) -> Code:
    return Code(code, low.binding, tuple(p.parallel for p in low.programs))


def native_code(kernel: Kernel, schedule: Schedule | str | None = None,
                limits: Limits = LIMITS) -> Code:
    """Return a kernel's object code for this machine."""
    low = lowered(kernel, schedule, limits)
    return code_of(low, backend("llvm").compile(source_of(low, "llvm")))


def texts(kernel: Kernel, schedules: Sequence[str | None], limits: Limits = LIMITS) -> list[str]:
    """Return a kernel's Programs as the simulated device takes them."""
    return [source_of(lowered(kernel, s, limits), "interpreter") for s in schedules]
