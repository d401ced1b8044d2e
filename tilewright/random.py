"""Random numbers from explicit keys, and a global generator for convenience.

A key is a ``uint32`` tensor of shape (2,). Numbers come from the counter-based generator
Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
1, 2, 3", SC 2011): element i of a draw is the block of counter i, so the same key gives the same
bits in every mode, on every backend and with any number of threads. Use a key once; `split` it for
more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import pi, prod
from typing import Any

import numpy as np

from tilewright.array import build as b
from tilewright.array import elementwise as e
from tilewright.array.convert import ArrayLike, asarray
from tilewright.array.manipulate import reshape, stack, take
from tilewright.array.reductions import argmax
from tilewright.array.searching import argsort
from tilewright.array.tensor import Tensor
from tilewright.dtypes import DType, as_dtype, float32, float64, int64, uint32, uint64
from tilewright.errors import DTypeError, ShapeError

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_SPLIT, _FOLD = 0xFFFFFFFF, 0xFFFFFFFE  # second counter words that no draw uses


def _word(value: int) -> Tensor:
    return Tensor(b.scalar(value, uint32))


def _rotate(x: Tensor, bits: int) -> Tensor:
    return (x << _word(bits)) | (x >> _word(32 - bits))


def threefry(key: Tensor, x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
    """Return both words of the Threefry-2x32-20 blocks of counters (x0, x1), uint32."""
    k0, k1 = key[..., 0], key[..., 1]
    keys = (k0, k1, k0 ^ k1 ^ _word(_PARITY))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = _rotate(x1, bits) ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + (keys[(group + 2) % 3] + _word(group + 1))
    return x0, x1


def _check_key(name: str, value: ArrayLike) -> Tensor:
    key = asarray(value)
    if key.shape != (2,) or key.dtype != uint32:
        raise DTypeError(f"{name}: cannot use {key.dtype}{list(key.shape)} as a key "
                         "(needs uint32[2], from random.key or random.split)")
    return key


def key(seed: int) -> Tensor:
    """Return the key of an integer seed; the seed counts modulo 2**64."""
    if isinstance(seed, Tensor):
        wide = seed.astype(uint64)
        return stack([(wide >> 32).astype(uint32), wide.astype(uint32)])
    if not isinstance(seed, (int, np.integer)):
        raise DTypeError(f"random.key: cannot make a key of {seed!r} (needs an integer)")
    words = [int(seed) >> 32 & 0xFFFFFFFF, int(seed) & 0xFFFFFFFF]
    return asarray(np.array(words, np.uint32))


def split(key: Tensor, n: int = 2) -> Tensor:
    """Return `n` independent keys as uint32 (n, 2); unpack or index them."""
    key = _check_key("random.split", key)
    (count,) = b.normalize_shape("random.split", n)
    places = Tensor(b.iota(count, uint32))
    return stack(threefry(key, places, _word(_SPLIT)), axis=1)


def fold_in(key: Tensor, data: ArrayLike) -> Tensor:
    """Return the key that belongs to `key` and the integer `data` (a step number, say)."""
    key = _check_key("random.fold_in", key)
    number = asarray(data).astype(uint32)
    return stack(threefry(key, number, _word(_FOLD)))


def _blocks(name: str, key: Tensor, shape: Any) -> tuple[Tensor, Tensor]:
    """Return both uint32 words of one block per element of `shape`."""
    key, sizes = _check_key(name, key), b.normalize_shape(name, shape)
    size = prod(sizes)
    if size < 2**32:
        low, high = Tensor(b.iota(size, uint32)), _word(0)
    else:
        places = Tensor(b.iota(size, uint64))
        low, high = places.astype(uint32), (places >> 32).astype(uint32)
    return tuple(reshape(x, sizes) for x in threefry(key, low, high))  # type: ignore


def bits(key: Tensor, shape: Any = (), dtype: Any = uint32) -> Tensor:
    """Return uniform random bits as uint32 or uint64."""
    high, low = _blocks("random.bits", key, shape)
    target = as_dtype(dtype)
    if target == uint32:
        return high
    if target != uint64:
        raise DTypeError(f"random.bits: cannot draw {target} (uint32 or uint64)")
    return (high.astype(uint64) << 32) | low.astype(uint64)


def _unit(words: tuple[Tensor, Tensor], dtype: DType, above: int = 0) -> Tensor:
    """Return (integer + above) / 2**p in `dtype`, p its bits of precision: [0, 1), or (0, 1]."""
    if dtype == float64:
        whole = (words[0].astype(uint64) << 21) | (words[1].astype(uint64) >> 11)
        return (whole + above).astype(float64) * 2.0**-53
    precision = {"float32": 24, "float16": 11, "bfloat16": 8}[dtype.name]
    whole = (words[0] >> (32 - precision)) + above
    return (whole.astype(float32) * 2.0**-precision).astype(dtype)


def _are(first: int, second: int, *values: ArrayLike) -> bool:
    """Tell whether two values are these Python numbers, so that they need no arithmetic."""
    return all(isinstance(v, (int, float)) for v in values) and values == (first, second)


def _float_dtype(name: str, dtype: Any) -> DType:
    target = as_dtype(dtype)
    if not target.is_float:
        raise DTypeError(f"{name}: cannot draw {target} (needs a floating-point dtype)")
    return target


def uniform(key: Tensor, shape: Any = (), dtype: Any = float32, low: ArrayLike = 0.0,
            high: ArrayLike = 1.0) -> Tensor:
    """Return numbers uniform in [low, high)."""
    target = _float_dtype("random.uniform", dtype)
    unit = _unit(_blocks("random.uniform", key, shape), target)
    if _are(0, 1, low, high):
        return unit
    return unit * (asarray(high, dtype=target) - asarray(low, dtype=target)) \
        + asarray(low, dtype=target)


def normal(key: Tensor, shape: Any = (), dtype: Any = float32, mean: ArrayLike = 0.0,
           std: ArrayLike = 1.0) -> Tensor:
    """Return numbers of a normal distribution, by the transform of Box and Muller."""
    target = _float_dtype("random.normal", dtype)
    wide = float64 if target == float64 else float32
    first, second = _blocks("random.normal", key, shape)
    if wide == float64:
        angle = second.astype(float64) * 2.0**-32
        radius = (first.astype(float64) + 0.5) * 2.0**-32
    else:
        angle, radius = _unit((second, second), wide), _unit((first, first), wide, above=1)
    draw = (e.sqrt(-2.0 * e.log(radius)) * e.cos(2.0 * pi * angle)).astype(target)
    if _are(0, 1, mean, std):
        return draw
    return draw * asarray(std, dtype=target) + asarray(mean, dtype=target)


def integers(key: Tensor, low: int, high: int, shape: Any = (), dtype: Any = int64) -> Tensor:
    """Return integers uniform in low <= x < high; the bias is below (high - low) / 2**64."""
    target = as_dtype(dtype)
    if not target.is_integer or not low < high:
        raise ShapeError(f"random.integers: cannot draw {target} from [{low}, {high}) "
                         "(needs an integer dtype and low < high)")
    offset = bits(key, shape, uint64) % (high - low)
    return (offset.astype(int64) + low).astype(target) if target != uint64 else offset + low


def bernoulli(key: Tensor, p: ArrayLike = 0.5, shape: Any = None) -> Tensor:
    """Return bool, true with probability `p`; the shape is that of `p` unless given."""
    return uniform(key, asarray(p).shape if shape is None else shape) < p


def permutation(key: Tensor, x: ArrayLike) -> Tensor:
    """Return 0 .. x-1 shuffled, or the rows of a tensor x shuffled."""
    rows = x if isinstance(x, int) else asarray(x).shape[0]
    order = argsort(bits(key, rows, uint64))
    return order if isinstance(x, int) else take(x, order, axis=0)


def choice(key: Tensor, x: ArrayLike, shape: Any = ()) -> Tensor:
    """Return elements drawn from 0 .. x-1, or rows from a tensor x, with replacement."""
    rows = x if isinstance(x, int) else asarray(x).shape[0]
    places = integers(key, 0, rows, shape)
    return places if isinstance(x, int) else take(x, places, axis=0)


def gumbel(key: Tensor, shape: Any = (), dtype: Any = float32) -> Tensor:
    """Return numbers of the standard Gumbel distribution."""
    target = _float_dtype("random.gumbel", dtype)
    open_unit = _unit(_blocks("random.gumbel", key, shape), target, above=1)
    return -e.log(-e.log(open_unit * (1 - 2.0**-24)))


def categorical(key: Tensor, logits: ArrayLike, *, axis: int = -1) -> Tensor:
    """Return int64 classes drawn with probabilities softmax(logits) along `axis`."""
    scores = asarray(logits)
    return argmax(scores + gumbel(key, scores.shape), axis=axis)


# --- the global generator ------------------------------------------------------------------------


class Generator:
    """A seed and a count of draws; each draw has the key of its number, fixed when it is called.

    `redirect` lets a tracer hand out keys instead, so that a traced function draws anew each time.
    """

    def __init__(self, seed: int = 0):
        self._lock = threading.Lock()
        self._sources: list[Callable[[], Tensor]] = []
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Start again from `seed`."""
        self._base = key(seed).numpy()
        self.count = 0

    def next_key(self) -> Tensor:
        """Return the key of the next draw."""
        if self._sources:
            return self._sources[-1]()
        return asarray(self.next_key_words())

    def next_key_words(self) -> np.ndarray:
        """Return the key of the next draw as a NumPy array uint32[2]; computed on the host."""
        with self._lock:
            number, self.count = self.count, self.count + 1
        return _threefry_words(self._base, number & 0xFFFFFFFF, _FOLD ^ (number >> 32))

    @contextmanager
    def redirect(self, source: Callable[[], Tensor]) -> Iterator[None]:
        """Within the block, take keys from `source`."""
        self._sources.append(source)
        try:
            yield
        finally:
            self._sources.pop()


