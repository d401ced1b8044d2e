"""The interpreter: every operation against its plain meaning, and faults found."""

from __future__ import annotations

import math
import operator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import dtypes
from tilewright.backends.interpreter import Executable, Interpreter, execute
from tilewright.dtypes import (
    BY_NAME,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int32,
    uint8,
)
from tilewright.errors import BackendError, IndexOutOfBounds, VerifyError
from tilewright.program import Binding, Builder, MemRef, Param, Scratch, Type
from tilewright.program.parser import parse_program
from tilewright.program.verify import verify

FLOATS = (float16, bfloat16, float32, float64)
INTEGERS = tuple(d for d in dtypes.ALL if d.is_integer)
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, 1e-7, 300.0, math.inf, -math.inf, math.nan]


def run(program, *arrays, workers=1, check_races=False, global_bytes=1 << 12):
    if isinstance(program, str):
        program = parse_program(program)
    verify(program, "test")
    binding = Binding(program.params, global_bytes, 1 << 12)
    execute([program], binding, list(arrays), workers, check_races)
    return arrays[-1]


def apply(op, arrays, result, lanes):
    """Run one operation over arrays of `lanes` elements: as a vector, or element by element."""
    names = [f"x{i}" for i in range(len(arrays))]
    params = [Param(n, "input", dtypes.as_dtype(a.dtype)) for n, a in zip(names, arrays)]
    b = Builder("apply", [*params, Param("o", "output", result)])
    for i in range(0, arrays[0].size, lanes):
        at = b.as_index(i)
        args = [b.load(Type(p.dtype, lanes), at, MemRef(p.name)) for p in params]
        b.store(at, b.emit(op, Type(result, lanes), *args), MemRef("o"))
    return run(b.program, *arrays, np.zeros(arrays[0].size, result.numpy))


def samples(dtype, rng, size=12):
    if dtype.is_bool:
        return rng.integers(0, 2, size).astype(bool)
    if dtype.is_float:
        return np.resize(np.asarray(EDGES + list(rng.normal(size=size))), size).astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    out = rng.integers(info.min, info.max, size, dtype.numpy, endpoint=True)
    out[:2] = info.min, info.max
    return out


def wrap(value, dtype):
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind == "i" and value >> (dtype.bits - 1) else value


def same(got, want):
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.astype(np.float64) if got.dtype.kind not in "biuf" else got,
                                  want.astype(np.float64) if got.dtype.kind not in "biuf" else want)


@pytest.mark.parametrize("lanes", [1, 4, 12])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap(dtype, lanes, rng):
    x, y = samples(dtype, rng), samples(dtype, rng)[::-1].copy()
    pairs = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_,
             "or": operator.or_, "xor": operator.xor, "min": min, "max": max}
    for op, meaning in pairs.items():
        want = [wrap(meaning(int(a), int(b)), dtype) for a, b in zip(x, y)]
        assert apply(op, [x, y], dtype, lanes).tolist() == want, op
    for op, meaning in {"neg": operator.neg, "not": operator.invert, "abs": abs}.items():
        assert apply(op, [x], dtype, lanes).tolist() == [wrap(meaning(int(a)), dtype) for a in x]
    for op, meaning in {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
                        "le": operator.le}.items():
        assert apply(op, [x, y], bool_, lanes).tolist() == [
            meaning(int(a), int(b)) for a, b in zip(x, y)]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_and_division(dtype, rng):
    x = samples(dtype, rng)
    amount = rng.integers(0, dtype.bits, x.size).astype(dtype.numpy)
    want = [wrap(int(a) << int(s), dtype) for a, s in zip(x, amount)]
    assert apply("shl", [x, amount], dtype, 4).tolist() == want
    assert apply("shr", [x, amount], dtype, 4).tolist() == [
        int(a) >> int(s) for a, s in zip(x, amount)]
    y = samples(dtype, rng)[::-1].copy()
    y[y == 0] = 3
    y[(y == -1) if dtype.kind == "i" else (y == 0)] = 7
    want = [math.trunc(Fraction(int(a), int(b))) for a, b in zip(x, y)]
    assert apply("idiv", [x, y], dtype, 4).tolist() == want
    assert apply("irem", [x, y], dtype, 4).tolist() == [
        int(a) - q * int(b) for a, b, q in zip(x, y, want)]


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats(dtype, lanes, rng):
    x, y = samples(dtype, rng, 24), samples(dtype, rng, 24)
    y = rng.permutation(y)
    with np.errstate(all="ignore"):
        for op, f in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
                      "min": np.minimum, "max": np.maximum}.items():
            same(apply(op, [x, y], dtype, lanes), f(x, y))
        for op, f in {"neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor,
                      "ceil": np.ceil, "trunc": np.trunc, "round": np.rint}.items():
            same(apply(op, [x], dtype, lanes), f(x))
        for op, f in {"eq": np.equal, "ne": np.not_equal, "lt": np.less,
                      "le": np.less_equal}.items():
            same(apply(op, [x, y], bool_, lanes), f(x, y))
    assert np.isnan(apply("min", [x, y], dtype, lanes)[np.isnan(x) | np.isnan(y)]).all()


