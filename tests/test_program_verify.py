"""The verifier accepts what lowering may emit and names what breaks a rule."""

from __future__ import annotations

import pytest

from tilewright.dtypes import float32, float64, int64
from tilewright.errors import VerifyError
from tilewright.program import Instr, Type
from tilewright.program.parser import parse_program
from tilewright.program.verify import verify

HEAD = """\
program p
input a f32
output o f32
scratch s f32 64 shared
v0 = const i64 0
v1 = const i64 4
v2 = const f32 1.0
v3 = const f32x8 2.0
v4 = const b1 true
v5 = const b1x8 true
v6 = lanes i64x8
"""


def check(body: str) -> None:
    verify(parse_program(HEAD + body), "lower")


@pytest.mark.parametrize("body", [
    "v7 = add f32 v2 v2\n", "v7 = min b1 v4 v4\n", "v7 = not b1x8 v5\n", "v7 = cast i8x8 v3\n",
    "v7 = bitcast i32x8 v3\n", "v7 = select f32x8 v5 v3 v3\n", "v7 = eq b1x8 v6 v6\n",
    "v7 = shuffle f32x2 v3 v3 (-1, 15)\n", "v7 = lane f32 v3 7\n", "v7 = splat f32x4 v2\n",
    "v7 = gather f32x8 a[v6] mask v5\n", "scatter o[v6] v3\n", "store o[v0] v2 mask v4\n",
    "v7 = thread i64\nv8 = threads i64\n", "prefetch a[v1 + 999]\n",
    "loop L0 block v7 = v0 .. v1\n  loop L1 block v8 = v0 .. v1\n    loop L2 thread v9 = v0 .. v1\n"
    "      loop L3 lane v10 = v0 .. v1\n        barrier\n",
    "loop L0 serial v7 = v0 .. v1 carry v8 = v2\n  v9 = add f32 v8 v8\n  yield v9\n"
    "v10 = result f32 L0 0\n",
])
def test_accepted(body):
    check(body)


@pytest.mark.parametrize("body, message", [
    ("v7 = add f32 v2 v3\n",
     r"lower: cannot leave `v7 = add f32 v2 v3` in program p \(its arguments are \(f32, f32x8\), "
     r"not \(f32, f32\)\)"),
    ("v7 = add f32 v2\n", "not .f32, f32"),
    ("v7 = add b1 v4 v4\n", "add is for numbers"),
    ("v7 = div i64 v0 v1\n", "div is for floats"),
    ("v7 = fma i64 v0 v1 v1\n", "fma is for floats"),
    ("v7 = idiv f32 v2 v2\n", "idiv is for integers"),
    ("v7 = and f32 v2 v2\n", "and is for integers or bool"),
    ("v7 = frobnicate f32 v2\n", "frobnicate is no operation"),
    ("v7 = lt f32 v2 v2\n", "it gives b1, not f32"),
    ("v7 = lt b1 v2 v0\n", "its arguments are .f32, i64"),
    ("v7 = lanes f32x8\n", "it gives i64x8, not f32x8"),
    ("v7 = splat f32x8 v0\n", "its arguments are .i64"),
    ("v7 = splat f32x8 v3\n", "its arguments are .f32x8"),
    ("v7 = lane f32 v3 8\n", "lane 8 of 8"),
    ("v7 = shuffle f32x2 v3 v3 (0, 16)\n", r"lanes \[16\] of 16"),
    ("v7 = shuffle f32x3 v3 v3 (0, 1)\n", "it gives f32x2, not f32x3"),
    ("v7 = select f32x8 v4 v3 v3\n", "not .b1x8, f32x8, f32x8"),
    ("v7 = cast i8 v3\n", "it casts 8 lanes"),
    ("v7 = bitcast i64x8 v3\n", "f32x8 is of another width"),
    ("v7 = load f32 a[v2]\n", "not .i64"),
    ("v7 = load f32x8 a[v6]\n", "not .i64"),
    ("v7 = load f64 a[v0]\n", "a holds float32, not float64"),
    ("v7 = load f32 z[v0]\n", "no buffer is named z"),
    ("v7 = load f32x8 a[v0] mask v4\n", "not .i64, b1x8"),
    ("v7 = load f32 a[v0] align 48\n", "48 is no alignment"),
    ("v7 = gather f32x8 a[v0]\n", "not .i64x8"),
    ("store a[v0] v2\n", "a is an input"),
    ("scatter a[v6] v3\n", "a is an input"),
    ("store o[v0] v0\n", "o holds float32, not int64"),
    ("v7 = store f32 o[v0] v2\n", "it defines no value"),
    ("add v2 v2\n", "it needs a type"),
    ("barrier\n", "a barrier stands in a block or thread loop"),
    ("if v0\n  prefetch a[v0]\n", "not .b1"),
    ("if v5\n  prefetch a[v0]\n", "not .b1"),
    ("loop L0 serial v7 = v0 .. v2\n", "its bounds are i64 and f32"),
    ("loop L0 spiral v7 = v0 .. v1\n", "spiral is no kind of loop"),
    ("loop L0 serial v7 = v0 .. v1 carry v8 = v2\n", "1 starts, 1 carries and 0 yields"),
    ("loop L0 serial v7 = v0 .. v1 carry v8 = v2\n  yield v3\n",
     "it yields f32x8 into slot 0, which starts as f32"),
    ("loop L0 block v7 = v0 .. v1 carry v8 = v2\n  yield v2\n", "a block loop carries no values"),
    ("loop L0 serial v7 = v0 .. v1\n  loop L1 parallel v8 = v0 .. v1\n",
     "a parallel loop stands at the top"),
    ("loop L0 parallel v7 = v0 .. v1\n", "parallel is False, but it holds a parallel loop"),
    ("loop L0 serial v7 = v0 .. v1\n  loop L1 block v8 = v0 .. v1\n",
     "only block loops stand around a block loop"),
    ("loop L0 lane v7 = v0 .. v1\n  loop L1 thread v8 = v0 .. v1\n",
     "a thread loop stands in a lane loop"),
    ("loop L0 serial v7 = v0 .. v1\n  v8 = neg f32 v2\nv9 = neg f32 v8\n",
     "`v9 = neg f32 v8`.*its argument v8 is not defined before it in an open block"),
    ("loop L0 serial v7 = v0 .. v1\nv8 = neg i64 v7\n", "its argument v7 is not defined"),
    ("loop L0 serial v7 = v0 .. v1\n  v8 = scaled i64 v7 3\nv9 = neg i64 v8\n",
     "its argument v8 is not defined"),
    ("loop L0 serial v7 = v0 .. v1\nv8 = result f32 L0 0\n", "slot 0 of a loop that carries 0"),
    ("loop L0 serial v7 = v0 .. v1 carry v8 = v2\n  yield v8\nv9 = result i64 L0 0\n",
     "it gives f32, not i64"),
    ("loop L0 serial v7 = v0 .. v1 carry v8 = v2\n  v9 = result f32 L0 0\n  yield v8\n",
     "its argument L0 is not defined"),
])
def test_refused(body, message):
    with pytest.raises(VerifyError, match=message):
        check(body)


