"""The native part of the runtime: launching, worker threads, barrier and timer, as LLVM IR.

No C compiler is needed: the text below is compiled once per process by llvmlite. All structures are
arrays of 64-bit words.

    Frame  := pool, workers, launches, count, relocations, relocation count, bases, table
    Launch := entry, buffers, extents, flags        flags: 1 all workers enter; 2 barrier after it
    Relocation := base number, offset in bytes      table[i] = bases[number] + offset
    Pool   := see the words named below, each on a cache line of its own; mutex; condition
    Worker := pool, number, epoch word already seen

A run fills the frame's table from its bases, publishes the frame under a new epoch word (a counter
above 16 bits of worker count: one atomic read tells a worker both that there is work and whether it
takes part), walks the launches as worker 0 and meets the others in a barrier. Idle workers spin,
then wait on a condition variable.

A waiting thread soon offers its processor to others: the one it waits for may stand behind it. On
Linux a worker that starts work on worker 0's processor leaves it, and keeps away until it meets
worker 0 on another one: the system may let both stay for long, as it takes a thread that spins for
one that works.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import time

import llvmlite.binding as llvm

from tilewright.errors import BackendError
from tilewright.runtime import processors

POOL_WORDS = 72
EPOCH, JOB, HOME, PROCESSORS = 0, 1, 2, 3
ARRIVED, GENERATION, PARKED, MUTEX, CONDITION = 8, 16, 24, 32, 48
FRAME_WORDS, LAUNCH_WORDS = 8, 4
PARALLEL, BARRIER = 1, 2
SPINS = 100  # some 3 to 5 us; then the processor is offered to others between looks
IDLE_LOOKS = 300  # some 50 to 100 us with these; then a worker waits on the condition

_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "AMD64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    "arm64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}

_TEXT = """
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
{pause_declaration}


define internal void @meet(ptr %pool, i64 %workers) {{
entry:
  %gp = getelementptr i64, ptr %pool, i64 {GENERATION}
  %ap = getelementptr i64, ptr %pool, i64 {ARRIVED}
  %g = load atomic i64, ptr %gp seq_cst, align 8
  %before = atomicrmw add ptr %ap, i64 1 seq_cst
  %count = add i64 %before, 1
  %last = icmp eq i64 %count, %workers
  br i1 %last, label %open, label %spin
open:
  store atomic i64 0, ptr %ap seq_cst, align 8
  %next = add i64 %g, 1
  store atomic i64 %next, ptr %gp seq_cst, align 8
  ret void
spin:
  %n = phi i64 [ 0, %entry ], [ %n1, %again ]
  %now = load atomic i64, ptr %gp acquire, align 8
  %passed = icmp ne i64 %now, %g
  br i1 %passed, label %done, label %wait
wait:
  {pause}
  %n1 = add i64 %n, 1
  %long = icmp ugt i64 %n, {SPINS}
  br i1 %long, label %yield, label %again
yield:
  %y = call i32 @sched_yield()
  br label %again
again:
  br label %spin
done:
  ret void
}}

define internal void @walk(ptr %frame, i64 %worker, i64 %workers, ptr %pool) {{
entry:
  %lp = getelementptr i64, ptr %frame, i64 2
  %launches = load ptr, ptr %lp
  %cp = getelementptr i64, ptr %frame, i64 3
  %count = load i64, ptr %cp
  %first = icmp eq i64 %worker, 0
  %several = icmp ugt i64 %workers, 1
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %base = mul i64 %i, {LAUNCH_WORDS}
  %ep = getelementptr i64, ptr %launches, i64 %base
  %bp = getelementptr i64, ptr %ep, i64 1
  %xp = getelementptr i64, ptr %ep, i64 2
  %fp = getelementptr i64, ptr %ep, i64 3
  %flags = load i64, ptr %fp
  %all = trunc i64 %flags to i1
  %enter = or i1 %all, %first
  br i1 %enter, label %call, label %after
call:
  %function = load ptr, ptr %ep
  %buffers = load ptr, ptr %bp
  %extents = load ptr, ptr %xp
  %share = select i1 %all, i64 %workers, i64 1
  call void %function(ptr %buffers, ptr %extents, i64 %worker, i64 %share)
  br label %after
after:
  %b = and i64 %flags, {BARRIER}
  %asked = icmp ne i64 %b, 0
  %meets = and i1 %asked, %several
  br i1 %meets, label %barrier, label %next
barrier:
  call void @meet(ptr %pool, i64 %workers)
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %head
done:
  ret void
}}

