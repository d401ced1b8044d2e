"""Axes that are always walked together become one."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.fusion.draft import Draft, Memory
from tilewright.index import Expr, Sym, const, substitute
from tilewright.index.expr import Quotient, Remainder
from tilewright.kernel import Let
from tilewright.kernel.value import postorder


def _expressions(drafts: Iterable[Draft], lets: dict[str, Let],
                 memory: dict[str, Memory]) -> tuple[set[Expr], dict[str, set[tuple]]]:
    """Return the flat expressions of the stages, and the indices into each scratch buffer."""
    plain: set[Expr] = set()
    scratch: dict[str, set[tuple]] = {}
    roots = [r for d in drafts for r in d.roots()] + [let.value for let in lets.values()]
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

    def __init__(self, axes: dict[str, int], memory: dict[str, Memory], lets: dict[str, Let],
                 drafts: list[Draft]):
        self.drafts, self.memory = drafts, memory
        used = {a for d in drafts for a in (*d.free, *d.reduce, *d.carry)}
        self.axes = {n: e for n, e in axes.items() if n in used}
        self.sizes = {n: list(m.shape) for n, m in self.memory.items() if m.kind == "scratch"}
        self.roles = [{**dict.fromkeys(d.free, "free"), **dict.fromkeys(d.reduce, "reduce"),
                       **dict.fromkeys(d.carry, "carry")} for d in drafts]
        self.plain, self.scratch = _expressions(drafts, lets, self.memory)
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
