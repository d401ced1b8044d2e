"""The compiled call: one Python function per trace, written as source and executed once.

It tells whether arguments and captured state are those of the trace; if so it gathers the
storages of the plan's inputs, runs the plan, repeats the writes and builds the result:

    def call(args, kwargs, only_check):
        try:
            checks and reads, `return MISS` at the first that differs
        except ...: return MISS
        if only_check: return None
        inputs = [v0._node.attrs.storage, ...]
        outputs = run(inputs)
        writes
        return result
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from tilewright.array.tensor import Tensor, realize
from tilewright.dtypes import DType, as_dtype
from tilewright.errors import TraceError
from tilewright.graph import Node, buffer
from tilewright.jit.capture import Fact
from tilewright.jit.places import MISSING, same_value
from tilewright.jit.structure import Structure, assemble, is_namedtuple
from tilewright.jit.trace import Hole, Traced, trace_lock
from tilewright.random import GENERATOR
from tilewright.runtime.memory import allocator
from tilewright.runtime.storage import Storage

MISS: Any = type("Miss", (), {})()


def settle(tensors: Sequence[Tensor]) -> None:
    """Compute tensors; waits until no other thread has holes in their place."""
    with trace_lock:
        realize(tensors)


def number_storage(value: Any, dtype: DType) -> Storage:
    return Storage(np.array(value, dtype.numpy), dtype)


def array_storage(array: Any, dtype: DType) -> Storage:
    return Storage(np.asarray(array, dtype=dtype.numpy, order="C"), dtype)


def is_like(node: Node, shape: tuple[int, ...], dtype: DType) -> bool:
    return node.shape == shape and node.dtype == dtype


def array_is_like(array: Any, shape: tuple[int, ...], dtype: DType) -> bool:
    return array.shape == shape and as_dtype(array.dtype.newbyteorder("=")) == dtype


def same_static(found: Any, expected: Any) -> bool:
    return found is expected or (type(found) is type(expected) and found == expected)


def own(storage: Storage, arrays: Sequence[Any]) -> Storage:
    """Return `storage`, copied if it shares memory with one of the caller's NumPy arrays."""
    if any(np.may_share_memory(storage.array, a) for a in arrays):
        return allocator.copy(storage.array, storage.dtype)
    return storage


def wrap(storage: Storage, shape: tuple[int, ...], dtype: DType) -> Tensor:
    return Tensor(buffer(storage, shape, dtype))


class Donated:
    """What a donated tensor stands for: any use raises TraceError."""

    __slots__ = ("_function",)

    def __init__(self, function: str):
        self._function = function

    def __getattr__(self, name: str) -> Any:
        raise TraceError(f"tensor: cannot use a tensor that was donated to {self._function} "
                         "(its memory was given away; use what the call returned)")


