"""Native launch, worker threads and timer, on hand-written LLVM IR."""

import ctypes
import os
import threading

import llvmlite.binding as llvm
import numpy as np
import pytest

from tilewright.runtime.launch import Launch, Segment
from tilewright.runtime.native import native
from tilewright.runtime.threads import WorkerPool, workers
from tilewright.runtime.timer import time_frame

TEXT = """
; out[i] = in[i] + 1 over this worker's share of {n} int64 elements
define void @increment(ptr %buffers, ptr %extents, i64 %worker, i64 %workers) {{
entry:
  %pp = getelementptr ptr, ptr %buffers, i64 1
  %in = load ptr, ptr %buffers
  %out = load ptr, ptr %pp
  %a0 = mul i64 {n}, %worker
  %lo = udiv i64 %a0, %workers
  %w1 = add i64 %worker, 1
  %b0 = mul i64 {n}, %w1
  %hi = udiv i64 %b0, %workers
  br label %head
head:
  %i = phi i64 [ %lo, %entry ], [ %i1, %body ]
  %more = icmp ult i64 %i, %hi
  br i1 %more, label %body, label %done
body:
  %ip = getelementptr i64, ptr %in, i64 %i
  %op = getelementptr i64, ptr %out, i64 %i
  %x = load i64, ptr %ip
  %y = add i64 %x, 1
  store i64 %y, ptr %op
  %i1 = add i64 %i, 1
  br label %head
done:
  ret void
}}
; reverses: out[i] = in[n-1-i], by whole-range access of one worker's share: needs a barrier before
define void @reverse(ptr %buffers, ptr %extents, i64 %worker, i64 %workers) {{
entry:
  %pp = getelementptr ptr, ptr %buffers, i64 1
  %in = load ptr, ptr %buffers
  %out = load ptr, ptr %pp
  %a0 = mul i64 {n}, %worker
  %lo = udiv i64 %a0, %workers
  %w1 = add i64 %worker, 1
  %b0 = mul i64 {n}, %w1
  %hi = udiv i64 %b0, %workers
  br label %head
head:
  %i = phi i64 [ %lo, %entry ], [ %i1, %body ]
  %more = icmp ult i64 %i, %hi
  br i1 %more, label %body, label %done
body:
  %back = sub i64 {last}, %i
  %ip = getelementptr i64, ptr %in, i64 %back
  %op = getelementptr i64, ptr %out, i64 %i
  %x = load i64, ptr %ip
  store i64 %x, ptr %op
  %i1 = add i64 %i, 1
  br label %head
done:
  ret void
}}
"""
N = 1000


