"""Programs as text: printing, parsing, and both together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import dtypes
from tilewright.dtypes import bool_, float16, float32, int64
from tilewright.program import Builder, If, Loop, MemRef, Param, Program, Scratch, Type
from tilewright.program.ir import Fragment
from tilewright.program.parser import ParseError, parse_program
from tilewright.program.printer import parse_constant, print_constant, print_program
from tilewright.program.verify import verify

SUM = """\
program k0 parallel
input a0 f32
output o0 f32
scratch s0 bf16 128 private
v0 = const i64 0
v1 = const i64 8
v2 = const f32x16 0.1
v3 = const i64 4
v4 = const b1 true
v5 = lanes i64x16
loop L0 parallel v6 = v0 .. v1
  v7 = scaled i64 v6 64
  loop L1 serial v8 = v0 .. v3 carry v9 = v2, v10 = v0
    v11 = load f32x16 a0[v7 + 4] align 4
    v12 = fma f32x16 v11 v11 v9
    v13 = add i64 v10 v8
    yield v12, v13
  v14 = result f32x16 L1 0
  v15 = splat i64x16 v6
  v16 = lt b1x16 v5 v15
  v17 = shuffle f32x16 v14 v14 (8, 9, 10, 11, 12, 13, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1)
  v18 = lane f32 v17 3
  if v4
    store o0[v7] v14 mask v16 align 4 stream
    scatter o0[v15 + -1] v14 mask v16
    prefetch a0[v7 + 512]
"""

FRAGMENTS = """\
program mma
input a f16
input b f16
output o f32
scratch tile f16 256 shared
v0 = const i64 0
v1 = const i64 2
v2 = const i64 16
loop L0 block v3 = v0 .. v1
  loop L1 thread v4 = v0 .. v1
    v5 = frag_zero f32x256 <acc 16x16x16 f32 row>
    v6 = frag_load f16x256 <a 16x16x16 f16 row> a[v0] v2
    v7 = frag_load f16x256 <b 16x16x16 f16 col> b[v0 + 0] v2
    barrier
    v8 = frag_mma f32x256 <acc 16x16x16 f32 row> v6 v7 v5
    frag_store <acc 16x16x16 f32 row> o[v0 + 256] v2 v8 align 64
""".replace("b[v0 + 0]", "b[v0]")


@pytest.mark.parametrize("text", [SUM, FRAGMENTS, "program empty\n"])
def test_text_is_read_and_printed_back(text):
    program = parse_program(text)
    verify(program, "test")
    assert str(program) == text


def test_printing_numbers_what_a_builder_emits():
    b = Builder("k", [Param("x", "input", int64), Param("y", "output", int64)])
    b.add_scratch(Scratch("s", bool_, 3, "global"))
    with b.loop(0, 5, [b.as_index(7)]) as loop:
        off = b.scaled(loop, 3)
        loop.yields = [b.op("add", loop.carries[0], b.load(Type(int64), off, MemRef("x", 2)))]
    b.store(b.as_index(0), b.result(loop, 0), MemRef("y"))
    text = print_program(b.program)
    assert text == """\
program k
input x i64
output y i64
scratch s b1 3 global
v0 = const i64 7
v1 = const i64 0
v2 = const i64 5
loop L0 serial v3 = v1 .. v2 carry v4 = v0
  v5 = scaled i64 v3 3
  v6 = load i64 x[v5 + 2]
  v7 = add i64 v4 v6
  yield v7
v8 = result i64 L0 0
store y[v1] v8
"""
    again = parse_program(text)
    assert again.count == b.program.count
    verify(again, "parse")


def test_a_value_from_nowhere_prints_as_its_operation():
    program, other = parse_program("program p\n"), parse_program("program q\nv0 = const i64 1\n")
    program.body.append(Loop("serial", other.body[0], other.body[0], (), 0))
    assert "v0 = ?const .. ?const" in str(program)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@given(data=st.data())
def test_constants_keep_their_bits(dtype, data):
    size = dtype.itemsize
    special = st.sampled_from([b"\0" * size, b"\xff" * size, b"\0" * (size - 1) + b"\x80",
                               b"\1" + b"\0" * (size - 1)])
    bits = data.draw(st.sampled_from([b"\0", b"\1"]) if dtype.is_bool
                     else st.binary(min_size=size, max_size=size) | special)
    assert parse_constant(print_constant(bits, dtype), dtype) == bits


@pytest.mark.parametrize("value, dtype, text", [
    (0.1, float32, "0.1"), (-0.0, float32, "-0.0"), (np.inf, float16, "inf"),
    (np.nan, float32, "nan"), (1e30, float32, "1e+30"), (True, bool_, "true"),
    (-9, int64, "-9"), (65504, float16, "6.55e+04"),
])
def test_constants_are_readable(value, dtype, text):
    assert print_constant(np.asarray(value).astype(dtype.numpy).tobytes(), dtype) == text


@pytest.mark.parametrize("text, message", [
    ("", "without a line `program name`"),
    ("input a f32\n", "without a line `program name`"),
    ("program p\nv0 = const i65 1\n", r"cannot read line 2, 'v0 = const i65 1' .*i65 is no type"),
    ("program p\nconst i64 1\n", "line 2.*a const reads"),
    ("program p\nv0 = neg i64 v1\n", "line 2.*KeyError: 'v1'"),
    ("program p\n  v0 = const i64 1\n", "line 2.*indentation"),
    ("program p\nv0 = const i64 1\nyield v0\n", "line 3.*a yield stands in a loop"),
    ("program p\nv0 = const i64 1\nloop L0 serial v1 = v0 v0 carry v2\n", "line 3"),
    ("program p\nv0 = const i8 300\n", "line 2"),
    ("program p\nv0 = const b1 1\n", "line 2"),
    ("program p\nv0 = const i64 1\nv1 = scaled i64 v0 2\n", "v0 is no loop's index"),
])
def test_a_text_outside_the_grammar_is_refused(text, message):
    with pytest.raises(ParseError, match=message):
        parse_program(text)


def test_a_fragment_knows_its_rows_and_columns():
    shape = (16, 8, 4)
    assert [Fragment(r, shape, float16).extents for r in ("a", "b", "acc")] == [
        (16, 4), (4, 8), (16, 8)]


def test_an_if_and_a_loop_keep_their_levels():
    program: Program = parse_program(SUM)
    levels = []
    blocks = [(program.body, 0)]
    while blocks:
        block, depth = blocks.pop()
        for instr in block:
            levels.append(instr.level == depth)
            if isinstance(instr, Loop | If):
                blocks.append((instr.body, depth + 1))
    assert all(levels) and len(levels) == program.count
