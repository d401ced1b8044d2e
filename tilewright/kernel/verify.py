"""The rules every kernel keeps, checked between passes in tests."""

from __future__ import annotations

from tilewright.dtypes import bool_, int64
from tilewright.errors import DTypeError, ShapeError, VerifyError
from tilewright.graph.ops import OPS
from tilewright.index import Expr, symbols
from tilewright.kernel.kernel import Kernel, Stage
from tilewright.kernel.value import Value, postorder

LEAVES = ("const", "index", "test", "divides", "load", "state", "other")


def verify(kernel: Kernel, by: str = "fusion") -> Kernel:
    """Return the kernel if it keeps every rule; raises VerifyError naming the pass `by`.

    Names are unique; stages use declared axes and buffers; scratch is written before it is read
    and inputs are never written; a reduction has reduce axes, a scan one carry axis, a map no
    reduce axes; expressions use the stage's axes and lets only, finishes not the reduce axes;
    dtypes fit; accesses stay inside their buffers, unless guarded.
    """
    try:
        _Verifier(kernel).run()
    except AssertionError as broken:
        raise VerifyError(f"verify: cannot accept the kernel made by {by} ({broken})\n"
                          f"{kernel}") from None
    return kernel


class _Verifier:
    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.written: set[str] = set()

    def run(self) -> None:
        kernel = self.kernel
        for what in (kernel.axes, kernel.buffers, kernel.stages):
            names = [item.name for item in what]
            assert len(set(names)) == len(names), f"names repeat: {names}"
        for buffer in kernel.buffers:
            assert buffer.kind in ("input", "output", "scratch"), f"{buffer.name}: {buffer.kind}"
            assert buffer.kind == "scratch" or len(buffer.shape) == 1, f"{buffer.name}: not flat"
        for stage in kernel.stages:
            self._stage(stage)
        for buffer in kernel.outputs:
            assert buffer.name in self.written, f"{buffer.name}: never written"

    def _stage(self, stage: Stage) -> None:
        for axis, role in stage.roles:
            assert axis in self.kernel.axis, f"{stage.name}: unknown axis {axis}"
            assert role in ("free", "reduce", "carry"), f"{stage.name}: role {role}"
        reduce, carry = stage.axes("reduce"), stage.axes("carry")
        if stage.state is None:
            assert not reduce, f"{stage.name}: a map with reduce axes"
        elif carry:
            assert len(carry) == 1 and not reduce, f"{stage.name}: a scan needs one carry axis only"
        else:
            assert reduce, f"{stage.name}: a reduction without reduce axes"
        known = set(stage.axes())
        for let in stage.lets:
            assert let.value.dtype == int64, f"{stage.name}: let {let.sym.name} is not int64"
            self._values(stage, [let.value], known, state=False)
            known.add(let.sym.name)
        if stage.state is not None:
            self._state(stage, known)
        finish = known - set(reduce)
        assert stage.stores, f"{stage.name}: no stores"
        for store in stage.stores:
            self._values(stage, [store.value, *store.guard], finish, state=True)
            self._access(stage, store.buffer, store.index, finish, bool(store.guard))
            buffer = self.kernel.buffer[store.buffer]
            assert buffer.kind != "input", f"{stage.name}: writes input {store.buffer}"
            assert store.value.dtype == buffer.dtype, \
                f"{stage.name}: {store.value.dtype} into {store.buffer}"
        self.written |= {store.buffer for store in stage.stores}

    def _state(self, stage: Stage, known: set[str]) -> None:
        state = stage.state
        assert state is not None
        assert len(state.init) == len(state.update) == len(state.merge), f"{stage.name}: slots"
        for init, update, merge in zip(state.init, state.update, state.merge):
            assert init.op == "const", f"{stage.name}: init is no constant"
            assert init.dtype == update.dtype == merge.dtype, f"{stage.name}: state dtypes"
        self._values(stage, state.update, known, state=True)

    def _values(self, stage: Stage, roots, known: set[str], *, state: bool) -> None:
        for value in postorder(roots):
            if value.op in LEAVES:
                self._leaf(stage, value, known, state)
            else:
                self._operation(stage, value)

    def _leaf(self, stage: Stage, value: Value, known: set[str], state: bool) -> None:
        if value.op in ("index", "test"):
            self._known(stage, value.data, known)
        elif value.op == "divides":
            self._known(stage, value.data[0], known)
        elif value.op == "state":
            assert state and stage.state is not None, f"{stage.name}: a state outside a reduction"
            assert value.data < len(stage.state.init), f"{stage.name}: no state {value.data}"
            assert value.dtype == stage.state.init[value.data].dtype, f"{stage.name}: state dtype"
        elif value.op == "load":
            name, index = value.data
            assert name in self.kernel.buffer, f"{stage.name}: unknown buffer {name}"
            buffer = self.kernel.buffer[name]
            assert buffer.kind == "input" or name in self.written, \
                f"{stage.name}: {name} is read before it is written"
            assert value.dtype == buffer.dtype, f"{stage.name}: {value.dtype} from {name}"
            assert all(g.dtype == bool_ for g in value.args), f"{stage.name}: guards are bool"
            self._access(stage, name, index, known, bool(value.args))

    def _access(self, stage: Stage, name: str, index, known: set[str], guarded: bool) -> None:
        buffer = self.kernel.buffer[name]
        assert len(index) == len(buffer.shape), f"{stage.name}: rank of {name}"
        empty = any(self.kernel.axis[a].extent == 0 for a in stage.axes())
        for expr, extent in zip(index, buffer.shape):
            self._known(stage, expr, known)
            assert guarded or empty or 0 <= expr.lo and expr.hi < extent.hi, \
                f"{stage.name}: {name}[{expr}] reaches {expr.lo}..{expr.hi} of {extent}"

    def _known(self, stage: Stage, expr: Expr, known: set[str]) -> None:
        strange = {s.name for s in symbols(expr)} - known
        assert not strange, f"{stage.name}: {expr} uses {sorted(strange)}"

    def _operation(self, stage: Stage, value: Value) -> None:
        op = OPS.get(value.op)
        assert op is not None and op.kind == "elementwise", f"{stage.name}: operation {value.op}"
        attrs = op.attributes(dtype=value.dtype) if value.op in ("cast", "bitcast") else ()
        try:
            _, dtype = op.infer([_Scalar(a) for a in value.args], attrs)
        except (ShapeError, DTypeError) as error:
            raise AssertionError(f"{stage.name}: {value.op}: {error}") from None
        assert dtype == value.dtype, f"{stage.name}: {value.op} gives {dtype}, not {value.dtype}"


class _Scalar:
    """A value as the graph's shape and dtype rules see it."""

    shape = ()

    def __init__(self, value: Value):
        self.dtype = value.dtype
