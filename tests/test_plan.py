"""Plans: graphs compiled, bound to memory and run, on both backends."""

import os
import threading
from dataclasses import replace

import numpy as np
import pytest

from tilewright.config import current, using
from tilewright.dtypes import ALL, float32, int64
from tilewright.errors import BackendError, TooLarge, TraceError
from tilewright.graph import apply, buffer, constant, parameter
from tilewright.graph.evaluate import evaluate
from tilewright.plan import kernels
from tilewright.plan.kernels import KernelCache, Target, Work, kernel_cache
from tilewright.plan.plan import _fuse_and_build, compile_graph
from tilewright.plan.realize import plan_cache, realize, structure
from tilewright.runtime.memory import allocator
from tilewright.runtime.storage import Storage

MODES = [("llvm", 1), ("llvm", 2), ("interpreter", 1), ("interpreter", 2)]


@pytest.fixture(params=MODES, ids=[f"{b}-{t}" for b, t in MODES])
def mode(request):
    backend, threads = request.param
    with using(backend=backend, threads=threads):
        yield request.param


def storage(array, dtype=float32):
    return Storage(np.ascontiguousarray(array, dtype.numpy), dtype)


def leaf(array, dtype=float32):
    held = storage(array, dtype)
    return buffer(held, held.shape, dtype)


def matmul(a, b):
    (m, k), n = a.shape, b.shape[1]
    left = apply("expand", apply("reshape", a, shape=(m, 1, k)), shape=(m, n, k))
    right = apply("reshape", apply("permute", b, axes=(1, 0)), shape=(1, n, k))
    product = apply("multiply", left, apply("expand", right, shape=(m, n, k)))
    return apply("reduce", product, kind="sum", axes=(2,))


def expected(nodes):
    return evaluate(nodes, lambda n: n.attrs.storage.array)


def check(nodes):
    """Realise, twice, and compare with the graph's NumPy meaning."""
    wanted = expected(nodes)
    for _ in range(2):
        for found, want in zip(realize(nodes), wanted):
            assert found.shape == want.shape and found.array.dtype == want.dtype
            np.testing.assert_allclose(found.array, want, rtol=1e-5, atol=1e-6)


def numbers(rng, *shape):
    return rng.random(shape, np.float32) - np.float32(0.5)


# -- values ----------------------------------------------------------------------------------


def test_outputs_of_every_kind(mode, rng):
    a, b = leaf(numbers(rng, 5, 7)), leaf(numbers(rng, 5, 7))
    total = apply("add", a, b)
    check([total, apply("reduce", total, kind="sum", axes=(1,)), a, total,
           constant(3.0, float32), apply("iota", size=4, dtype=int64),
           apply("concat", total, apply("multiply", total, a), axis=0)])


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (1, 1, 5), (33, 17)])
def test_shapes(mode, rng, shape):
    a, b = leaf(numbers(rng, *shape)), leaf(numbers(rng, *shape))
    check([apply("subtract", a, b), apply("reduce", a, kind="sum", axes=tuple(range(len(shape))))])


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_dtype_goes_through(mode, dtype):
    a = leaf(np.arange(11) % 2, dtype)
    check([apply("concat", a, apply("slice", a, starts=(10,), stops=(2,), steps=(-1,)), axis=0)])


def test_intermediates_between_many_kernels(mode, rng):
    x = leaf(numbers(rng, 9, 9))
    for i in range(8):
        x = matmul(x, leaf(numbers(rng, 9, 9)))
        x = apply("add", x, x) if i % 2 else apply("maximum", x, leaf(numbers(rng, 9, 9)))
    check([x])


def test_a_large_parallel_plan(rng):
    with using(threads=2):
        a, b = leaf(numbers(rng, 700, 600)), leaf(numbers(rng, 700, 600))
        c = apply("multiply", apply("add", a, b), a)
        check([c, apply("reduce", c, kind="max", axes=(0,)),
               apply("reduce", c, kind="sum", axes=(0, 1))])


def test_bits_do_not_depend_on_the_number_of_threads(rng):
    a = leaf(numbers(rng, 1000, 1000))
    node = apply("reduce", apply("multiply", a, a), kind="sum", axes=(0, 1))
    found = []
    for threads in (1, 2, 3):
        with using(threads=threads):
            found.append(realize([node])[0].array.tobytes())
    assert len(set(found)) == 1


# -- host calls ------------------------------------------------------------------------------


def test_host_functions_between_kernels(mode, rng):
    a = leaf(numbers(rng, 6, 5))
    doubled = apply("add", a, a)
    ordered = apply("call", doubled, function=lambda x: np.sort(x, axis=1), shape=(6, 5),
                    dtype=float32)
    check([ordered, apply("reduce", apply("multiply", ordered, a), kind="max", axes=(1,))])


