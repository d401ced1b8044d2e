"""Random programs, built with and without rewriting, have the same values bit for bit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright import dtypes
from tilewright.graph import apply, constant, parameter
from tilewright.graph.evaluate import evaluate
from tilewright.rewrite import build

INTS = st.integers


def draw_slice(draw, shape):
    starts, stops, steps = [], [], []
    for n in shape:
        step = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        start, stop, step = slice(draw(st.none() | INTS(-n - 1, n + 1)),
                                  draw(st.none() | INTS(-n - 1, n + 1)), step).indices(n)
        starts.append(start), stops.append(stop), steps.append(step)
    return "slice", {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}


def draw_reshape(draw, shape):
    size = int(np.prod(shape))
    if draw(st.booleans()) or not size:
        new = [n for n in shape if n != 1 or draw(st.booleans())]
        new.insert(draw(INTS(0, len(new))), 1)
        return "reshape", {"shape": tuple(new)}
    first = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
    return "reshape", {"shape": (first, size // first)}


def draw_permute(draw, shape):
    return "permute", {"axes": tuple(draw(st.permutations(range(len(shape)))))}


def draw_expand(draw, shape):
    return "expand", {"shape": tuple(draw(INTS(0, 3)) if n == 1 else n for n in shape)}


def draw_pad(draw, shape):
    few = [tuple(draw(INTS(0, 2)) for _ in shape) for _ in range(3)]
    return "pad", dict(zip(("low", "high", "interior"), few))


def draw_reduce(draw, shape):
    axes = tuple(a for a, n in enumerate(shape) if n and draw(st.booleans()))
    return "reduce", {"kind": draw(st.sampled_from(["sum", "max", "prod"])), "axes": axes}


MOVES = [draw_slice, draw_slice, draw_reshape, draw_permute, draw_expand, draw_pad, draw_reduce]


def source(leaf):
    return np.arange(leaf.size, dtype=leaf.dtype.numpy).reshape(leaf.shape) * 7 % 11 - 5


@st.composite
def movement_programs(draw):
    """Return the same value built by apply and by build."""
    plain = fast = parameter(0, tuple(draw(st.lists(INTS(0, 4), max_size=3))), dtypes.int32)
    for _ in range(draw(INTS(1, 10))):
        if draw(INTS(0, 3)) == 0 and plain.ndim and plain.size < 2000:
            axis = draw(INTS(0, plain.ndim - 1))
            shape = list(plain.shape)
            shape[axis] = draw(INTS(0, 3))
            kind = draw(INTS(0, 3))
            extra = parameter(1, tuple(shape), dtypes.int32)
            if kind == 0:
                extra = apply("expand", apply("reshape", constant(0, dtypes.int32),
                                              shape=(1,) * len(shape)), shape=tuple(shape))
            others = [(plain, fast)] if kind == 1 else [(extra, extra)]
            pairs = [(plain, fast), *others]
            pairs = pairs if draw(st.booleans()) else pairs[::-1]
            plain = apply("concat", *[p for p, _ in pairs], axis=axis)
            fast = build("concat", *[f for _, f in pairs], axis=axis)
        else:
            name, attrs = draw(st.sampled_from(MOVES))(draw, plain.shape)
            if plain.size > 5000 and name in ("pad", "expand"):
                continue
            plain, fast = apply(name, plain, **attrs), build(name, fast, **attrs)
    return plain, fast


@given(movement_programs())
def test_movements_read_the_same_elements(pair):
    plain, fast = pair
    assert (plain.shape, plain.dtype) == (fast.shape, fast.dtype)
    x, y = evaluate([plain, fast], source)
    np.testing.assert_array_equal(x, y)


UNARY = ["negative", "abs", "sign"]
BINARY = ["add", "subtract", "multiply", "minimum", "maximum", "power", "floor_divide", "remainder"]
BITWISE = ["bitwise_and", "bitwise_or", "bitwise_xor"]
COMPARE = ["equal", "not_equal", "less", "less_equal"]
DTYPES = [dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int64, dtypes.float32, dtypes.float64,
          dtypes.bfloat16]
EDGES = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 3.0])


def edge_source(leaf):
    if leaf.dtype.is_float:
        return np.roll(EDGES, leaf.attrs.index).astype(leaf.dtype.numpy)
    if leaf.dtype.is_bool:
        return np.arange(9) % 2 == leaf.attrs.index
    return np.roll(np.array([0, 1, 2, 3, 5, 7, 100, 127, 64]), leaf.attrs.index).astype(
        leaf.dtype.numpy)


def ops_for(dtype):
    if dtype.is_bool:
        return BITWISE + COMPARE[:2] + ["minimum", "maximum", "bitwise_invert"]
    if dtype.is_float:
        return BINARY + UNARY + COMPARE + ["divide"]
    return BINARY[:5] + BITWISE + COMPARE + UNARY[:2] + ["bitwise_invert"]


@st.composite
def elementwise_programs(draw):
    dtype = draw(st.sampled_from(DTYPES))
    bools = [(parameter(9, (9,), dtypes.bool_),) * 2]
    values = [(parameter(i, (9,), dtype),) * 2 for i in range(2)]
    for number in (0, 1, -1, -0.0):
        node = apply("expand", apply("reshape", constant(number, dtype), shape=(1,)), shape=(9,))
        values.append((node, node))
    for flag in (False, True):
        node = apply("expand", apply("reshape", constant(flag, dtypes.bool_), shape=(1,)),
                     shape=(9,))
        bools.append((node, node))
    for _ in range(draw(INTS(1, 8))):
        name = draw(st.sampled_from([*ops_for(dtype), "where", "invert"]))
        if name == "where":
            picked = [draw(st.sampled_from(bools))] + [draw(st.sampled_from(values)) for _ in "ab"]
        elif name == "invert":
            name, picked = "bitwise_invert", [draw(st.sampled_from(bools))]
            bools.append((apply(name, picked[0][0]), build(name, picked[0][1])))
            continue
        else:
            arity = 1 if name in (*UNARY, "bitwise_invert") else 2
            picked = [draw(st.sampled_from(values)) for _ in range(arity)]
        new = (apply(name, *[p for p, _ in picked]), build(name, *[f for _, f in picked]))
        (bools if name in COMPARE else values).append(new)
    return [*bools[-2:], *values[-3:]]


@given(elementwise_programs())
def test_elementwise_programs_have_the_same_bits(pairs):
    with np.errstate(all="ignore"):
        for plain, fast in pairs:
            x, y = evaluate([plain, fast], edge_source)
            assert x.dtype == y.dtype
            same = (x == y) | ((x != x) & (y != y))
            assert same.all(), (x, y)
            if plain.dtype.is_float:
                numbers = x == x
                assert (np.signbit(x) == np.signbit(y))[numbers].all(), (x, y)
