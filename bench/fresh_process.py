"""Whether what was searched is ever slower than the default, in a process that only replays it.

    python bench/fresh_process.py [--filter WORDS] [--threads N] [--seconds N] [--json FILE]

For each case of `tilewright bench` one process searches its kernels and leaves records. Then a
fresh one compiles the case by default and from the records, and times both in turns. A case whose
interval reaches beyond the limit is timed again in two more processes, and the middle one counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextvars import copy_context
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import tilewright as tw
from tilewright.cli.bench.cases import Case, kernels, select
from tilewright.cli.bench.libraries import Tilewright
from tilewright.cli.bench.measure import compare, geometric_mean
from tilewright.config import using
from tilewright.search import Budget

WORSE = 1.02  # times the default's seconds that are too much
SECONDS = 2.0  # of timing in turns
PROCESSES = 3


def prepared(case: Case) -> tuple[Any, list[Any]]:
    library = Tilewright()
    return library.compile(lambda *a: case.function(library, *a)), \
        [library.asarray(a) for a in case.inputs()]


def search(case: Case, beam: int, seconds: float) -> dict[str, Any]:
    """Search a case's kernels; they are recorded in the cache directory of the environment."""
    function, arguments = prepared(case)
    began = time.perf_counter()
    with tw.tune(beam, seconds, progress=False) as tuner:
        function(*arguments)
    return {"seconds": time.perf_counter() - began, "fates": [r.fate for r in tuner.results]}


def replay(case: Case) -> dict[str, Any]:
    """Time a case from the records against the default, which looks for records and finds none."""
    function, arguments = prepared(case)
    with tempfile.TemporaryDirectory() as nothing:
        with using(cache_dir=Path(nothing)):
            default = copy_context()
        default.run(function, *arguments)
    searched = copy_context()
    searched.run(function, *arguments)
    pair = compare(lambda: searched.run(function, *arguments),
                   lambda: default.run(function, *arguments), SECONDS, most=1001)
    return {"searched": pair.ours, "default": pair.peer, "over_default": 1 / pair.ratio,
            "interval": [1 / pair.high, 1 / pair.low], "pairs": pair.pairs}


def apart(action: str, case: Case, threads: int, beam: int, seconds: float, directory: str
          ) -> dict[str, Any]:
    """Do one of these in a process of its own, with its records in a directory."""
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": directory,
                   "TILEWRIGHT_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--inside", action, "--filter", case.name,
               "--beam", str(beam), "--seconds", str(seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{case.name}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(case: Case, threads: int, beam: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        found = apart("search", case, threads, beam, seconds, directory)
        rows = [apart("replay", case, threads, beam, seconds, directory)]
        if rows[0]["interval"][1] > WORSE:
            rows += [apart("replay", case, threads, beam, seconds, directory)
                     for _ in range(PROCESSES - 1)]
    rows.sort(key=lambda r: r["over_default"])
    return {"case": case.name, "threads": threads, "search": found, **rows[len(rows) // 2],
            "processes": [r["over_default"] for r in rows]}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--filter", "words", default="")
@click.option("--threads", default=1, show_default=True)
@click.option("--beam", default=4, show_default=True)
@click.option("--seconds", default=Budget.seconds, show_default=True,
              help="For the search of each case.")
@click.option("--json", "out", type=click.Path(path_type=Path))
@click.option("--inside", hidden=True)
def main(words: str, threads: int, beam: int, seconds: float, out: Path | None, inside: str | None
         ) -> None:
    """Measure every case whose name holds all the words; exit 1 if one is slower than allowed."""
    if inside is not None:
        (case,) = [c for c in kernels() if c.name == words]
        print(json.dumps(search(case, beam, seconds) if inside == "search" else replay(case)))
        return
    rows, console = [], Console()
    for case in select("kernels", words):
        rows.append(row := measure(case, threads, beam, seconds))
        (low, high), found = row["interval"], row["search"]
        console.print(f"{row['case']:36} {row['over_default']:.3f} ({low:.3f} to {high:.3f}) "
                      f"search {found['seconds']:5.1f} s {' '.join(found['fates'])}")
        if out:
            out.write_text(json.dumps(rows, indent=1))
    gains = [1 / r["over_default"] for r in rows]
    worse = [r["case"] for r in rows if r["over_default"] > WORSE]
    console.print(f"default / searched, geometric mean: {geometric_mean(gains):.3f}; "
                  f"slower than {WORSE} times the default: {', '.join(worse) or 'none'}")
    sys.exit(bool(worse))


if __name__ == "__main__":
    main()