class Writer:
    """Writes the source of one call."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {
            "MISS": MISS, "MISSING": MISSING, "Tensor": Tensor, "settle": settle, "wrap": wrap,
            "buffer": buffer, "is_like": is_like, "array_is_like": array_is_like, "own": own,
            "same_value": same_value, "same_static": same_static, "ndarray": np.ndarray,
            "generic": np.generic, "number_storage": number_storage, "tuple_new": tuple.__new__,
            "array_storage": array_storage, "assemble": assemble, "GENERATOR": GENERATOR}
        self._names: dict[int, str] = {}
        self._count = 0

    def constant(self, value: Any) -> str:
        """Return a name for an object in the source."""
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"c{len(self._names)}"
            self.scope[name] = value
        return name

    def variable(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def line(self, text: str, depth: int = 1) -> None:
        self.lines.append("    " * depth + text)

    def need(self, condition: str) -> None:
        """Write a check: the call is not like the trace unless `condition` holds."""
        self.line(f"if not ({condition}): return MISS", 2)


class Binder:
    """Makes the call of one trace; see the module."""

    def __init__(self, traced: Traced, arguments: Structure, leaves: Sequence[Any],
                 is_static: Callable[[int], bool], donated: Callable[[int], bool]):
        self.traced, self.arguments, self.leaves = traced, arguments, leaves
        self.is_static, self.donated = is_static, donated
        self.writer = Writer()
        self._of_argument = {h.source[1]: h for h in traced.holes
                             if h.source and h.source[0] == "argument"}
        self._of_place = {id(h.source[1]): h for h in traced.holes
                          if h.source and h.source[0] == "place"}
        self._of_tensor = {id(h.value): h for h in traced.holes if h.kind == "tensor"}
        self.variables: dict[int, str] = {}  # of holes, by id
        self._leaf = 0
        self._donate: list[str] = []

    # checks

    def _argument(self, structure: Structure, expression: str) -> None:
        w = self.writer
        name = expression if expression in ("args", "kwargs") else w.variable()
        if name != expression:
            w.line(f"{name} = {expression}", 2)
        if structure.type is None:
            self._argument_leaf(name, self._leaf)
            self._leaf += 1
            return
        size = len(structure.keys)
        checks = [] if name == expression else [f"type({name}) is {w.constant(structure.type)}"]
        if not is_dataclass(structure.type):
            checks.append(f"len({name}) == {size}")
        w.need(" and ".join(checks))
        if issubclass(structure.type, dict) and size:
            w.need(f"tuple({name}) == {w.constant(structure.keys)}")
        for key, child in zip(structure.keys, structure.children):
            self._argument(child, f"{name}.{key}" if is_dataclass(structure.type) else
                           f"{name}[{key!r}]" if type(key) in (int, str) else
                           f"{name}[{w.constant(key)}]")

    def _argument_leaf(self, name: str, leaf: int) -> None:
        w, value = self.writer, self.leaves[leaf]
        hole = self._of_argument.get(leaf)
        if self.is_static(leaf):
            w.need(f"{name} is {w.constant(value)} or same_static({name}, {w.constant(value)})")
        elif hole is None:  # a second name for a handle
            first = self.variables[id(self._of_tensor[id(value)])]
            w.need(f"{name} is {first}")
        elif hole.kind == "number":
            self._number(name, hole, type(value))
        elif hole.kind == "array":
            w.need(f"isinstance({name}, (ndarray, generic)) and array_is_like({name}, "
                   f"{hole.node.shape}, {w.constant(hole.node.dtype)})")
            self.variables[id(hole)] = name
        else:
            self._tensor(name, hole)
        if self.donated(leaf) and isinstance(value, Tensor):
            self._donate.append(name)

    def _tensor(self, name: str, hole: Hole) -> None:
        w, dtype = self.writer, self.writer.constant(hole.node.dtype)
        w.need(f"type({name}) is Tensor")
        w.line(f"n = {name}._node", 2)
        w.need(f"n.shape == {hole.node.shape} and (n.dtype is {dtype} or n.dtype == {dtype}) "
               f"and {name}._weak is {hole.value._weak}")
        self.variables[id(hole)] = name

    def _number(self, name: str, hole: Hole, kind: type) -> None:
        w = self.writer
        if hole.special:
            w.need(f"same_value({name}, {w.constant(hole.value)})")
        else:
            w.need(f"type({name}) is {kind.__name__}")
            if kind is int:
                w.need(f"-0x8000000000000000 <= {name} <= 0x7fffffffffffffff")
        self.variables[id(hole)] = name

    def _fact(self, fact: Fact, readers: dict[int, str]) -> None:
        w, place = self.writer, fact.place
        parent = readers.get(id(place.parent))
        if parent is None:
            parent = readers[id(place.parent)] = place.parent.expression("", w.constant)
        expression = place.expression(parent, w.constant)
        if fact.kind == "absent":
            absent = f"getattr({parent}, {place.key!r}, MISSING) is MISSING" \
                if type(place).__name__ == "Attribute" else f"{place.key!r} not in {parent}"
            w.need(absent)
            return
        name = readers[id(place)] = w.variable()
        w.line(f"{name} = {expression}", 2)
        self._check_value(fact, name)

    def _check_value(self, fact: Fact, name: str) -> None:
        w = self.writer
        hole = self._of_place.get(id(fact.place))
        expected = w.constant(fact.expected)
        if fact.kind == "tensor":
            if hole is not None:
                self._tensor(name, hole)
            else:
                w.need(f"{name} is {self.variables[id(self._of_tensor[id(fact.value)])]}")
        elif fact.kind == "float" and hole is not None:
            self._number(name, hole, float)
        elif fact.kind == "same":
            w.need(f"{name} is {expected}")
        elif fact.kind == "array":
            w.need(f"{expected}.same({name})")
        elif fact.kind == "container":
            kind = w.constant(type(fact.value))
            w.need(f"type({name}) is {kind} and len({name}) == {len(fact.expected)}")
            if isinstance(fact.value, dict) and fact.expected:
                w.need(f"tuple({name}) == {expected}")
        else:
            w.need(f"{name} is {expected} or same_value({name}, {expected})")

    def _distinct(self) -> None:
        """Where the trace writes to handles, two of its handles must not have become one."""
        names = [self.variables[id(h)] for h in self.traced.holes if h.kind == "tensor"]
        if self.traced.handle_writes and len(names) > 1:
            ids = ", ".join(f"id({n})" for n in names)
            self.writer.need(f"len({{{ids}}}) == {len(names)}")

    # inputs, writes, result

    def _gather(self, used: Sequence[Hole]) -> None:
        w = self.writer
        draws = [h for h in self.traced.holes if h.kind == "draw"]
        for number, hole in enumerate(draws):
            self.variables[id(hole)] = f"d{number}"
        tensors = ", ".join(self.variables[id(h)] for h in used if h.kind == "tensor")

        def inputs() -> str:
            return "inputs = [" + ", ".join(self._input(h) for h in used) + "]"
        for number in range(len(draws)):
            w.line(f"d{number} = GENERATOR.next_key_words()")
        if tensors:
            w.line("try:")
            w.line(inputs(), 2)
            w.line("except AttributeError:")
            w.line(f"settle([{tensors}])", 2)
            w.line(inputs(), 2)
        else:
            w.line(inputs())

    def _input(self, hole: Hole) -> str:
        name, dtype = self.variables[id(hole)], self.writer.constant(hole.node.dtype)
        if hole.kind == "tensor":
            return f"{name}._node.attrs.storage"
        return f"{'number' if hole.kind == 'number' else 'array'}_storage({name}, {dtype})"

    def _value(self, node: Node, places: dict[Node, int], weak: bool = False) -> str:
        """Return source of a tensor (or number) with the value of an output node."""
        w = self.writer
        hole = next((h for h in self.traced.holes if h.node is node), None)
        dtype = w.constant(node.dtype)
        if hole is not None and hole.kind in ("tensor", "number"):
            name = self.variables[id(hole)]
            return f"Tensor(n_{name})" if hole.kind == "tensor" else name
        if hole is not None:
            name = self.variables[id(hole)]
            return f"wrap(own(array_storage({name}, {dtype}), [{name}]), {node.shape}, {dtype})"
        value = f"wrap(outputs[{places[node]}], {node.shape}, {dtype})"
        return f"{value}.item()" if weak else value

    def _build(self, structure: Structure, values: list[str]) -> str:
        w = self.writer
        if structure.type is None:
            return values.pop(0)
        parts = [self._build(child, values) for child in structure.children]
        if structure.type is tuple:
            return "(" + "".join(f"{p}, " for p in parts) + ")"
        if structure.type is list:
            return "[" + ", ".join(parts) + "]"
        kind = w.constant(structure.type)
        if is_namedtuple(structure.type):
            return f"tuple_new({kind}, ({''.join(f'{p}, ' for p in parts)}))"
        return f"assemble({kind}, {w.constant(structure.keys)}, [{', '.join(parts)}])"

    def plan_outputs(self) -> list[Node]:
        """Return the distinct nodes that the plan must compute: those that are not inputs."""
        holes = {h.node for h in self.traced.holes}
        nodes = [o for o in self.traced.outputs if isinstance(o, Node)]
        nodes += [n for _, n in self.traced.handle_writes]
        nodes += [n for _, n, _ in self.traced.place_writes]
        return [n for n in dict.fromkeys(nodes) if n not in holes]

    def source(self, used: Sequence[Hole]) -> str:
        """Return the source of the call; `used` are the plan's inputs in order."""
        w, traced = self.writer, self.traced
        w.line("try:")
        self._argument(self.arguments.children[0], "args")
        self._argument(self.arguments.children[1], "kwargs")
        readers: dict[int, str] = {}
        for fact in traced.facts:
            self._fact(fact, readers)
        self._distinct()
        w.line("except (AttributeError, LookupError, TypeError, ValueError): return MISS")
        w.line("if only_check: return None")
        self._gather(used)
        places = {n: i for i, n in enumerate(self.plan_outputs())}
        # nodes of inputs that are given back, before any write
        for hole in traced.holes:
            if hole.kind == "tensor":
                name = self.variables[id(hole)]
                w.line(f"n_{name} = {name}._node")
        if places:
            w.line("outputs = run(inputs)")
            arrays = [self.variables[id(h)] for h in used if h.kind == "array"]
            if arrays:
                w.line(f"outputs = [own(s, ({', '.join(arrays)},)) for s in outputs]")
        self._effects(places)
        values = [self._value(o, places, weak) if isinstance(o, Node) else
                  f"{w.constant(o)}.copy()" if isinstance(o, np.ndarray) else w.constant(o)
                  for o, weak in zip(traced.outputs, traced.weak)]
        w.line(f"return {self._build(traced.structure, values)}")
        return "\n".join(["def call(args, kwargs, only_check):", *w.lines, ""])

    def _effects(self, places: dict[Node, int]) -> None:
        w = self.writer
        handles, variables = self.traced.handle_writes, self.traced.place_writes
        new = [f"w{i}" for i in range(len(handles) + len(variables))]
        nodes = [(n, False) for _, n in handles] + [(n, weak) for _, n, weak in variables]
        for name, (node, weak) in zip(new, nodes):
            w.line(f"{name} = {self._value(node, places, weak)}")
        for name, (hole, _) in zip(new, handles):
            w.line(f"{self.variables[id(hole)]}._node = {name}._node")
        for name, (place, *_) in zip(new[len(handles):], variables):
            w.line(f"{w.constant(place)}.put({name})")
        for name in dict.fromkeys(self._donate):
            w.line(f"{name}._node = donated")

    def compile(self, used: Sequence[Hole], run: Callable, donated: Any, name: str) -> Callable:
        """Return the call as a Python function (args, kwargs) -> result or MISS."""
        source = self.source(used)
        self.writer.scope.update(run=run, donated=donated)
        exec(compile(source, f"<call of {name}>", "exec"), self.writer.scope)
        call = self.writer.scope["call"]
        call.source = source
        return call

