"""Run a suite: for each case check values, then time tilewright against each peer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tilewright.cli.bench.cases import Case
from tilewright.cli.bench.libraries import Library, NumPy, Tilewright
from tilewright.cli.bench.measure import compare
from tilewright.cli.bench.report import Problem, Report, Row, Searched
from tilewright.config import Tune, using
from tilewright.plan.tuning import Tuner, tuning
from tilewright.search.roofline import MachineLimits


class WrongValues(Exception):
    """A library's result is not that of NumPy in float64."""


@dataclass(frozen=True)
class Effort:
    """How long to measure: seconds for each row, and the least and most pairs of samples."""

    seconds: float = 1.0
    least: int = 5
    most: int = 101


@dataclass(frozen=True)
class Searching:
    """How to search each case: beam, seconds for it, and the directory that keeps the records."""

    beam: int
    seconds: float
    directory: Path


@dataclass(frozen=True)
class Prepared:
    """A case in one library: a call without arguments, values checked."""

    call: Callable[[], object]


def reference(case: Case, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Return the case's value computed by NumPy in float64."""
    with np.errstate(all="ignore"):
        return np.asarray(case.function(NumPy(), *(a.astype(np.float64) for a in inputs)))


def check(case: Case, name: str, value: np.ndarray, expected: np.ndarray, slack: float) -> None:
    """Raise WrongValues unless `value` is `expected` up to `slack` times the case's tolerance."""
    if value.shape != expected.shape:
        raise WrongValues(f"{name}: shape {value.shape} where {expected.shape} is right")
    with np.errstate(all="ignore"):
        error = np.abs(value.astype(np.float64) - expected)
        wrong = ~(error <= slack * case.tolerance(expected))
    wrong &= ~(np.isnan(value) & np.isnan(expected)) & ~(value == expected)
    if wrong.any():
        worst = np.nanmax(np.where(wrong, error, 0.0))
        raise WrongValues(f"{name}: {int(wrong.sum())} of {wrong.size} values are wrong "
                          f"(largest error {worst:.3g})")


def prepare(case: Case, library: Library, inputs: Sequence[np.ndarray], expected: np.ndarray,
            slack: float = 1.0) -> Prepared:
    """Compile a case with a library, run it and check its values. Raises WrongValues."""
    arguments = [library.asarray(a) for a in inputs]
    compiled = library.compile(lambda *args: case.function(library, *args))
    with np.errstate(all="ignore"):
        check(case, library.name, library.numpy(compiled(*arguments)), expected, slack)

    def call() -> object:
        return compiled(*arguments)

    return Prepared(call)


def make_row(suite: str, case: Case, threads: int, peer: Library, ours: Prepared, theirs: Prepared,
             traffic: tuple[int, int], limits: MachineLimits, effort: Effort,
             searched: Searched | None = None) -> Row:
    """Time one case against one peer. `traffic`: bytes read and written at least."""
    with np.errstate(all="ignore"):
        pair = compare(ours.call, theirs.call, effort.seconds, effort.least, effort.most)
    floor = limits.floor(*traffic, case.flops)
    return Row(suite, case.name, "cpu", threads, peer.name, pair.ours, pair.peer, pair.ratio,
               (pair.low, pair.high), pair.spread, pair.pairs, sum(traffic) / pair.ours / 1e9,
               case.flops / pair.ours / 1e9, floor / pair.ours,
               **(searched.columns(floor) if searched else {}))


def search_case(case: Case, searching: Searching, inputs: Sequence[np.ndarray],
                expected: np.ndarray, effort: Effort) -> Searched:
    """Search a case's kernels and time it against the same case as it is without records.

    Raises WrongValues if the searched kernels' values are wrong.
    """
    with TemporaryDirectory() as nothing:
        with using(cache_dir=Path(nothing), disk_cache=True):
            plain = copy_context()
        return _search_case(case, searching, inputs, expected, effort, plain)


def _search_case(case: Case, searching: Searching, inputs: Sequence[np.ndarray],
                 expected: np.ndarray, effort: Effort, plain: Context) -> Searched:
    """Search a case in this context; then time it against itself in the `plain` one."""
    library = Tilewright()
    arguments = [library.asarray(a) for a in inputs]
    compiled = library.compile(lambda *args: case.function(library, *args))
    plain.run(compiled, *arguments)
    tuner = Tuner(Tune(searching.beam, searching.seconds, progress=False))
    with using(cache_dir=searching.directory, disk_cache=True):
        with tuning(tuner):
            compiled(*arguments)
        check(case, "searched", library.numpy(compiled(*arguments)), expected, 1.0)
        searched = copy_context()

    # which kernels a call runs follows from the context, so both sides have one
    pair = compare(lambda: searched.run(compiled, *arguments),
                   lambda: plain.run(compiled, *arguments), effort.seconds, effort.least,
                   effort.most)
    return Searched(pair.ours, pair.ratio, (pair.low, pair.high), searching.seconds - tuner.left)


def _reason(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:200]


def run_case(suite: str, case: Case, threads: int, peers: Sequence[Library], report: Report,
             effort: Effort, searching: Searching | None = None) -> None:
    """Measure one case against every peer; rows and problems are added to `report`."""
    inputs = case.inputs()
    expected = reference(case, inputs)
    traffic = (sum(a.nbytes for a in inputs), expected.size * inputs[0].itemsize)
    try:
        ours = prepare(case, Tilewright(), inputs, expected)
    except Exception as error:  # reported, and the run goes on with the next case
        report.problems.append(Problem(case.name, "", _reason(error), ours=True))
        return
    searched = None
    if searching is not None:
        try:
            searched = search_case(case, searching, inputs, expected, effort)
        except Exception as error:  # the rest of the row is measured all the same
            report.problems.append(Problem(case.name, "", f"searched: {_reason(error)}", ours=True))
    for peer in peers:
        try:
            theirs = prepare(case, peer, inputs, expected, slack=50.0)
        except Exception as error:  # a peer that cannot do this case is left out of it
            report.problems.append(Problem(case.name, peer.name, _reason(error), ours=False))
            continue
        report.rows.append(
            make_row(suite, case, threads, peer, ours, theirs, traffic, report.limits, effort,
                     searched))


def run(suite: str, cases: Sequence[Case], threads: int, peers: Sequence[Library], report: Report,
        effort: Effort, progress: Callable[[int, Case], None],
        searching: Searching | None = None) -> None:
    """Measure `cases` in order; `progress` is called with number and case before each.

    Ours runs by its default rules, whatever records this machine has.
    """
    for library in (Tilewright(), *peers):
        library.set_threads(threads)
    with using(disk_cache=False):
        for number, case in enumerate(cases):
            progress(number, case)
            run_case(suite, case, threads, peers, report, effort, searching)
