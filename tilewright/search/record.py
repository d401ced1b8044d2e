"""What a search leaves behind: every candidate with its fate, and the winner."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from tilewright.search.page import page

FATES = ("illegal", "duplicate", "filtered", "too_large", "compile_error", "timeout", "crash",
         "memory", "wrong", "slow", "timed", "untried")


COUNTED = ("candidates", "distinct", "programs", "compiled", "timed", "filtered")


@dataclass
class Trial:
    """One candidate.

    number, parent   identity, and the candidate it was a move from (-1: none)
    round            0 for the starts
    label            the move
    fate             one of FATES; reason says why
    cycles, expected the model's, and the seconds that they stand for
    samples          seconds, as taken
    """

    number: int
    parent: int
    round: int
    label: str
    fate: str = "untried"
    reason: str = ""
    alternative: int = 0
    schedule: str = ""
    nest: str = ""
    cycles: float = 0.0
    expected: float = 0.0
    samples: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The least sample, infinite where there is none."""
        return min(self.samples, default=float("inf"))

    @property
    def spread(self) -> float:
        """The samples' range over the least."""
        return (max(self.samples) - min(self.samples)) / min(self.samples) if self.samples else 0.0


@dataclass
class Round:
    """One round: the beam at its end (candidate numbers, fastest first) and what was decided."""

    number: int
    beam: list[int]
    decision: str
    ended: float  # seconds since the search began


@dataclass
class Standing:
    """A candidate in the last heat: its time over the fastest's, and at how many places."""

    number: int
    ratio: float
    places: int


@dataclass
class Final:
    """A comparison of a candidate with the given schedule at the end of a search.

    verdict         a (it is faster), b (it is slower) or tie
    ratio, low, high  the given schedule's time over its own, and the interval
    looks           comparisons all through the search
    overruled       their verdict, where they decided otherwise
    used            whether it was in the user's process, on the program's memory
    """

    number: int
    verdict: str
    ratio: float
    low: float
    high: float
    looks: int = 0
    overruled: str = ""
    used: bool = False

    def __str__(self) -> str:
        words = {"a": "faster than", "b": "slower than", "tie": "no different from"}
        text = (f"{self.number} is {words[self.verdict]} the given schedule: "
                f"{self.ratio:.3f} times as fast ({self.low:.3f} to {self.high:.3f})")
        if self.overruled:
            told = "faster" if self.overruled == "a" else "slower"
            text += f"; {self.looks} looks all through the search say it is {told}"
        return text


@dataclass
class Record:
    """A finished search. `winner` is a trial's number; 0 is the given schedule.

    counts   candidates, distinct (by nest), programs (distinct, of those that passed the filters),
             compiled, timed, filtered
    seconds  by activity: lower, compile, link, sample, total
    heat     what took part in the last heat, the fastest first
    finals   who was held against the given schedule then
    duel     the comparison that decided: as `Final`, without the number
    """

    key: str
    kernel: str
    device: str
    beam: int
    seed: int
    trials: list[Trial] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    winner: int = 0
    why: str = ""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    seconds: dict[str, float] = field(default_factory=dict)
    duel: tuple[str, float, float, float] | None = None
    heat: list[Standing] = field(default_factory=list)
    finals: list[Final] = field(default_factory=list)
    noise: float = 0.0  # spread of a reference kernel when the search began

    @property
    def start(self) -> Trial:
        return self.trials[0]

    @property
    def best(self) -> Trial:
        return self.trials[self.winner]

    @property
    def gain(self) -> float:
        """Time of the given schedule over the winner's: at least 1."""
        return self.start.seconds / self.best.seconds if self.best.samples else 1.0

    def decisions(self) -> str:
        """Return the record as text without times: equal for equal inputs and seed."""
        lines = [f"beam {self.beam} seed {self.seed}"]
        for t in self.trials:
            lines.append(f"{t.number} <- {t.parent} round {t.round} [{t.label}] {t.fate}"
                         + (f": {t.reason}" if t.reason else ""))
        lines += [f"round {r.number}: {r.beam} {r.decision}" for r in self.rounds]
        lines.append(f"last heat: {[s.number for s in self.heat]}")
        lines += [f"{f.number} against 0: {f.verdict}" + f" overruled: {f.overruled}" * bool(
            f.overruled) for f in self.finals]
        lines.append(f"winner {self.winner}: {self.why}")
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the whole record as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Record:
        data = json.loads(text)
        data["trials"] = [Trial(**t) for t in data["trials"]]
        data["rounds"] = [Round(**r) for r in data["rounds"]]
        data["heat"] = [Standing(**s) for s in data.get("heat", ())]
        data["finals"] = [Final(**f) for f in data.get("finals", ())]
        data["duel"] = tuple(data["duel"]) if data["duel"] else None
        return cls(**data)

    def to_html(self, name: str = "") -> str:
        """Return one self-contained page: the tree of rounds, time against candidates, and the
        winner's loops before and after. `name` is its title, unless given the kernel's first line.
        """
        return page(self, name)

    def ending(self) -> list[str]:
        """Return what the last heat and the last comparisons found, a line each."""
        lines = []
        if self.heat:
            standings = ", ".join(f"{s.number} {s.ratio:.3f}" for s in self.heat)
            lines.append("last heat, times over the fastest's at up to "
                         f"{max(s.places for s in self.heat)} places: {standings}")
        return lines + [f"{'where it is used' if f.used else 'last comparison'}: {f}"
                        for f in self.finals]

    def explain(self) -> str:
        """Tell round by round what was tried, each candidate's fate, and why the search stopped."""
        lines = [f"search of {self.kernel.splitlines()[0]} on {self.device}, beam {self.beam}"]
        for number in sorted({t.round for t in self.trials}):
            lines.append(f"round {number}" if number else "starts")
            tried = [t for t in self.trials if t.round == number]
            for t in sorted(tried, key=lambda t: (t.seconds, t.number)):
                time = f"{t.seconds * 1e6:10.2f} us" if t.samples else f"{'':>13}"
                parent = f"of {t.parent}" if t.parent >= 0 else ""
                lines.append(f"  {t.number:4} {parent:7} {time} {t.fate:13} {t.label}"
                             + (f" ({t.reason})" if t.reason else ""))
            lines += [f"  beam {r.beam}: {r.decision}" for r in self.rounds if r.number == number]
        lines += ["the end", *(f"  {line}" for line in self.ending())]
        lines.append(f"winner {self.winner}, {self.gain:.3f} times as fast as given: {self.why}")
        lines.append("counts " + ", ".join(f"{k} {v}" for k, v in self.counts.items()))
        lines.append("seconds " + ", ".join(f"{k} {v:.2f}" for k, v in self.seconds.items()))
        return "\n".join(lines)
