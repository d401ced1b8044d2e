"""The search's statistics: pure functions of samples. Times are seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

FEW = 5  # pairs below which an interval says little


@dataclass(frozen=True)
class Rules:
    """When a search believes what it measured.

    samples           runs of a candidate that is not dropped early
    early_stop        a first sample above this many times the best ends its measuring
    least_seconds     progress smaller than this is none
    least_share       progress smaller than this share of the time is none
    duel              the most pairs of samples when two candidates alternate
    last              the most pairs of the last comparison with the given schedule
    near              candidates within this share of the best get as many samples again
    heat              samples in turns of the fastest within `near` at the end, at each of
    places            times that buffers are laid out for the last comparisons
    dry_rounds        rounds in a row without progress that end the search
    most_dry_rounds   or so many, where most of the budget is still left
    noisy             a spread of the reference kernel above this calls for more samples
    """

    samples: int = 3
    early_stop: float = 3.0
    least_seconds: float = 0.0
    least_share: float = 0.01
    duel: int = 15
    last: int = 201
    near: float = 0.1
    heat: int = 3
    places: int = 5
    dry_rounds: int = 3
    most_dry_rounds: int = 8
    noisy: float = 0.1

    def against(self, noise: float) -> Rules:
        """Return the rules for a machine of this noise: twice the samples on a noisy one."""
        if noise <= self.noisy:
            return self
        return replace(self, samples=2 * self.samples, duel=2 * self.duel, last=2 * self.last,
                       heat=2 * self.heat)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95% interval of the median of `values`, from their ranks (the sign test).

    Below 6 values no pair of ranks reaches 95%; the extremes are returned.
    """
    ordered, n = sorted(values), len(values)
    below, rank = 0.0, -1
    while rank + 1 < n and below + math.comb(n, rank + 1) * 0.5 ** n <= 0.025:
        rank += 1
        below += math.comb(n, rank) * 0.5 ** n
    rank = max(rank, 0)
    return ordered[rank], ordered[n - 1 - rank]


def typical(samples: Sequence[float]) -> float:
    """Return the lower quartile: what only ever delays hardly moves it, one lucky run neither."""
    ordered = sorted(samples)
    return ordered[len(ordered) // 4]


def midmean(values: Sequence[float]) -> float:
    """Return the mean without a quarter at each end: of a few places, the worst does not count."""
    ordered = sorted(values)
    cut = len(ordered) // 4
    kept = ordered[cut:len(ordered) - cut]
    return sum(kept) / len(kept)


def slower_quartile(samples: Sequence[float]) -> float:
    """Return the upper quartile."""
    return sorted(samples)[-1 - len(samples) // 4]


def progressed(fastest: Sequence[float], first: Sequence[float], rules: Rules) -> bool:
    """Return whether the new fastest is faster than the beam's first beyond noise.

    Its greatest sample, plus the least progress, must be below the other's least.
    """
    least = max(rules.least_seconds, rules.least_share * min(first))
    return max(fastest) + least < min(first)


def drop_early(sample: float, best: float, rules: Rules) -> bool:
    """Return whether one sample is enough to see that a candidate loses."""
    return sample > rules.early_stop * best


Verdict = tuple[str, float, float, float]


def duel(take_a: Callable[[], float], take_b: Callable[[], float], rules: Rules,
         least: int = 6, runs: int = 1, ratios: list[float] | None = None) -> Verdict:
    """Alternate samples of a and b until the paired interval of b/a excludes 1, or enough is taken.

    Returns the `verdict` on the ratios, which `ratios` gains as they come: each the median of
    `runs` pairs. Who goes first changes from pair to pair.
    """
    ratios = [] if ratios is None else ratios
    pairs: list[float] = []
    for pair in range(rules.duel * runs):
        if pair % 2:
            b = take_b()
            a = take_a()
        else:
            a = take_a()
            b = take_b()
        pairs.append(b / a)
        if len(pairs) < runs:
            continue
        ratios.append(median(pairs))
        pairs.clear()
        if len(ratios) >= least:
            low, high = interval(ratios)
            if low > 1 + rules.least_share or high < 1 - rules.least_share:
                break
    return verdict(ratios, rules)


def verdict(ratios: Sequence[float], rules: Rules) -> Verdict:
    """Return (verdict, ratio, low, high) of paired ratios b/a.

    The ratio is their median, low and high its interval: "a" where it is above 1, "b" below, "tie"
    otherwise. Fewer than five pairs have to be apart by more than `rules.near`.
    """
    if not ratios:
        return "tie", 1.0, 0.0, math.inf
    low, high = interval(ratios)
    margin = 0.0 if len(ratios) >= FEW else rules.near
    found = "a" if low > 1 + margin else "b" if high < 1 - margin else "tie"
    return found, sorted(ratios)[len(ratios) // 2], low, high
