"""Programs of a GPU's kind in the interpreter: blocks, threads, barriers, fragments."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.backends.interpreter import execute
from tilewright.errors import VerifyError
from tilewright.program import Binding
from tilewright.program.parser import parse_program
from tilewright.program.verify import verify


def run(text, *arrays, check_races=True):
    program = parse_program(text)
    verify(program, "test")
    execute([program], Binding(program.params, 0, 1 << 12), list(arrays), check_races=check_races)
    return arrays[-1]


# Each of 3 blocks sums 16 elements as a tree in shared memory.
TREE = """\
program tree
input a f32
output o f32
scratch s f32 16 shared
v0 = const i64 0
v1 = const i64 1
v2 = const i64 3
v3 = const i64 4
v4 = const i64 16
v5 = const i64 8
loop L0 block v6 = v0 .. v2
  v7 = scaled i64 v6 16
  loop L1 thread v8 = v0 .. v4
    v9 = add i64 v7 v8
    v10 = load f32 a[v9]
    store s[v8] v10
    barrier
    loop L2 serial v11 = v0 .. v3 carry v12 = v5
      v13 = lt b1 v8 v12
      if v13
        v14 = add i64 v8 v12
        v15 = load f32 s[v8]
        v16 = load f32 s[v14]
        v17 = add f32 v15 v16
        store s[v8] v17
      barrier
      v18 = shr i64 v12 v1
      yield v18
    v19 = eq b1 v8 v0
    if v19
      v20 = load f32 s[v0]
      store o[v6] v20
"""


def test_a_tree_reduction_in_shared_memory():
    a = np.arange(48, dtype=np.float32)
    o = run(TREE, a, np.zeros(3, np.float32))
    assert o.tolist() == a.reshape(3, 16).sum(1).tolist()


def test_a_missing_barrier_is_a_race_between_threads():
    text = TREE.replace("      barrier\n      v18", "      v18")
    with pytest.raises(VerifyError, match=r"a race: element \d+ of s is also read by several "
                                          "threads, with no barrier between"):
        run(text, np.ones(48, np.float32), np.zeros(3, np.float32))


def test_blocks_never_meet():
    text = TREE.replace("store o[v6] v20", "store o[v0] v20")
    with pytest.raises(VerifyError, match="element 0 of o is also written by block 0"):
        run(text, np.ones(48, np.float32), np.zeros(3, np.float32))


def test_shared_memory_is_undefined_in_every_block():
    o = run("""\
program p
output o f32
scratch s f32 1 shared
v0 = const i64 0
v1 = const i64 2
v2 = const f32 3.0
loop L0 block v3 = v0 .. v1
  loop L1 block v4 = v0 .. v1
    v5 = scaled i64 v3 2
    v6 = add i64 v5 v4
    v7 = load f32 s[v0]
    store o[v6] v7
    store s[v0] v2
""".replace("    v5 = scaled i64 v3 2\n", "    v5 = add i64 v3 v3\n"), np.zeros(4, np.float32))
    assert np.isnan(o).all()


def test_a_barrier_that_some_threads_pass_by_is_named():
    text = TREE.replace("      if v13\n        v14", "      if v13\n        barrier\n        v14")
    with pytest.raises(VerifyError, match="`barrier` .not all threads of the block reach this"):
        run(text, np.ones(48, np.float32), np.zeros(3, np.float32))


# 2 x 4 threads of 8 lanes, each with private memory that lasts across sibling loops.
SIBLINGS = """\
program siblings
output o i64
scratch p i64 1 private
scratch s i64 64 shared
v0 = const i64 0
v1 = const i64 2
v2 = const i64 4
v3 = const i64 8
v4 = const i64 63
loop L0 block v5 = v0 .. v1
  loop L1 thread v6 = v0 .. v1
    v7 = scaled i64 v6 32
    loop L2 thread v8 = v0 .. v2
      v9 = scaled i64 v8 8
      loop L3 lane v10 = v0 .. v3
        v11 = add i64 v7 v9
        v12 = add i64 v11 v10
        store p[v0] v12
        store s[v12] v12
        barrier
        v13 = sub i64 v4 v12
        v14 = load i64 s[v13]
        store p[v0] v14
  loop L4 thread v15 = v0 .. v1
    v16 = scaled i64 v15 32
    loop L5 thread v17 = v0 .. v2
      v18 = scaled i64 v17 8
      loop L6 lane v19 = v0 .. v3
        v20 = add i64 v16 v18
        v21 = add i64 v20 v19
        v22 = mul i64 v5 v4
        v23 = add i64 v22 v5
        v24 = add i64 v23 v21
        v25 = load i64 p[v0]
        store o[v24] v25
