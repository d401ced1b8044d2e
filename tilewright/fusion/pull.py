"""From the nodes of one cluster to stages over symbolic axes.

Starting from what must be stored, each node is pulled at an index: a movement changes the index,
an elementwise operation becomes a value over its inputs at the same index, memory becomes a load,
and a reduction becomes a stage of its own that writes scratch. Nothing recurses: graphs are deep.

Reshapes may leave divisions. Where an axis can be split at the boundary that a division asks for,
the split is recorded, and the caller pulls again with that axis in two (see `Draft.splits`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tilewright.dtypes import accumulator, bool_, int64
from tilewright.fusion.axes import Axes, Splits
from tilewright.fusion.clusters import Cluster
from tilewright.fusion.draft import Draft, Memory
from tilewright.fusion.group import Grouping, is_trivial
from tilewright.fusion.maps import MAPS, Index, flat, unflat
from tilewright.graph import Node
from tilewright.index import Expr, Sym, symbols
from tilewright.kernel.kernel import Let, Store
from tilewright.kernel.reductions import make_state
from tilewright.kernel.value import Value, const_bits, load, make
from tilewright.kernel.value import const as constant
from tilewright.kernel.value import index as index_value
from tilewright.kernel.value import state as state_value

Guards = tuple[Value, ...]
Key = tuple[int, int, int]
COMBINE = {"set": "", "add": "add", "multiply": "multiply", "max": "max", "min": "min"}


class Puller:
    """Pulls one cluster; afterwards `drafts`, `axes`, `memory` and `lets` describe the kernel."""

    def __init__(self, grouping: Grouping, cluster: Cluster, splits: Splits):
        self.grouping, self.cluster, self.splits = grouping, cluster, splits
        self.drafts: list[Draft] = []
        self.axes = Axes(cluster, splits)
        self.memory: dict[str, Memory] = {}
        self.inputs: dict[int, str] = {}
        self.scratch: dict[int, tuple[str, Index]] = {}
        self.lets: dict[str, Let] = {}
        self.shared: dict[int, Node] = {}
        self.places: dict[int, Index] = {}  # per load: where it reads its node, by dimension
        self._over: dict[int, Index] = {}  # per dissolved sum: the axes it is summed over
        self._memo: dict[Key, Value] = {}
        self._owner: dict[Key, int] = {}
        self._moved: dict[Key, tuple[tuple[Node, Index, Guards], Guards]] = {}
        self._opened: dict[int, tuple[Index, Index]] = {}
        self._interned: dict[tuple, tuple] = {(): ()}
        self._lets_made: dict[tuple, Expr] = {}

    def _intern(self, items: tuple) -> tuple:
        return self._interned.setdefault(items, items)

    def match(self, node: Node, dims: Sequence[int], used: set[str], whole: int = -1) -> Index:
        """Lay dimensions of a node on the kernel's axes; see `Axes.match`."""
        space = self.grouping.infos[id(node)].space \
            if self.grouping.home(node) is self.cluster else None
        return self._intern(self.axes.match(node, dims, used, space, whole))

    # --- memory

    def input(self, node: Node) -> str:
        name = self.inputs.get(id(node))
        if name is None:
            name = self.inputs[id(node)] = f"in{len(self.inputs)}"
            self.memory[name] = Memory(name, "input", node.dtype, (node.size,), node)
        return name

    def output(self, node: Node) -> str:
        name = f"out{len(self.memory)}"
        self.memory[name] = Memory(name, "output", node.dtype, (node.size,), node)
        return name

    def _new_scratch(self, node: Node, index: Index) -> Store:
        """Make scratch for `node` computed at `index`; returns its store, value to be filled."""
        name = f"tmp{len(self.memory)}"
        axes = self.axes.names(index)
        self.memory[name] = Memory(name, "scratch", node.dtype,
                                   tuple(self.axes.sizes[a] for a in axes), None, axes)
        self.scratch[id(node)] = name, index
        where = tuple(Expr(((Sym(a, 0, max(self.axes.sizes[a] - 1, 0)), 1),), 0) for a in axes)
        return Store(name, where, constant(0, node.dtype))

    def _read_scratch(self, node: Node, index: Index, guards: Guards) -> Value:
        name, made = self.scratch[id(node)]
        memory = self.memory[name]
        if index == made:  # a part may have been made in steps
            index = made = tuple(Expr(((Sym(a, 0, max(self.axes.sizes[a] - 1, 0)), 1),), 0)
                                 for a in memory.axes)
        found: dict[str, Expr] = {}
        for expr, at in zip(made, index):
            expr, at = expr - expr.const, at - expr.const
            digits = sorted(expr.terms, key=lambda t: -t[1])  # outermost first
            names = [cast(Sym, atom).name for atom, _ in digits]
            sizes = [self.axes.sizes[name] for name in names]
            found.update(zip(names, [at] if len(sizes) == 1 else unflat(at, sizes)))
        self.axes.ask(found.values())
        where = [found[a] for a in memory.axes]
        return load(name, tuple(where), node.dtype, guards)

    # --- pulling

    def value(self, node: Node, index: Index, guards: Guards = ()) -> Value:
        """Return the value of `node` at `index`, making the stages that it needs."""
        index = self._intern(index)
        stack = [(node, index, guards, id(index))]
        top = stack[0]
        while stack:
            item = stack[-1]
            key = (id(item[0]), id(item[1]), id(item[2]))
            if key in self._memo:
                stack.pop()
                continue
            result = self._step(item, key, stack)
            if result is not None:
                self._memo[key] = result
                self._owner[key] = item[3]
                stack.pop()
        return self._memo[id(top[0]), id(top[1]), id(top[2])]

    def _step(self, item, key: Key, stack: list) -> Value | None:
        """Return the item's value, or None after pushing what it waits for."""
        node, index, guards, _ = item
        kind = node.op.kind
        if 0 in node.shape:  # only empty loops come here
            return constant(0, node.dtype)
        if kind == "source":
            return self._source(node, index, guards)
        if kind == "movement" or id(node) in self.grouping.dissolved \
                or kind in ("reduce", "cumulate") and is_trivial(node):
            return self._move(item, key, stack)
        home = self.grouping.home(node)
        if home is not None and home is not self.cluster or kind in ("concat", "scatter", "call"):
            return self._load(node, index, guards)
        if kind == "gather":
            return self._gather(item, stack)
        if kind == "elementwise":
            if id(node) in self.splits.spill or id(node) in self.grouping.rows:
                return self._spill(item, stack)
            return self._elementwise(item, index, guards, stack)
        if id(node) not in self.scratch and not self._reduction(item, stack):
            return None
        return self._read_scratch(node, index, guards)

    def _source(self, node: Node, index: Index, guards: Guards) -> Value:
        if node.op.name == "constant":
            return const_bits(node.attrs.value, node.dtype)
        if node.op.name == "iota":
            value = index_value(index[0]) if index[0].terms else constant(index[0].const, int64)
            return value if node.dtype == int64 else make("cast", (value,), node.dtype)
        return self._load(node, index, guards)

    def _load(self, node: Node, index: Index, guards: Guards) -> Value:
        value = load(self.input(node), (flat(index, node.shape),), node.dtype, guards)
        self.places[id(value)] = index
        return value

    def _arguments(self, items: list, owner: int, stack: list) -> tuple[Value, ...] | None:
        """Return the values of (node, index, guards) items, or None after pushing the missing."""
        values, missing = [], []
        for node, index, guards in items:
            key = (id(node), id(index), id(guards))
            value = self._memo.get(key)
            if value is None:
                missing.append((node, index, guards, owner))
            else:
                if self._owner[key] != owner:
                    self.shared.setdefault(id(node), node)
                values.append(value)
        if missing:
            stack.extend(reversed(missing))
            return None
        return tuple(values)

    def _elementwise(self, item, index: Index, guards: Guards, stack: list) -> Value | None:
        node, owner = item[0], item[3]
        args = self._arguments([(i, index, guards) for i in node.inputs], owner, stack)
        return None if args is None else make(node.op.name, args, node.dtype)

    def _move(self, item, key: Key, stack: list) -> Value | None:
        node, index, guards, owner = item
        known = self._moved.get(key)
        if known is None:
            if node.op.kind == "reduce" and node.attrs.kind.startswith("arg"):
                return constant(0, int64)
            tests: Guards
            if id(node) in self.grouping.dissolved:
                inner, tests = _insert(index, node.attrs.axes, self._over[id(node)]), ()
            else:
                inner, tests = MAPS[node.op.name](node, index)
            if node.op.name == "reshape":
                self.axes.ask(inner)
            tests = tuple(t for t in tests if t.op != "const" or t.data == b"\0")
            if any(t.op == "const" for t in tests):
                return constant(0, node.dtype)
            more = tuple(t for t in tests if not any(t is g for g in guards))
            child = (node.inputs[0], self._intern(inner), self._intern(guards + more))
            known = self._moved[key] = child, tests
        child, tests = known
        args = self._arguments([child], owner, stack)
        if args is None:
            return None
        value = args[0]
        if not tests or zero_outside(value, tests):
            return value
        inside = tests[0]
        for t in tests[1:]:
            inside = make("bitwise_and", (inside, t), bool_)
        return make("where", (inside, value, constant(0, node.dtype)), node.dtype)

    def _gather(self, item, stack: list) -> Value | None:
        node, index, guards, owner = item
        x, *where = node.inputs
        rank = where[0].ndim
        at = self._intern(index[:rank])
        picked = self._arguments([(i, at, guards) for i in where], owner, stack)
        if picked is None:
            return None
        inner = tuple(self._let(v, n, True) for v, n in zip(picked, x.shape)) + index[rank:]
        args = self._arguments([(x, self._intern(inner), guards)], owner, stack)
        return None if args is None else args[0]

    def _let(self, value: Value, extent: int, clamp: bool) -> Expr:
        """Return a symbol for an index read from memory, in 0..extent-1."""
        key = (id(value), extent)
        if key not in self._lets_made:
            low = make("maximum", (value, constant(0, int64)), int64)
            inside = make("minimum", (low, constant(extent - 1, int64)), int64)
            sym = Sym(f"g{len(self.lets)}", 0, max(extent - 1, 0))
            self.lets[sym.name] = Let(sym, inside)
            self._lets_made[key] = Expr(((sym, 1),), 0)
        return self._lets_made[key]

    # --- stages

    def _spill(self, item, stack: list) -> Value | None:
        """Compute an elementwise node in a map stage of its own, and read it from there."""
        node, index, guards, _ = item
        if id(node) not in self.scratch:
            at, _ = self._open(node, index, guards, ())
            value = self._elementwise((node, at, (), -id(node)), at, (), stack)
            if value is None:
                return None
            store = self._new_scratch(node, at)
            self.drafts.append(Draft(self.axes.names(at), [_with(store, value)]))
        return self._read_scratch(node, index, guards)

    def _open(self, node: Node, index: Index, guards: Guards,
              gone: Sequence[int]) -> tuple[Index, Index]:
        """Choose the axes of a stage: the index of its result, and of the dimensions `gone`."""
        opened = self._opened.get(id(node))
        if opened is None:
            whole = node.attrs.axis if node.op.kind == "cumulate" else -1
            part = id(node) in self.grouping.narrow
            fits = not guards and self.axes.walks(node.shape, index, part) \
                and (whole < 0 or len(index[whole].terms) == 1)
            at = index if fits else self.match(node, range(node.ndim), set(), whole)
            used = {s.name for expr in at for s in symbols(expr)}
            over = self.match(node.inputs[0], gone, used)
            within = self.grouping.inside.get(id(node))
            while within is not None:
                used |= {s.name for expr in over for s in symbols(expr)}
                more = self.match(within.inputs[0], sorted(within.attrs.axes), used)
                self._over[id(within)] = more
                over += more
                within = self.grouping.inside.get(id(within))
            opened = self._opened[id(node)] = at, over
        return opened

    def _reduction(self, item, stack: list) -> bool:
        """Make the stage of a reduction or a scan; False after pushing what it waits for."""
        node, index, guards, _ = item
        x = node.inputs[0]
        scan = node.op.kind == "cumulate"
        gone = () if scan else tuple(sorted(node.attrs.axes))
        at, over = self._open(node, index, guards, gone)
        inner = self._intern(_insert(at, gone, over))
        args = self._arguments([(x, inner, ())], -id(node), stack)
        if args is None:
            return False
        value = args[0]
        wide = accumulator(value.dtype) if node.attrs.kind in ("sum", "prod") else value.dtype
        if wide != value.dtype:
            value = make("cast", (value,), wide)
        inputs, slot = [value], 0
        if node.attrs.kind.startswith("arg"):
            inputs.append(index_value(over[0]) if over[0].terms else constant(0, int64))
            slot = 1
        state = make_state(node.attrs.kind, inputs)
        result = state_value(slot, state.init[slot].dtype)
        if result.dtype != node.dtype:
            result = make("cast", (result,), node.dtype)
        store = _with(self._new_scratch(node, at), result)
        if scan:
            carry = self.axes.names([at[node.attrs.axis]])
            self.axes.pinned |= set(carry)
            free = tuple(a for a in self.axes.names(at) if a not in carry)
            self.drafts.append(Draft(free, [store], (), carry, state))
        else:
            self.drafts.append(
                Draft(self.axes.names(at), [store], self.axes.names(over), (), state))
        return True

    # --- roots

    def root(self, node: Node, pieces: range | None = None) -> None:
        """Make the stages that store `node`; of a concat, only `pieces` where given."""
        if not node.size:
            index = self.match(node, range(node.ndim), set())
            self.drafts.append(Draft(self.axes.names(index), [Store(
                self.output(node), (flat(index, node.shape),), constant(0, node.dtype))]))
            return None
        if self.grouping.home(node) is self.cluster and node.op.kind in ("concat", "scatter"):
            return self._concat(node, pieces) if node.op.kind == "concat" else self._scatter(node)
        index = self.match(node, range(node.ndim), set())
        value = self.value(node, index)
        store = Store(self.output(node), (flat(index, node.shape),), value)
        self.drafts.append(Draft(self.axes.names(index), [store]))
        return None

    def _concat(self, node: Node, pieces: range | None) -> None:
        """One map stage per piece."""
        name = self.output(node)
        axis = node.attrs.axis
        start = 0 if pieces is None else pieces.start
        chosen = node.inputs[start:None if pieces is None else pieces.stop]
        offset = sum(piece.shape[axis] for piece in node.inputs[:start])
        for piece in chosen:
            if piece.size:
                index = self.match(piece, range(piece.ndim), set())
                value = self.value(piece, index)
                where = tuple(i + offset if d == axis else i for d, i in enumerate(index))
                self.drafts.append(Draft(self.axes.names(index), [
                    Store(name, (flat(where, node.shape),), value)], apart=True))
            offset += piece.shape[axis]

    def _scatter(self, node: Node) -> None:
        """Copy the target, then the updates in order."""
        x, updates, *where = node.inputs
        name = self.output(node)
        index = self.match(x, range(x.ndim), set())
        value = self.value(x, index)
        copy = Store(name, (flat(index, x.shape),), value)
        self.drafts.append(Draft(self.axes.names(index), [copy], apart=True))
        index = self.match(updates, range(updates.ndim), set())
        rank = where[0].ndim
        at = self._intern(index[:rank])
        picked = [self.value(i, at) for i in where]
        guards = []
        for v, n in zip(picked, x.shape):
            guards += [make("less", (constant(-1, int64), v), bool_),
                       make("less", (v, constant(n, int64)), bool_)]
        target = tuple(self._let(v, n, False) for v, n in zip(picked, x.shape)) + index[rank:]
        store = Store(name, (flat(target, x.shape),), self.value(updates, index),
                      COMBINE[node.attrs.mode], tuple(g for g in guards if g.op != "const"))
        carry = self.axes.names(at)
        self.drafts.append(Draft(tuple(a for a in self.axes.names(index) if a not in carry),
                                 [store], (), carry, apart=True))

def _insert(index: Index, axes: Sequence[int], over: Index) -> Index:
    """Return `index` with `over` at the dimensions `axes` of the result."""
    result = list(index)
    for d, expr in zip(sorted(axes), over):
        result.insert(d, expr)
    return tuple(result)


def zero_outside(value: Value, tests: Guards) -> bool:
    """Return whether the value is 0 by itself where a test fails: guarded loads are."""
    if value.op == "multiply":  # 0 * 0, not 0 * x: x may be infinite
        return all(zero_outside(a, tests) for a in value.args if a.op in ("load", "cast")) \
            and all(a.op in ("load", "cast") for a in value.args)
    if value.op == "cast":
        return value.args[0].op == "load" and zero_outside(value.args[0], tests)
    return value.op == "load" and all(any(t is g for g in value.args) for t in tests)


def _with(store: Store, value: Value) -> Store:
    return Store(store.buffer, store.index, value, store.combine, store.guard)