def _threefry_words(key: np.ndarray, x0: int, x1: int) -> np.ndarray:
    """One block on the host, with Python integers: the same bits as `threefry`."""
    mask = 0xFFFFFFFF
    keys = (int(key[0]), int(key[1]), int(key[0]) ^ int(key[1]) ^ _PARITY)
    x0, x1 = x0 + keys[0] & mask, x1 + keys[1] & mask
    for group in range(5):
        for count in _ROTATIONS[group % 2]:
            x0 = x0 + x1 & mask
            x1 = (x1 << count | x1 >> 32 - count) & mask ^ x0
        x0 = x0 + keys[(group + 1) % 3] & mask
        x1 = x1 + keys[(group + 2) % 3] + group + 1 & mask
    return np.array([x0, x1], np.uint32)


GENERATOR = Generator()


def seed(value: int) -> None:
    """Seed the global generator."""
    GENERATOR.seed(value)


def rand(*shape: int) -> Tensor:
    """Return float32 numbers uniform in [0, 1) from the global generator."""
    return uniform(GENERATOR.next_key(), shape)


def randn(*shape: int) -> Tensor:
    """Return float32 numbers of the standard normal distribution from the global generator."""
    return normal(GENERATOR.next_key(), shape)


def randint(low: int, high: int, shape: Any = (), dtype: Any = int64) -> Tensor:
    """Return integers uniform in low <= x < high from the global generator."""
    return integers(GENERATOR.next_key(), low, high, shape, dtype)


def shuffled(x: ArrayLike) -> Tensor:
    """Return `permutation` of x from the global generator."""
    return permutation(GENERATOR.next_key(), x)
