"""`Tensor`: a mutable handle on an immutable graph node.

Operators and most methods are attached by `array.methods`, which stands after the functions they
call; their types are declared here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.array import tree as trees
from tilewright.array.build import remember, with_known_values
from tilewright.dtypes import DType
from tilewright.errors import DTypeError, ShapeError, TraceError
from tilewright.graph import Node, buffer
from tilewright.plan.realize import realize as compute
from tilewright.runtime.memory import allocator
from tilewright.runtime.storage import Storage

if TYPE_CHECKING:
    from tilewright.array.declared import DeclaredMethods
else:
    DeclaredMethods = object

# the trace in force, if any (see jit.trace): it has `storage(tensor)` and `realize(tensors)`
tracing: ContextVar[Any] = ContextVar("tilewright_tracing", default=None)


class Tensor(DeclaredMethods):
    """A lazy array of shape `shape` and dtype `dtype` on `device`.

    Operations return new tensors and compute nothing; a value is computed when it is asked for
    (``numpy``, ``item``, ``print``, ``bool``) and then kept, and the graph behind it is dropped.
    Writing (``x[i] = v``, ``x += 1``) changes what this handle stands for: no two handles share
    memory, so other tensors never change with it. Tensors are not hashable.

    Made by `asarray` and the other creation functions, never by calling the class.
    """

    __slots__ = ("__weakref__", "_node", "_weak")
    __array_priority__ = 1000
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, node: Node, weak: bool = False):
        if not isinstance(node, Node):
            raise DTypeError(f"Tensor: cannot wrap {type(node).__name__} "
                             "(use tilewright.asarray to make a tensor)")
        self._node = node
        # a weak tensor is a traced Python number: it promotes as the number would
        self._weak = weak

    # what the tensor is

    @property
    def shape(self) -> tuple[int, ...]:
        return self._node.shape

    @property
    def dtype(self) -> DType:
        return self._node.dtype

    @property
    def ndim(self) -> int:
        return len(self._node.shape)

    @property
    def size(self) -> int:
        return prod(self._node.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> str:
        return "cpu"

    def to_device(self, device: str, /, *, stream: object = None) -> Tensor:
        """Return this tensor on `device`; only "cpu" exists here."""
        check_device("to_device", device)
        return self

    # its values

    def _storage(self) -> Storage:
        trace = tracing.get()
        if trace is not None:
            return trace.storage(self)
        realize([self])
        return self._node.attrs.storage

    def numpy(self) -> np.ndarray:
        """Return the values as a read-only NumPy array that shares memory with this tensor."""
        view = self._storage().array.reshape(self.shape).view()
        view.flags.writeable = False
        return view

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        view = self.numpy()
        if dtype is not None and np.dtype(dtype) != view.dtype:
            if copy is False:
                raise ValueError(f"__array__: cannot convert {self.dtype} to {np.dtype(dtype)} "
                                 "without a copy")
            return view.astype(dtype)
        return view.copy() if copy else view

    def item(self, *index: Any) -> Any:
        """Return one element as a Python number: the only one, or that at `index`."""
        if not index and self.size != 1:
            raise ShapeError(f"item: cannot turn {self.dtype}{list(self.shape)} into one number "
                             f"(it has {self.size} elements; give an index)")
        value = self.numpy().item(*index)
        return value if isinstance(value, (bool, int, float)) else float(value)

    def tolist(self) -> Any:
        """Return the values as nested lists of Python numbers."""
        values = self.numpy()
        return (values.astype(np.float32) if self.dtype.name == "bfloat16" else values).tolist()

    def block_until_ready(self) -> Tensor:
        """Compute the values now and return this tensor."""
        realize([self])
        return self

    # conversions to Python numbers

    def _only(self, kind: str) -> Any:
        if self.size != 1:
            raise ShapeError(f"{kind}: cannot convert {self.dtype}{list(self.shape)} to one {kind} "
                             f"(it has {self.size} elements{_hint(kind)})")
        return self.item()

    def __bool__(self) -> bool:
        return bool(self._only("bool"))

    def __int__(self) -> int:
        return int(self._only("int"))

    def __float__(self) -> float:
        return float(self._only("float"))

    def __complex__(self) -> complex:
        return complex(self._only("complex"))

    def __index__(self) -> int:
        if self.ndim or not self.dtype.is_integer:
            raise DTypeError(f"index: cannot use {self.dtype}{list(self.shape)} as an index "
                             "(needs one integer, shape ())")
        return self.item()

    def __len__(self) -> int:
        if not self.ndim:
            raise DTypeError("len: cannot measure a tensor of shape () (it has no axes)")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.ndim:
            raise DTypeError("iter: cannot iterate over a tensor of shape () (it has no axes)")
        return (self[i] for i in range(self.shape[0]))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.size == 1 else format(str(self), spec)

    def __repr__(self) -> str:
        try:
            values = self.numpy()
        except TraceError:
            return f"<Tensor {self.dtype}{list(self.shape)}, value not known while tracing>"
        text = np.array2string(values, separator=", ", prefix="Tensor(", threshold=1000)
        empty = f", shape={self.shape}" if not self.size else ""
        return f"Tensor({text}{empty}, dtype={self.dtype})"

    def __str__(self) -> str:
        try:
            return str(self.numpy())
        except TraceError:
            return repr(self)

    # exchange with other libraries

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"__array_namespace__: cannot serve version {api_version!r} "
                             "(2024.12 and earlier)")
        return sys.modules["tilewright"]

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, *, stream: object = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """Return a DLPack capsule: read-only shared memory from DLPack 1.0 on, a copy before.

        Raises BufferError for bfloat16 (NumPy cannot export it) or another device than the CPU.
        """
        if self.dtype.name == "bfloat16":
            raise BufferError("dlpack: cannot export bfloat16 (cast to float32 first)")
        if dl_device not in (None, (1, 0)):
            raise BufferError(f"dlpack: cannot export to device {dl_device} (only the CPU, (1, 0))")
        values = self.numpy()
        if copy or max_version is None or tuple(max_version) < (1, 0):
            if copy is False:
                raise BufferError("dlpack: cannot share read-only memory before DLPack 1.0 "
                                  "(allow a copy)")
            return values.copy().__dlpack__()
        return values.__dlpack__(max_version=(max_version[0], max_version[1]))

    def __reduce__(self) -> tuple:
        return copied, (np.array(self.numpy()), self.dtype)

    def __copy__(self) -> Tensor:
        return Tensor(self._node, self._weak)

    def __deepcopy__(self, memo: dict) -> Tensor:
        return Tensor(self._node, self._weak)

    def copy(self) -> Tensor:
        """Return a new handle on the same values; writing to one leaves the other alone."""
        return Tensor(self._node)

    def _assign(self, node: Node) -> Tensor:
        """Make this handle stand for `node`: every write ends here."""
        self._node = node
        return self


def _hint(kind: str) -> str:
    return "; use any() or all()" if kind == "bool" else ""


def check_device(name: str, device: object) -> None:
    """Raise ValueError unless `device` is None or the CPU."""
    if device not in (None, "cpu"):
        raise ShapeError(f"{name}: cannot place a tensor on device {device!r} (only 'cpu' exists)")


def from_numpy(array: np.ndarray, dtype: DType) -> Tensor:
    """Wrap a C-contiguous array of `dtype` that nobody writes to; no copy."""
    return Tensor(buffer(Storage(array, dtype), array.shape, dtype))


def copied(array: np.ndarray, dtype: DType) -> Tensor:
    """Return a tensor with an array's values, converted to `dtype`, in memory of its own."""
    return Tensor(buffer(allocator.copy(array, dtype), array.shape, dtype))


def realize(tensors: Iterable[Tensor]) -> None:
    """Compute all `tensors` together; each handle then stands for a buffer.

    While a function is traced, the trace decides: it may know no values, or need the graphs.
    """
    trace = tracing.get()
    if trace is not None:
        return trace.realize(tensors)
    waiting = [t for t in tensors if t._node.op.name != "buffer"]
    if not waiting:
        return
    nodes = [t._node for t in waiting]
    for tensor, node, storage in zip(waiting, nodes, compute(with_known_values(nodes))):
        leaf = buffer(storage, node.shape, node.dtype)
        remember(node, leaf)
        tensor._node = leaf


def block_until_ready(tree: Any) -> Any:
    """Compute every tensor in `tree` (tuples, lists, dicts), all together, and return `tree`."""
    realize(leaf for leaf in trees.leaves_of(tree) if isinstance(leaf, Tensor))
    return tree
