"""Comparisons with the given schedule all through a search.

A machine stays in one state for seconds, as by what its neighbours leave of the last cache, and not
every schedule suffers alike. The last comparison sees one of them. So after each batch the fastest
so far have a look's time beside the given schedule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean, median, stdev

from tilewright.search.decide import FEW, Verdict
from tilewright.search.gate import Entry
from tilewright.search.measurer import Failure, Measurer
from tilewright.search.sampler import Sampler

TURNS = 30  # of one look, at most
LAST = 2  # looks that the last comparison counts as
BEYOND_DOUBT = 1.5  # times as fast as given: no state of a machine matters as much


@dataclass
class Looks:
    """Ratios of the given schedule's time to others', one for each look, by candidate number.

    seconds  of one look, at most; where that is less than a few turns, none is taken
    """

    sampler: Sampler
    measurer: Measurer
    seconds: float
    ratios: dict[int, list[float]] = field(default_factory=dict)

    def take(self, given: Entry, others: Sequence[Entry]) -> None:
        """Let the entries run in turns. Their samples are not the trials': those have few each."""
        others = [e for e in others if BEYOND_DOUBT * e.trial.seconds > given.trial.seconds]
        each = 2 * sum(max(e.trial.seconds, 20e-6) for e in (given, *others))
        turns = min(TURNS, int(self.seconds / each))
        if not others or turns < self.sampler.rules.heat:
            return
        with self.sampler.time("sample"):
            rows = [self._turn([given, *others], turn % 2 > 0) for turn in range(turns)]
        columns = [[r for r in column if r is not None] for column in zip(*rows)]
        if not columns[0]:
            return
        for entry, column in zip(others, columns[1:]):
            if column:
                ratios = self.ratios.setdefault(entry.trial.number, [])
                ratios.append(median(columns[0]) / median(column))

    def _turn(self, entries: Sequence[Entry], reverse: bool) -> list[float | None]:
        """Return each one's sample, None where it failed: who needs its samples next will tell."""
        found: list[float | None] = []
        for entry in reversed(entries) if reverse else entries:
            sample = self.measurer.sample(entry.handle)
            found.append(None if isinstance(sample, Failure) else sample)
        return found[::-1] if reverse else found

    def ahead(self) -> list[int]:
        """Return who is faster than given in the mean of enough looks: the surest, or nobody."""
        gains = {n: _mean(r) for n, r in self.ratios.items() if len(r) >= FEW}
        sure = {n: low for n, (ratio, low, _) in gains.items() if self._gain(ratio, low)}
        return [max(sure, key=lambda n: (sure[n], -n))] if sure else []

    def overrule(self, number: int, found: Verdict) -> Verdict:
        """Return the last comparison's verdict, or another if the mean of all looks is clear.

        That is a gain, though the last comparison saw none, or a loss, though it saw a gain.
        """
        seen = self.ratios.get(number, [])
        if len(seen) < FEW:
            return found
        ratio, low, high = _mean([*seen, *(LAST * [found[1]])])
        if found[0] != "a" and self._gain(ratio, low):
            return "a", ratio, low, high
        if found[0] == "a" and self._gain(1 / ratio, 1 / high):
            return "b", ratio, low, high
        return found

    def _gain(self, ratio: float, low: float) -> bool:
        """Return whether a mean says faster: by the least share, and by a standard error."""
        return ratio > 1 + self.sampler.rules.least_share and low > 1


def _mean(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean, and what is a standard error below and above it."""
    logs = [math.log(r) for r in ratios]
    error = stdev(logs) / math.sqrt(len(logs))
    middle = mean(logs)
    return math.exp(middle), math.exp(middle - error), math.exp(middle + error)