@pytest.mark.parametrize("source", dtypes.ALL, ids=str)
@pytest.mark.parametrize("lanes", [1, 4])
def test_casts(source, lanes, rng):
    x = samples(source, rng)
    small = np.asarray([0, 1, 2, 3] * 3).astype(source.numpy)
    for target in dtypes.ALL:
        value = small if source.is_float and target.is_integer else x
        with np.errstate(all="ignore"):
            want = value != 0 if target.is_bool else value.astype(target.numpy)
        same(apply("cast", [value], target, lanes), want)
        if source.bits == target.bits and not source.is_bool:
            got = apply("bitcast", [x], target, lanes)
            assert got.tobytes() == x.tobytes()


@pytest.mark.parametrize("lanes", [1, 4])
def test_bool_and_select(lanes, rng):
    x, y = samples(bool_, rng), samples(bool_, rng)
    for op, f in {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
                  "eq": np.equal, "ne": np.not_equal}.items():
        same(apply(op, [x, y], bool_, lanes), f(x, y))
    same(apply("not", [x], bool_, lanes), ~x)
    p, q = samples(float32, rng), samples(float32, rng)[::-1].copy()
    same(apply("select", [x, p, q], float32, lanes), np.where(x, p, q))


# -- fma ---------------------------------------------------------------------------------------

def rounded(exact, dtype):
    """Round a nonzero Fraction to nearest, ties to even, as integer arithmetic."""
    digits, least = {"float16": (11, -24), "bfloat16": (8, -133), "float32": (24, -149),
                     "float64": (53, -1074)}[dtype.name]
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    step = Fraction(2) ** max(exponent - digits + 1, least)
    value = round(size / step) * step  # Fraction rounds halves to even
    top = {"float16": 16, "float64": 1024}.get(dtype.name, 128)
    size = math.inf if value >= Fraction(2) ** top else float(value)
    return math.copysign(size, exact)


@st.composite
def floats_of(draw, dtype):
    return draw(st.integers(0, 2 ** dtype.bits - 1).map(
        lambda i: np.frombuffer(i.to_bytes(dtype.itemsize, "little"), dtype.numpy)[0])
        | st.sampled_from([0.0, -0.0, 1.0, -1.5, 3.0, 1e-3]).map(dtype.numpy.type))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@given(data=st.data())
