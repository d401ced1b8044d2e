"""Transpose a square tile of vector registers with two-input shuffles."""

from __future__ import annotations

from tilewright.program import Builder, Instr


def transpose(builder: Builder, rows: list[Instr]) -> list[Instr]:
    """Return the columns of n vectors of n lanes, n a power of two; n*log2(n) shuffles.

    Step h swaps, in every pair of rows that differ in bit h of their number, the lanes whose bit
    h disagrees with the row's.
    """
    n, rows = len(rows), list(rows)
    h = 1
    while h < n:
        upper = tuple(p if not p & h else n + p - h for p in range(n))
        lower = tuple(p + h if not p & h else n + p for p in range(n))
        for i in range(n):
            if not i & h:
                a, b = rows[i], rows[i + h]
                rows[i] = builder.shuffle(a, b, upper)
                rows[i + h] = builder.shuffle(a, b, lower)
        h *= 2
    return rows
