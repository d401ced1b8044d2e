"""jit and captured Python state: what changes is honoured, or refused by name."""

import array
import collections
import enum
import functools
import math
import types

import numpy as np
import pytest

import tilewright as tw

SCALE = 2
RATE = 0.5
WEIGHT = tw.asarray([1.0, 2.0])
PARAMETERS = {"w": tw.asarray([1.0]), "layers": [tw.asarray([2.0])]}
SETTINGS = types.SimpleNamespace(rate=1.0, nested=types.SimpleNamespace(power=2))
settings = types.ModuleType("settings_of_a_test")


class Mode(enum.Enum):
    DOUBLE = 2
    TRIPLE = 3


def tensor(*values):
    return tw.asarray(list(values), dtype=tw.float32)


def helper(x):
    return x + SCALE


def test_a_captured_float_that_changes_becomes_an_input():
    class S:
        k = 1.0
    f = tw.jit(lambda x: x * S.k)
    out = []
    for v in (1.0, 1.0, 1.0, 10.0, 20.0, 30.0):
        S.k = v
        out.append(f(tensor(4.0)).item())
    assert out == [4, 4, 4, 40, 80, 120]
    assert f.trace_count == 2 and S.k == 30.0 and type(S.k) is float


def test_a_changing_float_that_is_needed_as_a_float():
    class S:
        k = 1.0
    f = tw.jit(lambda x: x * math.sqrt(S.k) * len(f"{S.k:.1f}"))
    for v in (1.0, 4.0, 9.0, 4.0):
        S.k = v
        assert f(tensor(1.0)).item() == math.sqrt(v) * 3
    g = tw.jit(lambda x: x * (S.k if isinstance(S.k, float) else None))
    for v in (1.0, 4.0, 9.0):
        S.k = v
        assert g(tensor(1.0)).item() == v


@pytest.mark.parametrize("value", [3, True, -1, 2.5])
def test_globals_of_entered_functions(monkeypatch, value):
    f = tw.jit(lambda x: helper(x) * 10)
    assert f(tensor(1.0)).item() == 30
    monkeypatch.setitem(globals(), "SCALE", value)
    assert f(tensor(1.0)).item() == (1 + value) * 10
    monkeypatch.undo()
    assert f(tensor(1.0)).item() == 30 and f.trace_count == 2


def test_a_function_that_is_replaced(monkeypatch):
    f = tw.jit(lambda x: helper(x))
    assert f(tensor(1.0)).item() == 3
    monkeypatch.setitem(globals(), "helper", lambda x: x * 100)
    assert f(tensor(1.0)).item() == 100


def test_closures_defaults_and_partials():
    n, factor = 2, 3.0

    def inner(x, k=[5]):  # noqa: B006
        return x * n + k[0]

    def outer(x):
        return inner(x) * factor
    f = tw.jit(outer)
    assert f(tensor(1.0)).item() == 21
    n = 4
    assert f(tensor(1.0)).item() == 27
    factor = 1.0
    assert f(tensor(1.0)).item() == 9
    inner.__defaults__[0][0] = 6
    assert f(tensor(1.0)).item() == 10
    inner.__defaults__ = ([1],)
    assert f(tensor(1.0)).item() == 5
    options = {"k": 2}
    g = tw.jit(functools.partial(lambda x, c, k: x * c["k"] + k, c=options, k=1))
    assert g(tensor(3.0)).item() == 7
    options["k"] = 5
    assert g(tensor(3.0)).item() == 16


def test_functions_made_in_the_function_and_decorated_ones():
    power = [2]

    def decorated(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args) + power[0]
        return wrapper

    @decorated
    def g(x):
        def local(y):
            return y ** power[0]
        return local(x) + sum(v * power[0] for v in [x, x])
    f = tw.jit(g)
    assert f(tensor(3.0)).item() == 9 + 12 + 2
    power[0] = 3
    assert f(tensor(3.0)).item() == 27 + 18 + 3


def test_attribute_chains_locals_and_modules():
    settings.depth = 2

    def f(x):
        part = SETTINGS.nested
        return x ** part.power * settings.depth * SETTINGS.rate
    g = tw.jit(f)
    assert g(tensor(3.0)).item() == 18
    SETTINGS.nested.power = 1
    assert g(tensor(3.0)).item() == 6
    settings.depth = 5
    assert g(tensor(3.0)).item() == 15
    SETTINGS.rate = 2.0
    assert g(tensor(3.0)).item() == 30
    SETTINGS.nested = types.SimpleNamespace(power=2)
    assert g(tensor(3.0)).item() == 90


