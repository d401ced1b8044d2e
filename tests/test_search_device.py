"""The processor as a measurer: honest figures, and candidates that cannot hurt anyone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import hostile
import pytest
from search_tools import addition, code_of, lowered, native_code, product, rows, source_of, total

from tilewright import dtypes
from tilewright.backends import backend
from tilewright.errors import BackendError
from tilewright.limits import Limits
from tilewright.search.device import Caps, CpuMeasurer, _plain
from tilewright.search.measurer import Code, Failure
from tilewright.worker.bench import Bench
from tilewright.worker.pool import compilers
from tilewright.worker.process import Child, Lost

COUNT = 4096
CAPS = Caps(run_seconds=0.4, run_bytes=32 << 20)


@dataclass(frozen=True)
class Target:
    backend: str
    limits: Limits


def target(threads: int = 1) -> Target:
    return Target("llvm", replace(backend("llvm").limits, threads=threads))


@pytest.fixture(scope="module")
def device() -> Iterator[CpuMeasurer]:
    with CpuMeasurer(target(), caps=CAPS) as measurer:
        yield measurer


@pytest.fixture(scope="module")
def kernel():
    return addition(COUNT)


@pytest.fixture(scope="module")
def good(kernel) -> Code:
    return native_code(kernel)


@pytest.fixture(scope="module")
def source(kernel) -> str:
    return source_of(lowered(kernel), "llvm")


def hostile_code(kernel, text: str) -> Code:
    return code_of(lowered(kernel), backend("llvm").compile(text))


def positive(sample) -> bool:
    return isinstance(sample, float) and 0 < sample < 10


# -- candidates as they should be ----------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda: addition(33, 7), lambda: product(24, 20, 36), lambda: rows(9, 50),
    lambda: total(10_000), lambda: total(5000, dtypes.int32), lambda: total(5000, dtypes.bfloat16),
    lambda: addition(100, dtype=dtypes.float16), lambda: addition(100, dtype=dtypes.int64)],
    ids=["add", "matmul", "softmax", "sum", "int-sum", "bf16-sum", "f16-add", "int-add"])
def test_schedules_of_one_kernel_agree_and_have_times(device, make):
    kernel = make()
    given = device.begin(kernel, native_code(kernel))
    plain = device.link(native_code(kernel, ""))
    assert isinstance(given, int) and isinstance(plain, int), (given, plain)
    assert positive(device.sample(given)) and positive(device.sample(plain))
    found = device.samples(plain, 5)
    assert len(found) == 5 and all(map(positive, found))


def begun(kernel, monkeypatch) -> Bench:
    """Return a timer of this process, with a kernel of 9 by 50 elements and its reference."""
    monkeypatch.setattr("tilewright.worker.bench.allow_memory", lambda nbytes: None)
    bench = Bench()
    buffers = [(b.name, b.kind, "float32", 450) for b in (*kernel.inputs, *kernel.outputs)]
    bench.begin("llvm", buffers, 1, 0, 1 << 30)
    bench.reference(0, _plain(native_code(kernel)), 50, 1e-7, 1.0, 1.0)
    return bench


def test_buffers_move_and_keep_what_they_hold(monkeypatch):
    kernel = rows(9, 50)
    bench = begun(kernel, monkeypatch)
    held = [b.array.copy() for b in bench._inputs]
    places = [list(bench._bases)]
    for _ in range(6):
        bench.move()
        places.append(list(bench._bases))
    assert all(len(set(addresses)) == 3 for addresses in zip(*places))
    assert places[:3] == places[3:6]
    assert all((a == b.array).all() for a, b in zip(held, bench._inputs))
    assert bench.sample(0, 2, 1.0)[0] == "samples"
    assert (bench._outputs[0].array == bench._wanted[0]).all()  # written where they lie now
    assert bench.link(1, _plain(native_code(kernel, "")), 1.0, True)[0] == "linked"


def test_long_code_moves_as_well(monkeypatch):
    kernel = rows(9, 50)
    bench = begun(kernel, monkeypatch)
    code = _plain(native_code(kernel))
    for longest, places in ((len(code[0]), 1), (len(code[0]) - 1, 5)):
        monkeypatch.setattr("tilewright.worker.bench._PAGE", longest)
        met = []
        for _ in range(6):
            bench.sample(0, 1, 1.0)
            met.append(bench._linked[0].executable.addresses)
            bench.move()
            for b in bench._outputs:
                b.array[:] = 0
            bench.sample(0, 1, 1.0)
            assert (bench._outputs[0].array == bench._wanted[0]).all()
        assert len(set(met)) == places
    bench.drop(0)
    assert 0 not in bench._linked


def test_candidates_are_checked_as_before_on_moved_buffers(kernel, good, source):
    with CpuMeasurer(target(), caps=CAPS) as device:
        handle = device.begin(kernel, good)
        device.move()
        assert positive(device.sample(handle)) and isinstance(device.link(good), int)
        found = device.link(hostile_code(kernel, hostile.writes_input(source)))
        assert isinstance(found, Failure) and found.kind == "wrong"


def test_a_faster_candidate_measures_faster(device):
    kernel = product(96, 96, 96)
    slow = device.begin(kernel, native_code(kernel, ""))
    fast = device.link(native_code(kernel))
    assert min(device.samples(fast, 5)) < 0.5 * min(device.samples(slow, 5))


def test_threads_share_parallel_programs():
    measured = target(threads=2)
    kernel = addition(1 << 20)
    code = native_code(kernel, limits=measured.limits)
    assert any(code.parallel)
    with CpuMeasurer(measured) as device:
        handle = device.begin(kernel, code)
        assert positive(device.sample(handle))
        assert positive(device.sample(device.link(native_code(kernel, ""))))


def test_cold_samples_are_slower_than_warm_ones():
    kernel = total(64 << 10)
    code = native_code(kernel)
    least = []
    for cold in (False, True):
        with CpuMeasurer(target(), cold=cold) as device:
            least.append(min(device.samples(device.begin(kernel, code), 5)))
    assert least[1] > least[0]


def test_handles_end_with_their_kernel(device, kernel, good):
    old = device.begin(kernel, good)
    device.begin(addition(8), native_code(addition(8)))
    with pytest.raises(ValueError, match=f"cannot find candidate {old}"):
        device.sample(old)


def test_dropped_candidates_are_gone(device, kernel, good):
    device.begin(kernel, good)
    handle = device.link(good)
    device.drop(handle)
    with pytest.raises(ValueError, match="cannot find"):
        device.sample(handle)


def test_noise_is_a_spread(device):
    assert 0 <= device.noise() < 100


def test_linking_needs_a_kernel(good):
    with CpuMeasurer(target()) as device, pytest.raises(ValueError, match="before `begin`"):
        device.link(good)


def test_only_native_code_is_timed():
    with pytest.raises(BackendError, match="cannot time interpreter"):
        CpuMeasurer(Target("interpreter", Limits()))


# -- compiling -----------------------------------------------------------------------------------


def test_the_pool_compiles_what_the_backend_would(device, source):
    sources = [source, source_of(lowered(product(8, 8, 8)), "llvm")] * 2
    assert device.compile(sources) == [backend("llvm").compile(s) for s in sources]
    assert device.compile([]) == []


def test_children_are_reused(device, source):
    device.compile([source] * 4)
    before = {c.pid for c in compilers._idle}
    device.compile([source] * 4)
    assert {c.pid for c in compilers._idle} == before
    assert len(before) <= device.workers


@pytest.mark.parametrize(("text", "caps", "kinds"), [
    (hostile.NO_SOURCE, Caps(), {"compile_error"}),
    (hostile.NEVER_COMPILES, Caps(), {"compile_error", "crash"}),
    (hostile.long_chain(60_000), Caps(compile_seconds=0.3), {"timeout"}),
    (hostile.long_chain(60_000), Caps(compile_bytes=8 << 20), {"memory"}),
], ids=["rejected", "dies", "forever", "memory"])
def test_a_bad_source_costs_only_itself(source, text, caps, kinds):
    with CpuMeasurer(target(), caps=caps) as device:
        started = time.monotonic()
        first, second, third = device.compile([source, text, source])
        assert time.monotonic() - started < 8
        assert isinstance(second, Failure) and second.kind in kinds and second.reason
        assert first == third == backend("llvm").compile(source)


# -- candidates that misbehave -------------------------------------------------------------------


def check_rejected(device, kernel, good, text: str, *kinds: str) -> Failure:
    """Link a hostile candidate: it fails in time, and others work before and after it."""
    given = device.begin(kernel, good)
    before = device.link(good)
    started = time.monotonic()
    failure = device.link(hostile_code(kernel, text))
    assert time.monotonic() - started < 8
    assert isinstance(failure, Failure) and failure.kind in kinds, failure
    after = device.link(good)
    assert isinstance(after, int)
    assert all(positive(device.sample(h)) for h in (after, before, given))
    return failure


@pytest.mark.parametrize(("text", "kind"), [
    (hostile.HANGS, "timeout"), (hostile.CRASHES, "crash"), (hostile.TRAPS, "crash"),
    (hostile.DIVIDES, "crash"), (hostile.NOTHING, "wrong"), (hostile.zeros(4 * COUNT), "wrong")],
    ids=["hangs", "segfaults", "traps", "divides", "does-nothing", "zeros"])
def test_a_hostile_candidate_fails_alone(device, kernel, good, text, kind):
    failure = check_rejected(device, kernel, good, text, kind)
    assert {"timeout": "a run took over 0.4 s", "crash": "it died of SIG",
            "wrong": "out0 differs by up to"}[kind] in failure.reason


def test_a_memory_bomb_fails_alone(device, kernel, good):
    # from within a large process, what memory does to a child cannot be told from a crash
    check_rejected(device, kernel, good, hostile.EATS_MEMORY, "memory", "crash", "timeout")


def test_zeros_are_wrong_where_sums_cancel(device):
    kernel = total(1 << 16)
    device.begin(kernel, native_code(kernel))
    low = lowered(kernel)
    text = hostile.zeros(4).replace("i64 2\n", "i64 1\n")  # this output is the second buffer
    failure = device.link(code_of(low, backend("llvm").compile(text)))
    assert isinstance(failure, Failure) and failure.kind == "wrong"


def test_writes_outside_the_output_are_found(device, kernel, good, source):
    text = hostile.overruns(source, 4 * COUNT)
    assert "beyond its end" in check_rejected(device, kernel, good, text, "wrong").reason
    text = hostile.writes_input(source)
    assert "a0, an input" in check_rejected(device, kernel, good, text, "wrong").reason


def test_code_that_cannot_be_loaded_fails_alone(device, kernel, good):
    device.begin(kernel, good)
    failure = device.link(code_of(lowered(kernel), b"no object"))
    assert isinstance(failure, Failure) and failure.kind == "compile_error"
    assert isinstance(device.link(good), int)


def test_a_workspace_beyond_memory_fails_alone(device, kernel, good):
    device.begin(kernel, good)
    huge = replace(good, binding=replace(good.binding, global_bytes=1 << 50))
    failure = device.link(huge)
    assert isinstance(failure, Failure) and failure.kind == "memory"
    assert isinstance(device.link(good), int)


def test_a_slow_candidate_is_right_and_slow(device, kernel, good, source):
    given = device.begin(kernel, good)
    handle = device.link(hostile_code(kernel, hostile.slower(source, 5000)))
    assert isinstance(handle, int)
    assert device.sample(handle) > 100 * min(device.samples(given, 3))


def test_a_candidate_that_crashes_later_stays_dead(device, kernel, good, source):
    given = device.begin(kernel, good)
    handle = device.link(hostile_code(kernel, hostile.crashes_after(source, 4)))
    assert isinstance(handle, int)
    assert positive(device.sample(handle))  # the check, another look, a run not counted, one sample
    failure = device.sample(handle)
    assert isinstance(failure, Failure) and failure.kind == "crash"
    child = device._child
    assert device.sample(handle) == failure
    assert device._child is child  # it was not run again
    assert positive(device.sample(given))


def test_a_given_code_that_crashes_is_a_failure(device, kernel):
    failure = device.begin(kernel, hostile_code(kernel, hostile.CRASHES))
    assert isinstance(failure, Failure) and failure.kind == "crash"


# -- processes -----------------------------------------------------------------------------------


def test_an_interrupt_leaves_a_working_device(device, kernel, good, monkeypatch):
    given = device.begin(kernel, good)

    def interrupt(self, seconds):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Child, "receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            device.sample(given)
    assert positive(device.sample(given))


def test_sources_are_taken_while_others_compile(device, source):
    """The third is asked for once one of two children is free, and an interrupt ends them all."""
    assert device.compile(iter([])) == []
    found = device.compile(source for _ in range(3))
    assert len(found) == 3 and all(isinstance(x, bytes) for x in found)

    def interrupted():
        yield source
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        device.compile(interrupted())
    assert isinstance(device.compile([source])[0], bytes)


def test_a_killed_compiler_is_replaced(device, source):
    device.compile([source] * 2)
    for child in compilers._idle:
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert all(isinstance(x, bytes) for x in device.compile([source] * 3))


def test_a_child_lost_says_why():
    child = Child("bench")
    with pytest.raises(Lost) as caught:
        child.ask(("no such operation",), 5.0)
    assert caught.value.kind == "crash" and "AttributeError" in caught.value.reason
    child.close()


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_children_end_with_a_parent_that_is_killed():
    script = """
        import time
        from tilewright.worker.process import Child
        children = [Child("bench"), Child("compile")]
        for child in children:
            child.wait_ready()
        print(*(c.pid for c in children), flush=True)
        time.sleep(60)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)],
                              stdout=subprocess.PIPE, text=True)
    pids = [int(p) for p in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 10
    while any(map(running, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(map(running, pids))


def test_a_child_imports_only_what_it_needs():
    script = """
        import sys, types
        import tilewright.worker.process as process
        package = process._PACKAGE
        for name in [n for n in sys.modules if n.partition(".")[0] == "tilewright"]:
            del sys.modules[name]
        boot = process._BOOT.replace("main(role)", "")
        sys.argv = ["-c", "bench", str(package), *sys.path]
        exec(boot)
        print(*{n.split(".")[1] for n in sys.modules if n.startswith("tilewright.")})
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True,
                          text=True, check=True)
    assert set(done.stdout.split()) <= {
        "errors", "dtypes", "config", "limits", "program", "backends", "runtime", "worker"}


def test_the_module_runs_as_a_command():
    done = subprocess.run([sys.executable, "-m", "tilewright.worker"], capture_output=True,
                          text=True, check=False)
    assert done.returncode and "compile|bench" in done.stderr


def test_a_fork_of_the_process_leaves_the_children_alone():
    script = """
        import os
        from tilewright.worker.pool import compilers
        text = "@tilewright_entries = constant i64 0"
        def works():
            return isinstance(compilers.compile("llvm", [text], 1, 10.0, 1 << 30)[0], bytes)
        assert works()
        pid = os.fork()
        if not pid:
            fresh = not compilers._idle and works()
            compilers.close()
            os._exit(0 if fresh else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert works()
        print("both work")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True,
                          text=True, check=False)
    assert done.stdout == "both work\n", done.stderr
