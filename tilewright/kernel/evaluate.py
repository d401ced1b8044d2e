"""Run a kernel in NumPy: the reference that actions, schedules and lowering are checked against.

Every stage is evaluated over all of its axes at once; only carry axes are walked in order.
Elementwise operations have the meaning of the graph's table. Guards hold back reads and writes:
nothing outside a buffer is touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.graph.ops import OPS
from tilewright.index import Expr, to_int
from tilewright.index import evaluate as evaluate_expr
from tilewright.kernel.kernel import Kernel, Stage, Store
from tilewright.kernel.value import Value, const_number, postorder

_QUIET: dict[str, Any] = dict.fromkeys(("over", "under", "divide", "invalid"), "ignore")
_COMBINE = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}
_UFUNC = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def evaluate(kernel: Kernel, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of a kernel as flat arrays, by buffer name.

    `arrays` holds a flat array for every input (it may be longer than the buffer), and may hold
    what an output contains before, where the kernel fills only a part. Other outputs are filled
    with garbage first, so an element that no store reaches is seen.
    """
    memory = {}
    for buffer in kernel.buffers:
        shape = tuple(map(to_int, buffer.shape))
        if buffer.kind == "input":
            memory[buffer.name] = np.ascontiguousarray(arrays[buffer.name]).reshape(-1)
        elif buffer.name in arrays:
            memory[buffer.name] = np.array(arrays[buffer.name][:shape[0]])
        else:
            garbage = np.full(int(np.prod(shape)) * buffer.dtype.itemsize, 0xA5, np.uint8)
            if buffer.dtype.is_bool:
                garbage &= 1
            memory[buffer.name] = garbage.view(buffer.dtype.numpy).reshape(shape)
    with np.errstate(**_QUIET):
        for stage in kernel.stages:
            _Run(kernel, stage, memory).run()
    return {b.name: memory[b.name] for b in kernel.outputs}


