"""How long the first call of each workload takes, and whether its values are right.

    python bench/first_call.py [NAME ...] [--json FILE] [--limit SECONDS] [--values-only]

Each workload, and each gradient, runs in a process of its own with an empty cache, so that nothing
is compiled beforehand. Values are compared with NumPy in float64, gradients with central
differences.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from reference import evaluate, sampled_gradient
from rich.console import Console
from rich.table import Table
from workloads import ALL, GRAD

import tilewright as tw

TOLERANCE = 2e-3  # of the largest magnitude; the solvers amplify float32's rounding


def _error(found: np.ndarray, right: np.ndarray) -> float:
    """Return the largest difference relative to the largest right value."""
    scale = max(float(np.max(np.abs(right), initial=0.0)), 1e-30)
    return float(np.max(np.abs(found.astype(np.float64) - right), initial=0.0)) / scale


def _timed(function: Any, arguments: list[Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    result = tw.block_until_ready(function(*arguments))
    return result, time.perf_counter() - started


def measure_one(name: str, gradient: bool) -> dict[str, Any]:
    """Return the row of one workload: seconds of the first and the second call, and the error."""
    f, inputs = ALL[name](tw)
    arguments = [tw.asarray(a) for a in inputs]
    function = tw.jit(tw.grad(f, argnums=GRAD[name]) if gradient else f)
    result, first = _timed(function, arguments)
    second = min(_timed(function, arguments)[1] for _ in range(5))
    row: dict[str, Any] = {"workload": name, "gradient": gradient, "first_s": first,
                           "second_s": second}
    if gradient:
        right = sampled_gradient(ALL[name], GRAD[name])
        row["error"] = max(_error(np.asarray(g).reshape(-1)[at], slopes)
                           for g, (at, slopes) in zip(result, right))
    else:
        row["error"] = _error(np.asarray(result), evaluate(ALL[name]))
    compiled = function.compile(*arguments)
    row["stages"], row["counts"] = dict(compiled.stages), dict(compiled.counts)
    row["agrees"] = bool(row["error"] <= TOLERANCE)
    return row


def measure_apart(name: str, gradient: bool, limit: float) -> dict[str, Any]:
    """Measure in a fresh process with an empty cache; a failure or time-out is a row too."""
    row: dict[str, Any] = {"workload": name, "gradient": gradient, "agrees": False}
    command = [sys.executable, __file__, name, "--inside", *(["--gradient"] if gradient else [])]
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": directory}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True,
                                  timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return {**row, "failed": f"over {limit:.0f} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {**row, "failed": lines[-1] if lines else f"exit status {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(header_style="bold")
    for column in ("workload", "first call", "second call", "largest error", ""):
        table.add_column(column, justify="left" if column in ("workload", "") else "right")
    for row in rows:
        name = row["workload"] + (" gradient" if row["gradient"] else "")
        if "failed" in row:
            table.add_row(name, "", "", "", f"[red]{row['failed']}[/]")
        else:
            table.add_row(name, f"{row['first_s']:.3f} s", f"{row['second_s'] * 1e6:.0f} µs",
                          f"{row['error']:.1e}",
                          "[green]agrees[/]" if row["agrees"] else "[red]differs[/]")
    return table


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(ALL)))
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--limit", default=300.0, show_default=True, help="Seconds for each process.")
@click.option("--values-only", is_flag=True, help="Leave the gradients out.")
@click.option("--inside", is_flag=True, hidden=True)
@click.option("--gradient", is_flag=True, hidden=True)
def main(names: tuple[str, ...], json_file: Path | None, limit: float, values_only: bool,
         inside: bool, gradient: bool) -> None:
    """Time the first call of the workloads NAMES, or of all."""
    if inside:
        print(json.dumps(measure_one(names[0], gradient)))
        return
    jobs = [(name, False) for name in names or ALL]
    if not values_only:
        jobs += [(name, True) for name in names or ALL if name in GRAD]
    console = Console()
    rows = []
    for name, wants_gradient in jobs:
        with console.status(f"{name}{' gradient' * wants_gradient}"):
            rows.append(measure_apart(name, wants_gradient, limit))
    console.print(_table(rows))
    if json_file:
        json_file.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    if not all(row["agrees"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
