"""Every rewrite rule: it fires on its examples, keeps values and comes to rest."""

import numpy as np
import pytest

from tilewright import dtypes
from tilewright.errors import ShapeError
from tilewright.graph import apply, constant, parameter
from tilewright.graph.evaluate import evaluate
from tilewright.graph.node import constant_value, postorder
from tilewright.rewrite import RULES, build, full, full_like, uniform_constant

F32, I64, BOOL = dtypes.float32, dtypes.int64, dtypes.bool_


def random_source(seed=0):
    """Return a function that fills parameters with random values, signed zeros and infinities."""
    def fill(leaf):
        rng = np.random.default_rng([seed, leaf.attrs.index])
        if leaf.dtype.is_float:
            edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
            values = np.where(rng.random(leaf.shape) < 0.2, rng.choice(edges, leaf.shape),
                              rng.normal(size=leaf.shape))
        else:
            values = rng.integers(0, 2 if leaf.dtype.is_bool else 3, leaf.shape)
        return np.asarray(values).astype(leaf.dtype.numpy)
    return fill


def bits(array):
    """Return the array's bytes with every NaN made the same."""
    array = np.array(array)
    if array.dtype.kind == "f":
        array[np.isnan(array)] = np.nan
    return array.tobytes()


def assert_same_values(a, b, exact=True):
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    for seed in range(4):
        x, y = evaluate([a, b], random_source(seed))
        if exact:
            assert bits(x) == bits(y), (x, y)
        else:
            np.testing.assert_allclose(x, y, rtol=1e-5)


def text(node):
    """Return a node as an expression."""
    if node.op.name == "parameter":
        return "xyzw"[node.attrs.index]
    if node.op.name == "constant":
        return str(constant_value(node))
    attrs = [str(v) if isinstance(v, (str, int)) else str(list(v)).replace(" ", "")
             for v in node.attrs]
    return f"{node.op.name}({', '.join([text(i) for i in node.inputs] + attrs)})"


def leaf(index, *shape, dtype=F32):
    return parameter(index, shape, dtype)


def cut(x, *ranges, make=build):
    starts, stops, steps = zip(*ranges)
    return make("slice", x, starts=starts, stops=stops, steps=steps)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_fires_keeps_values_and_comes_to_rest(rule):
    for example in rule.example_nodes():
        result = rule.replace(example, build)
        assert result is not None and result is not example
        assert_same_values(example, result, exact=example.op.name != "reduce")
        attrs = dict(zip(example.attrs._fields, example.attrs))
        for node in (result, build(example.op.name, *example.inputs, **attrs)):
            if node.op.kind != "source":
                again = build(node.op.name, *node.inputs,
                              **dict(zip(node.attrs._fields, node.attrs)))
                assert again is node


def test_rule_names_are_unique():
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_every_rule_is_tried_at_the_root_of_its_examples():
    for rule in RULES:
        assert all(example.op.name in rule.ops for example in rule.example_nodes()), rule.name


@pytest.mark.parametrize("op, value", [
    ("add", 0.0), ("multiply", 0.0), ("subtract", -0.0), ("divide", 2.0)])
def test_float_identities_that_fail_somewhere_are_not_applied(op, value):
    x = leaf(0, 3)
    assert build(op, x, full_like(x, value)).op.name == op


def test_subtracting_a_float_from_itself_stays():
    x = leaf(0, 3)
    assert build("subtract", x, x).op.name == "subtract"
    assert build("equal", x, x).op.name == "equal"


@pytest.mark.parametrize("value, dtype", [(True, BOOL), (-3, I64), (1.5, F32), (-0.0, F32)])
def test_uniform_has_one_form(value, dtype):
    node = full(value, (2, 3), dtype)
    assert text(node) == f"expand(reshape({constant_value(constant(value, dtype))}, [1,1]), [2,3])"
    assert uniform_constant(node) is constant(value, dtype)
    column = build("expand", build("reshape", constant(value, dtype), shape=(1, 1)), shape=(2, 1))
    assert build("expand", column, shape=(2, 3)) is node
    assert build("permute", full(value, (3, 2), dtype), axes=(1, 0)) is node
    assert build("reshape", full(value, (6,), dtype), shape=(2, 3)) is node
    assert full(value, (), dtype) is constant(value, dtype)


