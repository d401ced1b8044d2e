"""``tilewright tune SCRIPT``: search the kernels of a script, those with most time first."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tilewright.cli import machine
from tilewright.cli.kernels import run_script
from tilewright.config import Tune
from tilewright.plan.plan import Plan
from tilewright.plan.tuning import Result, Tuner, tuning
from tilewright.plan.usage import Device, Usage
from tilewright.runtime.storage import Storage


@dataclass
class Met:
    """A kernel in all runs of all plans: launches, and seconds in all."""

    usage: Usage
    launches: int = 0
    seconds: float = 0.0

    @property
    def each(self) -> float:
        return self.seconds / self.launches


class Survey:
    """Attends to plans without changing them: how often each runs, and what its kernels take."""

    def __init__(self, device: Device | None = None):
        self.device = device or Device()
        self.kernels: dict[tuple, Met] = {}
        self._usages: weakref.WeakKeyDictionary[Plan, list[Usage]] = weakref.WeakKeyDictionary()

    def attend(self, plan: Plan, inputs: Sequence[Storage]) -> bool:
        """Count a run of a plan; after the first, time its kernels."""
        usages = self._usages.get(plan)
        if usages is None:
            by_hand = plan.by_hand
            usages = self._usages[plan] = [u for u in self.device.usages(plan, inputs)
                                           if u.built.origin.key not in by_hand]
        for usage in usages:
            key = usage.built.origin.key, usage.built.target
            met = self.kernels.get(key)
            if met is None:
                # the plan's memory ends with the script: compare on inputs of the kernel's own
                met = self.kernels[key] = Met(replace(usage, pair=self.device.alone))
            met.launches += usage.launches
            met.seconds += usage.seconds
        return True

    @property
    def seconds(self) -> float:
        """Seconds in kernels, in all."""
        return sum(m.seconds for m in self.kernels.values())

    def usages(self) -> list[Usage]:
        """Return the kernels with their time in the whole script, the greatest first."""
        found = [replace(m.usage, launches=m.launches, seconds=m.seconds)
                 for m in self.kernels.values()]
        return sorted(found, key=lambda u: -u.seconds)


def survey(script: str, arguments: tuple[str, ...]) -> Survey:
    """Run a script and return what its kernels took. Raises what ended it early."""
    found = Survey()
    with tuning(found):
        failure = run_script(script, arguments)
    if failure is not None:
        raise failure
    return found


def listing(results: Sequence[Result], before: Survey, after: Survey, most: int) -> Table:
    """Return a table of the first `most` kernels, before and after."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold",
                  caption_justify="left", caption=(
                      "share: of the time in kernels before. before, after: one launch, in runs "
                      "of the script."))
    table.add_column("kernel", no_wrap=True, overflow="ellipsis", min_width=20)
    for name in ("launches", "share", "before", "after", "gain"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what was done", overflow="fold")
    ordered = sorted(results, key=lambda r: -r.share)
    for result in ordered[:most]:
        key = result.built.origin.key, result.built.target
        old, new = before.kernels[key], after.kernels.get(key)
        gain = old.each / new.each if new else 1.0
        changed = result.fate == "faster"
        table.add_row(
            result.name, str(old.launches), f"{result.share:.1%}", machine.seconds(old.each),
            machine.seconds(new.each) if new else "", f"[{'green' if changed else 'dim'}]"
            f"{gain:.2f}[/]", "a faster schedule" if changed else f"{result.fate}: {result.reason}")
    if len(ordered) > most:
        table.add_row(f"[dim]{len(ordered) - most} more[/]",
                      "", f"{sum(r.share for r in ordered[most:]):.1%}")
    return table


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--seconds", default=60.0, show_default=True,
              type=click.FloatRange(0, min_open=True), help="Time for all searches together.")
@click.option("--beam", default=4, show_default=True, type=click.IntRange(1),
              help="Candidates kept from round to round.")
@click.option("--again", is_flag=True, help="Search kernels of which a record is kept, too.")
@click.option("--most", default=30, show_default=True, type=click.IntRange(1),
              help="How many kernels to list.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def tune(seconds: float, beam: int, again: bool, most: int, script: str,
         arguments: tuple[str, ...]) -> None:
    """Run SCRIPT with ARGUMENTS, search its kernels, run it again; tell what changed.

    The first run finds where its time goes. What is found is recorded: later runs of this and
    other programs use it. Ctrl-C ends the searches with the best so far.
    """
    console = machine.console()
    before = survey(script, arguments)
    if not before.kernels:
        console.print("no kernels ran")
        return
    tuner = Tuner(Tune(beam, seconds, again=again))
    try:
        tuner.spend(before.usages())
    except KeyboardInterrupt:
        console.print("interrupted: the best so far is kept", highlight=False)
    after = survey(script, arguments)
    console.print(listing(tuner.results, before, after, most))
    faster = sum(r.fate == "faster" for r in tuner.results)
    console.print(
        f"in kernels: {machine.seconds(before.seconds)} before, {machine.seconds(after.seconds)} "
        f"after, [bold]{before.seconds / after.seconds:.2f}[/] times as fast; {faster} of "
        f"{len(tuner.results)} kernels changed in {seconds - tuner.left:.1f} s", highlight=False)
