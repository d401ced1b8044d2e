"""Which processors a thread runs on, as LLVM IR for the native part of the runtime.

    processor()           the number of the one that this thread is on; -1 where it is not known
    processors(set)       fill in a set of 1024 bits: those that this thread may run on
    leave(number, set)    let this thread run on the set without one of them

Elsewhere than on Linux nothing is known and nothing done.
"""

from __future__ import annotations

import sys

_LINUX = """
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal i64 @processor() {
  %cpu = call i32 @sched_getcpu()
  %number = sext i32 %cpu to i64
  ret i64 %number
}

define internal void @processors(ptr %set) {
  call void @llvm.memset.p0.i64(ptr %set, i8 0, i64 128, i1 false)
  %g = call i32 @sched_getaffinity(i32 0, i64 128, ptr %set)
  ret void
}

define internal void @leave(i64 %home, ptr %set) {
entry:
  %rest = alloca [128 x i8]
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %set, i64 128, i1 false)
  %known = icmp ult i64 %home, 1024
  br i1 %known, label %move, label %done
move:
  %n = lshr i64 %home, 6
  %shift = and i64 %home, 63
  %bit = shl i64 1, %shift
  %others = xor i64 %bit, -1
  %wp = getelementptr i64, ptr %rest, i64 %n
  %word = load i64, ptr %wp
  %without = and i64 %word, %others
  store i64 %without, ptr %wp
  %s = call i32 @sched_setaffinity(i32 0, i64 128, ptr %rest)
  br label %done
done:
  ret void
}
"""

_ELSEWHERE = """
define internal i64 @processor() {
  ret i64 -1
}

define internal void @processors(ptr %set) {
  ret void
}

define internal void @leave(i64 %home, ptr %set) {
  ret void
}
"""


def text() -> str:
    """Return the three functions."""
    return _LINUX if sys.platform == "linux" else _ELSEWHERE
