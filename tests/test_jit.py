"""jit: signatures, trees, run-time numbers, static arguments, writes, donation, nesting."""

import collections
import cProfile
import dataclasses
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.config import using
from tilewright.errors import TraceError

pytestmark = pytest.mark.usefixtures("threads")
Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Layer:
    weight: object
    bias: object = None


def tensor(*values, dtype=tw.float32):
    return tw.asarray(list(values), dtype=dtype)


def test_traces_once_per_shape_dtype_and_structure():
    f = tw.jit(lambda x: tw.sum(x * 2))
    assert f(tensor(1, 2, 3)).item() == 12
    assert f(tensor(4, 5, 6)).item() == 30
    assert f.trace_count == 1
    assert f(tensor(1, 2)).item() == 6
    assert f(tensor(1, 2, 3, dtype=tw.int64)).item() == 12
    assert f(tensor(1, 2, 3)).item() == 12
    assert f.trace_count == f.cache_size == 3
    f.cache_clear()
    assert f.cache_size == 0
    assert f(tensor(1, 2, 3)).item() == 12


def test_inputs_inside_containers_are_inputs():
    f = tw.jit(lambda ts: ts[0] * 10 + ts[1])
    assert [f([tensor(i), tensor(1)]).item() for i in range(5)] == [1, 11, 21, 31, 41]
    assert f.trace_count == 1
    assert f((tensor(2), tensor(3))).item() == 23
    assert f.trace_count == 2
    g = tw.jit(lambda d, *, scale: d["a"]["b"] * scale[0] + d["c"].right)
    for i in range(3):
        tree = {"a": {"b": tensor(i)}, "c": Pair(None, tensor(1))}
        assert g(tree, scale=[np.float32(2)]).item() == 2 * i + 1
    assert g.trace_count == 1


def test_containers_keep_their_type_and_order():
    f = tw.jit(lambda x, layer, d: (
        [x, None, 3], {"z": x + 1, "a": "text"}, Pair(x, 2.5), Layer(layer.weight * 2), list(d)))
    x = tensor(1.0)
    a, b, c, d, e = f(x, Layer(tensor(3.0)), {"q": 1, "b": x})
    assert type(a) is list and a[0].tolist() == [1] and a[1:] == [None, 3]
    assert list(b) == ["z", "a"] and b["z"].tolist() == [2] and b["a"] == "text"
    assert type(c) is Pair and c.right == 2.5
    assert type(d) is Layer and d.weight.tolist() == [6] and d.bias is None
    assert e == ["q", "b"]


def test_numpy_arrays_and_scalars_are_inputs():
    f = tw.jit(lambda x, y: x + y)
    for i in range(3):
        out = f(np.full((2, 3), i, np.float32)[:, ::-1], np.float64(1))
        assert out.dtype == tw.float64 and out.tolist() == [[i + 1.0] * 3] * 2
    assert f.trace_count == 1
    big_endian = np.arange(3, dtype=">i4")
    assert f(big_endian, np.int32(1)).tolist() == [1, 2, 3]


def test_python_numbers_are_weak_run_time_values():
    g = tw.jit(lambda x, limit: tw.clip(x, -limit, limit))
    outs = [g(tensor(9.0), float(v)) for v in range(1, 6)]
    assert [o.item() for o in outs] == [1, 2, 3, 4, 5]
    assert all(o.dtype == tw.float32 for o in outs)
    assert g.trace_count == 1
    h = tw.jit(lambda x, n, flag: tw.where(flag, x * n, x))
    for n, flag in ((2, True), (3, True), (4, False)):
        out = h(tensor(1, 2, dtype=tw.int32), n, flag)
        assert out.dtype == tw.int32 and out.tolist() == ([n, 2 * n] if flag else [1, 2])
    assert h.trace_count == 1
    assert h(tensor(1, 2, dtype=tw.int32), 2.5, True).dtype == tw.float32


def test_numbers_come_back_as_numbers():
    f = tw.jit(lambda x, a, b: (a, a * 2, a + b, x))
    first, twice, total, x = f(tensor(1.0), 3, 0.5)
    assert (first, twice, total) == (3, 6, 3.5)
    assert [type(v) for v in (first, twice, total)] == [int, int, float]
    assert x.tolist() == [1.0]