@pytest.fixture(scope="module")
def entries():
    native()
    module = llvm.parse_assembly(TEXT.format(n=N, last=N - 1))
    engine = llvm.create_mcjit_compiler(
        module, llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    yield {n: engine.get_function_address(n) for n in ("increment", "reverse")}
    engine.close()


def chain(entries, names, threads, parallel=True):
    """A segment that applies `names` in turn, input base 0, to base 2, by way of base 1."""
    launches, where = [], (0, 0)
    for i, name in enumerate(names):
        target = (2, 0) if i == len(names) - 1 else (1, 8 * N * i)
        launches.append(Launch(entries[name], (where, target), parallel))
        where = target
    return Segment(launches, threads)


def run(segment, data):
    out, middle = np.zeros(N, np.int64), np.zeros(100 * N, np.int64)
    bases = (ctypes.c_int64 * 3)(data.ctypes.data, middle.ctypes.data, out.ctypes.data)
    segment.frame(bases).run()
    return out


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("parallel", [True, False])
def test_a_chain_of_launches_sees_each_result(entries, threads, parallel):
    data = np.arange(N) ** 2
    segment = chain(entries, ["increment", "reverse"] * 15, threads, parallel)
    want = data
    for _ in range(15):
        want = (want + 1)[::-1]
    for _ in range(50):
        np.testing.assert_array_equal(run(segment, data), want)


def test_serial_and_parallel_launches_mix(entries):
    data = np.arange(N)
    steps = [Launch(entries["reverse"], ((0, 0), (1, 0)), True),
             Launch(entries["increment"], ((1, 0), (1, 8 * N)), False),
             Launch(entries["increment"], ((1, 8 * N), (1, 16 * N)), False),
             Launch(entries["reverse"], ((1, 16 * N), (2, 0)), True)]
    for _ in range(100):
        np.testing.assert_array_equal(run(Segment(steps, 2), data), data + 2)


def test_an_empty_segment_runs():
    Segment([], 2).frame((ctypes.c_int64 * 1)()).run()


def test_workers_take_part_only_in_runs_that_ask_for_them(entries):
    data = np.arange(N)
    segments = [chain(entries, ["reverse", "increment"] * 3, n) for n in (4, 2, 3, 1, 4, 2)]
    want = ((data[::-1] + 1)[::-1] + 1)[::-1] + 1
    for _ in range(200):
        for segment in segments:
            np.testing.assert_array_equal(run(segment, data), want)
    assert workers.threads >= 4


def test_python_threads_may_run_segments_at_once(entries):
    segment = chain(entries, ["increment"] * 10, 2)
    wrong = []

    def work(k):
        data = np.arange(N) * k
        for _ in range(100):
            if not (run(segment, data) == data + 10).all():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_workers_wake_after_they_parked(entries):
    segment, data = chain(entries, ["increment"] * 3, 2), np.arange(N)
    for _ in range(5):
        np.testing.assert_array_equal(run(segment, data), data + 3)
        threading.Event().wait(0.02)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_a_forked_child_starts_workers_of_its_own(entries):
    segment, data = chain(entries, ["increment"] * 3, 2), np.arange(N)
    run(segment, data)
    with workers.lock:  # as if another thread were running a plan
        child = os.fork()
        if child == 0:
            right = (run(segment, data) == data + 3).all()
            os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_pool_grows_and_keeps_its_workers():
    pool = WorkerPool()
    with pool.lock:
        address = pool.reserve(2)
        assert pool.threads == 2 and address % 64 == 0
        assert pool.reserve(3) == address and pool.threads == 3
        assert pool.reserve(2) == address and pool.threads == 3
    pool.stop()
    assert pool.threads == 1
    with pool.lock:
        assert pool.reserve(2) and pool.threads == 2
    pool.stop()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
                    reason="needs Linux and two processors")
def test_a_worker_leaves_the_processor_of_its_caller(entries):
    segment, data = chain(entries, ["increment"], 2), np.arange(N)
    workers.stop()
    run(segment, data)  # starts the worker
    worker = next(t for t in threading.enumerate() if t.name == "tilewright-worker-1")
    whole = os.sched_getaffinity(0)
    home = min(whole)
    try:
        os.sched_setaffinity(0, {home})
        os.sched_setaffinity(worker.native_id, {home})
        np.testing.assert_array_equal(run(segment, data), data + 1)
        assert os.sched_getaffinity(worker.native_id) == whole - {home}
        os.sched_setaffinity(worker.native_id, {home})
        crowd = chain(entries, ["increment"], len(whole) + 1)
        np.testing.assert_array_equal(run(crowd, data), data + 1)
        assert os.sched_getaffinity(worker.native_id) == {home}  # there is none for each thread
    finally:
        os.sched_setaffinity(0, whole)
        workers.stop()


def test_workers_that_were_stopped_start_again(entries):
    segment, data = chain(entries, ["increment"] * 3, 3), np.arange(N)
    for _ in range(5):
        np.testing.assert_array_equal(run(segment, data), data + 3)
        workers.stop()


@pytest.mark.parametrize("threads", [1, 2])
def test_timing_returns_a_positive_span_per_sample(entries, threads):
    data, out = np.arange(N), np.zeros(N, np.int64)
    bases = (ctypes.c_int64 * 3)(data.ctypes.data, 0, out.ctypes.data)
    frame = chain(entries, ["increment"], threads).frame(bases)
    seconds = time_frame(frame, 7)
    assert seconds.shape == (7,) and (seconds > 0).all() and (seconds < 1).all()
    np.testing.assert_array_equal(out, data + 1)
    with pytest.raises(ValueError, match="cannot take 0 samples"):
        time_frame(frame, 0)
