"""The Nest: a kernel's stages placed in one tree of loops.

    Nest  := kernel; splits {axis: factor}; merges {axis: (outer, inner)}; copies; tree
    Tree  := Loop name kind Tree* | Leaf stage
    kind  := serial | parallel | vectorize | interleave | unroll | block | thread | lane

Names are deterministic. A loop over a kernel axis that several stages share has the axis' name,
``i0``; a loop of one stage alone is ``s2:i1``; `Split` makes ``i0.0`` (outer) and ``i0.1``, `Merge`
makes ``i0*i1``. A copy stage is ``s0:b.copy`` and its loops ``s0:b.copy:k0.1``. The innermost
loops of a stage may be a *band*: vectorised and interleaved, their iterations copies in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from tilewright.actions.depend import conflict, may_share
from tilewright.errors import Illegal
from tilewright.kernel import Kernel, Stage
from tilewright.kernel.value import postorder

BAND = ("vectorize", "interleave")
KINDS = ("serial", "parallel", "unroll", *BAND, "block", "thread", "lane")


@dataclass(frozen=True)
class Leaf:
    """A stage, or a copy stage, at its place in the tree."""

    stage: str


@dataclass(frozen=True)
class Loop:
    """One loop with its body, outermost item first."""

    name: str
    body: tuple[Loop | Leaf, ...]
    kind: str = "serial"


Item = Loop | Leaf


@dataclass(frozen=True)
class Step:
    """One step from loops to axes, by names without owners.

    split: whole = outer*factor + inner         merge: outer, inner = divmod(whole, factor)
    unit: whole = 0, a part of one step that no loop walks
    `size` is the extent of `whole`; a split is ragged where factor does not divide it.
    """

    kind: str
    whole: str
    outer: str
    inner: str
    factor: int
    size: int


@dataclass(frozen=True)
class Copy:
    """A copy stage: an operand of a stage laid out anew in scratch, indexed by `layout` loops."""

    name: str
    stage: str
    operand: str
    layout: tuple[str, ...]
    space: str


@dataclass(frozen=True)
class Nest:
    """How a kernel runs; immutable, actions return new ones."""

    kernel: Kernel
    body: tuple[Item, ...]
    splits: tuple[tuple[str, int], ...] = ()
    merges: tuple[tuple[str, str, str], ...] = ()
    copies: tuple[Copy, ...] = ()
    partitions: tuple[tuple[str, int], ...] = ()
    streams: tuple[str, ...] = ()

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The greatest extents of loops, as `nominal` finds them."""
        return {}

    @cached_property
    def factor(self) -> dict[str, int]:
        """Return the inner extent of every split loop."""
        return dict(self.splits)

    @cached_property
    def merged(self) -> dict[str, tuple[str, str]]:
        """Return (outer, inner) of every merged loop."""
        return {name: (outer, inner) for name, outer, inner in self.merges}

    @cached_property
    def copy(self) -> dict[str, Copy]:
        return {c.name: c for c in self.copies}

    @cached_property
    def paths(self) -> dict[str, tuple[Loop, ...]]:
        """Return the loops around every loop (itself last) and around every leaf."""
        found: dict[str, tuple[Loop, ...]] = {}
        stack: list[tuple[Item, tuple[Loop, ...]]] = [(item, ()) for item in reversed(self.body)]
        while stack:
            item, path = stack.pop()
            if isinstance(item, Leaf):
                found[item.stage] = path
            else:
                found[item.name] = (*path, item)
                stack += [(inner, (*path, item)) for inner in reversed(item.body)]
        return found

    @cached_property
    def derived(self) -> dict[str, tuple[Step, ...]]:
        """Return for every leaf how its axes follow from the loops around it, in order."""
        return {n: _derive(self, p) for n, p in self.paths.items() if not p or p[-1].name != n}

    def loop(self, name: str, action: str) -> Loop:
        """Return the loop called `name`. Raises Illegal, naming the action, if there is none."""
        path = self.paths.get(name, ())
        if not path or path[-1].name != name:
            loops = " ".join(n for n, p in self.paths.items() if p and p[-1].name == n)
            raise Illegal(f"{action}: cannot find loop {name} (loops: {loops})")
        return path[-1]

    def stage_of(self, leaf: str) -> Stage:
        """Return the kernel stage that a leaf computes, or whose operand a copy leaf copies."""
        return self.kernel.stage[self.copy[leaf].stage if leaf in self.copy else leaf]

    def reads(self, leaf: str) -> frozenset[str]:
        """Return the buffers of the kernel that a leaf reads."""
        stage = self.stage_of(leaf)
        if leaf in self.copy:
            values = postorder([stage.operands[self.copy[leaf].operand]])
            return frozenset(v.data[0] for v in values if v.op == "load")
        return stage.reads

    def role(self, loop: str, leaf: str) -> str:
        """Return what a loop is to a leaf: free, reduce, carry or absent."""
        if leaf in self.copy:
            return "free"
        roles = self.stage_of(leaf).role
        found = {roles.get(axis, "absent") for axis in self.axes_of(loop)}
        for role in ("carry", "reduce", "free"):
            if role in found:
                return role
        return "absent"

    def axes_of(self, loop: str) -> tuple[str, ...]:
        """Return the kernel axes that a loop walks (several after a merge)."""
        axes: list[str] = []
        for part in loop.split(":")[-1].split("*"):
            axes.append(part.split(".")[0])
        return tuple(dict.fromkeys(axes))

    def with_body(self, body: tuple[Item, ...], **changes) -> Nest:
        return replace(self, body=body, **changes)

    def rebuild(self, name: str, make: Callable[[Loop], tuple[Item, ...]]) -> tuple[Item, ...]:
        """Return the tree with the loop `name` replaced by `make(loop)`."""
        *around, loop = self.paths[name]
        new = make(loop)
        for outer in reversed(around):
            new = (Loop(outer.name, _replaced(outer.body, loop, new), outer.kind),)
            loop = outer
        return _replaced(self.body, loop, new)

    def __str__(self) -> str:
        return print_nest(self)


