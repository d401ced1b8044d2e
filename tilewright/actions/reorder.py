"""Permute loops that stand directly in one another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.actions.base import Action
from tilewright.actions.nest import Leaf, Loop, Nest, leaves
from tilewright.errors import Illegal
from tilewright.limits import Limits


@dataclass(frozen=True)
class Reorder(Action):
    """Give perfectly nested loops a new order, outermost first.

    for i: for j: for k: body  -> Reorder((k, i))  ->  for k: for j: for i: body

    Only the named loops change places. A carry loop keeps its order relative to loops that are
    reduce or carry in the same stage.
    """

    axes: tuple[str, ...]

    def apply(self, nest: Nest) -> Nest:
        loops = [nest.loop(a, "reorder") for a in self.axes]
        if len(set(self.axes)) != len(loops) or not loops:
            raise Illegal(f"reorder: cannot reorder {self.axes} (needs distinct loops)")
        deepest = max(self.axes, key=lambda a: len(nest.paths[a]))
        path = nest.paths[deepest]
        names = [loop.name for loop in path]
        if not all(a in names for a in self.axes):
            raise Illegal(f"reorder: cannot reorder {self.axes} (not nested in one another)")
        first = min(names.index(a) for a in self.axes)
        for loop in path[first:-1]:
            if len(loop.body) != 1:
                raise Illegal(f"reorder: cannot move loops across the body of {loop.name} "
                              "(it holds more than one item)")
        kinds = {loop.kind for loop in loops}
        if kinds - {"serial"}:
            raise Illegal(f"reorder: cannot reorder {self.axes} (a loop is {kinds - {'serial'}})")
        self._check_carries(nest, names[first:])
        order = iter(self.axes)
        wanted = [next(order) if n in self.axes else n for n in names[first:]]
        body = path[-1].body
        by_name = {loop.name: loop for loop in path}
        for name in reversed(wanted):
            body = (replace(by_name[name], body=body),)
        return nest.with_body(nest.rebuild(names[first], lambda _: body))

    def _check_carries(self, nest: Nest, names: list[str]) -> None:
        below = list(leaves((nest.loop(names[0], "reorder"),)))
        for leaf in below:
            if leaf in nest.copy:
                continue
            ordered = [n for n in names if nest.role(n, leaf) in ("carry", "reduce")]
            if any(nest.role(n, leaf) == "carry" for n in ordered):
                moved = [a for a in self.axes if a in ordered]
                if moved != [n for n in ordered if n in moved]:
                    raise Illegal(f"reorder: cannot change the order of {moved} "
                                  f"(steps of {leaf} run in order)")

    @classmethod
    def candidates(cls, nest: Nest, limits: Limits) -> Iterator[Action]:
        for path in nest.paths.values():
            for outer, inner in zip(path, path[1:]):
                if len(outer.body) == 1 and not isinstance(outer.body[0], Leaf) \
                        and isinstance(inner, Loop) and outer.kind == inner.kind == "serial":
                    yield cls((inner.name, outer.name))
