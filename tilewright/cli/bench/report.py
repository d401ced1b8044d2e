"""What a benchmark found: rows, the object written as JSON, and the table for the terminal."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tilewright.cli.bench.measure import geometric_mean
from tilewright.cli.machine import seconds
from tilewright.search.roofline import MachineLimits


@dataclass(frozen=True)
class Searched:
    """A case after a search: seconds of one call, the default's time over it with its 95% interval,
    and the seconds that the search took."""

    seconds: float
    gain: float
    interval: tuple[float, float]
    search_seconds: float

    def columns(self, floor: float) -> dict[str, Any]:
        """Return the columns of a `Row`; `floor` is the least time that the machine needs."""
        return {"searched_s": self.seconds, "searched_ratio": self.gain,
                "searched_interval": self.interval, "searched_limit_share": floor / self.seconds,
                "search_seconds": self.search_seconds}


@dataclass(frozen=True)
class Row:
    """One case against one peer. Times in seconds of one call; `ratio` is peer over ours.

    interval      95% interval of `ratio`
    spread        interquartile range of the pairs' ratios over their median
    limit_share   least time the machine needs for the bytes and FLOP, over ours

    With ``--beam``, the same after a search:

    searched_s, searched_limit_share      as without `searched`
    searched_ratio, searched_interval     ours without a search over searched, and its interval
    search_seconds                        what the search took
    """

    suite: str
    case: str
    device: str
    threads: int
    peer: str
    ours_s: float
    peer_s: float
    ratio: float
    interval: tuple[float, float]
    spread: float
    pairs: int
    gbps: float
    gflops: float
    limit_share: float
    searched_s: float | None = None
    searched_ratio: float | None = None
    searched_interval: tuple[float, float] | None = None
    searched_limit_share: float | None = None
    search_seconds: float | None = None

    def plain(self) -> dict[str, object]:
        """Return the row as it is written in JSON."""
        return {k: v for k, v in asdict(self).items() if v is not None}


@dataclass(frozen=True)
class Problem:
    """A case that could not be compared with a peer, and why; `ours` tells whose fault it is."""

    case: str
    peer: str
    reason: str
    ours: bool


@dataclass
class Report:
    """All that one run found."""

    machine: dict[str, object]
    limits: MachineLimits
    peers: dict[str, str]
    rows: list[Row] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def means(self) -> dict[str, float]:
        """Return the geometric mean of the ratios to each peer."""
        return {peer: geometric_mean([r.ratio for r in self.rows if r.peer == peer])
                for peer in self.peers if any(r.peer == peer for r in self.rows)}

    @property
    def searched(self) -> bool:
        """Whether cases were searched."""
        return any(r.searched_s is not None for r in self.rows)

    def gain(self) -> float:
        """Return the geometric mean over cases of the default's time over that after a search."""
        found = {r.case: r.searched_ratio for r in self.rows if r.searched_ratio is not None}
        return geometric_mean(list(found.values()))

    def plain(self) -> dict[str, object]:
        """Return the object written by ``--json``."""
        return {
            "machine": self.machine,
            "limits": self.limits.plain(),
            "peers": self.peers,
            "rows": [r.plain() for r in self.rows],
            "geometric_means": self.means(),
            **({"searched_geometric_mean": self.gain()} if self.searched else {}),
            "problems": [asdict(p) for p in self.problems],
        }


def _colour(ratio: float) -> str:
    return "green" if ratio >= 1.0 else "yellow" if ratio >= 0.8 else "red"


def table(report: Report, width: int = 120) -> Table:
    """Return the rows as a table, cases in order, one line for each peer.

    What fits into `width` characters is shown; the intervals go first.
    """
    peers = list(dict.fromkeys(r.peer for r in report.rows))
    searched = report.searched
    wide = width >= (125 if searched else 100)
    interval = ", with its 95% interval" if wide else ""
    words = " gain: our time over that after a search." if searched else ""
    result = Table(
        box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold",
        caption_justify="left", caption=f"ratio: peer's time over ours{interval}. limit: share of "
                                        f"what this machine could do at best.{words}")
    result.add_column("case", no_wrap=True)
    columns = ["ours", *(["peer"] if len(peers) != 1 else []), peers[0] if len(peers) == 1 else "",
               "ratio", *(["interval"] if wide else []), "GB/s", "GFLOP/s", "limit",
               *(["searched", "gain", "limit", "in"] if searched else [])]
    for name in columns:
        result.add_column(name, justify="left" if name == "peer" else "right", no_wrap=True)
    previous = ""
    for r in report.rows:
        first = r.case != previous
        extra = [] if not searched else _searched_cells(r) if first else [""] * 4
        result.add_row(*_cells(r, first, len(peers) != 1, wide), *extra)
        previous = r.case
    return result


def _cells(r: Row, first: bool, named: bool, wide: bool) -> list[str]:
    return [
        r.case if first else "", seconds(r.ours_s), *([r.peer] if named else []),
        seconds(r.peer_s), f"[{_colour(r.ratio)}]{r.ratio:.2f}[/]",
        *([f"[dim]{r.interval[0]:.2f}..{r.interval[1]:.2f}[/]"] if wide else []),
        f"{r.gbps:.1f}", f"{r.gflops:.1f}" if r.gflops else "", f"{r.limit_share:.0%}"]


def _searched_cells(r: Row) -> list[str]:
    if r.searched_s is None or r.searched_ratio is None:
        return [""] * 4
    colour = "green" if r.searched_ratio >= 1.02 else "red" if r.searched_ratio < 0.98 else "dim"
    return [seconds(r.searched_s), f"[{colour}]{r.searched_ratio:.2f}[/]",
            f"{r.searched_limit_share:.0%}", f"{r.search_seconds:.1f} s"]
