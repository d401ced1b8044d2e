"""The commands, run as a user runs them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tilewright import config
from tilewright.cli import machine, main
from tilewright.cli.bench import command
from tilewright.cli.kernels import Recorder
from tilewright.plan.debug import Ran
from tilewright.search.roofline import MachineLimits, measure_limits

SCRIPT = """
import sys
import numpy as np
import tilewright as tw
f = tw.jit(lambda x: tw.sum(x * x, axis=1))
for _ in range(3):
    f(tw.asarray(np.ones((20, 30), "float32"))).block_until_ready()
print("arguments", sys.argv[1:], __name__)
"""


def run(*arguments: str):
    return CliRunner().invoke(main, arguments, catch_exceptions=False, env={"COLUMNS": "200"})


@pytest.fixture
def quick_limits(monkeypatch):
    limits = MachineLimits(1, 1e11, {1 << 30: 1e10}, {1 << 30: 1e10})
    monkeypatch.setattr(command, "measure_limits", lambda *args, **kwargs: limits)
    monkeypatch.setattr("tilewright.cli.kernels.measure_limits", lambda *args: limits)


def test_limits_are_measured_by_native_programs():
    limits = measure_limits(1, sizes=(1 << 18,))
    assert limits.flops > 1e8 and limits.read[1 << 18] > 1e8 and limits.write[1 << 18] > 1e8


def test_bench_writes_json_and_html(tmp_path, quick_limits):
    before = config.get_num_threads(), machine.cores()
    result = run("bench", "--filter", "softmax 64", "--peer", "numpy", "--seconds", "0.02",
                 "--threads", "1", "--json", str(tmp_path / "b.json"),
                 "--html", str(tmp_path / "b.html"))
    assert result.exit_code == 0, result.output
    data = json.loads((tmp_path / "b.json").read_text())
    (row,) = data["rows"]
    assert (row["suite"], row["case"], row["peer"], row["threads"], row["device"]) == (
        "kernels", "softmax 64x1000", "numpy", 1, "cpu")
    assert row["ours_s"] > 0 and row["peer_s"] > 0 and not data["problems"]
    assert "softmax 64x1000" in (tmp_path / "b.html").read_text()
    assert "geometric mean numpy/ours" in result.output
    assert (config.get_num_threads(), machine.cores()) == before


def test_bench_reports_a_wrong_value_and_fails(quick_limits, monkeypatch):
    monkeypatch.setattr(command.Tilewright, "softmax", lambda self, a: a)
    result = run("bench", "--filter", "softmax 64", "--peer", "numpy", "--seconds", "0.02")
    assert result.exit_code == 1 and "values are wrong" in result.output


def test_bench_refuses_what_it_cannot_do(monkeypatch):
    result = run("bench", "--filter", "no such case")
    assert result.exit_code == 2 and "cannot find a case" in result.output
    monkeypatch.setattr(command, "installed", lambda: {"torch": False, "numpy": True})
    result = run("bench", "--filter", "add 1x1", "--peer", "torch")
    assert result.exit_code == 2 and "cannot compare with torch (not installed" in result.output


def test_doctor_tells_the_machine_and_checks_it():
    result = run("doctor")
    assert result.exit_code == 0, result.output
    for word in ("processor", "caches", "llvmlite", "cache", "backend llvm", "compiled and ran"):
        assert word in result.output


def test_kernels_lists_what_a_script_ran(tmp_path, quick_limits):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    result = run("kernels", str(script), "--flag", "value")
    assert result.exit_code == 0, result.output
    assert "arguments ['--flag', 'value'] __main__" in result.output
    assert "20x30" in result.output and "100.0%" in result.output


def test_kernels_lists_what_ran_before_a_script_failed(tmp_path, quick_limits):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + "\nraise KeyError('late')\n")
    with pytest.raises(KeyError, match="late"):
        run("kernels", str(script))
    assert config.current().observer is None


def test_a_recorder_adds_up_launches_by_kernel():
    recorder = Recorder()
    for seconds in (3.0, 1.0, 2.0):
        recorder(Ran("sum", "key", 8, 4, seconds))
    recorder(Ran("sum", "other key", 8, 4, 7.0))
    first, second = recorder.ordered()
    assert (first.seconds, first.launches) == (7.0, 1)
    assert (second.seconds, second.launches, second.best) == (6.0, 3, 1.0)


@pytest.mark.parametrize("value, text", [(1.5e-3, "1.5 ms"), (2e-9, "2 ns"), (0.25e-6, "250 ns"),
                                         (12.0, "12 s"), (3.21e-5, "32.1 µs")])
def test_seconds_are_written_for_people(value, text):
    assert machine.seconds(value) == text


def test_sizes_are_written_for_people():
    assert machine.size(48 << 10) == "48 KiB" and machine.size(10) == "10 bytes"
