"""Check a Program against the grammar of `tilewright.program.ir`.

Every rule that a backend relies on is here: values defined in an open block before use, types and
lanes of every operation, loops and what they carry, memory. Whether offsets stay in bounds is found
by the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tilewright.dtypes import DType, float16, float32, float64, int32
from tilewright.errors import VerifyError
from tilewright.program.ir import (
    BOOL,
    INDEX,
    Block,
    Fragment,
    If,
    Instr,
    Loop,
    MemRef,
    Program,
    Type,
)
from tilewright.program.printer import Printer

LOOP_KINDS = ("serial", "parallel", "block", "thread", "lane")
SPACES = ("private", "global", "shared")

_Domain = tuple[str, Callable[[DType], bool]]
_ANY: _Domain = ("any", lambda d: True)
_NUMBER: _Domain = ("numbers", lambda d: not d.is_bool)
_FLOAT: _Domain = ("floats", lambda d: d.is_float)
_INTEGER: _Domain = ("integers", lambda d: d.is_integer)
_BITS: _Domain = ("integers or bool", lambda d: not d.is_float)

# Operations whose arguments and result have one type: (number of arguments, dtypes).
_SAME: dict[str, tuple[int, _Domain]] = {
    **dict.fromkeys(("add", "sub", "mul"), (2, _NUMBER)),
    **dict.fromkeys(("min", "max"), (2, _ANY)),
    "fma": (3, _FLOAT), "div": (2, _FLOAT),
    **dict.fromkeys(("idiv", "irem", "shl", "shr"), (2, _INTEGER)),
    **dict.fromkeys(("and", "or", "xor"), (2, _BITS)), "not": (1, _BITS),
    **dict.fromkeys(("neg", "abs"), (1, _NUMBER)),
    **dict.fromkeys(("sqrt", "floor", "ceil", "trunc", "round"), (1, _FLOAT)),
}
_COMPARISONS = ("eq", "ne", "lt", "le")


def verify(program: Program, after: str) -> None:
    """Raise VerifyError, naming the pass `after` and the instruction, where a rule is broken."""
    _Verifier(program, after).run()


class _Verifier:
    def __init__(self, program: Program, after: str):
        self.program, self.after = program, after
        self.printer: Printer | None = None
        self.defined: set[Instr] = set()
        self.fragments: dict[Instr, Fragment] = {}
        self.open: list[Loop | If] = []
        self.buffers: dict[str, DType] = {}
        self.inputs = {p.name for p in program.params if p.kind == "input"}

    def refuse(self, instr: Instr | None, reason: str) -> NoReturn:
        what = "its head"
        if instr is not None:
            self.printer = self.printer or Printer(self.program)
            what = f"`{self.printer.line(instr)}`"
        raise VerifyError(f"{self.after}: cannot leave {what} in program "
                          f"{self.program.name} ({reason})")

    def need(self, condition: bool, instr: Instr | None, reason: str) -> None:
        if not condition:
            self.refuse(instr, reason)

    def run(self) -> None:
        for p in self.program.params:
            self.need(p.kind in ("input", "output"), None, f"param {p.name} is of kind {p.kind}")
            self._buffer(p.name, p.dtype)
        for s in self.program.scratch:
            self.need(s.space in SPACES, None, f"scratch {s.name} is in space {s.space}")
            self.need(s.elements >= 0, None, f"scratch {s.name} has {s.elements} elements")
            self._buffer(s.name, s.dtype)
        self._block(self.program.body)
        parallel = any(i.op == "loop" and i.kind == "parallel"  # type: ignore[attr-defined]
                       for i in self.program.body)
        self.need(parallel == self.program.parallel, None,
                  f"parallel is {self.program.parallel}, but it holds "
                  f"{'a' if parallel else 'no'} parallel loop")

    def _buffer(self, name: str, dtype: DType) -> None:
        self.need(name not in self.buffers, None, f"two buffers are named {name}")
        self.buffers[name] = dtype

    def _block(self, block: Block) -> list[Instr]:
        """Check a block's instructions; return the values that go out of scope with it."""
        mine: list[Instr] = []
        for instr in block:
            if instr.level != len(self.open):
                self.refuse(instr, f"its level is {instr.level}, it stands at {len(self.open)}")
            self.need(instr not in self.defined, instr, "it stands in the program twice")
            for arg in instr.args:
                self._visible(instr, arg)
            if isinstance(instr, Loop):
                self._loop(instr)
            elif isinstance(instr, If):
                self._types(instr, BOOL)
                self._nested(instr, [])
            else:
                self._instruction(instr)
            self.defined.add(instr)
            mine.append(instr)
        return mine

    def _visible(self, instr: Instr, arg: Instr) -> None:
        if arg not in self.defined:
            self.refuse(instr, f"its argument {self._describe(arg)} is not defined before it in "
                               "an open block")

    def _describe(self, arg: Instr) -> str:
        self.printer = self.printer or Printer(self.program)
        return f"{self.printer.name(arg)}"

    def _nested(self, owner: Loop | If, values: list[Instr]) -> None:
        self.open.append(owner)
        self.defined.update(values)
        mine = self._block(owner.body)
        if isinstance(owner, Loop):
            for slot, (value, init) in enumerate(zip(owner.yields, owner.inits, strict=True)):
                self._visible(owner, value)
                self.need(value.type == init.type, owner,
                          f"it yields {value.type} into slot {slot}, which starts as {init.type}")
                self.need(self.fragments.get(value) == self.fragments.get(init), owner,
                          f"slot {slot} changes its fragment")
        self.defined.difference_update(values, mine)
        self.open.pop()

    def _loop(self, loop: Loop) -> None:
        kind = loop.kind
        self.need(kind in LOOP_KINDS, loop, f"{kind} is no kind of loop")
        self.need(loop.lo.type == INDEX and loop.hi.type == INDEX, loop,
                  f"its bounds are {loop.lo.type} and {loop.hi.type}, not i64")
        self.need(len(loop.carries) == len(loop.inits) == len(loop.yields), loop,
                  f"it has {len(loop.inits)} starts, {len(loop.carries)} carries and "
                  f"{len(loop.yields)} yields")
        self.need(kind == "serial" or not loop.carries, loop, f"a {kind} loop carries no values")
        around = [o.kind for o in self.open if isinstance(o, Loop)]
        self.need(kind != "parallel" or not self.open, loop, "a parallel loop stands at the top")
        self.need(kind != "block" or set(around) <= {"block"}, loop,
                  "only block loops stand around a block loop")
        outside = {"thread": {"parallel", "lane"}, "lane": {"parallel"}}.get(kind, set())
        for other in outside.intersection(around):
            self.refuse(loop, f"a {kind} loop stands in a {other} loop")
        inner = [loop.var, *loop.carries, *loop.scaled]
        level = len(self.open) + 1
        for value in inner:
            self.need(value.level == level, loop, f"its {value.op} is at level {value.level}")
        for value in loop.scaled:
            self.need(value.args == (loop.var,) and value.data[0] is loop  # type: ignore[index]
                      and value.type == INDEX, value, "a multiple of another loop's index")
        for carry, init in zip(loop.carries, loop.inits, strict=True):
            self.need(carry.type == init.type, loop, f"a {init.type} starts a {carry.type}")
            if init in self.fragments:
                self.fragments[carry] = self.fragments[init]
        self._nested(loop, inner)

    def _types(self, instr: Instr, *types: Type | None) -> None:
        actual = tuple(a.type for a in instr.args)
        if actual != types:
            self.refuse(instr, f"its arguments are ({', '.join(map(str, actual))}), "
                               f"not ({', '.join(map(str, types))})")

    def _instruction(self, instr: Instr) -> None:
        op, type_ = instr.op, instr.type
        if not op.startswith("frag_"):
            held = [a for a in instr.args if a in self.fragments and op != "result"]
            self.need(not held, instr, "only a fragment op takes a fragment")
        check = getattr(self, f"_check_{op}", None)
        if op in ("store", "scatter", "prefetch", "barrier", "frag_store"):
            self.need(type_ is None, instr, "it defines no value")
        else:
            self.need(type_ is not None and type_.lanes >= 1, instr, "it needs a type")
        if op in _SAME:
            count, (what, accepts) = _SAME[op]
            self._types(instr, *[type_] * count)
            self.need(accepts(type_.dtype), instr, f"{op} is for {what}")  # type: ignore[union-attr]
        elif op in _COMPARISONS:
            self.need(len(instr.args) == 2, instr, "it compares two values")
            self._types(instr, *[instr.args[0].type] * 2)
            self._gives(instr, instr.args[0].type.with_dtype(BOOL.dtype))  # type: ignore[union-attr]
        elif check is not None:
            check(instr)
        else:
            self.refuse(instr, f"{op} is no operation")

    def _gives(self, instr: Instr, type_: Type) -> None:
        self.need(instr.type == type_, instr, f"it gives {type_}, not {instr.type}")

    # -- one method per operation with its own rule ---------------------------------------------

    def _check_const(self, instr: Any) -> None:
        self._types(instr)
        size = instr.type.dtype.itemsize
        self.need(isinstance(instr.data, bytes) and len(instr.data) == size, instr,
                  f"its data is the {size} bytes of one element")
        self.need(not instr.type.dtype.is_bool or instr.data[0] <= 1, instr, "a bool is 0 or 1")

    def _check_lanes(self, instr: Any) -> None:
        self._types(instr)
        self._gives(instr, INDEX.with_lanes(instr.type.lanes))

    def _check_thread(self, instr: Any) -> None:
        self._types(instr)
        self._gives(instr, INDEX)

    _check_threads = _check_thread

    def _check_splat(self, instr: Any) -> None:
        self._types(instr, instr.type.with_lanes(1))

    def _check_lane(self, instr: Any) -> None:
        self.need(len(instr.args) == 1, instr, "it takes one vector")
        self._gives(instr, instr.args[0].type.with_lanes(1))
        lanes = instr.args[0].type.lanes
        self.need(0 <= instr.data < lanes, instr, f"lane {instr.data} of {lanes}")

    def _check_shuffle(self, instr: Any) -> None:
        self.need(len(instr.args) == 2, instr, "it takes two vectors")
        x = instr.args[0].type
        self._types(instr, x, x)
        self._gives(instr, x.with_lanes(len(instr.data)))
        wrong = [i for i in instr.data if not -1 <= i < 2 * x.lanes]
        self.need(not wrong, instr, f"lanes {wrong} of {2 * x.lanes}")

    def _check_select(self, instr: Any) -> None:
        self._types(instr, instr.type.with_dtype(BOOL.dtype), instr.type, instr.type)

    def _check_cast(self, instr: Any) -> None:
        self.need(len(instr.args) == 1, instr, "it takes one value")
        x = instr.args[0].type
        self.need(x.lanes == instr.type.lanes, instr, f"it casts {x.lanes} lanes")

    def _check_bitcast(self, instr: Any) -> None:
        self._check_cast(instr)
        x = instr.args[0].type
        self.need(x.dtype.bits == instr.type.dtype.bits, instr, f"{x} is of another width")

    def _check_result(self, instr: Any) -> None:
        self.need(len(instr.args) == 1 and isinstance(instr.args[0], Loop), instr,
                  "it takes a loop")
        loop, slot = instr.args[0], instr.data
        self.need(0 <= slot < len(loop.carries), instr,
                  f"slot {slot} of a loop that carries {len(loop.carries)}")
        self._gives(instr, loop.carries[slot].type)
        if loop.carries[slot] in self.fragments:
            self.fragments[instr] = self.fragments[loop.carries[slot]]

    # -- memory ---------------------------------------------------------------------------------

    def _memory(self, instr: Instr, ref: Any, dtype: DType | None) -> None:
        self.need(isinstance(ref, MemRef), instr, "its data names no buffer")
        self.need(ref.buffer in self.buffers, instr, f"no buffer is named {ref.buffer}")
        held = self.buffers[ref.buffer]
        self.need(dtype is None or dtype == held, instr, f"{ref.buffer} holds {held}, not {dtype}")
        self.need(ref.align >= 0 and ref.align & (ref.align - 1) == 0, instr,
                  f"{ref.align} is no alignment")
        self.need(instr.op not in ("store", "scatter", "frag_store")
                  or ref.buffer not in self.inputs, instr, f"{ref.buffer} is an input")

    def _access(self, instr: Instr, moved: Type, before_mask: Sequence[Type]) -> None:
        mask = [moved.with_dtype(BOOL.dtype)] if len(instr.args) > len(before_mask) else []
        self._types(instr, *before_mask, *mask)
        self._memory(instr, instr.data, moved.dtype)

    def _check_load(self, instr: Any) -> None:
        self._access(instr, instr.type, [INDEX])

    def _check_gather(self, instr: Any) -> None:
        self._access(instr, instr.type, [INDEX.with_lanes(instr.type.lanes)])

    def _check_store(self, instr: Any) -> None:
        self.need(len(instr.args) >= 2, instr, "it takes an offset and a value")
        value = instr.args[1].type
        self._access(instr, value, [INDEX, value])

    def _check_scatter(self, instr: Any) -> None:
        self.need(len(instr.args) >= 2, instr, "it takes offsets and a value")
        value = instr.args[1].type
        self._access(instr, value, [INDEX.with_lanes(value.lanes), value])

    def _check_prefetch(self, instr: Any) -> None:
        self._types(instr, INDEX)
        self._memory(instr, instr.data, None)

    def _check_barrier(self, instr: Any) -> None:
        self._types(instr)
        kinds = {o.kind for o in self.open if isinstance(o, Loop)}
        self.need(bool(kinds & {"block", "thread", "lane"}), instr,
                  "a barrier stands in a block or thread loop")

    # -- fragments ------------------------------------------------------------------------------

    def _fragment(self, instr: Instr, fragment: Any) -> Type:
        self.need(isinstance(fragment, Fragment) and fragment.role in ("a", "b", "acc")
                  and fragment.layout in ("row", "col") and min(fragment.shape) > 0, instr,
                  "its data is no fragment")
        lanes = [o for o in self.open if isinstance(o, Loop) and o.kind == "lane"]
        self.need(not lanes, instr, "a fragment op stands outside of lane loops")
        rows, columns = fragment.extents
        return Type(fragment.dtype, rows * columns)

    def _check_frag_zero(self, instr: Any) -> None:
        self._types(instr)
        self._gives(instr, self._fragment(instr, instr.data))
        self.fragments[instr] = instr.data

    def _check_frag_load(self, instr: Any) -> None:
        self._types(instr, INDEX, INDEX)
        fragment, ref = instr.data
        self._gives(instr, self._fragment(instr, fragment))
        self._memory(instr, ref, fragment.dtype)
        self.fragments[instr] = fragment

    def _check_frag_store(self, instr: Any) -> None:
        fragment, ref = instr.data
        type_ = self._fragment(instr, fragment)
        self._types(instr, INDEX, INDEX, type_)
        self._role(instr, instr.args[2], "acc", fragment.shape)
        self._memory(instr, ref, fragment.dtype)

    def _check_frag_mma(self, instr: Any) -> None:
        self._gives(instr, self._fragment(instr, instr.data))
        self.need(len(instr.args) == 3, instr, "it takes a, b and acc")
        a, b, _ = (self._role(instr, x, role, instr.data.shape)
                   for x, role in zip(instr.args, ("a", "b", "acc"), strict=True))
        acc = instr.data.dtype
        wide = {float32, float64, float16} if a.dtype.is_float else {int32}
        self.need(a.dtype == b.dtype and acc in wide and acc.bits >= a.dtype.bits
                  and instr.args[2].type == instr.type, instr,
                  f"it cannot add {a.dtype} times {b.dtype} to {acc}")
        self.fragments[instr] = instr.data

    def _role(self, instr: Instr, value: Instr, role: str, shape: tuple) -> Fragment:
        held = self.fragments.get(value)
        if held is None or (held.role, held.shape) != (role, shape):
            self.refuse(instr, f"{self._describe(value)} is no fragment {role} of {shape}")
        return held
