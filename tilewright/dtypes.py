"""Data types: the table of them, and the promotion rule of the array API standard 2024.12.

A `DType` converts to NumPy's by its ``numpy`` attribute (``np.dtype(tw.float32)`` works too,
through the attribute ``dtype``). ``bfloat16`` in NumPy is `ml_dtypes.bfloat16`.
"""

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from tilewright.errors import DTypeError


@dataclass(frozen=True)
class DType:
    """One element type: its name, kind (``b i u f``), width in bits and NumPy dtype."""

    name: str
    kind: str
    bits: int
    numpy: np.dtype = field(compare=False, repr=False)

    @property
    def dtype(self) -> np.dtype:
        return self.numpy

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory; a bool takes one byte."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_bool(self) -> bool:
        return self.kind == "b"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self.name == other.name
        if other is None:  # which NumPy takes for float64
            return False
        try:
            return np.dtype(other) == self.numpy  # type: ignore[call-overload]
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"tilewright.{self.name}"

    def __str__(self) -> str:
        return self.name


def _make(name: str, kind: str, bits: int, numpy: object = None) -> DType:
    return DType(name, kind, bits, np.dtype(numpy or name))  # type: ignore[call-overload]


bool_ = _make("bool", "b", 1, np.bool_)
int8, int16, int32, int64 = (_make(f"int{n}", "i", n) for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (_make(f"uint{n}", "u", n) for n in (8, 16, 32, 64))
float16, float32, float64 = (_make(f"float{n}", "f", n) for n in (16, 32, 64))
bfloat16 = _make("bfloat16", "f", 16, ml_dtypes.bfloat16)

ALL = (bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
       float16, bfloat16, float32, float64)
BY_NAME = {d.name: d for d in ALL}
_BY_NUMPY = {d.numpy: d for d in ALL}


def as_dtype(value: object) -> DType:
    """Return the `DType` meant by a DType, a NumPy dtype, a Python type or a name.

    Raises DTypeError for anything tilewright does not store.
    """
    if isinstance(value, DType):
        return value
    if value is bool:
        return bool_
    if value is int:
        return int64
    if value is float:
        return float64
    try:
        return BY_NAME[value] if isinstance(value, str) and value in BY_NAME \
            else _BY_NUMPY[np.dtype(value)]  # type: ignore[call-overload]
    except (TypeError, KeyError):
        raise DTypeError(f"dtype: cannot convert {value!r} to a tilewright dtype "
                         f"(accepted: {', '.join(BY_NAME)})") from None


_SIGNED = {8: int8, 16: int16, 32: int32, 64: int64}


def promote(a: DType, b: DType) -> DType:
    """Return the dtype that `a` and `b` promote to (array API standard 2024.12, Type Promotion).

    Beyond the standard: bool promotes to the other; an integer with a float gives the float;
    ``uint64`` with a signed integer, and ``float16`` with ``bfloat16``, give the next wider float
    (float64 and float32), as NumPy and PyTorch do.
    """
    if a == b:
        return a
    if a.is_bool:
        return b
    if b.is_bool:
        return a
    if a.is_float and b.is_float:
        if a.bits == b.bits:
            return float32
        return a if a.bits > b.bits else b
    if a.is_float:
        return a
    if b.is_float:
        return b
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    if unsigned.bits == 64:
        return float64
    return _SIGNED[unsigned.bits * 2]


def accumulator(dtype: DType) -> DType:
    """Return the dtype in which a sum of `dtype` is accumulated: float32 for the 16-bit floats."""
    return float32 if dtype.is_float and dtype.bits == 16 else dtype
