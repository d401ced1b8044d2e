"""Lay an operand out anew: packing, and the tiles of shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.actions.base import Action
from tilewright.actions.nest import BAND, Item, Leaf, Loop, Nest, chain, leaves, nominal
from tilewright.actions.nest import Copy as CopyStage
from tilewright.actions.place import ROOT
from tilewright.errors import Illegal
from tilewright.index import symbols
from tilewright.kernel import Stage
from tilewright.kernel.value import Value, postorder

SPACES = ("scratch", "shared", "registers")


@dataclass(frozen=True)
class Copy(Action):
    """Compute an operand of a stage into scratch at the head of loop `at`, in a layout of its own.

    for k: .. for j: acc += a[i, k] * b[k, j]
      -> for k: { for j: t[k, j] = b[k, j] }   for j: acc += a[i, k] * t[k, j]

    `operand` is ``stage:letter``; `layout` names loops of the stage inside `at`, outermost first:
    the copy has one loop for each (``s0:b.copy:k0.1``) and stores densely in that order. Every loop
    inside `at` on which the operand depends must be in the layout.
    """

    operand: str
    at: str
    layout: tuple[str, ...]
    space: str = "scratch"

    def apply(self, nest: Nest) -> Nest:
        stage_name, _, letter = self.operand.partition(":")
        stage = nest.kernel.stage.get(stage_name)
        if stage is None or letter not in stage.operands:
            raise Illegal(f"copy: cannot find operand {self.operand}")
        if self.space not in SPACES:
            raise Illegal(f"copy: cannot copy to space {self.space} (one of {', '.join(SPACES)})")
        name = f"{self.operand}.copy"
        if name in nest.copy:
            raise Illegal(f"copy: cannot copy {self.operand} twice")
        if len(set(self.layout)) < len(self.layout):
            raise Illegal(f"copy: cannot lay {self.operand} out by one loop twice")
        value = stage.operands[letter]
        if any(v.op in ("state", "other") for v in postorder([value])):
            raise Illegal(f"copy: cannot copy {self.operand} (it depends on the state)")
        path = [loop.name for loop in nest.paths[stage_name]]
        outside: list[str] = []
        if self.at != ROOT:
            if self.at not in path:
                raise Illegal(f"copy: cannot copy {self.operand} at {self.at} "
                              f"(not a loop around {stage_name}: {' '.join(path)})")
            if nest.loop(self.at, "copy").kind in BAND:
                raise Illegal(f"copy: cannot copy {self.operand} in the band loop {self.at}")
            outside = path[:path.index(self.at) + 1]
        inside = path[len(outside):]
        self._check_layout(nest, value, stage_name, inside)
        self._check_finish(nest, value, stage, outside)
        copy = CopyStage(name, stage_name, letter, self.layout, self.space)
        own = chain([f"{name}:{loop}" for loop in self.layout], (Leaf(name),))
        if self.at == ROOT:
            body: tuple[Item, ...] = self._before(nest.body, stage_name, own)
        else:
            def make(loop: Loop):
                return (replace(loop, body=self._before(loop.body, stage_name, own)),)
            body = nest.rebuild(self.at, make)
        nest = nest.with_body(body, copies=(*nest.copies, copy))
        self._check_order(nest, name)
        return nest

    def _check_finish(self, nest: Nest, value: Value, stage: Stage, outside: list[str]) -> None:
        """A finish runs outside of the reduce loops, where no copy within them is at hand."""
        finish = [v for s in stage.stores for v in (s.value, *s.guard)]
        if stage.axes("reduce") and value in postorder(finish):
            for loop in outside:
                if nest.role(loop, stage.name) == "reduce":
                    raise Illegal(f"copy: cannot copy {self.operand} in {loop} "
                                  f"(the finish of {stage.name} reads it, after the loop)")

    @staticmethod
    def _check_order(nest: Nest, name: str) -> None:
        """What the operand reads is written before the copy, and by no other step of the stage."""
        position = {leaf: i for i, leaf in enumerate(leaves(nest.body))}
        for stage in nest.kernel.stages:
            changed = stage.writes & nest.reads(name)
            own = stage.name == nest.copy[name].stage
            if changed and (own or position[stage.name] > position[name]):
                raise Illegal(f"copy: cannot copy {name.removesuffix('.copy')} here "
                              f"({stage.name} writes {' '.join(sorted(changed))} later)")

    def _check_layout(self, nest: Nest, value: Value, stage_name: str,
                      inside: list[str]) -> None:
        for loop in self.layout:
            if loop not in inside:
                raise Illegal(f"copy: cannot lay {self.operand} out by {loop} "
                              f"(not a loop inside {self.at})")
        used = {s.name for v in postorder([value]) for e in _expressions(v) for s in symbols(e)}
        stage = nest.kernel.stage[stage_name]
        for let in reversed(stage.lets):  # a let uses those before it
            if let.sym.name in used:
                used |= {s.name for v in postorder([let.value]) for e in _expressions(v)
                         for s in symbols(e)}
        for loop in inside:
            if used & set(nest.axes_of(loop)) and loop not in self.layout \
                    and nominal(nest, loop) > 1:
                raise Illegal(f"copy: cannot copy {self.operand} (it depends on {loop}, "
                              "which is not in the layout)")

    @staticmethod
    def _before(body: tuple[Item, ...], stage: str, own: tuple[Item, ...]) -> tuple[Item, ...]:
        from_here = [i for i, item in enumerate(body) if stage in _stages(item)]
        return (*body[:from_here[0]], *own, *body[from_here[0]:])


def _stages(item: Item) -> set[str]:
    if isinstance(item, Leaf):
        return {item.stage}
    return {name for inner in item.body for name in _stages(inner)}


def _expressions(value):
    """Yield the index expressions that a value holds itself."""
    if value.op == "load":
        yield from value.data[1]
    elif value.op in ("index", "test"):
        yield value.data
    elif value.op == "divides":
        yield value.data[0]