def _replaced(items: tuple[Item, ...], old: Item, new: tuple[Item, ...]) -> tuple[Item, ...]:
    at = next(i for i, item in enumerate(items) if item is old)
    return (*items[:at], *new, *items[at + 1:])


def leaves(items: tuple[Item, ...]) -> Iterator[str]:
    """Yield the names of the leaves beneath, in order."""
    for item in items:
        if isinstance(item, Leaf):
            yield item.stage
        else:
            yield from leaves(item.body)


def base(name: str) -> str:
    """Return a loop's name without the stage or copy that owns it."""
    return name.rsplit(":", 1)[-1]


def _derive(nest: Nest, path: tuple[Loop, ...]) -> tuple[Step, ...]:
    """Undo splits and merges, from the loops of a path upwards."""
    names = {base(loop.name): loop.name for loop in path}
    steps: list[Step] = []
    done: set[str] = set()
    while fresh := [n for n in names if n not in done]:
        for key in fresh:
            merged = merge_of(nest, names[key])
            if merged is not None:
                outer, inner = merged
                steps.append(Step("merge", key, base(outer), base(inner), nominal(nest, inner),
                                  nominal(nest, names[key])))
                names |= {base(outer): outer, base(inner): inner}
            elif key.endswith((".0", ".1")) and key[:-2] not in names:
                factor = split_factor(nest, names[key][:-2])
                if not factor:
                    done.add(key)
                    continue
                whole = names[key][:-2]
                half = ".1" if key.endswith(".0") else ".0"
                if key[:-2] + half not in names:
                    if nominal(nest, whole + half) != 1:
                        continue
                    names[key[:-2] + half] = whole + half
                    steps.append(Step("unit", key[:-2] + half, "", "", 1, 1))
                steps.append(Step("split", key[:-2], key[:-2] + ".0", key[:-2] + ".1", factor,
                                  nominal(nest, whole)))
                names[key[:-2]] = whole
            done.add(key)
        if not any(n in done for n in fresh):
            break
    return tuple(steps)


def merge_of(nest: Nest, name: str) -> tuple[str, str] | None:
    """Return the loops that a loop, or the one it was made from, was merged of."""
    while name not in nest.merged:
        if ":" not in name:
            return None
        name = name.split(":", 1)[1]
    return nest.merged[name]


def is_band(loop: Loop) -> bool:
    """Return whether the loop and all loops within are band loops over one leaf."""
    item: Item = loop
    while isinstance(item, Loop):
        if item.kind not in BAND or len(item.body) != 1:
            return False
        item = item.body[0]
    return True


def start(kernel: Kernel) -> Nest:
    """Return the plain nest: one chain of serial loops per stage, shared where stages allow it.

    Connected stages share, outermost, the axes that are free in all of them and along which they
    hand over scratch element by element.
    """
    groups = _connected(kernel)
    body: list[Item] = []
    single = len(kernel.stages) == 1
    for group in groups:
        shared = [] if len(group) == 1 else _shared_axes(kernel, group)
        inner: list[Item] = []
        for stage in group:
            prefix = "" if single else f"{stage.name}:"
            names = [prefix + a for a in stage.axes() if a not in shared]
            inner += chain(names, (Leaf(stage.name),))
        body += chain(shared, tuple(inner))
    return Nest(kernel, tuple(body))


