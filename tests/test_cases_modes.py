"""More faults of the kinds in `test_cases_frontend`: writes, gradients, state of functions, size.

`transform` is `tw.jit` in the jitted modes (see conftest), where every function is called four
times at least.
"""

import numpy as np
import pytest

import tilewright as tw
from tilewright import random

WHOLE = ["int32", "int64"]
REAL = ["float32", "float64"]


def array(values, dtype="float32"):
    return tw.asarray(np.array(values, dtype))


# --- integers


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("factor", [30, -30, 7, 1])
@pytest.mark.parametrize("divisor", [10, -10, 3, -4])
def test_floor_of_affine_functions(call, dtype, factor, divisor):
    x = np.arange(-12, 5).astype(dtype)
    q, r = call(lambda x: ((factor * x + 37) // divisor, (factor * x + 37) % divisor), x)
    counted, rest = call(lambda: ((factor * tw.arange(-12, 5) + 37) // divisor,
                                  (factor * tw.arange(-12, 5) + 37) % divisor))
    wanted = [divmod(factor * i + 37, divisor) for i in range(-12, 5)]
    for found in (q, counted):
        np.testing.assert_array_equal(found, [w[0] for w in wanted])
    for found in (r, rest):
        np.testing.assert_array_equal(found, [w[1] for w in wanted])


# --- values that are folded are those that are computed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_the_sign_of_zero_is_positive_zero(call, dtype, zero):
    x = np.asarray(tw.full((3,), zero, dtype=dtype))
    folded, computed = call(lambda x: (tw.signbit(tw.sign(tw.full((3,), zero, dtype=dtype))),
                                       tw.signbit(tw.sign(x))), x)
    assert not folded.any() and not computed.any()


# --- movement and writes


@pytest.mark.parametrize("widths", [(0, 2), (3, 0), (1, 1), (-1, 2), (2, -1)])
def test_elements_that_only_padding_gives(call, widths):
    def function(x):
        p = tw.pad(x, widths, constant_values=4)
        return p, p[-1], p[1:], p[::-1], p.sum(), tw.pad(x, widths)[:1]
    low, high = widths
    x = np.array([7, 9, 11])
    kept = x[max(-low, 0):3 - max(-high, 0)]
    wanted = np.pad(kept, (max(low, 0), max(high, 0)), constant_values=4)
    zeros = np.pad(kept, (max(low, 0), max(high, 0)))
    for found, right in zip(call(function, x), [wanted, wanted[-1], wanted[1:], wanted[::-1],
                                                wanted.sum(), zeros[:1]]):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("step", [1, 2, 3, 4, 8, -1, -3])
def test_writes_through_gaps_keep_what_is_between(call, step):
    def function(x, v):
        before = x + 0
        x[:, ::step] *= 3
        flat = x.reshape(-1)
        flat[::step] += 2
        mixed = v.at[1:, ::step].set(-1).at[[0, 0]].add(5)
        return before, x, flat, mixed
    a = np.arange(27).reshape(3, 9)
    before, x, flat, mixed = call(lambda a: function(a + 0, a), a)
    np.testing.assert_array_equal(before, a)
    wanted = a.copy()
    wanted[:, ::step] *= 3
    np.testing.assert_array_equal(x, wanted)
    wanted.reshape(-1)[::step] += 2
    np.testing.assert_array_equal(flat, wanted.reshape(-1))
    wanted = a.copy()
    wanted[1:, ::step] = -1
    np.add.at(wanted, [0, 0], 5)
    np.testing.assert_array_equal(mixed, wanted)


def test_a_write_to_an_argument_reaches_the_caller(transform):
    @transform
    def double_every_second(x):
        x[::2] *= 2
        return x.sum()
    x = array(np.ones(5))
    assert [double_every_second(x).item() for _ in range(4)] == [8, 14, 26, 50]
    assert x.tolist() == [16, 1, 16, 1, 16]


def test_places_outside_are_never_touched(transform):
    """What is known to be outside raises; what a traced value says is kept inside memory."""
    @transform
    def read(x, i):
        return x[i]

    @transform
    def write(x, i):
        return x.at[i].add(100)
    x = array(np.arange(4), "int64")
    for i in ([-1, -4, 1], [3, 0, 0], [2, 2, 2], [-2, 1, -3]):
        np.testing.assert_array_equal(np.asarray(read(x, array(i, "int64"))), np.arange(4)[i])
        wanted = np.arange(4)
        np.add.at(wanted, i, 100)
        np.testing.assert_array_equal(np.asarray(write(x, array(i, "int64"))), wanted)
    for bad in ([4], [-5], [10**12], [-10**12]):
        with pytest.raises(IndexError):
            x[bad]
        try:
            found = read(x, array(bad, "int64")).tolist()
        except IndexError:
            continue
        assert set(found) <= {0, 1, 2, 3}
        assert write(x, array(bad, "int64")).tolist() == [0, 1, 2, 3]


# --- gradients


def test_gradients_of_powers_at_zero(transform):
    gradient = transform(tw.grad(lambda x, n: tw.sum(x ** n)))
    both = transform(tw.grad(lambda a, b: tw.sum(a ** b), argnums=(0, 1)))
    for _ in range(4):
        a, b = both(array([0, 3]), array([2, 1]))
        assert a.tolist() == [0, 1]
        np.testing.assert_allclose(np.asarray(b), [0, 3 * np.log(3)], rtol=1e-6)
        assert gradient(array([0, -3]), 2).tolist() == [0, -6]
        assert gradient(array([0, -2]), 3).tolist() == [0, 12]
        assert gradient(array([0]), 0).tolist() == [0]
        assert gradient(array([0, 5]), 1).tolist() == [1, 1]


@pytest.mark.parametrize("key", [slice(0, None, 3), slice(1, None, 3), slice(None, None, -2),
                                 slice(7, 1, -3), slice(-2, -8, -2), slice(50, 2, -5),
                                 slice(2, 6, -1)], ids=str)
def test_gradients_of_slices_go_to_the_elements_read(transform, key):
    read = np.arange(9)[key]
    weights = array(10.0 ** np.arange(len(read)))
    gradient = transform(tw.grad(lambda x: tw.sum(x[key] * weights)))
    wanted = np.zeros(9, np.float32)
    wanted[read] = 10.0 ** np.arange(len(read))
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(gradient(tw.zeros(9))), wanted)


@pytest.mark.parametrize("dtype", REAL)
def test_gradients_of_guarded_branches(transform, dtype):
    """A guard inside `where` keeps its meaning; without one, 0 times infinity is NaN."""
    guarded = {
        tw.sqrt: lambda d: 1 / (2 * np.sqrt(d)), tw.log: lambda d: 1 / d,
        tw.reciprocal: lambda d: -1 / d ** 2, tw.rsqrt: lambda d: -0.5 * d ** -1.5}
    for function, slope in guarded.items():
        gradient = transform(tw.grad(lambda x, f=function: tw.sum(
            tw.where(x > 0, f(tw.where(x > 0, x, 1)), 0))))
        bare = transform(tw.grad(lambda x, f=function: tw.sum(tw.where(x > 0, f(x), 0))))
        for _ in range(4):
            found = np.asarray(gradient(array([0, 9, -4], dtype)))
            np.testing.assert_allclose(found, [0, slope(9.0), 0], rtol=1e-6)
            np.testing.assert_allclose(np.asarray(bare(array([9], dtype))), [slope(9.0)], rtol=1e-6)


# --- state of functions


@pytest.mark.parametrize("pack", [lambda a, b: [a, b], lambda a, b: (a, b),
                                  lambda a, b: {0: a, 1: b}, lambda a, b: [[a, b]][0]])
def test_arguments_inside_containers_are_inputs(transform, pack):
    function = transform(lambda ts: ts[0] * 10 + ts[1])
    found = [function(pack(array([i]), array([1]))).item() for i in range(5)]
    assert found == [1, 11, 21, 31, 41]


class Settings:
    scale = 1.0

    def __init__(self):
        self.nested = {"shift": [0.0]}


FACTOR = 1.0


def test_python_values_that_change(transform, monkeypatch):
    settings, cell = Settings(), 0.0

    def body(x):
        return x * settings.scale + settings.nested["shift"][0] + cell + FACTOR
    function, x, found = transform(body), array([4]), []
    for scale, shift, inner, factor in [(1, 0, 0, 0), (1, 0, 0, 0), (10, 0, 0, 0), (10, 5, 0, 0),
                                        (10, 5, 100, 0), (10, 5, 100, 1000), (20, 5, 100, 1000)]:
        settings.scale, cell = float(scale), float(inner)
        settings.nested["shift"][0] = float(shift)
        monkeypatch.setitem(globals(), "FACTOR", float(factor))
        found.append(function(x).item())
    assert found == [4, 4, 40, 45, 145, 1145, 1185]


@pytest.mark.parametrize("limits", [(1.0, 2.0, 3.0, 4.0, 5.0), (1, 2, 3, 4, 5)])
def test_numbers_as_arguments(transform, limits):
    function = transform(lambda x, limit: tw.clip(x, -limit, limit))
    for limit in limits:
        assert function(array([9, -9]), limit).tolist() == [limit, -limit]


@pytest.mark.parametrize("shift", [1, 4, 7])
def test_results_fed_back_and_results_kept(transform, shift):
    step = transform(lambda ring, new: tw.concat([ring[shift:], new]))
    ring, wanted = tw.zeros(8, dtype=tw.int32), np.zeros(8, np.int32)
    kept = []
    for s in range(1, 9):
        ring = step(ring, tw.full(shift, s, dtype=tw.int32))
        wanted = np.concatenate([wanted[shift:], np.full(shift, s)])
        kept.append((ring, wanted))
    for found, right in kept:
        np.testing.assert_array_equal(np.asarray(found), right)
    double = transform(lambda x: x * 2)
    assert [k.item() for k in [double(array([i])) for i in range(5)]] == [0, 2, 4, 6, 8]
    swap = transform(lambda a, b: (b, a))
    a, b = array([1]), array([2])
    for i in range(5):
        a, b = swap(a, b)
        assert (a.item(), b.item()) == ((2, 1) if i % 2 == 0 else (1, 2))


def test_random_numbers_do_not_depend_on_when_they_are_read(transform):
    draw = transform(lambda: (random.rand(3), random.rand(3)))

    def sequence(late):
        random.seed(7)
        pairs = [draw() for _ in range(4)] if late else None
        found = []
        for i in range(4):
            a, b = pairs[i] if late else draw()
            second = b.tolist()
            found.append((a.tolist(), second))
        return found
    early = sequence(late=False)
    assert early == sequence(late=True)
    assert len({tuple(values) for pair in early for values in pair}) == 8


# --- exchange and size


def test_imported_memory_of_any_strides_in_kernels(call):
    n = np.arange(12).reshape(3, 4)
    for v in (n, n.T, n[:, 1:3], n[::-1], n[:, ::2], n[1:1], n[:, ::-1], n[2, 1], n[1:, 1:]):
        v = np.asarray(v)
        np.testing.assert_array_equal(call(lambda t: t * 2 + 1, tw.from_dlpack(v)), v * 2 + 1)
        np.testing.assert_array_equal(call(tw.sum, tw.from_dlpack(v)), v.sum())


@pytest.mark.parametrize("sine", [False, True])
def test_deep_graphs_and_their_gradients(transform, sine, mode):
    steps = 100 if sine else 1500 if mode[0] == "llvm" else 500

    def chain(x):
        for i in range(steps):
            x = tw.sin(x) if sine and i % 2 else x * 0.5 + 1.0
        return tw.sum(x)
    function, gradient = transform(chain), transform(tw.grad(chain))
    x = array([1.0])
    point = 1.0
    for i in range(steps):
        point = np.sin(point) if sine and i % 2 else point * 0.5 + 1.0
    for _ in range(4):
        np.testing.assert_allclose(function(x).item(), point, rtol=1e-5)
        assert gradient(x).item() == 0.0


def test_wide_concats(transform, mode):
    pieces = 1500 if mode[0] == "llvm" else 300

    def function(parts):
        c = tw.concat([p * 2 for p in parts], axis=1)
        return c, c.sum(), c[2, 77]
    parts = [array(np.full((4, 1), i)) for i in range(pieces)]
    traced = transform(function)
    for _ in range(4):
        c, total, one = traced(parts)
        assert c.shape == (4, pieces)
        assert total.item() == 4 * pieces * (pieces - 1)
        assert one.item() == 154
