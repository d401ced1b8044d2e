"""Beam search over (alternative, schedule), timed on a device.

Arguments in, record out: the measurer and the clock are injected, so that the same inputs and seed
give the same decisions on a simulated device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from tilewright.actions import Schedule
from tilewright.backends import Backend
from tilewright.errors import BackendError, Illegal
from tilewright.kernel import Kernel
from tilewright.limits import Limits
from tilewright.search.candidates import Candidate, Move, forms, moves, pairs, starts
from tilewright.search.cross import crossings
from tilewright.search.decide import Rules, progressed
from tilewright.search.finish import SETTLE, Finish
from tilewright.search.gate import Entry, Gate, drop, promise
from tilewright.search.looks import Looks
from tilewright.search.measurer import Failure, Measurer
from tilewright.search.record import Record, Round, Trial
from tilewright.search.sampler import Sampler

BATCH = 16  # sources compiled between two looks at the clock
IDLE = 16  # candidates in a row, in whole batches, without a new fastest that end a round
RESERVE = 0.12  # share of the budget that is kept for the last comparisons, at most
JUDGE = 0.05  # share of the budget for telling two candidates apart after a round
LOOK = 0.004  # share of the budget for one look at the fastest and the given, at most
ALIKE = 0.03  # share of the fastest's time by which others are looked at as well
NESTS = 0.05  # share of the budget for making a round's nests, at most
EFFORT = 0.05  # share of the budget for a round's code and runs, at least
DRY_EFFORT = 0.15  # and after a dry round
CALM = 0.4  # share of the budget that is left where more dry rounds may follow
LONG = 0.002  # share of the budget above which one run is sampled sparingly
SHORT = 0.0002  # and below which it has as many samples again where it is close to the best
FINALISTS = 6  # times the beam that take part in the last heat
WIDE = 2  # entries of the beam that a round crosses, and of which it tries pairs of moves
SPENT = "the budget was spent"


@dataclass(frozen=True)
class Budget:
    """What a search may spend.

    beam        candidates kept from round to round
    seconds     in all; checked between candidates
    per_round   candidates compiled in one round, in the model's order
    rounds      at most
    slack       candidates that the model puts at more than this many times the best are filtered
    sketches    default, bare or none: see `candidates.starts`
    """

    beam: int = 4
    seconds: float = 13.0
    per_round: int = 32
    rounds: int = 20
    slack: float = 4.0
    sketches: str = "default"


class Search:
    """One search; `run` gives its record. Ctrl-C ends it with the best so far."""

    def __init__(self, kernel: Kernel, start: Schedule, backend: Backend, limits: Limits,
                 measurer: Measurer, budget: Budget, clock: Callable[[], float],
                 rules: Rules | None = None, alternative: int = 0, seed: int = 0,
                 watch: Callable[[Record], None] | None = None):
        self.kernel, self.limits, self.measurer = kernel, limits, measurer
        self.budget, self.rules, self.clock = budget, rules or Rules(), clock
        self.watch = watch
        self.began = clock()
        self.expanded: set[int] = set()
        self.widened: set[int] = set()
        self.beaten: dict[int, float] = {}  # seconds at best, of who lost an alternation
        self.record = Record(kernel.key, kernel.key, backend.name, budget.beam, seed)
        self.gate = Gate(self.record, backend, limits, budget.slack, self._left_for_rounds)
        self.sampler = Sampler(self.record, self.gate, measurer, self.rules,
                               SHORT * budget.seconds, LONG * budget.seconds, self._spent, clock)
        self.looks = Looks(self.sampler, measurer, LOOK * budget.seconds)
        form = forms(kernel, limits)[alternative]
        self.given = Candidate(alternative, form, start, label="given")
        self.reserve = 0.0  # seconds that the end will take
        self.rest: Iterator[tuple[Move, int]] = iter(())  # moves that a round had no time for
        self.cut = False  # whether there are any

    # -- the whole ---------------------------------------------------------------------------

    def run(self) -> Record:
        """Search until rounds are dry, the budget is spent or Ctrl-C is pressed."""
        try:
            self._begin()
            self._rounds()
        except KeyboardInterrupt:
            if not self.record.trials or self.record.trials[0].fate != "timed":
                raise  # there is nothing to answer yet
            self.record.why = "interrupted"
        self._finish()
        return self.record

    def _rounds(self) -> None:
        self._round(0, ((c, -1) for c in starts(self.kernel, self.limits, self.budget.sketches)))
        beam = self._best()
        self._close_round(0, beam, "starts measured")
        dry = 0
        for number in range(1, self.budget.rounds + 1):
            if self._spent():
                self.record.why = SPENT
                return
            found = self._moves(beam, dry > 0)
            if found is None:
                self.record.why = "every move from the beam, and from what is near it, was tried"
                return
            self._round(number, found, (DRY_EFFORT if dry else EFFORT) * self.budget.seconds)
            progress, decision = self._judge(beam[0], number)
            beam = self._best()
            self._close_round(number, beam, decision)
            dry = 0 if progress else dry + 1
            if dry >= (self.rules.dry_rounds if self._left() < CALM * self.budget.seconds
                       else self.rules.most_dry_rounds):
                self.record.why = f"{dry} rounds without progress"
                return
        self.record.why = f"{self.budget.rounds} rounds were run"

    def _begin(self) -> None:
        """Compile and time the given schedule, without early stop: nothing slower is answered."""
        entry = self.gate.new(self.given, -1, 0)
        if not (self.gate.place(entry) and self.gate.lower(entry)):
            raise Illegal(f"search: cannot start from the given schedule ({entry.trial.reason})")
        self.gate.render(entry)
        (code,) = self.measurer.compile([entry.source])
        if isinstance(code, Failure):
            raise BackendError(f"search: cannot compile the given schedule ({code.reason})")
        self.record.counts["compiled"] += 1
        self.gate.new_object(entry, code)
        handle = self.measurer.begin(self.given.kernel, entry.code(code))
        if isinstance(handle, Failure):
            raise BackendError(f"search: cannot run the given schedule ({handle.reason})")
        entry.handle = handle
        self.record.noise = self.measurer.noise()
        self.rules = self.sampler.rules = self.rules.against(self.record.noise)
        samples = self.rules.samples
        if not (self.sampler.take(entry, 1)
                and (entry.trial.seconds > self.sampler.long
                     or self.sampler.take(entry, samples - 1))):
            raise BackendError(f"search: cannot run the given schedule ({entry.trial.reason})")
        self.record.counts["timed"] += 1
        self.gate.timed.append(entry)
        entry.trial.fate = "timed"
        most = 2 * self.rules.last * entry.trial.seconds \
            + 2 * self.rules.places * SETTLE * self.budget.seconds
        self.reserve = min(most, RESERVE * self.budget.seconds)

    def _moves(self, beam: list[int], wide: bool) -> Iterator[tuple[Move, int]] | None:
        """Return what to try next: moves of new entries; if `wide`, or there are none, more.

        These are crossings of the first entries with others that are nearly as fast, and pairs of
        moves of the first that had none yet. Where all of the beam had their moves, the next that
        are nearly as fast have.

        None where there is nothing.
        """
        fresh = [n for n in beam if n not in self.expanded]
        wide = wide or not fresh
        fresh = fresh or self._next()
        first = [n for n in beam if wide and n not in self.widened
                 and self.gate.entries[n].candidate.recipe is not None][:WIDE]
        self.expanded.update(fresh)
        self.widened.update(first)
        if not fresh and not first and not self.cut:
            return None
        crossed = ((move, n) for n in beam[:WIDE] if wide for move in self._crossings(n))
        new = ((move, n) for numbers, of in ((fresh, moves), (first, pairs)) for n in numbers
               for move in of(self.gate.entries[n].candidate, self.limits))
        return chain(crossed, new, self.rest)

    def _next(self) -> list[int]:
        """Return the fastest entries that had no moves yet, as many as the beam, if any is near."""
        timed = self._timed()
        near = (1 + self.rules.near) * timed[0].seconds
        return [t.number for t in timed
                if t.seconds <= near and t.number not in self.expanded][:self.budget.beam]

    def _crossings(self, number: int) -> Iterator[Move]:
        """Return crossings of an entry with those that are nearly as fast."""
        entries, seconds = self.gate.entries, self.record.trials[number].seconds
        others = [(entries[t.number].candidate, t.seconds) for t in self._timed()
                  if t.number != number and t.seconds <= (1 + self.rules.near) * seconds]
        return crossings(entries[number].candidate, seconds, others, self.limits)

    def _left(self) -> float:
        return self.budget.seconds - (self.clock() - self.began)

    def _left_for_rounds(self) -> float:
        return self._left() - self.reserve

    def _spent(self) -> bool:
        return self._left_for_rounds() <= 0

    # -- one round ---------------------------------------------------------------------------

    def _round(self, number: int, found: Iterator[tuple[Move, int]], effort: float = 0.0) -> None:
        """Lower, compile and time what was found, a batch at a time in the model's order.

        Ends with the budget; and, once it took the seconds of its `effort`, with the round's share
        or after many without a new fastest.
        """
        with self.sampler.time("lower"):
            waiting = self.gate.order(self._for_a_while(found), number)
        patient = self.clock() + effort
        taken = idle = 0
        while waiting and not self._spent():
            enough = self.clock() >= patient
            if taken >= self.budget.per_round and enough:
                return self._leave(waiting, "behind the round's share in the model's order")
            if idle >= IDLE and number and enough:
                return self._leave(waiting, f"the {idle} before it in the model's order "
                                            "were no faster than the best")
            fastest = min(t.seconds for t in self.record.trials)
            count = self._batch(waiting, number)
            taken += count
            faster = min(t.seconds for t in self.record.trials) < fastest
            idle = 0 if faster else idle + count
        for entry in waiting:
            drop(entry.trial, "untried", SPENT)

    def _for_a_while(self, found: Iterator[tuple[Move, int]]) -> Iterator[tuple[Move, int]]:
        """Yield moves until their nests took a share of the budget: the fastest entry's first."""
        end = self.clock() + NESTS * self.budget.seconds
        self.cut, self.rest = False, iter(())
        for move in found:
            yield move
            if self.clock() > end:
                self.cut, self.rest = True, found
                return

    def _leave(self, waiting: list[Entry], reason: str) -> None:
        for entry in waiting:
            self.gate.filter(entry, reason)

    def _batch(self, waiting: list[Entry], number: int) -> int:
        """Lower and compile a batch, side by side, then time each of it; return how many."""
        batch: list[Entry] = []
        began, before = self.clock(), self.record.seconds.get("lower", 0.0)
        codes = self.measurer.compile(self._sources(waiting, number, batch))
        lowering = self.record.seconds.get("lower", 0.0) - before
        self.sampler.add("compile", self.clock() - began - lowering)
        self.record.counts["compiled"] += len(batch)
        best = min(t.seconds for t in self.record.trials)
        for entry, code in sorted(zip(batch, codes), key=lambda pair: promise(pair[0])):
            self._take_code(entry, code, best)
            if self.watch is not None:
                self.watch(self.record)
        self.sampler.settle(batch)
        if not self._spent():
            self._look()
        return len(batch)

    def _look(self) -> None:
        """Hold the fastest against the given schedule, and who is about as fast for longest."""
        timed = [t for t in self._timed() if t.number]
        alike = [t.number for t in timed if t.seconds <= (1 + ALIKE) * timed[0].seconds]
        known = sorted(alike[1:], key=lambda n: -len(self.looks.ratios.get(n, ())))
        numbers = [*alike[:1], *known[:1]]
        self.looks.take(self.gate.entries[0], [self.gate.entries[n] for n in numbers])

    def _sources(self, waiting: list[Entry], number: int, batch: list[Entry]) -> Iterator[str]:
        """Yield the sources of a batch, which gains their entries."""
        found = self.gate.batch(waiting, BATCH, number)
        while True:
            with self.sampler.time("lower"):
                entry = next(found, None)
            if entry is None:
                return
            batch.append(entry)
            yield entry.source

    def _take_code(self, entry: Entry, code: bytes | Failure, best: float) -> None:
        if isinstance(code, Failure):
            drop(entry.trial, code.kind, code.reason)
        elif self.gate.new_object(entry, code):
            if self._spent():
                drop(entry.trial, "untried", SPENT)
            else:
                self.sampler.try_out(entry, code, best)

    # -- decisions ---------------------------------------------------------------------------

    def _best(self) -> list[int]:
        """Return the beam: the fastest entries by their least sample, given schedule included.

        The last places are for the fastest of forms that have no other, if not far behind.
        """
        timed = self._timed()
        far = self.rules.early_stop * timed[0].seconds
        firsts = {t.alternative: t for t in reversed(timed) if t.seconds <= far}
        chosen = timed[:self.budget.beam]
        others = [t for form, t in sorted(firsts.items())
                  if form not in {c.alternative for c in chosen}]
        keep = max(1, self.budget.beam - len(others))
        beam = [*chosen[:keep], *others[:self.budget.beam - keep]]
        return [t.number for t in sorted(beam, key=lambda t: (t.seconds, t.number))]

    def _timed(self) -> list[Trial]:
        """Return what was timed, the fastest first; who lost an alternation is not before it."""
        timed = [t for t in self.record.trials if t.fate == "timed"]
        return sorted(timed, key=lambda t: (max(t.seconds, self.beaten.get(t.number, 0.0)),
                                            t.number))

    def _judge(self, first: int, number: int) -> tuple[bool, str]:
        """Return whether a round progressed beyond noise, and the words for it.

        The machine's speed drifts: the round's fastest alternates with the first of the beam also
        where samples of an earlier time are a little better.
        """
        old = self.gate.entries[first]
        found = [t for t in self._timed() if t.round == number
                 and t.seconds < (1 + self.rules.near) * old.trial.seconds]
        if not found:
            return False, "no candidate was faster"
        new = self.gate.entries[found[0].number]
        if progressed(new.trial.samples, old.trial.samples, self.rules):
            return True, f"{new.trial.number} is faster than {first} beyond noise"
        if self._spent():
            return False, f"{new.trial.number} and {first} are left to the last heat: {SPENT}"
        each = new.trial.seconds + old.trial.seconds
        most = max(3, min(self.rules.duel, int(JUDGE * self.budget.seconds / each)))
        try:
            verdict, ratio, _, _ = self.sampler.alternate(new, old, most)
        except BackendError as error:  # one of them is out; the beam goes on without it
            return old.trial.fate != "timed", str(error)
        if verdict == "a" and ratio > 1 + self.rules.least_share:
            self.beaten[first] = ratio * new.trial.seconds
            return True, f"{new.trial.number} won {first} by {ratio:.3f} in alternation"
        self.beaten[new.trial.number] = old.trial.seconds / min(ratio, 1.0)
        return False, f"{new.trial.number} did not beat {first} in alternation (ratio {ratio:.3f})"

    # -- the end -----------------------------------------------------------------------------

    def _close_round(self, number: int, beam: list[int], decision: str) -> None:
        if self.cut:
            decision += "; further moves wait: nests took the round's share of the seconds"
        self.record.rounds.append(Round(number, beam, decision, self.clock() - self.began))
        if self.watch is not None:
            self.watch(self.record)

    def _finish(self) -> None:
        finish = Finish(self.record, self.gate, self.sampler, self.measurer, self.looks,
                        self.rules, self._left, self.reserve, SETTLE * self.budget.seconds)
        finish.run(self._timed(), FINALISTS * self.budget.beam)
        self.record.seconds["total"] = self.clock() - self.began


def search(kernel: Kernel, start: Schedule, backend: Backend, limits: Limits, measurer: Measurer,
           budget: Budget, clock: Callable[[], float], **options) -> Record:
    """Return the record of a beam search for a faster schedule of `kernel` than `start`.

    `alternative` tells which form of the kernel `start` belongs to. The winner is never slower than
    `start` beyond the paired interval of their last alternation. Raises Illegal or BackendError
    where `start` itself cannot be run.
    """
    return Search(kernel, start, backend, limits, measurer, budget, clock, **options).run()
