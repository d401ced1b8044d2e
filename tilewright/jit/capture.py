"""Captured Python state: everything outside its arguments that a traced function reads.

While a function is traced, every Python code object that it enters is noted. Its globals, the
cells and defaults of its function, and, of every object reached from there, the attributes whose
names occur in any code entered, are *places* whose values become *facts*: a later call is like
this trace if all facts still hold. No value flow is followed: from the same places with the same
contents, the same function reads the same things (by induction over its reads), so checking the
places is enough.

    tensor     read anew at each call (a hidden input of the plan)
    float      by value; one that was seen to change is a hidden input too
    int, str, bool, None, enum, dtype ..   by value
    array      NumPy's, and what converts to one: by contents
    list, tuple, dict, deque   by type and length or keys; their elements are places
    set, bytearray   by value
    anything else    by identity; attributes of users' objects are places

Not followed, hence refused where it shows: iterators (reading one changes it), random generators
that are drawn from, and old tensors that were reached in none of these ways (out of a C container,
say). Not seen at all: plain values that C code keeps and hands out (``os.environ``, the clock,
context variables, what `functools.lru_cache` remembers); they are as they were when traced.
"""

from __future__ import annotations

import enum
import gc
import random
import sys
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import (
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any

import numpy as np

from tilewright.array.tensor import Tensor
from tilewright.dtypes import DType
from tilewright.errors import TraceError
from tilewright.jit.code import is_library_frame, is_library_module, is_opaque, names_of
from tilewright.jit.places import (
    MISSING,
    Attribute,
    Cell,
    Item,
    Method,
    Place,
    Root,
    Snapshot,
    same_value,
)
from tilewright.jit.structure import is_namedtuple

PLAIN = (int, bool, str, bytes, complex, type(None), type(Ellipsis), range, slice, frozenset)
CONTENTS = (set, bytearray)
MOST_PLACES = 20_000
_INNER = ("__wrapped__", "__func__", "__self__", "func", "fget", "args", "keywords")


@dataclass
class Fact:
    """What was found at a place: `kind` is tensor, float, value, array, container, same or absent.

    `expected` is the value to compare with: a Snapshot of an array, the keys of a container.
    """

    place: Place
    kind: str
    value: Any
    expected: Any
    backup: Any = None

    def undo(self) -> None:
        """Bring back the value, and the contents of one that was changed in place."""
        if self.place.get() is not self.value:
            self.place.undo(self.value)
        if isinstance(self.value, np.ndarray):
            saved = np.frombuffer(self.expected.contents, self.expected.dtype)
            self.value[...] = saved.reshape(self.expected.shape)
        elif self.backup is not None:
            self.value.clear()
            getattr(self.value, "update" if isinstance(self.value, (dict, set)) else "extend")(
                self.backup)

    def holds(self) -> bool:
        """Tell whether the place still holds what it held."""
        found = self.place.get()
        if self.kind in ("tensor", "same", "absent"):
            return found is self.value
        if self.kind == "array":
            return self.expected.same(found)
        if self.kind == "container":
            return type(found) is type(self.value) and container_keys(found) == self.expected
        return same_value(found, self.expected)


def container_keys(value: Any) -> tuple:
    """Return the keys of a captured container's elements."""
    return tuple(value) if isinstance(value, dict) else tuple(range(len(value)))


def _is_container(kind: type) -> bool:
    return kind in (list, tuple, dict, OrderedDict, deque) or is_namedtuple(kind) or (
        issubclass(kind, dict) and kind.__module__ == "collections")


class Capture:
    """Collects the facts about the state that a traced function reads.

    `function` names the traced function in errors; `seen_tensor(tensor, place)` is called with each
    tensor found, and tells whether it comes from outside the trace.
    """

    def __init__(self, function: str, seen_tensor: Callable[[Tensor, Place], bool]):
        self.function = function
        self.seen_tensor = seen_tensor
        self.facts: list[Fact] = []
        self.generators: list[tuple[str, Any, Any]] = []
        self._paths: set[tuple] = set()
        self._roots: dict[int, Root] = {}
        self._waiting: list[Place] = []
        self._attributes: set[str] = set()
        self._stored: set[str] = set()
        self._everything = False
        self.codes: dict[int, CodeType] = {}  # entered, by id: equal code may read other globals
        self._functions: dict[int, list[FunctionType]] = {}  # reached, by id of their code
        self._nested: set[int] = set()
        for name, module in (("random", random), ("numpy.random", np.random)):
            self._remember_generator(name, module)

    # entering code

    def enter(self, frame: FrameType) -> None:
        """Note the code of a frame that is entered, if it is a user's, before it reads anything."""
        code = frame.f_code
        self.codes[id(code)] = code
        if is_library_frame(frame):
            return
        names = names_of(code)
        self._nested.update(id(c) for c in code.co_consts if isinstance(c, CodeType))
        namespace = self._root(frame.f_globals, "global")
        ours = str(frame.f_globals.get("__name__")).startswith("tilewright.")
        for name in () if ours else names.variables | names.stored:
            if name in frame.f_globals or name in names.stored and name in names.variables:
                self._waiting.append(Item(namespace, name, f"global {name!r}"))
        for name in names.modules:
            if name in sys.modules:
                self.reach(sys.modules[name], f"module {name!r}")
        for function in self._functions_of(code):
            self._function(function)
        self._widen(names.attributes, names.stored, names.reflects)
        self._drain()

    def _functions_of(self, code: CodeType) -> list[FunctionType]:
        """Return the functions that may be running `code`."""
        if id(code) in self._functions or id(code) in self._nested or not code.co_freevars:
            return self._functions.get(id(code), [])
        return [f for f in gc.get_referrers(code) if isinstance(f, FunctionType)]

    def _function(self, function: FunctionType) -> None:
        root = self._root(function, function.__qualname__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            self._waiting.append(Cell(self._root(cell, name), None, f"closure variable {name!r}"))
        for defaults in ("__defaults__", "__kwdefaults__"):
            if getattr(function, defaults):
                self._waiting.append(Attribute(root, defaults, f"{root.name}.{defaults}"))

    def _widen(self, attributes: frozenset, stored: frozenset, everything: bool) -> None:
        """Take names into account that no code entered before has used."""
        fresh = attributes - self._attributes
        new = stored - self._stored
        self._attributes |= fresh
        self._stored |= new
        if everything and not self._everything:
            self._everything = True
            for root in list(self._roots.values()):
                self._all_attributes(root)
        for root in list(self._roots.values()):
            for name in fresh | new:
                self._attribute(root, name)

    # objects

    def _root(self, value: Any, name: str) -> Root:
        """Return the root of an object that is checked by identity."""
        root = self._roots.get(id(value))
        if root is None:
            root = self._roots[id(value)] = Root(value, name)
        return root

    def reach(self, value: Any, name: str) -> None:
        """Follow the attributes of an object that the traced function can get at."""
        if id(value) in self._roots and not isinstance(value, FunctionType):
            return
        if isinstance(value, FunctionType):
            known = self._functions.setdefault(id(value.__code__), [])
            if any(f is value for f in known):
                return
            known.append(value)
            if id(value.__code__) in self.codes and not is_opaque(value):
                self._function(value)
        root = self._root(value, name)
        if not isinstance(value, (type, ModuleType)) and is_library_module(type(value).__module__):
            self._waiting.extend(_Link(root, link, name) for link in _INNER
                                 if getattr(value, link, None) is not None)
        if not is_opaque(value):
            if isinstance(value, type):
                self._special_methods(root)
            elif not isinstance(value, (ModuleType, FunctionType)):
                self.reach(type(value), type(value).__qualname__)
            for attribute in self._attributes | self._stored:
                self._attribute(root, attribute)
            if self._everything:
                self._all_attributes(root)

    def _special_methods(self, root: Root) -> None:
        """Note the methods that operators and calls use without naming them."""
        for owner in root.key.__mro__:
            if not is_opaque(owner):
                for name, method in list(vars(owner).items()):
                    if name.startswith("__") and isinstance(method, FunctionType):
                        self._waiting.append(Attribute(root, name, f"{root.name}.{name}"))

    def _all_attributes(self, root: Root) -> None:
        if is_opaque(root.key) or isinstance(root.key, (ModuleType, dict)):
            return
        members = getattr(root.key, "__dict__", None)
        if members is not None and not isinstance(root.key, type):
            self._waiting.append(_Members(root, "__dict__", f"{root.name}.__dict__"))
        for name in list(members or ()):
            if not (name.startswith("__") and name.endswith("__")):
                self._attribute(root, name)

    def _attribute(self, root: Root, name: str) -> None:
        """Note the place of an attribute, if the object has it as data or as a method."""
        value, label = root.key, f"{root.name}.{name}"
        if is_opaque(value) or type(value) is dict:
            return
        if isinstance(value, ModuleType):
            if name in vars(value) or name in self._stored:
                self._waiting.append(Attribute(root, name, label))
            return
        is_class = isinstance(value, type)
        mro = value.__mro__ if is_class else type(value).__mro__
        owner = next((c for c in mro if name in c.__dict__), None)
        raw = MISSING if owner is None else owner.__dict__[name]
        own = not is_class and name in getattr(value, "__dict__", ())
        if isinstance(raw, (MemberDescriptorType, GetSetDescriptorType)):
            if isinstance(raw, MemberDescriptorType) and not is_class:
                self._waiting.append(Attribute(root, name, label))
        elif own and not hasattr(type(raw), "__set__"):
            self._waiting.append(Attribute(root, name, label))
        elif owner is None:
            if name in self._stored and hasattr(value, "__dict__"):
                self._waiting.append(Attribute(root, name, label))
        elif is_opaque(owner) or owner is object:
            return
        elif isinstance(raw, FunctionType) and not is_class or isinstance(raw, classmethod):
            self._waiting.append(Method(root, name, label))
        elif hasattr(type(raw), "__get__") and not isinstance(raw, staticmethod):
            holder = root if is_class else self._root(type(value), type(value).__qualname__)
            self._waiting.append(Attribute(holder, name, label))
        else:
            self._waiting.append(Attribute(root, name, label, holder=owner))

    # values

    def start(self, place: Place | Root) -> None:
        """Note a place and all that is reached from it."""
        if isinstance(place, Root):
            self.reach(place.key, place.name)
        else:
            self._waiting.append(place)
        self._drain()

    def _drain(self) -> None:
        while self._waiting:
            place = self._waiting.pop()
            path = place.path()
            if path in self._paths:
                continue
            self._paths.add(path)
            if len(self._paths) > MOST_PLACES:
                raise TraceError(
                    f"jit: cannot watch the state that {self.function} reads (more than "
                    f"{MOST_PLACES} values, now at {place.name}; pass it as an argument)")
            if isinstance(place, _Link) and not _is_container(type(place.get())):
                self.reach(place.get(), place.name)
            else:
                self._note(place, place.get())

    def _note(self, place: Place, value: Any) -> None:
        kind = type(value)
        if value is MISSING:
            if not isinstance(place, Cell):
                self.facts.append(Fact(place, "absent", MISSING, MISSING))
        elif kind is Tensor:
            if self.seen_tensor(value, place):
                self.facts.append(Fact(place, "tensor", value, value))
        elif kind is float:
            self.facts.append(Fact(place, "float", value, value))
        elif kind in PLAIN or isinstance(value, (enum.Enum, np.generic, np.dtype, DType)):
            self.facts.append(Fact(place, "value", value, value))
        elif isinstance(value, (array, memoryview)) or (
                hasattr(kind, "__array__") and not isinstance(value, type)):
            self.facts.append(Fact(place, "array", value, Snapshot(value)))
        elif kind in CONTENTS:
            self.facts.append(Fact(place, "value", value, kind(value), kind(value)))
        elif _is_container(kind):
            self._container(place, value)
        else:
            self._object(place, value)

    def _container(self, place: Place, value: Any) -> None:
        above: Any = place.parent
        while above is not None:
            if above.get() is value:
                raise TraceError(f"jit: cannot watch {place.name} (a {type(value).__name__} that "
                                 "contains itself; pass what is needed as an argument)")
            above = getattr(above, "parent", None)
        keys = container_keys(value)
        backup = None if isinstance(value, tuple) else value.copy()
        self.facts.append(Fact(place, "container", value, keys, backup))
        # elements are popped from a stack: reversed, so that they are noted in order
        self._waiting.extend(Item(place, key, f"{place.name}[{key!r}]") for key in reversed(keys))

    def _object(self, place: Place, value: Any) -> None:
        if isinstance(value, Iterator) and not is_opaque(value):
            raise TraceError(
                f"jit: cannot capture {place.name} in {self.function} (a {type(value).__name__} "
                "changes when it is read; pass its values as arguments)")
        self.facts.append(Fact(place, "same", value, value))
        self._remember_generator(place.name, value)
        self.reach(value, place.name)

    # generators of random numbers outside this package

    def _remember_generator(self, name: str, value: Any) -> None:
        if value is random or isinstance(value, random.Random):
            self.generators.append((name, value.getstate, value.getstate()))
        elif value is np.random or isinstance(value, np.random.RandomState):
            self.generators.append((name, value.get_state, value.get_state()))
        elif isinstance(value, np.random.Generator):
            bits = value.bit_generator
            self.generators.append((name, lambda: bits.state, bits.state))

    def check_generators(self) -> None:
        """Raise TraceError if a generator that is not ours was drawn from since it was found."""
        for name, state, before in self.generators:
            if not _same_state(state(), before):
                raise TraceError(
                    f"jit: cannot draw from {name} in {self.function} (the numbers would be those "
                    "of the first call for ever; use tilewright.random, or pass them as arguments)")


def _same_state(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return all(_same_state(a[k], b[k]) for k in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_same_state, a, b))
    return bool(np.array_equal(a, b))


class _Link(Attribute):
    """The function or object inside a wrapper; fixed when the wrapper was made."""


class _Members(Attribute):
    """The names of an instance's attributes, where code may look for any."""

    def get(self) -> Any:
        return frozenset(vars(self.parent.get()))

    def expression(self, parent: str, naming: Callable) -> str:
        return f"frozenset({parent}.__dict__)"

    def undo(self, value: Any) -> None:
        """Remove new names; attributes that were there are places of their own."""
        members = vars(self.parent.get())
        for name in set(members) - value:
            del members[name]
