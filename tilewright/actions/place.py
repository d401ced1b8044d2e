"""Compute a stage at a loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.actions.base import Action
from tilewright.actions.nest import (
    Item,
    Leaf,
    Loop,
    Nest,
    aligned,
    chain,
    leaves,
    split_factor,
)
from tilewright.errors import Illegal
from tilewright.limits import Limits

ROOT = "root"


@dataclass(frozen=True)
class Place(Action):
    """Move a stage into the loop `at` (or ``root``); what is left of its axes are loops of its own.

    for s0:i: t[i] = f(i)        ->   for s1:i:
    for s1:i: out[i] = g(t[i])          t[i] = f(i)
                                        out[i] = g(t[i])

    Its scratch shrinks to the region that one iteration hands over. Legal where producer and
    consumer index that scratch by the shared axes element for element.
    """

    stage: str
    at: str

    def apply(self, nest: Nest) -> Nest:
        if self.stage not in nest.kernel.stage:
            raise Illegal(f"place: cannot find stage {self.stage} "
                          f"(stages: {' '.join(nest.kernel.stage)})")
        path = () if self.at == ROOT else nest.paths.get(self.at, ())
        if self.at != ROOT:
            nest.loop(self.at, "place")
            if any(loop.kind in ("vectorize", "interleave") for loop in path):
                raise Illegal(f"place: cannot place {self.stage} in the band loop {self.at}")
        names = [loop.name for loop in path]
        self._check(nest, names)
        bound = {n.split(":")[-1]: n for n in names}
        loops: list[str] = []
        for axis in nest.kernel.stage[self.stage].axes():
            nest = self._adopt_splits(nest, axis, bound)
            loops += self._own_loops(nest, axis, bound)
        own = chain(loops, (Leaf(self.stage),))
        body = _insert(nest, _prune(nest.body, self.stage), self.at, own)
        return nest.with_body(body)

    def _adopt_splits(self, nest: Nest, axis: str, bound: dict[str, str]) -> Nest:
        """Split the stage's axis as the loops around it that walk a part of it are split."""
        for base, name in bound.items():
            own = f"{self.stage}:{base[:-2]}"
            if base.startswith(axis + ".") and split_factor(nest, own) == 0:
                nest = replace(nest, splits=(*nest.splits, (own, split_factor(nest, name[:-2]))))
        return nest

    def _own_loops(self, nest: Nest, axis: str, bound: dict[str, str]) -> list[str]:
        """Return the stage's loops for the part of an axis that no loop around it walks."""
        if axis in bound:
            return []
        if any(b == axis or b.startswith(axis + ".") for b in bound):
            return [n for half in (".0", ".1") for n in self._own_loops(nest, axis + half, bound)]
        own = f"{self.stage}:{axis}"
        return self._expand(nest, own)

    def _expand(self, nest: Nest, own: str) -> list[str]:
        if own in nest.factor:
            return [n for half in (".0", ".1") for n in self._expand(nest, own + half)]
        return [own]

    def _check(self, nest: Nest, names: list[str]) -> None:
        kernel = nest.kernel
        stage = kernel.stage[self.stage]
        others = set()
        if names:
            others = set(leaves((nest.loop(names[0], "place"),))) & set(kernel.stage)
        partners = [s for s in kernel.stages
                    if s.name in others | {self.stage} and self._linked(kernel, stage, s)]
        for name in names:
            for axis in nest.axes_of(name):
                role = stage.role.get(axis, "absent")
                if role in ("reduce", "carry"):
                    raise Illegal(f"place: cannot place {self.stage} in {name} "
                                  f"({role} axis of the stage)")
                if role == "free" and not aligned(kernel, partners, axis):
                    raise Illegal(f"place: cannot place {self.stage} in {name} "
                                  "(scratch is not handed over element by element)")

    @staticmethod
    def _linked(kernel, stage, other) -> bool:
        if stage.name == other.name:
            return True
        written = {s.buffer for s in stage.stores}
        reads = {b.name for b in kernel.buffers if other in kernel.readers(b.name)}
        back = {s.buffer for s in other.stores}
        mine = {b.name for b in kernel.buffers if stage in kernel.readers(b.name)}
        return bool(written & reads or back & mine)

    @classmethod
    def candidates(cls, nest: Nest, limits: Limits) -> Iterator[Action]:
        stages = [s.name for s in nest.kernel.stages]
        for stage in stages[:-1]:
            for name, path in nest.paths.items():
                if path and path[-1].name == name and path[-1].kind == "serial":
                    yield cls(stage, name)


def _prune(items: tuple[Item, ...], stage: str) -> tuple[Item, ...]:
    """Return the tree without a leaf and the loops that it leaves empty."""
    out: list[Item] = []
    for item in items:
        if isinstance(item, Leaf):
            if item.stage != stage:
                out.append(item)
        else:
            body = _prune(item.body, stage)
            if body:
                out.append(replace(item, body=body))
    return tuple(out)


def _insert(nest: Nest, items: tuple[Item, ...], at: str, own: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the tree with `own` put into loop `at`, before the first later stage."""
    order = {s.name: i for i, s in enumerate(nest.kernel.stages)}
    mine = order[next(leaves(own))]

    def put(body: tuple[Item, ...]) -> tuple[Item, ...]:
        for position, item in enumerate(body):
            ranks = [order[nest.stage_of(leaf).name] for leaf in leaves((item,))]
            if max(ranks) > mine:
                return (*body[:position], *own, *body[position:])
        return (*body, *own)

    if at == ROOT:
        return put(items)
    found = False

    def walk(body: tuple[Item, ...]) -> tuple[Item, ...]:
        nonlocal found
        out: list[Item] = []
        for item in body:
            if isinstance(item, Loop):
                if item.name == at:
                    found = True
                    item = replace(item, body=put(item.body))
                else:
                    item = replace(item, body=walk(item.body))
            out.append(item)
        return tuple(out)

    result = walk(items)
    if not found:
        raise Illegal(f"place: cannot place a stage in {at} (the loop holds nothing else)")
    return result
