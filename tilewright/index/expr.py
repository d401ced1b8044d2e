"""Canonical integer expressions.

    Expr := const + sum of coef * atom          atoms in a fixed order, no zero coefficient
    Atom := Sym(name, lo, hi)                   a variable with inclusive bounds
          | Quotient(expr, divisor)             floor(expr / divisor), divisor a positive int
          | Remainder(expr, divisor)            expr - divisor * floor(expr / divisor)
          | Product(expr, expr)                 of two non-constant expressions

Two expressions that print equal are equal. A symbol carries its own bounds, so bounds of an
expression need no environment and are memoised on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any


class Atom:
    """One indivisible term. Ordered and compared by `key`."""

    __slots__ = ("hash", "hi", "key", "lo")
    key: tuple
    lo: int
    hi: int

    def _seal(self, key: tuple, lo: int, hi: int) -> None:
        self.key, self.lo, self.hi, self.hash = key, lo, hi, hash(key)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self.hash == other.hash
                                 and self.key == other.key)

    def __lt__(self, other: Atom) -> bool:
        return self.key < other.key


class Sym(Atom):
    """A variable with inclusive bounds ``lo..hi``, known to be a multiple of `multiple`."""

    __slots__ = ("multiple", "name")

    def __init__(self, name: str, lo: int, hi: int, multiple: int = 1):
        self.name, self.multiple = name, multiple
        self._seal((0, name, lo, hi, multiple), lo, hi)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Sym({self.name}, {self.lo}, {self.hi})"


class Quotient(Atom):
    """floor(body / divisor)."""

    __slots__ = ("body", "divisor")

    def __init__(self, body: Expr, divisor: int):
        self.body, self.divisor = body, divisor
        self._seal((1, *body.key, divisor), body.lo // divisor, body.hi // divisor)

    def __str__(self) -> str:
        return f"({self.body}) // {self.divisor}"


class Remainder(Atom):
    """body - divisor * floor(body / divisor), in 0..divisor-1."""

    __slots__ = ("body", "divisor")

    def __init__(self, body: Expr, divisor: int):
        self.body, self.divisor = body, divisor
        self._seal((2, *body.key, divisor), 0, divisor - 1)

    def __str__(self) -> str:
        return f"({self.body}) % {self.divisor}"


class Product(Atom):
    """The product of two non-constant expressions (symbolic extents)."""

    __slots__ = ("left", "right")

    def __init__(self, left: Expr, right: Expr):
        if right.key < left.key:
            left, right = right, left
        self.left, self.right = left, right
        corners = [x * y for x in (left.lo, left.hi) for y in (right.lo, right.hi)]
        self._seal((3, left.key, right.key), min(corners), max(corners))

    def __str__(self) -> str:
        return f"({self.left})*({self.right})"


class Expr:
    """A canonical linear form over atoms; immutable, hashable, with Python's operators."""

    __slots__ = ("_hash", "_key", "const", "hi", "lo", "terms")
    _hash: int | None
    _key: tuple | None

    def __init__(self, terms: tuple[tuple[Atom, int], ...], const: int):
        self.terms, self.const = terms, const
        lo = hi = const
        for atom, coef in terms:
            if coef > 0:
                lo += coef * atom.lo
                hi += coef * atom.hi
            else:
                lo += coef * atom.hi
                hi += coef * atom.lo
        self.lo, self.hi = lo, hi
        self._hash = self._key = None  # most expressions are never asked for them

    @property
    def key(self) -> tuple:
        """What orders expressions, and equal ones have in common."""
        if self._key is None:
            self._key = (tuple((a.key, c) for a, c in self.terms), self.const)
        return self._key

    @property
    def is_const(self) -> bool:
        return not self.terms

    def coefficient(self, atom: Atom) -> int:
        """Return the coefficient of `atom`, 0 when absent."""
        for a, c in self.terms:
            if a == atom:
                return c
        return 0

    def __hash__(self) -> int:
        if self._hash is None:  # a constant equals its int
            self._hash = hash((self.terms, self.const)) if self.terms else hash(self.const)
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return not self.terms and self.const == other
        return self is other or (isinstance(other, Expr) and self.const == other.const
                                 and self.terms == other.terms)

    def __add__(self, other: Expr | int) -> Expr:
        if isinstance(other, int):
            return Expr(self.terms, self.const + other) if other else self
        if not other.terms:
            return self + other.const
        if not self.terms:
            return other + self.const
        merged = dict(self.terms)
        for atom, coef in other.terms:
            merged[atom] = merged.get(atom, 0) + coef
        return _canonical(merged, self.const + other.const)

    def __mul__(self, other: Expr | int) -> Expr:
        if isinstance(other, int):
            if other == 1:
                return self
            if other == 0:
                return const(0)
            return Expr(tuple((a, c * other) for a, c in self.terms), self.const * other)
        if not other.terms:
            return self * other.const
        if not self.terms:
            return other * self.const
        return Expr(((Product(self, other), 1),), 0)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Expr:
        return self * -1

    def __sub__(self, other: Expr | int) -> Expr:
        return self + (-other)

    def __rsub__(self, other: int) -> Expr:
        return -self + other

    def __floordiv__(self, divisor: int) -> Expr:
        return floordiv(self, divisor)

    def __mod__(self, divisor: int) -> Expr:
        return mod(self, divisor)

    def __int__(self) -> int:
        return to_int(self)

    __index__ = __int__

    def __str__(self) -> str:
        parts = []
        for atom, coef in self.terms:
            text = str(atom)
            if " " in text:
                text = f"({text})"
            parts.append(text if coef == 1 else f"{text}*{coef}")
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts).replace("+ -", "- ")

    __repr__ = __str__


