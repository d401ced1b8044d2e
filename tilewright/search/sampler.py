"""Times candidates: links them, takes as many samples as they are worth, alternates two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tilewright.errors import BackendError
from tilewright.search.decide import Rules, Verdict, drop_early, duel
from tilewright.search.gate import Entry, Gate, drop
from tilewright.search.measurer import Failure, Measurer
from tilewright.search.record import Record

LEAST_PAIRS = 3  # at one place: after a move a run of each comes first that does not count
SCATTERED = 2e-3  # seconds below which pages matter: samples of a candidate are at several places


@dataclass
class Sampler:
    """Gives entries their samples, and those that fail or lose at once their fate.

    rules    of the search; it replaces them once the noise of the machine is known
    each     seconds that the last samples took, everything around a run included
    short    seconds below which a run close to the best has as many samples again
    long     seconds above which one run is sampled sparingly
    spent    whether the budget is
    """

    record: Record
    gate: Gate
    measurer: Measurer
    rules: Rules
    short: float
    long: float
    spent: Callable[[], bool]
    clock: Callable[[], float]
    each: float = 0.0

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Add what is done within to the record's seconds of an activity."""
        start = self.clock()
        try:
            yield
        finally:
            self.add(name, self.clock() - start)

    def add(self, name: str, seconds: float) -> None:
        """Add to the record's seconds of an activity."""
        self.record.seconds[name] = self.record.seconds.get(name, 0.0) + seconds

    def try_out(self, entry: Entry, code: bytes, best: float) -> None:
        """Link a candidate and take one sample: enough to see that it loses against `best` seconds.

        Where that is short a second one is taken, as something else may have been running.
        """
        with self.time("link"):
            handle = self.measurer.link(entry.code(code))
        if isinstance(handle, Failure):
            drop(entry.trial, handle.kind, handle.reason)
            return
        entry.handle = handle
        if not self.take(entry, 1):
            return
        self.record.counts["timed"] += 1
        self.gate.timed.append(entry)
        entry.trial.fate = "timed"
        while drop_early(entry.trial.seconds, best, self.rules):
            if len(entry.trial.samples) == 2 or entry.trial.seconds > self.short:
                drop(entry.trial, "slow", f"{entry.trial.seconds / best:.1f} times the best")
                return
            if not self.take(entry, 1):
                return

    def settle(self, entries: Sequence[Entry]) -> None:
        """Give those that are still in their other samples, in turns: speed drifts for all alike.

        Where pages matter each turn is at another place. None is taken once the budget is spent.
        """
        best = min(t.seconds for t in self.record.trials)
        left = {e.trial.number: (e, self._more(e, best)) for e in entries
                if e.trial.fate == "timed"}
        turn = 0
        while left and not self.spent():
            if any(e.trial.seconds < SCATTERED for e, _ in left.values()):
                self.measurer.move()
            for number in sorted(left, reverse=turn % 2 > 0):
                entry, more = left.pop(number)
                if more > 0 and not self.spent() and self.take(entry, 1) and more > 1:
                    left[number] = entry, more - 1
            turn += 1
        self._lost(entries)

    def _lost(self, entries: Sequence[Entry]) -> None:
        """Drop those that others of the same batch leave far behind."""
        best = min(t.seconds for t in self.record.trials)
        for entry in entries:
            if entry.trial.fate == "timed" and drop_early(entry.trial.seconds, best, self.rules):
                drop(entry.trial, "slow", f"{entry.trial.seconds / best:.1f} times the best")

    def _more(self, entry: Entry, best: float) -> int:
        """Return how many more samples an entry is worth: few where they take long, or lost.

        Starts have many: what their moves are expected to take depends on them.
        """
        seconds, samples = entry.trial.seconds, self.rules.samples
        close = seconds < (1 + self.rules.near) * best or entry.trial.round == 0
        if seconds > self.long:
            return 1 if close else 0
        if drop_early(seconds, best, self.rules):
            return 0
        twice = close and seconds < self.short and not self.spent()
        return (2 if twice else 1) * samples - len(entry.trial.samples)

    def take(self, entry: Entry, count: int) -> bool:
        """Add samples to an entry; False, with its fate, where it failed.

        The given schedule keeps what it has: it is the answer if all else fails.
        """
        start = self.clock()
        with self.time("sample"):
            for number in range(count):
                if number and entry.trial.seconds < SCATTERED:
                    self.measurer.move()
                sample = self.measurer.sample(entry.handle)
                if isinstance(sample, Failure):
                    if entry.trial.number:
                        entry.trial.samples.clear()
                        drop(entry.trial, sample.kind, sample.reason)
                    else:
                        entry.trial.reason = sample.reason
                    return False
                entry.trial.samples.append(sample)
        self.each = (self.clock() - start) / max(count, 1)
        return True

    def alternate(self, a: Entry, b: Entry, most: int, runs: int = 1, moving: bool = False,
                  ratios: list[float] | None = None) -> Verdict:
        """Alternate samples of two entries, up to `most` pairs; see `decide.duel`.

        Each counts as the median of so many `runs` of both. If `moving`, the buffers are between
        pairs, to as many places as `rules` tell. Raises BackendError where one fails to run again.
        """
        taken = 0
        each = 2 * runs * max(LEAST_PAIRS, most // self.rules.places)  # samples at one place

        def taker(entry: Entry) -> Callable[[], float]:
            def take() -> float:
                nonlocal taken
                if moving and taken and taken % each == 0:
                    self.measurer.move()
                taken += 1
                if not self.take(entry, 1):
                    raise BackendError(f"search: cannot time candidate {entry.trial.number} again "
                                       f"({entry.trial.reason})")
                return entry.trial.samples[-1]
            return take
        if min(b.trial.samples, default=0.0) > self.rules.early_stop * max(a.trial.samples,
                                                                           default=0.0):
            most = min(most, 2)  # two more pairs are enough
        least = 2 * most // 3 if moving else 6  # of a few places at least
        return duel(taker(a), taker(b), replace(self.rules, duel=most), min(most, max(least, 6)),
                    runs, ratios)
