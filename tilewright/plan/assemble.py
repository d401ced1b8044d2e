"""Bind calls to memory: which base and offset every operand has, and what lives when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.errors import TraceError
from tilewright.fusion.calls import HostCall, KernelCall, Operand
from tilewright.graph import Node
from tilewright.graph.node import constant_value
from tilewright.plan.cost import bytes_moved, flops
from tilewright.plan.kernels import Built
from tilewright.plan.layout import Bases, HostStep, KernelStep, Layout, Place, Step, workspace_bytes
from tilewright.plan.memory import Lifetime, aligned, place
from tilewright.runtime.storage import Storage

Call = KernelCall | HostCall
SHORT = 20_000  # bytes plus operations of a plan that runs for microseconds


@dataclass(frozen=True)
class Bound:
    """What a plan computes, before memory: outputs, parameters in order, calls in order."""

    outputs: tuple[Node, ...]
    parameters: tuple[Node, ...]
    calls: tuple[Call, ...]


def reads(call: Call) -> list[Node]:
    """Return the nodes whose memory a call reads."""
    if isinstance(call, HostCall):
        return list(call.node.inputs)
    return [operand.node for operand in call.inputs]


def writes(call: Call) -> list[Node]:
    """Return the nodes that a call computes."""
    if isinstance(call, HostCall):
        return [call.node]
    return [operand.node for operand in call.outputs]


def source_storage(node: Node) -> Storage:
    """Return the memory of a source that needs no computing. Raises TraceError for a parameter."""
    if node.op.name == "buffer":
        return node.attrs.storage
    if node.op.name == "constant":
        return Storage(np.array(constant_value(node)), node.dtype)
    if node.op.name == "parameter":
        raise TraceError(f"compile: cannot find parameter {node.attrs.index} of "
                         f"{node.dtype}{list(node.shape)} (it belongs to another trace)")
    return Storage(np.ascontiguousarray(node.op.numpy([], node.attrs)), node.dtype)


class _Binder:
    """Gives every node a place."""

    def __init__(self, bound: Bound, built: Mapping[str, Built], workers: int):
        self.bound, self.built, self.workers = bound, built, workers
        self.places: dict[int, Place] = {}
        self.captured: dict[int, Storage] = {}
        self.produced: dict[int, tuple[Node, Call]] = {}
        for call in bound.calls:
            for node in writes(call):
                self.produced[id(node)] = node, call

    def bind(self) -> tuple[list[Step], Bases, list[int]]:
        bound = self.bound
        for i, node in enumerate(bound.parameters):
            self.places[id(node)] = Place(i)
        count = len(bound.parameters)
        for node in [n for call in bound.calls for n in reads(call)] + list(bound.outputs):
            if id(node) not in self.places and id(node) not in self.produced:
                self.places[id(node)] = Place(count + len(self.captured))
                self.captured[id(node)] = source_storage(node)
        count += len(self.captured)
        outputs = self._produced_outputs()
        for node in outputs:
            self.places[id(node)] = Place(count)
            count += 1
        hosts = [n for n, call in self.produced.values() if isinstance(call, HostCall)]
        for node in hosts:
            self.places[id(node)] = Place(count)
            count += 1
        arena_bytes, workspace = self._plan_arena(count)
        bases = Bases(len(bound.parameters), tuple(self.captured.values()),
                      tuple((n.shape, n.dtype) for n in outputs), len(hosts), arena_bytes)
        steps = [self._step(call, workspace) for call in bound.calls]
        return steps, bases, [self.places[id(n)].base for n in bound.outputs]

    def _produced_outputs(self) -> list[Node]:
        """Return the outputs that kernels write, each once, in order."""
        found: dict[int, Node] = {}
        for node in self.bound.outputs:
            if id(node) in self.produced and isinstance(self.produced[id(node)][1], KernelCall):
                found[id(node)] = node
        return list(found.values())

    def _plan_arena(self, base: int) -> tuple[int, Place]:
        """Place intermediates and the workspace in one area; return its bytes and the workspace."""
        workspace = max((workspace_bytes(self.built[c.kernel.key], self.workers)
                         for c in self.bound.calls if isinstance(c, KernelCall)), default=0)
        workspace = aligned(workspace) if workspace else 0
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        nodes: list[Node] = []
        for step, call in enumerate(self.bound.calls):
            for node in writes(call):
                if id(node) not in self.places:
                    first[id(node)] = last[id(node)] = step
                    nodes.append(node)
            for node in reads(call):
                last[id(node)] = step
        lifetimes = [Lifetime(n.size * n.dtype.itemsize, first[id(n)], last[id(n)]) for n in nodes]
        offsets, total = place(lifetimes)
        for node, offset in zip(nodes, offsets):
            self.places[id(node)] = Place(base, workspace + offset)
        return workspace + total, Place(base)

    def _step(self, call: Call, workspace: Place) -> Step:
        if isinstance(call, HostCall):
            places = tuple(self.places[id(n)] for n in call.node.inputs)
            return HostStep(call.node, places, self.places[id(call.node)].base)
        operands = (*call.inputs, *call.outputs)
        return KernelStep(self.built[call.kernel.key], tuple(map(self._place, operands)), workspace)

    def _place(self, operand: Operand) -> Place:
        found = self.places[id(operand.node)]
        return Place(found.base, found.offset + operand.offset * operand.node.dtype.itemsize)


def is_short(bound: Bound) -> bool:
    """Return whether a run takes so little that keeping the interpreter lock is cheaper."""
    work = 0
    for call in bound.calls:
        if isinstance(call, HostCall):
            return False
        work += bytes_moved(call.kernel) + flops(call.kernel)
        if work > SHORT:
            return False
    return True


def assemble(bound: Bound, built: Mapping[str, Built], workers: int,
             wrap: Callable | None = None) -> Layout:
    """Return the calls bound to memory, ready to run by `workers` threads."""
    steps, bases, results = _Binder(bound, built, workers).bind()
    return Layout(steps, bases, results, workers, is_short(bound), wrap)
