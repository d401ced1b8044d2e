"""The emitter of each pure operation: one table from a Program's operation to LLVM's text."""

from __future__ import annotations

import struct

from tilewright.backends.llvm.convert import bitcast, convert
from tilewright.backends.llvm.types import REGISTER, constant, register, suffix
from tilewright.backends.llvm.writer import Emitter, Writer, spell
from tilewright.dtypes import float32
from tilewright.errors import BackendError
from tilewright.program.ir import Instr, Type

# operation -> kind of dtype -> mnemonic
_BINARY: dict[str, dict[str, str]] = {
    "add": {"i": "add", "u": "add", "f": "fadd"},
    "sub": {"i": "sub", "u": "sub", "f": "fsub"},
    "mul": {"i": "mul", "u": "mul", "f": "fmul"},
    "div": {"f": "fdiv"},
    "idiv": {"i": "sdiv", "u": "udiv"},
    "irem": {"i": "srem", "u": "urem"},
    "and": {"i": "and", "u": "and", "b": "and"},
    "or": {"i": "or", "u": "or", "b": "or"},
    "xor": {"i": "xor", "u": "xor", "b": "xor"},
    "shl": {"i": "shl", "u": "shl"},
    "shr": {"i": "ashr", "u": "lshr"},
    "eq": {"i": "icmp eq", "u": "icmp eq", "b": "icmp eq", "f": "fcmp oeq"},
    "ne": {"i": "icmp ne", "u": "icmp ne", "b": "icmp ne", "f": "fcmp une"},
    "lt": {"i": "icmp slt", "u": "icmp ult", "b": "icmp ult", "f": "fcmp olt"},
    "le": {"i": "icmp sle", "u": "icmp ule", "b": "icmp ule", "f": "fcmp ole"},
}
_ROUNDING = {"sqrt": "llvm.sqrt", "floor": "llvm.floor", "ceil": "llvm.ceil",
             "trunc": "llvm.trunc", "round": "llvm.roundeven"}


def _reject(instr: Instr) -> BackendError:
    types = ", ".join(str(a.type) for a in instr.args)
    return BackendError(f"llvm: cannot render {instr.op} of ({types}) "
                        "(the operation has no meaning for this dtype)")


def _through_float32(w: Writer, instr: Instr) -> str:
    """Compute on 16-bit floats in float32 and round the result."""
    wide_args = []
    for a in instr.args:
        if a.type.dtype.is_float:
            wide = Instr("wide", Type(float32, a.type.lanes))
            w.names[wide] = convert(w, w.names[a], a.type.dtype, float32, a.type.lanes)
            wide_args.append(wide)
        else:
            wide_args.append(a)
    narrow = instr.type.dtype.is_float
    type_ = Type(float32, instr.type.lanes) if narrow else instr.type
    result = EMITTERS[instr.op](w, Instr(instr.op, type_, tuple(wide_args), instr.data))
    assert result is not None
    return convert(w, result, float32, instr.type.dtype, instr.type.lanes) if narrow else result


def _binary(w: Writer, instr: Instr) -> str:
    a, b = instr.args
    dtype = a.type.dtype
    if dtype.kind == "f" and dtype.bits == 16:
        return _through_float32(w, instr)
    mnemonic = _BINARY[instr.op].get(dtype.kind)
    if mnemonic is None:
        raise _reject(instr)
    name = f"%{w.next}"
    w.next += 1
    w.out.append(f"{name} = {mnemonic} {register[dtype.name, a.type.lanes]} "
                 f"{w.names[a]}, {w.names[b]}")
    return name


def _fma(w: Writer, instr: Instr) -> str:
    if instr.type.dtype.kind != "f" or instr.type.dtype.bits == 16:
        raise _reject(instr)
    t = spell(instr)
    names = w.names
    a, b, c = instr.args
    return w.call(f"llvm.fma.{suffix(t)}", t, f"{t} {names[a]}, {t} {names[b]}, {t} {names[c]}",
                  f"{t}, {t}, {t}")


def _never_nan(x: Instr) -> bool:
    if x.op == "splat":
        x = x.args[0]
    if x.op != "const":
        return False
    (value,) = struct.unpack("<f" if x.type.dtype.bits == 32 else "<d", x.data)
    return value == value


def _extreme(w: Writer, instr: Instr) -> str:
    """Write min or max.

    ``a < b ? a : b`` is one instruction of most targets and gives b if either is NaN: enough where
    a is no NaN; else a is put back where it is one.
    """
    a, b = instr.args
    dtype = instr.type.dtype
    t = spell(instr)
    if dtype.kind in "iu":
        prefix = "s" if dtype.kind == "i" else "u"
        return w.call(f"llvm.{prefix}{instr.op}.{suffix(t)}", t,
                      f"{t} {w.names[a]}, {t} {w.names[b]}", f"{t}, {t}")
    if dtype.kind == "b":
        return w.new(f"{'and' if instr.op == 'min' else 'or'} {t} {w.names[a]}, {w.names[b]}")
    if dtype.bits == 16:
        return _through_float32(w, instr)
    if _never_nan(b):
        a, b = b, a
    x, y = w.names[a], w.names[b]
    mask = register["bool", instr.type.lanes]
    order = w.new(f"fcmp {'olt' if instr.op == 'min' else 'ogt'} {t} {x}, {y}")
    best = w.new(f"select {mask} {order}, {t} {x}, {t} {y}")
    if _never_nan(a):
        return best
    nan = w.new(f"fcmp uno {t} {x}, {x}")
    return w.new(f"select {mask} {nan}, {t} {x}, {t} {best}")