"""


def test_threads_keep_their_private_memory():
    o = run(SIBLINGS, np.zeros(128, np.int64))
    assert o.tolist() == list(range(63, -1, -1)) * 2


def test_the_end_of_a_thread_loop_is_no_barrier():
    text = SIBLINGS.replace("v25 = load i64 p[v0]", "v25 = load i64 s[v0]")
    text = text.replace("        v14 = load i64 s[v13]\n", "        v14 = add i64 v13 v0\n"
                        "        store s[v12] v14\n")
    with pytest.raises(VerifyError, match="element 0 of s is also written by thread"):
        run(text, np.zeros(128, np.int64))
    run(text.replace("  loop L4", "  barrier\n  loop L4"), np.zeros(128, np.int64))


# Each of 2 warps multiplies 16x16 by a transposed 16x16 twice over k, through shared memory.
FRAGMENTS = """\
program mma
input a f16
input b f16
output o f32
scratch s f16 512 shared
v0 = const i64 0
v1 = const i64 2
v2 = const i64 16
v3 = const i64 256
v4 = const i64 32
loop L0 block v5 = v0 .. v1
  loop L1 thread v6 = v0 .. v1
    v7 = scaled i64 v6 512
    v8 = scaled i64 v6 256
    v9 = frag_zero f32x256 <acc 16x16x16 f32 row>
    loop L2 serial v10 = v0 .. v1 carry v11 = v9
      v12 = scaled i64 v10 16
      loop L3 lane v13 = v0 .. v3
        v14 = add i64 v8 v13
        v15 = idiv i64 v13 v2
        v16 = irem i64 v13 v2
        v17 = mul i64 v15 v4
        v18 = add i64 v17 v16
        v19 = add i64 v18 v12
        v20 = add i64 v19 v7
        v21 = load f16 a[v20]
        store s[v14] v21
      barrier
      v22 = frag_load f16x256 <a 16x16x16 f16 row> s[v8] v2
      v23 = frag_load f16x256 <b 16x16x16 f16 col> b[v12] v4
      v24 = frag_mma f32x256 <acc 16x16x16 f32 row> v22 v23 v11
      barrier
      yield v24
    v25 = result f32x256 L2 0
    v26 = eq b1 v5 v0
    if v26
      frag_store <acc 16x16x16 f32 row> o[v8] v2 v25
"""


def test_a_matrix_product_of_fragments(rng):
    a = rng.integers(-8, 8, (32, 32)).astype(np.float16)
    b = rng.integers(-8, 8, (16, 32)).astype(np.float16)
    o = run(FRAGMENTS, a.ravel(), b.ravel(), np.zeros(512, np.float32))
    assert np.array_equal(o.reshape(32, 16), a.astype(np.float32) @ b.astype(np.float32).T)


def test_a_fragment_reads_before_the_barrier(rng):
    text = FRAGMENTS.replace("      barrier\n      v22", "      v22")
    with pytest.raises(VerifyError, match=r"`v22 = frag_load.*a race: element 0 of s is also "
                                          r"written by thread \(0, 0\)"):
        run(text, np.zeros(1024, np.float16), np.zeros(512, np.float16), np.zeros(512, np.float32))


def test_integer_fragments_wrap():
    o = run("""\
program mma
input a i8
output o i32
v0 = const i64 0
v1 = const i64 4
v2 = frag_load i8x16 <a 4x4x4 i8 row> a[v0] v1
v3 = frag_load i8x16 <b 4x4x4 i8 row> a[v0] v1
v4 = frag_load i32x16 <acc 4x4x4 i32 row> o[v0] v1
v5 = frag_mma i32x16 <acc 4x4x4 i32 row> v2 v3 v4
frag_store <acc 4x4x4 i32 col> o[v0] v1 v5
""", np.full(16, -128, np.int8), np.full(16, 2**31 - 1, np.int32), check_races=False)
    assert o.tolist() == [-2**31 + 4 * 128 * 128 - 1] * 16
