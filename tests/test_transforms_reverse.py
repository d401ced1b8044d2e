"""Reverse mode on whole graphs: choices at special points, sharing, depth, errors."""

import math

import numpy as np
import pytest

from tilewright import dtypes
from tilewright.errors import DTypeError, GradientError, ShapeError
from tilewright.graph import apply, constant, parameter, postorder
from tilewright.graph.evaluate import evaluate
from tilewright.rewrite import build, full, full_like
from tilewright.transforms import vjp

F64, F32, I64 = dtypes.float64, dtypes.float32, dtypes.int64


def leaf(index, *shape, dtype=F64):
    return parameter(index, shape, dtype)


def gradients(make, *values):
    """Return the gradients of sum(make(..)) at float64 arrays."""
    arrays = [np.asarray(v, np.float64) for v in values]
    leaves = [leaf(i, *a.shape) for i, a in enumerate(arrays)]
    output = make(*leaves)
    grads = vjp([output], leaves, [full_like(output, 1.0)])
    with np.errstate(all="ignore"):
        return evaluate(grads, lambda node: arrays[node.attrs.index])


def power(exponent):
    return lambda x: build("power", x, full_like(x, exponent))


@pytest.mark.parametrize("exponent, at, expected", [
    (2, [0.0, -3.0], [0, -6]), (0, [0.0], [0]), (1, [0.0], [1]), (3, [0.0, -2.0], [0, 12])])
def test_power_with_a_constant_exponent(exponent, at, expected):
    assert gradients(power(exponent), at)[0].tolist() == expected


def test_power_with_a_zero_base():
    ga, gb = gradients(lambda a, b: build("power", a, b), [0.0, 3.0, 0.0, 0.0],
                       [2.0, 1.0, 0.0, 1.0])
    assert ga.tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(gb, [0, 3 * math.log(3), 0, 0])


def test_power_with_a_zero_base_at_second_order():
    def first(a, b):
        y = build("power", a, b)
        return vjp([y], [a], [full_like(y, 1.0)])[0]
    ga, _ = gradients(first, [0.0, 0.0, 0.0], [2.0, 1.0, 0.0])
    assert ga.tolist() == [2, 0, 0]


def guarded(inner):
    def make(x):
        positive = build("less", full_like(x, 0.0), x)
        safe = build("where", positive, x, full_like(x, 1.0)) if inner else x
        return build("where", positive, build("sqrt", safe), full_like(x, 0.0))
    return make


def test_where_with_a_bad_branch():
    unguarded = gradients(guarded(False), [0.0, 9.0])[0]
    assert math.isnan(unguarded[0]) and unguarded[1] == 1 / 6
    assert gradients(guarded(True), [0.0, 9.0])[0].tolist() == [0, 1 / 6]


@pytest.mark.parametrize("kind", ["max", "min"])
def test_tied_extremes_share(kind):
    x = [[2.0, 1.0, 2.0], [5.0, 5.0, 5.0]]
    (grad,) = gradients(lambda x: build("reduce", x, kind=kind, axes=(1,)), x)
    first = [0.5, 0, 0.5] if kind == "max" else [0, 1, 0]
    np.testing.assert_allclose(grad, [first, [1 / 3] * 3])


def test_tied_pairs_share_and_abs_is_flat_at_zero():
    for name in ("minimum", "maximum"):
        a, b = gradients(lambda a, b, name=name: build(name, a, b), [1.0], [1.0])
        assert a.tolist() == b.tolist() == [0.5]
    assert gradients(lambda x: build("abs", x), [0.0, -0.0, -2.0])[0].tolist() == [0, 0, -1]


def test_running_extreme_goes_to_the_latest_tie():
    (grad,) = gradients(lambda x: build("cumulate", x, kind="max", axis=0), [1.0, 3.0, 3.0, 2.0])
    assert grad.tolist() == [1, 1, 2, 0]


def test_overwritten_update_gets_nothing():
    index = build("concat", *[build("reshape", constant(i, I64), shape=(1,)) for i in (1, 1, 5)],
                  axis=0)
    x, u = gradients(lambda x, u: build("scatter", x, u, index, mode="set"), [1.0] * 3, [7.0, 8, 9])
    assert x.tolist() == [1, 0, 1] and u.tolist() == [0, 1, 0]


