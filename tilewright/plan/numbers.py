"""Constants that change from one graph to the next: found, and made inputs of one plan.

A loop that computes ``x * rate`` with a new number each time asks for graphs that differ in one
constant. The first few are compiled as they are; from then on the constants that differed are read
from memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tilewright.dtypes import BY_NAME
from tilewright.graph import Node, parameter
from tilewright.plan.cache import Cache
from tilewright.runtime.storage import Storage

FEW = 3  # graphs that differ in constants only, before those become inputs


@dataclass
class _Variants:
    """Graphs seen with one structure but for constants: the first one's, and which differ."""

    first: tuple[bytes, ...]
    varying: set[int] = field(default_factory=set)
    seen: int = 1


_seen: Cache[_Variants] = Cache(entries=1024, weight=400_000)


def _is_number(entry: object) -> bool:
    return isinstance(entry, tuple) and entry[0] == "constant" and entry[2] != "bool"


def varying(key: tuple) -> tuple[int, ...]:
    """Note a new structure `key` (see `realize.structure`); return the entries of it that vary.

    Empty until `FEW` graphs were seen that differ in constants only.
    """
    places = [i for i, entry in enumerate(key) if _is_number(entry)]
    if not places:
        return ()
    loose = lifted(key, places)
    values = tuple([key[i][1].value for i in places])
    known = _seen.get(loose)
    if known is None:
        _seen.put(loose, _Variants(values), weight=len(key))
        return ()
    known.seen += 1
    known.varying |= {i for i, a, b in zip(places, known.first, values) if a != b}
    return tuple(sorted(known.varying)) if known.seen > FEW else ()


def lifted(key: tuple, places: tuple[int, ...] | list[int]) -> tuple:
    """Return the key without the values of the constants at `places`."""
    entries = list(key)
    for i in places:
        entries[i] = ("number", key[i][2])
    return tuple(entries)


def storages(key: tuple, places: tuple[int, ...]) -> list[Storage]:
    """Return the values of the constants at `places` as inputs."""
    found = []
    for i in places:
        dtype = BY_NAME[key[i][2]]
        found.append(Storage(np.frombuffer(key[i][1].value, dtype.numpy).reshape(()), dtype))
    return found


def parameters(key: tuple, places: tuple[int, ...], start: int) -> dict[tuple, Node]:
    """Return a parameter for the constant at each of `places`, numbered from `start`.

    They stand under (bits, dtype name), which tell constants of one graph apart.
    """
    return {(key[i][1].value, key[i][2]): parameter(start + number, (), BY_NAME[key[i][2]])
            for number, i in enumerate(places)}


def clear() -> None:
    """Forget which constants vary."""
    _seen.clear()
