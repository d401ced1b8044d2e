"""The timer's role in a child: buffers of one kernel, candidates' code, checks and samples."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from tilewright.backends import Backend, Executable, backend
from tilewright.dtypes import BY_NAME, DType
from tilewright.program.ir import Binding, Program
from tilewright.program.parser import parse_program
from tilewright.runtime.launch import Frame, Launch, Segment
from tilewright.runtime.memory import Block, allocator
from tilewright.runtime.timer import LEAST_SPAN
from tilewright.worker.guard import allow_memory, deadline
from tilewright.worker.values import (
    GARBAGE,
    deviation,
    difference,
    flip_last_bits,
    is_exact,
    make_values,
    tolerance,
)

_ZONE = 64  # bytes after every written buffer that must stay as they are
_LOOKS = 3  # at how often a short run must repeat to fill a sample
_SHORT = 2e-3  # seconds below which a run comes first that does not count: the process was asleep
_PLACES, _MOST_PLACED = 3, 1 << 30  # where buffers lie in turns; bytes of all these places
_PAGE, _CODE_PLACES = 4096, 5  # bytes; code of several pages is at so many places, see `_spread`
_PERTURBED = 2  # runs with other last bits, to learn how well-conditioned a kernel is
_OTHERS, _THREAD = 256 << 20, 80 << 20  # bytes mapped for code; for a thread's stack and arena

# Reads memory once; workers share it. Eight independent chains of 64 bytes make it fast.
_SWEEP = """program sweep parallel
input a0 i64
output out0 i64
v0 = const i64 0
v1 = const i64 {chunks}
v2 = const i64 {lines}
v3 = const i64x8 0
loop L0 parallel v4 = v0 .. v1
  v5 = scaled i64 v4 {chunk}
  v6 = scaled i64 v4 8
  loop L1 serial v7 = v0 .. v2 carry v8 = v3, v9 = v3
    v10 = scaled i64 v7 16
    v11 = add i64 v5 v10
    v12 = load i64x8 a0[v11]
    v13 = add i64x8 v8 v12
    v14 = load i64x8 a0[v11 + 8]
    v15 = add i64x8 v9 v14
    yield v13, v15
  v16 = result i64x8 L1 0
  v17 = result i64x8 L1 1
  v18 = add i64x8 v16 v17
  store out0[v6] v18
"""
_CHUNK = 4096  # words that one round of the parallel loop reads
_NOISE_CHUNKS, _NOISE_INNER = 8, 64  # 256 KiB, read from L2, for some 0.3 ms


@dataclass
class _Buffer:
    """One buffer of the kernel; `zone` is what follows an output's elements."""

    name: str
    array: np.ndarray
    block: Block
    zone: np.ndarray


@dataclass
class _Place:
    """The memory of a kernel's buffers at one place; all inputs hold the same."""

    inputs: list[_Buffer]
    outputs: list[_Buffer]
    workspace: Block | None


@dataclass
class _Linked:
    """A candidate: its code, kept alive, a frame on the buffers, and the runs of one sample.

    place      how often buffers had moved when its code was put where it lies
    elsewhere  the same code at other places
    """

    code: tuple
    frame: Frame
    executable: Executable
    inner: int = 1
    span: float = 0.0  # seconds of one run, roughly
    place: int = 0
    elsewhere: list[tuple[Frame, Executable]] = field(default_factory=list)

    def close(self) -> None:
        """Free the code."""
        for executable in (self.executable, *(e for _, e in self.elsewhere)):
            executable.close()


