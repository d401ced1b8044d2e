"""The gradient of every operation against central differences in float64."""

import numpy as np
import pytest

from tilewright import dtypes
from tilewright.graph import OPS, apply, constant, parameter
from tilewright.graph.evaluate import evaluate
from tilewright.rewrite import build, full
from tilewright.transforms import GRADIENTS, vjp
from tilewright.transforms.gradients import Computed, Equations, Nothing

F64, I64 = dtypes.float64, dtypes.int64
STEP = 1e-6


def ints(values):
    """Return an int64 node that holds the values, as the frontend's literal arrays do."""
    flat = np.asarray(values, np.int64)
    parts = [build("reshape", constant(v, I64), shape=(1,)) for v in flat.ravel().tolist()]
    joined = build("concat", *parts, axis=0) if parts else full(0, (0,), I64)
    return build("reshape", joined, shape=flat.shape)


def weights(shape):
    """Return unequal numbers, so that no two elements' gradients can be taken for each other."""
    return np.random.default_rng(5).uniform(0.5, 2.0, shape)


def gradient_of(make, arrays, make_node=build):
    """Return (gradients of sum(weights * make(leaves)), function of arrays giving that sum)."""
    leaves = [parameter(i, a.shape, F64) for i, a in enumerate(arrays)]
    cotangent = parameter(len(arrays), make(*leaves).shape, F64)
    w = weights(cotangent.shape)
    output = make(*leaves)
    grads = vjp([output], leaves, [cotangent])
    assert [g.shape for g in grads] == [x.shape for x in leaves]
    assert all(g.dtype == F64 for g in grads)

    def source(values):
        return lambda leaf: [*values, w][leaf.attrs.index]

    def scalar(values):
        return float(np.sum(evaluate([output], source(values))[0] * w))

    return evaluate(grads, source(arrays)), scalar


def central_difference(scalar, arrays):
    results = []
    for k, array in enumerate(arrays):
        result = np.zeros(array.shape)
        for at in np.ndindex(array.shape):
            sides = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[k][at] += sign * STEP
                sides.append(scalar(moved))
            result[at] = (sides[0] - sides[1]) / (2 * STEP)
        results.append(result)
    return results


def check(make, *arrays):
    arrays = [np.asarray(a, np.float64) for a in arrays]
    found, scalar = gradient_of(make, arrays)
    for f, expected in zip(found, central_difference(scalar, arrays)):
        np.testing.assert_allclose(f, expected, rtol=2e-6, atol=2e-7)


def op(name, **attributes):
    return lambda *inputs: build(name, *inputs, **attributes)


def spread(low, high, *shape):
    """Return shuffled, distinct numbers of (low, high)."""
    count = int(np.prod(shape))
    values = low + (high - low) * (np.arange(count) + 0.37) / max(count, 1)
    return np.random.default_rng(1).permutation(values).reshape(shape)


def pair(low=-2.0, high=2.0):
    return spread(low, high, 2, 3), spread(high, low + 0.1, 2, 3) + 0.013


COMMON = spread(-2, 2, 2, 3)
CUBE = spread(-2, 2, 2, 3, 4)
WITH_ZEROS = np.array([[1.5, 0.0, -2.0], [0.0, 3.0, 0.0]])
DOMAIN = {
    "sqrt": (0.1, 3), "log": (0.1, 3), "log2": (0.1, 3), "log1p": (-0.8, 3), "asin": (-0.9, 0.9),
    "acos": (-0.9, 0.9), "acosh": (1.1, 4), "atanh": (-0.9, 0.9), "tan": (-1.2, 1.2)}
UNARY = ("negative", "abs", "sqrt", "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos",
         "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf")
CHOOSE = full(True, (2, 3), dtypes.bool_)


def chosen(a, b):
    condition = apply("less", build("multiply", a, full(0.5, a.shape, F64)),
                      full(0.1, a.shape, F64))
    return build("where", condition, build("sin", a), build("exp", b))


