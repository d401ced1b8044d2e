"""The benchmark's parts that need no clock: cases, statistics, checks, reports."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.cli.bench import measure
from tilewright.cli.bench.cases import Case, kernels, select
from tilewright.cli.bench.libraries import PEERS, NumPy
from tilewright.cli.bench.page import page
from tilewright.cli.bench.report import Problem, Report, Row, table
from tilewright.cli.bench.run import WrongValues, check, reference
from tilewright.search.roofline import MachineLimits

ROOT = Path(__file__).resolve().parent.parent
LIMITS = MachineLimits(2, 100e9, {1000: 50e9, 10_000: 10e9}, {1000: 40e9, 10_000: 5e9})


def _row(case: str, peer: str, ratio: float) -> Row:
    return Row("kernels", case, "cpu", 2, peer, 1e-3, ratio * 1e-3, ratio,
               (ratio * .9, ratio * 1.1), 0.02, 11, 12.5, 3.25, 0.8)


def _report() -> Report:
    report = Report({"cpu": "A <processor>", "python": "3.12.1", "tilewright": "0.1.0"}, LIMITS,
                    {"numpy": "2.4", "torch": "2.13"})
    report.rows += [_row("add 1x1", "numpy", 2.0), _row("add 1x1", "torch", 0.5),
                    _row("a*a+b*b 4096x4096", "numpy", 8.0)]
    report.problems.append(Problem("exp", "torch", "RuntimeError: no", ours=False))
    return report


def _load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "bench" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- cases -------------------------------------------------------------------------------------


def test_cases_have_names_of_their_own_and_find_themselves():
    cases = kernels()
    assert len({c.name for c in cases}) == len(cases) >= 40
    assert [c.name for c in select("kernels", "conv BATCH 32")] == [
        f"conv 3x3 batch 32 {n}->32" for n in (4, 16, 64)]


def test_inputs_are_reproducible_float32_within_half():
    case = Case("add", ((33, 5), (7,)), lambda lib, a, b: a, 0.0)
    first, second = case.inputs(), case.inputs()
    assert [a.shape for a in first] == [(33, 5), (7,)]
    assert all(a.dtype == np.float32 and np.abs(a).max() <= 0.5 for a in first)
    assert all(np.array_equal(a, b) for a, b in zip(first, second))


def test_the_reference_is_computed_in_float64():
    case = select("kernels", "softmax 64x1000")[0]
    value = reference(case, case.inputs())
    assert value.dtype == np.float64 and np.allclose(value.sum(1), 1, atol=1e-12)


def test_numpy_convolution_is_the_sum_over_window_and_channels():
    rng = np.random.default_rng(0)
    x, w = rng.random((2, 3, 5, 6)), rng.random((4, 3, 3, 2))
    found = NumPy().conv2d(x, w, 1)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    right = np.zeros((2, 4, 5, 7))
    for i, j in np.ndindex(5, 7):
        right[:, :, i, j] = np.einsum("bcij,ocij->bo", padded[:, :, i:i + 3, j:j + 2], w)
    np.testing.assert_allclose(found, right)


@pytest.mark.parametrize("name", sorted(PEERS))
def test_every_peer_agrees_on_every_kind_of_case(name):
    if not PEERS[name].available():
        pytest.skip(f"{name} is not installed")
    library = PEERS[name]()
    for case in kernels():
        small = _shrunk(case)
        if small is None:
            continue
        inputs = small.inputs()
        compiled = library.compile(lambda *args, c=small: c.function(library, *args))
        arguments = [library.asarray(a) for a in inputs]
        check(small, f"{name}: {case.name}", library.numpy(compiled(*arguments)),
              reference(small, inputs), slack=50.0)


def _shrunk(case: Case) -> Case | None:
    """The same function on small inputs, where it does not depend on their size."""
    if case.name.startswith("partial sum"):
        return None
    if case.name.startswith("conv"):
        image, weight = case.shapes
        small = (1, 6, 7, image[-1]) if "channels-last" in case.name else (1, image[1], 6, 7)
        return replace(case, shapes=(small, weight))
    return replace(case, shapes=tuple(tuple(min(n, 6) for n in s) for s in case.shapes))


# -- values ------------------------------------------------------------------------------------


def test_check_takes_equal_infinities_and_nans():
    case = Case("pow", ((4,),), lambda lib, a: a, 0.0)
    value = np.array([1.0, np.nan, np.inf, -np.inf], np.float32)
    check(case, "ours", value, value.astype(np.float64), 1.0)


@pytest.mark.parametrize("value, message", [
    (np.zeros(3, np.float32), r"ours: shape \(3,\) where \(4,\) is right"),
    (np.array([1, 2, 3, 5], np.float32), r"ours: 1 of 4 values are wrong \(largest error 1\)"),
    (np.array([1, 2, 3, np.nan], np.float32), r"ours: 1 of 4 values are wrong"),
    (np.array([1, 2, np.inf, 4], np.float32), r"ours: 1 of 4 values are wrong"),
])
def test_check_refuses_wrong_values(value, message):
    case = Case("id", ((4,),), lambda lib, a: a, 0.0)
    with pytest.raises(WrongValues, match=message):
        check(case, "ours", value, np.arange(1.0, 5.0), 1.0)


# -- measuring ---------------------------------------------------------------------------------


class Clock:
    """A clock that two fake functions advance."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def work(self, spans: Iterator[int]):
        def call() -> None:
            self.now += next(spans)
        return call


