"""The steps of one loop: in a row, or in a tree of blocks where sums of floats are bounded."""

from __future__ import annotations

from tilewright.actions.nest import Item, Loop, Nest, base
from tilewright.index import Expr, Sym, as_expr
from tilewright.kernel import State
from tilewright.kernel.reductions import MOST_SEQUENTIAL
from tilewright.kernel.value import Value
from tilewright.lower.leaf import Leaves
from tilewright.lower.states import Accumulators, sums_floats
from tilewright.program import Builder, Instr


class Steps:
    """The part of the emitter that opens Program loops and carries accumulators through them."""

    nest: Nest
    builder: Builder
    leaves: Leaves
    env: dict[str, Expr]
    accumulators: dict[str, Accumulators]

    def items(self, items: tuple[Item, ...]) -> None:
        raise NotImplementedError

    def merge(self, state: State, slots: list[Value], others: list[Value], a: list[Instr],
              b: list[Instr]) -> list[Instr]:
        raise NotImplementedError

    def _bounded(self, loop: Loop, stage: str) -> bool:
        """Return whether a loop's additions are to be bounded by a tree: sums of floats."""
        return self.nest.role(loop.name, stage) == "reduce" \
            and sums_floats(self.nest.kernel.stage[stage])

    def _blocked(self, loop: Loop, lo: int, count: int, carried: list[str],
                 sums: list[str]) -> None:
        """Emit a loop in blocks of 32 iterations, each with fresh accumulators of the sums."""
        def block(start: Expr, size: int) -> None:
            self._fresh(sums, lambda: self._plain(
                loop, start, size, carried, lambda: self.items(loop.body)))
        blocks, rest = divmod(count, MOST_SEQUENTIAL)
        self._tree(loop, blocks, carried, sums,
                   lambda i: block(i * MOST_SEQUENTIAL + lo, MOST_SEQUENTIAL))
        if rest:
            block(as_expr(lo + blocks * MOST_SEQUENTIAL), rest)

    def _tree(self, loop: Loop, count: int, carried: list[str], sums: list[str], body) -> None:
        """Run body(0 .. count-1), at most 32 times in a row before fresh accumulators."""
        def run(start: Expr, size: int) -> None:
            if size == 1:
                body(start)
                return
            symbol = Sym(f"{base(loop.name)}'{self.builder.level}", 0, size - 1)
            self._carry_loop(symbol, 0, size, "serial", carried,
                             lambda: body(start + as_expr(symbol)))
        if count <= MOST_SEQUENTIAL:
            run(as_expr(0), count)
            return
        outer, rest = divmod(count, MOST_SEQUENTIAL)
        self._tree(loop, outer, carried, sums, lambda i: self._fresh(
            sums, lambda: run(i * MOST_SEQUENTIAL, MOST_SEQUENTIAL)))
        if rest:
            self._fresh(sums, lambda: run(as_expr(outer * MOST_SEQUENTIAL), rest))

    def _fresh(self, carried: list[str], body) -> None:
        """Run body with new accumulators and add its result to those before."""
        if not carried:
            body()
            return
        before = {s: self.accumulators[s].copy() for s in carried}
        for s in carried:
            self.accumulators[s].reset(self.builder)
        body()
        for s in carried:
            self.accumulators[s].join(self.merge, before[s])

    def _plain(self, loop: Loop, start: Expr, count: int, carried: list[str], body) -> None:
        """Emit a loop whose index is start + 0..count-1."""
        key = base(loop.name)
        if count == 1:
            self.env[key] = start
            body()
            return
        kind = "serial" if loop.kind == "unroll" else loop.kind
        if start.is_const:
            symbol = Sym(key, start.const, start.const + count - 1)
            index: Expr = as_expr(symbol)
            lo, hi = start.const, start.const + count
        else:
            symbol = Sym(key + "'", 0, count - 1)
            index = start + as_expr(symbol)
            lo, hi = 0, count

        def run() -> None:
            self.env[key] = index
            body()
        self._carry_loop(symbol, lo, hi, kind, carried, run)

    def _carry_loop(self, symbol: Sym, lo: int, hi: int, kind: str, carried: list[str],
                    body) -> None:
        """Open a Program loop that carries every open accumulator beneath it."""
        inits = [v for s in carried for v in self.accumulators[s].flat()]
        with self.builder.loop(lo, hi, inits, kind) as loop:
            self.leaves.addresses.bind(symbol, loop.var, loop)
            rest = list(loop.carries)
            for s in carried:
                rest = self.accumulators[s].take(rest)
            body()
            loop.yields = [v for s in carried for v in self.accumulators[s].flat()]
        results = [self.builder.result(loop, i) for i in range(len(inits))]
        for s in carried:
            results = self.accumulators[s].take(results)
