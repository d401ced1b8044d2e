"""A plan's steps over memory: what is bound where, and one run of it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright.dtypes import DType
from tilewright.errors import BackendError
from tilewright.graph import Node
from tilewright.plan.cost import elements
from tilewright.plan.kernels import Built
from tilewright.runtime.launch import Frame, Launch, Segment
from tilewright.runtime.memory import allocator
from tilewright.runtime.storage import Storage


@dataclass(frozen=True)
class Place:
    """Memory of a node: a base (an input, captured array, output, host result or the arena)."""

    base: int
    offset: int = 0  # bytes


@dataclass(frozen=True)
class KernelStep:
    """One kernel on memory. Places pair with the kernel's inputs, then its outputs."""

    built: Built
    places: tuple[Place, ...]
    workspace: Place


@dataclass(frozen=True)
class HostStep:
    """One host function; its result takes a base of its own."""

    node: Node
    places: tuple[Place, ...]
    result: int


Step = KernelStep | HostStep


@dataclass(frozen=True)
class Bases:
    """How many bases of each kind there are, in this order, the arena last.

    `outputs` gives shape and dtype of each output, allocated anew for each run.
    """

    inputs: int
    captured: tuple[Storage, ...]
    outputs: tuple[tuple[tuple[int, ...], DType], ...]
    hosts: int
    arena_bytes: int

    @property
    def first_output(self) -> int:
        return self.inputs + len(self.captured)

    @property
    def first_host(self) -> int:
        return self.first_output + len(self.outputs)

    @property
    def arena(self) -> int:
        return self.first_host + self.hosts


class RunFrame:
    """The mutable state of one run; several threads running one plan have one each."""

    __slots__ = ("bases", "memory", "steps")

    def __init__(self, layout: Layout):
        count = layout.bases.arena + 1
        self.bases = (ctypes.c_int64 * count)()
        for i, storage in enumerate(layout.bases.captured, layout.bases.inputs):
            self.bases[i] = storage.address
        self.memory: list[Storage | np.ndarray | None] = []
        self.steps: list[Callable[[], None]] = [
            partial(step, self) if callable(step) else _native(step, self)
            for step in layout.groups]


def _native(segment: Segment, frame: RunFrame) -> Callable[[], None]:
    return Frame(segment, frame.bases).run


