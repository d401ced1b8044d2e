"""From drafts to a kernel: join stages, merge axes, name everything by first appearance.

Nothing incidental survives: neither which arrays are read, nor at which constant offset (but for
whether an output starts at a cache line), nor how large they are beyond what is read, nor in which
order the graph was built.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.fusion.calls import KernelCall, Operand
from tilewright.fusion.draft import Draft
from tilewright.fusion.join import Joiner
from tilewright.fusion.merge import Merger
from tilewright.fusion.pull import Puller
from tilewright.index import Expr, Sym, const, substitute, symbols
from tilewright.kernel import Axis, Buffer, Kernel, Let, Stage, State, Store
from tilewright.kernel.value import Value, divides, index, load, postorder, rewrite, test
from tilewright.limits import LINE


class Namer:
    """Gives final names and builds the kernel."""

    def __init__(self, puller: Puller, drafts: list[Draft], merger: Merger):
        self.puller, self.drafts, self.merger = puller, drafts, merger
        self.memory = puller.memory
        self.names: dict[str, str] = {}  # of buffers
        self.counts = {"input": 0, "output": 0, "scratch": 0}
        free = {a for roles in merger.roles for a, r in roles.items() if r != "reduce"}
        order = [a for a in merger.axes if a in free] + [a for a in merger.axes if a not in free]
        self.axis_names: dict[str, str] = {}
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
        roots = [r for d in self.drafts for r in d.roots()]
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
        work = _indices(draft.roots(), draft.stores)
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
        buffers: list[Buffer] = []
        operands: dict[str, list[Operand]] = {"input": [], "output": []}
        kinds = ("input", "output", "scratch")
        for name in sorted(self.names, key=lambda n: kinds.index(self.memory[n].kind)):
            memory = self.memory[name]
            shape = memory.shape if memory.kind != "scratch" else self.merger.sizes[name]
            if memory.kind != "scratch":
                shape = (self.span[name],)
            start = self.base.get(name, 0) * memory.dtype.itemsize
            buffers.append(Buffer(self.names[name], memory.kind, memory.dtype,
                                  tuple(const(n) for n in shape),
                                  part=memory.kind == "output" and start % LINE > 0))
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
    merger = Merger(puller.axes.sizes, puller.memory, puller.lets, drafts)
    merger.run()
    return Namer(puller, drafts, merger).call()