def test_update_of_an_empty_array_gets_nothing():
    x, u, g = leaf(0, 0), leaf(1, 2), leaf(2, 0)
    written = apply("scatter", x, u, full(0, (2,), I64), mode="set")
    assert vjp([written], [x, u], [g]) == [g, full(0.0, (2,), F64)]


@pytest.mark.parametrize("shape", [(0,), (1,), (1, 0, 3), (1, 1), ()])
def test_empty_and_single_shapes(shape):
    axes = tuple(range(len(shape)))
    def make(x):
        y = build("multiply", build("sin", x), x)
        for axis in axes:
            y = build("cumulate", y, kind="prod", axis=axis)
        return build("reduce", y, kind="sum", axes=axes)
    x = np.full(shape, 0.5)
    (grad,) = gradients(make, x)
    np.testing.assert_allclose(grad, np.full(shape, math.sin(0.5) + 0.5 * math.cos(0.5)))


@pytest.mark.parametrize("kind", ["sum", "prod"])
def test_reduction_over_nothing(kind):
    (grad,) = gradients(lambda x: build("reduce", x, kind=kind, axes=(1,)), np.zeros((2, 0)))
    assert grad.shape == (2, 0)


def test_long_chain():
    x = node = leaf(0, 2)
    for _ in range(20_000):
        node = build("sin", node)
    (grad,) = vjp([node], [x], [full_like(node, 1.0)])
    assert len(postorder([grad])) <= 60_010


def test_very_long_chain_is_linear():
    x = node = leaf(0)
    b = leaf(1)
    for _ in range(50_000):
        node = build("multiply", build("add", node, b), b)
    assert len(postorder(vjp([node], [x, b], [full_like(node, 1.0)]))) < 400_000


def test_shared_values_are_visited_once():
    x = node = leaf(0, 1)
    for _ in range(40):
        node = build("add", node, build("multiply", node, x))
    grads = vjp([node], [x], [full_like(node, 1.0)])
    assert len(postorder(grads)) < 500


def test_only_nodes_above_wrt_are_visited():
    deep = leaf(0, 3)
    for _ in range(100):
        deep = build("call", deep, function=np.sin, shape=(3,), dtype=F64)
    x = build("exp", deep)
    (grad,) = vjp([build("multiply", x, x)], [x], [full_like(x, 1.0)])
    assert [n.op.name for n in postorder([grad])][-1] == "add"


def test_a_node_of_wrt_may_depend_on_another():
    x = leaf(0, 2)
    y = build("multiply", x, x)
    z = build("multiply", y, x)
    grads = vjp([z], [x, y], [full_like(z, 1.0)])
    dx, dy = evaluate(grads, lambda _: np.array([2.0, 3.0]))
    assert dx.tolist() == [12, 27] and dy.tolist() == [2, 3]


def test_output_may_be_wrt_itself():
    x, g = leaf(0, 2), leaf(1, 2)
    assert vjp([x], [x], [g]) == [g]


def test_unreached_nodes_get_zeros():
    x, y = leaf(0, 2), leaf(1, 3, dtype=F32)
    assert vjp([x], [y], [x]) == [full(0.0, (3,), F32)]
    steps = build("floor", y)
    assert vjp([steps], [y], [steps]) == [full(0.0, (3,), F32)]
    assert vjp([], [y], []) == [full(0.0, (3,), F32)]
    assert vjp([x], [], [x]) == []


def test_gradients_through_integers_stop():
    x = leaf(0, 3)
    count = build("cast", build("cast", x, dtype=I64), dtype=F64)
    best = build("cast", build("reduce", x, kind="argmax", axes=(0,)), dtype=F64)
    assert vjp([count], [x], [x]) == [full(0.0, (3,), F64)]
    assert vjp([best], [x], [constant(1.0, F64)]) == [full(0.0, (3,), F64)]


def test_casts_between_floats_keep_each_dtype():
    x = leaf(0, 3, dtype=dtypes.bfloat16)
    wide = build("exp", build("cast", x, dtype=F32))
    (grad,) = vjp([wide], [x], [full_like(wide, 1.0)])
    assert grad.dtype == dtypes.bfloat16
    g = leaf(1, 3, dtype=F32)
    assert vjp([build("cast", x, dtype=F32)], [x], [g]) == [build("cast", g, dtype=x.dtype)]


