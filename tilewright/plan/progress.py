"""The live display of searches, on standard error.

It is drawn between candidates only: a thread that draws would be timed with them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.config import Tune
from tilewright.search.record import Record

if TYPE_CHECKING:
    from tilewright.plan.tuning import Result

OFTEN = 0.1  # seconds between two pictures
LONGEST = 26  # characters of a name, so that a line fits 80 columns


class Display(Protocol):
    """Where a tuner tells what it does."""

    def start(self, name: str, share: float) -> None:
        """Begin with a kernel that has a share of the time."""

    def watch(self, record: Record) -> None:
        """Show the state of its search."""

    def done(self, result: Result) -> None:
        """Show what became of it."""


class Silent:
    """Shows nothing."""

    def start(self, name: str, share: float) -> None:
        pass

    def watch(self, record: Record) -> None:
        pass

    def done(self, result: Result) -> None:
        pass


class Live:
    """A bar of the seconds spent, with the kernel in work, how many of its candidates were timed,
    and the best so far; a line for each kernel that is done."""

    def __init__(self, bar: Any, seconds: float, spent: float, clock: Callable[[], float]):
        self._bar, self._clock, self._began, self._spent = bar, clock, clock(), spent
        self._task = bar.add_task("", total=seconds, completed=spent)
        self._name, self._drawn = "", -1.0

    def start(self, name: str, share: float) -> None:
        short = name if len(name) <= LONGEST else name[:LONGEST - 1] + "…"
        self._name = f"[bold]{short}[/] {share:.0%}"
        self._draw(self._name)

    def watch(self, record: Record) -> None:
        if self._clock() - self._drawn < OFTEN:
            return
        counts, best = record.counts, min(t.seconds for t in record.trials)
        words = f"{counts['timed']}/{counts['candidates']}"
        if record.start.samples:
            words += f" {_time(record.start.seconds)} to [green]{_time(best)}[/]"
        self._draw(f"{self._name}: {words}")

    def done(self, result: Result) -> None:
        colour = {"faster": "green", "failed": "red"}.get(result.fate, "dim")
        name, _, rest = str(result).partition(":")
        self._bar.console.print(f"[bold]{name}[/]:[{colour}]{rest}[/] "
                                f"[dim]in {result.spent:.1f} s[/]", highlight=False)
        self._draw("")

    def _draw(self, text: str) -> None:
        self._drawn = self._clock()
        self._bar.update(self._task, description=text,
                         completed=self._spent + self._drawn - self._began)
        self._bar.refresh()


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.4g} us" if seconds < 1e-3 else f"{seconds * 1e3:.4g} ms"


@contextmanager
def display_for(tune: Tune, clock: Callable[[], float], spent: float) -> Iterator[Display]:
    """Give the display that a `Tune` asks for; `spent` seconds of its budget are gone already."""
    wanted = sys.stderr.isatty() if tune.progress is None else tune.progress
    if not wanted:
        yield Silent()
        return
    # named at run time, since a program that does not tune must not pay for loading it
    rich, console = (importlib.import_module(f"rich.{name}") for name in ("progress", "console"))
    columns = (rich.BarColumn(10), rich.TextColumn("{task.completed:.0f}/{task.total:.0f} s"),
               rich.TextColumn("{task.description}"))
    with rich.Progress(*columns, console=console.Console(stderr=True), auto_refresh=False,
                       transient=True) as bar:
        yield Live(bar, tune.seconds, spent, clock)