def test_host_functions_cannot_write_inputs_or_lend_memory(mode):
    a, kept = leaf(np.arange(4.0)), np.zeros(4, np.float32)
    node = apply("call", a, function=lambda x: kept, shape=(4,), dtype=float32)
    (found,) = realize([node])
    kept[:] = 7
    assert not found.array.any()

    def write(x):
        x[0] = 1
        return x
    with pytest.raises(ValueError, match="read-only"):
        realize([apply("call", a, function=write, shape=(4,), dtype=float32)])
    identity = apply("call", a, function=lambda x: x, shape=(4,), dtype=float32)
    assert not np.shares_memory(realize([identity])[0].array, a.attrs.storage.array)


def test_a_host_function_that_fails_leaves_the_plan_usable(mode):
    fail = [True]

    def function(x):
        if fail[0]:
            raise RuntimeError("no luck")
        return x + 1

    a = leaf(np.arange(3.0))
    node = apply("call", apply("add", a, a), function=function, shape=(3,), dtype=float32)
    with pytest.raises(RuntimeError, match="no luck"):
        realize([node])
    fail[0] = False
    np.testing.assert_array_equal(realize([node])[0].array, [1, 3, 5])


def test_a_host_function_must_give_what_was_declared(mode):
    a = leaf(np.arange(3.0))
    for result in (np.zeros(2, np.float32), np.zeros(3)):
        node = apply("call", a, function=lambda x, r=result: r, shape=(3,), dtype=float32)
        with pytest.raises(BackendError, match=r"call: cannot take .* was declared"):
            realize([node])


# -- plans -----------------------------------------------------------------------------------


def test_a_plan_replays_on_new_inputs_and_keeps_captured_arrays(mode, rng):
    held = numbers(rng, 4, 4)
    p, q = parameter(0, (4, 4), float32), parameter(1, (), float32)
    scaled = apply("multiply", p, apply("expand", apply("reshape", q, shape=(1, 1)), shape=(4, 4)))
    plan = compile_graph([apply("add", scaled, leaf(held)), p], [p, q])
    for factor in (2.0, -1.0, 0.5):
        x = storage(numbers(rng, 4, 4))
        out, same = plan.run([x, storage(factor)])
        np.testing.assert_allclose(out.array, x.array * np.float32(factor) + held, rtol=1e-6)
        assert same is x
    with pytest.raises(ValueError, match=r"cannot run on 1 inputs \(2 needed\)"):
        plan.run([x])


def test_unused_parameters_and_plans_without_kernels(mode):
    p, q = parameter(0, (3,), float32), parameter(1, (2,), float32)
    plan = compile_graph([q], [p, q])
    y = storage([1, 2])
    assert plan.run([storage([1, 2, 3]), y]) == [y]
    assert compile_graph([], []).run([]) == []


def test_results_never_share_memory_with_later_results(mode):
    p = parameter(0, (100,), float32)
    plan = compile_graph([apply("add", p, p)], [p])
    results = [plan.run([storage(np.full(100, i))])[0] for i in range(5)]
    assert [r.array[50] for r in results] == [0, 2, 4, 6, 8]


def test_a_parameter_that_is_not_given_is_refused():
    p = parameter(3, (3,), float32)
    node = apply("add", p, p)
    with pytest.raises(TraceError, match="cannot find parameter 3"):
        compile_graph([node], [])
    with pytest.raises(TraceError, match="cannot compute a value inside a traced function"):
        realize([node])


def test_an_unknown_backend_is_refused():
    with using(backend="abacus"), pytest.raises(BackendError, match="abacus"):
        realize([apply("add", leaf([1.0]), leaf([2.0]))])


def test_python_threads_share_a_plan(mode):
    size = 50 if mode[0] == "llvm" else 8
    p = parameter(0, (size, size), float32)
    x = apply("add", p, p)
    plan = compile_graph([matmul(matmul(x, x), x)], [p])
    wrong = []

    def work(k):
        data = storage(np.eye(size) * k)
        for _ in range(20 if mode[0] == "llvm" else 1):
            (out,) = plan.run([data])
            if not (out.array == np.eye(size) * (2 * k) ** 3).all():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_python_threads_may_compile_at_once():
    kernel_cache.clear()
    plan_cache.clear()
    data, wrong = [leaf(np.arange(40.0) + k) for k in range(8)], []

    def work(k):
        node = apply("multiply", apply("add", data[k], data[k]), data[k])
        if not (realize([node])[0].array == 2 * (np.arange(40.0) + k) ** 2).all():
            wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


# -- sharing, bounds -------------------------------------------------------------------------


