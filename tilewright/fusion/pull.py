"""From the nodes of one cluster to stages over symbolic axes.

Starting from what must be stored, each node is pulled at an index: a movement changes the index, an
elementwise operation becomes a value over its inputs at the same index, memory becomes a load, and a
reduction becomes a stage of its own that writes scratch. Nothing here recurses: graphs are deep.

Reshapes may leave divisions. Where an axis can be split at the boundary that a division asks for,
the split is recorded, and the caller pulls again with that axis in two (see `Draft.splits`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tilewright.dtypes import accumulator, bool_, int64
from tilewright.fusion.group import Cluster, Grouping, is_trivial
from tilewright.fusion.maps import MAPS, ZERO, Index, flat, unflat
from tilewright.graph import Node
from tilewright.index import Expr, Sym, symbols
from tilewright.index.expr import Quotient, Remainder
from tilewright.kernel.kernel import Let, State, Store
from tilewright.kernel.reductions import make_state
from tilewright.kernel.value import Value, const_bits, load, make
from tilewright.kernel.value import const as constant
from tilewright.kernel.value import index as index_value
from tilewright.kernel.value import state as state_value

Guards = tuple[Value, ...]
Key = tuple[int, int, int]
COMBINE = {"set": "", "add": "add", "multiply": "multiply", "max": "max", "min": "min"}


@dataclass
class Draft:
    """A stage being made: axes by symbol name and role, and what it computes."""

    free: tuple[str, ...]
    stores: list[Store]
    reduce: tuple[str, ...] = ()
    carry: tuple[str, ...] = ()
    state: State | None = None
    apart: bool = False  # never joined with another stage


@dataclass
class Memory:
    """A buffer of the kernel: what node it holds, or scratch over the dimensions `axes`."""

    name: str
    kind: str
    dtype: object
    shape: tuple[int, ...]
    node: Node | None = None
    axes: tuple[str, ...] = ()


@dataclass
class Splits:
    """Axes to make in pieces: (node id, dimension) -> extents of the pieces, outermost first."""

    pieces: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    spill: set[int] = field(default_factory=set)


class Puller:
    """Pulls one cluster; afterwards `drafts`, `axes`, `memory` and `lets` describe the kernel."""

    def __init__(self, grouping: Grouping, cluster: Cluster | None, splits: Splits):
        self.grouping, self.cluster, self.splits = grouping, cluster, splits
        self.drafts: list[Draft] = []
        self.axes: dict[str, int] = {}  # extents by name, in order
        self.origin: dict[str, tuple[tuple[int, int], int]] = {}  # (node, dimension), piece
        self.pinned: set[str] = set()
        self.memory: dict[str, Memory] = {}
        self.inputs: dict[int, str] = {}
        self.scratch: dict[int, tuple[str, Index]] = {}
        self.lets: dict[str, Let] = {}
        self.requests: dict[tuple[tuple[int, int], int], set[int]] = {}
        self.shared: dict[int, Node] = {}
        self._memo: dict[Key, Value] = {}
        self._owner: dict[Key, int] = {}
        self._moved: dict[Key, tuple[tuple[Node, Index, Guards], Guards]] = {}
        self._opened: dict[int, tuple[Index, tuple[str, ...]]] = {}
        self._interned: dict[tuple, tuple] = {(): ()}
        self._lets_made: dict[tuple, Expr] = {}

    # --- axes

    def axis(self, owner: tuple[int, int], extent: int) -> Expr:
        """Make the axis (in pieces where it was split) of one dimension of a node."""
        if extent == 1:
            return ZERO
        pieces = self.splits.pieces.get(owner, [extent])
        result, stride = ZERO, 1
        made = []
        for number in range(len(pieces) - 1, -1, -1):
            name = f"x{len(self.axes) + number}"
            made.append((name, pieces[number], number))
            result = Expr(((Sym(name, 0, max(pieces[number] - 1, 0)), stride),), 0) + result
            stride *= pieces[number]
        for name, size, number in reversed(made):
            self.axes[name] = size
            self.origin[name] = (owner, number)
        return result

    def match(self, node: Node, dims: Sequence[int], used: set[str], whole: int = -1) -> Index:
        """Return an index over dimensions `dims` of node's shape on kernel axes not in `used`.

        Existing axes are taken where a run of them has the extent; else axes are made. Dimension
        `whole` is one axis.
        """
        result = []
        used = set(used)
        for d in dims:
            extent = node.shape[d]
            run = self._run(extent, used) if extent != 1 else []
            if d == whole and run and len(run) > 1:
                run = None
            if run is None:
                expr = self.axis((id(node), d), extent)
                used |= {s.name for s in symbols(expr)}
            else:
                expr, stride = ZERO, 1
                for name in reversed(run):
                    size = self.axes[name]
                    expr = Expr(((Sym(name, 0, max(size - 1, 0)), stride),), 0) + expr
                    stride *= size
                used |= set(run)
            result.append(expr)
        return self._intern(tuple(result))

    def _run(self, extent: int, used: set[str]) -> list[str] | None:
        names = list(self.axes)
        if extent == 0:
            return next(([n] for n in names if n not in used and not self.axes[n]), None)
        for start in range(len(names)):
            size, run = 1, []
            for name in names[start:]:
                size *= self.axes[name]
                if name in used or not size or extent % size:
                    break
                run.append(name)
                if size == extent:
                    return run
        return None

    def _intern(self, items: tuple) -> tuple:
        return self._interned.setdefault(items, items)

    def names(self, index: Sequence[Expr]) -> tuple[str, ...]:
        """Return the axes in an index, outermost first."""
        found = {s.name for expr in index for s in symbols(expr)}
        return tuple(name for name in self.axes if name in found)

    def _plain(self, shape: Sequence[int], index: Index) -> bool:
        """Return whether `index` walks all of `shape`, each axis once."""
        seen: set[str] = set()
        for expr, extent in zip(index, shape):
            size = 1
            for atom, coef in sorted(expr.terms, key=lambda t: t[1]):
                if not isinstance(atom, Sym) or atom.name not in self.axes \
                        or atom.name in seen or coef != size:
                    return False
                seen.add(atom.name)
                size *= self.axes[atom.name]
            if expr.const or size != extent:
                return False
        return True

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
        axes = self.names(index)
        self.memory[name] = Memory(name, "scratch", node.dtype,
                                   tuple(self.axes[a] for a in axes), None, axes)
        self.scratch[id(node)] = name, index
        where = tuple(Expr(((Sym(a, 0, max(self.axes[a] - 1, 0)), 1),), 0) for a in axes)
        return Store(name, where, constant(0, node.dtype))

    def _read_scratch(self, node: Node, index: Index, guards: Guards) -> Value:
        name, made = self.scratch[id(node)]
        memory = self.memory[name]
        found: dict[str, Expr] = {}
        for expr, at in zip(made, index):
            digits = sorted(expr.terms, key=lambda t: -t[1])  # outermost first
            sizes = [self.axes[atom.name] for atom, _ in digits]
            for (atom, _), digit in zip(digits, [at] if len(sizes) == 1 else unflat(at, sizes)):
                found[atom.name] = digit
        self._ask(found.values())
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
        node, index, guards, owner = item
        kind = node.op.kind
        if 0 in node.shape:  # only empty loops come here
            return constant(0, node.dtype)
        if kind == "source":
            return self._source(node, index, guards)
        if kind == "movement" or kind in ("reduce", "cumulate") and is_trivial(node):
            return self._move(item, key, stack)
        home = self.grouping.home(node)
        if home is not None and home is not self.cluster or kind in ("concat", "scatter", "call"):
            return load(self.input(node), (flat(index, node.shape),), node.dtype, guards)
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
        return load(self.input(node), (flat(index, node.shape),), node.dtype, guards)

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
            inner, tests = MAPS[node.op.name](node, index)
            if node.op.name == "reshape":
                self._ask(inner)
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
        if not tests or value.op == "load" and all(any(t is g for g in value.args) for t in tests):
            return value  # a guarded load is 0 outside by itself
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
            self.drafts.append(Draft(self.names(at), [_with(store, value)]))
        return self._read_scratch(node, index, guards)

    def _open(self, node: Node, index: Index, guards: Guards,
              gone: Sequence[int]) -> tuple[Index, Index]:
        """Choose the axes of a stage: the index of its result, and of the dimensions `gone`."""
        opened = self._opened.get(id(node))
        if opened is None:
            whole = node.attrs.axis if node.op.kind == "cumulate" else -1
            fits = not guards and self._plain(node.shape, index) \
                and (whole < 0 or len(index[whole].terms) == 1)
            at = index if fits else self.match(node, range(node.ndim), set(), whole)
            used = {s.name for expr in at for s in symbols(expr)}
            opened = self._opened[id(node)] = at, self.match(node.inputs[0], gone, used)
        return opened

    def _reduction(self, item, stack: list) -> bool:
        """Make the stage of a reduction or a scan; False after pushing what it waits for."""
        node, index, guards, _ = item
        x = node.inputs[0]
        scan = node.op.kind == "cumulate"
        gone = () if scan else tuple(sorted(node.attrs.axes))
        at, over = self._open(node, index, guards, gone)
        inner = list(at)
        for d, expr in zip(gone, over):
            inner.insert(d, expr)
        args = self._arguments([(x, self._intern(tuple(inner)), ())], -id(node), stack)
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
            carry = self.names([at[node.attrs.axis]])
            self.pinned |= set(carry)
            free = tuple(a for a in self.names(at) if a not in carry)
            self.drafts.append(Draft(free, [store], (), carry, state))
        else:
            self.drafts.append(Draft(self.names(at), [store], self.names(over), (), state))
        return True

    # --- roots

    def root(self, node: Node, pieces: range | None = None) -> None:
        """Make the stages that store `node`; of a concat, only `pieces` where given."""
        if not node.size:
            index = self.match(node, range(node.ndim), set())
            self.drafts.append(Draft(self.names(index), [Store(
                self.output(node), (flat(index, node.shape),), constant(0, node.dtype))]))
            return None
        if self.grouping.home(node) is self.cluster and node.op.kind in ("concat", "scatter"):
            return self._concat(node, pieces) if node.op.kind == "concat" else self._scatter(node)
        index = self.match(node, range(node.ndim), set())
        value = self.value(node, index)
        store = Store(self.output(node), (flat(index, node.shape),), value)
        self.drafts.append(Draft(self.names(index), [store]))
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
                self.drafts.append(Draft(self.names(index), [
                    Store(name, (flat(where, node.shape),), value)], apart=True))
            offset += piece.shape[axis]

    def _scatter(self, node: Node) -> None:
        """Copy the target, then the updates in order."""
        x, updates, *where = node.inputs
        name = self.output(node)
        index = self.match(x, range(x.ndim), set())
        value = self.value(x, index)
        self.drafts.append(Draft(self.names(index), [Store(name, (flat(index, x.shape),), value)],
                                 apart=True))
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
        carry = self.names(at)
        self.drafts.append(Draft(tuple(a for a in self.names(index) if a not in carry),
                                 [store], (), carry, apart=True))

    # --- splits

    def _ask(self, index: Iterable[Expr]) -> None:
        """Record the splits that would remove the divisions of a reshape's index."""
        work = list(index)
        while work:
            for atom, _ in work.pop().terms:
                if isinstance(atom, (Quotient, Remainder)):
                    work.append(atom.body)
                    for inner, coef in atom.body.terms:
                        self._ask_axis(inner, abs(coef), atom.divisor)

    def _ask_axis(self, atom: object, coef: int, divisor: int) -> None:
        if not isinstance(atom, Sym) or atom.name not in self.axes or divisor % coef:
            return
        factor, extent = divisor // coef, self.axes[atom.name]
        if 1 < factor < extent and extent % factor == 0:
            self.requests.setdefault(self.origin[atom.name], set()).add(factor)

    def granted(self) -> bool:
        """Move requests into `splits`; returns whether another pull would be different."""
        pinned = {self.origin[name] for name in self.pinned}
        changed = False
        for (owner, piece), factors in sorted(self.requests.items(), key=lambda r: -r[0][1]):
            if (owner, piece) in pinned:
                continue
            inner = 1
            sizes = []
            for factor in sorted(factors):
                if factor % inner == 0:
                    sizes.append(factor // inner)
                    inner = factor
            if owner in self.splits.pieces:
                pieces = self.splits.pieces[owner]
            else:
                name = next(n for n, o in self.origin.items() if o == (owner, piece))
                pieces = self.splits.pieces[owner] = [self.axes[name]]
            sizes.append(pieces[piece] // inner)
            pieces[piece:piece + 1] = list(reversed(sizes))
            changed = True
        return changed


def _with(store: Store, value: Value) -> Store:
    return Store(store.buffer, store.index, value, store.combine, store.guard)