_SMALL = [Expr((), value) for value in range(257)]


def const(value: int) -> Expr:
    """Return the constant expression `value`."""
    return _SMALL[value] if 0 <= value <= 256 else Expr((), value)


def sym(name: str, lo: int, hi: int, multiple: int = 1) -> Expr:
    """Return a variable as an expression."""
    return Expr(((Sym(name, lo, hi, multiple), 1),), 0)


def as_expr(value: Expr | Atom | int) -> Expr:
    """Return `value` as an expression."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, Atom):
        return Expr(((value, 1),), 0)
    return const(int(value))


def to_int(value: Expr | int) -> int:
    """Return the value of a constant expression. Raises ValueError if it has variables."""
    if isinstance(value, int):
        return value
    if value.terms:
        raise ValueError(f"index: cannot convert {value} to an integer (it has variables)")
    return value.const


def _canonical(merged: dict[Atom, int], constant: int) -> Expr:
    """Sort, drop zeros, and fold ``d*(x//d) + x%d`` back to x (times any common factor)."""
    remainders = [a for a, c in merged.items() if c and isinstance(a, Remainder)]
    for rem in remainders:
        coef = merged.get(rem, 0)
        if not coef:
            continue
        quotient = floordiv(rem.body, rem.divisor)
        if len(quotient.terms) == 1 and not quotient.const and quotient.terms[0][1] == 1:
            atom = quotient.terms[0][0]
            if merged.get(atom, 0) == coef * rem.divisor:
                del merged[atom], merged[rem]
                for a, c in rem.body.terms:
                    merged[a] = merged.get(a, 0) + c * coef
                constant += rem.body.const * coef
    terms = sorted(((a, c) for a, c in merged.items() if c), key=lambda t: t[0].key) \
        if len(merged) > 1 else [(a, c) for a, c in merged.items() if c]
    return Expr(tuple(terms), constant)


def multiple_of(value: Expr) -> int:
    """Return the largest integer known to divide every value of the expression (0 for 0)."""
    result = abs(value.const)
    for atom, coef in value.terms:
        result = gcd(result, coef * (atom.multiple if isinstance(atom, Sym) else 1))
    return abs(result)


def _split(value: Expr, divisor: int) -> tuple[Expr, Expr]:
    """Return (q, r) with value = divisor*q + r, moving every divisible term into q."""
    if divisor < 1:
        raise ValueError(f"index: cannot divide {value} by {divisor} (needs a positive integer)")
    whole, rest = [], []
    for atom, coef in value.terms:
        if coef % divisor == 0:
            whole.append((atom, coef // divisor))
        else:
            rest.append((atom, coef))
    return (Expr(tuple(whole), value.const // divisor),
            Expr(tuple(rest), value.const % divisor))


def floordiv(value: Expr, divisor: int) -> Expr:
    """Return floor(value / divisor) in canonical form.

    Raises ValueError unless the divisor is positive.
    """
    if divisor == 1:
        return value
    quotient, rest = _split(value, divisor)
    if rest.lo // divisor == rest.hi // divisor:
        return quotient + rest.lo // divisor
    common = divisor
    for _, coef in rest.terms:
        common = gcd(common, coef)
    if common > 1:  # floor((g*x + k) / (g*d)) = floor((x + floor(k/g)) / d)
        rest = Expr(tuple((a, c // common) for a, c in rest.terms), rest.const // common)
        return quotient + floordiv(rest, divisor // common)
    if len(rest.terms) == 1 and rest.terms[0][1] == 1 and not rest.const:
        atom = rest.terms[0][0]
        if isinstance(atom, Quotient):  # (x // c) // d = x // (c*d)
            return quotient + floordiv(atom.body, atom.divisor * divisor)
    return quotient + Expr(((Quotient(rest, divisor), 1),), 0)


def mod(value: Expr, divisor: int) -> Expr:
    """Return value - divisor * floor(value / divisor) in canonical form."""
    if divisor == 1:
        return const(0)
    _, rest = _split(value, divisor)
    low = rest.lo // divisor
    if low == rest.hi // divisor:
        return rest - low * divisor
    return Expr(((Remainder(rest, divisor), 1),), 0)


def symbols(value: Expr) -> set[Sym]:
    """Return every variable in the expression."""
    found: set[Sym] = set()
    stack = [value]
    while stack:
        for atom, _ in stack.pop().terms:
            if isinstance(atom, Sym):
                found.add(atom)
            elif isinstance(atom, Product):
                stack += [atom.left, atom.right]
            elif isinstance(atom, (Quotient, Remainder)):
                stack.append(atom.body)
    return found


def evaluate(value: Expr | int, env: Mapping[str, Any]) -> Any:
    """Return the value under `env`, a map from variable names to integers or NumPy arrays."""
    if isinstance(value, int):
        return value
    total: Any = value.const
    for atom, coef in value.terms:
        if isinstance(atom, Sym):
            part = env[atom.name]
        elif isinstance(atom, Quotient):
            part = evaluate(atom.body, env) // atom.divisor
        elif isinstance(atom, Remainder):
            part = evaluate(atom.body, env) % atom.divisor
        else:
            assert isinstance(atom, Product)
            part = evaluate(atom.left, env) * evaluate(atom.right, env)
        total = total + part * coef
    return total