def scattered(mode, *indices):
    return lambda x, u: build("scatter", x, u, *map(ints, indices), mode=mode)


def gathered(*indices):
    return lambda x: build("gather", x, *map(ints, indices))


# op -> list of (function of nodes, arrays)
CASES = {
    **{name: [(op(name), (spread(*DOMAIN.get(name, (-2, 2)), 2, 3),))] for name in UNARY},
    "add": [(op("add"), pair())],
    "subtract": [(op("subtract"), pair())],
    "multiply": [(op("multiply"), pair())],
    "divide": [(op("divide"), pair(0.3, 2))],
    "remainder": [(op("remainder"), (COMMON * 3.1, spread(0.7, 2, 2, 3))),
                  (op("remainder"), (COMMON * 3.1, spread(-2, -0.7, 2, 3)))],
    "minimum": [(op("minimum"), pair())],
    "maximum": [(op("maximum"), pair())],
    "power": [(op("power"), (spread(0.3, 2, 2, 3), COMMON))],
    "atan2": [(op("atan2"), pair())],
    "where": [(chosen, pair())],
    "cast": [(lambda x: apply("cast", build("exp", x), dtype=F64), (COMMON,))],
    "reshape": [(op("reshape", shape=(3, 1, 2)), (COMMON,))],
    "permute": [(op("permute", axes=(1, 2, 0)), (CUBE,))],
    "expand": [(op("expand", shape=(4, 3, 2)), (spread(-1, 1, 1, 3, 1),)),
               (op("expand", shape=(0, 3)), (spread(-1, 1, 1, 3),))],
    "slice": [(op("slice", starts=(0, 5), stops=(3, -1), steps=(2, -2)), (spread(-1, 1, 4, 6),)),
              (op("slice", starts=(2, 1), stops=(3, 1), steps=(1, 1)), (spread(-1, 1, 4, 6),))],
    "pad": [(op("pad", low=(1, 0), high=(0, 2), interior=(0, 2)), (COMMON,))],
    "shear": [(op("shear", axis=0, size=3, stride=2, dilation=1), (spread(-1, 1, 7, 3),)),
              (op("shear", axis=1, size=2, stride=1, dilation=3), (spread(-1, 1, 2, 8, 3),))],
    "unshear": [(op("unshear", axis=0, size=7, stride=2, dilation=1), (spread(-1, 1, 3, 3),)),
                (op("unshear", axis=0, size=4, stride=2, dilation=1), (spread(-1, 1, 3, 3),))],
    "concat": [(lambda a, b: build("concat", a, b, a, axis=1), (COMMON, spread(-1, 1, 2, 1)))],
    "gather": [(gathered([[0, 2], [2, 1]]), (spread(-1, 1, 3, 2),)),
               (gathered([0, 1, 1], [2, 9, -4]), (COMMON,))],
    "scatter": [(scattered("set", [2, 0, 2, 7, -1]), (spread(-1, 1, 3, 2), spread(3, 9, 5, 2))),
                (scattered("set", [0, 1, 0], [1, 2, 1]), (COMMON, spread(3, 9, 3))),
                (scattered("add", [[2, 0], [2, 5]]), (spread(-1, 1, 3, 2), spread(3, 9, 2, 2, 2)))],
    "reduce": [(op("reduce", kind=kind, axes=axes), (array,))
               for kind, array in [("sum", CUBE), ("prod", CUBE), ("max", CUBE), ("min", CUBE)]
               for axes in [(1,), (0, 2), (0, 1, 2)]]
    + [(op("reduce", kind="prod", axes=axes), (WITH_ZEROS,)) for axes in [(0,), (1,), (0, 1)]],
    "cumulate": [(op("cumulate", kind=kind, axis=axis), (array,))
                 for kind, array in [("sum", CUBE), ("prod", CUBE), ("max", CUBE), ("min", CUBE),
                                     ("prod", WITH_ZEROS), ("prod", spread(-2, 2, 1, 1))]
                 for axis in (0, 1)],
}