def test_reflection_sees_every_attribute():
    class C:
        pass
    c = C()
    c.a, c.b = 1, 2
    f = tw.jit(lambda x: x * getattr(c, "a", 1) + sum(vars(c).values()))
    assert f(tensor(1.0)).item() == 4
    c.b = 5
    assert f(tensor(1.0)).item() == 7
    c.d = 10
    assert f(tensor(1.0)).item() == 17


def test_lists_dicts_sets_and_deques():
    numbers, table, chosen = [1, 2], {"a": 1}, {1}
    recent = collections.deque([1], maxlen=3)
    f = tw.jit(lambda x: x * sum(numbers) + sum(table.values()) + len(chosen) + sum(recent))
    assert f(tensor(1.0)).item() == 3 + 1 + 1 + 1
    numbers.append(3)
    assert f(tensor(1.0)).item() == 6 + 3
    numbers[0] = 5
    assert f(tensor(1.0)).item() == 10 + 3
    table["b"] = 10
    assert f(tensor(1.0)).item() == 10 + 13
    chosen.add(7)
    assert f(tensor(1.0)).item() == 10 + 14
    recent.append(2)
    assert f(tensor(1.0)).item() == 10 + 16
    assert f(tensor(1.0)).item() == 10 + 16 and f.trace_count == 6


def test_values_are_compared_with_their_types():
    box = [1]
    f = tw.jit(lambda x: x * box[0])
    x = tw.asarray([3], dtype=tw.int32)
    results = []
    for v in (1, True, 1.0, 1):
        box[0] = v
        results.append(f(x).dtype)
    assert results == [(x * v).dtype for v in (1, True, 1.0, 1)]


def test_enums_tuples_strings_and_none():
    state = types.SimpleNamespace(mode=Mode.DOUBLE, shape=(1, 2), name="a", extra=None)

    def f(x):
        y = x * state.mode.value + sum(state.shape)
        return y if state.extra is None else y + len(state.name)
    g = tw.jit(f)
    assert g(tensor(1.0)).item() == 5
    state.mode = Mode.TRIPLE
    assert g(tensor(1.0)).item() == 6
    state.shape = (1, 3)
    assert g(tensor(1.0)).item() == 7
    state.extra, state.name = 1, "abc"
    assert g(tensor(1.0)).item() == 10


def test_captured_tensors_are_read_anew(monkeypatch):
    f = tw.jit(lambda x: x * WEIGHT + PARAMETERS["w"] + PARAMETERS["layers"][0])
    assert f(tensor(1.0, 1.0)).tolist() == [4, 5]
    WEIGHT[0] = 10
    assert f(tensor(1.0, 1.0)).tolist() == [13, 5]
    monkeypatch.setitem(globals(), "WEIGHT", tensor(0.0, 0.0))
    assert f(tensor(1.0, 1.0)).tolist() == [3, 3]
    PARAMETERS["layers"] = [tensor(7.0)]
    assert f(tensor(1.0, 1.0)).tolist() == [8, 8]
    monkeypatch.setitem(globals(), "PARAMETERS", {"w": tensor(0.0), "layers": [tensor(0.0)]})
    assert f(tensor(1.0, 1.0)).tolist() == [0, 0] and f.trace_count == 1
    monkeypatch.setitem(globals(), "WEIGHT", tw.asarray([[1.0], [2.0]]))
    assert f(tensor(1.0, 1.0)).tolist() == [[1, 1], [2, 2]] and f.trace_count == 2


def test_captured_arrays_are_compared_by_contents():
    table = np.array([1.0, np.nan], np.float32)
    f = tw.jit(lambda x: x + table)
    assert f(tensor(1.0, 1.0)).tolist()[0] == 2
    assert f(tensor(1.0, 1.0)).shape == (2,) and f.trace_count == 1
    table[0] = 5
    assert f(tensor(1.0, 1.0)).tolist()[0] == 6


def test_objects_in_lists_and_inherited_attributes():
    class Base:
        gain = 2

        @property
        def total(self):
            return self.gain + self.offset

    class Child(Base):
        __slots__ = ("offset",)

        def __init__(self, offset):
            self.offset = offset

        def __call__(self, x):
            return x * self.total

        @staticmethod
        def shift():
            return 1

        @classmethod
        def twice(cls):
            return cls.gain * 2
    parts = [Child(1), Child(2)]

    def f(x):
        for part in parts:
            x = part(x) + part.shift() + part.twice()
        return x
    g = tw.jit(f)
    x = tensor(1.0)
    changes = [lambda: None, lambda: setattr(parts[1], "offset", 5),
               lambda: setattr(parts[0], "gain", 7), lambda: setattr(Base, "gain", 3),
               lambda: parts.append(Child(0)),
               lambda: setattr(Child, "shift", staticmethod(lambda: 2)),
               lambda: setattr(Base, "total", property(lambda self: 1)),
               lambda: setattr(Child, "__call__", lambda self, x: x)]
    for change in changes:
        change()
        assert g(x).item() == f(x).item()
    assert g.trace_count == len(changes)


