"""The register tile of a contraction: how many rows and vectors of accumulators."""

from __future__ import annotations

from tilewright.limits import Limits

MOST_TALL = 16  # rows


def tall_tile(m: int, n: int, lanes: int, limits: Limits) -> tuple[int, int]:
    """Return the (rows, vectors) with the most rows, evenly: they share cache lines."""
    vectors = 1 + (n > lanes)
    most = min(m, MOST_TALL, (limits.registers - 1) // vectors - 1)
    return -(-m // -(-m // most)), vectors


def best_tile(m: int, n: int, lanes: int, limits: Limits) -> tuple[float, int, int]:
    """Return (efficiency, rows, vectors) of the best register tile for m rows and n columns."""
    best, rows, vectors = 1e-9, 1, 1
    for v in range(1, 5):
        for r in range(1, min(m, 16) + 1):
            if r * v + v + 1 > limits.registers or (v > 1 and (v - 1) * lanes >= n):
                continue
            value = _efficiency(r, v, m, n, lanes)
            if value > best * 1.01:
                best, rows, vectors = value, r, v
    return best, rows, vectors


def _efficiency(r: int, v: int, m: int, n: int, lanes: int) -> float:
    """Return the share of multiply-adds per cycle that a tile reaches, edges included.

    Two multiply-adds and two loads a cycle, a tenth of a cycle lost for each load; eight
    multiply-adds must be under way to hide their latency.
    """
    def speed(rows: int) -> float:
        work = rows * v
        loads = rows + v
        return work / (max(work / 2, loads / 2, 4) + loads / 10)
    full, rest = divmod(m, r)
    cycles = full * r * v / speed(r) + (rest * v / speed(rest) if rest else 0)
    waste = n / (-(-n // (v * lanes)) * v * lanes)
    copies = 1 + (1 if rest else 0) + (1 if n % (v * lanes) else 0)
    return m * v / cycles * waste * (1 - 0.02 * copies)
