"""A whole search on this machine's processor, some of its candidates replaced by hostile code."""

from __future__ import annotations

import time
from dataclasses import replace

import hostile
import pytest
from search_kernels import Watching
from search_tools import LIMITS, addition, product

from tilewright.actions import Schedule, default_schedule, parse_schedule
from tilewright.backends import backend
from tilewright.limits import Limits
from tilewright.plan.kernels import Target
from tilewright.search import Budget, Record, search
from tilewright.search.device import Caps, CpuMeasurer

BUDGET = Budget(seconds=20, per_round=6, rounds=1)


@pytest.fixture(scope="module")
def limits() -> Limits:
    return replace(backend("llvm").limits, threads=1)


@pytest.fixture
def device(limits):
    with CpuMeasurer(Target("llvm", limits), caps=Caps(run_seconds=0.3)) as measurer:
        yield measurer


class Poisoned(Watching):
    """Puts hostile code in the place of all but the first source compiled and every third."""

    def __init__(self, device: CpuMeasurer, texts: list[str]):
        super().__init__(device)
        self.texts, self.poisoned = texts, 0

    def compile(self, sources):
        made = []
        for source in sources:
            number = len(self.sources) + len(made)
            if number % 3 and self.texts:
                source = self.texts[self.poisoned % len(self.texts)]
                self.poisoned += 1
            made.append(source)
        return super().compile(made)


def searched(kernel, start, limits, device, budget=BUDGET) -> Record:
    return search(kernel, start, backend("llvm"), limits, device, budget, time.monotonic)


def test_a_search_from_plain_loops_finds_a_faster_schedule(device, limits):
    kernel = product(64, 64, 64)
    record = searched(kernel, Schedule(), limits, device)
    assert record.gain > 1.5 and record.winner
    assert {t.fate for t in record.trials} <= {"timed", "slow", "illegal", "filtered", "duplicate",
                                              "untried", "too_large"}
    parse_schedule(record.best.schedule).apply(kernel)


def test_hostile_candidates_never_win(device, limits):
    kernel = addition(64, 64)
    texts = [hostile.HANGS, hostile.CRASHES, hostile.NOTHING, hostile.zeros(4 * 64 * 64),
             hostile.NEVER_COMPILES, hostile.NO_SOURCE]
    watching = Poisoned(device, texts)
    budget = replace(BUDGET, per_round=9, rounds=2, slack=1e9)
    record = searched(kernel, default_schedule(kernel, LIMITS), limits, watching, budget)
    failed = [t for t in record.trials if t.fate in ("timeout", "crash", "wrong", "compile_error",
                                                     "memory")]
    assert watching.poisoned >= 2
    assert failed and all(t.reason for t in failed)
    assert record.best.fate == "timed" and record.best not in failed
    assert record.seconds["total"] < 30