def test_equal_kernels_compile_once(rng):
    with using(backend="llvm", threads=1):
        cache, x, y = KernelCache(), parameter(0, (6, 6), float32), parameter(1, (6, 6), float32)
        start = y
        for _ in range(5):
            y = matmul(y, x)
        plan = compile_graph([y], [x, start], cache=cache)
        assert plan.counts["kernels"] == 5 and plan.counts["distinct kernels"] == 1
        assert plan.counts["programs compiled"] == len(cache) == 1
        again = compile_graph([y], [x, start], cache=cache)
        assert again.counts["programs compiled"] == 0
        value = numbers(rng, 6, 6)
        want = np.linalg.matrix_power(value.astype(np.float64), 6)
        close = {"rtol": 1e-4, "atol": 1e-6}
        np.testing.assert_allclose(again.run([storage(value)] * 2)[0].array, want, **close)
        cache.clear()
        assert len(cache) == 0
        np.testing.assert_allclose(plan.run([storage(value)] * 2)[0].array, want, **close)


def test_a_program_past_the_cap_is_cut_again():
    with using(backend="llvm", threads=1):
        target = Target.of(current())
        target = replace(target, limits=replace(target.limits, instruction_cap=4000))
        x = parameter(0, (4,), float32)
        y = x
        for _ in range(6000):
            y = apply("minimum", apply("add", apply("multiply", y, x), x), x)
        calls, built = _fuse_and_build((y,), target, Work(), KernelCache())
        assert len(calls) > 1
        assert all(b.instructions <= 4000 for b in built.values())


def test_a_kernel_that_passes_the_cap_while_emitted_is_cut_smaller(monkeypatch):
    original = kernels.build

    def build(kernel, *rest):
        if len(kernel.key) > 20_000:
            raise TooLarge("kernel: cannot emit more than 9 instructions")
        return original(kernel, *rest)
    monkeypatch.setattr(kernels, "build", build)
    p = parameter(0, (4,), float32)
    y = p
    for _ in range(2000):
        y = apply("add", apply("multiply", y, p), p)
    plan = compile_graph([y], [p], cache=KernelCache())
    assert plan.counts["kernels"] > 1
    (found,) = plan.run([storage(np.full(4, 0.25))])
    np.testing.assert_allclose(found.array, np.full(4, 1 / 3), rtol=1e-6)


def test_a_kernel_that_no_cut_makes_smaller_is_an_error(monkeypatch):
    def build(*_):
        raise TooLarge("kernel: cannot emit more than 9 instructions")
    monkeypatch.setattr(kernels, "build", build)
    x = parameter(0, (4,), float32)
    with pytest.raises(TooLarge):
        compile_graph([apply("add", x, x)], [x], cache=KernelCache())


def test_the_structure_tells_apart_what_computes_apart():
    a, b = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    other = leaf([1, 2], int64)

    def key(*nodes):
        return structure(nodes)[0]

    def plus(x, number):
        return apply("add", x, apply("expand", apply("reshape", constant(number, float32),
                                                     shape=(1,)), shape=(2,)))
    assert key(apply("add", a, b)) == key(apply("add", b, a))
    keys = [key(apply("add", a, b)), key(apply("add", a, a)), key(apply("subtract", a, b)),
            key(apply("add", a, b), a), key(apply("add", other, other)),
            key(plus(a, 0.0)), key(plus(a, -0.0)), key(plus(a, 1.0)),
            key(apply("reshape", a, shape=(1, 2))), key(apply("reshape", a, shape=(2, 1)))]
    assert len(set(keys)) == len(keys)
    assert structure([apply("add", b, a)])[1] in (
        [a.attrs.storage, b.attrs.storage], [b.attrs.storage, a.attrs.storage])


def test_eager_plans_are_reused_and_hold_no_data():
    a = leaf(np.ones(1000))
    realize([apply("add", a, a)])
    before = len(plan_cache)
    for i in range(20):
        x = leaf(np.full(1000, float(i)))
        assert realize([apply("add", x, x)])[0].array[7] == 2 * i
    assert len(plan_cache) == before


def test_eager_steps_hold_memory_flat():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with using(backend="llvm", threads=1):
        x = leaf(np.zeros((64, 64)))
        one = leaf(np.ones((64, 64)))
        for step in range(12_000):
            if step == 2000:
                before = resident()
            (held,) = realize([apply("add", x, one)])
            x = buffer(held, held.shape, held.dtype)
        assert held.array[3, 3] == 12_000
        assert resident() - before < 1 << 20
        assert allocator.stats().live < 1 << 30


def test_a_deep_chain_compiles_without_recursion():
    x = leaf([1.0, 2.0])
    y = x
    for _ in range(3000):
        y = apply("add", apply("multiply", y, x), x)
        y = apply("minimum", y, x)
    realize([y])
