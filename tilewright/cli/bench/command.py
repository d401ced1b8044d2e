"""``tilewright bench``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import tilewright as tw
from tilewright import config
from tilewright.cli import machine
from tilewright.cli.bench.cases import SUITES, Case, select
from tilewright.cli.bench.libraries import PEERS, Library, Tilewright, installed
from tilewright.cli.bench.page import page
from tilewright.cli.bench.report import Report, table
from tilewright.cli.bench.run import Effort, Searching, run
from tilewright.plan.recorded import opened
from tilewright.search import Budget
from tilewright.search.roofline import measure_limits


def choose_peers(names: tuple[str, ...]) -> list[Library]:
    """Return adapters of the peers named, or of all that are installed. NumPy is always one.

    Raises click.UsageError for a peer that was named and is not installed.
    """
    found = installed()
    for name in names:
        if not found[name]:
            raise click.UsageError(f"bench: cannot compare with {name} (not installed; "
                                   f"{PEERS[name].install})")
    wanted = names or tuple(name for name, here in found.items() if here)
    return [PEERS[name]() for name in PEERS if name in wanted]


def _progress(console: Console) -> Progress:
    # It is redrawn between cases only: a thread that draws would be timed with the kernels.
    return Progress(TextColumn("[bold]{task.description:<34}"), BarColumn(), MofNCompleteColumn(),
                    TimeElapsedColumn(), console=console, auto_refresh=False, transient=True)


def measure(suite: str, cases: list[Case], threads: int, peers: list[Library], effort: Effort,
            console: Console, searching: Searching | None = None) -> Report:
    """Measure the machine's limits and every case, with a progress bar on `console`."""
    with _progress(console) as progress:
        task = progress.add_task("limits of this machine", total=len(cases))

        def show(text: str, done: int = 0) -> None:
            progress.update(task, description=text, completed=done)
            progress.refresh()

        limits = measure_limits(threads, progress=lambda text: show(f"limits: {text}"))
        facts = {**machine.describe(), "tilewright": tw.__version__}
        report = Report(facts, limits, {p.name: p.version for p in peers})
        run(suite, cases, threads, peers, report, effort, lambda n, case: show(case.name, n),
            searching)
        show("done", len(cases))
    return report


@contextmanager
def searching_in(beam: int, seconds: float, keep: bool) -> Iterator[Searching | None]:
    """Give what `--beam` asks for, over records of its own unless they are to be kept."""
    if not beam:
        yield None
    elif keep:
        yield Searching(beam, seconds, config.current().cache_dir)
    else:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            try:
                yield Searching(beam, seconds, directory)
            finally:
                opened.close(directory)


def _print(report: Report, console: Console) -> None:
    limits = report.limits
    console.print(table(report, console.width))
    for problem in report.problems:
        who = problem.peer or "tilewright"
        console.print(f"{'[red]failed' if problem.ours else '[dim]left out'}[/] "
                      f"{problem.case}: {who}: {problem.reason}", highlight=False)
    largest = max(limits.read)
    console.print(
        f"limits with {limits.threads} thread{'s' * (limits.threads != 1)}: "
        f"{limits.flops / 1e9:.0f} GFLOP/s; {machine.size(largest)} read at "
        f"{limits.read[largest] / 1e9:.1f}, written at {limits.write[largest] / 1e9:.1f} GB/s",
        highlight=False)
    for peer, mean in report.means().items():
        console.print(f"geometric mean {peer}/ours: [bold]{mean:.2f}[/]", highlight=False)
    if report.searched:
        console.print(f"geometric mean ours/searched: [bold]{report.gain():.2f}[/]",
                      highlight=False)


@click.command()
@click.option("--suite", type=click.Choice(sorted(SUITES)), default="kernels", show_default=True)
@click.option("--threads", type=click.IntRange(1), default=None,
              help="Threads of both sides.  [default: TILEWRIGHT_NUM_THREADS, or the cores]")
@click.option("--filter", "pattern", default="", metavar="WORDS",
              help="Only cases whose names hold every word.")
@click.option("--peer", "names", multiple=True, type=click.Choice(list(PEERS)),
              help="A library to compare with; may be repeated.  [default: all installed]")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True,
              help="Time for each case and peer.")
@click.option("--beam", default=0, metavar="N", type=click.IntRange(0),
              help="Search each case with beams of N, and time what was found too.")
@click.option("--search-seconds", default=Budget.seconds, show_default=True,
              type=click.FloatRange(0, min_open=True), help="Time for the search of each case.")
@click.option("--keep-records", is_flag=True,
              help="Record what is found, and use what was recorded.")
@click.option("--quick", is_flag=True, help="NumPy only and few samples: about a minute.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--html", "html_file", type=click.Path(dir_okay=False, path_type=Path))
def bench(suite: str, threads: int | None, pattern: str, names: tuple[str, ...], seconds: float,
          beam: int, search_seconds: float, keep_records: bool, quick: bool,
          json_file: Path | None, html_file: Path | None) -> None:
    """Time tilewright against other libraries and against this machine's limits.

    Values are checked against NumPy in float64 before anything is timed. Both sides run in this
    process, in turn, with as many threads. Ours runs by its default rules; with --beam it is
    searched besides, and what was found is timed against the default.
    """
    cases = select(suite, pattern)
    if not cases:
        raise click.UsageError(f"bench: cannot find a case that matches {pattern!r} in {suite}")
    threads = threads or config.get_num_threads()
    effort = Effort(0.1, 3, 21) if quick else Effort(seconds)
    console = machine.console()
    before = config.get_num_threads()
    try:
        with machine.bound_to(threads), searching_in(
                beam, search_seconds, keep_records) as searching:
            peers = choose_peers(names or (("numpy",) if quick else ()))
            report = measure(suite, cases, threads, peers, effort, console, searching)
    finally:
        Tilewright().set_threads(before)
    _print(report, console)
    if json_file:
        json_file.write_text(json.dumps(report.plain(), indent=1) + "\n", encoding="utf-8")
    if html_file:
        html_file.write_text(page(report), encoding="utf-8")
        console.print(f"wrote {html_file}", highlight=False)
    if any(p.ours for p in report.problems):
        raise SystemExit(1)