define internal void @relocate(ptr %frame) {{
entry:
  %rp = getelementptr i64, ptr %frame, i64 4
  %relocations = load ptr, ptr %rp
  %np = getelementptr i64, ptr %frame, i64 5
  %count = load i64, ptr %np
  %bp = getelementptr i64, ptr %frame, i64 6
  %bases = load ptr, ptr %bp
  %tp = getelementptr i64, ptr %frame, i64 7
  %table = load ptr, ptr %tp
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i1, %body ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %i2 = shl i64 %i, 1
  %sp = getelementptr i64, ptr %relocations, i64 %i2
  %op = getelementptr i64, ptr %sp, i64 1
  %slot = load i64, ptr %sp
  %offset = load i64, ptr %op
  %from = getelementptr i64, ptr %bases, i64 %slot
  %base = load i64, ptr %from
  %address = add i64 %base, %offset
  %to = getelementptr i64, ptr %table, i64 %i
  store i64 %address, ptr %to
  %i1 = add i64 %i, 1
  br label %head
done:
  ret void
}}

define internal void @launch(ptr %frame) {{
entry:
  %pool = load ptr, ptr %frame
  %wp = getelementptr i64, ptr %frame, i64 1
  %workers = load i64, ptr %wp
  %single = icmp ule i64 %workers, 1
  br i1 %single, label %alone, label %publish
alone:
  call void @walk(ptr %frame, i64 0, i64 1, ptr null)
  ret void
publish:
  %jp = getelementptr i64, ptr %pool, i64 {JOB}
  store ptr %frame, ptr %jp
  %hp = getelementptr i64, ptr %pool, i64 {HOME}
  %home = call i64 @processor()
  store i64 %home, ptr %hp
  %old = load i64, ptr %pool
  %counter = lshr i64 %old, 16
  %counter1 = add i64 %counter, 1
  %high = shl i64 %counter1, 16
  %new = or i64 %high, %workers
  store atomic i64 %new, ptr %pool seq_cst, align 8
  %pp = getelementptr i64, ptr %pool, i64 {PARKED}
  %parked = load atomic i64, ptr %pp seq_cst, align 8
  %none = icmp eq i64 %parked, 0
  br i1 %none, label %work, label %wake
wake:
  %mutex = getelementptr i64, ptr %pool, i64 {MUTEX}
  %condition = getelementptr i64, ptr %pool, i64 {CONDITION}
  %w1 = call i32 @pthread_mutex_lock(ptr %mutex)
  %w2 = call i32 @pthread_cond_broadcast(ptr %condition)
  %w3 = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %work
work:
  call void @walk(ptr %frame, i64 0, i64 %workers, ptr %pool)
  call void @meet(ptr %pool, i64 %workers)
  ret void
}}

define void @tilewright_worker(ptr %self) {{
entry:
  %set = alloca [128 x i8]
  call void @processors(ptr %set)
  %pool = load ptr, ptr %self
  %np = getelementptr i64, ptr %self, i64 1
  %number = load i64, ptr %np
  %sp = getelementptr i64, ptr %self, i64 2
  %seen0 = load i64, ptr %sp
  %mutex = getelementptr i64, ptr %pool, i64 {MUTEX}
  %condition = getelementptr i64, ptr %pool, i64 {CONDITION}
  %pp = getelementptr i64, ptr %pool, i64 {PARKED}
  br label %idle
idle:
  %seen = phi i64 [ %seen0, %entry ], [ %woken, %skip ], [ %woken, %enter ]
  br label %spin
spin:
  %n = phi i64 [ 0, %idle ], [ %n1, %pause ], [ %n1, %offer ]
  %look = load atomic i64, ptr %pool acquire, align 8
  %new = icmp ne i64 %look, %seen
  br i1 %new, label %got, label %pause
pause:
  {pause}
  %n1 = add i64 %n, 1
  %long = icmp ugt i64 %n, {SPINS}
  br i1 %long, label %offer, label %spin
offer:
  %y = call i32 @sched_yield()
  %over = icmp ugt i64 %n, {IDLE_LOOKS}
  br i1 %over, label %park, label %spin
park:
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %p1 = atomicrmw add ptr %pp, i64 1 seq_cst
  br label %check
check:
  %again = load atomic i64, ptr %pool seq_cst, align 8
  %changed = icmp ne i64 %again, %seen
  br i1 %changed, label %unpark, label %sleep
sleep:
  %c = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %check
unpark:
  %p2 = atomicrmw sub ptr %pp, i64 1 seq_cst
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %got
got:
  %woken = phi i64 [ %look, %spin ], [ %again, %unpark ]
  %workers = and i64 %woken, 65535
  %stop = icmp eq i64 %workers, 0
  br i1 %stop, label %exit, label %member
member:
  %mine = icmp ult i64 %number, %workers
  br i1 %mine, label %take, label %skip
skip:
  br label %idle
take:
  %jp = getelementptr i64, ptr %pool, i64 {JOB}
  %frame = load ptr, ptr %jp
  %hp = getelementptr i64, ptr %pool, i64 {HOME}
  %home = load i64, ptr %hp
  %here = call i64 @processor()
  %same = icmp eq i64 %home, %here
  %cp = getelementptr i64, ptr %pool, i64 {PROCESSORS}
  %processors = load i64, ptr %cp
  %fits = icmp ule i64 %workers, %processors
  %moves = and i1 %same, %fits
  br i1 %moves, label %aside, label %enter
aside:
  call void @leave(i64 %home, ptr %set)
  br label %enter
enter:
  call void @walk(ptr %frame, i64 %number, i64 %workers, ptr %pool)
  call void @meet(ptr %pool, i64 %workers)
  br label %idle
exit:
  ret void
}}

