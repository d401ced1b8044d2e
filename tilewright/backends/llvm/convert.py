"""Conversions between dtypes, as text: the value of `cast` and the widening of 16-bit floats."""

from __future__ import annotations

from tilewright.backends.llvm.types import constant, register, text_of
from tilewright.backends.llvm.writer import Writer
from tilewright.dtypes import DType, float32, int16, int32, int64
from tilewright.errors import BackendError
from tilewright.program.ir import Type


def convert(w: Writer, x: str, source: DType, target: DType, lanes: int) -> str:
    """Write the conversion of x and return its name. Float to integer needs a value in range."""
    if source == target:
        return x
    a, b = register[source.name, lanes], register[target.name, lanes]
    if target.is_bool:
        return _to_bool(w, x, source, lanes)
    if source.is_float and source.bits == 16:
        wide = _widen(w, x, source, lanes)
        return convert(w, wide, float32, target, lanes)
    if target.is_float and target.bits == 16:
        return _narrow(w, x, source, target, lanes)
    if source.is_float and target.is_float:
        return w.new(f"{'fpext' if source.bits < target.bits else 'fptrunc'} {a} {x} to {b}")
    if source.is_float:
        return w.new(f"fpto{'si' if target.kind == 'i' else 'ui'} {a} {x} to {b}")
    if target.is_float:
        return w.new(f"{'si' if source.kind == 'i' else 'ui'}tofp {a} {x} to {b}")
    if source.bits == target.bits:
        return x
    if source.bits > target.bits:
        return w.new(f"trunc {a} {x} to {b}")
    return w.new(f"{'sext' if source.kind == 'i' else 'zext'} {a} {x} to {b}")


def _to_bool(w: Writer, x: str, source: DType, lanes: int) -> str:
    if source.is_float and source.bits == 16:  # every bit but the sign
        short = register["int16", lanes]
        x = w.new(f"shl {short} {x}, {_int(1, int16, lanes)}")
        return w.new(f"icmp ne {short} {x}, {_int(0, int16, lanes)}")
    test = "fcmp une" if source.is_float else "icmp ne"
    zero = constant(Type(source, lanes), bytes(source.itemsize))
    return w.new(f"{test} {register[source.name, lanes]} {x}, {zero}")


def _int(value: int, dtype: DType, lanes: int) -> str:
    bits = value & ((1 << dtype.bits) - 1)
    return constant(Type(dtype, lanes), bits.to_bytes(dtype.itemsize, "little"))


def _half(w: Writer, lanes: int) -> str:
    if not w.host.converts_half:
        raise BackendError(f"llvm: cannot compute with float16 in {w.program.name} "
                           f"({w.host.cpu} has no F16C instructions)")
    return "half" if lanes == 1 else f"<{lanes} x half>"


def _widen(w: Writer, x: str, source: DType, lanes: int) -> str:
    """Return a 16-bit float as float32; exact."""
    short, word, wide = (register[n, lanes] for n in ("int16", "int32", "float32"))
    if source.name == "float16":
        type_ = _half(w, lanes)
        half = w.new(f"bitcast {short} {x} to {type_}")
        return w.new(f"fpext {type_} {half} to {wide}")
    x = w.new(f"zext {short} {x} to {word}")
    x = w.new(f"shl {word} {x}, {_int(16, int32, lanes)}")
    return w.new(f"bitcast {word} {x} to {wide}")


def _narrow(w: Writer, x: str, source: DType, target: DType, lanes: int) -> str:
    """Return a 16-bit float from any dtype, rounded once from float64, as NumPy does."""
    short, wide = register["int16", lanes], register["float32", lanes]
    if source.is_float and source.bits == 64:
        x = _round_to_odd(w, x, lanes) if target.name == "float16" \
            else convert(w, x, source, float32, lanes)
    else:
        x = convert(w, x, source, float32, lanes)
    if target.name == "float16":
        type_ = _half(w, lanes)
        half = w.new(f"fptrunc {wide} {x} to {type_}")
        return w.new(f"bitcast {type_} {half} to {short}")
    return _to_bfloat16(w, x, lanes)


def _to_bfloat16(w: Writer, x: str, lanes: int) -> str:
    """Return the upper half of a float32, rounded to nearest even; a NaN keeps its sign, quiet."""
    word, wide, short = (register[n, lanes] for n in ("int32", "float32", "int16"))
    bits = w.new(f"bitcast {wide} {x} to {word}")
    upper = w.new(f"lshr {word} {bits}, {_int(16, int32, lanes)}")
    odd = w.new(f"and {word} {upper}, {_int(1, int32, lanes)}")
    bias = w.new(f"add {word} {odd}, {_int(0x7FFF, int32, lanes)}")
    rounded = w.new(f"add {word} {bits}, {bias}")
    rounded = w.new(f"lshr {word} {rounded}, {_int(16, int32, lanes)}")
    sign = w.new(f"and {word} {upper}, {_int(0x8000, int32, lanes)}")
    quiet = w.new(f"or {word} {sign}, {_int(0x7FC0, int32, lanes)}")
    nan = w.new(f"fcmp uno {wide} {x}, {x}")
    mask = register["bool", lanes]
    chosen = w.new(f"select {mask} {nan}, {word} {quiet}, {word} {rounded}")
    return w.new(f"trunc {word} {chosen} to {short}")


def _round_to_odd(w: Writer, x: str, lanes: int) -> str:
    """Return float64 as float32 rounded to odd, so that a second rounding to 11 bits is right.

    Truncate, then set the last bit where anything was lost.
    """
    double, wide, word, mask = (register[n, lanes] for n in ("float64", "float32", "int32", "bool"))
    near = w.new(f"fptrunc {double} {x} to {wide}")
    back = w.new(f"fpext {wide} {near} to {double}")
    long = register["int64", lanes]
    sizes = []
    for v in (back, x):
        bits = w.new(f"bitcast {double} {v} to {long}")
        sizes.append(w.new(f"and {long} {bits}, {_int((1 << 63) - 1, int64, lanes)}"))
    above = w.new(f"icmp ugt {long} {sizes[0]}, {sizes[1]}")
    inexact = w.new(f"fcmp one {double} {back}, {x}")
    above = w.new(f"and {mask} {above}, {inexact}")
    bits = w.new(f"bitcast {wide} {near} to {word}")
    down = w.new(f"zext {mask} {above} to {word}")
    sticky = w.new(f"zext {mask} {inexact} to {word}")
    bits = w.new(f"sub {word} {bits}, {down}")
    bits = w.new(f"or {word} {bits}, {sticky}")
    return w.new(f"bitcast {word} {bits} to {wide}")


def bitcast(w: Writer, x: str, source: Type, target: Type) -> str:
    """Write a reinterpretation at one width; bool counts as its byte in memory."""
    a, b = text_of(source), text_of(target)
    if a == b:
        return x
    if source.dtype.is_bool:
        return w.new(f"zext {a} {x} to {b}")
    if target.dtype.is_bool:
        zero = constant(source, bytes(source.dtype.itemsize))
        return w.new(f"icmp ne {a} {x}, {zero}")
    return w.new(f"bitcast {a} {x} to {b}")
