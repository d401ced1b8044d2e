"""jit and state that cannot be honoured: refused by name, everything left as it was."""

import contextvars
import functools
import random
import types

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import TraceError


def tensor(*values):
    return tw.asarray(list(values), dtype=tw.float32)


class Model:
    def __init__(self):
        self.weight = tensor(2.0)
        self.hidden = None


def test_state_that_changes_in_the_function_is_refused_by_name():
    class Counter:
        count = 0
    counter = Counter()
    counter.history = []
    calls = 0

    def count_up(x):
        counter.count += 1
        return x

    def append(x):
        counter.history.append(1)
        return x

    def variable(x):
        nonlocal calls
        calls += 1
        return x

    def keep(x):
        counter.history.append(x * 1)
        return x
    for function, name in ((count_up, r"counter.*count"), (append, "history"),
                           (variable, "'calls'"), (keep, "history")):
        with pytest.raises(TraceError, match=f"jit: cannot change .*{name}.* in "):
            tw.jit(function)(tensor(1.0))
        assert counter.count == 0 and counter.history == [] and calls == 0
        assert "count" not in vars(counter)


def test_iterators_and_foreign_random_numbers_are_refused_by_name():
    numbers = iter([1, 2, 3])
    generator = np.random.default_rng(0)
    cases = [(lambda x: x * next(numbers), "closure variable 'numbers'.*list_iterator"),
             (lambda x: x * random.random(), "draw from random"),
             (lambda x: x * float(np.random.rand()), "draw from numpy.random"),
             (lambda x: x * generator.normal(), "draw from closure variable 'generator'"),
             (lambda x: (tw.random.seed(1), x)[1], "cannot seed the global generator")]
    for function, message in cases:
        with pytest.raises(TraceError, match=message):
            tw.jit(function)(tensor(1.0))


def test_tensors_out_of_reach_are_refused():
    hidden = {0: tensor(1.0)}
    reach = functools.lru_cache(lambda: hidden[0])
    reach()  # from now on the tensor comes out of the cache, without any code that could be watched
    with pytest.raises(TraceError, match="cannot follow how .* reaches a tensor float32"):
        tw.jit(lambda x: x + reach())(tensor(1.0))


def test_values_that_escape_a_trace_are_refused():
    escaped = contextvars.ContextVar("escaped")

    def escape(x):
        escaped.set(x * 2)
        return x
    tw.jit(escape)(tensor(1.0))
    with pytest.raises(TraceError):
        escaped.get().item()
    with pytest.raises(TraceError, match="kept from another trace"):
        tw.jit(lambda x: x + escaped.get())(tensor(1.0))
    kept = types.SimpleNamespace(value=escaped.get())
    with pytest.raises(TraceError, match=r"cannot use closure variable 'kept'.value"):
        tw.jit(lambda x: x + kept.value)(tensor(1.0))
    other = types.SimpleNamespace()
    with pytest.raises(TraceError, match="cannot change closure variable 'other'"):
        tw.jit(lambda x: vars(other).update(late=x * 2))(tensor(1.0))
    assert vars(other) == {}


def test_exceptions_leave_everything_usable():
    state = Model()
    x = tensor(1.0)

    def f(x, fail):
        state.hidden = x * 2
        state.weight[...] = x
        x[0] = 7
        if fail:
            raise KeyError("on purpose")
        return state.weight * 1
    g = tw.jit(f)
    for _ in range(2):
        with pytest.raises(KeyError, match="on purpose"):
            g(x, True)
        assert x.tolist() == [1] and state.weight.tolist() == [2]
    assert g(x, False).item() == 1
    assert x.tolist() == [7] and state.hidden.item() == 2
    tw.random.seed(3)
    assert (x + tw.random.rand(1)).item() > 7


def test_many_values_reached_are_refused_by_name():
    table = [[float(i)] for i in range(30_000)]
    with pytest.raises(TraceError, match="closure variable 'table'.*pass it as an argument"):
        tw.jit(lambda x: x * table[0][0])(tensor(1.0))
