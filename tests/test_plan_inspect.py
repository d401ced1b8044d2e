"""Inspection: kernels are read, timed, edited and put in place; names, costs, debug output."""

import numpy as np
import pytest

from tilewright.config import using
from tilewright.dtypes import bfloat16, float32, int64
from tilewright.errors import BackendError, Illegal, ScheduleError, VerifyError
from tilewright.graph import apply, parameter
from tilewright.plan.inspect import Compiled, difference, tolerance
from tilewright.plan.plan import compile_graph
from tilewright.runtime.storage import Storage


def storage(array, dtype=float32):
    return Storage(np.ascontiguousarray(array, dtype.numpy), dtype)


def compiled(shape=(64, 96)):
    x = parameter(0, shape, float32)
    total = apply("reduce", apply("exp", x), kind="sum", axes=(1,))
    return Compiled(compile_graph([total], [x]))


def product(a, b):
    """Return the matrix product (m, k) (k, n) -> (m, n)."""
    (m, k), n = a.shape, b.shape[1]
    left = apply("expand", apply("reshape", a, shape=(m, 1, k)), shape=(m, n, k))
    right = apply("reshape", apply("permute", b, axes=(1, 0)), shape=(1, n, k))
    both = apply("multiply", left, apply("expand", right, shape=(m, n, k)))
    return apply("reduce", both, kind="sum", axes=(2,))


@pytest.fixture(params=[("llvm", 1), ("llvm", 2), ("interpreter", 1)], ids=str)
def mode(request):
    with using(backend=request.param[0], threads=request.param[1]):
        yield request.param


def test_every_level_prints(mode):
    c = compiled()
    assert "launches" in str(c.plan) and "out0: float32[64]" in str(c)
    (kernel,) = c.kernels
    assert kernel.name == "exp_sum_64x96" and kernel.name in repr(kernel)
    assert kernel.key == str(kernel.kernel) and "exp" in kernel.key
    assert str(kernel.nest) and kernel.source and kernel.assembly
    assert kernel.program.count > 0 and len(kernel.programs) >= 1
    assert kernel.flops == 64 * 96 * 2 and kernel.bytes == 4 * (64 * 96 + 64)


def test_stages_and_counts(mode):
    c = compiled((31, 77))
    assert list(c.stages) == ["trace", "fuse", "schedule", "lower", "compile", "first run"]
    assert c.stages["first run"] == 0
    c.plan.run([storage(np.zeros((31, 77)))])
    assert c.stages["first run"] > 0 and c.stages["fuse"] > 0
    assert c.counts["nodes"] == 3 and c.counts["kernels"] == c.counts["distinct kernels"] == 1
    assert c.counts["instructions"] > 0


def test_kernels_are_listed_once_with_their_calls():
    x = parameter(0, (8, 8), float32)
    y = apply("cumulate", apply("cumulate", x, kind="sum", axis=1), kind="sum", axis=1)
    c = Compiled(compile_graph([y], [x]))
    assert sum(k.calls for k in c.kernels) == c.counts["kernels"]
    assert len(c.kernels) == c.counts["distinct kernels"]


def test_time_gives_seconds(mode):
    seconds = compiled().kernels[0].time(4)
    assert isinstance(seconds, np.ndarray) and seconds.shape == (4,) and (seconds > 0).all()


def test_a_schedule_is_edited_checked_and_put_in_place(mode):
    c = compiled()
    kernel = c.kernels[0]
    same = kernel.with_schedule(str(kernel.schedule))
    assert str(same.schedule) == str(kernel.schedule)
    plain = kernel.with_schedule("Split(i0, 8)")
    assert str(plain.schedule) == "Split(i0, 8)" and plain.key == kernel.key
    c.replace(plain)
    assert str(c.kernels[0].schedule) == "Split(i0, 8)"
    data = np.random.default_rng(1).random((64, 96), np.float32)
    (out,) = c.plan.run([storage(data)])
    np.testing.assert_allclose(out.array, np.exp(data).sum(1), rtol=1e-5)


def test_bad_schedules_are_refused(mode):
    kernel = compiled().kernels[0]
    with pytest.raises(ScheduleError, match="cannot find action Twist"):
        kernel.with_schedule("Twist(i0)")
    with pytest.raises(Illegal):
        kernel.with_schedule("Split(i9, 4)")