def _not(w: Writer, instr: Instr) -> str:
    dtype = instr.type.dtype
    if dtype.is_float:
        raise _reject(instr)
    ones = constant(instr.type, b"\xff" * dtype.itemsize)
    return w.new(f"xor {spell(instr)} {w.names[instr.args[0]]}, {ones}")


def _neg(w: Writer, instr: Instr) -> str:
    dtype = instr.type.dtype
    t, x = spell(instr), w.names[instr.args[0]]
    if dtype.kind == "b":
        raise _reject(instr)
    if dtype.kind != "f":
        return w.new(f"sub {t} {constant(instr.type, bytes(dtype.itemsize))}, {x}")
    if dtype.bits == 16:
        return w.new(f"xor {t} {x}, {constant(instr.type, bytes([0, 0x80]))}")
    return w.new(f"fneg {t} {x}")


def _abs(w: Writer, instr: Instr) -> str:
    dtype = instr.type.dtype
    t, x = spell(instr), w.names[instr.args[0]]
    if dtype.kind == "i":
        return w.call(f"llvm.abs.{suffix(t)}", t, f"{t} {x}, i1 false", f"{t}, i1")
    if dtype.kind != "f":
        return x
    if dtype.bits == 16:
        return w.new(f"and {t} {x}, {constant(instr.type, bytes([0xFF, 0x7F]))}")
    return w.call(f"llvm.fabs.{suffix(t)}", t, f"{t} {x}", t)


def _rounding(w: Writer, instr: Instr) -> str:
    dtype = instr.type.dtype
    if dtype.kind != "f":
        raise _reject(instr)
    if dtype.bits == 16:
        return _through_float32(w, instr)
    t = spell(instr)
    return w.call(f"{_ROUNDING[instr.op]}.{suffix(t)}", t, f"{t} {w.names[instr.args[0]]}", t)


def _const(w: Writer, instr: Instr) -> str:
    key = (instr.type.dtype.name, instr.type.lanes, instr.data)
    text = w.constants.get(key)
    if text is None:
        text = w.constants[key] = constant(instr.type, instr.data)
    return text


def _lanes(w: Writer, instr: Instr) -> str:
    if instr.type.lanes == 1:
        return "0"
    return "<" + ", ".join(f"i64 {k}" for k in range(instr.type.lanes)) + ">"


def _splat(w: Writer, instr: Instr) -> str:
    n = instr.type.lanes
    if n == 1:
        return w.names[instr.args[0]]
    scalar = REGISTER[instr.type.dtype.name]
    name, vector = w.next, f"<{n} x {scalar}>"
    w.next += 2
    w.out.append(f"%{name} = insertelement {vector} poison, {scalar} "
                 f"{w.names[instr.args[0]]}, i64 0")
    w.out.append(f"%{name + 1} = shufflevector {vector} %{name}, {vector} poison, "
                 f"<{n} x i32> zeroinitializer")
    return f"%{name + 1}"


def _lane(w: Writer, instr: Instr) -> str:
    (x,) = instr.args
    if x.type.lanes == 1:
        return w.names[x]
    return w.new(f"extractelement {spell(x)} {w.names[x]}, i64 {instr.data}")


def _as_vector(w: Writer, x: Instr) -> tuple[str, str]:
    if x.type.lanes > 1:
        return spell(x), w.names[x]
    scalar = spell(x)
    vector = f"<1 x {scalar}>"
    return vector, w.new(f"insertelement {vector} poison, {scalar} {w.names[x]}, i64 0")


def _shuffle(w: Writer, instr: Instr) -> str:
    x, y = instr.args
    vector, a = _as_vector(w, x)
    _, b = (vector, a) if x is y else _as_vector(w, y)
    picks = ", ".join("i32 poison" if k < 0 else f"i32 {k}" for k in instr.data)
    name = w.new(f"shufflevector {vector} {a}, {vector} {b}, <{len(instr.data)} x i32> <{picks}>")
    if len(instr.data) > 1:
        return name
    return w.new(f"extractelement <1 x {REGISTER[instr.type.dtype.name]}> {name}, i64 0")


def _select(w: Writer, instr: Instr) -> str:
    c, a, b = instr.args
    t = spell(instr)
    return w.new(f"select {spell(c)} {w.names[c]}, {t} {w.names[a]}, {t} {w.names[b]}")


def _cast(w: Writer, instr: Instr) -> str:
    (x,) = instr.args
    return convert(w, w.names[x], x.type.dtype, instr.type.dtype, instr.type.lanes)


def _bitcast(w: Writer, instr: Instr) -> str:
    (x,) = instr.args
    if x.type.dtype.itemsize != instr.type.dtype.itemsize:
        raise BackendError(f"llvm: cannot bitcast {x.type} to {instr.type} (widths differ)")
    return bitcast(w, w.names[x], x.type, instr.type)


def _unsupported(reason: str) -> Emitter:
    def emit(w: Writer, instr: Instr) -> str:
        raise BackendError(f"llvm: cannot render {instr.op} in {w.program.name} ({reason})")
    return emit


_FRAGMENT = _unsupported("fragments are tiles of a GPU's warp")

EMITTERS: dict[str, Emitter] = {
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(_ROUNDING, _rounding),
    "fma": _fma, "min": _extreme, "max": _extreme, "not": _not, "neg": _neg, "abs": _abs,
    "const": _const, "lanes": _lanes, "splat": _splat, "lane": _lane, "shuffle": _shuffle,
    "select": _select, "cast": _cast, "bitcast": _bitcast,
    "thread": lambda w, instr: "%worker",
    "threads": lambda w, instr: "%workers",
    "result": lambda w, instr: w.results[instr.args[0]][instr.data],
    "barrier": _unsupported("workers of a CPU meet only between programs"),
    **dict.fromkeys(("frag_zero", "frag_load", "frag_mma", "frag_store"), _FRAGMENT),
}