class _Run:
    """One stage over arrays with one dimension per axis, in the stage's order."""

    def __init__(self, kernel: Kernel, stage: Stage, memory: dict[str, np.ndarray]):
        self.stage, self.memory = stage, memory
        self.names = list(stage.axes())
        self.extents = [to_int(kernel.axis[n].extent) for n in self.names]
        self.values: dict[int, np.ndarray] = {}
        self.env: dict[str, object] = {}
        for d, (name, extent) in enumerate(zip(self.names, self.extents)):
            shape = [1] * len(self.names)
            shape[d] = extent
            self.env[name] = np.arange(extent, dtype=np.int64).reshape(shape)

    @property
    def rank(self) -> int:
        return len(self.names)

    def expr(self, expr: Expr) -> np.ndarray:
        return np.asarray(evaluate_expr(expr, self.env), dtype=np.int64)

    def run(self) -> None:
        stage = self.stage
        carry = [self.names.index(a) for a in stage.axes("carry")]
        if carry:
            self._in_order(carry)
        elif stage.state is not None:
            self._lets()
            self.values = self._reduced()
            self._store_all()
        else:
            self._lets()
            self._store_all()

    def _lets(self) -> None:
        for let in self.stage.lets:
            value = self._value(let.value)
            bounded = (value >= let.sym.lo) & (value <= let.sym.hi)
            assert np.all(bounded), f"let {let.sym.name}: value outside its bounds"
            self.env[let.sym.name] = value

    def _in_order(self, carry: list[int]) -> None:
        """Walk the carry axes one step at a time, the rest at once."""
        full = dict(self.env)
        shape = [1 if d in carry else n for d, n in enumerate(self.extents)]
        state = self.stage.state
        now = [np.full(shape, const_number(v), v.dtype.numpy) for v in state.init] if state else []
        for step in np.ndindex(*(self.extents[d] for d in carry)):
            self.values = {}
            self.env = dict(full)
            for d, position in zip(carry, step):
                self.env[self.names[d]] = np.full([1] * self.rank, position, np.int64)
            self._lets()
            if state:
                self._bind(state.update, "state", now)
                now = [np.broadcast_to(self._value(v), shape).copy() for v in state.update]
                self.values = {}
                self._bind([s.value for s in self.stage.stores], "state", now)
            self._store_all(shape)

    def _bind(self, roots, op: str, arrays: list[np.ndarray]) -> None:
        for value in postorder(roots):
            if value.op == op:
                self.values[id(value)] = arrays[value.data]

    def _reduced(self) -> dict[int, np.ndarray]:
        """Return the values of the final state, with reduce axes of length 1."""
        state, names = self.stage.state, self.names
        assert state is not None
        axes = tuple(names.index(a) for a in self.stage.axes("reduce"))
        shape = [1 if d in axes else n for d, n in enumerate(self.extents)]
        row = _UFUNC.get(state.name)
        if row is not None and self._is_plain():
            step = self._full(state.update[0].args[1])
            start = np.full(shape, const_number(state.init[0]), step.dtype)
            if 0 in step.shape:
                final = [start]
            else:
                final = [np.asarray(row.reduce(step, axis=axes, keepdims=True, dtype=step.dtype))]
        else:
            final = self._folded(axes, shape)
        self.values = {}
        found = {}
        for value in postorder([s.value for s in self.stage.stores]):
            if value.op == "state":
                found[id(value)] = final[value.data]
        # what the stores need beyond the state does not use the reduce axes
        for a in self.stage.axes("reduce"):
            self.env[a] = np.zeros([1] * self.rank, np.int64)
        self.extents = shape
        return found

    def _is_plain(self) -> bool:
        update = self.stage.state.update  # type: ignore[union-attr]
        return len(update) == 1 and len(update[0].args) == 2 and update[0].args[0].op == "state" \
            and not any(v.op == "state" for v in postorder([update[0].args[1]]))

    def _folded(self, axes: tuple[int, ...], shape: list[int]) -> list[np.ndarray]:
        """Apply the update one step at a time; the general case."""
        state = self.stage.state
        assert state is not None
        now = [np.full(shape, const_number(v), v.dtype.numpy) for v in state.init]
        full = dict(self.env)
        for step in np.ndindex(*(self.extents[d] for d in axes)):
            self.values = {}
            self.env = dict(full)
            for d, position in zip(axes, step):
                self.env[self.names[d]] = np.full([1] * self.rank, position, np.int64)
            self._lets()
            self._bind(state.update, "state", now)
            now = [np.broadcast_to(self._value(v), shape).copy() for v in state.update]
        self.env = full
        return now

    def _full(self, value: Value) -> np.ndarray:
        return np.broadcast_to(self._value(value), self.extents)

    def _value(self, root: Value) -> np.ndarray:
        for value in postorder([root]):
            if id(value) not in self.values:
                self.values[id(value)] = self._compute(value)
        return self.values[id(root)]

    def _compute(self, value: Value) -> np.ndarray:
        if value.op == "const":
            return np.full([1] * self.rank, const_number(value), value.dtype.numpy)
        if value.op == "index":
            return self.expr(value.data).reshape([1] * self.rank) \
                if not value.data.terms else self.expr(value.data)
        if value.op == "test":
            return self.expr(value.data) >= 0
        if value.op == "divides":
            return self.expr(value.data[0]) % value.data[1] == 0
        args = [self.values[id(a)] for a in value.args]
        if value.op == "load":
            return self._load(value, args)
        op = OPS[value.op]
        args = list(np.broadcast_arrays(*args))
        attrs = op.attributes(dtype=value.dtype) if value.op in ("cast", "bitcast") else ()
        result = np.asarray(op.numpy(args, attrs))
        assert result.dtype == value.dtype.numpy, (value, result.dtype)
        return result

    def _load(self, value: Value, guards: list[np.ndarray]) -> np.ndarray:
        name, where = value.data
        buffer = self.memory[name]
        index = [self.expr(e) for e in where]
        *index, _ = np.broadcast_arrays(*index, np.zeros([1] * self.rank, np.int64))
        if not guards:
            return buffer[tuple(index)] if index else buffer.reshape([1] * self.rank)
        inside = guards[0]
        for guard in guards[1:]:
            inside = inside & guard
        *index, inside = np.broadcast_arrays(*index, inside)
        result = np.zeros(inside.shape, value.dtype.numpy)
        result[inside] = buffer[tuple(i[inside] for i in index)]
        return result

    def _store_all(self, shape: list[int] | None = None) -> None:
        shape = self.extents if shape is None else shape
        for store in self.stage.stores:
            self._store(store, shape)

    def _store(self, store: Store, shape: list[int]) -> None:
        target = self.memory[store.buffer]
        value = np.broadcast_to(self._value(store.value), shape)
        index = [np.broadcast_to(self.expr(e), shape) for e in store.index]
        keep = np.ones(shape, bool)
        for guard in store.guard:
            keep = keep & self._value(guard)
        where = tuple(i[keep] for i in index)
        for i, extent in zip(where, target.shape):
            assert i.size == 0 or (i.min() >= 0 and i.max() < extent), f"{store.buffer}: outside"
        if store.combine:
            _COMBINE[store.combine].at(target, where, value[keep])
        elif where:
            target[where] = value[keep]
        elif keep.all():
            target[...] = value.reshape(())