def test_fma_rounds_once(dtype, data):
    a, b, c = (data.draw(floats_of(dtype)) for _ in "abc")
    if data.draw(st.booleans()):  # near cancellation, and close to a tie
        with np.errstate(all="ignore"):
            c = dtype.numpy.type(-(a * b)) * dtype.numpy.type(data.draw(st.sampled_from(
                [1, 1, 0.5, 2.0 ** (dtype.bits // 2)])))
    arrays = [np.repeat(np.asarray(x, dtype.numpy), 4) for x in (a, b, c)]
    vector, scalar = (apply("fma", arrays, dtype, lanes) for lanes in (4, 1))
    assert vector.tobytes() == scalar.tobytes() or np.isnan(vector.astype(float)).all()
    got = float(vector[0])
    a, b, c = float(a), float(b), float(c)
    if not all(map(math.isfinite, (a, b, c))):
        want = a * b + c if not (math.isfinite(a) and math.isfinite(b)) else c
    else:
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        zero = a * b + c if 0 in (a, b) else 0.0
        want = rounded(exact, dtype) if exact else zero
    assert math.isnan(got) == math.isnan(want)
    assert math.isnan(want) or (got == want
                                and math.copysign(1, got) == math.copysign(1, want))


def test_fma_is_not_two_roundings():
    x = np.asarray([1 + 2.0**-23], np.float32)
    got = apply("fma", [x, x, -np.asarray([1 + 2.0**-22], np.float32)], float32, 1)
    assert got[0] == np.float32(2.0**-46)


@pytest.mark.parametrize("a, b, c, want", [
    (1e300, 1e300, 0.0, math.inf), (-1e300, 1e300, 1.0, -math.inf), (1e300, 1e300, -math.inf,
                                                                      -math.inf),
    (2.0**1023, 2.0, -2.0**1023, 2.0**1023), (5e-324, -0.25, 0.0, -0.0),
    (2.0**-600, 2.0**-474, 5e-324, 2 * 5e-324),
])
def test_fma_of_float64_at_the_ends_of_its_range(a, b, c, want):
    got = apply("fma", [np.asarray([x]) for x in (a, b, c)], float64, 1)[0]
    assert got == want and math.copysign(1, got) == math.copysign(1, want)


# -- vectors and memory ------------------------------------------------------------------------

def test_lanes_splat_lane_shuffle():
    o = run("""\
program p
output o i64
v0 = const i64 0
v1 = const i64 9
v2 = lanes i64x4
v3 = splat i64x4 v1
v4 = shuffle i64x5 v2 v3 (7, 0, 3, 2, 4)
store o[v0] v4
v5 = lane i64 v2 2
store o[v0 + 5] v5
v6 = shuffle i64x2 v5 v1 (1, 0)
store o[v0 + 6] v6
v7 = shuffle i64x2 v2 v2 (-1, 1)
v8 = lane i64 v7 1
store o[v0 + 8] v8
""", np.zeros(9, np.int64))
    assert o.tolist() == [9, 0, 3, 2, 9, 2, 9, 2, 1]


def test_masked_off_lanes_touch_nothing_and_give_zero():
    o = run("""\
program p
input a f32
input m b1
output o f32
v0 = const i64 0
v1 = load b1x4 m[v0]
v2 = load f32x4 a[v0 + 1] mask v1
store o[v0] v2
store o[v0 + 4] v2 mask v1
v3 = const b1 false
v4 = load f32 a[v0 + 99] mask v3
store o[v0 + 7] v4
store o[v0 + 99] v4 mask v3
""", np.asarray([1, 2, 3], np.float32), np.asarray([True, True, False, False]),
            np.full(8, 5, np.float32))
    assert o.tolist() == [2, 3, 0, 0, 2, 3, 5, 0]


def test_gather_and_scatter_in_lane_order():
    o = run("""\
program p
input a i32
input i i64
input m b1
output o i32
v0 = const i64 0
v1 = load i64x4 i[v0]
v2 = load b1x4 m[v0]
v3 = gather i32x4 a[v1]
scatter o[v1] v3 mask v2
v4 = lanes i64x4
v5 = const i64x4 2
v6 = idiv i64x4 v4 v5
scatter o[v6 + 6] v3
v7 = gather i32x4 a[v1] mask v2
store o[v0 + 8] v7
""", np.arange(10, 18, dtype=np.int32), np.asarray([5, 0, 5, 2]),
            np.asarray([True, False, True, True]), np.zeros(12, np.int32))
    assert o.tolist() == [0, 0, 12, 0, 0, 15, 10, 12, 15, 0, 15, 12]


def test_loops_carry_and_results_outlive_them():
    o = run("""\
program p
output o i64
v0 = const i64 0
v1 = const i64 1
v2 = const i64 10
loop L0 serial v3 = v0 .. v2 carry v4 = v0, v5 = v1
  v6 = scaled i64 v3 3
  v7 = add i64 v4 v5
  if v8
    store o[v0 + 2] v6
  yield v5, v7
v9 = result i64 L0 0
v10 = result i64 L0 1
store o[v0] v9
store o[v0 + 1] v10
loop L1 serial v11 = v2 .. v0 carry v12 = v2
  yield v1
v13 = result i64 L1 0
store o[v0 + 3] v13
""".replace("  if v8\n    store", "  v8 = const b1 true\n  if v8\n    store"),
            np.zeros(4, np.int64))
    assert o.tolist() == [55, 89, 27, 10]


def deep_nest(depth, kind=None, innermost=""):
    """Return a text: `depth` serial loops of one round, each adding 1 to what it carries."""
    lines = ["program deep", "output o i64", "v0 = const i64 0", "v1 = const i64 1"]
    indent, value = "", "v0"
    if kind:
        lines.append(f"loop T {kind} t = v0 .. v1")
        indent = "  "
    for d in range(depth):
        lines.append(f"{indent}loop L{d} serial i{d} = v0 .. v1 carry c{d} = {value}")
        indent, value = indent + "  ", f"c{d}"
    lines.append(f"{indent}{innermost or 'prefetch o[v0]'}")
    for d in reversed(range(depth)):
        lines += [f"{indent}x{d} = add i64 {value} v1", f"{indent}yield x{d}"]
        indent = indent[2:]
        lines.append(f"{indent}r{d} = result i64 L{d} 0")
        value = f"r{d}"
    return "\n".join([*lines, f"{indent}store o[v0] {value}", ""])


@pytest.mark.parametrize("kind, innermost", [(None, ""), ("thread", ""), ("thread", "barrier")])
def test_a_nest_deeper_than_python_allows(kind, innermost):
    text = deep_nest(40, kind, innermost)
    assert run(text, np.zeros(1, np.int64)).tolist() == [40]


COPY = """\
program copy parallel
input a f32
output o f32
scratch s f32 8 private
scratch g f32 8 global
v0 = const i64 0
v1 = const i64 8
v2 = thread i64
v3 = const f32 1.0
loop L0 parallel v4 = v0 .. v1
  v5 = load f32 a[v4]
  store s[v4] v5
  v6 = load f32 s[v4]
  store o[v4] v6
store g[v0] v3
"""


@pytest.mark.parametrize("workers", [1, 2, 3, 11])
def test_workers_share_a_parallel_loop(workers):
    a = np.arange(8, dtype=np.float32)
    o = run(COPY, a, np.zeros(8, np.float32), workers=workers, check_races=True)
    assert o.tolist() == a.tolist()


def test_code_outside_of_the_parallel_loop_has_effects_once():
    o = run("""\
program p parallel
output o i64
v0 = const i64 0
v1 = const i64 1
v2 = load i64 o[v0]
v3 = add i64 v2 v1
store o[v0] v3
loop L0 parallel v4 = v0 .. v1
  v5 = threads i64
  store o[v0 + 1] v5
""", np.zeros(2, np.int64), workers=4)
    assert o.tolist() == [1, 4]


def test_scratch_is_undefined_at_entry_and_global_scratch_stays():
    texts = ["""\
program first
output o f32
scratch p f32 4 private
scratch g f32 4 global
v0 = const i64 0
v1 = load f32 p[v0]
v2 = load f32 g[v0 + 1]
v3 = const f32 7.0
store o[v0] v1
store o[v0 + 1] v2
store p[v0] v3
store g[v0] v3
""", """\
program second
output o f32
scratch p f32 4 private
scratch g f32 4 global
v0 = const i64 0
v1 = load f32 p[v0]
v2 = load f32 g[v0]
store o[v0 + 2] v1
store o[v0 + 3] v2
"""]
    programs = [parse_program(t) for t in texts]
    o = np.zeros(4, np.float32)
    execute(programs, Binding(programs[0].params, 64, 64), [o])
    assert np.isnan(o[:3]).all() and o[3] == 7
    with pytest.raises(BackendError, match="cannot run first .it needs 64 global bytes"):
        execute(programs, Binding(programs[0].params, 0, 64), [o])


# -- faults ------------------------------------------------------------------------------------

FAULTS = """\
program p
input a i32
input i i64
output o i32
scratch s i32 64 private
v0 = const i64 0
v1 = load i64 i[v0]
v2 = const i32 -1
v3 = const b1x4 true
"""


@pytest.mark.parametrize("body, message", [
    ("v4 = load i32 a[v1]\n",
     r"p: cannot run `v4 = load i32 a\[v1\]` .offset 8 is out of bounds of a, which has 8"),
    ("v4 = load i32x4 a[v1 + -3]\n", "offset 5 is out of bounds of a"),
    ("v4 = load i32x4 a[v1 + -3] mask v3\n", "offset 8 is out of bounds of a"),
    ("v4 = load i32 a[v0 + -1]\n", "offset -1 is out of bounds of a"),
    ("store o[v1] v2\n", "offset 8 is out of bounds of o"),
    ("store s[v1 + 56] v2\n", "offset 64 is out of bounds of s, which has 64"),
    ("v4 = splat i64x4 v1\nv5 = gather i32x4 a[v4 + 2]\n", "offset 10 is out of bounds of a"),
    ("v4 = splat i64x4 v1\nv5 = splat i32x4 v2\nscatter o[v4 + -9] v5\n", "offset -1 is out"),
])
def test_an_access_out_of_bounds_is_named(body, message):
    with pytest.raises(IndexOutOfBounds, match=message):
        run(FAULTS + body, np.zeros(8, np.int32), np.asarray([8]), np.zeros(8, np.int32))


@pytest.mark.parametrize("body, message", [
    ("v4 = idiv i64 v1 v0\n", "`v4 = idiv i64 v1 v0` .a divisor is zero"),
    ("v4 = irem i64 v1 v0\n", "a divisor is zero"),
    ("v4 = const i32 -2147483648\nv5 = idiv i32 v4 v2\n", "the quotient does not fit int32"),
    ("v4 = load i32x4 s[v0 + 4] align 32\n", "offset 4 of s is not aligned to 32 bytes"),
    ("v4 = load i32x4 s[v0 + 4] mask v3 align 32\n", "offset 4 of s is not aligned to 32 bytes"),
])
def test_a_broken_promise_is_named(body, message):
    with pytest.raises(VerifyError, match=message):
        run(FAULTS + body, np.zeros(8, np.int32), np.asarray([8]), np.zeros(8, np.int32))


@pytest.mark.parametrize("store, message", [
    ("store o[v0] v3", "element 0 of o is also written by worker 0"),
    ("v9 = load f32 o[v0]\n  store o[v4] v9", "element 0 of o is also written by worker 0"),
])
def test_a_race_between_workers_is_found(store, message):
    text = COPY.replace("store o[v4] v6", store)
    with pytest.raises(VerifyError, match=message):
        run(text, np.zeros(8, np.float32), np.zeros(8, np.float32), workers=2, check_races=True)
    run(text, np.zeros(8, np.float32), np.zeros(8, np.float32), workers=1, check_races=True)


def test_a_write_after_another_workers_read_is_a_race():
    text = COPY.replace("store o[v4] v6", "v9 = load f32 g[v1 + -1]\n  store g[v4] v9")
    with pytest.raises(VerifyError, match="element 7 of g is also read by several"):
        run(text, np.zeros(8, np.float32), np.zeros(8, np.float32), workers=2, check_races=True)


@pytest.mark.parametrize("arrays, message", [
    ([], "cannot bind 0 arrays to 2 params"),
    ([np.zeros(8, np.float32), np.zeros(8)], r"cannot bind float64\[8\] to output o .*float32"),
    ([np.zeros((2, 4), np.float32), np.zeros(8, np.float32)], r"cannot bind float32\[2, 4\]"),
    ([np.zeros(16, np.float32)[::2], np.zeros(8, np.float32)], "a flat array of float32"),
])
def test_arrays_that_do_not_fit_are_refused(arrays, message):
    program = parse_program(COPY)
    with pytest.raises(BackendError, match=message):
        execute([program], Binding(program.params, 64, 64), arrays)


# -- the backend -------------------------------------------------------------------------------

def test_source_is_text_that_compiles_and_loads():
    backend, program = Interpreter(), parse_program(COPY)
    source = backend.render([program, parse_program(COPY.replace("copy", "again"))],
                            Binding(program.params, 64, 64))
    assert source.startswith("binding 64 64\ninput a f32\noutput o f32\n\nprogram copy parallel")
    loaded = backend.load(backend.compile(source.replace("1.0", "3.0")))
    assert [p.name for p in loaded.programs] == ["copy", "again"]
    a, o = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    for _ in range(2):
        loaded.execute([a, o], workers=2)
    loaded.close()
    loaded.execute([a, o])
    assert o.tolist() == a.tolist()
    assert "def run(m, memory, worker, workers):" in backend.assembly(source)
    assert backend.limits.lanes(4) == 16


@pytest.mark.parametrize("source, message", [
    ("", "cannot compile the source"),
    ("program p\n", "cannot compile the source"),
    ("binding 0 0\n\nprogram p\nv0 = neg i64 v1\n", "cannot read line 2"),
    ("binding 0 0\n\nprogram p\nbarrier\n", "source: cannot leave `barrier`"),
])
def test_a_broken_source_is_refused(source, message):
    with pytest.raises(BackendError, match=message):
        Interpreter().compile(source)
    with pytest.raises(BackendError, match="cannot assemble"):
        Interpreter().assemble("")


def test_an_executable_translates_once():
    program = parse_program(COPY)
    executable = Executable([program], Binding(program.params, 64, 64))
    a, o = np.zeros(8, np.float32), np.zeros(8, np.float32)
    executable.execute([a, o])
    held = dict(executable._loaded)
    executable.execute([a, o])
    assert executable._loaded == held and executable.addresses == ()


def test_bool_memory_holds_bytes_of_zero_or_one():
    b = Builder("p", [Param("a", "input", uint8), Param("o", "output", bool_)])
    b.add_scratch(Scratch("s", bool_, 4, "global"))
    x = b.op("cast", b.load(Type(uint8, 4), b.as_index(0), MemRef("a")), dtype=bool_)
    b.store(b.as_index(0), b.load(Type(bool_, 4), b.as_index(0), MemRef("s")), MemRef("o", 4))
    b.store(b.as_index(0), x, MemRef("o"))
    o = run(b.program, np.asarray([0, 1, 2, 255], np.uint8), np.zeros(8, bool))
    assert o.view(np.uint8).tolist() == [0, 1, 1, 1, 1, 1, 1, 1]


def test_every_dtype_has_a_name_here():
    assert set(BY_NAME) == {d.name for d in (bool_, *INTEGERS, *FLOATS)} and int32 in INTEGERS
