"""Kernels, stages and buffers.

    Kernel := axes; buffers; stages in order of dependence
    Axis   := name = extent                      i0, i1 .. (free somewhere), k0, k1 .. (never free)
    Buffer := input aN | output outN | scratch tN, dtype, shape (inputs and outputs are flat)
    Stage  := roles {axis: free | reduce | carry}; lets; state?; stores
    State  := per slot init, update, merge       a reduction (over `reduce`) or scan (over `carry`)
    Store  := buffer[expr..] = value             combined with what is there, or guarded

A *map* stage has no state; its stores run once per point of its free axes. A *reduction* has state
and at least one reduce axis; its stores run once per point of the free axes, after the last step,
over the final state: they are the `finish`. A *scan* has one carry axis: steps run in order, and
the stores run after every step over the state so far. A carry axis without state only fixes the
order (scatter). A Let names a value computed from data (an index read from memory) so that index
expressions use it.

The kernel's printed text is its key: names are given by first appearance, so kernels that differ
only in which arrays they are given are one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilewright.dtypes import DType
from tilewright.index import Expr, Sym
from tilewright.kernel.printer import print_kernel
from tilewright.kernel.value import Value, postorder


@dataclass(frozen=True)
class Axis:
    """A named index range 0..extent-1."""

    name: str
    extent: Expr

    @cached_property
    def sym(self) -> Sym:
        return Sym(self.name, 0, max(self.extent.hi - 1, 0))

    @property
    def expr(self) -> Expr:
        return Expr(((self.sym, 1),), 0) if self.extent != 1 else Expr((), 0)


@dataclass(frozen=True)
class Buffer:
    """Memory of a kernel. Inputs and outputs have one dimension: offsets are flat elements.

    An input has element alignment only; scratch has cache-line alignment, and so has an output
    unless it is a part of an array, which starts anywhere. No two buffers of a kernel overlap
    unless `alias` names the other.
    """

    name: str
    kind: str  # input, output, scratch
    dtype: DType
    shape: tuple[Expr, ...]
    alias: str = ""
    part: bool = False


@dataclass(frozen=True)
class Let:
    """A name for an int64 value with known bounds (`sym.lo..sym.hi`, enforced by the value)."""

    sym: Sym
    value: Value


@dataclass(frozen=True)
class State:
    """A reduction's or scan's tuple state.

    name      the row of `kernel.reductions` it was made from: sum, max, argmax ..
    init      one constant per slot
    update    the next state, over `state(i)` and the stage's expressions
    merge     two partial states joined, over `state(i)` and `other(i)`
    """

    name: str
    init: tuple[Value, ...]
    update: tuple[Value, ...]
    merge: tuple[Value, ...]


@dataclass(frozen=True)
class Store:
    """``buffer[index] = value`` where every guard holds; combine: "" or add, multiply, max, min."""

    buffer: str
    index: tuple[Expr, ...]
    value: Value
    combine: str = ""
    guard: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Stage:
    """One stage; `roles` lists (axis name, role) in loop order, outermost first."""

    name: str
    roles: tuple[tuple[str, str], ...]
    stores: tuple[Store, ...]
    state: State | None = None
    lets: tuple[Let, ...] = ()

    def axes(self, *roles: str) -> tuple[str, ...]:
        """Return the names of the axes with one of `roles` (all axes when none is given)."""
        return tuple(a for a, r in self.roles if not roles or r in roles)

    @cached_property
    def role(self) -> dict[str, str]:
        return dict(self.roles)

    def roots(self) -> list[Value]:
        """Return every root value of the stage: lets, update, stores and guards."""
        roots = [let.value for let in self.lets]
        roots += self.state.update if self.state else ()
        for store in self.stores:
            roots += [store.value, *store.guard]
        return roots

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """Every value of the stage, arguments first."""
        return tuple(postorder(self.roots()))

    @cached_property
    def loads(self) -> tuple[Value, ...]:
        return tuple(v for v in self.values if v.op == "load")

    @cached_property
    def reads(self) -> frozenset[str]:
        """The buffers that the stage loads from."""
        return frozenset(v.data[0] for v in self.loads)

    @cached_property
    def writes(self) -> frozenset[str]:
        """The buffers that the stage stores to."""
        return frozenset(s.buffer for s in self.stores)

    @cached_property
    def operands(self) -> dict[str, Value]:
        """The operands that a `Copy` can name: a, b, ..

        Of a contraction the two factors, whole expressions; elsewhere every distinct load.
        """
        if self.is_contraction:
            factors = self.state.update[0].args[1].args  # type: ignore[union-attr]
            return dict(zip("ab", factors))
        return dict(zip("abcdefghijklmnopqrstuvwxyz", self.loads))

    @cached_property
    def is_contraction(self) -> bool:
        """True for a sum whose update is ``state + a * b`` in floating point."""
        if not self.state or self.state.name != "sum" or len(self.state.update) != 1:
            return False
        update = self.state.update[0]
        return update.op == "add" and update.args[1].op == "multiply" and update.dtype.is_float


@dataclass(frozen=True)
class Kernel:
    """One fused kernel; see the module's grammar."""

    axes: tuple[Axis, ...]
    buffers: tuple[Buffer, ...]
    stages: tuple[Stage, ...]

    @cached_property
    def axis(self) -> dict[str, Axis]:
        return {a.name: a for a in self.axes}

    @cached_property
    def buffer(self) -> dict[str, Buffer]:
        return {b.name: b for b in self.buffers}

    @cached_property
    def stage(self) -> dict[str, Stage]:
        return {s.name: s for s in self.stages}

    @cached_property
    def inputs(self) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b.kind == "input")

    @cached_property
    def outputs(self) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b.kind == "output")

    @cached_property
    def key(self) -> str:
        return print_kernel(self)

    def __str__(self) -> str:
        return self.key

    def readers(self, buffer: str) -> tuple[Stage, ...]:
        """Return the stages that load from `buffer`."""
        return tuple(s for s in self.stages if buffer in s.reads)

    def writers(self, buffer: str) -> tuple[Stage, ...]:
        """Return the stages that store to `buffer`."""
        return tuple(s for s in self.stages if buffer in s.writes)
