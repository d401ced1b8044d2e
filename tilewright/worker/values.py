"""Test values of a kernel's buffers, and how far apart equal results may be."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.dtypes import DType

GARBAGE = 0x7B  # as a byte pattern: a huge finite float of every width, no bool, no small integer
_PIECE = 1 << 16
_PATTERN = 65_537  # a prime, so that the pattern meets every row of an array elsewhere


def make_values(rng: np.random.Generator, count: int, dtype: DType) -> np.ndarray:
    """Return test values: floats uniform in [-0.5, 0.5), integers 0 to 3, bools of both kinds."""
    if dtype.is_float:
        return (rng.random(count, np.float32) - np.float32(0.5)).astype(dtype.numpy)
    return rng.integers(0, 2 if dtype.is_bool else 4, count, np.uint8).astype(dtype.numpy)


def flip_last_bits(array: np.ndarray, seed: int) -> None:
    """Change half of the elements by their last bit, in place; a second call undoes the first."""
    word = np.dtype(f"u{array.dtype.itemsize}")
    bits = array.view(word)
    pattern = np.random.default_rng(seed).integers(0, 2, _PATTERN, np.uint8).astype(word)
    whole = bits.size // _PATTERN * _PATTERN
    bits[:whole].reshape(-1, _PATTERN)[...] ^= pattern
    bits[whole:] ^= pattern[:bits.size - whole]


def epsilon(dtype: np.dtype) -> float:
    """Return the spacing of floats at 1."""
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 2.0 ** -7  # bfloat16


def is_exact(dtype: np.dtype) -> bool:
    """Whether values are compared bit by bit: integers and bools."""
    return dtype.kind in "biu"


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.itemsize >= 4 else array.astype(np.float32)


def _pieces(*arrays: np.ndarray) -> Iterator[list[np.ndarray]]:
    """Yield flat arrays in pieces that fit a cache: temporaries cost little then."""
    for start in range(0, arrays[0].size, _PIECE):
        yield [a[start:start + _PIECE] for a in arrays]


def difference(wanted: np.ndarray, found: np.ndarray) -> float:
    """Return the greatest absolute difference; inf where NaNs or infinities are not alike."""
    return max((_difference(w, f) for w, f in _pieces(wanted, found)), default=0.0)


def _difference(wanted: np.ndarray, found: np.ndarray) -> float:
    word = np.dtype(f"u{wanted.dtype.itemsize}")
    if np.array_equal(wanted.view(word), found.view(word)):
        return 0.0
    if is_exact(wanted.dtype):
        gaps = found.view(word).astype(np.float64) - wanted.view(word).astype(np.float64)
        return max(float(np.abs(gaps).max(initial=0.0)), 1.0)
    wanted, found = _wide(wanted), _wide(found)
    with np.errstate(all="ignore"):
        gap = np.abs(found - wanted)
        gap[(wanted == found) | (np.isnan(wanted) & np.isnan(found))] = 0
    gap[np.isnan(gap)] = np.inf
    return float(gap.max(initial=0.0))


def scale(array: np.ndarray) -> float:
    """Return the greatest finite magnitude."""
    greatest = 0.0
    for (piece,) in _pieces(array):
        values = np.abs(_wide(piece))
        greatest = max(greatest, float(values.max(initial=0.0, where=np.isfinite(values))))
    return greatest


def deviation(wanted: np.ndarray, found: np.ndarray) -> float:
    """Return the root of the mean squared difference over elements that are finite in both."""
    total = count = 0.0
    for a, b in _pieces(wanted, found):
        with np.errstate(all="ignore"):
            gap = (_wide(b) - _wide(a)).astype(np.float64)
        gap = gap[np.isfinite(gap)]
        total, count = total + float(gap @ gap), count + gap.size
    return (total / count) ** 0.5 if count else 0.0


def tolerance(wanted: np.ndarray, terms: int, eps: float, sensitivity: float) -> float:
    """Return the difference allowed between two orders of the same reductions.

    terms         elements that reductions add up into one result
    eps           the coarsest precision on the way
    sensitivity   how far results move when inputs move by the reductions' precision: a reordered
                  sum is the exact sum of such inputs, whatever is computed from it

    Integers must be equal. Zeros in place of values are never equal, however badly conditioned.
    """
    if is_exact(wanted.dtype):
        return 0.0
    greatest = scale(wanted)
    spread = terms ** 0.5
    rounding = max(eps, epsilon(wanted.dtype)) * (8 + (spread if terms > 1 else 0)) * greatest
    return min(rounding + 8 * (1 + spread) * sensitivity, 0.5 * greatest)