F16 = "program p\ninput a f16\ninput b f16\noutput o f32\nv0 = const i64 0\nv1 = const i64 16\n"
A = "v2 = frag_load f16x256 <a 16x16x16 f16 row> a[v0] v1\n"
B = "v3 = frag_load f16x256 <b 16x16x16 f16 col> b[v0] v1\n"
C = "v4 = frag_zero f32x256 <acc 16x16x16 f32 row>\n"
MMA = "v5 = frag_mma f32x256 <acc 16x16x16 f32 row> "


@pytest.mark.parametrize("body, message", [
    (A + B + C + MMA + "v3 v2 v4\n", r"v3 is no fragment a of \(16, 16, 16\)"),
    (A + C + "v5 = add f32x256 v4 v4\n", "only a fragment op takes a fragment"),
    ("v2 = frag_zero f32x128 <acc 16x16x16 f32 row>\n", "it gives f32x256, not f32x128"),
    ("v2 = frag_zero f32x256 <c 16x16x16 f32 row>\n", "its data is no fragment"),
    ("v2 = frag_load f32x256 <a 16x16x16 f32 row> a[v0] v1\n", "a holds float16, not float32"),
    (C + "frag_store <acc 16x16x16 f32 row> a[v0] v1 v4\n", "a holds float16"),
    ("loop L0 lane v2 = v0 .. v1\n  v3 = frag_zero f32x256 <acc 16x16x16 f32 row>\n",
     "a fragment op stands outside of lane loops"),
    ("v2 = frag_load f16x256 <a 16x16x16 f16 row> a[v0] v1\n"
     "v3 = frag_load f16x256 <b 16x16x16 f16 row> a[v0] v1\n"
     "v4 = frag_zero i32x256 <acc 16x16x16 i32 row>\n"
     "v5 = frag_mma i32x256 <acc 16x16x16 i32 row> v2 v3 v4\n",
     "it cannot add float16 times float16 to int32"),
])
def test_fragments_refused(body, message):
    with pytest.raises(VerifyError, match=message):
        verify(parse_program(F16 + body), "lower")


def test_a_carried_fragment_stays_one():
    verify(parse_program(F16 + A + B + C + """\
loop L0 serial v6 = v0 .. v1 carry v7 = v4
  v8 = frag_mma f32x256 <acc 16x16x16 f32 row> v2 v3 v7
  yield v8
v9 = result f32x256 L0 0
frag_store <acc 16x16x16 f32 row> o[v0] v1 v9
"""), "lower")


@pytest.mark.parametrize("text, message", [
    ("program p\ninput a f32\noutput a f32\n", "its head in program p .two buffers are named a"),
    ("program p\nscratch a f32 4 local\n", "scratch a is in space local"),
    ("program p\nscratch a f32 -4 private\n", "scratch a has -4 elements"),
    ("program p parallel\n", "parallel is True, but it holds no parallel loop"),
])
def test_heads_refused(text, message):
    with pytest.raises(VerifyError, match=message):
        verify(parse_program(text), "lower")


def test_what_no_text_can_say_is_refused():
    program = parse_program("program p\nv0 = const i64 0\n")
    first = program.body[0]
    program.body.append(first)
    with pytest.raises(VerifyError, match="it stands in the program twice"):
        verify(program, "x")
    program.body[1] = Instr("neg", Type(int64), (first,), None, 3)
    with pytest.raises(VerifyError, match="its level is 3, it stands at 0"):
        verify(program, "x")
    program.body[1] = Instr("const", Type(float64), (), b"1234", 0)
    with pytest.raises(VerifyError, match="its data is the 8 bytes of one element"):
        verify(program, "x")
    program.body[1] = Instr("neg", Type(float32), (Instr("const", Type(float32)),), None, 0)
    with pytest.raises(VerifyError, match="its argument .const is not defined"):
        verify(program, "x")
