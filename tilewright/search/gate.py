"""From candidates to code: duplicates and hopeless ones are turned away, the rest put in order."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import prod

from tilewright.actions import Nest
from tilewright.backends import Backend
from tilewright.errors import Illegal, TooLarge
from tilewright.limits import Limits
from tilewright.lower import Lowered, lower
from tilewright.search.candidates import Candidate, Move, spills
from tilewright.search.measurer import Code
from tilewright.search.model import estimate
from tilewright.search.record import Record, Trial
from tilewright.search.traffic import code_size, predict

STARTS = 4  # times the slack that starts have: they are unlike the given schedule
MOST_CODE = 2500  # estimated instructions; more take long to compile and crowd the caches
MOST_GROWTH = 1.5  # times the given schedule's instructions, where that has as many
RUNS = 3  # of a candidate at least: its check and samples
BULK = 12000  # instructions of one batch: between two looks at the clock


@dataclass
class Entry:
    """A candidate on its way: a nest with a guess, then Programs with an estimate, then code.

    guess, cycles    the model's cycles, of the nest and of the Programs; 0 before that
    bound            seconds below which no run can end
    """

    trial: Trial
    candidate: Candidate
    nest: Nest | None = None
    guess: float = 0.0
    bound: float = 0.0
    source: str = ""
    lowered: Lowered | None = None
    handle: int = -1

    def code(self, data: bytes) -> Code:
        """Return the candidate's object code with how it is called."""
        assert self.lowered is not None
        return Code(data, self.lowered.binding, tuple(p.parallel for p in self.lowered.programs))


