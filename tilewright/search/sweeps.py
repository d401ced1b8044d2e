"""Programs that measure what the machine can do at best: arithmetic, reading, writing.

They are built like any kernel's Program, so they go through the same rendering and compiling as the
kernels that they are the limit of; nothing but the arithmetic or the memory is in their loops.
"""

from __future__ import annotations

from tilewright.dtypes import float32
from tilewright.program import Binding, Builder, Instr, Loop, MemRef, Param, Program, Type

STREAMS = 4  # distant places read at the same time, which the hardware prefetchers like
UNROLL = 4


def binding(program: Program) -> Binding:
    """Return the signature of a program that has no scratch."""
    return Binding(program.params, 0, 0)


def arithmetic(lanes: int, accumulators: int, trips: int, workers: int) -> tuple[Program, float]:
    """Return a loop of multiply-adds that stay in registers, and its FLOP.

    Parameters: input of one vector, output of `accumulators` vectors for each worker.
    """
    b = Builder("arithmetic", (Param("in0", "input", float32), Param("out0", "output", float32)))
    vector = Type(float32, lanes)
    with b.loop(0, workers, kind="parallel") as worker:
        x = b.load(vector, b.as_index(0), MemRef("in0"))
        starts = [b.const(0.1 * (i + 1), vector) for i in range(accumulators)]
        with b.loop(0, trips, starts) as loop:
            loop.yields = [b.op("fma", x, x, acc) for acc in loop.carries]
        base = b.scaled(worker, accumulators * lanes)
        for i in range(accumulators):
            b.store(base, b.result(loop, i), MemRef("out0", i * lanes))
    return b.program, 2.0 * lanes * accumulators * trips * workers


def _chunks(b: Builder, elements: int, workers: int, step: int) -> tuple[int, int]:
    per_worker = elements // workers // step * step
    return per_worker, per_worker // step


def reading(lanes: int, elements: int, workers: int) -> tuple[Program, int]:
    """Return a sum of float32 memory, several streams for each worker, and the bytes it reads.

    Parameters: input of `elements`, output of one vector for each worker.
    """
    b = Builder("reading", (Param("in0", "input", float32), Param("out0", "output", float32)))
    vector = Type(float32, lanes)
    per_worker, trips = _chunks(b, elements, workers, lanes * UNROLL * STREAMS)
    stream = per_worker // STREAMS
    with b.loop(0, workers, kind="parallel") as worker:
        base = b.scaled(worker, per_worker)
        zeros = [b.const(0.0, vector)] * (STREAMS * UNROLL)
        with b.loop(0, trips, zeros) as loop:
            at = b.op("add", base, b.scaled(loop, lanes * UNROLL))
            places = [s * stream + u * lanes for s in range(STREAMS) for u in range(UNROLL)]
            loop.yields = [b.op("add", acc, b.load(vector, at, MemRef("in0", place)))
                           for acc, place in zip(loop.carries, places)]
        total = _total(b, loop)
        b.store(b.scaled(worker, lanes), total, MemRef("out0"))
    return b.program, per_worker * workers * float32.itemsize


def _total(b: Builder, loop: Loop) -> Instr:
    parts = [b.result(loop, i) for i in range(len(loop.carries))]
    while len(parts) > 1:
        parts = [b.op("add", p, q) for p, q in zip(parts[::2], parts[1::2])]
    return parts[0]


def writing(lanes: int, elements: int, workers: int, stream: bool) -> tuple[Program, int]:
    """Return a fill of float32 memory, and the bytes it writes; `stream` stores past the caches.

    Parameters: output of `elements`, aligned to a vector.
    """
    b = Builder("writing", (Param("out0", "output", float32),))
    vector = Type(float32, lanes)
    per_worker, trips = _chunks(b, elements, workers, lanes * UNROLL)
    with b.loop(0, workers, kind="parallel") as worker:
        base = b.scaled(worker, per_worker)
        value = b.const(1.0, vector)
        with b.loop(0, trips) as loop:
            at = b.op("add", base, b.scaled(loop, lanes * UNROLL))
            for u in range(UNROLL):
                b.store(at, value, MemRef("out0", u * lanes, lanes * float32.itemsize, stream))
    return b.program, per_worker * workers * float32.itemsize
