"""From drafts to a kernel: join stages, merge axes, name everything by first appearance.

Nothing incidental survives: neither which arrays are read, nor at which constant offset, nor how
large they are beyond what is read, nor in which order the graph was built.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.fusion.calls import KernelCall, Operand
from tilewright.fusion.pull import Draft, Memory, Puller
from tilewright.index import Expr, Sym, const, substitute, symbols
from tilewright.index.expr import Quotient, Remainder
from tilewright.kernel import Axis, Buffer, Kernel, Let, Stage, State, Store
from tilewright.kernel.value import Value, divides, index, load, postorder, rewrite, test

# --- joining stages


def _roots(draft: Draft) -> list[Value]:
    roots = list(draft.state.update) if draft.state else []
    for store in draft.stores:
        roots += [store.value, *store.guard]
    return roots


Reads = frozenset[tuple[str, tuple[Expr, ...]]]
NOTHING: Reads = frozenset()


class Joiner:
    """Moves maps into the stage before them that has the same free axes.

    What reads a reduction's result becomes its finish; what walks the same axes shares a stage.
    """

    def __init__(self) -> None:
        self.result: list[Draft] = []
        self.producer: dict[str, int] = {}  # place of the stage that writes a buffer
        self.memo: list[dict[int, Value]] = []  # per stage: values with its scratch replaced
        self.reads: dict[int, Reads] = {}  # per value: the scratch it reads, and where

    def run(self, drafts: list[Draft]) -> list[Draft]:
        for draft in drafts:
            place = self._place(draft)
            if place is None:
                place = len(self.result)
                self.result.append(draft)
                self.memo.append({})
            else:
                self._absorb(place, draft)
            for store in draft.stores:
                self.producer[store.buffer] = place
        wanted = {name for draft in self.result for name, _ in self._draft_reads(draft)}
        for draft in self.result:
            draft.stores = [s for s in draft.stores
                            if not s.buffer.startswith("tmp") or s.buffer in wanted]
        return [d for d in self.result if d.stores]

    def _place(self, draft: Draft) -> int | None:
        """Return the place of the first stage that can take over a map, or None."""
        if draft.state is not None or draft.apart:
            return None
        needs = self._draft_reads(draft)
        after = max((self.producer[name] for name, _ in needs), default=0)
        for place in range(after, len(self.result)):
            if _accepts(self.result[place], draft, needs):
                return place
        return None

    def _draft_reads(self, draft: Draft) -> Reads:
        found = [self._value_reads(root) for root in _roots(draft)]
        return NOTHING.union(*found) if any(found) else NOTHING

    def _value_reads(self, root: Value) -> Reads:
        reads = self.reads
        stack = [root]
        while stack:
            value = stack[-1]
            missing = [a for a in value.args if id(a) not in reads]
            if missing:
                stack += missing
                continue
            stack.pop()
            if id(value) in reads:
                continue
            if value.op == "load" and value.data[0].startswith("tmp"):
                reads[id(value)] = frozenset((value.data,))
            else:
                found = {reads[id(a)] for a in value.args} - {NOTHING}
                reads[id(value)] = found.pop() if len(found) == 1 else NOTHING.union(*found)
        return reads[id(root)]

    def _absorb(self, place: int, draft: Draft) -> None:
        stage, memo = self.result[place], self.memo[place]
        written = {s.buffer: s.value for s in stage.stores}

        def replace(value: Value, args: tuple[Value, ...]) -> Value | None:
            return written.get(value.data[0]) if value.op == "load" else None

        for store in draft.stores:
            roots = [store.value, *store.guard]
            if any(name in written for root in roots for name, _ in self._value_reads(root)):
                roots = rewrite(roots, replace, memo)
            stage.stores.append(Store(store.buffer, store.index, roots[0], store.combine,
                                      tuple(roots[1:])))


def _accepts(stage: Draft, draft: Draft, needs: Reads) -> bool:
    if stage.apart or set(stage.free + stage.carry) != set(draft.free):
        return False
    written = {s.buffer: s.index for s in stage.stores}
    if any(s.buffer in written for s in draft.stores):
        return False
    return all(where == written[name] for name, where in needs if name in written)


# --- merging axes


def _expressions(drafts: Iterable[Draft], lets: dict[str, Let],
                 memory: dict[str, Memory]) -> tuple[set[Expr], dict[str, set[tuple]]]:
    """Return the flat expressions of the stages, and the indices into each scratch buffer."""
    plain: set[Expr] = set()
    scratch: dict[str, set[tuple]] = {}
    roots = [r for d in drafts for r in _roots(d)] + [let.value for let in lets.values()]
    for value in postorder(roots):
        if value.op == "load":
            name, where = value.data
            if memory[name].kind == "scratch":
                scratch.setdefault(name, set()).add(where)
            else:
                plain.add(where[0])
        elif value.op in ("index", "test"):
            plain.add(value.data)
        elif value.op == "divides":
            plain.add(value.data[0])
    for draft in drafts:
        for store in draft.stores:
            if memory[store.buffer].kind == "scratch":
                scratch.setdefault(store.buffer, set()).add(store.index)
            else:
                plain.add(store.index[0])
    return plain, scratch


def _together(expr: Expr, a: Sym, b: Sym, extent: int) -> bool:
    """Return whether a and b only occur as ``extent*a + b``."""
    if expr.coefficient(a) != extent * expr.coefficient(b):
        return False
    return all(_together(atom.body, a, b, extent) for atom, _ in expr.terms
               if isinstance(atom, (Quotient, Remainder)))


class Merger:
    """Merges axes that are always walked together; `mapping` gives what the old symbols became."""

    def __init__(self, puller: Puller, drafts: list[Draft]):
        self.drafts, self.memory = drafts, puller.memory
        used = {a for d in drafts for a in (*d.free, *d.reduce, *d.carry)}
        self.axes = {n: e for n, e in puller.axes.items() if n in used}
        self.sizes = {n: list(m.shape) for n, m in self.memory.items() if m.kind == "scratch"}
        self.roles = [{**dict.fromkeys(d.free, "free"), **dict.fromkeys(d.reduce, "reduce"),
                       **dict.fromkeys(d.carry, "carry")} for d in drafts]
        self.plain, self.scratch = _expressions(drafts, puller.lets, self.memory)
        self.where = {name: {w: w for w in found} for name, found in self.scratch.items()}
        self.mapping: dict[Sym, Expr] = {}

    def symbol(self, name: str) -> Sym:
        return Sym(name, 0, max(self.axes[name] - 1, 0))

    def run(self) -> None:
        changed = len(self.axes) > 1
        while changed:
            names = list(self.axes)
            changed = any(self._try(a, b) for a, b in zip(names, names[1:]))

    def _try(self, a: str, b: str) -> bool:
        if a not in self.axes or b not in self.axes or not self.axes[a] or not self.axes[b]:
            return False
        if any(r.get(a) != r.get(b) for r in self.roles):
            return False
        if any(r.get(a) == "carry" and d.state for r, d in zip(self.roles, self.drafts)):
            return False
        first, second, extent = self.symbol(a), self.symbol(b), self.axes[b]
        if not all(_together(e, first, second, extent) for e in self.plain):
            return False
        pairs = self._pairs(first, second, extent)
        if pairs is None:
            return False
        merged = Sym(b, 0, self.axes[a] * extent - 1)
        step = {first: const(0), second: Expr(((merged, 1),), 0)}
        self.plain = {substitute(e, step) for e in self.plain}
        for name, found in self.where.items():
            at = pairs.get(name)
            for old, now in found.items():
                if at is not None:
                    now = (*now[:at], now[at] * self.sizes[name][at + 1] + now[at + 1],
                           *now[at + 2:])
                found[old] = tuple(substitute(e, step) for e in now)
            if at is not None:
                sizes = self.sizes[name]
                sizes[at:at + 2] = [sizes[at] * sizes[at + 1]]
        self.mapping = {s: substitute(e, step) for s, e in self.mapping.items()}
        self.mapping.update(step)
        self.axes = {n: e * self.axes[a] if n == b else e for n, e in self.axes.items() if n != a}
        for roles in self.roles:
            roles.pop(a, None)
        return True

    def _pairs(self, a: Sym, b: Sym, extent: int) -> dict[str, int] | None:
        """Return per scratch buffer the dimensions that merge with a and b, None if one cannot."""
        pairs = {}
        for name, found in self.where.items():
            at = [n for n in range(len(self.sizes[name]) - 1)
                  if (Expr(((a, 1),), 0), Expr(((b, 1),), 0)) in {(w[n], w[n + 1])
                                                                  for w in found.values()}]
            for where in found.values():
                if at:
                    n = at[0]
                    where = (*where[:n], where[n] * self.sizes[name][n + 1] + where[n + 1],
                             *where[n + 2:])
                if not all(_together(e, a, b, extent) for e in where):
                    return None
            if at:
                pairs[name] = at[0]
        return pairs


# --- naming


class Namer:
    """Gives final names and builds the kernel."""

    def __init__(self, puller: Puller, drafts: list[Draft], merger: Merger):
        self.puller, self.drafts, self.merger = puller, drafts, merger
        self.memory = puller.memory
        self.names: dict[str, str] = {}  # of buffers
        self.counts = {"input": 0, "output": 0, "scratch": 0}
        free = {a for roles in merger.roles for a, r in roles.items() if r != "reduce"}
        order = [a for a in merger.axes if a in free] + [a for a in merger.axes if a not in free]
        self.axis_names = {}
        for name in order:
            letter = "i" if name in free else "k"
            number = sum(n[0] == letter for n in self.axis_names.values())
            self.axis_names[name] = f"{letter}{number}"
        self.final = {merger.symbol(n): Expr(((Sym(self.axis_names[n], 0,
                                                   max(merger.axes[n] - 1, 0)), 1),), 0)
                      for n in order}
        self.mapping = {s: substitute(e, self.final) for s, e in merger.mapping.items()}
        self.mapping.update({s: e for s, e in self.final.items() if s not in self.mapping})
        self.exprs: dict[Expr, Expr] = {}
        self.memo: dict[int, Value] = {}
        self.lets: dict[str, Let] = {}
        self.base: dict[str, int] = {}
        self.span: dict[str, int] = {}
        self._measure()

    def _measure(self) -> None:
        """Find the first and last element of each input and output that is touched."""
        low: dict[str, int] = {}
        high: dict[str, int] = {}
        roots = [r for d in self.drafts for r in _roots(d)]
        roots += [let.value for let in self.puller.lets.values()]
        for value in postorder(roots):
            if value.op == "load" and self.memory[value.data[0]].kind == "input":
                name, (where,) = value.data
                last = self.memory[name].shape[0] - 1
                low[name] = min(low.get(name, last), max(where.lo, 0))
                high[name] = max(high.get(name, 0), min(where.hi, last))
        for draft in self.drafts:
            for store in draft.stores:
                name = store.buffer
                if self.memory[name].kind == "output":
                    last = self.memory[name].shape[0] - 1
                    low[name] = min(low.get(name, last), store.index[0].lo)
                    high[name] = max(high.get(name, 0), min(store.index[0].hi, last))
        for name, start in low.items():
            self.base[name] = max(start, 0)
            self.span[name] = min(high[name] - self.base[name] + 1, self.memory[name].shape[0])

    def expr(self, old: Expr) -> Expr:
        new = self.exprs.get(old)
        if new is None:
            new = self.exprs[old] = substitute(old, self.mapping)
        return new

    def buffer(self, name: str) -> str:
        if name not in self.names:
            kind = self.memory[name].kind
            letter = {"input": "a", "output": "out", "scratch": "t"}[kind]
            self.names[name] = f"{letter}{self.counts[kind]}"
            self.counts[kind] += 1
        return self.names[name]

    def where(self, name: str, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if self.memory[name].kind == "scratch":
            return tuple(substitute(e, {**self.final, **self._let_names()})
                         for e in self.merger.where[name][index])
        return (self.expr(index[0]) - self.base.get(name, 0),)

    def _let_names(self) -> dict[Sym, Expr]:
        return {self.puller.lets[n].sym: Expr(((let.sym, 1),), 0) for n, let in self.lets.items()}

    def value(self, old: Value, args: tuple[Value, ...]) -> Value | None:
        if old.op == "load":
            name, where = old.data
            where = self.where(name, where)
            return load(self.buffer(name), where, old.dtype, args)
        if old.op == "index":
            return index(self.expr(old.data))
        if old.op == "test":
            return test(self.expr(old.data))
        if old.op == "divides":
            return divides(self.expr(old.data[0]), old.data[1])
        return None

    def _stage_lets(self, draft: Draft) -> list[Let]:
        """Name the lets that the stage's indices need, in the order of their dependence."""
        if not self.puller.lets:
            return []
        work = _indices(_roots(draft), draft.stores)
        needed: set[str] = set()
        while work:
            for s in symbols(work.pop()):
                let = self.puller.lets.get(s.name)
                if let is not None and s.name not in needed:
                    needed.add(s.name)
                    work += _indices([let.value], [])
        order = [name for name in self.puller.lets if name in needed]  # made in dependence order
        found = []
        for name in order:
            if name not in self.lets:
                old = self.puller.lets[name]
                (value,) = rewrite([old.value], self.value, self.memo)
                sym = Sym(f"g{len(self.lets)}", old.sym.lo, old.sym.hi)
                self.lets[name] = Let(sym, value)
                self.mapping[old.sym] = Expr(((sym, 1),), 0)
            found.append(self.lets[name])
        return found

    def stage(self, number: int, draft: Draft) -> Stage:
        lets = self._stage_lets(draft)
        roles = self.merger.roles[number]
        state = None
        if draft.state is not None:
            old = draft.state
            state = State(old.name, old.init, tuple(rewrite(old.update, self.value, self.memo)),
                          old.merge)
        stores = []
        for store in draft.stores:
            value, *guard = rewrite([store.value, *store.guard], self.value, self.memo)
            stores.append(Store(self.buffer(store.buffer), self.where(store.buffer, store.index),
                                value, store.combine, tuple(guard)))
        rank = {"carry": 0, "free": 1} if draft.state is None else {"free": 0, "carry": 1}
        listed = sorted(((self.axis_names[a], roles[a]) for a in self.axis_names if a in roles),
                        key=lambda r: rank.get(r[1], 2))
        return Stage(f"s{number}", tuple(listed), tuple(stores), state, tuple(lets))

    def call(self) -> KernelCall:
        stages = tuple(self.stage(n, d) for n, d in enumerate(self.drafts))
        axes = tuple(Axis(new, const(self.merger.axes[old]))
                     for old, new in self.axis_names.items())
        buffers, operands = [], {"input": [], "output": []}
        kinds = ("input", "output", "scratch")
        for name in sorted(self.names, key=lambda n: kinds.index(self.memory[n].kind)):
            memory = self.memory[name]
            shape = memory.shape if memory.kind != "scratch" else self.merger.sizes[name]
            if memory.kind != "scratch":
                shape = (self.span[name],)
            buffers.append(Buffer(self.names[name], memory.kind, memory.dtype,
                                  tuple(const(n) for n in shape)))
            if memory.node is not None:
                operands[memory.kind].append(Operand(memory.node, self.base.get(name, 0)))
        return KernelCall(Kernel(axes, tuple(buffers), stages), tuple(operands["input"]),
                          tuple(operands["output"]))


def _indices(roots: Iterable[Value], stores: Iterable[Store]) -> list[Expr]:
    """Return every index expression under `roots`, and those of the stores."""
    found = []
    for value in postorder(roots):
        if value.op == "load":
            found += value.data[1]
        elif value.op in ("index", "test"):
            found.append(value.data)
        elif value.op == "divides":
            found.append(value.data[0])
    for store in stores:
        found += store.index
    return found


def tidy(puller: Puller) -> KernelCall:
    """Return the kernel of what was pulled, and the memory it runs on."""
    drafts = Joiner().run(puller.drafts)
    merger = Merger(puller, drafts)
    merger.run()
    return Namer(puller, drafts, merger).call()
