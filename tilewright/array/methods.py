"""Attach operators and methods to `Tensor`. Their types are declared in `array.declared`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.array import creation, linalg, manipulate, searching
from tilewright.array import elementwise as e
from tilewright.array import reductions as r
from tilewright.array.convert import is_operand
from tilewright.array.indexing import read
from tilewright.array.tensor import Tensor
from tilewright.array.writes import At, write
from tilewright.errors import DTypeError, ShapeError


def _operator(function: Callable, reflected: bool = False) -> Callable:
    if reflected:
        def method(self: Tensor, other: Any) -> Any:
            return function(other, self) if is_operand(other) else NotImplemented
    else:
        def method(self: Tensor, other: Any) -> Any:
            return function(self, other) if is_operand(other) else NotImplemented
    return method


def _in_place(name: str, function: Callable) -> Callable:
    def method(self: Tensor, other: Any) -> Any:
        if not is_operand(other):
            return NotImplemented
        result = function(self, other)
        if result.shape != self.shape:
            raise ShapeError(f"{name}: cannot write {result.dtype}{list(result.shape)} into "
                             f"{self.dtype}{list(self.shape)} in place (shapes differ)")
        if result.dtype != self.dtype:
            loses = (result.dtype.is_float and not self.dtype.is_float) or self.dtype.is_bool \
                or (result.dtype.kind == "i" and self.dtype.kind == "u")
            if loses:
                raise DTypeError(f"{name}: cannot write {result.dtype} into "
                                 f"{self.dtype}{list(self.shape)} in place (cast first)")
            result = creation.astype(result, self.dtype)
        return self._assign(result._node)
    return method


_ARITHMETIC = {
    "add": e.add, "sub": e.subtract, "mul": e.multiply, "truediv": e.divide,
    "floordiv": e.floor_divide, "mod": e.remainder, "pow": e.pow, "matmul": linalg.matmul,
    "and": e.bitwise_and, "or": e.bitwise_or, "xor": e.bitwise_xor,
    "lshift": e.bitwise_left_shift, "rshift": e.bitwise_right_shift,
}
_COMPARISONS = {"eq": e.equal, "ne": e.not_equal, "lt": e.less, "le": e.less_equal,
                "gt": e.greater, "ge": e.greater_equal}
_UNARY = {"neg": e.negative, "pos": e.positive, "abs": e.abs, "invert": e.bitwise_invert,
          "floor": e.floor, "ceil": e.ceil, "trunc": e.trunc}


def _contains(self: Tensor, value: Any) -> bool:
    return bool(r.any(e.equal(self, value)))


def _set_item(self: Tensor, key: Any, value: Any) -> None:
    self._assign(write("set", self, key, value))


def _rounded(self: Tensor, decimals: int = 0) -> Tensor:
    """Return the elements rounded to `decimals` places, halves to even."""
    return e.round(self, decimals)


def _varargs(name: str, args: tuple) -> Any:
    """Return method arguments given one by one or as one sequence."""
    return args[0] if len(args) == 1 and not hasattr(args[0], "__index__") else args


def _reshape(self: Tensor, *shape: Any) -> Tensor:
    """Return the tensor with `shape`: sizes one by one or as a tuple, one of which may be -1."""
    return manipulate.reshape(self, _varargs("reshape", shape))


def _transpose(self: Tensor, *axes: Any) -> Tensor:
    """Return the tensor with axes reversed, or in the given order."""
    return manipulate.transpose(self, _varargs("transpose", axes) if axes else None)


def _permute(self: Tensor, *axes: Any) -> Tensor:
    """Return the tensor with its axes in the given order."""
    return manipulate.permute_dims(self, _varargs("permute", axes))


def _squeeze(self: Tensor, axis: Any = None) -> Tensor:
    """Return the tensor without size-1 axes, or without those named."""
    return manipulate.squeeze(self, axis)


def _repeat(self: Tensor, repeats: Any, axis: int | None = None) -> Tensor:
    """Return the tensor with each element along `axis` repeated."""
    return manipulate.repeat(self, repeats, axis=axis)


def _take(self: Tensor, indices: Any, axis: int | None = None) -> Tensor:
    """Return the elements at `indices` along `axis`."""
    return manipulate.take(self, indices, axis=axis)


def _fill(self: Tensor, value: Any) -> None:
    """Set every element to `value`."""
    self[...] = value


def _reduction_method(function: Callable) -> Callable:
    """Make a method; NumPy's functions call it with ``out=None``."""
    def method(self: Tensor, axis: Any = None, *, out: None = None, **options: Any) -> Tensor:
        if out is not None:
            raise DTypeError(f"{function.__name__}: cannot write to out= (tensors are values)")
        return function(self, axis=axis, **options)
    method.__name__ = method.__qualname__ = function.__name__
    method.__doc__ = function.__doc__
    return method


def _sort(self: Tensor, axis: int = -1, **options: Any) -> Tensor:
    """Return the tensor sorted along `axis` (a new tensor, unlike NumPy's method)."""
    return searching.sort(self, axis=axis, **options)


def _argsort(self: Tensor, axis: int = -1, **options: Any) -> Tensor:
    """Return the places that sort the tensor along `axis`."""
    return searching.argsort(self, axis=axis, **options)


def attach() -> None:
    """Give `Tensor` its operators and methods."""
    for name, function in _ARITHMETIC.items():
        setattr(Tensor, f"__{name}__", _operator(function))
        setattr(Tensor, f"__r{name}__", _operator(function, reflected=True))
        setattr(Tensor, f"__i{name}__", _in_place(function.__name__, function))
    for name, function in _COMPARISONS.items():
        setattr(Tensor, f"__{name}__", _operator(function))
    for name, unary in _UNARY.items():
        setattr(Tensor, f"__{name}__", unary)
    for method in (r.sum, r.prod, r.max, r.min, r.mean, r.var, r.std, r.all, r.any,
                   r.argmax, r.argmin, r.logsumexp, r.count_nonzero):
        setattr(Tensor, method.__name__, _reduction_method(method))
    plain = {
        "__divmod__": _operator(e.divmod), "__rdivmod__": _operator(e.divmod, reflected=True),
        "__contains__": _contains, "__getitem__": read, "__setitem__": _set_item,
        "__round__": _rounded, "round": _rounded, "reshape": _reshape, "transpose": _transpose,
        "permute": _permute, "squeeze": _squeeze, "repeat": _repeat, "take": _take, "fill": _fill,
        "sort": _sort, "argsort": _argsort, "flatten": manipulate.flatten,
        "ravel": manipulate.flatten, "astype": creation.astype, "clip": e.clip,
        "cumsum": r.cumsum, "cumprod": r.cumprod, "dot": linalg.dot, "matmul": linalg.matmul,
        "swapaxes": manipulate.swapaxes, "nonzero": searching.nonzero,
        "T": property(manipulate.transpose, doc="The tensor with its axes reversed."),
        "mT": property(manipulate.matrix_transpose, doc="Last two axes exchanged."),
        "at": property(At, doc="Functional writes: x.at[key].set(v), add, multiply, min, max."),
    }
    for name, value in plain.items():
        setattr(Tensor, name, value)


attach()