FLAT = [(name, *case) for name, cases in CASES.items() for case in cases]


@pytest.mark.parametrize("name, make, arrays", FLAT, ids=[case[0] for case in FLAT])
def test_gradient_equals_central_difference(name, make, arrays):
    check(make, *arrays)


def test_every_operation_has_a_row():
    assert set(GRADIENTS) == set(OPS)


def test_every_gradient_is_compared_with_differences():
    written = {name for name, row in GRADIENTS.items() if isinstance(row, Equations | Computed)}
    assert written - {"call"} == set(CASES)


@pytest.mark.parametrize("name", list(CASES))
def test_equations_have_one_term_per_input(name):
    row = GRADIENTS[name]
    if isinstance(row, Equations):
        assert len(row.terms) == OPS[name].arity


@pytest.mark.parametrize("name", [n for n, row in GRADIENTS.items() if isinstance(row, Nothing)])
def test_rows_without_gradient_state_a_reason(name):
    assert GRADIENTS[name].kind in ("source", "zero", "undefined", "unwritten")
    assert GRADIENTS[name].reason


@pytest.mark.parametrize("name", ["sign", "floor", "ceil", "trunc", "round"])
def test_steps_have_gradient_zero(name):
    (grad,), scalar = gradient_of(op(name), [COMMON])
    assert not grad.any() and not central_difference(scalar, [COMMON])[0].any()


def nested(make, arrays):
    """Return whether the gradient's gradient equals the gradient's central difference."""
    def inner(*leaves):
        output = make(*leaves)
        g = full(1.0, output.shape, F64)
        return build("multiply", vjp([output], leaves, [g])[0], full(1.0, leaves[0].shape, F64))
    check(inner, *arrays)


SECOND = ["multiply", "divide", "power", "atan2", "exp", "log", "sqrt", "tanh", "erf", "asin",
          "where", "pad", "concat", "gather", "reduce", "cumulate", "sinh", "atanh", "log2", "tan"]


@pytest.mark.parametrize("name", SECOND)
def test_second_order_equals_central_difference(name):
    make, arrays = CASES[name][0]
    nested(lambda *x: build("multiply", make(*x), make(*x)), arrays)


@pytest.mark.parametrize("kind", ["prod", "max"])
@pytest.mark.parametrize("name", ["reduce", "cumulate"])
def test_second_order_of_products_and_extremes(name, kind):
    attributes = {"axes": (1,)} if name == "reduce" else {"axis": 1}
    nested(lambda x: build("exp", build(name, x, kind=kind, **attributes)), [COMMON])


def test_second_order_of_a_product_with_zeros():
    nested(lambda x: build("cumulate", x, kind="prod", axis=1), [WITH_ZEROS])
    nested(lambda x: build("reduce", x, kind="prod", axes=(1,)), [WITH_ZEROS])


@pytest.mark.parametrize("name, make, arrays", FLAT, ids=[case[0] for case in FLAT])
def test_gradients_of_plain_nodes_are_the_same(name, make, arrays):
    """Graphs that were not made by `build` have the same gradients."""
    del name
    arrays = [np.asarray(a, np.float64) for a in arrays]
    leaves = [parameter(i, a.shape, F64) for i, a in enumerate(arrays)]
    node = make(*leaves)
    attributes = dict(zip(node.attrs._fields, node.attrs))
    if node.op.kind == "source":
        return
    plain = apply(node.op.name, *node.inputs, **attributes)
    g = full(1.0, node.shape, F64)
    def source(leaf):
        return arrays[leaf.attrs.index]
    for a, b in zip(evaluate(vjp([node], leaves, [g]), source),
                    evaluate(vjp([plain], leaves, [g]), source)):
        np.testing.assert_array_equal(a, b)
