"""Merge two loops into one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.actions.base import Action
from tilewright.actions.nest import Loop, Nest, leaves, merge_of, nominal
from tilewright.errors import Illegal
from tilewright.limits import Limits


@dataclass(frozen=True)
class Merge(Action):
    """Merge a loop with the one directly inside it.

    for i in n: for j in m: body(i, j)  ->  for i*j in n*m: body(i*j // m, i*j % m)

    Both are free, or both reduce or carry, in every stage within.
    """

    outer: str
    inner: str

    def apply(self, nest: Nest) -> Nest:
        outer, inner = nest.loop(self.outer, "merge"), nest.loop(self.inner, "merge")
        if outer.body != (inner,) or outer.kind != "serial" or inner.kind != "serial":
            raise Illegal(f"merge: cannot merge {self.outer} with {self.inner} "
                          "(needs two serial loops, one directly and alone in the other)")
        for name in (self.outer, self.inner):
            if merge_of(nest, name) is None and name.endswith(".1") \
                    and nominal(nest, name[:-2]) % nominal(nest, name):
                raise Illegal(f"merge: cannot merge {name} (the split of {name[:-2]} is ragged)")
        for leaf in leaves(inner.body):
            roles = nest.role(self.outer, leaf), nest.role(self.inner, leaf)
            if roles[0] != roles[1]:
                raise Illegal(f"merge: cannot merge {self.outer} with {self.inner} "
                              f"({roles[0]} and {roles[1]} in {leaf})")
        if nominal(nest, self.inner) < 1:
            raise Illegal(f"merge: cannot merge {self.inner} (it has no iterations)")
        name = f"{self.outer}*{self.inner.split(':')[-1]}"
        body = nest.rebuild(self.outer, lambda _: (Loop(name, inner.body),))
        return replace(nest, body=body, merges=(*nest.merges, (name, self.outer, self.inner)))

    @classmethod
    def candidates(cls, nest: Nest, limits: Limits) -> Iterator[Action]:
        for path in nest.paths.values():
            for outer, inner in zip(path, path[1:]):
                if outer.body == (inner,) and outer.kind == inner.kind == "serial" \
                        and path[-1] is inner:
                    yield cls(outer.name, inner.name)
