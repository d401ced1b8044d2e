"""Random linear programs: the sum of w * f(x) equals the sum of vjp(w) * x, exactly."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright import dtypes
from tilewright.graph import apply, constant, parameter
from tilewright.graph.evaluate import evaluate
from tilewright.rewrite import build, full
from tilewright.transforms import vjp

F64 = dtypes.float64
INTS = st.integers


def source(leaf):
    """Return small integers, so that float64 sums are exact."""
    if leaf.dtype == dtypes.int64:
        return np.arange(leaf.size).reshape(leaf.shape) * 5 % 7 - 1
    return np.arange(leaf.size, dtype=np.float64).reshape(leaf.shape) * 7 % 11 - 5


def slices(draw, x):
    spans = []
    for n in x.shape:
        step = draw(st.sampled_from([1, 1, 2, -1, -3]))
        spans.append(slice(draw(st.none() | INTS(-n, n)), draw(st.none() | INTS(-n, n)),
                           step).indices(n))
    starts, stops, steps = zip(*spans)
    return "slice", [x], {"starts": starts, "stops": stops, "steps": steps}


def pads(draw, x):
    return "pad", [x], {name: tuple(draw(INTS(0, 2)) for _ in x.shape)
                        for name in ("low", "high", "interior")}


def permutes(draw, x):
    return "permute", [x], {"axes": tuple(draw(st.permutations(range(x.ndim))))}


def reshapes(draw, x):
    first = draw(st.sampled_from([d for d in range(1, x.size + 1) if x.size % d == 0] or [1]))
    shape = (first, x.size // first) if draw(st.booleans()) else (1, *x.shape)
    return "reshape", [x], {"shape": shape}


def expands(draw, x):
    return "expand", [x], {"shape": tuple(draw(INTS(0, 3)) if n == 1 else n for n in x.shape)}


def sums(draw, x):
    return "reduce", [x], {"kind": "sum",
                           "axes": tuple(d for d in range(x.ndim - 1) if draw(st.booleans()))}


def running(draw, x):
    return "cumulate", [x], {"kind": "sum", "axis": draw(INTS(0, x.ndim - 1))}


def joins(draw, x):
    return "concat", [x] * draw(INTS(1, 3)), {"axis": draw(INTS(0, x.ndim - 1))}


def gathers(draw, x):
    shape = tuple(draw(st.lists(INTS(0, 3), min_size=1, max_size=2)))
    indices = [parameter(9, shape, dtypes.int64)] * draw(INTS(1, x.ndim))
    return ("gather", [x, *indices], {}) if x.size else joins(draw, x)


def scatters(draw, x):
    count = draw(INTS(1, x.ndim))
    index = parameter(9, (draw(INTS(0, 4)),), dtypes.int64)
    updates = parameter(1, (*index.shape, *x.shape[count:]), F64)
    mode = draw(st.sampled_from(["set", "add"]))
    return "scatter", [x, updates, *[index] * count], {"mode": mode}


def shears(draw, x):
    if x.ndim < 2:
        return running(draw, x)
    axis, stride, dilation = draw(INTS(0, x.ndim - 2)), draw(INTS(1, 3)), draw(INTS(1, 3))
    room = x.shape[axis] - (x.shape[axis + 1] - 1) * dilation - 1
    name = "shear" if room >= 0 and x.shape[axis + 1] and draw(st.booleans()) else "unshear"
    size = room // stride + 1 if name == "shear" else draw(INTS(0, 6))
    return name, [x], {"axis": axis, "size": size, "stride": stride, "dilation": dilation}


STEPS = [slices, slices, pads, permutes, reshapes, expands, sums, running, joins, gathers,
         scatters, shears]


@st.composite
def linear_programs(draw):
    """Return nodes that are linear in parameters 0 and 1 (scatter brings the latter)."""
    x = parameter(0, tuple(draw(st.lists(INTS(0, 4), min_size=1, max_size=3))), F64)
    pool, leaves = [x], {x}
    make = draw(st.sampled_from([apply, build]))
    for _ in range(draw(INTS(1, 7))):
        at = draw(st.sampled_from(pool[-3:]))
        if at.size > 2000 or not at.ndim:
            continue
        name, inputs, attributes = draw(st.sampled_from(STEPS))(draw, at)
        leaves |= {i for i in inputs if i.op.name == "parameter" and i.dtype == F64}
        pool.append(make(name, *inputs, **attributes))
    return pool[-3:], sorted(leaves, key=lambda node: node.serial)


@given(linear_programs())
def test_vjp_is_the_transpose(program):
    outputs, leaves = program
    weights = [parameter(2, o.shape, F64) for o in outputs]
    grads = vjp(outputs, leaves, weights)
    assert [g.shape for g in grads] == [x.shape for x in leaves]
    ours = sum(np.sum(source(x) * g) for x, g in zip(leaves, evaluate(grads, source)))
    assert ours == sum(np.sum(source(w) * v) for w, v in zip(weights, evaluate(outputs, source)))


@given(linear_programs())
def test_gradient_of_the_gradient_is_the_program_again(program):
    outputs, leaves = program
    weights = [parameter(2 + k, o.shape, F64) for k, o in enumerate(outputs)]
    grads = vjp(outputs, leaves, weights)
    again = vjp(grads, weights, leaves)
    totals = evaluate(outputs, source)
    for k, (weight, value) in enumerate(zip(weights, evaluate(again, source))):
        same = [v for w, v in zip(weights, totals) if w is weight]
        np.testing.assert_array_equal(value, sum(same), err_msg=str(k))


def test_reading_and_writing_elements_costs_little():
    """A forward substitution written element by element stays linear in its reads."""
    n = 60
    x, v = full(0.0, (n,), F64), parameter(0, (n,), F64)
    half = constant(0.5, F64)

    def pick(node, i):
        return build("reshape", build("slice", node, starts=(i,), stops=(i + 1,), steps=(1,)),
                     shape=())
    for i in range(1, n):
        new = build("add", pick(v, i), build("multiply", pick(x, i - 1), half))
        head = build("slice", x, starts=(0,), stops=(i,), steps=(1,))
        tail = build("slice", x, starts=(i + 1,), stops=(n,), steps=(1,))
        x = build("concat", head, build("reshape", new, shape=(1,)), tail, axis=0)
    (grad,) = vjp([x], [v], [full(1.0, (n,), F64)])
    value = evaluate([grad], source)[0]
    expected = [0.0] + [sum(0.5**k for k in range(n - i)) for i in range(1, n)]
    np.testing.assert_allclose(value, expected)
