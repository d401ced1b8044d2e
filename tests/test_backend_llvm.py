"""The llvm backend: small Programs built by hand, compiled, called and compared with NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scalar_runs import call

from tilewright.backends import Backend, Executable, backend
from tilewright.backends.llvm import LLVM, Host
from tilewright.dtypes import ALL, bfloat16, bool_, float16, float32, float64, int32, int64, uint8
from tilewright.errors import BackendError
from tilewright.program import Binding, Builder, MemRef, Param, Scratch, Type
from tilewright.program.ir import INDEX, Instr

F32, V16 = Type(float32), Type(float32, 16)


def build(name: str, *params: tuple[str, str, object]) -> Builder:
    return Builder(name, [Param(n, k, d) for n, k, d in params])


def binding(*builders: Builder, private: int = 0, shared: int = 0) -> Binding:
    return Binding(builders[0].program.params, shared, private)


def execute(b: Builder, arrays, workers: int = 1, **areas: int) -> None:
    call([b.program], binding(b, **areas), arrays, workers)


def source(b: Builder) -> str:
    return backend("llvm").render([b.program], binding(b))


def test_the_registry_refuses_an_unknown_name():
    with pytest.raises(BackendError, match=r"backend: cannot use 'pdp11' \(known: .*llvm"):
        backend("pdp11")


def test_the_backend_keeps_the_protocol():
    llvm = backend("llvm")
    assert isinstance(llvm, Backend)
    limits = llvm.limits
    assert limits.vector_bytes in (16, 32, 64)
    assert limits.l1 <= limits.l2 <= limits.l3


# -- loops -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_constant_and_variable_bounds(n):
    b = build("sum", ("n", "input", int64), ("x", "input", float64), ("out", "output", float64))
    bound = b.load(INDEX, b.const(0, INDEX), MemRef("n"))
    for slot, hi in enumerate((b.const(n, INDEX), bound)):
        with b.loop(0, hi, [b.const(0.0, Type(float64))]) as loop:
            value = b.load(Type(float64), loop.var, MemRef("x"))
            loop.yields = [b.op("add", loop.carries[0], value)]
        b.store(b.const(slot, INDEX), b.result(loop, 0), MemRef("out"))
    x, out = np.arange(1.0, 9), np.full(2, -1.0)
    execute(b, [np.array([n]), x, out])
    assert out.tolist() == [x[:n].sum()] * 2


def test_nested_loops_with_scaled_indices_from_a_nonzero_start():
    b = build("nest", ("out", "output", int64))
    with b.loop(2, 5) as i:
        with b.loop(i.var, 6) as j:
            at = b.op("add", b.scaled(i, 10), b.scaled(j, 1))
            b.store(at, b.op("add", b.scaled(j, -3), b.scaled(i, 7)), MemRef("out", 4))
    out, want = np.zeros(80, np.int64), np.zeros(80, np.int64)
    for i in range(2, 5):
        for j in range(i, 6):
            want[4 + 10 * i + j] = 7 * i - 3 * j
    execute(b, [out])
    assert np.array_equal(out, want)


def test_carried_values_swap():
    """The next values are all taken before any changes."""
    b = build("fibonacci", ("out", "output", int64))
    one, zero = b.const(1, INDEX), b.const(0, INDEX)
    with b.loop(0, 20, [zero, one]) as loop:
        a, c = loop.carries
        loop.yields = [c, b.op("add", a, c)]
    b.store(zero, b.result(loop, 0), MemRef("out"))
    out = np.zeros(1, np.int64)
    execute(b, [out])
    assert out[0] == 6765


def test_conditions():
    b = build("odd", ("out", "output", int32))
    with b.loop(0, 10) as loop:
        odd = b.op("ne", b.op("and", loop.var, b.const(1, INDEX)), b.const(0, INDEX))
        with b.when(odd):
            b.store(loop.var, b.const(5, Type(int32)), MemRef("out"))
    out = np.zeros(10, np.int32)
    execute(b, [out])
    assert out.tolist() == [0, 5] * 5


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [0, 1, 5, 16])
def test_workers_share_a_parallel_loop(workers, n):
    b = build("share", ("out", "output", int64), ("who", "output", int64))
    with b.loop(0, n, kind="parallel") as loop:
        old = b.load(INDEX, loop.var, MemRef("out"))
        b.store(loop.var, b.op("add", old, b.const(1, INDEX)), MemRef("out"))
        b.store(loop.var, b.emit("thread", INDEX), MemRef("who"))
    out, who = np.zeros(16, np.int64), np.full(16, -1)
    execute(b, [out, who], workers)
    assert out.tolist() == [1] * n + [0] * (16 - n)
    shares = [np.count_nonzero(who == w) for w in range(workers)]
    assert np.all(np.diff(who[:n]) >= 0)
    assert max(shares) - min(shares) <= 1


def test_one_worker_writes_outside_of_the_parallel_loop():
    b = build("outside", ("x", "input", int64), ("out", "output", int64))
    zero = b.const(0, INDEX)
    with b.loop(0, 4, [zero]) as total:  # writes nothing: every worker needs its value
        total.yields = [b.op("add", total.carries[0], b.load(INDEX, total.var, MemRef("x")))]
    value = b.result(total, 0)
    old = b.load(INDEX, zero, MemRef("out", 8))
    b.store(zero, b.op("add", old, value), MemRef("out", 8))
    with b.loop(0, 8, kind="parallel") as loop:
        b.store(loop.var, value, MemRef("out"))
    out = np.zeros(9, np.int64)
    execute(b, [np.arange(4), out], workers=3)
    assert out.tolist() == [6] * 9


# -- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_masks_read_zero_and_write_nothing(dtype, lanes):
    b = build("masked", ("x", "input", dtype), ("m", "input", bool_), ("out", "output", dtype),
              ("kept", "output", dtype))
    type_ = Type(dtype, lanes)
    with b.loop(0, 32 // lanes) as loop:
        at = b.scaled(loop, lanes)
        mask = b.load(Type(bool_, lanes), at, MemRef("m"))
        b.store(at, b.load(type_, at, MemRef("x"), mask), MemRef("out"))
        b.store(at, b.load(type_, at, MemRef("x")), MemRef("kept"), mask)
    rng = np.random.default_rng(0)
    x = rng.integers(1, 100, 32).astype(dtype.numpy)
    mask = rng.integers(0, 2, 32).astype(bool)
    out, kept = np.ones(32, dtype.numpy), np.zeros(32, dtype.numpy)
    execute(b, [x, mask, out, kept])
    want = np.where(mask, x, np.zeros_like(x))
    assert np.array_equal(out, want)
    assert np.array_equal(kept, want)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_gather_and_scatter(dtype, lanes, masked):
    b = build("moved", ("x", "input", dtype), ("i", "input", int64), ("m", "input", bool_),
              ("out", "output", dtype), ("spread", "output", dtype))
    type_ = Type(dtype, lanes)
    with b.loop(0, 16 // lanes) as loop:
        at = b.scaled(loop, lanes)
        offsets = b.load(Type(int64, lanes), at, MemRef("i"))
        mask = b.load(Type(bool_, lanes), at, MemRef("m")) if masked else None
        b.store(at, b.load(type_, offsets, MemRef("x", 1), mask, "gather"), MemRef("out"))
        value = b.load(type_, at, MemRef("x"))
        b.store(offsets, value, MemRef("spread", 2), mask, "scatter")
    rng = np.random.default_rng(1)
    x = rng.integers(1, 100, 32).astype(dtype.numpy)
    indices, mask = rng.integers(0, 12, 16), rng.integers(0, 2, 16).astype(bool)
    out, spread, want = (np.zeros(32, dtype.numpy) for _ in range(3))
    execute(b, [x, indices, mask, out, spread])
    keep = mask if masked else np.ones(16, bool)
    assert np.array_equal(out[:16], np.where(keep, x[indices + 1], np.zeros_like(x[:16])))
    for k in np.flatnonzero(keep):  # in order: the last of equal indices stays
        want[indices[k] + 2] = x[k]
    assert np.array_equal(spread, want)


def test_scratch_of_two_programs_and_of_each_worker():
    params = (("out", "output", float32),)
    first, second = build("first", *params), build("second", *params)
    for b in (first, second):
        b.add_scratch(Scratch("tmp", float64, 3, "global"))
        b.add_scratch(Scratch("shared", float32, 4, "global"))
        b.add_scratch(Scratch("pad", uint8, 3, "private"))
        b.add_scratch(Scratch("own", float32, 4, "private"))
    zero = first.const(0, INDEX)
    first.store(zero, first.const(2.5, F32), MemRef("shared", 3))
    with second.loop(0, 4, kind="parallel") as loop:
        kept = second.load(F32, second.const(0, INDEX), MemRef("shared", 3))
        who = second.cast(second.emit("thread", INDEX), float32)
        second.store(loop.var, second.op("add", kept, who), MemRef("own"))
        second.store(loop.var, second.load(F32, loop.var, MemRef("own")), MemRef("out"))
    out = np.zeros(4, np.float32)
    call([first.program, second.program], binding(first, private=128, shared=128), [out], 2)
    assert out.tolist() == [2.5, 2.5, 3.5, 3.5]


def test_streaming_stores_need_their_alignment():
    for align, stream in ((64, True), (4, False)):
        b = build("stream", ("out", "output", float32))
        b.store(b.const(0, INDEX), b.const(1.0, V16), MemRef("out", align=align, stream=True))
        assert ("!nontemporal" in source(b)) is stream
        if align == 4 or backend("llvm").limits.vector_bytes == 64:
            text = backend("llvm").assembly(source(b))
            assert ("movnt" in text) is stream


def test_prefetch_and_many_buffers():
    names = [f"x{k}" for k in range(60)]
    b = build("many", *((n, "input", float32) for n in names), ("out", "output", float32))
    zero = b.const(0, INDEX)
    b._append(Instr("prefetch", None, (zero,), MemRef("x0", 8)), 0)
    total = b.const(0.0, F32)
    with b.loop(0, 3) as loop:
        for n in names:
            total = b.op("add", total, b.load(F32, loop.var, MemRef(n)))
        b.store(loop.var, total, MemRef("out"))
    arrays = [np.full(3, k, np.float32) for k in range(60)]
    out = np.zeros(3, np.float32)
    execute(b, [*arrays, out])
    assert out.tolist() == [sum(range(60))] * 3


# -- values ------------------------------------------------------------------------------------


def test_lanes_shuffles_and_splats():
    b = build("lanes", ("x", "input", float32), ("out", "output", float32),
              ("n", "output", int64))
    zero = b.const(0, INDEX)
    x = b.load(Type(float32, 4), zero, MemRef("x"))
    y = b.load(Type(float32, 4), zero, MemRef("x", 4))
    b.store(zero, b.shuffle(x, y, (0, 4, 1, 5, 2, 6, 3, 7)), MemRef("out"))
    b.store(zero, b.splat(b.lane(x, 2), 4), MemRef("out", 8))
    b.store(zero, b.shuffle(b.lane(x, 3), b.lane(y, 1), (1, 0)), MemRef("out", 12))
    b.store(zero, b.shuffle(x, y, (6,)), MemRef("out", 14))
    b.store(zero, b.op("mul", b.lanes(4), b.const(3, Type(int64, 4))), MemRef("n"))
    x, out, n = np.arange(8, dtype=np.float32), np.zeros(16, np.float32), np.zeros(4, np.int64)
    execute(b, [x, out, n])
    assert out[:15].tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 2, 2, 2, 2, 5, 3, 6]
    assert n.tolist() == [0, 3, 6, 9]


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("constant", [None, 0, 1])
def test_extremes_pass_nan_on(op, constant):
    """In both operands, and in the short form beside a constant on either side."""
    b = build("extreme", ("x", "input", float32), ("y", "input", float32),
              ("out", "output", float32))
    with b.loop(0, 2) as loop:
        at = b.scaled(loop, 8)
        args = [b.load(Type(float32, 8), at, MemRef(n)) for n in "xy"]
        if constant is not None:
            args[constant] = b.const(0.5, Type(float32, 8))
        b.store(at, b.op(op, *args), MemRef("out"))
    values = np.array([np.nan, 1, -1, np.inf], np.float32)
    x, y = (g.ravel().copy() for g in np.meshgrid(values, values))
    out = np.zeros(16, np.float32)
    execute(b, [x, y, out])
    args = [x, y]
    if constant is not None:
        args[constant] = np.float32(0.5)
    want = (np.minimum if op == "min" else np.maximum)(*args)
    assert np.array_equal(out, want, equal_nan=True)


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_short_floats_round_every_operation(dtype):
    b = build("short", ("x", "input", dtype), ("y", "input", dtype), ("out", "output", dtype))
    type_ = Type(dtype, 8)
    with b.loop(0, 64) as loop:
        at = b.scaled(loop, 8)
        x, y = (b.load(type_, at, MemRef(n)) for n in "xy")
        value = b.op("sub", b.op("mul", b.op("add", x, y), y), b.op("neg", b.op("abs", x)))
        b.store(at, b.op("select", b.op("lt", x, y), value, b.const(0.5, type_)), MemRef("out"))
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(2, 512)).astype(dtype.numpy)
    out = np.zeros_like(x)
    execute(b, [x, y, out])
    want = np.where(x < y, (x + y) * y + np.abs(x), np.full_like(x, 0.5))
    assert np.array_equal(out, want)


def test_float_constants_keep_their_bits():
    values = np.array([1.1, -0.0, 1e-45, 3e-39, np.inf, -np.inf, np.finfo(np.float32).max],
                      np.float32)
    b = build("constants", ("out", "output", float32), ("wide", "output", float64))
    zero = b.const(0, INDEX)
    for k, v in enumerate(values):
        b.store(zero, b.const(v, F32), MemRef("out", k))
        b.store(zero, b.const(float(v) / 3, Type(float64)), MemRef("wide", k))
    out, wide = np.zeros(7, np.float32), np.zeros(7)
    execute(b, [out, wide])
    assert out.tobytes() == values.tobytes()
    with np.errstate(all="ignore"):
        assert wide.tobytes() == (values.astype(np.float64) / 3).tobytes()


# -- text --------------------------------------------------------------------------------------


def product(rows: int = 4) -> Builder:
    """Return acc[i] += splat(a[i, k]) * b[k] for some rows and one vector."""
    b = build("product", ("a", "input", float32), ("b", "input", float32),
              ("out", "output", float32))
    with b.loop(0, 64, [b.const(0.0, V16)] * rows) as k:
        row = b.load(V16, b.scaled(k, 16), MemRef("b"))
        at = b.scaled(k, 1)
        k.yields = [b.op("fma", b.splat(b.load(F32, at, MemRef("a", 64 * i)), 16), row, acc)
                    for i, acc in enumerate(k.carries)]
    zero = b.const(0, INDEX)
    for i in range(rows):
        b.store(zero, b.result(k, i), MemRef("out", 16 * i))
    return b


def test_a_broadcast_folds_into_the_multiplication():
    b = product(12)
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(12, 64)).astype(np.float32), rng.normal(size=(64, 16))
    out = np.zeros((12, 16), np.float32)
    execute(b, [x, y.astype(np.float32), out])
    assert np.allclose(out, x @ y, atol=1e-4)
    if backend("llvm").limits.vector_bytes == 64:
        text = backend("llvm").assembly(source(b))
        assert len(re.findall(r"vfmadd231ps\s+\d*\(.*\)\{1to16\}, %zmm", text)) == 12
        assert "(%rsp)" not in text


def test_the_source_is_stable():
    assert source(product()) == source(product())


def test_long_straight_code_is_broken_into_blocks():
    b = build("long", ("x", "input", float32), ("out", "output", float32))
    zero = b.const(0, INDEX)
    value = b.load(F32, zero, MemRef("x"))
    with b.loop(0, 2, [value]) as loop:
        value = loop.carries[0]
        for k in range(3000):
            value = b.op("add", value, b.const(k % 7, F32))
        loop.yields = [value]
    b.store(zero, b.result(loop, 0), MemRef("out"))
    labels = re.findall(r"^b\d+:", source(b), re.MULTILINE)
    assert 6 <= len(labels) <= 10
    out = np.zeros(1, np.float32)
    execute(b, [np.zeros(1, np.float32), out])
    assert out[0] == 2 * sum(k % 7 for k in range(3000))


def test_the_assembly_can_be_edited():
    b = product()
    llvm = backend("llvm")
    text = llvm.assembly(source(b))
    loaded = llvm.load(llvm.assemble(text))
    assert isinstance(loaded, Executable)
    assert len(loaded.addresses) == 1
    loaded.close()
    loaded.close()
    assert loaded.addresses == ()


def test_names_need_no_care():
    b = build('odd "name" \\ %', ("out", "output", float32))
    b.store(b.const(0, INDEX), b.const(1.0, F32), MemRef("out"))
    out = np.zeros(1, np.float32)
    execute(b, [out])
    assert out[0] == 1


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["block", "thread", "lane"])
def test_loops_of_a_gpu_are_refused(kind):
    b = build("gpu", ("out", "output", float32))
    with b.loop(0, 4, kind=kind) as loop:
        b.store(loop.var, b.const(1.0, F32), MemRef("out"))
    with pytest.raises(BackendError, match=f"llvm: cannot render a {kind} loop in gpu"):
        source(b)


def test_barriers_shared_memory_and_fragments_are_refused():
    b = build("gpu", ("out", "output", float32))
    b.barrier()
    with pytest.raises(BackendError, match="llvm: cannot render barrier in gpu"):
        source(b)
    b = build("gpu", ("out", "output", float32))
    b.add_scratch(Scratch("tile", float32, 64, "shared"))
    with pytest.raises(BackendError, match="llvm: cannot place scratch tile in shared memory"):
        source(b)
    b = build("gpu", ("out", "output", float32))
    b._append(Instr("frag_zero", None), 0)
    with pytest.raises(BackendError, match="llvm: cannot render frag_zero in gpu"):
        source(b)


def test_operations_without_meaning_are_refused():
    b = build("wrong", ("out", "output", int32))
    one = b.const(1, Type(int32))
    b.store(b.const(0, INDEX), b.op("div", one, one), MemRef("out"))
    with pytest.raises(BackendError, match=r"llvm: cannot render div of \(i32, i32\)"):
        source(b)
    b = build("wrong", ("out", "output", float32))
    b.store(b.const(0, INDEX), b.const(1.0, F32), MemRef("elsewhere"))
    with pytest.raises(BackendError, match="llvm: cannot find buffer 'elsewhere' of wrong"):
        source(b)


def test_a_writing_loop_outside_of_the_parallel_one_carries_nothing():
    b = build("wrong", ("out", "output", int64))
    with b.loop(0, 4, [b.const(0, INDEX)]) as loop:
        b.store(loop.var, loop.var, MemRef("out"))
        loop.yields = [loop.var]
    with b.loop(0, 4, kind="parallel") as shared:
        b.store(shared.var, b.result(loop, 0), MemRef("out"))
    with pytest.raises(BackendError, match="llvm: cannot render wrong"):
        source(b)


def test_bad_text_and_bad_objects_are_refused():
    llvm = backend("llvm")
    with pytest.raises(BackendError, match="llvm: cannot compile the source"):
        llvm.compile("define what")
    with pytest.raises(BackendError, match="llvm: cannot assemble the text"):
        llvm.assemble("frobnicate %rax\n")
    with pytest.raises(BackendError, match="llvm: cannot load the object"):
        llvm.load(b"not an object")
    with pytest.raises(BackendError, match="tilewright_entries"):
        llvm.load(llvm.compile("define void @f() {\nret void\n}\n"))


def test_loading_and_dropping_code_holds_memory():
    resource = pytest.importorskip("resource")
    llvm = backend("llvm")
    code = llvm.compile(source(product()))
    for _ in range(200):
        llvm.load(code)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2000):
        llvm.load(code)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2048  # KiB


# -- other targets -----------------------------------------------------------------------------


OLD = Host("x86_64-unknown-linux-gnu", "x86-64-v2", frozenset({"sse4.2"}))


def half_sum() -> Builder:
    b = build("half", ("x", "input", float16), ("out", "output", float16))
    x = b.load(Type(float16, 8), b.const(0, INDEX), MemRef("x"))
    b.store(b.const(0, INDEX), b.op("add", x, x), MemRef("out"))
    return b


def test_float16_needs_conversion_instructions():
    b = half_sum()
    with pytest.raises(BackendError, match="llvm: cannot compute with float16 in half"):
        LLVM(OLD).render([b.program], binding(b))


def test_a_cpu_of_the_first_generation_is_refused():
    with pytest.raises(BackendError, match="llvm: cannot compile for k8 .SSE4.1 is needed"):
        LLVM(Host("x86_64-unknown-linux-gnu", "k8", frozenset({"sse2"})))


@pytest.mark.parametrize("host", [
    OLD, Host("x86_64-unknown-linux-gnu", "haswell", frozenset({"avx2", "fma", "f16c"}))])
def test_code_for_another_cpu_is_compiled(host):
    b = product(2)
    llvm = LLVM(host)
    text = llvm.assembly(llvm.render([b.program], binding(b)))
    assert "zmm" not in text
    assert ("ymm" in text) is (host.vector_bytes == 32)


def test_limits_follow_the_features():
    assert (OLD.vector_bytes, OLD.registers) == (16, 16)
    wide = Host("x86_64-unknown-linux-gnu", "znver5", frozenset({"avx512f", "avx2"}))
    assert (wide.vector_bytes, wide.registers) == (64, 32)
    neon = Host("aarch64-unknown-linux-gnu", "generic", frozenset())
    assert (neon.vector_bytes, neon.registers) == (16, 32)
