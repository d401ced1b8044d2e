"""From what users pass (tensors, arrays, numbers, nested lists) to nodes of one dtype and shape.

Promotion is the array API standard's. Python numbers are weak: they take the dtype of the tensors
they meet, except that a float makes integers ``float32`` and an integer makes bool ``int64``.
NumPy scalars and arrays are strong. Alone, Python floats are ``float32`` and integers ``int64``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.array import build as b
from tilewright.array.tensor import Tensor, check_device, copied, from_numpy
from tilewright.dtypes import DType, as_dtype, bool_, float32, float64, int64, promote
from tilewright.errors import DTypeError, ShapeError
from tilewright.graph import Node

ArrayLike = Any
DEFAULT_FLOAT, DEFAULT_INT = float32, int64
_ORDER = {"b": 0, "i": 1, "u": 1, "f": 2}


def is_weak(value: object) -> bool:
    """Tell whether `value` is a Python number, or a tensor standing for a traced one."""
    return (isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)) or (
        isinstance(value, Tensor) and value._weak)


def is_operand(value: object) -> bool:
    """Tell whether a Python operator may take `value` beside a tensor."""
    return isinstance(value, (Tensor, bool, int, float, np.ndarray, np.generic, list, tuple))


def _weak_kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return value.dtype.kind
    return "b" if isinstance(value, bool) else "i" if isinstance(value, int) else "f"


def number_dtype(value: Any) -> DType:
    """Return the default dtype of a Python number."""
    return {"b": bool_, "i": DEFAULT_INT, "u": DEFAULT_INT, "f": DEFAULT_FLOAT}[_weak_kind(value)]


def to_node(value: ArrayLike, dtype: DType | None = None) -> Node:
    """Return `value` as a node, cast to `dtype` if given."""
    if isinstance(value, Tensor):
        node = value._node
    elif is_weak(value):
        return b.scalar(value, dtype or number_dtype(value))
    else:
        node = asarray(value)._node
    return node if dtype is None else b.cast(node, dtype)


def common_dtype(name: str, values: Sequence[ArrayLike]) -> DType:
    """Return the dtype that `values` (nodes, tensors, Python numbers) promote to."""
    strong: DType | None = None
    weak = "b"
    for value in values:
        if is_weak(value):
            weak = max(weak, _weak_kind(value), key=_ORDER.__getitem__)
        else:
            strong = value.dtype if strong is None else promote(strong, value.dtype)
    if strong is None:
        traced = any(isinstance(v, Tensor) for v in values)
        return {"b": bool_, "f": float64 if traced else DEFAULT_FLOAT}.get(weak, DEFAULT_INT)
    if weak == "f" and not strong.is_float:
        return DEFAULT_FLOAT
    return DEFAULT_INT if weak in "iu" and strong.is_bool else strong


def unify(name: str, *values: ArrayLike) -> list[Node]:
    """Return `values` as nodes of their common dtype, shapes as they are."""
    if len(values) == 2:  # the usual case, short: two tensors, or a tensor and a Python number
        x, y = values
        if type(x) is Tensor and type(y) is Tensor and x._node.dtype == y._node.dtype:
            return [x._node, y._node]
    known = [v if is_weak(v) or isinstance(v, (Tensor, Node)) else asarray(v) for v in values]
    dtype = common_dtype(name, known)
    return [v if isinstance(v, Node) and v.dtype == dtype else
            b.cast(v, dtype) if isinstance(v, Node) else to_node(v, dtype) for v in known]


def broadcast(name: str, nodes: Sequence[Node]) -> list[Node]:
    """Return `nodes` expanded to one shape; raises ShapeError naming shapes and dtypes."""
    first = nodes[0].shape
    if all(n.shape == first for n in nodes):
        return list(nodes)
    try:
        shape = b.broadcast_shape(name, [n.shape for n in nodes])
    except ShapeError as error:
        listed = " with ".join(b.describe(n) for n in nodes)
        reason = str(error)[str(error).rindex(" ("):]
        raise ShapeError(f"{name}: cannot broadcast {listed}{reason}") from None
    return [b.expand(n, shape) for n in nodes]


def all_weak(values: Sequence[ArrayLike]) -> bool:
    """Tell whether a result is itself a traced Python number: every operand is, or is a number."""
    return any(isinstance(v, Tensor) and v._weak for v in values) and all(map(is_weak, values))


def _from_sequence(value: Sequence, dtype: DType | None) -> Tensor:
    """Convert nested lists; lists that hold tensors are stacked."""
    leaves: list = []
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, (list, tuple)):
            stack.extend(top)
        else:
            leaves.append(top)
    if any(isinstance(leaf, Tensor) for leaf in leaves):
        return _stack(value, dtype)
    try:
        array = np.asarray(value)
    except ValueError:
        raise ShapeError("asarray: cannot make a tensor from nested lists "
                         "(their lengths differ)") from None
    if dtype is None and not any(isinstance(leaf, (np.ndarray, np.generic)) for leaf in leaves):
        dtype = {"f": DEFAULT_FLOAT}.get(array.dtype.kind)
    return _from_array(array, dtype)


def _stack(value: Sequence, dtype: DType | None) -> Tensor:
    """Stack a nested list with tensors in it; recursion over the nesting only."""
    parts = [asarray(v) if not is_weak(v) else v for v in value]
    nodes = broadcast("asarray", unify("asarray", *parts))
    if dtype is not None:
        nodes = [b.cast(n, dtype) for n in nodes]
    return Tensor(b.concat([b.reshape(n, (1, *n.shape)) for n in nodes], 0))


def _from_array(array: np.ndarray, dtype: DType | None) -> Tensor:
    """Copy a NumPy array into a tensor."""
    if array.dtype.kind in "OSUVMmc" and array.dtype.name != "bfloat16":
        raise DTypeError(f"asarray: cannot convert {array.dtype} data of shape "
                         f"{list(array.shape)} to a tensor (needs bool, integers or real floats)")
    if dtype is None:
        dtype = as_dtype(array.dtype.newbyteorder("="))
    with np.errstate(over="ignore", invalid="ignore"):
        return copied(array, dtype)


def asarray(obj: ArrayLike, /, dtype: Any = None, *, device: str | None = None,
            copy: bool | None = None) -> Tensor:
    """Return `obj` as a tensor: a tensor, NumPy array or scalar, Python number, or nested lists.

    Values are copied (later changes of a NumPy array do not reach the tensor), except with
    ``copy=False``, which shares the memory of a C-contiguous NumPy array and raises ValueError
    where it cannot; then the array must not be changed while tensors made from it are in use.
    Copies start at a cache line. NumPy's memory often does not, and kernels on what is shared, or
    on arrays that are passed to a jitted function, may take a third longer where a cache holds it.
    Python floats become ``float32``, Python integers ``int64``; NumPy data keeps its dtype.
    """
    check_device("asarray", device)
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(obj, Tensor):
        node = obj._node
        if wanted is not None and wanted != node.dtype:
            if copy is False:
                raise ValueError(f"asarray: cannot convert {node.dtype} to {wanted} without a copy")
            return Tensor(b.cast(node, wanted))
        return Tensor(node) if copy else obj
    if is_weak(obj):
        return Tensor(b.scalar(obj, wanted or number_dtype(obj)))
    if copy is False:
        return _shared(obj, wanted)
    if isinstance(obj, (np.ndarray, np.generic)):
        return _from_array(np.asarray(obj), wanted)
    if isinstance(obj, (list, tuple)):
        return _from_sequence(obj, wanted)
    if hasattr(obj, "__dlpack__") and not hasattr(obj, "__array__"):
        return from_dlpack(obj)
    if hasattr(obj, "__array__") or isinstance(obj, (memoryview, bytearray, range)):
        return _from_array(np.asarray(obj), wanted)
    raise DTypeError(f"asarray: cannot convert {type(obj).__name__} to a tensor "
                     "(needs an array, a number or nested lists of numbers)")


def _shared(obj: ArrayLike, dtype: DType | None) -> Tensor:
    if not isinstance(obj, np.ndarray) or not obj.flags.c_contiguous or not obj.dtype.isnative \
            or (dtype is not None and dtype.numpy != obj.dtype):
        raise ValueError("asarray: cannot share this object's memory without a copy "
                         "(needs a C-contiguous NumPy array of the same dtype)")
    return from_numpy(obj, as_dtype(obj.dtype))


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return a tensor of the data of any object with ``__dlpack__``.

    Row-major contiguous memory is shared (the other side must not write to it while tensors made
    from it are in use); any other strides are copied. ``copy`` forces or forbids that.
    """
    check_device("from_dlpack", device)
    if isinstance(x, Tensor):
        return Tensor(x._node)
    try:
        array = np.from_dlpack(x)
    except (AttributeError, TypeError):
        raise DTypeError(f"from_dlpack: cannot read {type(x).__name__} "
                         "(it has no __dlpack__)") from None
    if copy or not array.flags.c_contiguous:
        if copy is False:
            raise ValueError(f"from_dlpack: cannot share strides {array.strides} without a copy "
                             "(needs row-major contiguous memory)")
        return _from_array(array, None)
    return from_numpy(array, as_dtype(array.dtype))
