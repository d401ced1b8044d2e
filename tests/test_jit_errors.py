"""jit: what is refused, and how the message reads."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import TraceError


def tensor(*values):
    return tw.asarray(list(values), dtype=tw.float32)


@pytest.mark.parametrize("function", [
    lambda x: float(x[0]), lambda x: x if x[0] > 0 else -x, lambda x: int(x[0]),
    lambda x: x.item(0), lambda x: np.asarray(x), lambda x: x.tolist(),
    lambda x: [1, 2][x[0].astype(tw.int64)],
], ids=["float", "bool", "int", "item", "numpy", "tolist", "index"])
def test_values_of_traced_tensors_are_refused_with_the_place(function):
    with pytest.raises(TraceError, match=r"jit: cannot read the value of .* in <lambda> "
                                         r"\(test_jit_errors.py, line \d+\).*tilewright.where"):
        tw.jit(function)(tensor(1.0, 2.0))
    assert tw.jit(lambda x: x + 1)(tensor(1.0)).item() == 2


def test_a_traced_tensor_can_be_printed():
    seen = []
    tw.jit(lambda x: (seen.append(repr(x)), x)[1].sum())
    f = tw.jit(lambda x: (repr(x), x + 1))
    text, _ = f(tensor(1.0))
    assert "not known while tracing" in text and seen == []


@pytest.mark.parametrize(("args", "message"), [
    (("text",), r"argument 0 \(a str; needs tensors"),
    ((tw.zeros(1), {"a": [1, object()]}), r"argument 1\['a'\]\[1\] \(a object"),
    ((2**64,), r"argument 0 \(18446744073709551616 needs more than 64 bits; mark it static"),
    ((np.array(["a"]),), "argument 0 .*dtype"),
    ((np.array([1j]),), "argument 0 .*dtype"),
    (({1, 2},), r"argument 0 \(a set"),
])
def test_arguments_that_are_no_trees_of_arrays(args, message):
    with pytest.raises(TraceError, match=f"jit: cannot call .*<lambda> with {message}"):
        tw.jit(lambda *a: tw.zeros(1))(*args)


def test_keyword_arguments_are_named():
    with pytest.raises(TraceError, match=r"with argument 'k'\[0\] \(a bytes"):
        tw.jit(lambda *, k: 1)(k=[b""])


def test_a_container_that_contains_itself():
    loop = []
    loop.append(loop)
    with pytest.raises(TraceError, match="argument 0 .*contains itself"):
        tw.jit(lambda x: 1)(loop)
    with pytest.raises(TraceError, match="'loop'.*contains itself"):
        tw.jit(lambda x: x * len(loop))(tensor(1.0))


def test_static_arguments_must_be_hashable_and_no_arrays():
    f = tw.jit(lambda x, n: x, static_argnums=1)
    with pytest.raises(TraceError, match=r"argument 1 \(static, but list is not hashable"):
        f(tensor(1.0), [1])
    with pytest.raises(TraceError, match=r"argument 1 \(a static Tensor: its values may change"):
        f(tensor(1.0), tensor(1.0))
    with pytest.raises(TraceError, match=r"cannot make argument 'q' of .* static \(it has x, n\)"):
        tw.jit(lambda x, n: x, static_argnames="q")
    with pytest.raises(TraceError, match="cannot make argument 5 of .* static or donated"):
        tw.jit(lambda x, n: x, donate_argnums=5)


def test_results_that_are_no_trees():
    with pytest.raises(TraceError, match="cannot return object from"):
        tw.jit(lambda x: object())(tensor(1.0))
    with pytest.raises(TraceError, match="cannot return set from"):
        tw.jit(lambda x: {1})(tensor(1.0))
    with pytest.raises(TraceError, match="cannot compile 3"):
        tw.jit(3)


def test_containers_of_arguments_may_not_be_changed():
    def f(d):
        d["new"] = d["x"] * 2
    with pytest.raises(TraceError, match="cannot change a list or dict among the arguments"):
        tw.jit(f)({"x": tensor(1.0)})

    def g(items):
        items[0] = items[0] * 2
    with pytest.raises(TraceError, match="cannot change a list or dict among the arguments"):
        tw.jit(g)([tensor(1.0)])
