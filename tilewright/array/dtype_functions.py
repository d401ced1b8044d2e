"""Questions about dtypes: the data type functions of the array API standard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.array.convert import ArrayLike, asarray, common_dtype, is_weak
from tilewright.array.tensor import Tensor
from tilewright.dtypes import ALL, DType, as_dtype, promote
from tilewright.errors import DTypeError


@dataclass(frozen=True)
class FloatInfo:
    """Limits of a floating-point dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerInfo:
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(value: Any) -> DType:
    return value.dtype if isinstance(value, Tensor) else as_dtype(getattr(value, "dtype", value))


def finfo(type: Any, /) -> FloatInfo:  # noqa: A002
    """Return the limits of a floating-point dtype, or of a tensor's dtype."""
    dtype = _dtype_of(type)
    if not dtype.is_float:
        raise DTypeError(f"finfo: cannot describe {dtype} (needs a floating-point dtype)")
    info = ml_dtypes.finfo(dtype.numpy)
    return FloatInfo(dtype.bits, float(info.eps), float(info.max), float(info.min),
                     float(info.smallest_normal), dtype)


def iinfo(type: Any, /) -> IntegerInfo:  # noqa: A002
    """Return the limits of an integer dtype, or of a tensor's dtype."""
    dtype = _dtype_of(type)
    if not dtype.is_integer:
        raise DTypeError(f"iinfo: cannot describe {dtype} (needs an integer dtype)")
    info = np.iinfo(dtype.numpy)
    return IntegerInfo(dtype.bits, int(info.max), int(info.min), dtype)


_KINDS = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu",
          "real floating": "f", "complex floating": "", "numeric": "iuf"}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether `dtype` is a given dtype, of a named kind, or any of a tuple of those."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return as_dtype(dtype).kind in _KINDS[kind]
    return as_dtype(dtype) == as_dtype(kind)


def result_type(*arrays_and_dtypes: ArrayLike) -> DType:
    """Return the dtype that tensors, dtypes and Python numbers promote to together."""
    if not arrays_and_dtypes:
        raise DTypeError("result_type: cannot promote nothing (needs at least one argument)")

    def known(value: Any) -> Any:
        if is_weak(value) or isinstance(value, Tensor):
            return value
        if isinstance(value, (np.ndarray, np.generic, list)):
            return asarray(value)
        return _Named(as_dtype(value))
    return common_dtype("result_type", [known(v) for v in arrays_and_dtypes])


@dataclass(frozen=True)
class _Named:
    dtype: DType


def promote_types(type1: Any, type2: Any) -> DType:
    """Return the dtype that two dtypes promote to."""
    return promote(as_dtype(type1), as_dtype(type2))


def can_cast(from_: Any, to: Any, /) -> bool:
    """Return whether promotion can turn the first dtype (or a tensor's) into the second."""
    target = as_dtype(to)
    return promote(_dtype_of(from_), target) == target


def dtypes() -> dict[str, DType]:
    """Return every dtype by name."""
    return {d.name: d for d in ALL}
