"""Tracing: run a Python function once on holes instead of values, and keep the graph it builds.

While a function is traced, every tensor that it may read (an argument, or one that it captures)
has its node replaced by a parameter: reading the tensor reads the hole, writing to it is noticed
afterwards, and both work through any number of names for the one handle. Python numbers among the
arguments become weak tensors of shape (). Afterwards everything is put back as it was, whatever
happened; what the function changed is known as *writes*, done again by each call:

    handle write   `x[i] = v` on an argument or a captured tensor
    place write    `self.state = v`: a captured variable that came to hold another tensor

Other threads must not read those tensors meanwhile: calls of compiled functions wait for the trace,
other uses do not.

A change of other captured state (a counter, a list) cannot be repeated; it is accepted only if the
next trace does not change it again (a value computed once and kept), else refused by name.
"""

from __future__ import annotations

import gc
import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.array.tensor import Tensor, tracing
from tilewright.dtypes import DType, as_dtype, bool_, float64, int64, uint32
from tilewright.errors import TraceError
from tilewright.graph import Node, parameter
from tilewright.graph.evaluate import evaluate
from tilewright.jit.capture import Capture, Fact
from tilewright.jit.code import user_frame
from tilewright.jit.graphs import is_open, leaves, substitute
from tilewright.jit.places import Place, Root
from tilewright.jit.structure import Structure, flatten, unflatten
from tilewright.random import GENERATOR
from tilewright.runtime.storage import Storage

NUMBER_DTYPES = {bool: bool_, int: int64, float: float64}
# held while a trace has made holes of handles that other threads may hold too
trace_lock = threading.RLock()
_holes = itertools.count()  # parameters of different traces are different nodes


def hole(shape: tuple[int, ...], dtype: DType) -> Node:
    """Return a parameter that no other trace has."""
    return parameter(next(_holes), shape, dtype)


@dataclass
class Hole:
    """A parameter of a trace and where its value comes from.

    kind    tensor, array, number, draw (of the global random generator)
    source  ("argument", leaf number) or ("place", Place), or None for a draw
    """

    node: Node
    kind: str
    source: tuple | None
    value: Any = None
    special: bool = False  # the trace has used the number's very value


@dataclass
class Traced:
    """What a trace found: everything that a call of the plan needs to know."""

    holes: list[Hole]
    facts: list[Fact]
    outputs: list[Any]  # a Node, a Hole's number for a number given back, or any other value
    weak: list[bool]
    structure: Structure
    handle_writes: list[tuple[Hole, Node]]
    place_writes: list[tuple[Place, Node, bool]]
    changed: list[Fact] = field(default_factory=list)


