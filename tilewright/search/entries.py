"""What is recorded of a search, as values and as lines of JSON; and which of two is better."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from tilewright.errors import RecordError
from tilewright.search.keys import CACHE_MODES, Key, code_version

FORMAT = 1  # of the lines

V = TypeVar("V")


@dataclass(frozen=True)
class Entry:
    """The best schedule known for a key.

    name             what the kernel does and over which shape, for people
    alternative      which form of the kernel: 0 is the kernel itself
    schedule         the actions, as `parse_schedule` reads them
    seconds          the least of `samples` runs; spread is their range over it
    start_seconds    what the search was given took, measured with it
    code             `code_version` of the code that measured
    kernel, before, after    texts: the kernel, its loops as given, its loops under the schedule
    created, updated         seconds since 1970; set by `Records.put`
    """

    key: Key
    name: str
    alternative: int
    schedule: str
    seconds: float
    spread: float
    samples: int
    start_seconds: float
    code: str
    kernel: str = ""
    before: str = ""
    after: str = ""
    created: float = 0.0
    updated: float = 0.0

    @property
    def stale(self) -> bool:
        """Whether other code measured this: use it, and let it duel again at the next tune."""
        return self.code != code_version()

    def texts(self) -> bytes:
        """Return the texts, compressed."""
        return pack([self.kernel, self.before, self.after])


@dataclass(frozen=True)
class Timing:
    """One candidate of a search: its fate, and its time where it has one (else None)."""

    alternative: int
    schedule: str
    fate: str
    reason: str = ""
    seconds: float | None = None
    spread: float = 0.0
    samples: int = 0


def better(a: Entry, b: Entry) -> Entry:
    """Return the better measured of two entries of a key: the one with the least upper bound.

    An order over all entries, so that merging gives the same in any order.
    """
    def rank(e: Entry) -> tuple:
        return (e.seconds * (1 + e.spread), -e.samples, -e.updated, e.code, e.alternative,
                e.schedule)
    best = min(a, b, key=rank)
    return replace(best, created=min(a.created, b.created))


def joined(a: Iterable[Timing], b: Iterable[Timing]) -> list[Timing]:
    """Return the candidates of both, each once, as it was measured best."""
    def rank(t: Timing) -> tuple:
        seconds = math.inf if t.seconds is None else t.seconds * (1 + t.spread)
        return seconds, -t.samples, t.fate, t.reason
    found: dict[tuple[int, str], Timing] = {}
    for timing in (*a, *b):
        place = timing.alternative, timing.schedule
        found[place] = min(found.get(place, timing), timing, key=rank)
    return list(found.values())


def pack(value: object) -> bytes:
    return zlib.compress(json.dumps(value).encode())


def unpack(data: bytes) -> Any:
    return json.loads(zlib.decompress(data))


# lines of JSON


def schedule_line(entry: Entry) -> str:
    """Return an entry as one line."""
    return json.dumps({"tilewright": FORMAT, "schedule": asdict(entry)}, sort_keys=True)


def timings_line(digest: str, code: str, updated: float, timings: Iterable[Timing]) -> str:
    """Return the candidates that one version of the code timed for a key as one line."""
    body = {"key": digest, "code": code, "updated": updated,
            "trials": [asdict(t) for t in timings]}
    return json.dumps({"tilewright": FORMAT, "timings": body}, sort_keys=True)


Timings = tuple[str, str, float, list[Timing]]  # digest of the key, code, updated, candidates


def read_lines(lines: Iterable[str]) -> Iterator[Entry | Timings]:
    """Read what the functions above wrote. Raises RecordError naming the line that is wrong."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _read(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else error
            raise RecordError(f"records: cannot import line {number} ({reason})") from None


def _read(data: dict[str, Any]) -> Entry | Timings:
    if not isinstance(data, dict) or data.get("tilewright") != FORMAT:
        raise ValueError(f"not a record of format {FORMAT}")
    if "schedule" in data:
        body = dict(data["schedule"])
        body["key"] = _checked(Key, body["key"])
        entry = _checked(Entry, body)
        if entry.seconds <= 0 or entry.start_seconds <= 0 or entry.key.cache not in CACHE_MODES:
            raise ValueError("seconds and the cache mode must be real ones")
        return entry
    body = data["timings"]
    if not re.fullmatch("[0-9a-f]{64}", body["key"]) or not isinstance(body["code"], str):
        raise ValueError("a key of 64 hexadecimal digits and a code version are needed")
    return (body["key"], body["code"], _number("updated", body["updated"]),
            [_checked(Timing, t) for t in body["trials"]])


def _checked(kind: type[V], values: dict[str, Any]) -> V:
    """Return a value of a class above, its fields of the types that the class declares."""
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name not in values:
            continue
        value, wanted = values[field.name], str(field.type)
        if wanted in ("str", "int"):
            if not isinstance(value, {"str": str, "int": int}[wanted]) or isinstance(value, bool):
                raise ValueError(f"{field.name} must be of type {wanted}")
        elif wanted.startswith("float") and not (value is None and wanted.endswith("None")):
            values = {**values, field.name: _number(field.name, value)}
    return kind(**values)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) \
            or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a finite number that is not negative")
    return float(value)
