"""Permute loops that stand directly in one another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.actions.base import Action
from tilewright.actions.nest import Nest, leaves
from tilewright.errors import Illegal
from tilewright.limits import Limits


@dataclass(frozen=True)
class Reorder(Action):
    """Give perfectly nested loops a new order, outermost first.

    for i: for j: for k: body  -> Reorder((k, i))  ->  for k: for j: for i: body

    Only the named loops change places. A carry loop keeps its order relative to loops that are
    reduce or carry in the same stage, and loops that a stage does not use stay out of those.
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
        order = iter(self.axes)
        wanted = [next(order) if n in self.axes else n for n in names[first:]]
        self._check_roles(nest, names[first:], wanted)
        body = path[-1].body
        by_name = {loop.name: loop for loop in path}
        for name in reversed(wanted):
            body = (replace(by_name[name], body=body),)
        return nest.with_body(nest.rebuild(names[first], lambda _: body))

    def _check_roles(self, nest: Nest, names: list[str], wanted: list[str]) -> None:
        for leaf in leaves((nest.loop(names[0], "reorder"),)):
            steps = [n for n in names if nest.role(n, leaf) in ("carry", "reduce")]
            moved = [n for n in wanted if n in steps]
            if moved != steps and any(nest.role(n, leaf) == "carry" for n in steps):
                raise Illegal(f"reorder: cannot change the order of {' '.join(steps)} "
                              f"(steps of {leaf} run in order)")
            outermost = min((wanted.index(n) for n in steps), default=len(wanted))
            for loop in wanted[outermost:]:
                if nest.role(loop, leaf) == "absent":
                    raise Illegal(f"reorder: cannot move {loop} into {wanted[outermost]} "
                                  f"(every step of {leaf} would be repeated)")

    @classmethod
    def candidates(cls, nest: Nest, limits: Limits) -> Iterator[Action]:
        for path in nest.paths.values():
            for outer, inner in zip(path, path[1:]):
                if outer.body == (inner,) and outer.kind == inner.kind == "serial" \
                        and path[-1] is inner:
                    yield cls((inner.name, outer.name))
