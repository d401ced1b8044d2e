"""A realised array: one row-major contiguous block of memory with a shape and a dtype."""

from __future__ import annotations

import numpy as np

from tilewright.dtypes import DType


class Storage:
    """Memory of one realised tensor. Never written after it is filled, so views may be shared.

    `array` is a C-contiguous NumPy array over the memory; its base keeps the memory alive.
    `address` is where it starts; the allocator passes what it knows, else the array is asked.
    """

    __slots__ = ("__weakref__", "address", "array", "dtype", "shape")

    def __init__(self, array: np.ndarray, dtype: DType, address: int | None = None):
        self.array, self.dtype, self.shape = array, dtype, array.shape
        if address is None:
            assert array.flags.c_contiguous and array.dtype == dtype.numpy
            address = array.__array_interface__["data"][0]
        self.address = address

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.array.nbytes

    def __repr__(self) -> str:
        return f"<storage: {self.dtype}{list(self.shape)} at {self.address:#x}>"