class Model:
    def __init__(self):
        self.weight = tensor(2.0)
        self.times = 1
        self.hidden = None

    @tw.jit
    def apply(self, x):
        return x * self.weight * self.times

    @tw.jit
    def step(self, x):
        self.hidden = x if self.hidden is None else self.hidden + x
        self.weight[...] = self.weight * 2
        return self.hidden * 1


def test_methods_read_their_instance():
    a, b = Model(), Model()
    b.times = 5
    assert a.apply(tensor(1.0)).item() == 2 and b.apply(tensor(1.0)).item() == 10
    a.times = 3
    a.weight = tensor(4.0)
    assert a.apply(tensor(1.0)).item() == 12 and b.apply(tensor(1.0)).item() == 10
    assert Model.apply(a, tensor(2.0)).item() == 24
    count = Model.apply.trace_count
    a.weight += 1
    assert a.apply(tensor(1.0)).item() == 15 and Model.apply.trace_count == count
    assert a.apply.compile(tensor(1.0)).plan is not None
    bound = tw.jit(a.apply)
    assert bound(tensor(1.0)).item() == 15


def test_class_methods_and_functions_in_classes():
    class C:
        gain = 2
        plain = tw.jit(lambda x: x + 1)

        @classmethod
        @tw.jit
        def scaled(cls, x):
            return x * cls.gain

        @staticmethod
        @tw.jit
        def shifted(x):
            return x + C.gain
    x = tensor(1.0)
    assert C.plain(x).item() == 2 and C.shifted(x).item() == C().shifted(x).item() == 3
    assert C.scaled(x).item() == C().scaled(x).item() == 2
    C.gain = 3
    assert C.scaled(x).item() == 3 and C.shifted(x).item() == 4


def test_arrays_of_other_kinds_are_compared_by_contents():
    numbers = array.array("d", [1.0, 2.0])

    class Wrapped:
        def __init__(self):
            self.data = np.ones(2, np.float32)

        def __array__(self, dtype=None, copy=None):
            return self.data
    wrapped = Wrapped()
    f = tw.jit(lambda x: x * sum(numbers) + np.asarray(wrapped))
    assert f(tensor(1.0, 1.0)).tolist() == [4, 4]
    numbers[0] = 2.0
    assert f(tensor(1.0, 1.0)).tolist() == [5, 5]
    wrapped.data[0] = 0
    assert f(tensor(1.0, 1.0)).tolist() == [4, 5]


def test_tensors_assigned_to_captured_variables():
    m, plain = Model(), Model()
    for i in range(4):
        out = m.step(tensor(float(i)))
        assert out.item() == Model.step.__wrapped__(plain, tensor(float(i))).item()
        assert m.hidden.item() == plain.hidden.item() == sum(range(i + 1))
        assert m.weight.item() == plain.weight.item() == 2.0 ** (i + 2)
    assert Model.step.trace_count == 2  # without and with a hidden state

    total = tensor(0.0)

    @tw.jit
    def add(x):
        nonlocal total
        total = total + x
    for _ in range(3):
        add(tensor(2.0))
    assert total.item() == 6 and add.trace_count == 1


def test_writes_to_captured_tensors():
    log = tw.zeros(3)

    @tw.jit
    def f(x, i):
        log[i] = x
        return log.sum()
    assert [f(tensor(1.0)[0], i).item() for i in range(3)] == [1, 2, 3]
    assert log.tolist() == [1, 1, 1]


def test_an_argument_that_is_also_captured():
    w = tensor(1.0)

    @tw.jit
    def f(x):
        x[0] = 5
        return w * 1
    assert f(w).item() == 5 and w.item() == 5
    assert f(tensor(1.0)).item() == 5
    w = tensor(2.0)
    assert f(tensor(1.0)).item() == 2


def test_state_that_settles_is_fine():
    class Lazy:
        table = None

        def get(self):
            if self.table is None:
                self.table = [1, 2, 3]
            return self.table
    lazy, cache = Lazy(), {}

    def f(x):
        if "k" not in cache:
            cache["k"] = 10
        return x * sum(lazy.get()) + cache["k"]
    g = tw.jit(f)
    assert g(tensor(1.0)).item() == 16
    lazy.table[0] = 2
    assert g(tensor(1.0)).item() == 17
