"""NumPy in float64 as a namespace that the workloads run on: what they are checked against."""

from __future__ import annotations

from typing import Any

import numpy as np


class _At:
    """``x.at[i].set(v)``: a copy of x with one part replaced."""

    def __init__(self, array: np.ndarray, index: Any = None):
        self.array, self.index = array, index

    def __getitem__(self, index: Any) -> _At:
        return _At(self.array, index)

    def set(self, value: Any) -> Array:
        changed = self.array.copy()
        changed[self.index] = value
        return changed.view(Array)


class Array(np.ndarray):
    """A NumPy array with ``at``."""

    @property
    def at(self) -> _At:
        return _At(self)


class Float64:
    """The names that the workloads use; every dtype is float64."""

    float32 = np.float64
    exp, sin, cos, where = np.exp, np.sin, np.cos, np.where
    max, sum, matmul, stack = np.max, np.sum, np.matmul, np.stack
    maximum, minimum = np.maximum, np.minimum
    expand_dims, permute_dims = np.expand_dims, np.transpose

    @staticmethod
    def zeros(shape: tuple[int, ...], dtype: Any = None) -> Array:
        return np.zeros(shape).view(Array)

    @staticmethod
    def zeros_like(x: np.ndarray) -> Array:
        return np.zeros(x.shape).view(Array)

    @staticmethod
    def eye(n: int, dtype: Any = None) -> np.ndarray:
        return np.eye(n)


def evaluate(make: Any) -> np.ndarray:
    """Return the value of a workload (a function of a namespace) in float64."""
    f, args = make(Float64)
    return np.asarray(f(*(a.astype(np.float64) for a in args)))


def sampled_gradient(make: Any, argnums: tuple[int, ...], most: int = 48,
                     step: float = 1e-5) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (flat indices, central differences there) for each argument of a scalar workload.

    At most `most` elements of an argument are looked at, chosen by a fixed seed.
    """
    f, args = make(Float64)
    wide = [a.astype(np.float64) for a in args]
    rng = np.random.default_rng(0)
    found = []
    for n in argnums:
        chosen = np.sort(rng.permutation(wide[n].size)[:most])
        slopes = np.empty(len(chosen))
        for k, at in enumerate(chosen):
            values = []
            for sign in (1.0, -1.0):
                moved = wide[n].copy()
                moved.reshape(-1)[at] += sign * step
                values.append(float(f(*wide[:n], moved, *wide[n + 1:])))
            slopes[k] = (values[0] - values[1]) / (2 * step)
        found.append((chosen, slopes))
    return found
