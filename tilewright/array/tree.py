"""Trees: any nesting of tuples, named tuples, lists, dicts and None, with leaves of other types.

    leaves, structure = flatten(tree)
    tree = unflatten(structure, leaves)

Dicts are taken in the order of their sorted keys (insertion order where keys do not sort). A
structure is hashable and compares equal for trees of one form. None is a tree without leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.errors import ShapeError


@dataclass(frozen=True)
class Structure:
    """The form of a tree: `kind` is None for a leaf, else the type of the container.

    keys      of a dict, in order; empty otherwise
    children  structures of the contents
    """

    kind: type | None
    keys: tuple = ()
    children: tuple[Structure, ...] = ()

    @property
    def leaf_count(self) -> int:
        """Number of leaves."""
        return 1 if self.kind is None else sum(c.leaf_count for c in self.children)

    def __str__(self) -> str:
        if self.kind is None:
            return "*"
        if self.kind is type(None):
            return "None"
        parts = [str(c) for c in self.children]
        if issubclass(self.kind, dict):
            return "{" + ", ".join(f"{k!r}: {p}" for k, p in zip(self.keys, parts)) + "}"
        opening, closing = ("[", "]") if issubclass(self.kind, list) else ("(", ")")
        return f"{opening}{', '.join(parts)}{closing}"


LEAF = Structure(None)


def _ordered_keys(tree: dict) -> tuple:
    try:
        return tuple(sorted(tree))
    except TypeError:
        return tuple(tree)


def _flatten(tree: Any, leaves: list) -> Structure:
    if tree is None:
        return Structure(type(None))
    if isinstance(tree, dict):
        keys = _ordered_keys(tree)
        return Structure(type(tree), keys, tuple(_flatten(tree[k], leaves) for k in keys))
    if isinstance(tree, (tuple, list)):
        return Structure(type(tree), (), tuple(_flatten(t, leaves) for t in tree))
    leaves.append(tree)
    return LEAF


def flatten(tree: Any) -> tuple[list, Structure]:
    """Return the leaves of `tree`, in order, and its structure."""
    leaves: list = []
    structure = _flatten(tree, leaves)
    return leaves, structure


def _unflatten(structure: Structure, leaves: Iterator) -> Any:
    kind: Any = structure.kind
    if kind is None:
        return next(leaves)
    if kind is type(None):
        return None
    parts = [_unflatten(child, leaves) for child in structure.children]
    if issubclass(kind, dict):
        result = kind()
        result.update(zip(structure.keys, parts))
        return result
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def unflatten(structure: Structure, leaves: Sequence) -> Any:
    """Return the tree of `structure` with `leaves`; raises ShapeError if their number differs."""
    if len(leaves) != structure.leaf_count:
        raise ShapeError(f"tree: cannot build {structure} from {len(leaves)} leaves "
                         f"(it has {structure.leaf_count})")
    return _unflatten(structure, iter(leaves))


def leaves_of(tree: Any) -> list:
    """Return the leaves of `tree`, in order."""
    return flatten(tree)[0]


def map_tree(function: Callable, tree: Any, *others: Any) -> Any:
    """Return the tree of function(leaf, other leaves..); all trees must have one structure."""
    leaves, structure = flatten(tree)
    columns = [leaves]
    for other in others:
        more, form = flatten(other)
        if form != structure:
            raise ShapeError(f"tree: cannot map over {structure} and {form} (structures differ)")
        columns.append(more)
    return unflatten(structure, [function(*row) for row in zip(*columns)])
