"""Plans: a graph compiled to launches over planned memory, replayed as one call."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from tilewright.config import Config, current
from tilewright.errors import TooLarge
from tilewright.fusion import fuse
from tilewright.fusion.calls import HostCall, KernelCall
from tilewright.graph import Node, postorder
from tilewright.kernel import Kernel
from tilewright.plan import debug
from tilewright.plan.assemble import Bound, assemble
from tilewright.plan.kernels import Built, KernelCache, Target, Work, kernel_cache
from tilewright.plan.layout import HostStep, Place
from tilewright.plan.naming import kernel_name
from tilewright.plan.tuning import attendant
from tilewright.plan.warmth import cold_kernels
from tilewright.runtime.storage import Storage

LEAST_CAP = 256  # instructions; a kernel that passes this in the smallest cut is an error


class Plan:
    """A compiled graph. `run` may be called from several threads at once.

    seconds    by stage: fuse, schedule, lower, compile, first run
    counts     nodes, kernels, distinct kernels, programs compiled, instructions
    """

    def __init__(self, bound: Bound, built: dict[str, Built], config: Config, work: Work,
                 cache: KernelCache = kernel_cache):
        self.bound, self.built, self.config = bound, dict(built), config
        self.seconds, self.counts = work.seconds, work.counts
        self._cache, self._given = cache, dict(built)  # as the cache gave them
        self._lock = threading.Lock()
        self._seen = -1  # stamp of the cache; see `KernelCache`
        self._ran = False
        self._assemble()

    def _assemble(self) -> None:
        wrap = debug.observer(self.config)
        self.layout = assemble(self.bound, self.built, self.config.threads, wrap)

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """Compute the outputs for `inputs`, one storage per parameter, of its shape and dtype.

        Returns new storages; an output that is a parameter or a captured array is that storage.
        Where tuning is on, kernels may be searched before it returns.
        """
        if self._seen == self._cache.stamp:
            return self.layout.run(inputs)
        return self._look_and_run(inputs)

    def _look_and_run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """Run as the first time, and where kernels may have become better or are to."""
        stamp = self._cache.stamp
        self._take_better()
        if self._ran:
            outputs = self.layout.run(inputs)
        else:
            work = Work(self.seconds, self.counts)
            with work.stage("first run"):
                outputs = self.layout.run(inputs)
            self._ran = True
        tuner = attendant(current()) or attendant(self.config)
        done = tuner is None or tuner.attend(self, inputs)
        if stamp and done:
            self._seen = stamp
        return outputs

    def _take_better(self) -> None:
        """Take over what the cache has now, but for kernels that a person put in place."""
        with self._lock:
            better = {}
            for key, built in self.built.items():
                found = self._cache.peek(key, built.target)
                if found is not None and found is not built and built is self._given[key]:
                    better[key] = found
            if better:
                self._given.update(better)
                self.built = {**self.built, **better}
                self._assemble()

    def replace(self, key: str, built: Built) -> None:
        """Run `built` wherever the kernel of `key` ran; later runs see it."""
        with self._lock:
            self.built = {**self.built, key: built}
            self._assemble()

    @property
    def by_hand(self) -> set[str]:
        """Keys of the kernels that a person put in place; tuning leaves them alone."""
        return {key for key, built in self.built.items() if built is not self._given[key]}

    @property
    def arena_bytes(self) -> int:
        """Bytes of intermediates and workspace that one run takes from the pool."""
        return self.layout.bases.arena_bytes

    @property
    def output_bytes(self) -> int:
        """Bytes that one run allocates for its outputs."""
        total = 0
        for shape, dtype in self.layout.bases.outputs:
            size = dtype.itemsize
            for extent in shape:
                size *= extent
            total += size
        return total

    def __str__(self) -> str:
        bases = self.layout.bases
        lines = [f"plan: {len(self.layout.steps)} launches of {len(self.built)} kernels, "
                 f"{self.layout.workers} threads"]
        lines += [f"  in{i}: {n.dtype}{list(n.shape)}" for i, n in enumerate(self.bound.parameters)]
        lines += [f"  held{i}: {s.dtype}{list(s.shape)}" for i, s in enumerate(bases.captured)]
        lines += [f"  out{i}: {dtype}{list(shape)}"
                  for i, (shape, dtype) in enumerate(bases.outputs)]
        lines.append(f"  arena: {bases.arena_bytes} bytes of intermediates and workspace")
        for number, step in enumerate(self.layout.steps):
            places = [self._show(p) for p in step.places]
            if isinstance(step, HostStep):
                name = getattr(step.node.attrs.function, "__name__", "function")
                lines.append(f"  {number}: host {name}({', '.join(places)}) "
                             f"-> {self._show(Place(step.result))}")
                continue
            kernel = step.built.kernel
            count = len(kernel.inputs)
            lines.append(f"  {number}: {kernel_name(kernel)}({', '.join(places[:count])}) -> "
                         + ", ".join(places[count:]))
        lines.append("  return " + ", ".join(self._show(Place(r)) for r in self.layout.results))
        return "\n".join(lines)

    def _show(self, place: Place) -> str:
        bases, base = self.layout.bases, place.base
        for name, first in (("arena", bases.arena), ("host", bases.first_host),
                            ("out", bases.first_output), ("held", bases.inputs), ("in", 0)):
            if base >= first:
                number = "" if name == "arena" else str(base - first)
                return f"{name}{number}" + (f"+{place.offset}" if place.offset else "")
        raise AssertionError(base)


def compile_graph(outputs: Sequence[Node], parameters: Sequence[Node] = (),
                  config: Config | None = None, cache: KernelCache = kernel_cache) -> Plan:
    """Return a plan that computes `outputs` from values of `parameters`.

    Buffer leaves are captured: their memory is bound to the plan. `config` is the one in force
    unless given. Raises TraceError where a parameter is missing from `parameters`, BackendError
    where the backend refuses.
    """
    config = config or current()
    target, work = Target.of(config), Work()
    outputs = tuple(outputs)
    nodes = postorder(outputs)
    debug.show_graph(nodes, config)
    calls, built = _fuse_and_build(outputs, target, work, cache)
    work.count("nodes", len(nodes))
    work.count("kernels", sum(isinstance(c, KernelCall) for c in calls))
    work.count("distinct kernels", len(built))
    work.count("programs compiled", 0)
    work.count("instructions", sum(b.instructions for b in built.values()))
    for kernel in built.values():
        debug.show_kernel(kernel, config)
    return Plan(Bound(outputs, tuple(parameters), tuple(calls)), built, config, work, cache)


def _fuse_and_build(outputs: tuple[Node, ...], target: Target, work: Work, cache: KernelCache
                    ) -> tuple[list[KernelCall | HostCall], dict[str, Built]]:
    """Fuse and build; where a program passes the cap while it is emitted, cut smaller and retry."""
    limits = target.limits
    while True:
        with work.stage("fuse"):
            calls = fuse(outputs, limits)
        distinct: dict[str, Kernel] = {
            c.kernel.key: c.kernel for c in calls if isinstance(c, KernelCall)}
        try:
            cold = cold_kernels(calls, limits.l3)
            targets = {key: replace(target, caches="cold" if key in cold else "warm")
                       for key in distinct}
            return calls, {key: cache.get(k, targets[key], work) for key, k in distinct.items()}
        except TooLarge:
            limits = replace(limits, instruction_cap=limits.instruction_cap // 4)
            if limits.instruction_cap < LEAST_CAP:
                raise
