"""Places where Python keeps state.

    Place := root(object) | item(Place, key) | attribute(Place, name) | method(Place, name) | cell

A place is read with `get` and written with `put`; `expression` reads it in the source of a check;
`name` is what an error calls it. Places under containers are paths (a list replaced by an equal
one is the same state); places under other objects belong to that one object.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING: Any = _Missing()
Naming = Callable[[Any], str]  # gives an object a name in the source of a check


class Root:
    """An object that is the same in every call: a namespace, a class, a captured instance."""

    def __init__(self, key: Any, name: str):
        self.key, self.name = key, name

    def get(self) -> Any:
        return self.key

    def path(self) -> tuple:
        return (id(self.key),)

    def put(self, value: Any) -> None:
        raise TypeError(f"{self.name} is not a variable")

    hold = undo = put

    def expression(self, parent: str, naming: Naming) -> str:
        return naming(self.key)


class Place:
    """Where a value is found: under `key` of what `parent` holds."""

    def __init__(self, parent: Root | Place, key: Any, name: str):
        self.parent, self.key, self.name = parent, key, name

    def path(self) -> tuple:
        """Return what identifies the place as long as its root lives."""
        return (*self.parent.path(), type(self).__name__, self.key)

    def get(self) -> Any:
        """Return the value, or MISSING."""
        raise NotImplementedError

    def put(self, value: Any) -> None:
        """Assign as the user's code would; MISSING deletes."""
        raise NotImplementedError

    def hold(self, value: Any) -> None:
        """Replace the value where it is stored, for the duration of a trace."""
        self.put(value)

    def undo(self, value: Any) -> None:
        """Bring back the value that the place had at first."""
        self.put(value)

    def expression(self, parent: str, naming: Naming) -> str:
        """Return source that reads the place, given source of its parent."""
        raise NotImplementedError


class Item(Place):
    """An element of a dict, list, tuple or deque."""

    def get(self) -> Any:
        try:
            return self.parent.get()[self.key]
        except (KeyError, IndexError, TypeError):
            return MISSING

    def put(self, value: Any) -> None:
        container = self.parent.get()
        if value is MISSING:
            container.pop(self.key, None)
        else:
            container[self.key] = value

    def expression(self, parent: str, naming: Naming) -> str:
        key = repr(self.key) if type(self.key) in (int, str) else naming(self.key)
        return f"{parent}[{key}]"


class Attribute(Place):
    """Plain data under an attribute of an instance, a class or a module.

    `holder` is the class that stores it where the instance only inherits it.
    """

    def __init__(self, parent: Root, key: str, name: str, holder: Any = None):
        super().__init__(parent, key, name)
        self.holder = holder

    def get(self) -> Any:
        return getattr(self.parent.get(), self.key, MISSING)

    def put(self, value: Any) -> None:
        self._set(self.parent.get(), value)

    def hold(self, value: Any) -> None:
        self._set(self.parent.get() if self.holder is None else self.holder, value)

    def undo(self, value: Any) -> None:
        owner = self.parent.get()
        if self.holder is not None and self.holder is not owner:
            if self.key in getattr(owner, "__dict__", ()):
                self._set(owner, MISSING)
            self.hold(value)
        else:
            self.put(value)

    def _set(self, owner: Any, value: Any) -> None:
        if isinstance(owner, ModuleType):
            Item(Root(vars(owner), self.name), self.key, self.name).put(value)
            return
        base = type if isinstance(owner, type) else object
        if value is not MISSING:
            base.__setattr__(owner, self.key, value)
        elif getattr(owner, self.key, MISSING) is not MISSING:
            base.__delattr__(owner, self.key)

    def expression(self, parent: str, naming: Naming) -> str:
        return f"{parent}.{self.key}"


class Method(Place):
    """The function behind a bound method, as found through an instance."""

    def get(self) -> Any:
        return getattr(getattr(self.parent.get(), self.key, MISSING), "__func__", MISSING)

    def expression(self, parent: str, naming: Naming) -> str:
        return f"{parent}.{self.key}.__func__"


class Cell(Place):
    """A variable of an enclosing function; the parent's object is its cell."""

    def get(self) -> Any:
        try:
            return self.parent.get().cell_contents
        except ValueError:
            return MISSING

    def put(self, value: Any) -> None:
        if value is MISSING:
            del self.parent.get().cell_contents
        else:
            self.parent.get().cell_contents = value

    def expression(self, parent: str, naming: Naming) -> str:
        return f"{parent}.cell_contents"


def same_value(found: Any, expected: Any) -> bool:
    """Tell whether two plain values are the same: of one type and equal, floats by their bits."""
    if found is expected:
        return True
    kind = type(expected)
    if type(found) is not kind:
        return False
    if kind is float:
        return found.hex() == expected.hex()
    if kind in (tuple, list):
        return len(found) == len(expected) and all(map(same_value, found, expected))
    return bool(found == expected)


class Snapshot:
    """The contents of an array at one moment, to compare with later, bit for bit."""

    def __init__(self, value: Any):
        array = np.asarray(value)
        self.type = type(value)
        self.contents, self.dtype, self.shape = array.tobytes(), array.dtype, array.shape

    def same(self, found: Any) -> bool:
        """Tell whether `found` is an array of the same type, dtype, shape and contents."""
        if type(found) is not self.type:
            return False
        array = np.asarray(found)
        return (array.shape == self.shape and array.dtype == self.dtype
                and array.tobytes() == self.contents)
