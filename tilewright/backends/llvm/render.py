"""Programs to LLVM IR text: one function each, and the table of their entries.

    @tilewright_entries = constant { i64, [n x ptr] }      how many, and the functions in order
    define void @name(ptr %buffers, ptr %extents, i64 %worker, i64 %workers)

Loops are written bottom-tested, with a guard in front unless constants show one iteration at
least. Nothing here is left for LLVM's middle end, which does not run.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.backends.llvm import instructions, memory
from tilewright.backends.llvm.host import Host
from tilewright.backends.llvm.types import text_of
from tilewright.backends.llvm.writer import METADATA, Emitter, Writer
from tilewright.errors import BackendError
from tilewright.program.ir import Binding, Block, If, Instr, Loop, Program

ENTRIES = "tilewright_entries"
_GPU = {"block": "blocks of a grid", "thread": "threads of a block", "lane": "lanes of a warp"}


def render(programs: Sequence[Program], binding: Binding, host: Host) -> str:
    """Return the module of a kernel's programs for a CPU.

    Raises BackendError for GPU loops, barriers, shared memory and fragments.
    """
    names = [p.name for p in programs]
    if len(set(names)) < len(names):
        raise BackendError(f"llvm: cannot render two programs of one name ({', '.join(names)})")
    declarations: dict[str, str] = {}
    metadata = list(METADATA)
    lines: list[str] = []
    for program in programs:
        lines += _function(Writer(program, binding.private_bytes, declarations, metadata, host))
    n = len(names)
    table = ", ".join(f"ptr {_symbol(name)}" for name in names)
    head = f"@{ENTRIES} = constant {{ i64, [{n} x ptr] }} {{ i64 {n}, [{n} x ptr] [{table}] }}"
    tail = [f"attributes #0 = {{ nounwind {host.attributes} }}",
            *(f"!{i} = {text}" for i, text in enumerate(metadata))]
    return "\n".join([head, *lines, *declarations.values(), *tail, ""])


def _symbol(name: str) -> str:
    return '@"' + name.replace("\\", "\\5C").replace('"', "\\22") + '"'


def _function(w: Writer) -> list[str]:
    program = w.program
    w.start("entry")
    w.keep_pointers()
    if program.parallel:
        _shared_block(w, program.body)
    else:
        _block(w, program.body)
    return [f"define void {_symbol(program.name)}(ptr %buffers, ptr %extents, "
            "i64 %worker, i64 %workers) #0 {", *w.out, "ret void", "}"]


def _block(w: Writer, block: Block) -> None:
    names, emitters = w.names, EMITTERS
    for instr in block:
        emit = emitters.get(instr.op)
        if emit is None:
            raise BackendError(f"llvm: cannot render {instr.op!r} in {w.program.name} "
                               "(no such operation)")
        name = emit(w, instr)
        if name is not None:
            names[instr] = name
        w.breathe()


# -- code outside of the parallel loop ---------------------------------------------------------


def _shared_block(w: Writer, block: Block) -> None:
    """Write the top of a parallel program: every worker computes, worker 0 alone writes."""
    start = 0
    while start < len(block):
        end = start + 1
        writes = _writes(block[start])
        while end < len(block) and _writes(block[end]) == writes:
            end += 1
        if writes:
            _on_first_worker(w, block[start:end])
        else:
            _block(w, block[start:end])
        start = end


def _writes(instr: Instr) -> bool:
    """Say whether an instruction outside of the parallel loop changes memory."""
    if isinstance(instr, Loop) and instr.kind == "parallel":
        return False
    if isinstance(instr, (Loop, If)):
        return any(map(_writes, instr.body))
    return instr.op in ("store", "scatter")


def _on_first_worker(w: Writer, block: Block) -> None:
    yes, end = w.fresh_label(), w.fresh_label()
    first = w.new("icmp eq i64 %worker, 0")
    w.branch(first, yes, end)
    w.start(yes)
    _block(w, block)
    for instr in block:
        if w.results.pop(instr, None):
            raise BackendError(f"llvm: cannot render {w.program.name} (a loop that writes memory "
                               "outside of the parallel loop carries a value)")
    w.jump(end)
    w.start(end)


# -- loops and conditions ----------------------------------------------------------------------


def _constant(x: Instr) -> int | None:
    return int.from_bytes(x.data, "little", signed=True) if x.op == "const" else None


def _share(w: Writer, lo: str, hi: str) -> tuple[str, str]:
    """Return the bounds of this worker's contiguous share; the first ones take the remainder."""
    total = w.new(f"sub i64 {hi}, {lo}")
    each = w.new(f"sdiv i64 {total}, %workers")
    rest = w.new(f"srem i64 {total}, %workers")
    skip = w.new(f"mul i64 {each}, %worker")
    w.declare("llvm.smin.i64", "i64", "i64, i64")
    extra = w.new(f"call i64 @llvm.smin.i64(i64 {rest}, i64 %worker)")
    skip = w.new(f"add i64 {skip}, {extra}")
    begin = w.new(f"add i64 {lo}, {skip}")
    more = w.new(f"icmp slt i64 %worker, {rest}")
    more = w.new(f"zext i1 {more} to i64")
    size = w.new(f"add i64 {each}, {more}")
    return begin, w.new(f"add i64 {begin}, {size}")