def chain(names: list[str] | tuple[str, ...], body: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return serial loops around `body`, outermost name first."""
    for name in reversed(names):
        body = (Loop(name, body),)
    return body


def _connected(kernel: Kernel) -> list[list[Stage]]:
    """Return groups of stages that share loops, in an order that dependences allow.

    A stage joins the groups of all that it reads scratch from, where they have an axis to share and
    no other group has to run in between. Stages that only write the same output (pieces of a
    concat, the steps of a scatter) stay apart.
    """
    groups: list[list[Stage]] = []
    home: dict[str, int] = {}
    for stage in kernel.stages:
        read = stage.reads
        linked = sorted({home[s.name] for g in groups for s in g if s.writes & read})
        members = [s for g in linked for s in groups[g]] + [stage]
        if linked and _shared_axes(kernel, members) and not _between(kernel, groups, linked, stage):
            target = linked[0]
            for g in linked[1:]:
                groups[g] = []
            groups[target] = members
        else:
            target = len(groups)
            groups.append([stage])
            members = [stage]
        home |= {s.name: target for s in members}
    return _ordered(kernel, [g for g in groups if g])


def _between(kernel: Kernel, groups: list[list[Stage]], linked: list[int], stage: Stage) -> bool:
    """Return whether some group has to run after one part of the union and before another."""
    union = [s for g in linked for s in groups[g]] + [stage]
    others = [g for i, g in enumerate(groups) if g and i not in linked]
    after: list[Stage] = []
    while found := [g for g in others if _depends(kernel, g, union + after)]:
        after += [s for g in found for s in g]
        others = [g for g in others if g not in found]
    return any(_depends(kernel, [s], after) for s in union)


def _depends(kernel: Kernel, later: list[Stage], earlier: list[Stage]) -> bool:
    order = {s.name: i for i, s in enumerate(kernel.stages)}
    return any(conflict(a, b) for b in later for a in earlier if order[a.name] < order[b.name])


def _ordered(kernel: Kernel, groups: list[list[Stage]]) -> list[list[Stage]]:
    """Return the groups so that each follows what it depends on; kernel order otherwise."""
    order = {s.name: i for i, s in enumerate(kernel.stages)}
    left = [sorted(g, key=lambda s: order[s.name]) for g in groups]
    left.sort(key=lambda g: order[g[0].name])
    found: list[list[Stage]] = []
    while left:
        ready = next(g for g in left
                     if not any(_depends(kernel, g, other) for other in left if other is not g))
        found.append(ready)
        left.remove(ready)
    return found


def _shared_axes(kernel: Kernel, stages: list[Stage]) -> list[str]:
    """Return the axes free in all stages, along which they hand scratch over by the element."""
    pairs = [(a, b) for i, a in enumerate(stages) for b in stages[i + 1:]]
    return [a.name for a in kernel.axes
            if all(s.role.get(a.name) == "free" for s in stages)
            and not any(may_share(kernel, x, y, a.name) for x, y in pairs)]


def print_nest(nest: Nest) -> str:
    """Return the canonical text: what the search compares nests by."""
    lines: list[str] = []
    for copy in nest.copies:
        lines.append(f"{copy.name} [{', '.join(copy.layout)}] in {copy.space}")
    for axis, point in nest.partitions:
        lines.append(f"partition {axis} at {point}")
    lines += [f"stream {buffer}" for buffer in nest.streams]
    stack: list[tuple[Item, int]] = [(item, 0) for item in reversed(nest.body)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, Leaf):
            lines.append("  " * depth + item.stage)
        else:
            kind = "" if item.kind == "serial" else f" {item.kind}"
            lines.append("  " * depth + f"for {item.name} in {_extent_text(nest, item.name)}{kind}")
            stack += [(inner, depth + 1) for inner in reversed(item.body)]
    return "\n".join(lines)


def _extent_text(nest: Nest, name: str) -> str:
    ragged = ""
    if name.endswith(".0") and merge_of(nest, name) is None:
        factor = split_factor(nest, name[:-2])
        if factor and nominal(nest, name[:-2]) % factor:
            ragged = f" ragged {factor}"
    return f"{nominal(nest, name)}{ragged}"


def split_factor(nest: Nest, name: str) -> int:
    """Return the factor by which a loop was split, 0 if it was not.

    A loop of one stage or copy follows the split of the loop that it was made from.
    """
    while name not in nest.factor:
        if ":" not in name:
            return 0
        name = name.split(":", 1)[1]
    return nest.factor[name]


def nominal(nest: Nest, name: str) -> int:
    """Return the greatest extent of a loop, by its name."""
    known = nest.sizes.get(name)
    if known is None:
        known = nest.sizes[name] = _nominal(nest, name)
    return known


def _nominal(nest: Nest, name: str) -> int:
    if name in nest.merged:
        outer, inner = nest.merged[name]
        return nominal(nest, outer) * nominal(nest, inner)
    if name.endswith((".0", ".1")) and name[:-2] in nest.factor:
        size, factor = nominal(nest, name[:-2]), nest.factor[name[:-2]]
        return -(-size // factor) if name.endswith(".0") else min(factor, max(size, 1))
    if ":" in name:
        return nominal(nest, name.split(":", 1)[1])
    return int(nest.kernel.axis[name].extent)
