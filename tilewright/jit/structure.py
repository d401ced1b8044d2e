"""Trees of arguments and results: what a value is made of, and how its leaves are reached.

    Structure := leaf | container(type; keys; Structure ..)

Containers are exactly ``tuple``, ``list``, ``dict``, ``collections.OrderedDict``, named tuples and
dataclasses; everything else is a leaf. A structure compares equal only to one of the same container
types and keys, in the same order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from tilewright.dtypes import DType


@dataclass(frozen=True)
class Structure:
    """One level of a tree: a container type with its keys, or a leaf (`type` is None)."""

    type: type | None
    keys: tuple
    children: tuple[Structure, ...]

    @property
    def leaves(self) -> int:
        """How many leaves the tree has."""
        return 1 if self.type is None else sum(child.leaves for child in self.children)


LEAF = Structure(None, (), ())


def is_namedtuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def is_container(kind: type) -> bool:
    """Tell whether values of exactly this type are walked into."""
    return kind in (tuple, list, dict, OrderedDict) or is_namedtuple(kind) or (
        is_dataclass(kind) and kind is not DType)


def container_keys(value: Any) -> tuple:
    """Return the keys of a container's children, in order: positions, dict keys or field names."""
    kind = type(value)
    if issubclass(kind, (tuple, list)):
        return tuple(range(len(value)))
    if kind in (dict, OrderedDict):
        return tuple(value)
    return tuple(field.name for field in fields(value))


def child(value: Any, key: Any) -> Any:
    """Return the child of a container at one of its keys."""
    return getattr(value, key) if is_dataclass(type(value)) else value[key]


def flatten(value: Any, stop: Callable[[Any], bool] | None = None) -> tuple[list, Structure]:
    """Return the leaves of `value`, left to right, and its structure.

    `stop` tells which containers are leaves all the same. Raises ValueError for a tree that
    contains itself. Recursion follows the nesting of the user's containers only.
    """
    leaves: list = []
    structure = _flatten(value, leaves, stop, ())
    return leaves, structure


def _flatten(value: Any, leaves: list, stop: Callable | None, above: tuple[int, ...]) -> Structure:
    kind = type(value)
    if not is_container(kind) or (stop is not None and stop(value)):
        leaves.append(value)
        return LEAF
    if id(value) in above:
        raise ValueError(f"tree: cannot flatten a {kind.__name__} that contains itself")
    above = (*above, id(value))
    keys = container_keys(value)
    return Structure(kind, keys, tuple(_flatten(child(value, k), leaves, stop, above)
                                       for k in keys))


def unflatten(structure: Structure, leaves: Sequence) -> Any:
    """Return the tree of `structure` that holds `leaves`, left to right."""
    return _unflatten(structure, iter(leaves))


def _unflatten(structure: Structure, leaves: Iterator) -> Any:
    if structure.type is None:
        return next(leaves)
    return assemble(structure.type, structure.keys,
                    [_unflatten(c, leaves) for c in structure.children])


def assemble(kind: type, keys: tuple, values: list) -> Any:
    """Return a container of type `kind` holding `values`; a dataclass is built without __init__."""
    if is_namedtuple(kind):
        return tuple.__new__(kind, values)
    if kind in (tuple, list):
        return kind(values)
    if kind in (dict, OrderedDict):
        return kind(zip(keys, values))
    result: Any = object.__new__(kind)
    for key, value in zip(keys, values):
        object.__setattr__(result, key, value)
    return result


def paths(structure: Structure, prefix: str = "") -> list[str]:
    """Return how each leaf is written after the name of the whole: ``[0]['w'].bias``."""
    if structure.type is None:
        return [prefix]
    dotted = is_dataclass(structure.type)
    return [path for key, below in zip(structure.keys, structure.children)
            for path in paths(below, f"{prefix}.{key}" if dotted else f"{prefix}[{key!r}]")]