def _loop(w: Writer, loop: Instr) -> None:
    assert isinstance(loop, Loop)
    if loop.kind in _GPU:
        raise BackendError(f"llvm: cannot render a {loop.kind} loop in {w.program.name} "
                           f"(a CPU has no {_GPU[loop.kind]})")
    lo, hi = w.names[loop.lo], w.names[loop.hi]
    low, high = _constant(loop.lo), _constant(loop.hi)
    if loop.kind == "parallel":
        lo, hi = _share(w, lo, hi)
        low = high = None
    known = low is not None and high is not None
    inits = [w.names[i] for i in loop.inits]
    if known and low >= high:  # type: ignore[operator]
        w.results[loop] = inits
        return
    starts = [_times(w, lo, low, s.data[1]) for s in loop.scaled]  # type: ignore[index]
    header, end = w.fresh_label(), w.fresh_label()
    before = w.label
    if known:
        w.jump(header)
    else:
        w.branch(w.new(f"icmp slt i64 {lo}, {hi}"), header, end)
    latch, yields = _body(w, loop, lo, hi, starts, inits, before, header, end)
    w.start(end)
    w.results[loop] = yields if known else [
        w.new(f"phi {text_of(c.type)} [ {init}, %{before} ], [ {final}, %{latch} ]")
        for c, init, final in zip(loop.carries, inits, yields)]


def _times(w: Writer, lo: str, low: int | None, coef: int) -> str:
    return str(low * coef) if low is not None else w.new(f"mul i64 {lo}, {coef}")


def _body(w: Writer, loop: Loop, lo: str, hi: str, starts: list[str], inits: list[str],
          before: str, header: str, end: str) -> tuple[str, list[str]]:
    """Write the loop itself; return the label of its last block and the yielded values."""
    w.start(header)
    values = [loop.var, *loop.scaled, *loop.carries]
    firsts = [lo, *starts, *inits]
    lines = []
    for value in values:
        w.names[value], line = w.reserve()
        lines.append(line)
    _block(w, loop.body)
    steps = [1, *(s.data[1] for s in loop.scaled)]  # type: ignore[index]
    nexts = [w.new(f"add {'nsw ' if k == 0 else ''}i64 {w.names[v]}, {step}")
             for k, (v, step) in enumerate(zip(values, steps))]
    yields = [w.names[y] for y in loop.yields]
    latch = w.label
    w.branch(w.new(f"icmp slt i64 {nexts[0]}, {hi}"), header, end)
    for value, line, first, following in zip(values, lines, firsts, [*nexts, *yields]):
        w.out[line] = (f"{w.names[value]} = phi {text_of(value.type)} "
                       f"[ {first}, %{before} ], [ {following}, %{latch} ]")
    return latch, yields


def _if(w: Writer, branch: Instr) -> None:
    assert isinstance(branch, If)
    yes, end = w.fresh_label(), w.fresh_label()
    w.branch(w.names[branch.args[0]], yes, end)
    w.start(yes)
    _block(w, branch.body)
    w.jump(end)
    w.start(end)


EMITTERS: dict[str, Emitter] = {
    **instructions.EMITTERS, **memory.EMITTERS, "loop": _loop, "if": _if,
}
