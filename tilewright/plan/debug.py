"""What ``TILEWRIGHT_DEBUG`` prints, to standard error.

    1  each launch with its time, GB/s and GFLOP/s      4  Programs
    2  graphs                                           5  source
    3  schedules                                        6  assembly
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.config import Config
from tilewright.graph import Node
from tilewright.plan.cost import bytes_moved, flops
from tilewright.plan.kernels import Built
from tilewright.plan.layout import HostStep, Step
from tilewright.plan.naming import kernel_name
from tilewright.program.printer import print_program


def _write(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Ran:
    """One launch: a kernel by name and key (a host function has no key), and what it took.

    nbytes, flops   the least memory traffic and the arithmetic of one run
    """

    name: str
    key: str
    nbytes: int
    flops: int
    seconds: float

    def __str__(self) -> str:
        return (f"launch {self.name:40} {self.seconds * 1e6:10.1f} us "
                f"{self.nbytes / self.seconds * 1e-9:8.2f} GB/s "
                f"{self.flops / self.seconds * 1e-9:8.2f} GFLOP/s")


def observer(config: Config) -> Callable[[Step, Callable], Callable] | None:
    """Return what wraps each step of a plan, so that launches are seen; None where nobody looks."""
    sinks = [s for s in ((lambda ran: _write(str(ran))) if config.debug else None, config.observer)
             if s is not None]
    if not sinks:
        return None

    def wrap(step: Step, run: Callable) -> Callable:
        name, key, nbytes, work = _facts(step)

        def timed(frame) -> None:
            start = time.perf_counter()
            run(frame)
            seconds = max(time.perf_counter() - start, 1e-9)
            for sink in sinks:
                sink(Ran(name, key, nbytes, work, seconds))
        return timed
    return wrap


def _facts(step: Step) -> tuple[str, str, int, int]:
    if isinstance(step, HostStep):
        return getattr(step.node.attrs.function, "__name__", "function"), "", 0, 0
    kernel = step.built.kernel
    return kernel_name(kernel), kernel.key, bytes_moved(kernel), flops(kernel)


def print_graph(nodes: Sequence[Node]) -> str:
    """Return nodes, inputs before users, one a line."""
    numbers = {id(node): i for i, node in enumerate(nodes)}
    lines = []
    for node in nodes:
        inputs = ", ".join(f"%{numbers[id(i)]}" for i in node.inputs)
        attrs = "" if node.op.name in ("buffer", "constant") else ", ".join(
            f"{k}={v}" for k, v in node.attrs._asdict().items())
        separator = "; " if inputs and attrs else ""
        lines.append(f"  %{numbers[id(node)]} = {node.op.name}({inputs}{separator}{attrs}) "
                     f": {node.dtype}{list(node.shape)}")
    return "\n".join(lines)


def show_graph(nodes: Sequence[Node], config: Config) -> None:
    """Print a graph that is about to be compiled, from level 2 on."""
    if config.debug >= 2:
        _write(f"graph of {len(nodes)} nodes\n{print_graph(nodes)}")


def show_kernel(built: Built, config: Config) -> None:
    """Print a kernel as far as the level asks."""
    if config.debug < 3:
        return
    _write(f"kernel {kernel_name(built.kernel)}\n{built.kernel}\nschedule\n{built.schedule}\n"
           f"nest\n{built.nest}")
    if config.debug >= 4:
        for program in built.programs:
            _write(print_program(program))
    if config.debug >= 5:
        _write(built.source)
    if config.debug >= 6:
        _write(built.assembly)
