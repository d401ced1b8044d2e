"""``tilewright records``: see, share and forget what searches found on this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tilewright import config
from tilewright.cli import machine
from tilewright.errors import RecordError
from tilewright.search.entries import Entry, Timing
from tilewright.search.records import FILE, Records

DIGITS = 12  # of a key, as listed


@contextmanager
def opened() -> Iterator[Records]:
    """Open the records of this machine; what is wrong with them is told, not traced back."""
    kept = Records(config.current().cache_dir / FILE)
    try:
        if kept.path is None:
            raise click.ClickException(f"records: cannot use {config.current().cache_dir / FILE}")
        yield kept
    except (RecordError, OSError) as error:
        raise click.ClickException(str(error)) from error
    finally:
        kept.close()


@click.group()
def records() -> None:
    """See, share and forget what searches found on this machine."""


def listing(entries: list[Entry]) -> Table:
    """Return a table of entries."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold",
                  caption="* measured by other code: used, and timed again at the next tune",
                  caption_justify="left")
    table.add_column("key", no_wrap=True)
    table.add_column("kernel", no_wrap=True, overflow="ellipsis", min_width=20)
    for name in ("threads", "given", "found", "gain"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("device", no_wrap=True, overflow="ellipsis")
    for e in entries:
        table.add_row(e.key.digest[:DIGITS], e.name, str(e.key.threads),
                      machine.seconds(e.start_seconds), machine.seconds(e.seconds),
                      f"{e.start_seconds / e.seconds:.2f}{'*' if e.stale else ' '}", e.key.device)
    return table


@records.command("ls")
@click.argument("text", default="")
def list_(text: str) -> None:
    """List schedules; with TEXT, those with it in their name or device, or before their key."""
    with opened() as kept:
        entries, size = kept.ls(text), kept.artifact_bytes
        console = machine.console()
        if entries:
            console.print(listing(entries), highlight=False)
        console.print(f"{len(entries)} schedules, and {machine.size(size)} of object code, in "
                      f"{kept.path}", highlight=False, soft_wrap=True)


@records.command()
@click.argument("key")
def show(key: str) -> None:
    """Print a record: kernel, loops before and after, schedule, and every candidate's fate.

    KEY is the beginning of a key as `ls` lists it.
    """
    with opened() as kept:
        entry, timings = kept.show(key)
    console = machine.console()
    for title, text in _sections(entry):
        console.print(f"[bold]{title}[/]")
        console.print(text.rstrip() + "\n", markup=False, highlight=False, soft_wrap=True)
    for code, candidates in timings.items():
        _print_timings(console, code, candidates)


def _sections(entry: Entry) -> Iterator[tuple[str, str]]:
    key = entry.key
    yield entry.name, "\n".join((
        f"key       {key.digest}",
        f"device    {key.device}, {key.threads} threads, {key.cache} caches"
        + (f", {key.options}" if key.options else ""),
        f"given     {machine.seconds(entry.start_seconds)}",
        f"found     {machine.seconds(entry.seconds)}, {entry.start_seconds / entry.seconds:.2f} "
        f"times as fast; spread {entry.spread:.1%} of {entry.samples} samples",
        f"code      {entry.code}" + (" (other than this)" if entry.stale else ""),
        f"found at  {_date(entry.created)}, last {_date(entry.updated)}"))
    if entry.kernel:
        yield "kernel", entry.kernel
    if entry.before:
        yield "loops before", entry.before
    if entry.after:
        yield "loops after", entry.after
    form = f"of alternative {entry.alternative}" if entry.alternative else ""
    yield f"schedule {form}".rstrip(), entry.schedule or "none"


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _print_timings(console: Console, code: str, candidates: list[Timing]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", title_justify="left",
                  title=f"candidates timed by {code}")
    for name in ("time", "spread", "samples"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("fate", no_wrap=True)
    table.add_column("schedule", overflow="fold")
    ordered = sorted(candidates, key=lambda t: (t.seconds is None, t.seconds or 0.0))
    for t in ordered:
        form = f"alternative {t.alternative}: " if t.alternative else ""
        words = form + "; ".join(t.schedule.splitlines())
        table.add_row(machine.seconds(t.seconds) if t.seconds is not None else "",
                      f"{t.spread:.1%}" if t.samples else "", str(t.samples or ""),
                      _plain(t.fate + (f" ({t.reason})" if t.reason else "")), _plain(words))
    console.print(table, highlight=False)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")


@records.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
def export(file: Path) -> None:
    """Write schedules and timings to FILE as lines of JSON (- for standard output).

    Object code is never written.
    """
    with opened() as kept:
        lines = [line + "\n" for line in kept.export()]
        if str(file) == "-":
            sys.stdout.writelines(lines)
        else:
            with file.open("w", encoding="utf-8") as out:
                out.writelines(lines)
            click.echo(f"{len(lines)} lines in {file}")


@records.command("import")
@click.argument("file", type=click.File("r", encoding="utf-8"))
def import_(file: TextIO) -> None:
    """Add what `export` wrote; where a kernel is known, the better measured schedule stays."""
    with opened() as kept:
        _tell(*kept.import_(file))


@records.command()
@click.argument("files", nargs=-1, required=True,
                type=click.Path(exists=True, dir_okay=False, path_type=Path))
def merge(files: tuple[Path, ...]) -> None:
    """Add the records of FILES: other machines' databases, or exported ones.

    Where a kernel is known, the better measured schedule stays.
    """
    with opened() as kept:
        for file in files:
            _tell(*kept.merge(file), name=f"{file}: ")


def _tell(count: int, better: int, name: str = "") -> None:
    click.echo(f"{name}{count} schedules read, {better} of them new or better")


@records.command()
@click.option("--artifacts", is_flag=True, help="Only object code; schedules are kept.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear(artifacts: bool, yes: bool) -> None:
    """Forget everything: schedules, timings and object code."""
    with opened() as kept:
        if not artifacts and not yes:
            click.confirm(f"Forget {len(kept.ls())} schedules?", abort=True)
        kept.clear(artifacts_only=artifacts)
        click.echo("object code removed" if artifacts else "records removed")