def test_constants_fold():
    two, three = full(2.0, (4,), F32), full(3.0, (4,), F32)
    assert build("power", two, three) is full(8.0, (4,), F32)
    assert build("less", two, three) is full(True, (4,), BOOL)
    assert build("cast", two, dtype=I64) is full(2, (4,), I64)


def test_where_with_a_bad_branch_keeps_both_conditions():
    x = leaf(0, 3)
    positive = build("less", full_like(x, 0), x)
    safe = build("where", positive, x, full_like(x, 1))
    node = build("where", positive, build("sqrt", safe), full_like(x, 0))
    assert [n.op.name for n in postorder([node])].count("where") == 2


@pytest.mark.parametrize("through, back", [
    ("int8", "float16"), ("uint8", "int16"), ("int16", "float32"), ("bool", "int8"),
    ("float16", "float32"), ("bfloat16", "float64"), ("uint32", "int64"), ("int32", "float64")])
def test_widening_and_back_is_the_identity(through, back):
    x = parameter(0, (3,), dtypes.as_dtype(through))
    wide = build("cast", x, dtype=dtypes.as_dtype(back))
    assert build("cast", wide, dtype=x.dtype) is x


@pytest.mark.parametrize("source, narrow", [
    ("float32", "float16"), ("int32", "float32"), ("int8", "uint8"), ("float16", "bfloat16"),
    ("uint64", "int64"), ("int64", "float64"), ("int32", "bool"), ("float32", "int64")])
def test_narrowing_casts_stay(source, narrow):
    x = parameter(0, (3,), dtypes.as_dtype(source))
    inner = build("cast", x, dtype=dtypes.as_dtype(narrow))
    assert build("cast", inner, dtype=dtypes.int8).inputs[0] is inner


def stack(parts, axis=0):
    shape = list(parts[0].shape)
    shape.insert(axis, 1)
    return build("concat", *[build("reshape", p, shape=tuple(shape)) for p in parts], axis=axis)


def pick(x, *index):
    """Return x[index], as a frontend builds it."""
    ranges = [(i, i + 1, 1) for i in index] + [(0, n, 1) for n in x.shape[len(index):]]
    return build("reshape", cut(x, *ranges), shape=x.shape[len(index):])


def put(x, i, value):
    """Return x.at[i].set(value) for the first axis."""
    rest = [(0, n, 1) for n in x.shape[1:]]
    value = build("reshape", value, shape=(1, *x.shape[1:]))
    return build("concat", cut(x, (0, i, 1), *rest), value, cut(x, (i + 1, x.shape[0], 1), *rest),
                 axis=0)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_indexing_a_stack_gives_the_part_itself(axis):
    parts = [leaf(i, 2, 3) for i in range(4)]
    stacked = stack(parts, axis)
    for i, part in enumerate(parts):
        ranges = [(0, n, 1) for n in stacked.shape]
        ranges[axis] = (i, i + 1, 1)
        assert build("reshape", cut(stacked, *ranges), shape=(2, 3)) is part


def test_indexing_a_matrix_of_scalars_gives_the_scalar_itself():
    scalars = [[leaf(10 * i + j) for j in range(3)] for i in range(3)]
    matrix = stack([stack(row) for row in scalars])
    transposed = build("permute", matrix, axes=(1, 0))
    flat = build("reshape", matrix, shape=(9,))
    for i in range(3):
        for j in range(3):
            assert pick(matrix, i, j) is pick(transposed, j, i) is scalars[i][j]
            assert pick(pick(matrix, i), j) is pick(flat, 3 * i + j) is scalars[i][j]


def test_unstacking_and_stacking_again_gives_the_array_itself():
    x = leaf(0, 5, 3)
    assert stack([pick(x, i) for i in range(5)]) is x
    assert stack([pick(x, i) for i in reversed(range(5))]) is cut(x, (4, -1, -1), (0, 3, 1))


