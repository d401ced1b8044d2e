"""Tuning: search the kernels of plans as they run, within a budget, and remember what was found.

    with tw.tune(beam=4, seconds=60):
        y = f(x)

A plan that runs while tuning is on first computes its results. Then each of its kernels is timed
in a run of the plan, and those worth it are searched, the one with the most time first. A winner
replaces the given schedule only after winning against it in this process, on the plan's memory.
Kernels that a person put in place are left alone.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from tilewright.actions import parse_schedule
from tilewright.backends import backend
from tilewright.config import Config, Tune, using
from tilewright.plan.contenders import contenders
from tilewright.plan.kernels import Built, KernelCache, Target, Work, build, kernel_cache
from tilewright.plan.naming import kernel_name
from tilewright.plan.progress import Display, display_for
from tilewright.plan.recorded import keep, key_of, note_skipped, opened, skipped_seconds
from tilewright.plan.usage import Device, Pair, Usage
from tilewright.runtime.storage import Storage
from tilewright.search.beam import Budget, search
from tilewright.search.decide import Rules, Verdict, duel
from tilewright.search.entries import Entry
from tilewright.search.record import Final, Record, Trial

if TYPE_CHECKING:
    from tilewright.plan.plan import Plan

LEAST_GRANT = 1.0  # seconds; a search with less finds nothing, so small shares are rounded up
SEARCH_SHARE = 0.94  # of a grant; the rest is for the last comparison and what stands around it
RULES = Rules()
DUEL_SHARE = 0.04  # of the seconds, for the last comparison of a slow kernel
FEWEST = 3  # pairs where each takes long
PAIRS, FEW_PAIRS = (6, RULES.duel), (2, 2)  # least and most; few where the gain is beyond doubt


class Attendant(Protocol):
    """What `Config.tune` may be, besides a `Tune`."""

    def attend(self, plan: Plan, inputs: Sequence[Storage]) -> bool:
        """Look at a plan that just ran on `inputs`; False to be asked again at its next run."""


@dataclass
class Result:
    """What became of one kernel. Times are seconds of one launch.

    fate       faster, kept, or why it was not searched: short, recorded, near limit, no budget,
               failed
    reason     the fate in words
    share      of the time of the plan, or program, that it was found in
    spent      seconds of tuning
    """

    built: Built = field(repr=False)
    name: str
    fate: str
    reason: str
    share: float
    before: float
    after: float
    spent: float = 0.0
    record: Record | None = field(default=None, repr=False)

    @property
    def gain(self) -> float:
        """Time before over time after."""
        return self.before / self.after

    def __str__(self) -> str:
        if self.fate != "faster":
            return f"{self.name}: {self.fate} ({self.reason})"
        return f"{self.name}: {self.gain:.2f} times as fast ({self.reason})"


class Tuner:
    """Searches kernels within the budget of a `Tune`.

    results    what became of each kernel met, in order
    left       seconds of the budget that are left
    """

    def __init__(self, tune: Tune, device: Device | None = None,
                 cache: KernelCache = kernel_cache):
        self.tune, self.device, self.cache = tune, device or Device(), cache
        self.results: list[Result] = []
        self.left, self.closed = tune.seconds, False
        self._end = 0.0  # of the budget, by the clock, while it is being spent
        self._met: set[tuple] = set()  # kernels by key and target
        self._warned = False  # of a noisy machine
        self._plans: weakref.WeakSet[Plan] = weakref.WeakSet()
        self._lock = threading.Lock()

    # -- plans that run --------------------------------------------------------------------

    def attend(self, plan: Plan, inputs: Sequence[Storage]) -> bool:
        """Search a plan's kernels if that was not done; False while another thread searches."""
        if self.closed or self.left <= 0 or plan in self._plans:
            return True
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._plans.add(plan)
            by_hand = plan.by_hand
            if any((key, built.target) not in self._met for key, built in plan.built.items()
                   if key not in by_hand):
                with self._spending():
                    self._search_all([u for u in self._usages(plan, inputs)
                                      if u.built.origin.key not in by_hand])
        finally:
            self._lock.release()
        return True

    def spend(self, usages: Iterable[Usage]) -> list[Result]:
        """Search kernels, the one with the most time first; return the results of these."""
        first = len(self.results)
        with self._lock, self._spending():
            self._search_all(list(usages))
        return self.results[first:]

    def close(self) -> None:
        """Search no more."""
        self.closed = True

    def _usages(self, plan: Plan, inputs: Sequence[Storage]) -> list[Usage]:
        """Return the plan's kernels with their times: those of records, if none has to be searched.
        """
        if not self.tune.again:
            known = [(b, self._seconds(b)) for b in plan.built.values()]
            usages = [Usage(b, 1, s, self.device.alone) for b, s in known if s is not None]
            if len(usages) == len(known) and all(map(self._reason, usages)):
                return usages
        try:
            return self.device.usages(plan, inputs)
        except Exception as error:  # a plan that ran once must not fail for being timed
            _warn(f"tune: cannot time the kernels of a plan ({_words(error)}); it stays as it is")
            return []

    @contextmanager
    def _spending(self) -> Iterator[None]:
        start = self.device.clock()
        self._end = start + self.left
        try:
            yield
        finally:
            self.left -= self.device.clock() - start

    # -- the budget ------------------------------------------------------------------------

    def _search_all(self, usages: list[Usage]) -> None:
        """Search what is worth it, each for its share of what is left of the budget."""
        whole = sum(u.seconds for u in usages) or 1.0
        todo = []
        for usage in sorted(usages, key=lambda u: -u.seconds):
            key = usage.built.origin.key, usage.built.target
            if key in self._met:
                continue
            self._met.add(key)
            skipped = self._reason(usage)
            if skipped:
                self._note(usage, *skipped, whole)
            else:
                todo.append(usage)
        if not todo:
            return
        with display_for(self.tune, self.device.clock, self.tune.seconds - self.left) as display:
            weight = sum(u.seconds for u in todo)
            for usage in todo:
                left = self._end - self.device.clock()
                if left < min(LEAST_GRANT, self.tune.seconds) / 2:
                    self._met.discard((usage.built.origin.key, usage.built.target))
                    self._note(usage, "no budget", "the seconds were spent", whole)
                    continue
                grant = min(left, max(left * usage.seconds / weight, LEAST_GRANT))
                weight -= usage.seconds
                self._search_one(usage, grant, whole, display)

    def _reason(self, usage: Usage) -> tuple[str, str] | None:
        """Return fate and reason of a kernel that is not worth a search."""
        built, tune = usage.built, self.tune
        if not self.device.accepts(built):
            return "failed", f"{built.target.backend} is not timed"
        if usage.each < tune.skip_under:
            return "short", f"a launch takes {usage.each * 1e6:.1f} us"
        if not tune.again:
            entry = self._fresh(built)
            if entry is not None:
                return "recorded", f"searched before, {entry.seconds * 1e6:.4g} us"
        share = self.device.share_of_limit(built, usage.each)
        if share > 1 - tune.near_limit:
            return "near limit", f"{min(share, 1.0):.0%} of what the machine can do"
        return None

    def _seconds(self, built: Built) -> float | None:
        """Return what a kernel takes by its record, or by a note that it was not worth one."""
        entry = self._fresh(built)
        return entry.seconds if entry is not None else \
            skipped_seconds(self._records(built), self._key(built))

    def _note(self, usage: Usage, fate: str, reason: str, whole: float) -> None:
        built = usage.built
        if fate in ("short", "near limit") and self._seconds(built) is None:
            note_skipped(self._records(built), self._key(built), built.alternative,
                         str(built.schedule), reason, usage.each)
        self.results.append(Result(built, kernel_name(built.kernel), fate, reason,
                                   usage.seconds / whole, usage.each, usage.each))

    # -- one kernel ------------------------------------------------------------------------

    def _search_one(self, usage: Usage, grant: float, whole: float, display: Display) -> None:
        """Search a kernel; whatever goes wrong leaves it as it is, with a warning."""
        began, built = self.device.clock(), usage.built
        name = kernel_name(built.kernel)
        result = Result(built, name, "kept", "", usage.seconds / whole, usage.each, usage.each)
        self.results.append(result)
        display.start(name, usage.seconds / whole)
        try:
            result.record = record = self._record(built, grant * SEARCH_SHARE, display)
            self._decide(usage, record, result)
        except KeyboardInterrupt:
            result.reason = "interrupted"
            raise
        except Exception as error:
            result.fate, result.reason = "failed", _words(error)
            _warn(f"tune: cannot search {name} ({result.reason}); it keeps its schedule")
        finally:
            result.spent = self.device.clock() - began
            display.done(result)
        if result.record is not None and result.record.why == "interrupted":
            raise KeyboardInterrupt

    def search(self, built: Built) -> Record:
        """Search one kernel with the whole budget, whatever its time; return the record.

        The winner is compared, on inputs of its own, with what plans run now. Raises what
        searching raises, and KeyboardInterrupt only where there is no record yet.
        """
        in_use = self.cache.peek(built.origin.key, built.target) or built
        usage = Usage(in_use, 1, 0.0, self.device.alone)
        result = Result(built, kernel_name(built.kernel), "kept", "", 1.0, 0.0, 0.0)
        with self._lock, self._spending(), display_for(
                self.tune, self.device.clock, self.tune.seconds - self.left) as display:
            display.start(result.name, 1.0)
            result.record = self._record(built, self.left * SEARCH_SHARE, display)
            self._decide(usage, result.record, result)
            self.results.append(result)
            display.done(result)
        return result.record

    def _record(self, built: Built, seconds: float, display: Display) -> Record:
        target, device = self._target(built), self.device
        measurer = device.measurer(target)
        try:
            record = search(
                built.origin, built.schedule, backend(target.backend), target.limits, measurer,
                Budget(self.tune.beam, seconds), device.clock, rules=RULES,
                alternative=built.alternative, seed=self.tune.seed, watch=display.watch)
        finally:
            measurer.close()
        if record.noise > RULES.noisy and not self._warned:
            self._warned = True
            _warn(f"tune: this machine is noisy ({record.noise:.0%} spread of one kernel's runs): "
                  "samples are doubled, and small gains will be missed")
        return record

    def _decide(self, usage: Usage, record: Record, result: Result) -> None:
        """Let the winner compete in this process with what is in use; record and use the better."""
        built, chosen = usage.built, record.start
        started = (chosen.alternative, chosen.schedule) == (built.alternative, str(built.schedule))
        result.before = result.after = usage.each or chosen.seconds
        result.reason = f"no schedule was faster; {record.why}"
        for best in contenders(record):
            new = build(built.origin, built.target, Work(), parse_schedule(best.schedule),
                        best.alternative)
            beyond_doubt = started and record.gain > RULES.early_stop
            outcome = self._duel(usage.pair, built, new, result.before, beyond_doubt)
            verdict, ratio = outcome[:2]
            target = self._target(built)
            if target != built.target:  # asked for in another state than where it is used
                won = self._duel(self.device.alone, replace(built, target=target),
                                 replace(new, target=target), result.before, beyond_doubt)
                chosen = best if won[0] == "a" else chosen
            elif verdict == "a":
                chosen = best
            if verdict == "a":
                result.fate, result.after = "faster", result.before / ratio
                result.reason = f"{result.before * 1e6:.4g} to {result.after * 1e6:.4g} us"
                self.cache.improve(new)
            else:
                result.reason = f"the fastest found did not win where it is used ({ratio:.3f})"
            if started and target == built.target:
                record.duel, record.winner = outcome, chosen.number
                record.finals.append(Final(best.number, *outcome, used=True))
            if chosen is best or verdict == "a":
                break
        if chosen is not record.start or (started and record.why != "interrupted"):
            self._keep(built, record, chosen)

    def _duel(self, pair: Pair, built: Built, new: Built, seconds: float, beyond_doubt: bool
              ) -> Verdict:
        """Return what comes of `new` against `built`: few pairs where the gain is beyond doubt."""
        given, other = pair(built, new)
        least, most = FEW_PAIRS if beyond_doubt else PAIRS
        affordable = int(DUEL_SHARE * self.tune.seconds / (2 * max(seconds, 1e-9)))
        least = min(least, max(FEWEST, affordable))
        return duel(other, given, replace(RULES, duel=max(least, min(most, affordable))), least)

    def _keep(self, built: Built, record: Record, chosen: Trial) -> None:
        keep(self._records(built), self._key(built), kernel_name(built.kernel), record, chosen)

    def _fresh(self, built: Built) -> Entry | None:
        """Return the record of a kernel, measured by this code."""
        entry = self._records(built).lookup(self._key(built))
        return entry if entry is not None and not entry.stale else None

    def _key(self, built: Built):
        target = self._target(built)
        return key_of(built.origin, target.backend, target.limits.threads, target.caches)

    def _target(self, built: Built) -> Target:
        """Return what to measure for: the caches as the plan has them, unless told otherwise."""
        if self.tune.caches == "plan":
            return built.target
        return replace(built.target, caches=self.tune.caches)

    def _records(self, built: Built):
        return opened.get(built.target.records)


