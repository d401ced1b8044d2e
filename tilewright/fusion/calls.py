"""What fusion makes of a graph: calls of kernels and of host functions, in execution order."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph import Node
from tilewright.kernel import Kernel


@dataclass(frozen=True)
class Operand:
    """A node's memory, from `offset` elements on."""

    node: Node
    offset: int = 0


@dataclass(frozen=True)
class KernelCall:
    """Run `kernel` on memory; operands pair with ``kernel.inputs`` and ``kernel.outputs``.

    An input is a source or an output of an earlier call. Each output is one dense row-major node,
    or (a concat of many pieces) the part of it from `offset` on that this call fills: several
    calls with the same output node then fill it together, each element written by one of them.
    """

    kernel: Kernel
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]


@dataclass(frozen=True)
class HostCall:
    """Run the Python function of a `call` node on its inputs' memory."""

    node: Node
