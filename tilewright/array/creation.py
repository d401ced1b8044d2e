"""Creation functions. Without a `dtype`, Python floats give float32 and integers int64."""

from __future__ import annotations

from math import ceil
from typing import Any

from tilewright.array import build as b
from tilewright.array import elementwise as e
from tilewright.array.convert import DEFAULT_FLOAT, ArrayLike, asarray, number_dtype, to_node
from tilewright.array.elementwise import Binary
from tilewright.array.tensor import Tensor, check_device
from tilewright.dtypes import DType, as_dtype, float64, int64
from tilewright.errors import DTypeError, ShapeError


def array(obj: ArrayLike, dtype: Any = None, *, device: str | None = None,
          copy: bool | None = None) -> Tensor:
    """Return `obj` as a tensor; NumPy's spelling of `asarray`."""
    return asarray(obj, dtype=dtype, device=device, copy=copy)


def _dtype(dtype: Any, default: DType) -> DType:
    return default if dtype is None else as_dtype(dtype)


def full(shape: Any, fill_value: ArrayLike, dtype: Any = None,
         *, device: str | None = None) -> Tensor:
    """Return a tensor of `shape` filled with one value, in the value's dtype unless given."""
    check_device("full", device)
    node = to_node(fill_value, None if dtype is None else as_dtype(dtype))
    if isinstance(fill_value, Tensor) and fill_value._weak and dtype is None:
        node = b.cast(node, number_dtype(fill_value))
    sizes = b.normalize_shape("full", shape)
    if node.ndim:
        raise ShapeError(f"full: cannot fill {list(sizes)} with {b.describe(node)} "
                         "(needs one value)")
    return Tensor(b.expand(node, sizes))


def zeros(shape: Any, dtype: Any = None, *, device: str | None = None) -> Tensor:
    """Return zeros, float32 unless `dtype` is given."""
    return full(shape, 0, dtype=_dtype(dtype, DEFAULT_FLOAT), device=device)


def ones(shape: Any, dtype: Any = None, *, device: str | None = None) -> Tensor:
    """Return ones, float32 unless `dtype` is given."""
    return full(shape, 1, dtype=_dtype(dtype, DEFAULT_FLOAT), device=device)


def empty(shape: Any, dtype: Any = None, *, device: str | None = None) -> Tensor:
    """Return a tensor whose values do not matter: zeros, which cost nothing until they are used."""
    return zeros(shape, dtype=dtype, device=device)


def full_like(x: ArrayLike, /, fill_value: ArrayLike, dtype: Any = None,
              *, device: str | None = None) -> Tensor:
    """Return a tensor like x, filled with one value."""
    node = to_node(x)
    return full(node.shape, fill_value, dtype=_dtype(dtype, node.dtype), device=device)


def zeros_like(x: ArrayLike, /, dtype: Any = None, *, device: str | None = None) -> Tensor:
    """Return zeros of the shape and dtype of x."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: ArrayLike, /, dtype: Any = None, *, device: str | None = None) -> Tensor:
    """Return ones of the shape and dtype of x."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: ArrayLike, /, dtype: Any = None, *, device: str | None = None) -> Tensor:
    """Return a tensor like x whose values do not matter."""
    return zeros_like(x, dtype=dtype, device=device)


def _number(name: str, value: Any) -> int | float:
    """Return a Python number; a tensor of one element is read."""
    if isinstance(value, (int, float)):
        return value
    if getattr(value, "ndim", 1) == 0:
        return value.item()
    raise DTypeError(f"{name}: cannot use {value!r} (needs a number)")


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None,
           device: str | None = None) -> Tensor:
    """Return start, start + step, .. below `stop` (from 0 if one number is given).

    int64 if all are integers, else float32. Raises ShapeError for a step of 0.
    """
    check_device("arange", device)
    start, stop, step = (None if v is None else _number("arange", v) for v in (start, stop, step))
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ShapeError(f"arange: cannot go from {start} to {stop} in steps of 0")
    whole = all(isinstance(v, int) for v in (start, stop, step))
    target = _dtype(dtype, int64 if whole else DEFAULT_FLOAT)
    if target.is_bool:
        raise DTypeError("arange: cannot count in bool (needs integers or floats)")
    size = max(0, len(range(start, stop, step)) if whole else ceil((stop - start) / step))
    # counted in the widest dtype of its kind, so that float32 steps do not drift
    wide = int64 if whole and target.name != "uint64" else target if whole else float64
    places = Tensor(b.build("iota", size=size, dtype=wide))
    if step != 1:
        places = e.multiply(places, step)
    return Tensor(b.cast((e.add(places, start) if start != 0 else places)._node, target))


