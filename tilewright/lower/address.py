"""Index expressions to instructions.

Terms are added outermost loop first, so that the builder hoists every partial sum as far out as it
goes; a loop index times a constant is kept by addition. The constant part of an offset stays apart
and ends in the memory reference.
"""

from __future__ import annotations

from tilewright.dtypes import int64
from tilewright.index import Expr, Sym
from tilewright.index.expr import Product, Quotient, Remainder
from tilewright.program import Builder, Instr, Loop, Type

LANE = "lane"


class Addresses:
    """Translates expressions under the current meaning of their symbols."""

    def __init__(self, builder: Builder):
        self.builder = builder
        self.regs: dict[Sym, Instr] = {}
        self.loops: dict[Sym, Loop] = {}

    def bind(self, symbol: Sym, instr: Instr, loop: Loop | None = None) -> None:
        """Let a symbol stand for an instruction from here on."""
        self.regs[symbol] = instr
        if loop is None:
            self.loops.pop(symbol, None)
        else:
            self.loops[symbol] = loop

    def is_vector(self, e: Expr) -> bool:
        """Return whether an expression differs between lanes."""
        return any(self._atom_is_vector(a) for a, _ in e.terms)

    def _atom_is_vector(self, atom) -> bool:
        if isinstance(atom, Sym):
            return atom.name == LANE \
                or self.regs[atom].type.lanes > 1  # type: ignore[union-attr]
        if isinstance(atom, Product):
            return self.is_vector(atom.left) or self.is_vector(atom.right)
        return self.is_vector(atom.body)

    def split_lane(self, e: Expr) -> tuple[int | None, Expr]:
        """Return (c, rest) with e = c*lane + rest, rest uniform; c is None where there is none."""
        coef, rest = 0, []
        for atom, c in e.terms:
            if isinstance(atom, Sym) and atom.name == LANE:
                coef = c
            elif self._atom_is_vector(atom):
                return None, e
            else:
                rest.append((atom, c))
        return coef, Expr(tuple(rest), e.const)

    def scalar(self, e: Expr) -> Instr:
        """Return a uniform expression's value, constant included."""
        instr, constant = self.parts(e)
        if constant == 0 and e.terms:
            return instr
        if not e.terms:
            return self.builder.as_index(constant)
        return self.builder.op("add", instr, self.builder.as_index(constant))

    def parts(self, e: Expr) -> tuple[Instr, int]:
        """Return (value of the variable part, constant part) of a uniform expression."""
        terms = [self._term(atom, coef) for atom, coef in e.terms]
        if not terms:
            return self.builder.as_index(0), e.const
        terms.sort(key=lambda t: t.level)
        total = terms[0]
        for term in terms[1:]:
            total = self.builder.op("add", total, term)
        return total, e.const

    def _term(self, atom, coef: int) -> Instr:
        if isinstance(atom, Sym) and atom in self.loops:
            return self.builder.scaled(self.loops[atom], coef)
        value = self._atom(atom, 1)
        return value if coef == 1 else self.builder.op("mul", value, self.builder.as_index(coef))

    def vector(self, e: Expr, lanes: int) -> Instr:
        """Return an expression's value in every lane, as int64."""
        b = self.builder
        total: Instr | None = None
        uniform: list = []
        for atom, coef in e.terms:
            if not self._atom_is_vector(atom):
                uniform.append((atom, coef))
                continue
            part = self._atom(atom, lanes)
            if coef != 1:
                part = b.op("mul", part, b.const(coef, Type(int64, lanes)))
            total = part if total is None else b.op("add", total, part)
        rest = b.splat(self.scalar(Expr(tuple(uniform), e.const)), lanes)
        if total is None:
            return rest
        return total if not uniform and not e.const else b.op("add", rest, total)

    def value(self, e: Expr, lanes: int) -> Instr:
        """Return a scalar where the expression is uniform, else a vector."""
        return self.vector(e, lanes) if self.is_vector(e) else self.scalar(e)

    def _atom(self, atom, lanes: int) -> Instr:
        b = self.builder
        if isinstance(atom, Sym):
            return b.lanes(lanes) if atom.name == LANE else self.regs[atom]
        if isinstance(atom, Product):
            return b.op("mul", self.value(atom.left, lanes), self.value(atom.right, lanes))
        body = self.value(atom.body, lanes)
        quotient = self._quotient(atom, body)
        if isinstance(atom, Quotient):
            return quotient
        assert isinstance(atom, Remainder)
        if atom.divisor & (atom.divisor - 1) == 0:
            return b.op("and", body, b.as_index(atom.divisor - 1))
        return b.op("sub", body, b.op("mul", quotient, b.as_index(atom.divisor)))

    def _quotient(self, atom, body: Instr) -> Instr:
        """floor(body / divisor): a shift for powers of two, else a division that rounds down."""
        b, d = self.builder, atom.divisor
        if d & (d - 1) == 0:
            return b.op("shr", body, b.as_index(d.bit_length() - 1))
        if atom.body.lo < 0:
            negative = b.op("lt", body, b.as_index(0))
            body = b.op("select", negative, b.op("sub", body, b.as_index(d - 1)), body)
        return b.op("idiv", body, b.as_index(d))