@dataclass
class Gate:
    """Admits candidates to a round, and writes the fate of every other into the record.

    slack    the most times the best's seconds that the model may expect
    left     seconds that rounds have left; `spent` tells whether these are over
    entries  by their trials' numbers; `timed` are those that were, which the search tells
    """

    record: Record
    backend: Backend
    limits: Limits
    slack: float
    left: Callable[[], float]
    entries: dict[int, Entry] = field(default_factory=dict)
    timed: list[Entry] = field(default_factory=list)
    most_code: float = MOST_CODE
    _nests: dict[str, int] = field(default_factory=dict)
    _programs: dict[str, int] = field(default_factory=dict)
    _objects: dict[str, int] = field(default_factory=dict)

    @property
    def spent(self) -> bool:
        return self.left() <= 0

    def new(self, candidate: Candidate, parent: int, round_: int) -> Entry:
        trial = self._trial(candidate.label, parent, round_)
        trial.alternative, trial.schedule = candidate.alternative, str(candidate.schedule)
        entry = self.entries[trial.number] = Entry(trial, candidate)
        return entry

    def _trial(self, label: str, parent: int, round_: int) -> Trial:
        trial = Trial(len(self.record.trials), parent, round_, label)
        self.record.trials.append(trial)
        self.record.counts["candidates"] += 1
        return trial

    def order(self, found: Iterable[tuple[Move, int]], round_: int) -> list[Entry]:
        """Return the entries of what was not met before, the most promising nests first.

        The kernel's forms take turns, as the models order nests of one form; and in each form what
        measurements put in order, with what the models do.
        """
        fresh = []
        for move, parent in found:
            if self.spent:
                break
            if isinstance(move, tuple):
                trial = self._trial(move[0], parent, round_)
                trial.fate, trial.reason = "illegal", move[1]
                continue
            entry = self.new(move, parent, round_)
            if self.place(entry):
                entry.trial.expected = self._expected(entry)
                fresh.append(entry)
        ranks: Counter[tuple[int, bool]] = Counter()
        turn: dict[int, int] = {}
        for entry in sorted(fresh, key=promise):
            kind = entry.trial.alternative, entry.candidate.expected > 0
            ranks[kind] += 1
            turn[entry.trial.number] = ranks[kind]
        return sorted(fresh, key=lambda e: (turn[e.trial.number], *promise(e)))

    def batch(self, waiting: list[Entry], count: int, round_: int) -> Iterator[Entry]:
        """Take up to `count` entries with sources from those waiting.

        Fewer where they are large, or time is up.
        """
        ready = instructions = 0
        while waiting and ready < count and instructions < BULK and not self.spent:
            entry = waiting.pop(0)
            if self.lower(entry) and self._hopeful(entry, round_) and self.render(entry):
                ready += 1
                yield entry
            if entry.lowered is not None:
                instructions += sum(p.count for p in entry.lowered.programs)

    def place(self, entry: Entry) -> bool:
        """Apply an entry's schedule; False, with its fate, if it is illegal, known or too big."""
        trial = entry.trial
        try:
            entry.nest = nest = entry.candidate.nest()
        except Illegal as reason:
            drop(trial, "illegal", str(reason))
            return False
        trial.nest = f"form {trial.alternative}\n{nest}"
        if self._met(self._nests, trial.nest, trial, "loops"):
            self._adopt(self._nests[trial.nest], entry)
            return False
        self.record.counts["distinct"] += 1
        why = spills(nest, self.limits)
        size = code_size(nest, self.limits)
        if not entry.trial.number:
            self.most_code = max(MOST_CODE, MOST_GROWTH * size)
        elif size > self.most_code and not why:
            why = f"its code would be some {size:.0f} instructions"
        if why and entry.trial.number:
            self.filter(entry, why)
            return False
        entry.guess = predict(nest, self.limits)
        return True

    def _adopt(self, twin: int, entry: Entry) -> None:
        """Let a candidate without parameters have those of the same loops: then they can move."""
        known, found = self.entries[twin].candidate, entry.candidate
        if known.recipe is None and found.recipe is not None:
            self.entries[twin].candidate = replace(found, label=known.label)

    def lower(self, entry: Entry) -> bool:
        """Lower an entry and estimate its cycles; False, with its fate, where that fails."""
        assert entry.nest is not None
        try:
            entry.lowered = lower(entry.nest, self.limits)
        except Illegal as reason:
            drop(entry.trial, "illegal", str(reason))
            return False
        except TooLarge as reason:
            drop(entry.trial, "too_large", str(reason))
            return False
        cost = estimate(entry.lowered.programs, entry.nest, self.limits)
        entry.trial.cycles, entry.bound = cost.cycles, cost.bound
        entry.trial.expected = self._expected(entry)
        return True

    def _hopeful(self, entry: Entry, round_: int) -> bool:
        """Filter what cannot be, or by the model is not, near the best."""
        fastest = min((e.trial.seconds for e in self.timed), default=float("inf"))
        times = min(self._against(entry), default=entry.trial.cycles) / fastest
        if entry.bound > fastest:
            self.filter(entry, "its instructions alone take longer than the best")
        elif times > self.slack * (1 if round_ else STARTS):
            self.filter(entry, f"the model expects {times:.1f} times the seconds of the best")
        elif RUNS * times * fastest > self.left():
            self.filter(entry, f"the model expects {times * fastest:.2g} seconds for a run, "
                               "more than there is time for")
        else:
            return True
        return False

    def _expected(self, entry: Entry) -> float:
        """Return the seconds that the model's cycles stand for: the mean by ratio of `_against`."""
        if entry.candidate.expected:
            return entry.candidate.expected
        found = self._against(entry)
        return prod(found) ** (1 / len(found)) if found else entry.trial.cycles or entry.guess

    def _against(self, entry: Entry) -> list[float]:
        """Return the seconds expected from the parent's and from the fastest candidate's.

        What the model said of them, and what they took, tell its error. A start has the given
        schedule for parent.
        """
        timed = [e for e in self.timed if e.trial.samples]
        parent = self.entries[max(entry.trial.parent, 0)]
        others = [parent] if parent.trial.samples else []
        if timed:
            others.append(min(timed, key=lambda e: (e.trial.seconds, e.trial.number)))
        lowered = entry.trial.cycles > 0
        return [o.trial.seconds * (entry.trial.cycles / max(o.trial.cycles, 1.0) if lowered
                                   else entry.guess / max(o.guess, 1.0)) for o in others]

    def render(self, entry: Entry) -> bool:
        """Render an entry's Programs; False where the same ones were met."""
        assert entry.lowered is not None
        entry.source = self.backend.render(entry.lowered.programs, entry.lowered.binding)
        if self._met(self._programs, digest(entry.source.encode()), entry.trial, "Programs"):
            return False
        self.record.counts["programs"] += 1
        return True

    def new_object(self, entry: Entry, code: bytes) -> bool:
        """Return whether object code was not met before."""
        return not self._met(self._objects, digest(code), entry.trial, "object code")

    def _met(self, seen: dict[str, int], key: str, trial: Trial, what: str) -> bool:
        if key in seen:
            drop(trial, "duplicate", f"the same {what} as {seen[key]}")
            return True
        seen[key] = trial.number
        return False

    def filter(self, entry: Entry, reason: str) -> None:
        drop(entry.trial, "filtered", reason)
        self.record.counts["filtered"] += 1


def drop(trial: Trial, fate: str, reason: str) -> None:
    """Give a trial its fate."""
    trial.fate, trial.reason = fate, reason


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def promise(entry: Entry) -> tuple[float, int]:
    """Return what sorts entries: the seconds that are expected, then their numbers."""
    return entry.trial.expected, entry.trial.number