def linspace(start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: str | None = None,
             endpoint: bool = True) -> Tensor:
    """Return `num` evenly spaced numbers from `start` to `stop`, the last one if `endpoint`."""
    check_device("linspace", device)
    low, high = _number("linspace", start), _number("linspace", stop)
    if num < 0:
        raise ShapeError(f"linspace: cannot make {num} numbers (needs at least 0)")
    target = _dtype(dtype, DEFAULT_FLOAT)
    gaps = num - 1 if endpoint else num
    step = (high - low) / gaps if gaps > 0 else 0.0
    places = Tensor(b.build("iota", size=num, dtype=float64))
    values = e.add(e.multiply(places, step), float(low))
    if endpoint and num > 1:
        values = e.select(e.equal(places, num - 1), float(high), values)
    return Tensor(b.cast(values._node, target))


def _diagonal_mask(rows: int, columns: int, k: int, compare: Binary) -> Tensor:
    """Return compare(column - row, k) as bool (rows, columns)."""
    i = Tensor(b.iota(rows, int64, 0, 2))
    j = Tensor(b.iota(columns, int64, 1, 2))
    return compare(e.subtract(j, i), k)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None,
        device: str | None = None) -> Tensor:
    """Return (n_rows, n_cols) with ones on the diagonal `k` (above the main one if positive)."""
    check_device("eye", device)
    rows, columns = b.normalize_shape("eye", (n_rows, n_rows if n_cols is None else n_cols))
    mask = _diagonal_mask(rows, columns, k, e.equal)
    return Tensor(b.cast(mask._node, _dtype(dtype, DEFAULT_FLOAT)))


def _triangle(name: str, x: ArrayLike, k: int, compare: Any) -> Tensor:
    node = to_node(x)
    if node.ndim < 2:
        raise ShapeError(f"{name}: cannot cut {b.describe(node)} (needs at least 2 axes)")
    zero = Tensor(b.scalar(0, node.dtype))
    mask = _diagonal_mask(node.shape[-2], node.shape[-1], k, compare)
    return e.select(mask, Tensor(node), zero)


def tril(x: ArrayLike, /, k: int = 0) -> Tensor:
    """Return x with zeros above the diagonal `k` of its last two axes."""
    return _triangle("tril", x, k, e.less_equal)


def triu(x: ArrayLike, /, k: int = 0) -> Tensor:
    """Return x with zeros below the diagonal `k` of its last two axes."""
    return _triangle("triu", x, k, e.greater_equal)


def meshgrid(*arrays: ArrayLike, indexing: str = "xy") -> list[Tensor]:
    """Return coordinate grids of one-axis tensors; "xy" exchanges the first two axes, "ij" not."""
    if indexing not in ("xy", "ij"):
        raise ShapeError(f"meshgrid: cannot index by {indexing!r} ('xy' or 'ij')")
    nodes = [to_node(a) for a in arrays]
    if any(n.ndim > 1 for n in nodes):
        raise ShapeError(f"meshgrid: cannot use {', '.join(map(b.describe, nodes))} "
                         "(needs tensors of one axis)")
    shape = tuple(n.size for n in nodes)
    lifted = [b.reshape(n, tuple(n.size if i == d else 1 for i in range(len(nodes))))
              for d, n in enumerate(nodes)]
    grids = [b.expand(n, shape) for n in lifted]
    if indexing == "xy" and len(nodes) > 1:
        grids = [b.permute(g, (1, 0, *range(2, len(nodes)))) for g in grids]
    return [Tensor(g) for g in grids]


def astype(x: ArrayLike, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Tensor:
    """Return x as `dtype`. Floats become integers by truncation, then wrap; bool is "not 0"."""
    check_device("astype", device)
    return Tensor(b.cast(to_node(x), as_dtype(dtype)))


def view_bits(x: ArrayLike, dtype: Any, /) -> Tensor:
    """Return the bits of x read as `dtype` of the same width."""
    node, target = to_node(x), as_dtype(dtype)
    if node.dtype.itemsize != target.itemsize or target.is_bool != node.dtype.is_bool:
        raise DTypeError(f"view_bits: cannot read {b.describe(node)} as {target} "
                         "(widths must be equal)")
    return Tensor(node if node.dtype == target else b.build("bitcast", node, dtype=target))


def tri(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None) -> Tensor:
    """Return (n_rows, n_cols) with ones on and below the diagonal `k`."""
    rows, columns = b.normalize_shape("tri", (n_rows, n_rows if n_cols is None else n_cols))
    mask = _diagonal_mask(rows, columns, k, e.less_equal)
    return Tensor(b.cast(mask._node, _dtype(dtype, DEFAULT_FLOAT)))