def test_writing_every_element_leaves_only_what_was_written():
    x, values = leaf(99, 6), [leaf(i) for i in range(6)]
    for i in (3, 0, 5, 1, 4, 2):
        x = put(x, i, values[i])
    assert x is stack(values)


def test_a_long_chain_of_writes_stays_small():
    n = 1500
    x, values = full(0.0, (n,), F32), [leaf(i) for i in range(n)]
    for i in range(n):
        x = put(x, i, values[i])
    assert len(postorder([x])) < 3 * n
    assert pick(x, 0) is values[0] and pick(x, n - 1) is values[-1]


def test_forty_doublings_stay_forty_nodes():
    x = leaf(0, 1)
    for _ in range(40):
        x = build("concat", x, x, axis=0)
    assert len(postorder([x])) <= 42
    assert pick(x, 2**39 + 12345) is build("reshape", leaf(0, 1), shape=())


def test_deep_alternating_nests_cost_no_recursion():
    x = leaf(0, 1, 1)
    for _ in range(2000):
        column = leaf(1, x.shape[0], 1)
        x = build("permute", build("concat", x, column, axis=1), axes=(1, 0))
    assert pick(x, 0, 0).shape == () and cut(x, (0, 9, 1), (0, 9, 1)).shape == (9, 9)


def test_slice_of_padding_is_zero_and_of_the_rest_is_the_rest():
    x = leaf(0, 3)
    padded = build("pad", x, low=(2,), high=(2,), interior=(1,))
    assert cut(padded, (2, 7, 2)) is x
    assert cut(padded, (0, 2, 1)) is full(0.0, (2,), F32)
    assert cut(padded, (3, 9, 2)) is full(0.0, (3,), F32)
    assert cut(padded, (1, 4, 1)).op.name == "slice"


def test_build_raises_what_apply_raises():
    with pytest.raises(ShapeError, match=r"reshape: cannot reshape \[3\] to \[4\]"):
        build("reshape", leaf(0, 3), shape=(4,))
    with pytest.raises(ShapeError, match="concat: cannot join"):
        build("concat", leaf(0, 0, 3), leaf(1, 2, 4), axis=0)


def test_sums_of_sixteen_bits_are_not_merged():
    x = leaf(0, 2, 3, dtype=dtypes.float16)
    inner = apply("reduce", x, kind="sum", axes=(1,))
    assert build("reduce", inner, kind="sum", axes=(0,)).inputs[0] is inner
    assert build("reduce", apply("reduce", x, kind="max", axes=(1,)),
                 kind="max", axes=(0,)).inputs[0] is x


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_a_matrix_product_is_not_merged_into_the_sum_of_its_rows_or_columns(axes):
    a, b = leaf(0, 4, 3), leaf(1, 3, 5)
    left = apply("expand", apply("reshape", a, shape=(4, 1, 3)), shape=(4, 5, 3))
    right = apply("expand", apply("reshape", apply("permute", b, axes=(1, 0)), shape=(1, 5, 3)),
                  shape=(4, 5, 3))
    product = apply("reduce", apply("multiply", left, right), kind="sum", axes=(2,))
    assert build("reduce", product, kind="sum", axes=axes).inputs[0] is product


def test_a_batch_of_matrix_products_is_merged_into_its_sum():
    a, b = leaf(0, 2, 4, 3), leaf(1, 2, 3, 5)
    left = apply("expand", apply("reshape", a, shape=(2, 4, 1, 3)), shape=(2, 4, 5, 3))
    turned = apply("permute", b, axes=(0, 2, 1))
    right = apply("expand", apply("reshape", turned, shape=(2, 1, 5, 3)), shape=(2, 4, 5, 3))
    product = apply("reduce", apply("multiply", left, right), kind="sum", axes=(3,))
    assert build("reduce", product, kind="sum", axes=(0,)).attrs.axes == (0, 3)
