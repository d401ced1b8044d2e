"""Translate a Program to Python source: values are local variables, loops are loops.

A thread or lane loop's body is a generator function that yields at barriers; `Machine.lockstep`
runs its threads. Python nests twenty loops at most in one function, so deep nests continue in a
function of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.backends.interpreter import arithmetic
from tilewright.dtypes import DType
from tilewright.errors import BackendError
from tilewright.program.ir import Block, Instr, Loop, MemRef, Program
from tilewright.program.printer import Printer

_NEST = 12  # loops in one function
_LINE = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}",
    "fma": "fma({0}, {1}, {2})", "min": "np.minimum({0}, {1})", "max": "np.maximum({0}, {1})",
    "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "not": "~{0}",
    "shl": "{0} << {1}", "shr": "{0} >> {1}", "neg": "-{0}", "abs": "np.abs({0})",
    "sqrt": "np.sqrt({0})", "floor": "np.floor({0})", "ceil": "np.ceil({0})",
    "trunc": "np.trunc({0})", "round": "np.rint({0})",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "lt": "{0} < {1}", "le": "{0} <= {1}",
    "thread": "i64(worker)", "threads": "i64(workers)",
}

Run = Callable[..., None]


def translate(program: Program, check_races: bool) -> tuple[str, dict[str, Any], list[Instr]]:
    """Return (source of ``run(m, memory, worker, workers)``, its names, the sites of faults)."""
    t = _Translator(program, check_races)
    t.translate()
    return "\n".join(t.lines) + "\n", t.names, t.sites


def load(program: Program, check_races: bool) -> tuple[Run, list[Instr]]:
    """Return the Program as a Python function, and the sites of its faults."""
    source, names, sites = translate(program, check_races)
    exec(compile(source, f"<program {program.name}>", "exec"), names)
    return names["run"], sites


class _Translator:
    def __init__(self, program: Program, check_races: bool):
        self.program, self.check_races = program, check_races
        self.value = Printer(program).names
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"np": np, "i64": np.int64, "fma": arithmetic.fma,
                                      "mma": arithmetic.mma, "shuffle": arithmetic.shuffle}
        self.sites: list[Instr] = []
        self.depth = 1  # of indentation
        self.nest = 0  # loops of this function
        self.threads = False  # inside of a thread or lane loop
        self.guarded = program.parallel  # outside of the parallel loop: worker 0 has the effects
        buffers: list[Any] = [*program.params, *program.scratch]
        self.buffers: dict[str, int] = {b.name: i for i, b in enumerate(buffers)}
        self.dtypes: dict[str, DType] = {b.name: b.dtype for b in buffers}

    def put(self, line: str) -> None:
        self.lines.append(" " * self.depth + line)

    def site(self, instr: Instr) -> int:
        self.sites.append(instr)
        return len(self.sites) - 1

    def known(self, value: object) -> str:
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def translate(self) -> None:
        self.lines.append("def run(m, memory, worker, workers):")
        self.put("t = ()")
        for p in self.program.params:
            self._bind(p.name, f"memory[{p.name!r}]")
        for s in self.program.scratch:
            if s.space == "global":
                self._bind(s.name, f"memory[{s.name!r}]")
        self._bind_scratch("private", "shared")
        self.block(self.program.body)

    def _bind(self, buffer: str, source: str) -> None:
        i = self.buffers[buffer]
        self.put(f"b{i} = {source}")

    def _bind_scratch(self, *spaces: str) -> None:
        for s in self.program.scratch:
            if s.space in spaces:
                self._bind(s.name, f"m.private({s.name!r}, t)" if s.space == "private"
                           else f"m.undefined({s.name!r})")

    # -- blocks ------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for instr in block:
            if isinstance(instr, Loop):
                self.loop(instr)
            elif instr.op == "if":
                self.put(f"if {self.value[instr.args[0]]}:")
                self.inside(instr.body)
            else:
                self.instruction(instr)

    def inside(self, block: Block, *first: str, last: str = "pass") -> None:
        self.depth += 1
        for line in first:
            self.put(line)
        self.block(block)
        self.put(last)
        self.depth -= 1

    def loop(self, loop: Loop) -> None:
        var, lo, hi = (self.value[x] for x in (loop.var, loop.lo, loop.hi))
        heads = [f"{var} = i64({var})"]
        heads += [f"{self.value[s]} = {var} * i64({s.data[1]})"  # type: ignore[index]
                  for s in loop.scaled]
        if loop.kind in ("thread", "lane"):
            self._threads(loop, heads)
        elif loop.kind == "serial" and self.nest >= _NEST:
            self._apart(loop)
        elif loop.kind == "parallel":
            self.put(f"n = max(int({hi}) - int({lo}), 0)")
            self.put(f"for {var} in range(int({lo}) + n * worker // workers, "
                     f"int({lo}) + n * (worker + 1) // workers):")
            self.guarded, self.nest = False, self.nest + 1
            self.inside(loop.body, *heads)
            self.guarded, self.nest = True, self.nest - 1
        else:
            carries = [self.value[c] for c in loop.carries]
            for c, init in zip(carries, loop.inits):
                self.put(f"{c} = {self.value[init]}")
            self.put(f"for {var} in range(int({lo}), int({hi})):")
            yields = ", ".join(self.value[y] for y in loop.yields)
            self.nest += 1
            if loop.kind == "block":
                self._block_body(loop, heads)
            else:
                self.inside(loop.body, *heads,
                            last=f"{', '.join(carries)} = {yields}" if carries else "pass")
            self.nest -= 1

    def _block_body(self, loop: Loop, heads: list[str]) -> None:
        self.depth += 1
        if not any(isinstance(i, Loop) and i.kind == "block" for i in loop.body):
            self.put("m.enter_block()")
            self._bind_scratch("private", "shared")
        self.depth -= 1
        self.inside(loop.body, *heads)

    def _apart(self, loop: Loop) -> None:
        """Continue a deep nest in its own function, which returns what the loop carries."""
        name, nest = f"nest_{self.value[loop]}", self.nest
        carries = [self.value[c] for c in loop.carries]
        self.put(f"def {name}():")
        self.depth, self.nest = self.depth + 1, 0
        self.loop(loop)
        self.put(f"return ({''.join(c + ', ' for c in carries)})")
        if self.threads:
            self.put("yield")
        self.depth, self.nest = self.depth - 1, nest
        call = f"yield from {name}()" if self.threads else f"{name}()"
        self.put(f"{''.join(c + ', ' for c in carries)} = {call}" if carries else call)

    def _threads(self, loop: Loop, heads: list[str]) -> None:
        var, lo, hi = (self.value[x] for x in (loop.var, loop.lo, loop.hi))
        name, outer, nest = f"thread_{self.value[loop]}", self.threads, self.nest
        self.put(f"def {name}({var}, t):")
        self.depth, self.threads, self.nest = self.depth + 1, True, 0
        self.put(f"t = (*t, {var})")
        self._bind_scratch("private")
        self.depth -= 1
        self.inside(loop.body, *heads, last="return")
        self.lines.append(" " * (self.depth + 1) + "yield")
        self.threads, self.nest = outer, nest
        run = "yield from m.lockstep" if outer else "m.run_threads"
        self.put(f"{run}({name}, range(int({lo}), int({hi})), t)")

    # -- instructions ------------------------------------------------------------------------

    def instruction(self, instr: Instr) -> None:
        special = getattr(self, f"_{instr.op}", None)
        if instr.op in _LINE:
            self.set(instr, _LINE[instr.op].format(*(self.value[a] for a in instr.args)))
        elif special is not None:
            special(instr, *(self.value.get(a, "") for a in instr.args))
        else:
            raise BackendError(f"interpreter: cannot execute {instr.op} (no such operation)")

    def set(self, instr: Instr, source: str) -> None:
        self.put(f"{self.value[instr]} = {source}")

    def _const(self, instr: Any) -> None:
        one = np.frombuffer(instr.data, instr.type.dtype.numpy)
        lanes = instr.type.lanes
        self.set(instr, self.known(one[0] if lanes == 1 else np.repeat(one, lanes)))

    def _lanes(self, instr: Any) -> None:
        lanes = instr.type.lanes
        self.set(instr, self.known(np.arange(lanes) if lanes > 1 else np.int64(0)))

    def _splat(self, instr: Any, x: str) -> None:
        lanes = instr.type.lanes
        self.set(instr, x if lanes == 1 else
                 f"np.full({lanes}, {x}, {self.known(instr.type.dtype.numpy)})")

    def _lane(self, instr: Any, x: str) -> None:
        self.set(instr, x if instr.args[0].type.lanes == 1 else f"{x}[{instr.data}]")

    def _shuffle(self, instr: Any, x: str, y: str) -> None:
        self.set(instr, f"shuffle({x}, {y}, {self.known(np.array(instr.data))})")

    def _idiv(self, instr: Any, a: str, b: str) -> None:
        self.set(instr, f"m.divide({self.site(instr)}, {instr.op!r}, {a}, {b})")

    _irem = _idiv

    def _select(self, instr: Any, c: str, a: str, b: str) -> None:
        self.set(instr, f"{a} if {c} else {b}" if instr.type.lanes == 1
                 else f"np.where({c}, {a}, {b})")

    def _cast(self, instr: Any, x: str) -> None:
        dtype = instr.type.dtype
        self.set(instr, f"{x} != 0" if dtype.is_bool
                 else f"{x}.astype({self.known(dtype.numpy)})")

    def _bitcast(self, instr: Any, x: str) -> None:
        self.set(instr, f"{x}.view({self.known(instr.type.dtype.numpy)})")

    def _result(self, instr: Any, _: str) -> None:
        self.set(instr, self.value[instr.args[0].carries[instr.data]])

    def _barrier(self, instr: Any) -> None:
        self.put(f"yield {self.site(instr)}" if self.threads else "m.meet()")

    def _prefetch(self, instr: Any, offset: str) -> None:
        """Nothing: a prefetch may name any address."""

    # -- memory ------------------------------------------------------------------------------

    def _load(self, instr: Any, offset: str, mask: str = "") -> None:
        self._move(instr, offset, "", mask)

    def _store(self, instr: Any, offset: str, x: str, mask: str = "") -> None:
        self._move(instr, offset, x, mask)

    _gather, _scatter = _load, _store

    def _move(self, instr: Any, offset: str, x: str, mask: str) -> None:
        """Put a load (x is empty) or a store; a single lane's gather is a load."""
        lanes = (instr.args[1].type if x else instr.type).lanes
        depth = self.depth
        if x and self.guarded:
            self.put("if worker == 0:")
            self.depth += 1
        if lanes == 1 and mask:
            if not x:
                self.set(instr, f"{self.known(instr.type.dtype.numpy.type(0))}")
            self.put(f"if {mask}:")
            self.depth += 1
        if lanes > 1 and (mask or instr.op in ("gather", "scatter")):
            self._lanes_apart(instr, instr.data, offset, x, mask, lanes)
        else:
            self._run_of_lanes(instr, instr.data, offset, x, lanes)
        self.depth = depth

    def _run_of_lanes(self, instr: Instr, ref: MemRef, offset: str, x: str, lanes: int) -> None:
        b, site = f"b{self.buffers[ref.buffer]}", self.site(instr)
        self.put(f"i = int({offset}) + {ref.offset}")
        self.put(f"if not 0 <= i <= {b}.size - {lanes}: "
                 f"m.bounds({site}, i, {ref.buffer!r}, {b}.size)")
        self._aligned(ref, site)
        place = "i" if lanes == 1 else f"i:i + {lanes}"
        self._touch(site, ref, "i" if lanes == 1 else f"slice(i, i + {lanes})", bool(x))
        if x:
            self.put(f"{b}[{place}] = {x}")
        else:
            self.set(instr, f"{b}[{place}]" + ("" if lanes == 1 else ".copy()"))

    def _lanes_apart(self, instr: Instr, ref: MemRef, offset: str, x: str, mask: str,
                     lanes: int) -> None:
        b, site = f"b{self.buffers[ref.buffer]}", self.site(instr)
        mask = mask or "None"
        self.put(f"i = {offset} + {ref.offset}")
        if instr.op in ("load", "store"):
            self._aligned(ref, site)
            self.put(f"i = i + {self.known(np.arange(lanes))}")
        self.put(f"p = m.places({site}, {ref.buffer!r}, {b}, i, {mask})")
        self._touch(site, ref, "p", bool(x))
        if x:
            self.put(f"{b}[p] = {x}" + ("" if mask == "None" else f"[{mask}]"))
        else:
            self.set(instr, f"m.take({b}, p, {mask})")

    def _aligned(self, ref: MemRef, site: int) -> None:
        size = self.dtypes[ref.buffer].itemsize
        if ref.align > size:
            self.put(f"if i * {size} % {ref.align}: m.fault({site}, f'offset {{i}} of "
                     f"{ref.buffer} is not aligned to {ref.align} bytes')")

    def _touch(self, site: int, ref: MemRef, places: str, write: bool) -> None:
        if self.check_races:
            self.put(f"m.touch({site}, {ref.buffer!r}, {places}, t, {write})")

    # -- fragments ---------------------------------------------------------------------------

    def _frag_zero(self, instr: Any) -> None:
        self.set(instr, self.known(np.zeros(instr.type.lanes, instr.type.dtype.numpy)))

    def _frag_mma(self, instr: Any, a: str, b: str, acc: str) -> None:
        self.set(instr, f"mma({a}, {b}, {acc}, {instr.data.shape})")

    def _frag_load(self, instr: Any, offset: str, ld: str) -> None:
        b = self._tile(instr, offset, ld, False)
        self.set(instr, f"{b}[p]")

    def _frag_store(self, instr: Any, offset: str, ld: str, x: str) -> None:
        depth = self.depth
        if self.guarded:
            self.put("if worker == 0:")
            self.depth += 1
        b = self._tile(instr, offset, ld, True)
        self.put(f"{b}[p] = {x}")
        self.depth = depth

    def _tile(self, instr: Any, offset: str, ld: str, write: bool) -> str:
        fragment, ref = instr.data
        b, site = f"b{self.buffers[ref.buffer]}", self.site(instr)
        rows, columns = np.indices(fragment.extents).reshape(2, -1)
        far, near = (rows, columns) if fragment.layout == "row" else (columns, rows)
        self.put(f"i = int({offset}) + {ref.offset}")
        self._aligned(ref, site)
        self.put(f"i = i + {self.known(far)} * {ld} + {self.known(near)}")
        self.put(f"p = m.places({site}, {ref.buffer!r}, {b}, i, None)")
        self._touch(site, ref, "p", write)
        return b
