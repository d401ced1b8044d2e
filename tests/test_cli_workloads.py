"""The workloads of `bench/` and the example: values and gradients, at small sizes."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tilewright as tw

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def load(monkeypatch):
    """Import a module from `bench` or `examples`."""
    for folder in ("bench", "examples"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    yield importlib.import_module
    for name in ("workloads", "reference", "first_call", "digits"):
        sys.modules.pop(name, None)


SMALL = {
    "lorenz": (lambda w, xp: w.lorenz(xp, 7), (0, 1, 2)),
    "rnn": (lambda w, xp: w.rnn(xp, 3), (0, 1)),
    "attention": (lambda w, xp: w.attention(xp), None),
    "mlp": (lambda w, xp: w.mlp(xp), (1, 2, 3)),
    "ilqr": (lambda w, xp: w.ilqr(xp, 3, 2), (0, 1)),
    "cartpole": (lambda w, xp: w.cartpole(xp, 2, 1), (0,)),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_workload_agrees_with_numpy_in_float64(load, name):
    workloads, reference = load("workloads"), load("reference")
    make, argnums = SMALL[name]
    f, inputs = make(workloads, tw)
    arguments = [tw.asarray(a) for a in inputs]
    right = reference.evaluate(lambda xp: make(workloads, xp))
    np.testing.assert_allclose(np.asarray(tw.jit(f)(*arguments)), right, rtol=1e-4, atol=1e-5)
    if argnums is None:
        return
    gradients = tw.jit(tw.grad(f, argnums=argnums))(*arguments)
    slopes = reference.sampled_gradient(lambda xp: make(workloads, xp), argnums, most=6)
    for gradient, (at, slope) in zip(gradients, slopes):
        found = np.asarray(gradient).reshape(-1)[at]
        np.testing.assert_allclose(found, slope, rtol=2e-3, atol=2e-3 * np.abs(slope).max())


def test_first_call_measures_in_a_process_of_its_own(load):
    first_call = load("first_call")
    row = first_call.measure_apart("rnn2", False, 60.0)
    assert row["agrees"] and row["first_s"] > row["second_s"] > 0
    assert {"trace", "compile"} <= set(row["stages"]) and row["counts"]["kernels"] >= 1


def test_first_call_reports_a_process_that_takes_too_long(load):
    row = load("first_call").measure_apart("rnn2", False, 0.01)
    assert row["failed"] == "over 0 s" and not row["agrees"]


def test_the_digits_example_learns_and_draws(load, tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    digits = load("digits")
    picture = tmp_path / "out" / "digits.png"
    result = CliRunner().invoke(
        digits.main, ["--output", str(picture), "--epochs", "20"], catch_exceptions=False)
    assert result.exit_code == 0 and picture.stat().st_size > 5000
    accuracy = float(result.output.split("test accuracy ")[1].split("%")[0])
    assert accuracy >= 98
