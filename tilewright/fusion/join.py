"""Stages of the same free axes become one: a finish joins its reduction, outputs share loops."""

from __future__ import annotations

from tilewright.fusion.draft import Draft
from tilewright.index import Expr
from tilewright.kernel import Store
from tilewright.kernel.value import Value, rewrite

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
        found = [self._value_reads(root) for root in draft.roots()]
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
