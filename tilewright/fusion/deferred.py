"""A product of normalised rows is normalised after the sum: attention divides its results.

    sum_k (e[q, k] / s[q]) * v[k, d]  ->  (sum_k e[q, k] * v[k, d]) / s[q]      s[q] = sum_k e[q, k]
"""

from __future__ import annotations

from tilewright.fusion.draft import Draft
from tilewright.fusion.operands import own_expressions
from tilewright.index import Expr, Sym, substitute, symbols
from tilewright.kernel.kernel import Store
from tilewright.kernel.reductions import make_state
from tilewright.kernel.value import Value, load, make, postorder, rewrite


def defer_division(drafts: list[Draft]) -> None:
    """Move divisions of normalised factors into the finish of the contractions that read them."""
    maker = {s.buffer: d for d in drafts for s in d.stores}
    for draft in drafts:
        if draft.state is None or draft.state.name != "sum" or draft.carry:
            continue
        body = draft.state.update[0].args[1]
        if body.op != "multiply" or not body.dtype.is_float:
            continue
        factors = list(body.args)
        for place, factor in enumerate(factors):
            found = _normalised(factor, draft, maker)
            if found is not None:
                factors[place], total = found
                draft.state = make_state("sum", [make("multiply", tuple(factors), body.dtype)])
                _divide(draft, total)
                break


def _normalised(factor: Value, draft: Draft, maker: dict[str, Draft]) -> tuple[Value, Value] | None:
    """Return (rows, their sums) as the contraction reads them, if a factor is their quotient."""
    made = maker.get(factor.data[0]) if factor.op == "load" else None  # type: ignore[index]
    if made is None or made.state is not None or made.carry:
        return None
    store = next(s for s in made.stores if s.buffer == factor.data[0])  # type: ignore[index]
    quotient = store.value
    if store.guard or store.combine or quotient.op != "divide":
        return None
    rows, total = quotient.args
    if rows.op != "load" or total.op != "load" or rows.args or total.args:
        return None
    summed = maker.get(total.data[0])  # type: ignore[index]
    if summed is None or summed.state is None or summed.state.name != "sum" \
            or summed.carry or not _reads(summed.state.update[0].args[1], rows):
        return None
    place: dict[Sym, Expr] = {}
    for at, read in zip(store.index, factor.data[1]):  # type: ignore[index]
        if len(at.terms) != 1 or at.const or at.terms[0][1] != 1:
            return None
        place[at.terms[0][0]] = read  # type: ignore[index]
    rows, total = (load(v.data[0], tuple(substitute(e, place) for e in v.data[1]), v.dtype)
                   for v in (rows, total))
    if {s.name for e in own_expressions(total) for s in symbols(e)} & set(draft.reduce):
        return None
    return rows, total


def _reads(value: Value, rows: Value) -> bool:
    """Return whether a sum's terms are the rows themselves, whatever the axes are called."""
    return value.op == "load" and value.data[0] == rows.data[0]  # type: ignore[index]


def _divide(draft: Draft, total: Value) -> None:
    for n, store in enumerate(draft.stores):
        state = next(v for v in postorder([store.value]) if v.op == "state")
        quotient = make("divide", (state, total), state.dtype)
        (value,) = rewrite([store.value], lambda v, _, q=quotient: q if v.op == "state" else None)
        draft.stores[n] = Store(store.buffer, store.index, value, store.combine, store.guard)
