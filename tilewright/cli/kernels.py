"""``tilewright kernels SCRIPT``: run a script and list the kernels that it ran."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tilewright import config
from tilewright.cli import machine
from tilewright.plan.debug import Ran
from tilewright.search.roofline import MachineLimits, measure_limits


@dataclass
class Total:
    """All launches of one kernel; `best` is the shortest, in seconds."""

    name: str
    nbytes: int
    flops: int
    launches: int = 0
    seconds: float = 0.0
    best: float = float("inf")

    def share_of(self, limits: MachineLimits) -> float:
        """Return the roofline's least time over that of the shortest launch.

        Reads and writes are not told apart here: all bytes are taken as read.
        """
        return limits.floor(self.nbytes, 0, self.flops) / self.best


class Recorder:
    """Adds up launches by kernel; an observer for `config.set_observer`."""

    def __init__(self) -> None:
        self.totals: dict[tuple[str, str], Total] = {}

    def __call__(self, ran: Ran) -> None:
        key = (ran.name, ran.key)
        total = self.totals.get(key)
        if total is None:
            total = self.totals[key] = Total(ran.name, ran.nbytes, ran.flops)
        total.launches += 1
        total.seconds += ran.seconds
        total.best = min(total.best, ran.seconds)

    def ordered(self) -> list[Total]:
        """Return the kernels, the one that took most time first."""
        return sorted(self.totals.values(), key=lambda t: -t.seconds)


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record every launch of plans that are compiled inside."""
    recorder = Recorder()
    before = config.current().observer
    config.set_observer(recorder)
    try:
        yield recorder
    finally:
        config.set_observer(before)


def run_script(script: str, arguments: tuple[str, ...]) -> BaseException | None:
    """Run a script as ``python script arguments`` would; return what ended it early, if anything.

    An exit with status 0 or None is an ordinary end.
    """
    argv, path = sys.argv[:], sys.path[:]
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        return None if stop.code in (0, None) else stop
    except (Exception, KeyboardInterrupt) as error:
        return error
    finally:
        sys.argv, sys.path[:] = argv, path
    return None


def listing(totals: list[Total], limits: MachineLimits, most: int) -> Table:
    """Return a table of the first `most` kernels."""
    whole = sum(t.seconds for t in totals) or 1.0
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold",
                  caption_justify="left", caption=(
                      "share: of the time in kernels. limit: least time the machine needs for the "
                      "kernel's bytes and FLOP, over its shortest launch."))
    table.add_column("kernel", no_wrap=True, overflow="ellipsis", min_width=20)
    for name in ("launches", "time", "share", "shortest", "GB/s", "GFLOP/s", "limit"):
        table.add_column(name, justify="right", no_wrap=True)
    for t in totals[:most]:
        native = t.nbytes > 0
        table.add_row(
            t.name, str(t.launches), machine.seconds(t.seconds), f"{t.seconds / whole:.1%}",
            machine.seconds(t.best), f"{t.nbytes / t.best / 1e9:.1f}" if native else "",
            f"{t.flops / t.best / 1e9:.1f}" if t.flops else "",
            f"{t.share_of(limits):.0%}" if native else "")
    if len(totals) > most:
        rest = sum(t.seconds for t in totals[most:])
        table.add_row(f"[dim]{len(totals) - most} more[/]", "", machine.seconds(rest),
                      f"{rest / whole:.1%}", "", "", "", "")
    return table


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--most", default=30, show_default=True, type=click.IntRange(1),
              help="How many kernels to list.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kernels(most: int, script: str, arguments: tuple[str, ...]) -> None:
    """Run SCRIPT with ARGUMENTS and list its kernels: time, share, distance from the roofline.

    Every kernel is launched by a call of its own, so small ones take longer than in a plain run.
    """
    with recording() as recorder:
        failure = run_script(script, arguments)
    console = machine.console()
    totals = recorder.ordered()
    if totals:
        console.print(listing(totals, measure_limits(config.get_num_threads()), most))
    else:
        console.print("no kernels ran")
    if failure is not None:
        raise failure
