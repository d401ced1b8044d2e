"""Steps of random programs that move, reduce, index and write: see `program_steps`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import program_reference as ref
from hypothesis import strategies as st
from program_builder import INT, Builder
from program_reference import FLOATS, UNSIGNED, Value

# --- movement


def move(b: Builder, text: str, v: Value, function: Callable) -> Value | None:
    """Add a step that only moves elements."""
    array = function(v.array)
    if array.size > b.most:
        return None
    error = None if v.exact else np.asarray(function(v.slack))
    return b.add(text, array, error, v.rounded, (v,))


def solid(v: Value) -> bool:
    return v.array.ndim > 0


def draw_slice(b: Builder, n: int) -> slice:
    bound = st.none() | INT(-n - 2, n + 2)
    return slice(b.draw(bound), b.draw(bound), b.draw(st.sampled_from([None, 1, 2, 3, -1, -2, -4])))


def spell_key(key) -> str:
    """Return the source of an index."""
    def one(k):
        if isinstance(k, slice):
            return ":".join("" if p is None else str(p) for p in (k.start, k.stop, k.step))
        return "..." if k is Ellipsis else repr(k.tolist() if isinstance(k, np.ndarray) else k)
    return ", ".join(one(k) for k in key) if key else "()"


def shape_change(b: Builder) -> None:
    v = b.pick()
    x, kind = v.array, b.draw(INT(0, 5))
    if kind == 0:
        options = [(x.size,), (-1, 1), (1, x.size), *(
            (d, x.size // d) for d in range(2, min(x.size, 100)) if x.size % d == 0)]
        new = b.draw(st.sampled_from([o for o in options if x.size or -1 not in o]))
        move(b, f"tw.reshape({{0}}, {new})", v, lambda a: a.reshape(new))
    elif kind == 1:
        order = tuple(b.draw(st.permutations(range(x.ndim))))
        move(b, f"tw.permute_dims({{0}}, {order})", v, lambda a: a.transpose(order))
    elif kind == 2:
        shape = tuple(b.draw(INT(0, 3)) if n == 1 else n for n in x.shape)
        shape = (*b.draw(st.sampled_from([(), (2,), (1, 3)])), *shape)
        if len(shape) <= 5:
            move(b, f"tw.broadcast_to({{0}}, {shape})", v, lambda a: np.broadcast_to(a, shape))
    elif kind == 3 and x.ndim < 5:
        axis = b.draw(INT(0, x.ndim))
        move(b, f"tw.expand_dims({{0}}, {axis})", v, lambda a: np.expand_dims(a, axis))
    elif kind == 4:
        move(b, "tw.squeeze({0})", v, np.squeeze)
    elif x.ndim > 1:
        move(b, "{0}.mT", v, lambda a: np.swapaxes(a, -1, -2))


def rearrange(b: Builder) -> None:
    v = b.pick(solid)
    if v is None:
        return
    x, kind, axis = v.array, b.draw(INT(0, 6)), b.axis(v)
    few = b.draw(INT(0, 3))
    if kind == 0:
        move(b, f"tw.flip({{0}}, axis={axis})", v, lambda a: np.flip(a, axis))
    elif kind == 1:
        by = b.draw(INT(-4, 9))
        move(b, f"tw.roll({{0}}, {by}, axis={axis})", v, lambda a: np.roll(a, by, axis))
    elif kind == 2:
        counts = tuple(b.draw(st.lists(INT(0, 3), min_size=1, max_size=x.ndim)))
        move(b, f"tw.tile({{0}}, {counts})", v, lambda a: np.tile(a, counts))
    elif kind == 3:
        move(b, f"tw.repeat({{0}}, {few}, axis={axis})", v, lambda a: np.repeat(a, few, axis))
    elif kind == 4:
        order = (axis, b.axis(v))
        move(b, f"tw.moveaxis({{0}}, {order[0]}, {order[1]})", v,
             lambda a: np.moveaxis(a, *order))
    elif kind == 5 and x.ndim > 1:
        name, k = b.draw(st.sampled_from(["tril", "triu"])), b.draw(INT(-2, 2))
        move(b, f"tw.{name}({{0}}, k={k})", v, lambda a: getattr(np, name)(a, k))
    elif x.ndim > 1:
        move(b, "tw.diagonal({0})", v, lambda a: np.diagonal(a, axis1=-2, axis2=-1))


def pad(b: Builder) -> None:
    v = b.pick(solid)
    if v is None:
        return
    mode = b.draw(st.sampled_from(["constant", "constant", "edge", "reflect", "symmetric", "wrap"]))
    if mode != "constant" and 0 in v.array.shape:
        return
    most = [2 if mode == "constant" else min(2, n - 1) for n in v.array.shape]
    width = tuple((b.draw(INT(0, m)), b.draw(INT(0, m))) for m in most)
    if mode == "constant":
        value = int(b.draw(INT(0, 2)))
        array = np.pad(v.array, width, constant_values=np.asarray(value).astype(v.array.dtype))
        error = None if v.exact else np.pad(v.slack, width)
        b.add(f"tw.pad({{0}}, {width}, constant_values={value})", array, error, v.rounded, (v,))
    else:
        move(b, f"tw.pad({{0}}, {width}, mode={mode!r})", v, lambda a: np.pad(a, width, mode=mode))


def join(b: Builder) -> None:
    x = b.pick(solid)
    if x is None:
        return
    axis, several = b.axis(x) % x.array.ndim, b.draw(INT(1, 3))
    name = b.draw(st.sampled_from(["concat", "stack"]))

    def fits(v: Value) -> bool:
        s, t = v.array.shape, x.array.shape
        return s == t or (name == "concat" and len(s) == len(t) and
                          s[:axis] + s[axis + 1:] == t[:axis] + t[axis + 1:])
    parts = [x, *(b.pick(fits) for _ in range(several - 1))]
    dtype = parts[0].dtype
    for p in parts[1:]:
        dtype = ref.promote(dtype, p.dtype)
    same = [b.cast(p, dtype) for p in parts]
    function = np.concatenate if name == "concat" else np.stack
    error = None if all(p.exact for p in same) else function([p.slack for p in same], axis)
    places = ", ".join(f"{{{i}}}" for i in range(len(parts)))
    b.add(f"tw.{name}([{places}], axis={axis})", function([p.array for p in same], axis), error,
          any(p.rounded for p in same), tuple(parts))


# --- indexing


def draw_key(b: Builder, shape: tuple[int, ...], arrays: bool) -> tuple:
    """Draw an index for an array of `shape`: slices, integers, None, ... and integer arrays."""
    key: list = []
    size = b.draw(INT(1, 3))
    for n in shape[:b.draw(INT(0, len(shape)))]:
        kind = b.draw(INT(0, 3))
        if kind == 0 and n:
            key.append(b.draw(INT(-n, n - 1)))
        elif kind == 1 and n and arrays:
            key.append(np.array(b.draw(st.lists(INT(-n, n - 1), min_size=size, max_size=size))))
        else:
            key.append(draw_slice(b, n))
    if b.draw(INT(0, 4)) == 0:
        key.append(Ellipsis)
    if b.draw(INT(0, 4)) == 0 and len(shape) < 4:
        key.insert(b.draw(INT(0, len(key))), None)
    return tuple(key)


def read(b: Builder) -> None:
    v = b.pick(solid)
    if v is None:
        return
    key = draw_key(b, v.array.shape, b.draw(st.booleans()))
    move(b, f"{{0}}[{spell_key(key)}]", v, lambda a: a[key])


def read_by_computed_places(b: Builder) -> None:
    v = b.pick(lambda v: solid(v) and v.array.shape[0] > 0)
    places = b.pick(lambda p: p.is_integer and p.array.ndim in (1, 2))
    if v is None or places is None:
        return
    n = v.array.shape[0]
    if n > np.iinfo(places.dtype).max:
        return
    inside = b.add(f"{{0}} % {n}", ref.remainder(
        places.array, np.full(places.array.shape, n, places.array.dtype)), parts=(places,))
    if inside is None or inside.array.size * v.array.size // n > b.most:
        return
    index = inside.array.astype(np.int64)
    error = None if v.exact else v.slack[index]
    form = b.draw(st.sampled_from(["{0}[{1}]", "tw.take({0}, {1}, axis=0)"]))
    b.add(form, v.array[index], error, v.rounded, (v, inside))


_WRITES = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def write(b: Builder) -> None:
    v = b.pick(lambda v: solid(v) and v.exact)
    if v is None:
        return
    mode = b.draw(st.sampled_from(["set", "set", "add", "multiply", "min", "max"]))
    if mode != "set" and (v.dtype == "bool" or v.dtype in ("float16", "bfloat16")):
        return
    key = draw_key(b, v.array.shape, b.draw(st.booleans()))
    shape = v.array[key].shape
    u = b.pick(lambda u: u.exact and u.dtype == v.dtype and _fits_into(u.array.shape, shape))
    if u is None or b.draw(INT(0, 2)) == 0:
        number = b.draw(INT(0, 3))
        parts, text = (v,), repr(number)
        value = np.asarray(number).astype(v.array.dtype)
    else:
        parts, text, value = (v, u), "{1}", u.array
    result = v.array.copy()
    error = None
    with np.errstate(all="ignore"):
        if mode == "set":
            result[key] = value
        else:
            _WRITES[mode].at(result, key, value)
            if v.is_float and any(isinstance(k, np.ndarray) for k in key):
                error = _combined_error(mode, v.array, key, value, result)
    made = b.add(f"{{0}}.at[{spell_key(key)}].{mode}({text})", result, error,
                 v.rounded or mode in ("add", "multiply"), parts)
    if mode in ("min", "max"):
        b.settle(made)


def _combined_error(mode: str, x: np.ndarray, key, value, result: np.ndarray):
    """Return the error of duplicates combined in any order."""
    hits = np.zeros(x.shape)
    np.add.at(hits, key, 1)
    if mode in ("min", "max") or (hits <= 1).all():
        return None
    size = np.abs(x.astype(np.float64))
    if mode == "add":
        np.add.at(size, key, np.abs(value.astype(np.float64)))
    else:
        size = np.abs(result.astype(np.float64))
    known = np.isfinite(size)
    error = 2 * hits * 2.0 ** -(ref.BITS[x.dtype.name] - 1) * np.where(known, size, 0)
    lost = (hits > 1) & ~(known & (size < float(ref.LARGEST[x.dtype.name]) / 4))
    if mode == "multiply":
        lost |= (hits > 1) & (size < 2.0 ** (ref.LEAST[x.dtype.name] + 30))
    return np.where(lost, np.inf, np.where(hits > 1, error, 0))


def _fits_into(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


# --- reductions


def _run(function, axes, keepdims: bool):
    return lambda a: np.asarray(function(a, axis=axes, keepdims=keepdims))


def reduction(b: Builder) -> None:
    name = b.draw(st.sampled_from(["sum", "sum", "prod", "mean", "max", "min", "all", "any",
                                   "count_nonzero"]))
    v = b.pick(lambda v: v.exact or name in ("sum", "mean", "max", "min"))
    if v is None:
        return
    axes, keep = b.axes(v), b.draw(st.booleans())
    text = f"tw.{name}({{0}}, axis={axes}, keepdims={keep})"
    x = v.array
    if name in ("all", "any", "count_nonzero"):
        function = {"all": np.all, "any": np.any, "count_nonzero": np.sum}[name]
        b.add(text, _run(function, axes, keep)(ref.convert(x, "bool")), parts=(v,))
    elif name in ("max", "min"):
        if x.size:
            function = _run(np.max if name == "max" else np.min, axes, keep)
            error = None if v.exact else np.max(v.slack, axis=axes, keepdims=keep)
            result = ref.native(function, x).astype(x.dtype)
            b.settle(b.add(text, result, error, v.rounded, (v,)))
    elif name == "mean":
        _mean(b, text, v, axes, keep)
    else:
        target = v.dtype if v.is_float else "uint64" if v.dtype in UNSIGNED else "int64"
        rule = ref.total if name == "sum" else ref.product
        result, error = rule(v, _run(np.sum if name == "sum" else np.prod, axes, keep), target)
        b.settle(b.add(text, result, error, v.rounded, (v,)))


def _mean(b: Builder, text: str, v: Value, axes, keep: bool) -> Value | None:
    w = v if v.is_float else b.cast(v, "float32")
    count = _run(np.sum, axes, keep)(np.ones(v.array.shape))
    full, error = ref.total(w, _run(np.sum, axes, keep), w.dtype)
    true = _run(np.sum, axes, keep)(w.array.astype(ref.WIDE)) / count
    result = ref.rounded_to(true, w.dtype)
    error = (0 if error is None else error / np.maximum(count, 1)) + 2 * ref.step_of(result)
    lost = ~np.isfinite(full.astype(ref.WIDE)) & np.isfinite(true)
    return b.settle(b.add(text, result, np.where(lost, np.inf, error), parts=(v,)))


def arg_reduction(b: Builder) -> None:
    v = b.pick(lambda v: v.exact and solid(v) and v.array.size > 0)
    if v is None:
        return
    name, keep = b.draw(st.sampled_from(["argmax", "argmin"])), b.draw(st.booleans())
    axis = b.draw(st.none() | INT(-v.array.ndim, v.array.ndim - 1))
    x = v.array.astype(np.float32) if v.dtype == "bfloat16" else v.array
    b.add(f"tw.{name}({{0}}, axis={axis}, keepdims={keep})",
          getattr(np, name)(x, axis=axis, keepdims=keep), parts=(v,))


def cumulative(b: Builder) -> None:
    name = b.draw(st.sampled_from(["cumsum", "cumprod", "cummax", "cummin"]))
    v = b.pick(lambda v: solid(v) and (v.exact or name in ("cumsum", "cummax", "cummin")))
    if v is None:
        return
    axis = b.axis(v)
    text = f"tw.{name}({{0}}, axis={axis})"
    if name in ("cummax", "cummin"):
        function = np.maximum if name == "cummax" else np.minimum
        result = ref.native(lambda a: function.accumulate(a, axis=axis), v.array)
        error = None if v.exact else np.maximum.accumulate(v.slack, axis=axis)
        b.settle(b.add(text, result.astype(v.array.dtype), error, v.rounded, (v,)))
        return
    target = v.dtype if v.is_float else "uint64" if v.dtype in UNSIGNED else "int64"
    rule, run = (ref.total, np.cumsum) if name == "cumsum" else (ref.product, np.cumprod)
    result, error = rule(v, lambda a: run(a, axis=axis), target)
    b.settle(b.add(text, result, error, v.rounded, (v,)))


def matrix_product(b: Builder) -> None:
    x = b.pick(lambda v: v.array.ndim in (1, 2, 3))
    if x is None:
        return

    def fits(v: Value) -> bool:
        try:
            return np.matmul(np.zeros(x.array.shape), np.zeros(v.array.shape)).size <= b.most
        except ValueError:
            return False
    y = b.pick(fits)
    left, right, text = x, y, "{0} @ {1}"
    if y is None:
        if x.array.ndim != 2:
            return
        y, right, text = x, Value(x.name, x.array.T, None if x.exact else x.slack.T), "{0} @ {1}.mT"
    name = ref.promote(x.dtype, y.dtype)
    with np.errstate(all="ignore"):
        result, error = ref.matmul(b.cast(left, name), b.cast(right, name))
    b.settle(b.add(text, result, error, True, (x, y)))


# --- compositions of several steps


def softmax_like(b: Builder) -> None:
    """Shift by the maximum, exponential, sum, quotient: fused into few kernels."""
    v = b.pick(lambda v: v.dtype in FLOATS and v.exact and v.array.size and v.array.ndim and
               (np.abs(v.array.astype(ref.WIDE)) < 80).all())
    if v is None:
        return
    axis, x = b.axis(v), v.array
    top = b.settle(b.add(f"tw.max({{0}}, axis={axis}, keepdims=True)", ref.native(
        lambda a: np.max(a, axis=axis, keepdims=True), x).astype(x.dtype), parts=(v,)))
    gap = b.add("{0} - {1}", ref.native(np.subtract, x, top.array).astype(x.dtype), parts=(v, top))
    e = b.add("tw.exp({0})", *ref.transcendental(np.exp, [gap.array]), parts=(gap,))
    t = b.add(f"tw.sum({{0}}, axis={axis}, keepdims=True)", *ref.total(
        e, lambda a: np.sum(a, axis=axis, keepdims=True), v.dtype), parts=(e,))
    if t is not None:
        wide = Value(t.name, np.broadcast_to(t.array, x.shape), np.broadcast_to(t.slack, x.shape))
        result = ref.native(np.divide, e.array, wide.array).astype(x.dtype)
        b.add("{0} / {1}", result, ref.binary_error("divide", e, wide, result), parts=(e, t))


def variance_like(b: Builder) -> None:
    """Subtract the mean, square, mean again."""
    v = b.pick(lambda v: v.dtype in FLOATS and v.array.size and v.array.ndim)
    if v is None:
        return
    axis, x = b.axis(v), v.array
    m = _mean(b, f"tw.mean({{0}}, axis={axis}, keepdims=True)", v, axis, True)
    wide = Value(m.name, np.broadcast_to(m.array, x.shape), np.broadcast_to(m.slack, x.shape))
    centred = ref.native(np.subtract, x, wide.array).astype(x.dtype)
    d = b.add("{0} - {1}", centred, ref.binary_error("subtract", v, wide, centred), parts=(v, m))
    square = ref.native(np.multiply, d.array, d.array).astype(x.dtype)
    s = b.add("{0} * {0}", square, ref.binary_error("multiply", d, d, square), True, (d,))
    _mean(b, f"tw.mean({{0}}, axis={axis})", s, axis, False)


# Each step, and how often it is drawn.
STEPS = {
    shape_change: 4, rearrange: 4, pad: 3, join: 4, read: 4, read_by_computed_places: 2,
    write: 4, reduction: 5, arg_reduction: 2, cumulative: 3, matrix_product: 3, softmax_like: 2,
    variance_like: 2,
}