def test_source_is_edited_and_checked():
    with using(backend="llvm", threads=1):
        x = parameter(0, (300,), float32)
        c = Compiled(compile_graph([apply("add", x, x)], [x]))
        kernel = c.kernels[0]
        assert kernel.with_source(kernel.source).time(2).shape == (2,)
        assert "fadd" in kernel.source
        with pytest.raises(VerifyError, match=r"with_source: cannot replace add_300 \(its out0"):
            kernel.with_source(kernel.source.replace("fadd", "fsub"))
        with pytest.raises(BackendError):
            kernel.with_source("this is no source")
        by_hand = kernel.with_source(kernel.source + "\n; by hand\n")
        assert by_hand.source.endswith("; by hand\n")
        c.replace(by_hand)
        np.testing.assert_array_equal(c.plan.run([storage(np.arange(300))])[0].array,
                                      2 * np.arange(300))


def test_assembly_is_edited_and_checked():
    with using(backend="llvm", threads=1):
        x = parameter(0, (300,), float32)
        c = Compiled(compile_graph([apply("add", x, x)], [x]))
        kernel = c.kernels[0]
        again = kernel.with_assembly(kernel.assembly)
        assert again.assembly == kernel.assembly and (again.time(2) > 0).all()
        with pytest.raises(BackendError):
            kernel.with_assembly("no such instruction")
        c.replace(again)
        np.testing.assert_array_equal(c.plan.run([storage(np.arange(300))])[0].array,
                                      2 * np.arange(300))


def test_a_kernel_of_another_function_is_refused():
    c, other = compiled(), compiled((5, 6))
    with pytest.raises(ValueError, match=r"replace: cannot put exp_sum_5x6 in place"):
        c.replace(other.kernels[0])


def test_differences():
    a = np.array([1.0, np.nan, np.inf, -np.inf, 0.0], np.float32)
    assert difference(a, a) == 0
    assert difference(a, np.array([1.5, np.nan, np.inf, -np.inf, -0.0], np.float32)) == 0.5
    assert difference(a, np.array([1, 0, np.inf, -np.inf, 0], np.float32)) == np.inf
    assert difference(a, np.array([1, np.nan, -np.inf, -np.inf, 0], np.float32)) == np.inf
    assert tolerance(np.arange(5)) == 0 and tolerance(np.zeros(0, bfloat16.numpy)) == 0
    assert 0 < tolerance(np.ones(3, np.float64)) < 1e-7 < tolerance(np.ones(3, np.float32))


@pytest.mark.parametrize("build, name", [
    (lambda x, w: apply("negative", x), "negative_1200"),
    (lambda x, w: apply("reduce", x, kind="sum", axes=(0,)), "sum_30x40"),
    (lambda x, w: apply("reduce", x, kind="argmax", axes=(1,)), "argmax_30x40"),
    (lambda x, w: apply("permute", x, axes=(1, 0)), "copy_30x40"),
    (lambda x, w: apply("reduce", apply("multiply", x, x), kind="sum", axes=(1,)),
     "multiply_sum_30x40"),
    (lambda x, w: product(x, apply("reshape", w, shape=(40, 1))), "matvec_30x40"),
    (lambda x, w: product(x, apply("permute", x, axes=(1, 0))), "matmul_30x40x30"),
    (lambda x, w: apply("cumulate", x, kind="sum", axis=1), "cumulative_sum_30x40"),
])
def test_names_say_what_a_kernel_does(build, name):
    x, w = parameter(0, (30, 40), float32), parameter(1, (40,), float32)
    c = Compiled(compile_graph([build(x, w)], [x, w]))
    found = c.kernels[0].name
    words, _, shape = found.rpartition("_")
    wanted, _, extents = name.rpartition("_")
    assert words == wanted and sorted(shape.split("x")) == sorted(extents.split("x"))


def test_debug_levels_print_more_and_more(mode, capfd):
    data = storage(np.zeros((12, 9)))
    seen = []
    for level in range(7):
        with using(debug=level):
            x = parameter(0, (12, 9), float32)
            plan = compile_graph([apply("add", apply("multiply", x, x), x)], [x])
            (out,) = plan.run([data])
            assert not out.array.any()
        seen.append(capfd.readouterr().err)
    assert seen[0] == ""
    assert "launch" in seen[1] and "GB/s" in seen[1] and "GFLOP/s" in seen[1]
    assert "graph of" in seen[2] and "schedule" in seen[3] and "program" in seen[4]
    assert all(len(a) < len(b) for a, b in zip(seen, seen[1:]))


def test_debug_shows_host_functions(capfd):
    x = parameter(0, (4,), int64)

    def ordered(values):
        return np.sort(values)
    with using(debug=1):
        plan = compile_graph([apply("call", x, function=ordered, shape=(4,), dtype=int64)], [x])
        np.testing.assert_array_equal(plan.run([storage([3, 1, 2, 0], int64)])[0].array, range(4))
    assert "ordered" in capfd.readouterr().err and "host ordered(in0)" in str(plan)
