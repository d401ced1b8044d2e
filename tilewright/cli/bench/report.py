"""What a benchmark found: rows, the object written as JSON, and the table for the terminal."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tilewright.search.roofline import MachineLimits
from tilewright.cli.bench.measure import geometric_mean
from tilewright.cli.machine import seconds


@dataclass(frozen=True)
class Row:
    """One case against one peer. Times in seconds of one call; `ratio` is peer over ours.

    interval      95% interval of `ratio`
    spread        interquartile range of the pairs' ratios over their median
    limit_share   least time the machine needs for the bytes and FLOP, over ours
    searched_s    seconds that a search of this case took, when one was made
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

    def plain(self) -> dict[str, object]:
        """Return the object written by ``--json``."""
        return {
            "machine": self.machine,
            "limits": self.limits.plain(),
            "peers": self.peers,
            "rows": [r.plain() for r in self.rows],
            "geometric_means": self.means(),
            "problems": [asdict(p) for p in self.problems],
        }


def _colour(ratio: float) -> str:
    return "green" if ratio >= 1.0 else "yellow" if ratio >= 0.8 else "red"


def table(report: Report, width: int = 120) -> Table:
    """Return the rows as a table, cases in order, one line for each peer.

    What fits into `width` characters is shown; the intervals go first.
    """
    peers = list(dict.fromkeys(r.peer for r in report.rows))
    wide = width >= 100
    interval = ", with its 95% interval" if wide else ""
    result = Table(
        box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold",
        caption_justify="left", caption=f"ratio: peer's time over ours{interval}. limit: share of "
                                        "what this machine could do at best.")
    result.add_column("case", no_wrap=True)
    columns = ["ours", *(["peer"] if len(peers) != 1 else []), peers[0] if len(peers) == 1 else "",
               "ratio", *(["interval"] if wide else []), "GB/s", "GFLOP/s", "limit"]
    for name in columns:
        result.add_column(name, justify="left" if name == "peer" else "right", no_wrap=True)
    previous = ""
    for r in report.rows:
        result.add_row(*_cells(r, r.case != previous, len(peers) != 1, wide))
        previous = r.case
    return result


def _cells(r: Row, first: bool, named: bool, wide: bool) -> list[str]:
    return [
        r.case if first else "", seconds(r.ours_s), *([r.peer] if named else []),
        seconds(r.peer_s), f"[{_colour(r.ratio)}]{r.ratio:.2f}[/]",
        *([f"[dim]{r.interval[0]:.2f}..{r.interval[1]:.2f}[/]"] if wide else []),
        f"{r.gbps:.1f}", f"{r.gflops:.1f}" if r.gflops else "", f"{r.limit_share:.0%}"]