def test_a_number_used_as_a_value_is_a_guard():
    f = tw.jit(lambda x, n: sum([x] * int(n), x * 0) if n > 1 else x * 100)
    for n in (3, 2, 3, 1, 2):
        assert f(tensor(1.0), n).item() == (n if n > 1 else 100)
    assert f.trace_count == 3
    g = tw.jit(lambda x, n: x[n:], )
    assert [g(tensor(1, 2, 3), n).shape[0] for n in (1, 2, 1)] == [2, 1, 2]
    assert g.trace_count == 2
    h = tw.jit(lambda x, z: x * (1.0 if str(float(z)).startswith("-") else 2.0))
    assert [h(tensor(1.0), z).item() for z in (0.0, -0.0, 0.0)] == [2, 1, 2]


def test_static_arguments_by_number_and_name():
    def f(x, mode, times=2):
        return x * times if mode == "times" else x + times
    for options in ({"static_argnums": (1, 2)}, {"static_argnames": ("mode", "times")},
                    {"static_argnums": -2, "static_argnames": "times"}):
        g = tw.jit(f, **options)
        assert g(tensor(5), "times", 3).item() == 15
        assert g(tensor(5), "plus", times=3).item() == 8
        assert g(tensor(5), mode="plus").item() == 7
        assert g(tensor(6), "times", 3).item() == 18
        assert g.trace_count == 3


def test_decorator_forms_and_metadata():
    @tw.jit
    def f(x):
        """Add one."""
        return x + 1

    @tw.jit(static_argnames="n")
    def g(x, n):
        return x.reshape(n, -1)
    assert f.__name__ == "f" and f.__doc__ == "Add one." and f(tensor(1)).item() == 2
    assert g(tensor(1, 2, 3, 4), n=2).shape == (2, 2)


def test_outputs_that_are_inputs_and_repeated_outputs():
    x, a, k = tensor(1, 2), np.array([3.0]), 4
    f = tw.jit(lambda x, a, k: (x, x, a, a, k, x.reshape(2, 1)))
    out = f(x, a, k)
    assert [tw.asarray(o).tolist() for o in out] == [[1, 2], [1, 2], [3], [3], 4, [[1], [2]]]
    out[0][0] = 9
    assert x.tolist() == [1, 2] and out[1].tolist() == [1, 2]
    a[0] = 7
    assert out[2].tolist() == out[3].tolist() == [3]


def test_an_output_fed_back_and_outputs_kept():
    f = tw.jit(lambda buf, new: tw.concat([buf[4:], new]))
    buf = tw.zeros(8, dtype=tw.int32)
    for s in range(1, 9):
        buf = f(buf, tw.full(4, s, dtype=tw.int32))
        assert buf.tolist() == [s - 1] * 4 + [s] * 4
    h = tw.jit(lambda x: x * 2)
    kept = [h(tw.asarray([i])) for i in range(5)]
    assert [k.item() for k in kept] == [0, 2, 4, 6, 8]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_any_order_of_feeding_back_and_keeping_is_as_eager(moves):
    def step(a, b):
        return b + a[::-1], a * 2
    jitted = tw.jit(step)
    fast, slow = [], []
    pair_fast = pair_slow = (tensor(1, 2, 3), tensor(4, 5, 6))
    for move in moves:
        if move == 1:
            pair_fast, pair_slow = pair_fast[::-1], pair_slow[::-1]
        elif move == 2:
            pair_fast, pair_slow = (pair_fast[0],) * 2, (pair_slow[0],) * 2
        pair_fast, pair_slow = jitted(*pair_fast), step(*pair_slow)
        fast.extend(pair_fast)
        slow.extend(pair_slow)
    assert [t.tolist() for t in fast] == [t.tolist() for t in slow]


def test_writes_to_arguments_reach_the_caller():
    @tw.jit
    def f(x, d):
        x[0] = x[1] * 10
        d["v"][...] = d["v"] + 1
        return x.sum()
    x, v, other = tensor(1, 2), tensor(5.0), tensor(5.0)
    for expected in (20, 20):
        assert f(x, {"v": v}).item() == expected + 2
    assert x.tolist() == [20, 2] and v.tolist() == [7] and other.tolist() == [5]
    assert f.trace_count == 1


def test_writes_through_two_names_of_one_handle():
    @tw.jit
    def f(a, b):
        a[0] = 10
        return b * 1
    x, y = tensor(1, 2), tensor(3, 4)
    assert f(x, y).tolist() == [3, 4] and x.tolist() == [10, 2]
    z = tensor(1, 2)
    assert f(z, z).tolist() == [10, 2]
    assert f(tensor(1, 2), tensor(3, 4)).tolist() == [3, 4]
    assert tw.jit(lambda a, b: a is b)(x, x) is True


