"""jit against eager over random histories of changes to everything that a function may read."""

import types

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw

FLAG = True


class Part:
    gain = 1.0

    def __init__(self, value):
        self.weight = tw.asarray([value])
        self.power = 1

    def __call__(self, x):
        return x ** self.power * self.weight * self.gain


def plus(self, x):
    return x + self.weight


class World:
    """State of many kinds, the function that reads it, and changes to it by number."""

    def __init__(self):
        self.part_class = type("LocalPart", (Part,), {})
        self.parts = [self.part_class(1.0), self.part_class(2.0)]
        self.table = {"bias": 1, "scale": tw.asarray([0.5])}
        self.array = np.array([1.0], np.float32)
        self.space = types.SimpleNamespace(rate=2.0, deep=types.SimpleNamespace(flag=False))
        self.counter = 0
        offset = 3

        def shift(value):
            nonlocal offset
            offset = value

        def function(x, n):
            for part in self.parts:
                x = part(x)
            if self.space.deep.flag:
                x = x + self.table["bias"]
            x[0] = x[0] + self.array[0]
            self.table["scale"] = self.table["scale"] + 1.0
            return x * self.space.rate * self.table["scale"] + offset * n
        self.shift, self.function = shift, function
        self.jitted = tw.jit(function)

    def change(self, which, value):
        part = self.parts[value % len(self.parts)]
        actions = [
            lambda: None,
            lambda: setattr(part, "power", 1 + value % 3),
            lambda: setattr(part, "gain", value / 2),
            lambda: setattr(self.part_class, "gain", value / 4),
            lambda: setattr(part, "weight", tw.asarray([float(value)])),
            lambda: part.weight.__setitem__(0, value / 8),
            lambda: self.parts.reverse(),
            lambda: self.parts.append(part) if len(self.parts) < 4 else self.parts.pop(),
            lambda: self.table.update(bias=value if value % 2 else value / 2),
            lambda: self.array.__setitem__(0, value),
            lambda: setattr(self.space, "rate", value / 2),
            lambda: setattr(self.space.deep, "flag", bool(value % 2)),
            lambda: setattr(self.space, "deep", types.SimpleNamespace(flag=bool(value % 2))),
            lambda: self.shift(value),
            lambda: setattr(self, "counter", value),
            lambda: setattr(self.part_class, "__call__", plus if value % 2 else Part.__call__),
        ]
        actions[which % len(actions)]()


CHANGES = st.tuples(st.integers(0, 15), st.integers(0, 5))


@given(st.lists(CHANGES, max_size=10), st.booleans())
def test_any_history_is_as_eager(history, integer):
    eager, jitted = World(), World()
    for which, value in [(0, 0), *history]:
        eager.change(which, value)
        jitted.change(which, value)
        x = tw.asarray([0.5, 1.5])
        n = value if integer else float(value)
        expected, found = eager.function(x, n), jitted.jitted(x, n)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)
        assert jitted.table["scale"].item() == eager.table["scale"].item()
        assert type(jitted.space.rate) is float
    assert jitted.jitted.trace_count <= 1 + len(history)
