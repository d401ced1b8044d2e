"""How often noise leads the search astray: whole searches in worlds whose true times are known.

    python tests/search_noise.py [SEARCHES]      prints a table; 400 searches for each row

Times are drawn for each source, so that no structure of the kernel helps. Noise is the spread of
`Simulated`: it only delays; a few samples in a hundred take four times as long.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from search_kernels import number_of
from search_tools import LIMITS, addition

from tilewright.actions import Schedule
from tilewright.backends import backend
from tilewright.search.beam import Budget, Search
from tilewright.search.simulated import Clock, Simulated

BUDGET = Budget(beam=4, seconds=1e9, per_round=16, rounds=1)
BURSTS = 0.03
BASE = 1e-4  # seconds
KERNEL = addition(4, 24)


@dataclass
class World:
    """True seconds by source: the given one's are `BASE`, others' `low` to `high` times that.

    One candidate, the `hidden`-th that is asked for, takes `treasure` times `BASE` instead.
    """

    seed: int
    low: float
    high: float
    treasure: float = 0.0
    hidden: int = 5

    def __post_init__(self) -> None:
        self.times: dict[str, float] = {}

    def __call__(self, source: str) -> float:
        if source not in self.times:
            factor = self.low + (self.high - self.low) * number_of(source, self.seed)
            if not self.times:
                factor = 1.0
            elif len(self.times) == self.hidden and self.treasure:
                factor = self.treasure
            self.times[source] = factor * BASE
        return self.times[source]


def search_in(world: World, noise: float) -> float:
    """Search; return the winner's true seconds."""
    device = Simulated(world, noise=noise, bursts=BURSTS, seed=world.seed, clock=Clock())
    search = Search(KERNEL, Schedule(), backend("interpreter"), LIMITS, device, BUDGET,
                    device.clock, seed=world.seed)
    record = search.run()
    return world.times[search.gate.entries[record.winner].source]


def missed(treasure: float, noise: float, searches: int) -> float:
    """Return how often one candidate, `treasure` times as slow as all others, is not the winner."""
    found = 0
    for seed in range(searches):
        world = World(seed, 1.0, 1.3, treasure)
        found += search_in(world, noise) <= treasure * BASE * 1.0001
    return 1 - found / searches


def accepted_slower(noise: float, searches: int, low: float = 1.0) -> float:
    """Return how often a winner is truly slower than the given schedule; none is faster."""
    wrong = sum(search_in(World(seed, low, 1.3), noise) > BASE * 1.0001
                for seed in range(searches))
    return wrong / searches


def regret(noise: float, searches: int) -> list[float]:
    """Return by how much winners are truly slower than the fastest candidate, sorted."""
    found = []
    for seed in range(searches):
        world = World(seed, 0.8, 1.3)
        took = search_in(world, noise)
        found.append(took / min(world.times.values()) - 1)
    return sorted(found)


def main(searches: int) -> None:
    print("noise  missed 5%  missed 10%  missed 20%  slower accepted  wrong >1%  >3%  >5%  median")
    for noise in (0.01, 0.05, 0.20):
        misses = [missed(t, noise, searches) for t in (0.95, 0.9, 0.8)]
        slower = accepted_slower(noise, searches)
        lost = regret(noise, searches)
        wrong = [sum(x > share for x in lost) / searches for share in (0.01, 0.03, 0.05)]
        print(f"{noise:5.0%} ", *(f"{m:9.1%}" for m in misses), f"{slower:12.2%}",
              *(f"{w:8.1%}" for w in wrong), f"{lost[searches // 2]:8.2%}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
