"""The end of a search: the fastest are timed once more, together, and the winner against the given.

Few samples flatter, the machine's speed drifts, and what a run takes depends on where its buffers
lie. So samples are taken in turns, over some time, and the buffers are moved in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import median

from tilewright.errors import BackendError
from tilewright.search.decide import (
    FEW,
    Rules,
    Verdict,
    midmean,
    slower_quartile,
    typical,
    verdict,
)
from tilewright.search.gate import Entry, Gate
from tilewright.search.looks import Looks
from tilewright.search.measurer import Measurer
from tilewright.search.record import Final, Record, Standing, Trial
from tilewright.search.sampler import Sampler

PATIENCE = 0.5  # seconds for the last comparison after Ctrl-C
HEAT = 0.5  # share of the reserve that the last heat may take
SETTLE = 0.01  # share of the budget that turns at one place last, where samples are short
AMPLE = 0.1  # or share of what is left of the budget, if that is more
FINAL = 4  # of the last heat are at every place, at least
MOST_TURNS = 100  # times the rule's, however short
MOST_RUNS = 32  # that make one pair, however short
CHANCES = 3  # of the last heat are compared with the given schedule, until one wins


@dataclass
class Finish:
    """Names the winner among what was timed.

    left     returns the seconds left of the budget
    reserve  seconds that were kept for this
    settle   seconds for the turns at one place
    """

    record: Record
    gate: Gate
    sampler: Sampler
    measurer: Measurer
    looks: Looks
    rules: Rules
    left: Callable[[], float]
    reserve: float
    settle: float

    def run(self, ranked: Sequence[Trial], most: int) -> None:
        """Set the winner: the first of the last heat, unless it does not beat the given schedule.

        Then others have a chance. `ranked` is what was timed, the fastest first; up to `most` of
        them take part.
        """
        self.record.winner = 0
        try:
            order = self._heat(ranked, most)
        except KeyboardInterrupt:
            self.record.why = "interrupted"
            order = [t.number for t in ranked if t.samples]  # others failed meanwhile
        lost = 0
        for number in self._chances(order):
            if lost == CHANCES or lost and (self.left() <= 0 or self.record.why == "interrupted"):
                break
            try:
                seen = self._compare(self.gate.entries[number])
            except BackendError:
                continue  # it failed: the next one's turn
            found = self.looks.overrule(number, seen)
            self.record.finals.append(Final(
                number, *seen, looks=len(self.looks.ratios.get(number, ())),
                overruled=found[0] if found[0] != seen[0] else ""))
            if not lost or found[0] == "a":
                self.record.duel = found
            if found[0] == "a":
                self.record.winner = number
                break
            lost += 1

    def _chances(self, order: list[int]) -> list[int]:
        """Return who may be held against the given schedule, in turn.

        Those are all before it in the order; second, who was ahead of it throughout the search.
        """
        before = list(takewhile(bool, order))
        return list(dict.fromkeys([*before[:1], *self.looks.ahead(), *before[1:]]))

    def _compare(self, entry: Entry) -> Verdict:
        """Return what comes of an entry against the given schedule; Ctrl-C ends it early."""
        ratios: list[float] = []
        given = self.gate.entries[0]
        try:
            found = self.sampler.alternate(entry, given, *self._pairs(entry), True, ratios)
            ahead = found[0] == "tie" and found[1] > 1 + self.rules.least_share / 2
            if ahead and not self._over():
                found = self.sampler.alternate(entry, given, *self._pairs(entry), True, ratios)
            return found
        except KeyboardInterrupt:
            self.record.why = "interrupted"
        if len(ratios) >= FEW:
            return verdict(ratios, self.rules)
        # no time for more: the samples that there are decide, if they are clearly apart
        slow, fast = slower_quartile(entry.trial.samples), typical(given.trial.samples)
        faster = slow * (1 + self.rules.least_share) < fast
        return "a" if faster else "tie", fast / slow, 0.0, math.inf

    def _heat(self, ranked: Sequence[Trial], most: int) -> list[int]:
        """Return the fastest in the order of samples taken in turns at several places.

        After each place the slower half is out, as long as more than `FINAL` are in.
        """
        if not ranked or self.record.why == "interrupted":
            return [t.number for t in ranked]
        best = median(ranked[0].samples)  # its least may be luck
        near = [t.number for t in ranked if t.seconds <= (1 + self.rules.near) * best]
        each = best * self.rules.heat * self.rules.places
        near = near[:min(most, int(HEAT * self.reserve / each))]
        if len(near) < 2:
            return [t.number for t in ranked]
        taken: dict[int, list[float]] = {n: [] for n in near}  # times those of the place's fastest
        stood = dict(taken)  # of those that are out as well
        order: list[int] = []  # the last first
        for place in range(self.rules.places):
            if place:
                if self._over():
                    break
                self.measurer.move()
            found = self._turns(list(taken))
            least = min((s for s in found.values() if s is not None), default=0.0)
            for n, seconds in found.items():
                if seconds is None:
                    del taken[n]
                else:
                    taken[n].append(seconds / least)
            slowest = self._ordered(taken)[max(FINAL, (len(taken) + 1) // 2):]
            order += reversed(slowest)
            for n in slowest:
                del taken[n]
        order += reversed(self._ordered(taken))
        order.reverse()
        self.record.heat = [Standing(n, midmean(stood[n]), len(stood[n])) for n in order]
        return order + [t.number for t in ranked if t.number not in near]

    def _ordered(self, taken: dict[int, list[float]]) -> list[int]:
        """Return the fastest first; of equals, the simplest. One bad place does not count."""
        times = {n: midmean(s) for n, s in taken.items()}
        level = (1 + self.rules.least_share / 2) * min(times.values(), default=0.0)
        return sorted(times, key=lambda n: (max(times[n], level), n))

    def _turns(self, entries: list[int]) -> dict[int, float | None]:
        """Return what each took in samples taken in turns; None where one failed."""
        taken: dict[int, list[float]] = {n: [] for n in entries}
        found: dict[int, float | None] = {}
        settled = self.left() - max(self.settle, AMPLE * self.left())
        for turn in range(MOST_TURNS * self.rules.heat):
            if turn and self._over() or turn >= self.rules.heat and self.left() < settled:
                break
            for n in entries if turn % 2 else entries[::-1]:
                if n not in taken:
                    continue
                if self.sampler.take(self.gate.entries[n], 1):
                    taken[n].append(self.record.trials[n].samples[-1])
                else:
                    found[n] = None
                    del taken[n]
        return found | {n: median(s) for n, s in taken.items()}

    def _over(self) -> bool:
        """Return whether only what the last comparison needs is left."""
        return self.left() < (1 - HEAT) * self.reserve

    def _pairs(self, entry: Entry) -> tuple[int, int]:
        """Return the pairs that the last comparison can afford, a few at least, and runs of each.

        Pairs of short runs are of several, in turns, so that they go on for as long as those of
        the last heat: a machine's state, as what others leave of its last cache, stays for seconds.
        """
        each = max(entry.trial.seconds + self.record.trials[0].seconds, 2 * self.sampler.each)
        if self.record.why == "interrupted":
            return max(2, min(self.rules.last, int(min(self.left(), PATIENCE) / each))), 1
        least = FEW if FEW * each <= self.reserve / 2 else 2
        pairs = max(least, min(self.rules.last, int(self.left() / each)))
        spread = self.rules.places * max(self.settle, AMPLE * self.left())
        runs = int(min(spread, self.left()) / (pairs * each))
        return pairs, max(1, min(MOST_RUNS, runs))