def _forever(*spans: int) -> Iterator[int]:
    while True:
        yield from spans


def test_compare_reports_medians_and_the_ratio():
    clock = Clock()
    pair = measure.compare(clock.work(_forever(200_000)), clock.work(_forever(600_000)), 1.0,
                           least=5, most=20, clock=clock)
    assert (pair.ours, pair.peer, pair.ratio) == pytest.approx((2e-4, 6e-4, 3.0))
    assert pair.low == pair.high == 3.0 and pair.spread == 0 and pair.pairs == 20


def test_compare_takes_the_least_number_of_pairs_when_time_is_short():
    clock = Clock()
    pair = measure.compare(clock.work(_forever(10**9)), clock.work(_forever(10**9)), 0.001,
                           least=5, most=20, clock=clock)
    assert pair.pairs == 5


def test_slow_moments_that_hit_both_sides_leave_the_ratio():
    clock = Clock()
    moments = (1, 1, 3, 1, 5)
    ours = clock.work(_forever(*(100_000 * m for m in moments)))
    peer = clock.work(_forever(*(200_000 * m for m in moments)))
    assert measure.compare(ours, peer, 1.0, least=10, most=10, clock=clock).ratio == 2.0


def test_short_calls_repeat_within_a_sample():
    clock = Clock()
    count = measure.repetitions(clock.work(_forever(100)), clock)
    assert count * 100 >= measure.SAMPLE_NS
    assert measure.repetitions(clock.work(_forever(10**6)), clock) == 1


@pytest.mark.parametrize("count, ranks", [(1, (0, 0)), (5, (0, 4)), (6, (0, 5)), (9, (1, 7)),
                                          (21, (5, 15)), (101, (40, 60))])
def test_the_interval_of_a_median_is_that_of_the_sign_test(count, ranks):
    assert measure.interval([float(i) for i in range(count)]) == ranks


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=60))
def test_the_interval_holds_the_median(values):
    low, high = measure.interval(values)
    assert low <= np.median(values) <= high


def test_the_geometric_mean():
    assert measure.geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert np.isnan(measure.geometric_mean([]))


def test_the_floor_is_the_slower_of_memory_and_arithmetic():
    assert LIMITS.floor(500, 500, 0.0) == pytest.approx(500 / 50e9 + 500 / 40e9)
    assert LIMITS.floor(5000, 5000, 0.0) == pytest.approx(5000 / 10e9 + 5000 / 5e9)
    between = LIMITS.floor(3162, 0, 0.0)  # half-way by the logarithm of the size
    assert between == pytest.approx(3162 / 30e9, rel=1e-3)
    assert LIMITS.floor(10**6, 0, 0.0) == pytest.approx(10**6 / 10e9)
    assert LIMITS.floor(500, 0, 1e9) == pytest.approx(1e-2)


# -- reports -----------------------------------------------------------------------------------


def test_json_has_machine_limits_and_rows():
    data = json.loads(json.dumps(_report().plain()))
    assert data["geometric_means"] == pytest.approx({"numpy": 4.0, "torch": 0.5})
    assert data["limits"]["fma_gflops"] == 100 and data["limits"]["read_gbps"]["1000"] == 50
    keys = {"suite", "case", "device", "threads", "peer", "ours_s", "peer_s", "ratio", "spread",
            "limit_share"}
    assert all(keys <= set(row) and "searched_s" not in row for row in data["rows"])


def test_the_page_is_self_contained_and_escapes():
    text = page(_report())
    assert text.startswith("<!doctype html>") and "A &lt;processor&gt;" in text
    assert all(word not in text for word in ("http", "<script", "<link", "src="))
    assert text.count("<svg") == 3 + 2  # a ratio for each row, a share for each case


def test_the_table_has_a_line_for_each_row():
    assert table(_report()).row_count == 3


def test_figures_replace_only_what_stands_between_the_markers():
    readme = _load("readme_table")
    text = f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n"
    found = readme.replace_figures(text, readme.figures(_report().plain()))
    assert found.startswith("before\n") and found.endswith("\nafter\n") and "old" not in found
    assert "| a\\*a+b\\*b 4096x4096 | 1.00 ms | 80% | 8.00 |  |" in found
    assert "| **geometric mean** | | | **4.00** | **0.50** |" in found
    with pytest.raises(ValueError, match="readme_table: cannot find"):
        readme.replace_figures("no markers", "")