def _words(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)


# -- what is in force -----------------------------------------------------------------------

_tuners: weakref.WeakKeyDictionary[Tune, Tuner] = weakref.WeakKeyDictionary()


def attendant(config: Config) -> Attendant | None:
    """Return what `config` lets attend to plans; a `Tune` has one tuner in its life."""
    tune = config.tune
    if not isinstance(tune, Tune):
        return tune
    tuner = _tuners.get(tune)
    if tuner is None:
        tuner = _tuners.setdefault(tune, Tuner(replace(tune)))  # a copy: it must not keep its key
    return tuner


@contextmanager
def tuning(attendant: Attendant) -> Iterator[Attendant]:
    """Let `attendant` attend to every plan that runs inside, compiled before or not."""
    with kernel_cache.watched(), using(tune=attendant):
        yield attendant


@contextmanager
def tune(beam: int = 4, seconds: float = 60.0, *, seed: int = 0, skip_under: float = 5e-6,
         near_limit: float = 0.05, again: bool = False, progress: bool | None = None,
         caches: str = "plan") -> Iterator[Tuner]:
    """Search kernels as they are met inside: ``with tw.tune(beam=4, seconds=60): y = f(x)``.

    What is found is used from the next run on, also by functions compiled before, and recorded for
    later processes. `seconds` are those of all searches together; the other options are those of
    `Tune`. Ctrl-C ends the search with the best so far. Gives the tuner, whose `results` tell what
    became of each kernel.
    """
    tuner = Tuner(Tune(beam, seconds, seed, skip_under, near_limit, again, progress, caches))
    try:
        with tuning(tuner):
            yield tuner
    finally:
        tuner.close()
