"""``tilewright tune`` and ``tilewright bench --beam``, run as a user runs them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from tuning_tools import SimulatedDevice

import tilewright as tw
from tilewright.cli import main
from tilewright.cli import tune as tune_command
from tilewright.cli.bench import command
from tilewright.cli.bench.report import Report, Row, Searched, table
from tilewright.config import using
from tilewright.plan import tuning as tuning_module
from tilewright.plan.recorded import opened
from tilewright.search.roofline import FILE, MachineLimits, kept_limits

LIMITS = MachineLimits(1, 1e13, {1 << 30: 1e12}, {1 << 30: 1e12})

SCRIPT = """
import sys
import numpy as np
import tilewright as tw
f = tw.jit(lambda x: tw.sum(x * x, axis=1))
for _ in range(3):
    f(tw.asarray(np.ones((40, 112), "float32"))).block_until_ready()
tw.exp(tw.asarray(np.ones((9,), "float32"))).block_until_ready()
print("arguments", sys.argv[1:], __name__)
"""


def run(*arguments: str):
    return CliRunner().invoke(main, arguments, catch_exceptions=False, env={"COLUMNS": "200"})


@pytest.fixture
def device(monkeypatch) -> SimulatedDevice:
    found = SimulatedDevice(scale=20.0)  # so that only the smallest kernel is short
    monkeypatch.setattr(tuning_module, "Device", lambda: found)
    monkeypatch.setattr(tune_command, "Device", lambda: found)
    return found


@pytest.fixture
def simulated(tmp_path):
    with using(backend="interpreter", threads=1, cache_dir=tmp_path / "cache", disk_cache=True):
        yield
    opened.close(tmp_path / "cache")


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


# -- tune ----------------------------------------------------------------------------------------


def test_tune_runs_a_script_twice_and_tells_what_changed(simulated, device, script):
    f = tw.jit(lambda x: tw.sum(x * x, axis=1))
    device.make_slow(f.compile(tw.asarray(np.ones((40, 112), "float32"))).plan)
    result = run("tune", "--beam", "2", "--seconds", "30", script, "one", "--two")
    assert result.exit_code == 0, result.output
    assert result.output.count("arguments ['one', '--two'] __main__") == 2
    assert "multiply_sum_40x112" in result.output and "a faster schedule" in result.output
    assert "short: a launch takes" in result.output and "1 of 2 kernels changed" in result.output
    again = run("tune", "--beam", "2", "--seconds", "30", script)
    assert "recorded: searched before" in again.output and len(device.searches) == 1


def test_tune_counts_launches_of_all_runs(simulated, device, script):
    survey = tune_command.survey(script, ())
    launches = {m.usage.built.origin.axes[0].extent: m.launches for m in survey.kernels.values()}
    assert sorted(launches.values()) == [1, 3]
    usages = survey.usages()
    assert [u.launches for u in usages] == [3, 1]
    assert survey.seconds == pytest.approx(sum(u.seconds for u in usages))


def test_tune_hands_on_what_ended_the_script(simulated, device, tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("raise KeyError('here')\n")
    with pytest.raises(KeyError, match="here"):
        run("tune", str(path))
    path.write_text("print('nothing')\n")
    assert "no kernels ran" in run("tune", str(path)).output


def test_tune_keeps_the_best_when_interrupted(simulated, device, script):
    f = tw.jit(lambda x: tw.sum(x * x, axis=1))
    device.make_slow(f.compile(tw.asarray(np.ones((40, 112), "float32"))).plan)
    device.stop = 200
    result = run("tune", "--beam", "2", "--seconds", "30", script)
    assert "interrupted: the best so far is kept" in result.output
    assert "a faster schedule" in result.output


# -- bench ---------------------------------------------------------------------------------------


def test_bench_searches_each_case(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "measure_limits", lambda *args, **kwargs: LIMITS)
    monkeypatch.setattr("tilewright.plan.usage.kept_limits", lambda *args: LIMITS)
    result = run("bench", "--filter", "softmax 64", "--peer", "numpy", "--seconds", "0.02",
                 "--threads", "1", "--beam", "1", "--search-seconds", "1.5",
                 "--json", str(tmp_path / "b.json"), "--html", str(tmp_path / "b.html"))
    assert result.exit_code == 0, result.output
    data = json.loads((tmp_path / "b.json").read_text())
    (row,) = data["rows"]
    assert not data["problems"] and row["searched_s"] > 0 and row["searched_ratio"] > 0.2
    assert 0 < row["search_seconds"] < 10 and row["searched_limit_share"] > 0
    assert "geometric mean ours/searched" in result.output and "searched" in result.output
    assert "<th>searched</th>" in (tmp_path / "b.html").read_text()


def row(case: str, peer: str, searched: Searched | None) -> Row:
    return Row("kernels", case, "cpu", 1, peer, 2e-3, 4e-3, 2.0, (1.9, 2.1), 0.01, 9, 1.0, 2.0, 0.5,
               **(searched.columns(1e-3) if searched else {}))


def test_a_report_with_searched_cases():
    searched = Searched(1e-3, 2.0, (1.9, 2.1), 7.5)
    report = Report({}, LIMITS, {"numpy": "2"}, [row("add", "numpy", searched),
                                                 row("sub", "numpy", None)])
    assert report.searched and report.gain() == 2.0
    plain = report.plain()
    assert plain["searched_geometric_mean"] == 2.0
    first, second = plain["rows"]
    assert (first["searched_s"], first["searched_limit_share"]) == (1e-3, 1.0)
    assert "searched_s" not in second
    assert [c.header for c in table(report).columns][-4:] == ["searched", "gain", "limit", "in"]
    assert list(table(report).columns[-1].cells) == ["7.5 s", ""]


# -- the machine's limits ------------------------------------------------------------------------


class Here:
    identity = "device"


def test_limits_are_measured_once_and_the_greatest_kept(tmp_path, monkeypatch):
    found = [MachineLimits(2, 1e11, {1 << 20: 4e10}, {1 << 20: 2e10}),
             MachineLimits(2, 2e11, {1 << 20: 3e10, 1 << 21: 1e10}, {1 << 20: 3e10})]
    monkeypatch.setattr("tilewright.search.roofline.measure_limits", lambda *args: found.pop(0))
    first = kept_limits(tmp_path, Here(), 2)
    assert first.flops == 1e11 and kept_limits(tmp_path, Here(), 2).read == first.read
    second = kept_limits(tmp_path, Here(), 2, again=True)
    assert not found and second.flops == 2e11 and second.write == {1 << 20: 3e10}
    assert kept_limits(tmp_path, Here(), 2).read == {1 << 20: 4e10, 1 << 21: 1e10}
    (tmp_path / FILE).write_text("[1, 2")
    found.append(first)
    assert kept_limits(tmp_path, Here(), 2).flops == 1e11


# -- the real device -----------------------------------------------------------------------------


def test_a_kernel_is_searched_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.setattr("tilewright.plan.usage.kept_limits", lambda *args: LIMITS)
    rng = np.random.default_rng(0)
    a, b = (tw.asarray(rng.random((96, 96), dtype="float32")) for _ in range(2))
    with using(threads=1, cache_dir=tmp_path, disk_cache=True):
        f = tw.jit(tw.matmul)
        wanted = f(a, b).tolist()
        with tw.tune(beam=1, seconds=4.0, skip_under=0.0) as tuner:
            f(a, b)
        np.testing.assert_allclose(f(a, b).tolist(), wanted, rtol=1e-4)
        (result,) = tuner.results
        assert result.fate in ("faster", "kept") and result.record.counts["timed"] > 1
        (entry,) = opened.get(tmp_path).ls()
        assert entry.schedule == str(f.compile(a, b).kernels[0].schedule)
        plain = f.compile(a, b).kernels[0].with_schedule("")
        record = plain.search(beam=1, seconds=2.0)
        assert record.winner and record.gain > 2  # plain loops are easily beaten
    opened.close(tmp_path)