class Trace:
    """One run of a function on holes; `tracing` holds it meanwhile."""

    def __init__(self, function: Callable, name: str, promoted: frozenset[tuple]):
        self.function, self.name, self.promoted = function, name, promoted
        self.holes: list[Hole] = []
        self._handles: dict[int, tuple[Tensor, Node, Hole]] = {}
        self._restore: list[Callable[[], None]] = []
        self._by_node: dict[Node, Hole] = {}
        self.capture = Capture(name, self._seen)
        self._stand_ins: list[Tensor] = []
        self._adopted: dict[Node, Node] = {}
        self._serial = hole((), bool_).serial

    # holes

    def _hole(self, kind: str, shape: tuple, dtype: DType, source: tuple | None,
              value: Any = None) -> Hole:
        made = Hole(hole(shape, dtype), kind, source, value)
        self.holes.append(made)
        self._by_node[made.node] = made
        return made

    def handle(self, tensor: Tensor, source: tuple | None) -> None:
        """Make a hole of a tensor handle until the trace ends."""
        if id(tensor) in self._handles:
            return
        made = self._hole("tensor", tensor.shape, tensor.dtype, source, tensor)
        self._handles[id(tensor)] = tensor, tensor._node, made
        tensor._node = made.node

    def _seen(self, tensor: Tensor, place: Place) -> bool:
        """Make a hole of a captured tensor; return False for one that this trace has made."""
        if id(tensor) in self._handles:
            return True
        if is_open(tensor._node):
            if all(n.serial < self._serial for n in leaves([tensor._node], "parameter")):
                raise TraceError(f"jit: cannot use {place.name} in {self.name} (a tensor kept from "
                                 "an earlier trace, where it had no value)")
            return False
        self.handle(tensor, ("place", place))
        return True

    def stand_in(self, value: Any, leaf: int) -> Any:
        """Return what the function gets instead of leaf number `leaf` of its arguments."""
        source = ("argument", leaf)
        if isinstance(value, Tensor):
            self.handle(value, source)
            return value
        if isinstance(value, (np.ndarray, np.generic)):
            array = np.asarray(value)
            return Tensor(self._hole("array", array.shape, array_dtype(array), source).node)
        dtype = NUMBER_DTYPES[type(value)]
        return Tensor(self._hole("number", (), dtype, source, value).node, weak=True)

    def _promote(self, fact: Fact) -> None:
        """Let a captured float that is known to change be a hole."""
        made = self._hole("number", (), float64, ("place", fact.place), fact.value)
        self._stand_ins.append(Tensor(made.node, weak=True))
        fact.place.hold(self._stand_ins[-1])
        self._restore.append(fact.undo)

    def adopt(self, stand_in: Node, origin: Node) -> None:
        """Let a node that stands for `origin` be replaced by it in whatever the function leaves."""
        (self._adopted[stand_in],) = substitute([origin], self._adopted)

    # values, asked for by the traced function

    def storage(self, tensor: Tensor) -> Storage:
        """Return the values of `tensor` if they are known: those of Python numbers, as guards."""
        node = tensor._node
        if not is_open(node):
            with untraced():  # on a handle of its own: this one keeps its graph
                return Tensor(node)._storage()
        used = leaves([node], "parameter")
        made = [self._by_node.get(n) for n in used]
        if all(h is not None and h.kind == "number" for h in made):
            for h in made:
                h.special = True  # type: ignore[union-attr]
            known = {n: np.asarray(h.value, n.dtype.numpy)  # type: ignore[union-attr]
                     for n, h in zip(used, made)}
            (value,) = evaluate([node], lambda n: known[n] if n in known
                                else n.attrs.storage.array)
            return Storage(np.array(value, dtype=node.dtype.numpy, order="C"), node.dtype)
        raise TraceError(
            f"jit: cannot read the value of {node.dtype}{list(node.shape)} in "
            f"{user_frame(sys._getframe())} (it is not known while {self.name} is traced; use "
            "tilewright.where for a choice, or static_argnums for an argument that decides)")

    def realize(self, tensors: Iterable[Tensor]) -> None:
        """Do nothing: tensors made while tracing are computed when the plan runs."""

    def _draw(self) -> Tensor:
        return Tensor(self._hole("draw", (2,), uint32, None).node)

    # the run

    def run(self, values: Sequence[Any], structure: Structure, static: Set[int],
            roots: Sequence[Root]) -> Traced:
        """Call the function on stand-ins and return what it built; everything is put back.

        `values` are the leaves of (args, kwargs); those numbered in `static` are passed unchanged.
        """
        generator = GENERATOR.count, GENERATOR._base
        token = tracing.set(self)
        profile = sys.getprofile()
        collecting = gc.isenabled()
        gc.disable()  # a collection may call any code, which would be taken for the function's
        try:
            stand_ins = [v if i in static else self.stand_in(v, i) for i, v in enumerate(values)]
            given = unflatten(structure, stand_ins)
            for root in roots:
                self.capture.start(root)
            with GENERATOR.redirect(self._draw):
                sys.setprofile(self._profile)
                try:
                    result = self.function(*given[0], **given[1])
                finally:
                    if profile is None or callable(profile):
                        sys.setprofile(profile)
                    else:
                        profile.enable()  # cProfile's, which is not a function
            self._check_arguments(given, structure, stand_ins)
            if (GENERATOR.count, id(GENERATOR._base)) != (generator[0], id(generator[1])):
                raise TraceError(f"jit: cannot seed the global generator in {self.name} "
                                 "(a call would not do it again; seed it outside)")
            self.capture.check_generators()
            return self._finish(result)
        except BaseException:
            for fact in (f for f in self.capture.facts if self._differs(f)):
                fact.undo()
            raise
        finally:
            if collecting:
                gc.enable()
            tracing.reset(token)
            for tensor, node, _ in self._handles.values():
                tensor._node = node
            for undo in reversed(self._restore):
                undo()

    def _profile(self, frame: Any, event: str, argument: Any) -> None:
        if event != "call" or id(frame.f_code) in self.capture.codes:
            return
        capture = self.capture
        known = len(capture.facts)
        capture.enter(frame)
        for fact in capture.facts[known:]:
            if fact.kind == "float" and fact.place.path() in self.promoted:
                self._promote(fact)

    def _check_arguments(self, given: Any, structure: Structure, stand_ins: list) -> None:
        same = {id(s) for s in stand_ins}
        found, after = flatten(given, lambda v: id(v) in same)
        if after != structure or any(a is not b for a, b in zip(found, stand_ins)):
            raise TraceError("jit: cannot change a list or dict among the arguments of "
                             f"{self.name} (a call would not do it again; return the new value)")

    def _finish(self, result: Any) -> Traced:
        values, structure = flatten(result)
        for tensor, *_ in self._handles.values():
            tensor._node = self._closed(tensor._node)
        outputs = [self._output(v, structure, i) for i, v in enumerate(values)]
        handle_writes = [(h, t._node) for t, _, h in self._handles.values()
                         if t._node is not h.node]
        place_writes, changed = self._changes()
        nodes = [o for o in outputs if isinstance(o, Node)]
        nodes += [n for _, n in handle_writes] + [n for _, n, _ in place_writes]
        self._check_leaves(nodes)
        weak = [isinstance(v, Tensor) and v._weak for v in values]
        return Traced(self.holes, self.capture.facts, outputs, weak, structure,
                      handle_writes, place_writes, changed)

    def _output(self, value: Any, structure: Structure, leaf: int) -> Any:
        if isinstance(value, Tensor):
            return self._closed(value._node)
        if isinstance(value, (bool, int, float, complex, str, bytes, np.ndarray, np.generic, DType,
                              type(None), type)):
            return value
        raise TraceError(f"jit: cannot return {type(value).__name__} from {self.name} "
                         "(tensors, numbers and trees of them can be returned)")

    def _changes(self) -> tuple[list[tuple[Place, Node, bool]], list[Fact]]:
        """Compare captured state with what it was: new tensors are writes, the rest is refused."""
        writes, changed = [], []
        for fact in self.capture.facts:
            if not self._differs(fact):
                continue
            found = fact.place.get()
            if isinstance(found, Tensor) and fact.kind != "container":
                writes.append((fact.place, self._closed(found._node), found._weak))
                self._restore.append(fact.undo)
            else:
                changed.append(fact)
        return writes, changed

    def _closed(self, node: Node) -> Node:
        return substitute([node], self._adopted)[0] if self._adopted else node

    def _differs(self, fact: Fact) -> bool:
        found = fact.place.get()
        return not fact.holds() and not any(found is s for s in self._stand_ins)

    def _check_leaves(self, nodes: list[Node]) -> None:
        for node in leaves(nodes, "parameter"):
            if node not in self._by_node:
                raise TraceError(f"jit: cannot use {node.dtype}{list(node.shape)} in {self.name} "
                                 "(it was kept from another trace, where it had no value)")
        for node in leaves(nodes, "buffer"):
            if node.serial < self._serial:
                raise TraceError(
                    f"jit: cannot follow how {self.name} reaches a tensor {node.dtype}"
                    f"{list(node.shape)} (it is neither an argument, nor found from globals, "
                    "closures and attributes; pass it as an argument)")


@contextmanager
def untraced() -> Iterator[None]:
    """Within the block, no trace is in force."""
    token = tracing.set(None)
    try:
        yield
    finally:
        tracing.reset(token)


def array_dtype(array: np.ndarray) -> DType:
    """Return the dtype of a NumPy argument; raises DTypeError for what is not stored here."""
    return as_dtype(array.dtype.newbyteorder("="))