class Layout:
    """Steps bound to memory, ready to run; immutable but for its idle frames.

    `wrap(step, run)` may replace how a step runs; then every kernel is a native call of its own.
    """

    def __init__(self, steps: Sequence[Step], bases: Bases, results: Sequence[int], workers: int,
                 short: bool, wrap: Callable[[Step, Callable], Callable] | None = None):
        self.steps, self.bases, self.results = tuple(steps), bases, tuple(results)
        self.workers, self.short = workers, short
        self.groups = [self._observed(s, wrap) for s in steps] if wrap else self._grouped()
        first = bases.first_output
        self._plain = self.results == tuple(range(first, first + len(bases.outputs)))
        self._python = any(not isinstance(g, Segment) for g in self.groups)
        self._frames: list[RunFrame] = []

    # -- making --------------------------------------------------------------------------

    def _grouped(self) -> list[Segment | Callable]:
        """Return native segments as long as possible, and functions of a frame between them."""
        groups: list[Segment | Callable] = []
        run: list[Launch] = []
        for step in self.steps:
            if isinstance(step, KernelStep) and step.built.native:
                run += launches(step)
                continue
            if run:
                groups.append(Segment(run, self.workers, self.short))
                run = []
            groups.append(self._function(step))
        if run:
            groups.append(Segment(run, self.workers, self.short))
        return groups

    def _function(self, step: Step) -> Callable[[RunFrame], None]:
        if isinstance(step, HostStep):
            return partial(_run_host, step, self.bases)
        return partial(_run_executable, step, self.workers)

    def _observed(self, step: Step, wrap: Callable) -> Callable[[RunFrame], None]:
        """Return a function of a frame that runs one step as `wrap` has it."""
        if isinstance(step, KernelStep) and step.built.native:
            segment = Segment(launches(step), self.workers)

            def run(frame: RunFrame) -> None:
                Frame(segment, frame.bases).run()
            return wrap(step, run)
        return wrap(step, self._function(step))

    # -- running -------------------------------------------------------------------------

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """Run once. Results are new storages, or the inputs and captured ones themselves."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = RunFrame(self)
        try:
            return self._run(frame, inputs)
        finally:
            frame.memory = []
            self._frames.append(frame)

    def _run(self, frame: RunFrame, inputs: Sequence[Storage]) -> list[Storage]:
        layout, bases = self.bases, frame.bases
        if len(inputs) != layout.inputs:
            raise ValueError(f"run: cannot run on {len(inputs)} inputs ({layout.inputs} needed)")
        outputs = [allocator.empty(shape, dtype) for shape, dtype in layout.outputs]
        i = 0
        for storage in inputs:
            bases[i] = storage.address
            i += 1
        i += len(layout.captured)
        for storage in outputs:
            bases[i] = storage.address
            i += 1
        arena = None
        if layout.arena_bytes:
            arena = allocator.block(layout.arena_bytes)
            bases[layout.arena] = arena.address
        if self._python or not self._plain:
            frame.memory = [*inputs, *layout.captured, *outputs, *[None] * layout.hosts, arena]
        for step in frame.steps:
            step()
        if self._plain:
            return outputs
        return [frame.memory[i] for i in self.results]  # type: ignore[misc]


def launches(step: KernelStep) -> list[Launch]:
    """Return the launches of a native kernel's programs, in order."""
    built = step.built
    names = [b.name for b in (*built.kernel.inputs, *built.kernel.outputs)]
    places = dict(zip(names, step.places))
    pointers = [(places[p.name].base, places[p.name].offset) for p in built.binding.params]
    base, offset = step.workspace.base, step.workspace.offset
    pointers += [(base, offset), (base, offset + global_bytes(built))]
    return [Launch(entry, tuple(pointers), parallel)
            for entry, parallel in zip(built.executable.addresses, built.parallel)]


def global_bytes(built: Built) -> int:
    """Return the bytes of a kernel's global area, in whole cache lines."""
    return -(-built.binding.global_bytes // 64) * 64


def workspace_bytes(built: Built, workers: int) -> int:
    """Return the bytes of a kernel's global and private areas."""
    if not built.native:
        return 0  # an interpreter brings its own
    return global_bytes(built) + built.binding.private_bytes * workers


def view(frame: RunFrame, place: Place, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Return memory of a running frame as an array."""
    memory = frame.memory[place.base]
    array = memory.array if isinstance(memory, Storage) else memory
    if 0 in shape:
        return np.empty(shape, dtype.numpy)
    # through bytes, since not every dtype has a buffer format
    data = array.reshape(-1).view(np.uint8)  # type: ignore[union-attr]
    return np.ndarray(shape, dtype.numpy, data, place.offset)


def _run_executable(step: KernelStep, workers: int, frame: RunFrame) -> None:
    kernel = step.built.kernel
    buffers = (*kernel.inputs, *kernel.outputs)
    arrays = {b.name: view(frame, place, (elements(kernel, b.name),), b.dtype)
              for b, place in zip(buffers, step.places)}
    step.built.executable.execute(  # type: ignore[attr-defined]
        [arrays[p.name] for p in step.built.binding.params], workers)


def _run_host(step: HostStep, layout: Bases, frame: RunFrame) -> None:
    node = step.node
    inputs = [view(frame, place, source.shape, source.dtype)
              for place, source in zip(step.places, node.inputs)]
    for array in inputs:
        array.flags.writeable = False
    result = np.asarray(node.attrs.function(*inputs))
    if result.shape != node.shape or result.dtype != node.dtype.numpy:
        name = getattr(node.attrs.function, "__name__", "function")
        raise BackendError(f"call: cannot take {result.dtype}{list(result.shape)} from {name} "
                           f"({node.dtype}{list(node.shape)} was declared)")
    storage = allocator.empty(node.shape, node.dtype)
    storage.array[...] = result  # a copy: the function may keep what it returned
    frame.memory[step.result] = storage
    frame.bases[step.result] = storage.address
