"""How soon a second process has its first result, with tuning on and every record there.

    python bench/warm_start.py [NAME ...] [--json FILE] [--seconds N] [--repeat N]

For each workload one process searches its kernels and leaves records and object code. Then fresh
processes take turns: tuning on and off, each with a directory in which a process like it ran
before. With tuning on nothing may be searched. Times are from before the first call to its result,
and of the whole process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from workloads import ALL

import tilewright as tw

WORKLOADS = ("mlp", "attention", "rnn20", "lorenz200", "ilqr20x1")


def run_inside(name: str, beam: int, seconds: float) -> None:
    """Run a workload once; print seconds of the first call, and how many kernels were searched."""
    f, inputs = ALL[name](tw)
    arguments = [tw.asarray(a) for a in inputs]
    function = tw.jit(f)
    with tw.tune(beam, seconds, progress=False) if beam else nullcontext() as tuner:
        started = time.perf_counter()
        tw.block_until_ready(function(*arguments))
        first = time.perf_counter() - started
        searched = sum(r.record is not None for r in tuner.results) if tuner else 0
    print(json.dumps({"first": first, "searched": searched}))


def apart(name: str, beam: int, seconds: float, directory: str) -> dict[str, Any]:
    """Run a workload in a fresh process; return what it printed, and the seconds of it all."""
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": directory}
    command = [sys.executable, __file__, name, "--inside", str(beam), "--seconds", str(seconds)]
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    whole = time.perf_counter() - started
    return {**json.loads(done.stdout.splitlines()[-1]), "process": whole}


def measure(name: str, beam: int, seconds: float, repeat: int) -> dict[str, Any]:
    """Return a workload's row: medians, and the ratios of tuning on to off."""
    found: dict[str, list[dict[str, Any]]] = {"on": [], "off": []}
    with tempfile.TemporaryDirectory() as on, tempfile.TemporaryDirectory() as off:
        searched = apart(name, beam, seconds, on)["searched"]
        apart(name, beam, seconds, on)  # kernels that the seconds did not reach
        apart(name, 0, seconds, off)
        for _ in range(repeat):
            found["off"].append(apart(name, 0, seconds, off))
            found["on"].append(apart(name, beam, seconds, on))
    row: dict[str, Any] = {"workload": name, "searched": searched,
                           "searched_again": max(r["searched"] for r in found["on"])}
    for what in ("first", "process"):
        for side, rows in found.items():
            row[f"{what}_{side}"] = statistics.median(r[what] for r in rows)
        row[f"{what}_ratio"] = row[f"{what}_on"] / row[f"{what}_off"]
    return row


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1)
@click.option("--json", "out", type=click.Path(path_type=Path))
@click.option("--beam", default=4, show_default=True)
@click.option("--seconds", default=60.0, show_default=True, help="Of the searches.")
@click.option("--repeat", default=5, show_default=True)
@click.option("--inside", type=int, hidden=True)
def main(names: tuple[str, ...], out: Path | None, beam: int, seconds: float, repeat: int,
         inside: int | None) -> None:
    """Measure workloads (unless named, a few of each kind)."""
    if inside is not None:
        return run_inside(names[0], inside, seconds)
    rows = [measure(name, beam, seconds, repeat) for name in names or WORKLOADS]
    table = Table("workload", "searched", "again", "first call off", "on", "ratio",
                  "process off", "on", "ratio")
    for r in rows:
        table.add_row(r["workload"], str(r["searched"]), str(r["searched_again"]),
                      *(f"{r[k]:.3f}" for k in ("first_off", "first_on", "first_ratio",
                                                "process_off", "process_on", "process_ratio")))
    Console().print(table)
    if out:
        out.write_text(json.dumps(rows, indent=1))
    return None


if __name__ == "__main__":
    main()
