"""grad, value_and_grad and vjp of functions over trees, eager and inside jit."""

import collections
import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.errors import GradientError

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass(frozen=True)
class Layer:
    weight: object
    bias: object = None


def tensor(*values, dtype=tw.float64):
    return tw.asarray(list(values), dtype=dtype)


@pytest.fixture(params=["eager", "jit"])
def mode(request):
    return tw.jit if request.param == "jit" else lambda f: f


def central(f, x, eps=1e-5):
    """Central differences of a scalar function of one float64 array."""
    result = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = eps
        result[i] = (float(f(tw.asarray(x + step))) - float(f(tw.asarray(x - step)))) / (2 * eps)
    return result


FUNCTIONS = {
    "polynomial": lambda x: tw.sum(x ** 3 - 2.0 * x * x + x),
    "softmax": lambda x: tw.sum(tw.nn.softmax(x, axis=-1) ** 2),
    "matmul": lambda x: tw.sum(tw.matmul(x, tw.permute_dims(x, (1, 0))) ** 2),
    "where": lambda x: tw.sum(tw.where(x > 0, tw.exp(x), x * x)),
    "index": lambda x: tw.sum(x[1, ::-1] * x[0]) + x[1, 2] ** 2,
    "write": lambda x: tw.sum(x.at[0].set(x[1] * 2.0) ** 2),
    "mean and var": lambda x: tw.mean(x) * tw.var(x),
    "reshape and concat": lambda x: tw.sum(tw.concat([x.reshape(3, 2), x.reshape(3, 2) ** 2]) ** 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_central_differences(name, mode, rng):
    x = rng.uniform(-1, 1, (2, 3))
    found = mode(tw.grad(FUNCTIONS[name]))(tw.asarray(x))
    np.testing.assert_allclose(found.numpy(), central(FUNCTIONS[name], x), rtol=1e-6, atol=1e-7)


def test_trees_of_arguments(mode):
    def loss(p, x):
        y = x * p["layers"][0].weight + p["layers"][0].bias
        return tw.sum(y * p["pair"].left) + p["scale"] * 2.0

    p = {"layers": [Layer(tensor(1, 2), tensor(0.5))], "pair": Pair(tensor(3.0), None),
         "scale": 4.0}
    value, g = mode(tw.value_and_grad(loss))(p, tensor(10, 20))
    assert value.item() == (10.5 + 40.5) * 3 + 8
    assert type(g["layers"][0]) is Layer and type(g["pair"]) is Pair and g["pair"].right is None
    assert g["layers"][0].weight.tolist() == [30, 60] and g["layers"][0].bias.tolist() == [6]
    assert g["pair"].left.tolist() == [51] and float(g["scale"]) == 2
    assert list(g) == list(p)


def test_argnums_and_keywords(mode):
    def f(x, y, *, z):
        return tw.sum(x * y * z)
    args = tensor(2.0), tensor(3.0)
    one = mode(lambda x, y, z: tw.grad(f, argnums=1)(x, y, z=z))(*args, 5.0)
    both = mode(lambda x, y, z: tw.grad(f, argnums=(0, -1))(x, y, z=z))(*args, 5.0)
    assert one.tolist() == [10] and [g.tolist() for g in both] == [[15], [10]]
    with pytest.raises(GradientError, match=r"argument 2 \(the call has 2 positional"):
        tw.grad(f, argnums=2)(*args, z=1.0)


def test_auxiliary_results(mode):
    def f(x):
        y = x * x
        return tw.sum(y), {"y": y, "n": 3}
    (value, aux), g = mode(tw.value_and_grad(f, has_aux=True))(tensor(1, 2))
    assert value.item() == 5 and aux["y"].tolist() == [1, 4] and aux["n"] == 3
    assert g.tolist() == [2, 4]
    g, aux = mode(tw.grad(f, has_aux=True))(tensor(1, 2))
    assert g.tolist() == [2, 4] and aux["y"].tolist() == [1, 4]
    with pytest.raises(GradientError, match="needs a pair with has_aux"):
        tw.grad(lambda x: tw.sum(x), has_aux=True)(tensor(1.0))


def test_vjp(mode):
    def run(x, w, c):
        out, pullback = tw.vjp(lambda x, w: {"a": x * w, "b": [tw.sum(x)]}, x, w)
        one = tw.asarray(1.0, dtype=tw.float64)
        return out, pullback(c), pullback({"a": c["a"] * 0.0, "b": [one]})
    c = {"a": tensor(1, 10), "b": [tw.asarray(100.0, dtype=tw.float64)]}
    out, first, second = mode(run)(tensor(1, 2), tensor(3, 4), c)
    assert out["a"].tolist() == [3, 8] and out["b"][0].item() == 3
    assert first[0].tolist() == [103, 140] and first[1].tolist() == [1, 20]
    assert second[0].tolist() == [1, 1] and second[1].tolist() == [0, 0]
    _, pullback = tw.vjp(lambda x: x, tensor(1.0))
    with pytest.raises(GradientError, match="another tree structure"):
        pullback([tensor(1.0)])
    with pytest.raises(GradientError, match=r"cannot differentiate result\['i'\] \(a int64\[1\]"):
        tw.vjp(lambda x: {"i": x.astype(tw.int64)}, tensor(1.0))


def test_only_ways_through_the_argument_count(mode):
    x = tensor(2.0, 3.0)
    assert mode(tw.grad(lambda y: tw.sum(x * y)))(x).tolist() == [2, 3]
    assert mode(tw.grad(lambda y, z: tw.sum(z * y * y)))(x, x).tolist() == [8, 18]
    base = tensor(1.0)
    double = base * 2
    assert mode(tw.grad(lambda y: tw.sum(y * (base * 2))))(double).tolist() == [2]
    assert mode(tw.grad(lambda y: tw.sum(x)))(x).tolist() == [0, 0]
    assert tw.grad(lambda y: 3.0)(x).tolist() == [0, 0]


def test_higher_orders(mode):
    third = tw.grad(tw.grad(tw.grad(lambda x: x ** 5)))
    assert mode(third)(tw.asarray(2.0, dtype=tw.float64)).item() == 240

    def mixed(x, y):
        return tw.grad(lambda y: tw.grad(lambda x: x * x * y * y)(x))(y)
    assert mode(mixed)(tw.asarray(3.0), tw.asarray(5.0)).item() == 4 * 15

    def penalty(w):  # a gradient inside a loss, and its gradient
        g = tw.grad(lambda v: tw.sum(v ** 3))(w)
        return tw.sum(g * g)
    assert mode(tw.grad(penalty))(tensor(1, 2)).tolist() == [36, 288]


def test_jit_inside_grad_inside_jit(mode):
    square = tw.jit(lambda x: x * x)
    assert mode(tw.grad(lambda x: tw.sum(square(square(x)))))(tensor(2.0)).tolist() == [32]
    assert square.trace_count == 0


def test_writes_on_intermediates_and_arguments(mode):
    def f(x):
        y = x * 2.0
        y[0] = y[1] * x[0]
        y += 1.0
        return tw.sum(y * y)

    def g(x):
        return tw.sum(tw.stack([x[1] * 2.0 * x[0] + 1.0, x[1] * 2.0 + 1.0]) ** 2)
    x = tensor(3.0, 5.0)
    assert mode(tw.grad(f))(x).tolist() == mode(tw.grad(g))(x).tolist()

    def writes(x):
        x[0] = x[1] * x[1]
        return tw.sum(x * x)
    found = mode(tw.grad(writes))(x)
    assert found.tolist() == [0, 4 * 125 + 10] and x.tolist() == [25, 5]


def test_values_may_decide_without_jit():
    def f(x):
        y = x * x
        if y.sum() > 4:
            y = y * 3.0
        scale = y.sum().item()  # a constant for the derivative
        return tw.sum(y) * scale
    assert tw.grad(f)(tensor(1.0)).tolist() == [2]
    assert tw.grad(f)(tensor(3.0)).tolist() == [18 * 27]
    seen = []

    def g(x):
        y = x * 2.0
        seen.append(y.tolist())
        tw.block_until_ready(y)
        repr(y)
        return tw.sum(y * y)
    assert tw.grad(g)(tensor(1.0)).tolist() == [8] and seen == [[2.0]]
    assert tw.grad(tw.grad(lambda x: x ** 3 if x > 1 else x))(tw.asarray(2.0)).item() == 12


def test_values_that_leave_the_function_stay_usable():
    kept = []

    def f(x):
        kept.append(x * 3.0)
        return tw.sum(x)
    tw.grad(f)(tensor(1.0, 2.0))
    assert kept[0].tolist() == [3, 6]
    assert tw.jit(lambda x: x + kept[0])(tensor(1.0, 1.0)).tolist() == [4, 7]


def test_state_kept_by_a_differentiated_function(mode):
    class Norm:
        def __init__(self):
            self.mean, self.last = tensor(0.0), None

        def __call__(self, x):
            self.mean[...] = self.mean * 0.5 + x * 0.5
            self.last = x * 2.0
            return x - self.mean
    norm = Norm()

    def slope(x):
        return tw.grad(lambda x: tw.sum(norm(x) * x))(x)

    def slope_of_slope(x):
        return tw.grad(lambda x: tw.sum(slope(x)))(x)
    f = mode(slope)
    for expected in (2.0, 3.0):
        assert f(tensor(4.0)).item() == (4.0 if expected == 2 else 3.0)
        assert norm.mean.item() == expected and norm.last.item() == 8
    if mode is tw.jit:
        assert mode(slope_of_slope)(tensor(4.0)).item() == 1
        assert norm.mean.item() == 3.5 and norm.last.item() == 8


def test_python_floats(mode):
    slope = mode(tw.grad(lambda x, y: x * x * y))(3.0, 2.0)
    assert float(slope) == 12
    out = mode(lambda x, r: x * tw.grad(lambda r: r * r)(r))(tw.asarray([1.0]), 3.0)
    assert out.dtype == tw.float32 and out.tolist() == [6]
    with pytest.raises(GradientError, match="its derivative would be lost"):
        tw.grad(lambda x: x * math.sin(x))(3.0)


@pytest.mark.parametrize(("function", "args", "message"), [
    (lambda x: x * x, (tensor(1, 2),), r"a result float64\[2\] \(needs one .*sum it, or use vjp"),
    (lambda x: tw.sum(x).astype(tw.int64), (tensor(1),), r"a result int64\[\]"),
    (lambda x: [x], (tensor(1),), "a result of type list"),
    (lambda x: tw.sum(x), (tensor(1, dtype=tw.int64),), r"argument 0 \(int64\[1\] is not floating"),
    (lambda d: tw.sum(d["a"][0]), ({"a": [tensor(1), True]},), r"argument 0\['a'\]\[1\] \(.*bool"),
    (lambda x: tw.sum(x), (3,), r"argument 0 \(.*int.*floating-point"),
    (lambda x: tw.sum(x), (), r"argument 0 \(the call has 0"),
])
def test_what_has_no_gradient(function, args, message, mode):
    for make in (tw.grad, tw.value_and_grad):
        with pytest.raises(GradientError, match="cannot differentiate .*" + message):
            mode(make(function))(*args)


def test_exceptions_leave_everything_usable():
    def f(x):
        raise KeyError("on purpose")
    with pytest.raises(KeyError):
        tw.grad(f)(tensor(1.0))
    x = tensor(1.0) + 1
    assert x.tolist() == [2] and tw.grad(lambda x: tw.sum(x))(x).tolist() == [1]


def test_a_deep_chain_and_shared_doublings(mode):
    def chain(x):
        for _ in range(5000):
            x = x * 0.5 + 1.0
        return tw.sum(x)
    assert mode(tw.grad(chain))(tensor(1.0)).item() == 0

    def doublings(x):
        for _ in range(40):
            x = x + x
        return tw.sum(x)
    assert mode(tw.grad(doublings))(tensor(1.0)).item() == 2.0 ** 40


def test_a_training_loop_falls_and_traces_once():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 3)).astype(np.float32)
    target = x @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 3

    @tw.jit
    def step(p, x, y, rate):
        def loss(p):
            return tw.mean((tw.matmul(x, p["w"]) + p["b"] - y) ** 2)
        value, g = tw.value_and_grad(loss)(p)
        return value, {k: p[k] - rate * g[k] for k in p}
    p = {"w": tw.zeros((3, 1)), "b": tw.zeros(1)}
    losses = []
    for i in range(100):
        value, p = step(p, x, target, 0.2 / (1 + i / 100))
        losses.append(value.item())
    assert losses[-1] < 1e-4 * losses[0] and step.trace_count == 1
    assert p["w"].dtype == tw.float32
    np.testing.assert_allclose(p["w"].numpy()[:, 0], [1, -2, 0.5], atol=0.02)


