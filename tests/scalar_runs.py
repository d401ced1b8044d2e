"""Runs one elementwise operation on arrays: a Program of one loop, compiled and called."""

from __future__ import annotations

import ctypes

import numpy as np

from tilewright.backends import backend
from tilewright.dtypes import DType, as_dtype
from tilewright.lower import scalar
from tilewright.program import Binding, Builder, MemRef, Param, Type

ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def call(programs, binding: Binding, arrays, workers: int = 1) -> None:
    """Compile and load programs, and run each with every worker in turn."""
    llvm = backend("llvm")
    loaded = llvm.load(llvm.compile(llvm.render(programs, binding)))
    shared = np.zeros(binding.global_bytes + 64, np.uint8)
    private = np.zeros(binding.private_bytes * workers + 64, np.uint8)
    aligned = [-(-a.ctypes.data // 64) * 64 for a in (shared, private)]
    pointers = [a.ctypes.data for a in arrays] + aligned
    table = (ctypes.c_void_p * len(pointers))(*pointers)
    for address in loaded.addresses:
        for worker in range(workers):
            ENTRY(address)(ctypes.addressof(table), None, worker, workers)
    loaded.close()


def run(op: str, arrays, dtype: DType | None = None, lanes: int = 8, constants=()) -> np.ndarray:
    """Return op(*arrays, *constants) elementwise; constants are (value, dtype) pairs."""
    arrays = [np.ascontiguousarray(a) for a in arrays]
    dtypes = [as_dtype(a.dtype) for a in arrays]
    result = dtype or dtypes[0]
    n = arrays[0].size
    padded = [np.concatenate([a, np.repeat(a[-1:], -n % lanes)]) for a in arrays]
    out = np.zeros(n + -n % lanes, result.numpy)
    params = [Param(f"a{k}", "input", d) for k, d in enumerate(dtypes)]
    b = Builder(op, [*params, Param("out", "output", result)])
    with b.loop(0, len(out) // lanes) as loop:
        at = b.scaled(loop, lanes)
        args = [b.load(Type(d, lanes), at, MemRef(p.name)) for p, d in zip(params, dtypes)]
        args += [b.const(value, Type(d, lanes)) for value, d in constants]
        b.store(at, scalar.emit(b, op, args, result), MemRef("out"))
    call([b.program], Binding(b.program.params, 0, 0), [*padded, out])
    return out[:n]