def test_donated_tensors_are_gone():
    f = tw.jit(lambda x, y: x + y, donate_argnums=0)
    x, y = tensor(1), tensor(2)
    z = f(x, y)
    assert z.item() == 3 and y.item() == 2
    for use in (lambda: x.item(), lambda: x + 1, lambda: f(x, y), lambda: x.shape):
        with pytest.raises(TraceError, match="cannot use a tensor that was donated to"):
            use()
    assert f(z, y).item() == 5


def test_nested_jit_is_inlined():
    inner = tw.jit(lambda x: x * 2)
    outer = tw.jit(lambda x: inner(x) + inner(x[:1]))
    assert outer(tensor(1, 2)).tolist() == [4, 6]
    assert inner.trace_count == 0 and outer.trace_count == 1
    assert inner(tensor(3)).item() == 6


def test_functions_without_tensors():
    assert tw.jit(lambda: None)() is None
    assert tw.jit(lambda: (1, "a", [True]))() == (1, "a", [True])
    assert tw.jit(lambda: tw.arange(3))().tolist() == [0, 1, 2]
    table = np.arange(3)
    out = tw.jit(lambda: table)()
    assert out.tolist() == [0, 1, 2] and out is not table


def test_random_draws_are_new_in_each_call_and_in_eager_order():
    f = tw.jit(lambda: tw.random.rand(1))
    assert len({f().item() for _ in range(6)}) == 6 and f.trace_count == 1

    def draw(x):
        return tw.random.rand(2) + x, tw.random.randn(2)
    jitted = tw.jit(draw)
    tw.random.seed(7)
    expected = [[v.tolist() for v in draw(tensor(0, 0))] for _ in range(3)]
    tw.random.seed(7)
    found = [[v.tolist() for v in jitted(tensor(0, 0))] for _ in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_unrealised_arguments_and_lazy_use_of_results():
    x = tensor(1, 2) * 3
    f = tw.jit(lambda x: x + 1)
    y = f(x) * 2
    assert (f(y) + x).tolist() == [12, 21]
    assert f.trace_count == 1


def test_configurations_and_backends_have_plans_of_their_own():
    f = tw.jit(lambda x: x + 1, backend="interpreter")
    assert f(tensor(1)).item() == 2
    g = tw.jit(lambda x: x + 1)
    for repeat in range(2):
        for count in (1, 2):
            with using(threads=count):
                assert g(tensor(count + repeat)).item() == count + repeat + 1
    assert g.cache_size == g.trace_count == 2


def test_the_cache_is_bounded():
    f = tw.jit(lambda x, n: x + 1, static_argnums=1)
    for n in range(70):
        assert f(tensor(1), n).item() == 2
    assert f.cache_size == 64
    assert f(tensor(1), 69).item() == 2 and f.trace_count == 70
    f(tensor(1), 0)
    assert f.trace_count == 71


def test_compile_does_not_run_or_trace_twice():
    x = tensor(1, 2)

    @tw.jit
    def f(x):
        x[0] = 5
        return x * 2
    compiled = f.compile(x)
    assert x.tolist() == [1, 2]
    assert f(x).tolist() == [10, 4] and x.tolist() == [5, 2]
    assert f.compile(x).plan is compiled.plan and f.trace_count == 1


def test_many_threads_call_one_function():
    f = tw.jit(lambda x, n: x * n + 1)
    found = {}

    def work(i):
        found[i] = [f(tw.full((i % 3 + 1,), k, dtype=tw.float32), i)[0].item() for k in range(20)]
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {i: [k * i + 1 for k in range(20)] for i in range(8)}
    assert f.trace_count == 3


def test_a_deep_chain():
    def f(x):
        for _ in range(5000):
            x = x * 0.5 + 1.0
        return tw.sum(x)
    assert tw.jit(f)(tensor(1.0)).item() == 2
    assert tw.jit(tw.grad(f))(tensor(1.0)).item() == 0


def test_block_until_ready_inside_and_outside():
    tree = {"a": tensor(1) + 1, "b": [tensor(2)]}
    assert tw.block_until_ready(tree) is tree
    f = tw.jit(lambda x: tw.block_until_ready(x + 1))
    assert f(tensor(1)).item() == 2


def test_functions_are_traced_under_a_profiler():
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        assert int(tw.jit(lambda x: x + 1)(tw.asarray(1))) == 2
        assert sys.getprofile() is profiler
    finally:
        profiler.disable()