class Bench:
    """Serves requests about one device: ``begin``, ``reference``, ``link``, ``sample`` and more."""

    def __init__(self) -> None:
        self._maker: Backend | None = None
        self._clear()

    def _clear(self) -> None:
        self._inputs: list[_Buffer] = []
        self._outputs: list[_Buffer] = []
        self._workspace: Block | None = None
        self._linked: dict[int, _Linked] = {}
        self._wanted: list[np.ndarray] = []
        self._allowed: list[float] = []
        self._ran: set[int] = set()  # candidates that ran on the buffers as they lie
        self._elsewhere: list[_Place] = []  # where the buffers may be besides
        self._moves = 0
        self._sweeper: _Sweep | None = None
        self._noisy: _Sweep | None = None
        allocator.trim()

    # -- requests ------------------------------------------------------------------------

    def begin(self, name: str, buffers: Sequence[tuple[str, str, str, int]], threads: int,
              sweep_bytes: int, memory: int) -> tuple:
        """Allocate a kernel's buffers: name, kind, dtype and elements of each.

        Samples are cold with `sweep_bytes`, which are read before each. The process may map
        `memory` more than it needs.
        """
        self._clear()
        self._maker, self._threads = backend(name), threads
        sizes = [count * BY_NAME[dtype].itemsize for _, _, dtype, count in buffers]
        allow_memory((3 + _PLACES) * sum(sizes) + 2 * sweep_bytes + memory + _OTHERS
                     + threads * _THREAD)
        rng = np.random.default_rng(0)
        for buffer, kind, dtype, count in buffers:
            made = _allocate(buffer, BY_NAME[dtype], count)
            if kind == "input":
                made.array[:] = make_values(rng, count, BY_NAME[dtype])
                self._inputs.append(made)
            else:
                self._outputs.append(made)
        every = [*self._inputs, *self._outputs]
        self._bases = (ctypes.c_int64 * (len(every) + 1))(*(b.block.address for b in every))
        self._places = {b.name: i for i, b in enumerate(every)}
        self._checksums = [_checksum(b.block) for b in self._inputs]
        if sweep_bytes:
            self._sweeper = _Sweep(self._maker, -(-sweep_bytes // (8 * _CHUNK)), threads)
        return ("begun",)

    def reference(self, handle: int, code: tuple, terms: int, eps: float, step: float,
                  seconds: float) -> tuple:
        """Link code whose outputs the others must give; return ("linked", seconds of one run).

        terms, eps    see `values.tolerance`;  step: the reductions' precision over that of inputs
        """
        linked = self._load(code)
        self._scratch()
        with deadline(seconds):
            span = self._calibrate(linked, float(linked.frame.time(1)[0]))
        self._wanted = [b.array.copy() for b in self._outputs]
        moved = [0.0] * len(self._outputs)
        inputs = [b for b in self._inputs if not is_exact(b.array.dtype)]
        for seed in range(_PERTURBED if terms > 1 and inputs else 0):
            for b in inputs:
                flip_last_bits(b.array, seed)
            with deadline(seconds):
                linked.frame.run()
            for i, b in enumerate(self._outputs):
                if not is_exact(b.array.dtype):
                    moved[i] = max(moved[i], step * deviation(self._wanted[i], b.array))
            for b in inputs:
                flip_last_bits(b.array, seed)
        self._allowed = [tolerance(w, terms, eps, m) for w, m in zip(self._wanted, moved)]
        self._linked[handle] = linked
        return ("linked", span)

    def link(self, handle: int, code: tuple, seconds: float, check: bool) -> tuple:
        """Load a candidate; with `check`, run it once on garbage outputs and compare them."""
        linked = self._load(code)
        if check:
            self._scratch()
        with deadline(seconds):
            span = float(linked.frame.time(1)[0])
        if check:
            reason = self._compare()
            if reason:
                return ("failed", "wrong", reason)
        with deadline(4 * seconds):
            span = self._calibrate(linked, span)
        self._linked[handle] = linked
        return ("linked", span)

    def sample(self, handle: int, count: int, seconds: float) -> tuple:
        """Return ("samples", seconds of one run, `count` times)."""
        linked = self._linked[handle]
        self._spread(linked)
        with deadline(seconds):
            if self._sweeper is None:
                if linked.span < _SHORT or handle not in self._ran:
                    linked.frame.run()
                self._ran.add(handle)
                return ("samples", linked.frame.time(count, linked.inner).tolist())
            spans = []
            for _ in range(count):
                self._sweeper.frame.run()
                spans.append(float(linked.frame.time(1)[0]))
        return ("samples", spans)

    def move(self) -> tuple:
        """Let the buffers be on other pages: at the next of a few places, inputs the same."""
        self._moves += 1
        here = _Place(self._inputs, self._outputs, self._workspace)
        if len(self._elsewhere) < _PLACES - 1 and self._room():
            there = _Place([_moved(b) for b in here.inputs], [_moved(b) for b in here.outputs],
                           None)
        elif self._elsewhere:
            there = self._elsewhere.pop(0)
        else:
            return ("moved",)
        self._elsewhere.append(here)
        self._inputs, self._outputs, self._workspace = there.inputs, there.outputs, there.workspace
        for i, b in enumerate([*there.inputs, *there.outputs]):
            self._bases[i] = b.block.address
        if self._workspace is not None:
            self._bases[len(self._bases) - 1] = self._workspace.address
        if here.workspace is not None:
            self._reserve(here.workspace.nbytes - _ZONE)
        self._ran.clear()
        return ("moved",)

    def _spread(self, linked: _Linked) -> None:
        """Let long code be at another place than before the last move.

        Where two of its pages collide in the instruction cache, which is a matter of physical
        addresses, it can take three times as long: some of a hundred loads do (measured on Zen 5).
        """
        if linked.place == self._moves or len(linked.code[0]) <= _PAGE:
            return
        linked.place = self._moves
        linked.elsewhere.append((linked.frame, linked.executable))
        if len(linked.elsewhere) < _CODE_PLACES:
            other = self._load(linked.code)
            linked.frame, linked.executable = other.frame, other.executable
        else:
            linked.frame, linked.executable = linked.elsewhere.pop(0)

    def _room(self) -> bool:
        """Return whether another place is not too much memory."""
        blocks = [b.block for b in (*self._inputs, *self._outputs)]
        return (len(self._elsewhere) + 2) * sum(b.nbytes for b in blocks) <= _MOST_PLACED

    def drop(self, handle: int) -> tuple:
        """Forget a candidate and its code."""
        linked = self._linked.pop(handle, None)
        if linked is not None:
            linked.close()
        return ("dropped",)

    def noise(self, name: str, count: int) -> tuple:
        """Return ("samples", seconds of a small fixed kernel on one thread, `count` times)."""
        if self._noisy is None:
            self._noisy = _Sweep(backend(name), _NOISE_CHUNKS, 1)
            self._noisy.frame.time(1, 4 * _NOISE_INNER)
        return ("samples", self._noisy.frame.time(count, _NOISE_INNER).tolist())

    # -- parts ---------------------------------------------------------------------------

    def _load(self, code: tuple) -> _Linked:
        """Load code and bind it. `code`: bytes, params, global and private bytes, parallel."""
        content, params, global_bytes, private_bytes, parallel = code
        executable = self._maker.load(content)  # type: ignore[union-attr]
        middle = -(-global_bytes // 64) * 64
        self._reserve(middle + private_bytes * self._threads)
        workspace = len(self._bases) - 1
        pointers = (*((self._places[p], 0) for p in params), (workspace, 0), (workspace, middle))
        launches = [Launch(entry, pointers, every)
                    for entry, every in zip(executable.addresses, parallel, strict=True)]
        frame = Segment(launches, self._threads).frame(self._bases)
        return _Linked(code, frame, executable, place=self._moves)

    def _reserve(self, nbytes: int) -> None:
        """Have a workspace of `nbytes`; frames read its address anew at each run."""
        if self._workspace is None or self._workspace.nbytes < nbytes + _ZONE:
            self._workspace = allocator.block(nbytes + _ZONE)
            self._bases[len(self._bases) - 1] = self._workspace.address

    def _scratch(self) -> None:
        """Fill outputs and the workspace with garbage."""
        for b in self._outputs:
            b.block.view(np.ndarray)[...] = GARBAGE
        if self._workspace is not None:
            self._workspace.view(np.ndarray)[...] = GARBAGE

    def _compare(self) -> str:
        """Return what is wrong with the last run's memory; "" if nothing is."""
        for b, checksum in zip(self._inputs, self._checksums):
            if _checksum(b.block) != checksum:
                self._restore()
                return f"{b.name}, an input, was written"
        for b, wanted, allowed in zip(self._outputs, self._wanted, self._allowed):
            if (b.zone != GARBAGE).any():
                return f"{b.name} was written beyond its end"
            error = difference(wanted, b.array)
            if error > allowed:
                return f"{b.name} differs by up to {error:.3g} ({allowed:.3g} is allowed)"
        return ""

    def _restore(self) -> None:
        rng = np.random.default_rng(0)
        for b in self._inputs:
            b.array[:] = make_values(rng, b.array.size, BY_NAME[b.array.dtype.name])
            b.zone[:] = GARBAGE

    def _calibrate(self, linked: _Linked, span: float) -> float:
        """Set how often one sample repeats a run of `span` seconds; return those of one run."""
        if span < 10 * _SHORT:  # it may have been interrupted
            span = min(span, float(linked.frame.time(1)[0]))
        for _ in range(_LOOKS):  # the first ones may still be cold
            if span * linked.inner >= LEAST_SPAN:
                break
            linked.inner = ceil(LEAST_SPAN / max(span, 1e-9))
            span = min(span, float(linked.frame.time(1, linked.inner)[0]))
        linked.span = span
        return span


class _Sweep:
    """Reads a buffer of `chunks` times 32 KiB in one parallel run."""

    def __init__(self, maker: Backend, chunks: int, threads: int):
        program: Program = parse_program(_SWEEP.format(chunks=chunks, chunk=_CHUNK,
                                                       lines=_CHUNK // 16))
        source = maker.render([program], Binding(program.params, 0, 0))
        self.executable = maker.load(maker.compile(source))
        self.memory = [allocator.block(chunks * _CHUNK * 8), allocator.block(chunks * 64),
                       allocator.block(64)]
        self.memory[0].view(np.ndarray)[...] = 1  # untouched pages would all be one page of zeros
        bases = (ctypes.c_int64 * 3)(*(b.address for b in self.memory))
        launch = Launch(self.executable.addresses[0], ((0, 0), (1, 0), (2, 0), (2, 0)), True)
        self.frame = Segment([launch], threads).frame(bases)


def _allocate(name: str, dtype: DType, count: int) -> _Buffer:
    nbytes = count * dtype.itemsize
    block = allocator.block(nbytes + _ZONE)
    flat = block.view(np.ndarray)
    flat[...] = GARBAGE
    return _Buffer(name, flat[:nbytes].view(dtype.numpy), block, flat[nbytes:nbytes + _ZONE])


def _moved(buffer: _Buffer) -> _Buffer:
    """Return a copy on other pages: the old block is still taken."""
    array = buffer.array
    made = _allocate(buffer.name, BY_NAME[array.dtype.name], array.size)
    made.array[:], made.zone[:] = array, buffer.zone
    return made


def _checksum(block: Block) -> int:
    return int(np.bitwise_xor.reduce(block.view(np.ndarray).view(np.uint64)))
