"""Candidates that misbehave, as LLVM IR with the entry table of a kernel of three buffers."""

from __future__ import annotations

_HEAD = """@tilewright_entries = constant { i64, [1 x ptr] } { i64 1, [1 x ptr] [ptr @kernel] }
declare ptr @malloc(i64)
declare ptr @memset(ptr, i32, i64)
declare i32 @usleep(i32)
"""
_ENTRY = "define void @kernel(ptr %buffers, ptr %extents, i64 %worker, i64 %workers) {\nentry:\n"
_INNER = "call void @inner(ptr %buffers, ptr %extents, i64 %worker, i64 %workers)"
_OUTPUT = """%place = getelementptr ptr, ptr %buffers, i64 2
%out = load ptr, ptr %place
"""


def module(body: str) -> str:
    return f"{_HEAD}{_ENTRY}{body}\n}}\n"


HANGS = module("br label %again\nagain:\ncall void asm sideeffect \"\", \"\"()\nbr label %again")
CRASHES = module("store volatile i32 1, ptr null\nret void")
TRAPS = module("call void @llvm.trap()\nret void").replace(
    "declare ptr @malloc", "declare void @llvm.trap()\ndeclare ptr @malloc", 1)
DIVIDES = module("%cell = alloca i64\nstore volatile i64 0, ptr %cell\n"
                 "%zero = load volatile i64, ptr %cell\n%x = sdiv i64 %workers, %zero\n"
                 "store volatile i64 %x, ptr %buffers\nret void")
NOTHING = module("ret void")
EATS_MEMORY = module("""br label %again
again:
%block = call ptr @malloc(i64 16777216)
%filled = call ptr @memset(ptr %block, i32 1, i64 16777216)
br label %again""")
NEVER_COMPILES = module('call void asm sideeffect "no such instruction", ""()\nret void')
NO_SOURCE = "this is no IR"


def zeros(nbytes: int) -> str:
    """Return code that fills the output with zeros at once."""
    return module(f"{_OUTPUT}%done = call ptr @memset(ptr %out, i32 0, i64 {nbytes})\nret void")


def overruns(source: str, nbytes: int) -> str:
    """Return right code that also writes beyond the output's end."""
    return wrapped(source, f"""{_OUTPUT}%beyond = getelementptr i8, ptr %out, i64 {nbytes}
store i8 0, ptr %beyond
{_INNER}
ret void""")


def writes_input(source: str) -> str:
    """Return right code that then changes its first input."""
    return wrapped(source, f"""{_INNER}
%input = load ptr, ptr %buffers
store i32 7, ptr %input
ret void""")


def slower(source: str, microseconds: int) -> str:
    """Return right code that sleeps first."""
    return wrapped(source, f"""%slept = call i32 @usleep(i32 {microseconds})
{_INNER}
ret void""")


def crashes_after(source: str, runs: int) -> str:
    """Return right code, 100 us or more a run, that crashes after some runs."""
    return wrapped(source, f"""%slept = call i32 @usleep(i32 100)
%old = load i64, ptr @runs
%new = add i64 %old, 1
store i64 %new, ptr @runs
%late = icmp sgt i64 %new, {runs}
br i1 %late, label %crash, label %run
crash:
store volatile i32 1, ptr null
br label %run
run:
{_INNER}
ret void""") + "@runs = global i64 0\n"


def wrapped(source: str, body: str) -> str:
    """Return a kernel's source under another entry, which may call the true one as @inner."""
    inner = source.partition("\n")[2].replace('@"kernel"(', "@inner(")
    return module(body) + inner


def long_chain(instructions: int) -> str:
    """Return code whose compiling takes seconds and memory."""
    lines = [f"%a{i + 1} = mul i64 %a{i}, %a{max(i - 7, 0)}" for i in range(instructions)]
    return module("%a0 = add i64 %worker, 3\n" + "\n".join(lines) +
                  f"\nstore volatile i64 %a{instructions}, ptr %buffers\nret void")