define void @tilewright_run(ptr %frame) {{
  call void @relocate(ptr %frame)
  call void @launch(ptr %frame)
  ret void
}}

define internal double @now(ptr %spec) {{
  %r = call i32 @clock_gettime(i32 {clock}, ptr %spec)
  %np = getelementptr i64, ptr %spec, i64 1
  %s = load i64, ptr %spec
  %n = load i64, ptr %np
  %whole = mul i64 %s, 1000000000
  %all = add i64 %whole, %n
  %x = sitofp i64 %all to double
  ret double %x
}}

define void @tilewright_time(ptr %frame, i64 %repeats, i64 %inner, ptr %out) {{
entry:
  %spec = alloca [2 x i64]
  call void @relocate(ptr %frame)
  %scale = uitofp i64 %inner to double
  br label %sample
sample:
  %r = phi i64 [ 0, %entry ], [ %r1, %store ]
  %more = icmp ult i64 %r, %repeats
  br i1 %more, label %start, label %done
start:
  %t0 = call double @now(ptr %spec)
  br label %again
again:
  %i = phi i64 [ 0, %start ], [ %i1, %again ]
  call void @launch(ptr %frame)
  %i1 = add i64 %i, 1
  %rest = icmp ult i64 %i1, %inner
  br i1 %rest, label %again, label %store
store:
  %t1 = call double @now(ptr %spec)
  %span = fsub double %t1, %t0
  %each = fdiv double %span, %scale
  %seconds = fdiv double %each, 1.0e9
  %op = getelementptr double, ptr %out, i64 %r
  store double %seconds, ptr %op
  %r1 = add i64 %r, 1
  br label %sample
done:
  ret void
}}
"""


class Native:
    """The compiled functions.

    run        (frame), the interpreter lock released;  run_held: kept, for plans of microseconds
    time       (frame, repeats, runs per sample, double seconds[repeats])
    worker     (worker words): a worker's whole life
    """

    def __init__(self) -> None:
        if os.name != "posix":
            raise BackendError("runtime: cannot launch native code on this system "
                               f"({os.name}; POSIX threads and clocks are needed)")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        module = llvm.parse_assembly(self._text())
        machine = llvm.Target.from_default_triple().create_target_machine(opt=2, jit=True)
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        address = self._engine.get_function_address
        word, number = ctypes.c_void_p, ctypes.c_int64
        self.run = ctypes.CFUNCTYPE(None, word)(address("tilewright_run"))
        self.run_held = ctypes.PYFUNCTYPE(None, word)(address("tilewright_run"))
        self.time = ctypes.CFUNCTYPE(None, word, number, number, word)(address("tilewright_time"))
        self.worker = ctypes.CFUNCTYPE(None, word)(address("tilewright_worker"))

    @staticmethod
    def _text() -> str:
        declaration, pause = _PAUSE.get(platform.machine(), ("", ""))
        words = {name: value for name, value in globals().items() if isinstance(value, int)}
        return processors.text() + _TEXT.format(
            pause_declaration=declaration, pause=pause, clock=int(time.CLOCK_MONOTONIC), **words)


class _Process:
    """Builds the native functions when they are first needed, once per process."""

    def __init__(self) -> None:
        self._native: Native | None = None
        self._lock = threading.Lock()

    def get(self) -> Native:
        if self._native is None:
            with self._lock:
                if self._native is None:
                    self._native = Native()
        return self._native


native = _Process().get
