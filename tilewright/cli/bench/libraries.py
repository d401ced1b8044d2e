"""The libraries that the benchmark compares: one adapter each over the same few operations.

An adapter says how a user of that library would write an operation, how to compile a function, and
how to wait for its result. A result of `permute` is stored in the new order, not a view; outputs
are fresh at every call, as each library allocates them by default.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import shutil
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

import tilewright as tw

Compiled = Callable[..., Any]


class Library:
    """One library. `module` is imported when the adapter is made; ImportError if it is missing."""

    name: ClassVar[str]
    module: ClassVar[str]
    install: ClassVar[str] = ""

    def __init__(self) -> None:
        self.xp: Any = importlib.import_module(self.module)

    @classmethod
    def available(cls) -> bool:
        """Tell whether the library can be used here, without importing it."""
        return importlib.util.find_spec(cls.module) is not None

    @property
    def version(self) -> str:
        return str(getattr(self.xp, "__version__", "?"))

    def set_threads(self, threads: int) -> None:
        """Use at most `threads` threads. The process is bound to as many cores besides."""

    def asarray(self, array: np.ndarray) -> Any:
        raise NotImplementedError

    def compile(self, function: Callable[..., Any]) -> Compiled:
        """Return what a user calls again and again; a call returns when its result is computed."""
        return function

    def numpy(self, result: Any) -> np.ndarray:
        return np.asarray(result)

    # The operations; these defaults are right for NumPy-like namespaces.

    def exp(self, a: Any) -> Any:
        return self.xp.exp(a)

    def sqrt(self, a: Any) -> Any:
        return self.xp.sqrt(a)

    def relu(self, a: Any) -> Any:
        return self.xp.maximum(a, 0)

    def sum(self, a: Any, axis: int | None = None) -> Any:
        return self.xp.sum(a, axis=axis)

    def max(self, a: Any) -> Any:
        return self.xp.max(a)

    def reshape(self, a: Any, shape: tuple[int, ...]) -> Any:
        return a.reshape(shape)

    def concat(self, parts: list[Any], axis: int) -> Any:
        return self.xp.concatenate(parts, axis=axis)

    def view_permuted(self, a: Any, order: tuple[int, ...]) -> Any:
        return a.transpose(order)

    def permute(self, a: Any, order: tuple[int, ...]) -> Any:
        return self.view_permuted(a, order)

    def transposed(self, a: Any) -> Any:
        return a.T

    def matmul(self, a: Any, b: Any) -> Any:
        return self.xp.matmul(a, b)

    def conv2d(self, x: Any, w: Any, padding: int) -> Any:
        raise NotImplementedError

    def softmax(self, a: Any) -> Any:
        e = self.xp.exp(a - self.xp.max(a, axis=-1, keepdims=True))
        return e / self.xp.sum(e, axis=-1, keepdims=True)

    def layer_norm(self, a: Any) -> Any:
        mean = self.xp.mean(a, axis=-1, keepdims=True)
        centred = a - mean
        variance = self.xp.mean(centred * centred, axis=-1, keepdims=True)
        return centred / self.xp.sqrt(variance + 1e-5)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        scores = self.matmul(q, self.xp.swapaxes(k, -1, -2)) * (q.shape[-1] ** -0.5)
        return self.matmul(self.softmax(scores), v)


class Tilewright(Library):
    name, module = "tilewright", "tilewright"

    def set_threads(self, threads: int) -> None:
        tw.set_num_threads(threads)

    def asarray(self, array: np.ndarray) -> Any:
        return tw.asarray(array)

    def compile(self, function: Callable[..., Any]) -> Compiled:
        return tw.jit(function)  # a call on a CPU computes its outputs before it returns

    def relu(self, a: Any) -> Any:
        return tw.nn.relu(a)

    def concat(self, parts: list[Any], axis: int) -> Any:
        return tw.concat(parts, axis=axis)

    def view_permuted(self, a: Any, order: tuple[int, ...]) -> Any:
        return tw.permute_dims(a, order)

    def conv2d(self, x: Any, w: Any, padding: int) -> Any:
        return tw.nn.conv2d(x, w, padding=padding)

    def softmax(self, a: Any) -> Any:
        return tw.nn.softmax(a, axis=-1)

    def layer_norm(self, a: Any) -> Any:
        return tw.nn.layer_norm(a)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        return tw.nn.scaled_dot_product_attention(q, k, v)


class NumPy(Library):
    """Also the reference: the same code on float64 inputs."""

    name, module = "numpy", "numpy"

    def set_threads(self, threads: int) -> None:
        with contextlib.suppress(ImportError):
            importlib.import_module("threadpoolctl").threadpool_limits(threads, user_api="blas")

    def asarray(self, array: np.ndarray) -> Any:
        return array

    def permute(self, a: Any, order: tuple[int, ...]) -> Any:
        return np.ascontiguousarray(a.transpose(order))

    def conv2d(self, x: Any, w: Any, padding: int) -> Any:
        x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding))) if padding else x
        windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
        product = np.tensordot(windows, w, axes=((1, 4, 5), (1, 2, 3)))
        return np.ascontiguousarray(product.transpose(0, 3, 1, 2))


class Torch(Library):
    """PyTorch, eager."""

    name, module, install = "torch", "torch", "pip install 'tilewright[torch]'"

    def set_threads(self, threads: int) -> None:
        self.xp.set_num_threads(threads)

    def asarray(self, array: np.ndarray) -> Any:
        return self.xp.from_numpy(array).clone()  # in its own memory, aligned as it likes

    def compile(self, function: Callable[..., Any]) -> Compiled:
        return self.xp.inference_mode()(function)

    def relu(self, a: Any) -> Any:
        return self.xp.relu(a)

    def sum(self, a: Any, axis: int | None = None) -> Any:
        return a.sum() if axis is None else a.sum(axis)

    def concat(self, parts: list[Any], axis: int) -> Any:
        return self.xp.cat(parts, axis)

    def view_permuted(self, a: Any, order: tuple[int, ...]) -> Any:
        return a.permute(order)

    def permute(self, a: Any, order: tuple[int, ...]) -> Any:
        return a.permute(order).contiguous()

    def conv2d(self, x: Any, w: Any, padding: int) -> Any:
        return self.xp.nn.functional.conv2d(x, w, padding=padding)

    def softmax(self, a: Any) -> Any:
        return self.xp.softmax(a, -1)

    def layer_norm(self, a: Any) -> Any:
        return self.xp.nn.functional.layer_norm(a, a.shape[-1:])

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        return self.xp.nn.functional.scaled_dot_product_attention(q, k, v)


class Jax(Library):
    name, module, install = "jax", "jax", "pip install 'tilewright[bench]'"

    def __init__(self) -> None:
        super().__init__()
        self.jax, self.xp = self.xp, importlib.import_module("jax.numpy")

    @property
    def version(self) -> str:
        return str(self.jax.__version__)

    def asarray(self, array: np.ndarray) -> Any:
        return self.xp.asarray(array)

    def compile(self, function: Callable[..., Any]) -> Compiled:
        jitted = self.jax.jit(function)
        return lambda *args: jitted(*args).block_until_ready()

    def relu(self, a: Any) -> Any:
        return self.jax.nn.relu(a)

    def conv2d(self, x: Any, w: Any, padding: int) -> Any:
        return self.jax.lax.conv(x, w, (1, 1), [(padding, padding)] * 2)

    def softmax(self, a: Any) -> Any:
        return self.jax.nn.softmax(a)


class Tinygrad(Library):
    """tinygrad under its TinyJit, without kernel search. It compiles with clang."""

    name, module, install = "tinygrad", "tinygrad", "pip install 'tilewright[bench]', and clang"

    @classmethod
    def available(cls) -> bool:
        return super().available() and shutil.which("clang") is not None

    @property
    def version(self) -> str:
        return importlib.metadata.version("tinygrad")

    def asarray(self, array: np.ndarray) -> Any:
        return self.xp.Tensor(array, device="CPU").realize()

    def compile(self, function: Callable[..., Any]) -> Compiled:
        device = self.xp.Device["CPU"]
        jitted = self.xp.TinyJit(lambda *args: function(*args).contiguous().realize())

        def call(*args: Any) -> Any:
            result = jitted(*args)
            device.synchronize()
            return result

        return call

    def numpy(self, result: Any) -> np.ndarray:
        return result.numpy()

    def exp(self, a: Any) -> Any:
        return a.exp()

    def sqrt(self, a: Any) -> Any:
        return a.sqrt()

    def relu(self, a: Any) -> Any:
        return a.relu()

    def sum(self, a: Any, axis: int | None = None) -> Any:
        return a.sum(axis)

    def max(self, a: Any) -> Any:
        return a.max()

    def concat(self, parts: list[Any], axis: int) -> Any:
        return parts[0].cat(*parts[1:], dim=axis)

    def view_permuted(self, a: Any, order: tuple[int, ...]) -> Any:
        return a.permute(order)

    def matmul(self, a: Any, b: Any) -> Any:
        return a.matmul(b)

    def conv2d(self, x: Any, w: Any, padding: int) -> Any:
        return x.conv2d(w, padding=padding)

    def softmax(self, a: Any) -> Any:
        return a.softmax(-1)

    def layer_norm(self, a: Any) -> Any:
        return a.layernorm()

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        return q.scaled_dot_product_attention(k, v)


PEERS: dict[str, type[Library]] = {p.name: p for p in (NumPy, Torch, Jax, Tinygrad)}


def installed() -> dict[str, bool]:
    """Tell which peers can be used here."""
    return {name: peer.available() for name, peer in PEERS.items()}
