"""Further steps of random programs: sources, host functions, writes in place, tensor products."""

from __future__ import annotations

import numpy as np
import program_reference as ref
from hypothesis import strategies as st
from program_builder import INT, Builder
from program_reference import FLOATS, Value
from program_steps import exact
from program_steps_arrays import draw_key, move, solid, spell_key


def source(b: Builder) -> None:
    """A value that no input gives."""
    name = b.draw(st.sampled_from(["int32", "int64", "uint8", "float32", "float64"]))
    kind, n = b.draw(INT(0, 3)), b.draw(INT(0, 9))
    start, by = b.draw(INT(0, 5)), b.draw(st.sampled_from([1, 2, 5]))
    if kind == 0:
        array = np.arange(start, start + n, by).astype(name)
        b.add(f"tw.arange({start}, {start + n}, {by}, dtype=tw.{name})", array)
    elif kind == 1:
        b.add(f"tw.eye({n}, {start}, k={by - 2}, dtype=tw.{name})",
              np.eye(n, start, k=by - 2).astype(name))
    elif kind == 2:
        b.add(f"tw.full(({n}, {by}), {start}, dtype=tw.{name})", np.full((n, by), start, name))
    else:
        array = np.broadcast_to(np.arange(n).astype(name)[:, None], (n, by))
        b.add(f"tw.meshgrid(tw.arange({n}, dtype=tw.{name}), tw.zeros({by}), indexing='ij')[0]",
              array)


def sort(b: Builder) -> None:
    """NumPy's sort runs between kernels."""
    v = b.pick(lambda v: v.exact and solid(v))
    if v is None:
        return
    axis, name = b.axis(v), b.draw(st.sampled_from(["sort", "argsort"]))
    x = v.array.astype(np.float32) if v.dtype == "bfloat16" else v.array
    result = getattr(np, name)(x, axis=axis, kind="stable")
    b.add(f"tw.{name}({{0}}, axis={axis})",
          result.astype(v.array.dtype) if name == "sort" else result, parts=(v,))


def write_in_place(b: Builder) -> None:
    v = b.pick(solid)
    if v is None:
        return
    key, number = draw_key(b, v.array.shape, False), b.draw(INT(0, 3))
    copy = move(b, "tw.asarray({0}, copy=True)", v, np.copy)
    if copy is None:
        return
    copy.array[key] = np.asarray(number).astype(v.array.dtype)
    if copy.error is not None:
        copy.error[key] = 0
    b.lines.append(f"{copy.name}[{spell_key(key)}] = {number}")


def write_by_mask(b: Builder) -> None:
    v = b.pick(exact)
    mask = b.pick(lambda m: m.dtype == "bool" and v is not None and m.array.ndim > 0 and
                  m.array.shape == v.array.shape)
    if v is None or mask is None:
        return
    number = np.asarray(b.draw(INT(0, 3))).astype(v.array.dtype)
    b.add(f"{{0}}.at[{{1}}].set({int(number)})", np.where(mask.array, number, v.array), None,
          v.rounded, (v, mask))


def along_an_axis(b: Builder) -> None:
    v = b.pick(lambda v: solid(v) and 0 not in v.array.shape)
    if v is None:
        return
    axis = b.axis(v) % v.array.ndim
    n, kind = v.array.shape[axis], b.draw(INT(0, 3))
    place = b.draw(INT(0, n - 1))
    if kind == 0:
        move(b, f"tw.unstack({{0}}, axis={axis})[{place}]", v, lambda a: np.take(a, place, axis))
    elif kind == 1:
        move(b, f"tw.split({{0}}, [{place}], axis={axis})[1]", v,
             lambda a: np.split(a, [place], axis)[1])
    elif kind == 2 and v.exact:
        x = v.array.astype(np.float32) if v.dtype == "bfloat16" else v.array
        order = np.argsort(-x if v.is_float else x, axis=axis, kind="stable")
        text = f"tw.argsort({'-' if v.is_float else ''}{{0}}, axis={axis})"
        index = b.add(text, order, parts=(v,))
        if index is not None:
            b.add(f"tw.take_along_axis({{0}}, {{1}}, axis={axis})",
                  np.take_along_axis(v.array, order, axis), None, v.rounded, (v, index))
    elif v.exact and v.dtype != "bool":
        low, high = (np.split(v.array, [k], axis) for k in (n - 1, 1))
        result = ref.native(np.subtract, high[1], low[0]).astype(v.array.dtype)
        b.add(f"tw.diff({{0}}, axis={axis})", result, None, v.rounded, (v,))


def tensor_product(b: Builder) -> None:
    x = b.pick(lambda v: v.array.ndim in (1, 2))
    if x is None:
        return
    y = b.pick(lambda v: v.array.ndim == x.array.ndim and v.array.shape[-1] == x.array.shape[-1]
               and (x.array.ndim == 1 or v.array.shape[0] * x.array.shape[0] <= b.most))
    if y is None:
        return
    name = ref.promote(x.dtype, y.dtype)
    left, right = b.cast(x, name), b.cast(y, name)
    turned = Value(right.name, right.array.T, None if right.exact else right.slack.T)
    with np.errstate(all="ignore"):
        result, error = ref.matmul(left, turned)
    texts = ["tw.vecdot({0}, {1})", "tw.einsum('i,i->', {0}, {1})"] if x.array.ndim == 1 else [
        "tw.einsum('ij,kj->ik', {0}, {1})", "tw.tensordot({0}, {1}, axes=([1], [1]))"]
    b.settle(b.add(b.draw(st.sampled_from(texts)), result, error, True, (x, y)))


def bits(b: Builder) -> None:
    """The bits of a value as another dtype of its width; NaNs have several."""
    v = b.pick(lambda v: v.exact and v.dtype != "bool" and not (
        v.is_float and np.isnan(v.array.astype(ref.WIDE)).any()))
    if v is None:
        return
    width = v.array.dtype.itemsize * 8
    name = b.draw(st.sampled_from([f"int{width}", f"uint{width}"]))
    b.add(f"tw.view_bits({{0}}, tw.{name})",
          np.ascontiguousarray(v.array).view(name).reshape(v.array.shape), parts=(v,))


def total_of_numbers(b: Builder) -> None:
    v = b.pick(lambda v: v.exact and v.dtype in FLOATS)
    if v is None:
        return
    kept = Value(v.name, np.where(np.isnan(v.array.astype(ref.WIDE)), v.array.dtype.type(0),
                                  v.array).astype(v.array.dtype), None, v.rounded)
    axes = b.axes(v)
    result, error = ref.total(kept, lambda a: np.asarray(np.sum(a, axis=axes)), v.dtype)
    b.settle(b.add(f"tw.nansum({{0}}, axis={axes})", result, error, v.rounded, (v,)))


# Each step, and how often it is drawn.
STEPS = {source: 3, sort: 2, write_in_place: 3, write_by_mask: 2, along_an_axis: 3,
         tensor_product: 2, bits: 1, total_of_numbers: 1}
