"""Loads, stores, gathers, scatters and prefetches."""

from __future__ import annotations

from tilewright.backends.llvm.types import MEMORY, constant, memory, register, suffix
from tilewright.backends.llvm.writer import STREAM, Emitter, Writer
from tilewright.limits import LINE
from tilewright.program.ir import BOOL, Instr, MemRef, Type


def _zero(type_: Type) -> str:
    return constant(type_, bytes(type_.dtype.itemsize)) if not type_.dtype.is_bool \
        else ("0" if type_.lanes == 1 else "zeroinitializer")


def _from_memory(w: Writer, x: str, type_: Type) -> str:
    if not type_.dtype.is_bool:
        return x
    return w.new(f"icmp ne {memory['bool', type_.lanes]} {x}, {_zero(type_)}")


def _to_memory(w: Writer, x: str, type_: Type) -> str:
    if not type_.dtype.is_bool:
        return x
    return w.new(f"zext {register['bool', type_.lanes]} {x} to {memory['bool', type_.lanes]}")


def _alignment(ref: MemRef, type_: Type) -> int:
    return max(ref.align, type_.dtype.itemsize)


def _load(w: Writer, instr: Instr) -> str:
    ref, type_ = instr.data, instr.type
    assert isinstance(ref, MemRef)
    offset, *mask = instr.args
    t = memory[type_.dtype.name, type_.lanes]
    align, tags = _alignment(ref, type_), w.tags[ref.buffer]
    if mask and type_.lanes == 1:
        return _load_if(w, instr, w.names[mask[0]])
    place = w.address(ref, offset, type_.dtype.name)
    if not mask:
        x = w.new(f"load {t}, ptr {place}, align {align}{tags}")
    else:
        masks = register["bool", type_.lanes]
        function = f"llvm.masked.load.{suffix(t)}.p0"
        w.declare(function, t, f"ptr, i32, {masks}, {t}")
        x = w.new(f"call {t} @{function}(ptr {place}, i32 {align}, {masks} {w.names[mask[0]]}, "
                  f"{t} {_zero(type_)}){tags}")
    return _from_memory(w, x, type_)


def _load_if(w: Writer, instr: Instr, mask: str) -> str:
    """Write a scalar load behind a branch; 0 where the mask is false."""
    yes, end = w.fresh_label(), w.fresh_label()
    before = w.label
    w.branch(mask, yes, end)
    w.start(yes)
    plain = Instr("load", instr.type, instr.args[:1], instr.data)
    x = _load(w, plain)
    w.jump(end)
    w.start(end)
    t = register[instr.type.dtype.name, 1]
    zero = constant(instr.type, bytes(instr.type.dtype.itemsize))
    return w.new(f"phi {t} [ {x}, %{yes} ], [ {zero}, %{before} ]")


def _store_if(w: Writer, instr: Instr, mask: str) -> None:
    yes, end = w.fresh_label(), w.fresh_label()
    w.branch(mask, yes, end)
    w.start(yes)
    _store(w, Instr("store", None, instr.args[:2], instr.data))
    w.jump(end)
    w.start(end)


def _store(w: Writer, instr: Instr) -> None:
    ref = instr.data
    assert isinstance(ref, MemRef)
    offset, value, *mask = instr.args
    type_ = value.type
    if mask and type_.lanes == 1:
        return _store_if(w, instr, w.names[mask[0]])
    t = memory[type_.dtype.name, type_.lanes]
    align, tags = _alignment(ref, type_), w.tags[ref.buffer]
    place = w.address(ref, offset, type_.dtype.name)
    x = _to_memory(w, w.names[value], type_)
    if mask:
        masks = register["bool", type_.lanes]
        function = f"llvm.masked.store.{suffix(t)}.p0"
        w.declare(function, "void", f"{t}, ptr, i32, {masks}")
        w.out.append(f"call void @{function}({t} {x}, ptr {place}, i32 {align}, "
                     f"{masks} {w.names[mask[0]]}){tags}")
    else:
        whole = type_.lanes * type_.dtype.itemsize
        # A streaming store faults unless its address is a multiple of its width, which is a cache
        # line at most: wider ones are cut.
        fits = align >= min(whole, LINE)
        stream = f", !nontemporal !{STREAM}" if ref.stream and fits else ""
        w.out.append(f"store {t} {x}, ptr {place}, align {align}{tags}{stream}")


def _places(w: Writer, ref: MemRef, offsets: Instr, dtype: str) -> str:
    """Return a vector of addresses."""
    lanes = offsets.type.lanes
    base = w.pointer(ref.buffer)
    scalar = MEMORY[dtype]
    if ref.offset:
        base = w.new(f"getelementptr inbounds {scalar}, ptr {base}, i64 {ref.offset}")
    return w.new(f"getelementptr inbounds {scalar}, ptr {base}, "
                 f"<{lanes} x i64> {w.names[offsets]}")


def _mask(w: Writer, mask: list[Instr], lanes: int) -> str:
    chosen = w.names[mask[0]] if mask else constant(BOOL.with_lanes(lanes), b"\1")
    return f"{register['bool', lanes]} {chosen}"


def _gather(w: Writer, instr: Instr) -> str:
    ref, type_ = instr.data, instr.type
    assert isinstance(ref, MemRef)
    offsets, *mask = instr.args
    lanes = type_.lanes
    if lanes == 1:
        return _load(w, instr)
    t = memory[type_.dtype.name, lanes]
    places = _places(w, ref, offsets, type_.dtype.name)
    function = f"llvm.masked.gather.{suffix(t)}.v{lanes}p0"
    w.declare(function, t, f"<{lanes} x ptr>, i32, {register['bool', lanes]}, {t}")
    x = w.new(f"call {t} @{function}(<{lanes} x ptr> {places}, i32 {type_.dtype.itemsize}, "
              f"{_mask(w, mask, lanes)}, {t} {_zero(type_)}){w.tags[ref.buffer]}")
    return _from_memory(w, x, type_)


def _scatter(w: Writer, instr: Instr) -> None:
    ref = instr.data
    assert isinstance(ref, MemRef)
    offsets, value, *mask = instr.args
    type_ = value.type
    lanes = type_.lanes
    if lanes == 1:
        return _store(w, instr)
    t = memory[type_.dtype.name, lanes]
    places = _places(w, ref, offsets, type_.dtype.name)
    x = _to_memory(w, w.names[value], type_)
    function = f"llvm.masked.scatter.{suffix(t)}.v{lanes}p0"
    w.declare(function, "void", f"{t}, <{lanes} x ptr>, i32, {register['bool', lanes]}")
    w.out.append(f"call void @{function}({t} {x}, <{lanes} x ptr> {places}, "
                 f"i32 {type_.dtype.itemsize}, {_mask(w, mask, lanes)}){w.tags[ref.buffer]}")


def _prefetch(w: Writer, instr: Instr) -> None:
    ref = instr.data
    assert isinstance(ref, MemRef)
    dtype = w.dtypes[ref.buffer]
    place = w.address(ref, instr.args[0], dtype)
    w.declare("llvm.prefetch.p0", "void", "ptr, i32, i32, i32")
    w.out.append(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 3, i32 1)")


EMITTERS: dict[str, Emitter] = {
    "load": _load, "gather": _gather, "store": _store, "scatter": _scatter, "prefetch": _prefetch,
}
