"""The arguments of one call of a compiled function: leaves, structure, static and donated ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.array.tensor import Tensor
from tilewright.errors import DTypeError, TraceError
from tilewright.jit.structure import LEAF, Structure, flatten, paths
from tilewright.jit.trace import NUMBER_DTYPES, array_dtype


@dataclass(frozen=True)
class Options:
    """What `jit` was told about arguments: positions and names, each completed from the other.

    name     of the function, for errors
    method   the first argument is the instance: it counts by identity
    """

    name: str
    numbers: frozenset[int]
    names: frozenset[str]
    donated: frozenset[int]
    method: bool = False


def _sequence(value: Any) -> tuple:
    return (value,) if isinstance(value, (int, str)) else tuple(value)


def options(function: Callable, numbers: Any, names: Any, donated: Any, name: str) -> Options:
    """Check and complete the options of `jit`; raises TraceError for unknown arguments."""
    numbers, names = set(_sequence(numbers)), set(_sequence(names))
    given = frozenset(_sequence(donated))
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a callable that does not tell
        return Options(name, frozenset(numbers), frozenset(names), given)
    kinds = {p.kind for p in parameters}
    listed = [p.name for p in parameters]
    positional = [p.name for p in parameters
                  if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    count = len(positional)
    for wanted in sorted(names - set(listed)):
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            raise TraceError(f"jit: cannot make argument {wanted!r} of {name} static "
                             f"(it has {', '.join(listed) or 'no arguments'})")
    for number in sorted(numbers | given):
        if not -count <= number < count and inspect.Parameter.VAR_POSITIONAL not in kinds:
            raise TraceError(f"jit: cannot make argument {number} of {name} static or donated "
                             f"(it has {count} positional arguments)")
    numbers |= {positional.index(n) for n in names if n in positional}
    names |= {positional[n] for n in numbers if -count <= n < count}
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        numbers, given = {n % count for n in numbers}, frozenset(n % count for n in given)
    return Options(name, frozenset(numbers), frozenset(names), given)


def _positions(numbers: Iterable[int], count: int) -> set[int]:
    return {n % count for n in numbers if -count <= n < count}


class Signature:
    """One call's arguments.

    leaves      left to right, positional arguments first
    structure   of (args, kwargs)
    static      leaf numbers that are part of the signature by value (by identity for an instance)
    donated     leaf numbers whose tensors may not be used afterwards

    Raises TraceError, naming the argument, for what cannot be traced.
    """

    def __init__(self, options: Options, args: tuple, kwargs: dict):
        self.options = options
        self.leaves: list = []
        self.static: set[int] = set()
        self.donated: set[int] = set()
        instance = options.method and bool(args) and not isinstance(
            args[0], (Tensor, np.ndarray, np.generic, bool, int, float, tuple, list, dict))
        static = _positions(options.numbers, len(args)) | ({0} if instance else set())
        donated = _positions(options.donated, len(args))
        parts = [self._add(v, f"argument {i}", i in static, i in donated, instance and i == 0)
                 for i, v in enumerate(args)]
        named = [self._add(v, f"argument {k!r}", k in options.names, False, False)
                 for k, v in kwargs.items()]
        self.structure = Structure(tuple, (0, 1), (
            Structure(tuple, tuple(range(len(args))), tuple(parts)),
            Structure(dict, tuple(kwargs), tuple(named))))

    def _add(self, value: Any, label: str, static: bool, donated: bool,
             instance: bool) -> Structure:
        first = len(self.leaves)
        if static:
            if not instance:
                self._check_static(value, label)
            self.static.add(first)
            self.leaves.append(value)
            return LEAF
        try:
            leaves, structure = flatten(value)
        except ValueError as error:
            raise self._refuse(label, str(error)) from None
        for leaf, path in zip(leaves, paths(structure)):
            if leaf is None:
                self.static.add(len(self.leaves))
            else:
                self._check(leaf, label + path)
            self.leaves.append(leaf)
        if donated:
            self.donated.update(range(first, len(self.leaves)))
        return structure

    def _refuse(self, label: str, reason: str) -> TraceError:
        return TraceError(f"jit: cannot call {self.options.name} with {label} ({reason})")

    def _check_static(self, value: Any, label: str) -> None:
        if isinstance(value, (Tensor, np.ndarray)):
            raise self._refuse(label, f"a static {type(value).__name__}: its values may change; do "
                               "not mark it static")
        try:
            hash(value)
        except TypeError:
            raise self._refuse(label, f"static, but {type(value).__name__} is not hashable"
                               ) from None

    def _check(self, value: Any, label: str) -> None:
        if type(value) is Tensor:
            value.shape  # noqa: B018  raises where it was donated
        elif isinstance(value, (np.ndarray, np.generic)):
            try:
                array_dtype(np.asarray(value))
            except DTypeError as error:
                raise self._refuse(label, str(error)) from None
        elif type(value) not in NUMBER_DTYPES:
            raise self._refuse(label, f"a {type(value).__name__}; needs tensors, NumPy arrays, "
                               "numbers, None, and tuples, lists, dicts and dataclasses of them; "
                               "mark others with static_argnums or static_argnames")
        elif type(value) is int and not -2**63 <= value < 2**63:
            raise self._refuse(label, f"{value} needs more than 64 bits; mark it static")

    def static_values(self) -> Sequence[Any]:
        """Return the static arguments."""
        return [self.leaves[i] for i in sorted(self.static)]
