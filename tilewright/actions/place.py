"""Compute a stage at a loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.actions.base import Action
from tilewright.actions.depend import conflict, may_share
from tilewright.actions.nest import (
    BAND,
    Item,
    Leaf,
    Loop,
    Nest,
    base,
    chain,
    leaves,
    split_factor,
)
from tilewright.errors import Illegal
from tilewright.kernel import Stage
from tilewright.limits import Limits

ROOT = "root"


@dataclass(frozen=True)
class Place(Action):
    """Move a stage into the loop `at` (or ``root``); what is left of its axes are loops of its own.

    for s0:i: t[i] = f(i)        ->   for s1:i:
    for s1:i: out[i] = g(t[i])          t[i] = f(i)
                                        out[i] = g(t[i])

    Its scratch shrinks to the region that one iteration hands over. Legal where stages keep the
    order in which they depend on one another, and hand buffers over element by element along every
    axis that a common loop walks. A loop over an axis that the stage does not have repeats it.
    """

    stage: str
    at: str

    def apply(self, nest: Nest) -> Nest:
        if self.stage not in nest.kernel.stage:
            raise Illegal(f"place: cannot find stage {self.stage} "
                          f"(stages: {' '.join(nest.kernel.stage)})")
        if any(c.stage == self.stage for c in nest.copies):
            raise Illegal(f"place: cannot place {self.stage} (an operand of it is copied)")
        path = self._path(nest)
        body = _prune(nest.body, self.stage)
        if any(n.startswith(f"{self.stage}:") for n in _loops(body)):
            raise Illegal(f"place: cannot place {self.stage} (its loops hold other stages)")
        if self.at != ROOT and self.at not in _loops(body):
            raise Illegal(f"place: cannot place {self.stage} in {self.at} "
                          "(the loop holds nothing else)")
        bound = {base(loop.name): loop.name for loop in path}
        nest = self._renamed(nest, bound)
        loops: list[str] = []
        for axis in nest.kernel.stage[self.stage].axes():
            loops += self._own_loops(axis, bound)
        own = chain(loops, (Leaf(self.stage),))
        nest = nest.with_body(_insert(nest, body, self.at, own))
        self._check(nest)
        return nest

    def _path(self, nest: Nest) -> tuple[Loop, ...]:
        """Return the loops around the place; raise Illegal where one cannot hold the stage."""
        if self.at == ROOT:
            return ()
        nest.loop(self.at, "place")
        stage = nest.kernel.stage[self.stage]
        for loop in nest.paths[self.at]:
            if loop.kind in BAND:
                raise Illegal(f"place: cannot place {self.stage} in the band loop {loop.name}")
            if any(loop.name.startswith(c + ":") for c in nest.copy):
                raise Illegal(f"place: cannot place {self.stage} in {loop.name} (a loop of a copy)")
            if "*" in loop.name and set(nest.axes_of(loop.name)) & set(stage.axes()):
                raise Illegal(f"place: cannot place {self.stage} in {loop.name} (loops are merged)")
            role = nest.role(loop.name, self.stage)
            if role in ("reduce", "carry"):
                raise Illegal(f"place: cannot place {self.stage} in {loop.name} "
                              f"({role} axis of the stage)")
            if loop.kind == "parallel" and role == "absent":
                raise Illegal(f"place: cannot place {self.stage} in {loop.name} "
                              "(every worker would run it)")
        return nest.paths[self.at]

    def _renamed(self, nest: Nest, bound: dict[str, str]) -> Nest:
        """Forget how the stage's own loops were split, and split them as the loops around are."""
        mine = self.stage + ":"
        splits = {n: f for n, f in nest.splits if not n.startswith(mine)}
        for key, name in bound.items():
            while key.endswith((".0", ".1")) and split_factor(nest, name[:-2]):
                key, name = key[:-2], name[:-2]
                if nest.kernel.stage[self.stage].role.get(key.split(".")[0]):
                    splits[mine + key] = split_factor(nest, name)
        merges = tuple(m for m in nest.merges if not m[0].startswith(mine))
        partitions = tuple(p for p in nest.partitions if not p[0].startswith(mine))
        return replace(nest, splits=tuple(splits.items()), merges=merges, partitions=partitions)

    def _own_loops(self, axis: str, bound: dict[str, str]) -> list[str]:
        """Return the stage's loops for the part of an axis that no loop around it walks."""
        if axis in bound:
            return []
        if any(b.startswith(axis + ".") for b in bound):
            return [n for half in (".0", ".1") for n in self._own_loops(axis + half, bound)]
        return [f"{self.stage}:{axis}"]

    def _check(self, nest: Nest) -> None:
        """Raise Illegal where a dependence of the stage is broken."""
        stage = nest.kernel.stage[self.stage]
        for loop in nest.paths[self.stage]:
            again = [b for b in sorted(stage.writes) if b in stage.reads
                     or any(s.combine and s.buffer == b for s in stage.stores)]
            if again and nest.role(loop.name, self.stage) == "absent":
                raise Illegal(f"place: cannot place {self.stage} in {loop.name} "
                              f"(it would update {again[0]} again and again)")
        order = {s.name: i for i, s in enumerate(nest.kernel.stages)}
        for leaf in nest.derived:
            other = nest.stage_of(leaf)
            if other is not stage and conflict(stage, other):
                first, second = (self.stage, leaf) if order[self.stage] < order[other.name] \
                    else (leaf, self.stage)
                self._check_pair(nest, first, second)

    def _check_pair(self, nest: Nest, first: str, second: str) -> None:
        stages: tuple[Stage, Stage] = nest.stage_of(first), nest.stage_of(second)
        where = f"place: cannot place {self.stage} in {self.at} "
        position = {leaf: i for i, leaf in enumerate(leaves(nest.body))}
        if position[first] > position[second]:
            raise Illegal(where + f"({first} has to run before {second})")
        for a, b in zip(nest.paths[first], nest.paths[second]):
            if a.name != b.name:
                break
            for axis in nest.axes_of(a.name):
                reason = may_share(nest.kernel, *stages, axis)
                if reason:
                    raise Illegal(where + f"({reason})")

    @classmethod
    def candidates(cls, nest: Nest, limits: Limits) -> Iterator[Action]:
        stages = [s.name for s in nest.kernel.stages]
        for stage in stages[:-1]:
            for name, path in nest.paths.items():
                if path and path[-1].name == name and path[-1].kind == "serial":
                    yield cls(stage, name)


