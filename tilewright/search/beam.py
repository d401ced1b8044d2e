"""Beam search over (alternative, schedule), timed on a device.

Arguments in, record out: the measurer and the clock are injected, so that the same inputs and seed
give the same decisions on a simulated device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tilewright.actions import Schedule
from tilewright.backends import Backend
from tilewright.errors import BackendError, Illegal, TooLarge
from tilewright.kernel import Kernel
from tilewright.limits import Limits
from tilewright.lower import Lowered, lower
from tilewright.search.candidates import Candidate, forms, moves, spills, starts
from tilewright.search.decide import Rules, drop_early, duel, progressed
from tilewright.search.measurer import Code, Failure, Measurer
from tilewright.search.model import estimate
from tilewright.search.record import Record, Round, Trial


BATCH = 8  # sources compiled between two looks at the clock


@dataclass(frozen=True)
class Budget:
    """What a search may spend.

    beam        candidates kept from round to round
    seconds     in all; checked between candidates
    per_round   candidates compiled in one round, in the model's order
    rounds      at most
    slack       candidates that the model puts at more than this many times its best are filtered
    sketches    default, bare or none: see `candidates.starts`
    """

    beam: int = 4
    seconds: float = 20.0
    per_round: int = 32
    rounds: int = 12
    slack: float = 4.0
    sketches: str = "default"


@dataclass
class _Entry:
    """A candidate on its way: lowered, then compiled, then linked."""

    trial: Trial
    candidate: Candidate
    source: str = ""
    lowered: Lowered | None = None
    handle: int = -1
    bound: float = 0.0


@dataclass
class _Seen:
    """What was met before, in the three ways that two candidates can be one."""

    nests: dict[str, int] = field(default_factory=dict)
    programs: dict[str, int] = field(default_factory=dict)
    objects: dict[str, int] = field(default_factory=dict)


class Search:
    """One search; `run` gives its record. Ctrl-C ends it with the best so far."""

    def __init__(self, kernel: Kernel, start: Schedule, backend: Backend, limits: Limits,
                 measurer: Measurer, budget: Budget, clock: Callable[[], float],
                 rules: Rules | None = None, alternative: int = 0, seed: int = 0,
                 watch: Callable[[Record], None] | None = None):
        self.limits, self.backend, self.measurer = limits, backend, measurer
        self.budget, self.rules, self.clock = budget, rules or Rules(), clock
        self.watch = watch
        self.kernel = kernel
        form = forms(kernel, limits)[alternative]
        self.given = Candidate(alternative, form, start, None, "given")
        self.began = clock()
        self.seen = _Seen()
        self.entries: dict[int, _Entry] = {}
        self.expanded: set[int] = set()
        self.record = Record(kernel.key, kernel.key, backend.name, budget.beam, seed)
        self.record.counts = dict.fromkeys(
            ("candidates", "distinct", "programs", "compiled", "timed", "filtered"), 0)

    # -- the whole ---------------------------------------------------------------------------

    def run(self) -> Record:
        """Search until two rounds are dry, the budget is spent or Ctrl-C is pressed."""
        try:
            self._rounds()
        except KeyboardInterrupt:
            self.record.why = "interrupted"
        finally:
            self._finish()
        return self.record

    def _rounds(self) -> None:
        self._begin()
        self._measure(self._admit(self._starts(), 0), 0)
        beam = self._best()
        self._close_round(0, beam, "starts measured")
        dry = 0
        for number in range(1, self.budget.rounds + 1):
            if self._spent():
                self.record.why = "the budget was spent"
                return
            fresh = [n for n in beam if n not in self.expanded]
            if not fresh:
                self.record.why = "every entry of the beam was expanded"
                return
            first = beam[0]
            self._measure(self._admit(self._expand(fresh), number), number)
            beam = self._best()
            progress, decision = self._judge(first, beam)
            self._close_round(number, beam, decision)
            dry = 0 if progress else dry + 1
            if dry >= self.rules.dry_rounds:
                self.record.why = f"{dry} rounds without progress"
                return
        self.record.why = f"{self.budget.rounds} rounds were run"

    def _begin(self) -> None:
        """Compile and time the given schedule, without early stop: nothing slower is answered."""
        entry = self._new(self.given, -1, 0)
        self._lower(entry)
        if entry.trial.fate != "untried":
            raise Illegal(f"search: cannot start from the given schedule ({entry.trial.reason})")
        (code,) = self.measurer.compile([entry.source])
        if isinstance(code, Failure):
            raise BackendError(f"search: cannot compile the given schedule ({code.reason})")
        self._count("compiled")
        self.seen.objects[_digest(code)] = 0
        handle = self.measurer.begin(self.given.kernel, self._code(entry, code))
        if isinstance(handle, Failure):
            raise BackendError(f"search: cannot run the given schedule ({handle.reason})")
        entry.handle = handle
        self._take(entry, self.rules.samples)
        entry.trial.fate = "timed"

    def _starts(self) -> Iterator[tuple[Candidate, int]]:
        for candidate in starts(self.kernel, self.limits, self.budget.sketches):
            yield candidate, -1

    def _expand(self, beam: list[int]) -> Iterator[tuple[Candidate, int]]:
        for number in beam:
            self.expanded.add(number)
            for found in moves(self.entries[number].candidate, self.limits):
                if isinstance(found, tuple):
                    self._refuse(*found, number)
                else:
                    yield found, number

    def _spent(self) -> bool:
        return self.clock() - self.began >= self.budget.seconds

    # -- from candidates to code -------------------------------------------------------------

    def _admit(self, candidates: Iterator[tuple[Candidate, int]], number: int) -> list[_Entry]:
        """Deduplicate by nest and by Programs, filter, order by the model, cut to a round."""
        ready: list[_Entry] = []
        with self._time("lower"):
            for candidate, parent in candidates:
                if self._spent():
                    break
                entry = self._new(candidate, parent, number)
                self._lower(entry)
                if entry.trial.fate == "untried":
                    ready.append(entry)
        ready.sort(key=lambda e: (e.trial.cycles, e.trial.number))
        best = min((e.trial.cycles for e in self.entries.values() if e.trial.samples),
                   default=float("inf"))
        least = min([best, *(e.trial.cycles for e in ready)])
        fastest = min((e.trial.seconds for e in self.entries.values()), default=float("inf"))
        kept = []
        for entry in ready:
            if entry.bound > fastest:
                self._drop(entry, "filtered", "its instructions alone take longer than the best")
            elif number and entry.trial.cycles > self.budget.slack * least:
                self._drop(entry, "filtered", f"the model expects {entry.trial.cycles / least:.1f} "
                                              "times the cycles of the best")
            elif len(kept) >= self.budget.per_round:
                self._drop(entry, "filtered", "behind the round's share in the model's order")
            else:
                kept.append(entry)
        return kept

    def _new(self, candidate: Candidate, parent: int, number: int) -> _Entry:
        trial = Trial(len(self.record.trials), parent, number, candidate.label,
                      alternative=candidate.alternative, schedule=str(candidate.schedule))
        self.record.trials.append(trial)
        self._count("candidates")
        entry = self.entries[trial.number] = _Entry(trial, candidate)
        return entry

    def _refuse(self, label: str, reason: str, parent: int) -> None:
        trial = Trial(len(self.record.trials), parent, self.record.trials[parent].round + 1, label,
                      "illegal", reason)
        self.record.trials.append(trial)
        self._count("candidates")

    def _lower(self, entry: _Entry) -> None:
        """Lower and render an entry, or give it its fate."""
        trial = entry.trial
        try:
            nest = entry.candidate.nest()
            trial.nest = f"form {trial.alternative}\n{nest}"
            if self._met(self.seen.nests, trial.nest, trial, "loops"):
                return
            self._count("distinct")
            why = spills(nest, self.limits)
            if why:
                self._drop(entry, "filtered", why)
                return
            entry.lowered = lower(nest, self.limits)
        except Illegal as reason:
            self._drop(entry, "illegal", str(reason))
            return
        except TooLarge as reason:
            self._drop(entry, "too_large", str(reason))
            return
        cost = estimate(entry.lowered.programs, entry.lowered.binding, self.limits)
        trial.cycles, entry.bound = cost.cycles, cost.bound
        entry.source = self.backend.render(entry.lowered.programs, entry.lowered.binding)
        if not self._met(self.seen.programs, _digest(entry.source.encode()), trial, "Programs"):
            self._count("programs")

    def _met(self, seen: dict[str, int], key: str, trial: Trial, what: str) -> bool:
        if key in seen:
            trial.fate, trial.reason = "duplicate", f"the same {what} as {seen[key]}"
            return True
        seen[key] = trial.number
        return False

    def _drop(self, entry: _Entry, fate: str, reason: str) -> None:
        entry.trial.fate, entry.trial.reason = fate, reason
        if fate == "filtered":
            self._count("filtered")

    def _code(self, entry: _Entry, code: bytes) -> Code:
        assert entry.lowered is not None
        return Code(code, entry.lowered.binding, tuple(p.parallel for p in entry.lowered.programs))

    # -- measuring ---------------------------------------------------------------------------

    def _measure(self, entries: list[_Entry], number: int) -> None:
        """Compile a round's entries, a batch at a time so that the budget is kept; time each."""
        for first in range(0, len(entries), BATCH):
            batch = entries[first:first + BATCH]
            if self._spent():
                for entry in batch:
                    self._drop(entry, "untried", "the budget was spent")
                continue
            with self._time("compile"):
                codes = self.measurer.compile([e.source for e in batch])
            for entry, code in zip(batch, codes):
                self._take_code(entry, code)
                if self.watch is not None:
                    self.watch(self.record)

    def _take_code(self, entry: _Entry, code: bytes | Failure) -> None:
        self._count("compiled")
        if isinstance(code, Failure):
            self._drop(entry, code.kind, code.reason)
        elif not self._met(self.seen.objects, _digest(code), entry.trial, "object code"):
            if self._spent():
                self._drop(entry, "untried", "the budget was spent")
            else:
                self._try(entry, code)

    def _try(self, entry: _Entry, code: bytes) -> None:
        with self._time("link"):
            handle = self.measurer.link(self._code(entry, code))
        if isinstance(handle, Failure):
            self._drop(entry, handle.kind, handle.reason)
            return
        entry.handle = handle
        best = min(t.seconds for t in self.record.trials)
        if not self._take(entry, 1):
            return
        self._count("timed")
        if drop_early(entry.trial.seconds, best, self.rules):
            entry.trial.fate = "slow"
            entry.trial.reason = f"{entry.trial.seconds / best:.1f} times the best after one sample"
            return
        if self._take(entry, self.rules.samples - 1):
            entry.trial.fate = "timed"

    def _take(self, entry: _Entry, count: int) -> bool:
        """Add samples to an entry; False, with its fate, where it failed."""
        with self._time("sample"):
            for _ in range(count):
                sample = self.measurer.sample(entry.handle)
                if isinstance(sample, Failure):
                    entry.trial.samples.clear()
                    self._drop(entry, sample.kind, sample.reason)
                    return False
                entry.trial.samples.append(sample)
        return True

    def _best(self) -> list[int]:
        """Return the beam: the fastest entries by their least sample, given schedule included."""
        timed = [e.trial for e in self.entries.values() if e.trial.fate == "timed"]
        timed.sort(key=lambda t: (t.seconds, t.number))
        return [t.number for t in timed[:self.budget.beam]]

    def _judge(self, first: int, beam: list[int]) -> tuple[bool, str]:
        """Return whether a round progressed beyond noise, and the words for it."""
        fastest = beam[0]
        if fastest == first:
            return False, "no candidate was faster"
        new, old = self.entries[fastest], self.entries[first]
        if progressed(new.trial.samples, old.trial.samples, self.rules):
            return True, f"{fastest} is faster than {first} beyond noise"
        verdict, ratio = self._alternate(new, old)[:2]
        if verdict == "a" and ratio > 1 + self.rules.least_share:
            return True, f"{fastest} won {first} by {ratio:.3f} in alternation"
        return False, f"{fastest} did not beat {first} in alternation (ratio {ratio:.3f})"

    def _alternate(self, a: _Entry, b: _Entry) -> tuple[str, float, float, float]:
        """Alternate samples of two entries; see `decide.duel`."""
        def taker(entry: _Entry) -> Callable[[], float]:
            def take() -> float:
                if not self._take(entry, 1):
                    raise BackendError(f"search: cannot time candidate {entry.trial.number} again "
                                       f"({entry.trial.reason})")
                return entry.trial.samples[-1]
            return take
        far = min(b.trial.samples) > self.rules.early_stop * max(a.trial.samples)
        if far:  # two more pairs are enough
            return duel(taker(a), taker(b), replace(self.rules, duel=2), 2)
        return duel(taker(a), taker(b), self.rules)

    # -- the end -----------------------------------------------------------------------------

    def _close_round(self, number: int, beam: list[int], decision: str) -> None:
        self.record.rounds.append(Round(number, beam, decision, self.clock() - self.began))
        if self.watch is not None:
            self.watch(self.record)

    def _finish(self) -> None:
        """Name the winner: the fastest, unless the given schedule stands in a last alternation."""
        self.record.seconds["total"] = self.clock() - self.began
        beam = self._best()
        self.record.winner = 0
        for number in beam:
            if number == 0:
                break
            try:
                self.record.duel = self._alternate(self.entries[number], self.entries[0])
            except (BackendError, KeyboardInterrupt):
                continue
            if self.record.duel[0] == "a":
                self.record.winner = number
            break
        self.record.seconds["total"] = self.clock() - self.began

    def _count(self, name: str) -> None:
        self.record.counts[name] += 1

    @contextmanager
    def _time(self, name: str) -> Iterator[None]:
        start = self.clock()
        try:
            yield
        finally:
            self.record.seconds[name] = self.record.seconds.get(name, 0.0) + self.clock() - start


def search(kernel: Kernel, start: Schedule, backend: Backend, limits: Limits, measurer: Measurer,
           budget: Budget, clock: Callable[[], float], **options) -> Record:
    """Return the record of a beam search for a faster schedule of `kernel` than `start`.

    `alternative` tells which form of the kernel `start` belongs to. The winner is never slower than
    `start` beyond the paired interval of their last alternation. Raises Illegal or BackendError
    where `start` itself cannot be run.
    """
    return Search(kernel, start, backend, limits, measurer, budget, clock, **options).run()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
