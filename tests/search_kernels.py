"""Eight kernels, and searches of them on the simulated device."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from fusion_tools import column, convolve, full, leaf, mean, softmax
from search_tools import LIMITS, addition, kernel_of, product

from tilewright.actions import Schedule, default_schedule
from tilewright.backends import backend
from tilewright.graph import Node, apply
from tilewright.kernel import Kernel
from tilewright.limits import Limits
from tilewright.search import Budget, Record, search
from tilewright.search.measurer import Code, Failure
from tilewright.search.simulated import Clock, Simulated

SMALL = Budget(beam=4, seconds=1e9, per_round=10, rounds=3)


def layer_norm(rows: int, columns: int) -> Node:
    x = leaf(rows, columns)
    centred = apply("subtract", x, column(mean(x, 1), columns))
    spread = mean(apply("multiply", centred, centred), 1)
    scale = apply("sqrt", apply("add", spread, full(1e-5, spread)))
    return apply("divide", centred, column(scale, columns))


def recurrence(steps: int, n: int) -> Node:
    """Euler steps of a pendulum with damping: one elementwise kernel."""
    x, v = leaf(n, seed=1), leaf(n, seed=2)
    for _ in range(steps):
        v = apply("subtract", v, apply("multiply", full(0.05, x), apply("add", x, v)))
        x = apply("add", x, apply("multiply", full(0.05, x), v))
    return apply("add", x, v)


KERNELS: dict[str, Callable[[], Kernel]] = {
    "add_3d": lambda: addition(32, 64, 128),
    "matmul_512": lambda: product(512, 512, 512),
    "conv_3x3": lambda: kernel_of(convolve(leaf(16, 34, 34), leaf(32, 16, 3, 3, seed=1), 1)),
    "softmax": lambda: kernel_of(softmax(leaf(256, 1000))),
    "layer_norm": lambda: kernel_of(layer_norm(256, 768)),
    "permute": lambda: kernel_of(apply("permute", leaf(1024, 1024), axes=(1, 0))),
    "vector_matrix": lambda: product(1, 1024, 1024),
    "recurrence_20": lambda: kernel_of(recurrence(20, 4096)),
}


class Watching:
    """A measurer that keeps what it was given; `fail` may raise before any call, by its number."""

    def __init__(self, device: Simulated, fail: Callable[[int], None] = lambda call: None):
        self.device, self.fail, self.calls = device, fail, 0
        self.sources: list[str] = []

    def _called(self) -> None:
        self.calls += 1
        self.fail(self.calls)

    def begin(self, kernel: Kernel, given: Code) -> int | Failure:
        self._called()
        return self.device.begin(kernel, given)

    def compile(self, sources: Iterable[str]) -> list[bytes | Failure]:
        self._called()
        found = list(sources)
        self.sources += found
        return self.device.compile(found)

    def link(self, code: Code) -> int | Failure:
        self._called()
        return self.device.link(code)

    def sample(self, handle: int) -> float | Failure:
        self._called()
        return self.device.sample(handle)

    def move(self) -> None:
        self._called()
        self.device.move()

    def noise(self) -> float:
        return self.device.noise()

    def close(self) -> None:
        self.device.close()


def simulate(kernel: Kernel, start: Schedule | None = None, budget: Budget = SMALL,
             limits: Limits = LIMITS, seed: int = 0, watching: Watching | None = None,
             alternative: int = 0, **device) -> Record:
    """Search on a simulated device with its own clock; `device` has options of `Simulated`."""
    if watching is None:
        clock = Clock()
        watching = Watching(Simulated(clock=clock, limits=limits, seed=seed, **device))
    if start is None:
        start = default_schedule(kernel, limits)
    return search(kernel, start, backend("interpreter"), limits, watching, budget,
                  watching.device.clock, alternative=alternative, seed=seed)


def number_of(source: str, seed: int) -> float:
    """Return a number in [0, 1) that depends on the source and the seed alone."""
    digest = hashlib.sha256(f"{seed} {source}".encode()).digest()
    return int.from_bytes(digest[:6], "little") / (1 << 48)
