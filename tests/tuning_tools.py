"""A simulated device for tuners: times come from a model, the clock moves only when told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tilewright.config import current
from tilewright.dtypes import float32
from tilewright.graph import Node, apply, parameter
from tilewright.limits import Limits
from tilewright.plan.kernels import Built, KernelCache, Target
from tilewright.plan.plan import Plan, compile_graph
from tilewright.plan.usage import Device, Take, Usage
from tilewright.runtime.storage import Storage
from tilewright.search.measurer import Code
from tilewright.search.simulated import Clock, Processor, Simulated

SLOW_GIVEN = 10.0


class Recorded(Simulated):
    """A simulated measurer that keeps what it was asked; `stop` raises at that many samples."""

    def __init__(self, device: SimulatedDevice, **options):
        super().__init__(device.cost, clock=device.clock, **options)
        self.device = device

    def compile(self, sources: Iterable[str]):
        found = list(sources)
        self.device.sources += found
        return super().compile(found)

    def begin(self, kernel, given: Code):
        self.device.searches.append(kernel.key)
        return super().begin(kernel, given)

    def sample(self, handle: int):
        self.device.samples += 1
        if self.device.samples == self.device.stop:
            raise KeyboardInterrupt
        return super().sample(handle)


class SimulatedDevice(Device):
    """Stands in for the machine. Kernels with a key in `slow` are slow under their first schedule.

    targets                       what measurers were made for
    sources, searches, samples    what they were asked for
    """

    def __init__(self, share: float = 0.0, scale: float = 1.0, stop: int = 0,
                 fail: Exception | None = None):
        super().__init__()
        self.clock = Clock()
        self.share, self.scale, self.stop, self.fail = share, scale, stop, fail
        self.given: set[str] = set()
        self.sources: list[str] = []
        self.targets: list[Target] = []
        self.searches: list[str] = []
        self.samples = 0
        self._processor = Processor(Limits())

    def make_slow(self, plan: Plan) -> None:
        """Let the present schedules of a plan's kernels take ten times their time."""
        self.given |= {b.source for b in plan.built.values()}

    def cost(self, source: str) -> float:
        factor = SLOW_GIVEN if source in self.given else 1.0
        return self._processor.seconds(source) * factor * self.scale

    def measurer(self, target: Target) -> Simulated:
        if self.fail is not None:
            raise self.fail
        self.targets.append(target)
        return Recorded(self)

    def accepts(self, built: Built) -> bool:
        return True

    def share_of_limit(self, built: Built, seconds: float) -> float:
        return self.share

    def usages(self, plan: Plan, inputs: Sequence[Storage]) -> list[Usage]:
        calls: dict[str, int] = {}
        for call in plan.bound.calls:
            calls[call.kernel.key] = calls.get(call.kernel.key, 0) + 1
        return [Usage(b, calls[key], calls[key] * self.cost(b.source), self.alone)
                for key, b in plan.built.items()]

    def alone(self, given: Built, other: Built) -> tuple[Take, Take]:
        def taker(built: Built) -> Take:
            def take() -> float:
                seconds = self.cost(built.source)
                self.clock.advance(seconds)
                return seconds
            return take
        return taker(given), taker(other)


def storage(*shape: int) -> Storage:
    from_zero = np.arange(int(np.prod(shape)), dtype=np.float32) / 7
    return Storage(from_zero.reshape(shape), float32)


def plan_of(function: Callable[[list[Node]], list[Node]], *shapes: tuple[int, ...],
            cache: KernelCache) -> tuple[Plan, list[Storage]]:
    """Compile a function of parameters and run it once; return the plan and its inputs."""
    parameters = [parameter(i, s, float32) for i, s in enumerate(shapes)]
    plan = compile_graph(function(parameters), parameters, current(), cache)
    inputs = [storage(*s) for s in shapes]
    plan.run(inputs)
    return plan, inputs


def sums(x: Node) -> Node:
    return apply("reduce", x, kind="sum", axes=(1,))


def exponential(x: Node) -> Node:
    return apply("exp", x)