def test_against_torch(mode, rng):
    torch = pytest.importorskip("torch")
    w = [rng.uniform(-0.5, 0.5, s).astype(np.float32) for s in ((8, 16), (16,), (16, 4))]
    x = rng.uniform(-1, 1, (5, 8)).astype(np.float32)
    label = rng.integers(0, 4, 5)

    def loss(params, x):
        h = tw.tanh(tw.matmul(x, params[0]) + params[1])
        logits = tw.nn.log_softmax(tw.matmul(h, params[2]), axis=-1)
        return -tw.mean(logits[tw.arange(5), tw.asarray(label)])
    value, g = mode(tw.value_and_grad(loss))([tw.asarray(v) for v in w], tw.asarray(x))
    tensors = [torch.tensor(v, requires_grad=True) for v in w]
    out = torch.nn.functional.cross_entropy(
        torch.tanh(torch.tensor(x) @ tensors[0] + tensors[1]) @ tensors[2], torch.tensor(label))
    out.backward()
    np.testing.assert_allclose(value.item(), out.item(), rtol=1e-5)
    for a, b in zip(g, tensors):
        np.testing.assert_allclose(a.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-6)


OPERATIONS = [lambda a, b: a * b, lambda a, b: a - b * 0.5, lambda a, b: tw.sin(a) + b,
              lambda a, b: tw.maximum(a, b * 2.0), lambda a, b: tw.sum(a) * b,
              lambda a, b: a[::-1] * tw.cumulative_sum(b)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3)),
                min_size=1, max_size=6), st.integers(0, 2**20))
def test_random_programs_against_central_differences(program, seed):
    def f(x):
        values = [x, x * 0.5 + 1.0]
        for op, i, j in program:
            values.append(OPERATIONS[op](values[i % len(values)], values[-1 - j % len(values)]))
        return tw.mean(tw.tanh(values[-1]))
    x = np.random.default_rng(seed).uniform(-1, 1, 3)
    expected = central(f, x, 1e-6)
    for function in (tw.grad(f), tw.jit(tw.grad(f))):
        np.testing.assert_allclose(function(tw.asarray(x)).numpy(), expected, rtol=2e-4, atol=1e-5)