def _loops(items: tuple[Item, ...]) -> set[str]:
    """Return the names of all loops of a tree."""
    found: set[str] = set()
    stack = list(items)
    while stack:
        item = stack.pop()
        if isinstance(item, Loop):
            found.add(item.name)
            stack += item.body
    return found


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


def _insert(nest: Nest, items: tuple[Item, ...], at: str,
            own: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the tree with `own` put into loop `at`, before the first later stage.

    Where that loop holds stages that have to run before it too, after the last of those.
    """
    order = {s.name: i for i, s in enumerate(nest.kernel.stages)}
    name = next(leaves(own))
    needed = {s.name for s in nest.kernel.stages[:order[name]]
              if conflict(s, nest.kernel.stage[name])}

    def put(body: tuple[Item, ...]) -> tuple[Item, ...]:
        inside = [{nest.stage_of(leaf).name for leaf in leaves((item,))} for item in body]
        later = [i for i, names in enumerate(inside)
                 if max(order[n] for n in names) > order[name]]
        after = [i + 1 for i, names in enumerate(inside) if names & needed]
        position = max([later[0] if later else len(body), *after])
        return (*body[:position], *own, *body[position:])

    def walk(body: tuple[Item, ...]) -> tuple[Item, ...]:
        out: list[Item] = []
        for item in body:
            if isinstance(item, Loop):
                inner = put(item.body) if item.name == at else walk(item.body)
                item = replace(item, body=inner)
            out.append(item)
        return tuple(out)
    return put(items) if at == ROOT else walk(items)