def test_reading_all_parts_gives_one_concat():
    x = leaf(0, 300, 2)
    parts = [build("slice", x, starts=(i, 0), stops=(i + 1, 2), steps=(1, 1)) for i in range(300)]
    outputs = [build("exp", p) for p in parts]
    (grad,) = vjp(outputs, [x], [full_like(o, 1.0) for o in outputs])
    names = [n.op.name for n in postorder([grad])]
    assert names.count("concat") == 1 and "pad" not in names and "add" not in names


def test_reading_all_elements_of_a_matrix_and_some_again():
    x = leaf(0, 4, 5)
    def read(i, j):
        piece = build("slice", x, starts=(i, j), stops=(i + 1, j + 1), steps=(1, 1))
        return build("multiply", piece, full(float(10 * i + j), (1, 1), F64))
    places = [(i, j) for i in range(4) for j in range(5) if (i, j) != (2, 2)] + [(1, 1), (3, 4)]
    outputs = [build("sin", read(i, j)) for i, j in places]
    (grad,) = vjp(outputs, [x], [full_like(o, float(k)) for k, o in enumerate(outputs)])
    value = np.random.default_rng(0).normal(size=(4, 5))
    expected = np.zeros((4, 5))
    for k, (i, j) in enumerate(places):
        w = 10 * i + j
        expected[i, j] += k * w * math.cos(w * value[i, j])
    np.testing.assert_allclose(evaluate([grad], lambda _: value)[0], expected, rtol=1e-12)


def test_overlapping_parts_are_added():
    value = np.arange(6.0)
    def make(x):
        a = build("slice", x, starts=(0,), stops=(4,), steps=(1,))
        b = build("slice", x, starts=(2,), stops=(6,), steps=(1,))
        return build("multiply", a, b)
    (grad,) = gradients(make, value)
    assert grad.tolist() == [2, 3, 4 + 0, 5 + 1, 2, 3]


def double_rule(node, g):
    return [build("multiply", g, full_like(g, 2.0)), None]


def double(x, n):
    return x * 2


def test_host_function_with_its_own_gradient():
    double.vjp = double_rule
    x = leaf(0, 3)
    y = build("call", x, constant(1, I64), function=double, shape=(3,), dtype=F64)
    assert vjp([y], [x], [full_like(y, 1.0)]) == [full(2.0, (3,), F64)]


def test_errors_name_the_operation():
    x = leaf(0, 3)
    opaque = build("call", x, function=np.sort, shape=(3,), dtype=F64)
    with pytest.raises(GradientError, match=r"call: cannot differentiate float64\[3\] -> "
                       r"float64\[3\] \(unwritten: the host function 'sort' has no gradient"):
        vjp([opaque], [x], [x])
    index = full(0, (2,), I64)
    product = build("scatter", x, leaf(1, 2), index, mode="multiply")
    with pytest.raises(GradientError, match=r"scatter: cannot differentiate .*mode 'multiply'"):
        vjp([product], [x], [x])
    half = leaf(0, 3, dtype=dtypes.float16)
    bits = apply("bitcast", half, dtype=dtypes.bfloat16)
    with pytest.raises(GradientError, match=r"bitcast: cannot differentiate .*undefined: the"):
        vjp([bits], [half], [bits])


def test_errors_name_what_does_not_fit():
    x, n = leaf(0, 3), leaf(1, 3, dtype=I64)
    with pytest.raises(GradientError, match=r"vjp: cannot differentiate with respect to int64"):
        vjp([x], [n], [x])
    with pytest.raises(GradientError, match=r"vjp: cannot differentiate int64\[3\] \(an output"):
        vjp([n], [x], [n])
    with pytest.raises(ShapeError, match=r"cannot take float64\[2\] as cotangent of float64\[3\]"):
        vjp([x], [x], [leaf(2, 2)])
    with pytest.raises(DTypeError, match=r"vjp: cannot take float32\[3\] as cotangent"):
        vjp([x], [x], [leaf(2, 3, dtype=F32)])
    with pytest.raises(ShapeError, match="vjp: cannot pair 1 outputs with 2 cotangents"):
        vjp([x], [x], [x, x])
