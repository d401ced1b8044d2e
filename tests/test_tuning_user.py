"""Tuning as users ask for it: blocks, options of jit, the environment, single kernels, pages."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from tuning_tools import SimulatedDevice

import tilewright as tw
from tilewright import config
from tilewright.config import Tune, from_environment, using
from tilewright.plan import tuning
from tilewright.plan.kernels import kernel_cache
from tilewright.plan.recorded import opened
from tilewright.plan.tuning import Tuner
from tilewright.search.record import Record, Trial


@pytest.fixture(autouse=True)
def simulated(tmp_path):
    with using(backend="interpreter", threads=1, cache_dir=tmp_path, disk_cache=True):
        yield
    opened.close(tmp_path)


@pytest.fixture
def device(monkeypatch) -> SimulatedDevice:
    """Let every tuner made without a device have this one."""
    found = SimulatedDevice()
    monkeypatch.setattr(tuning, "Device", lambda: found)
    return found


def function():
    return tw.jit(lambda x: tw.sum(x * x, axis=1))


def array(*shape: int) -> tw.Tensor:
    return tw.asarray(np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 5)


def plan_of(f, *args):
    return f.compile(*args).plan


def schedules(f, *args) -> list[str]:
    return [str(k.schedule) for k in f.compile(*args).kernels]


def test_a_block_tunes_functions_compiled_before_it(device):
    f, x = function(), array(17, 96)
    wanted = f(x).tolist()
    device.make_slow(plan_of(f, x))
    before = schedules(f, x)
    with tw.tune(beam=2, seconds=30, skip_under=0) as tuner:
        f(x)
        f(x)
    assert [r.fate for r in tuner.results] == ["faster"] and len(device.searches) == 1
    np.testing.assert_allclose(f(x).tolist(), wanted, rtol=1e-6)
    assert schedules(f, x) != before and f.trace_count == 1


def test_outside_a_block_nothing_is_searched(device):
    f, x = function(), array(17, 95)
    with tw.tune(skip_under=0):
        pass
    f(x)
    assert not device.searches and plan_of(f, x)._seen == kernel_cache.stamp
    f(x)
    assert not device.searches


def test_the_stamp_is_nothing_inside_blocks_and_comes_back():
    before = kernel_cache.stamp
    with tw.tune(), tw.tune():
        assert kernel_cache.stamp == 0
    assert kernel_cache.stamp == before > 0


def test_what_is_realised_is_tuned(device):
    with tw.tune(beam=1, seconds=5, skip_under=0) as tuner:
        total = tw.sum(array(13, 64) + 1.0, axis=0).tolist()
    assert total[:2] == (np.asarray(array(13, 64)) + 1).sum(0)[:2].tolist()
    assert len(device.searches) == len(tuner.results) == 1


def test_an_option_of_jit_is_a_budget_of_its_own(device):
    options = Tune(beam=1, seconds=5, skip_under=0)
    f = tw.jit(lambda x: tw.max(x, axis=1), tune=options)
    g = tw.jit(lambda x: tw.min(x, axis=1))
    f(array(9, 80))
    g(array(9, 80))
    f(array(9, 80))
    assert len(device.searches) == 1
    f(array(9, 81))
    assert len(device.searches) == 2


def test_the_environment_turns_it_on(monkeypatch):
    assert from_environment().tune is None
    monkeypatch.setenv("TILEWRIGHT_BEAM", "3")
    found = from_environment().tune
    assert (found.beam, found.seconds) == (3, 60.0)
    monkeypatch.setenv("TILEWRIGHT_TUNE_SECONDS", "2.5")
    assert from_environment().tune.seconds == 2.5
    monkeypatch.setenv("TILEWRIGHT_TUNE_SECONDS", "none")
    with pytest.raises(ValueError, match="config: cannot read TILEWRIGHT_TUNE_SECONDS='none'"):
        from_environment()


def test_options_are_checked_and_do_not_tell_configurations_apart():
    with pytest.raises(ValueError, match="tune: cannot keep a beam of 0"):
        Tune(0)
    with pytest.raises(ValueError, match="tune: cannot spend -1 seconds"):
        Tune(seconds=-1)
    with using(tune=Tune()) as tuned:
        assert tuned.tune is not None
    assert tuned == config.current()


def test_a_kernel_searches_itself(device):
    f, x = function(), array(19, 112)
    compiled = f.compile(x)
    device.make_slow(compiled.plan)
    before = schedules(f, x)
    (kernel,) = compiled.kernels
    record = kernel.search(beam=2, seconds=30, seed=1)
    assert isinstance(record, Record) and record.winner and record.gain > 2 and record.seed == 1
    assert record.counts["timed"] > 1 and record.seconds["total"] > 0
    assert "winner" in record.explain() and "where it is used: " in record.explain()
    f(x)
    assert schedules(f, x) != before


def test_a_search_from_a_worse_start_does_not_replace_what_is_in_use(device):
    f, x = function(), array(21, 112)
    compiled = f.compile(x)
    (kernel,) = compiled.kernels
    device.cost = lambda source: 1e-6 if source == kernel.source else 1e-4
    record = kernel.with_schedule("").search(beam=1, seconds=30)
    f(x)
    assert schedules(f, x) == [str(kernel.schedule)]
    assert record.best.seconds >= 1e-6


class Structure(HTMLParser):
    """Counts tags and checks that they close."""

    VOID = ("meta", "line", "circle", "path", "polyline", "link", "br")

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        assert not any(name in ("src", "href") for name, _ in attrs)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_of_a_record_stands_alone(device):
    f, x = function(), array(23, 112)
    device.make_slow(plan_of(f, x))
    (kernel,) = f.compile(x).kernels
    record = kernel.search(beam=2, seconds=30)
    text = record.to_html(kernel.name)
    structure = Structure()
    structure.feed(text)
    assert not structure.open and structure.tags.count("svg") == 2
    assert "script" not in structure.tags and "prefers-color-scheme: dark" in text
    assert kernel.name in text and "before" in text and "after" in text
    assert structure.tags.count("tr") == len(record.trials) + 1
    again = Record.from_json(record.to_json()).to_html(kernel.name)
    assert again == text


def test_the_page_of_a_search_that_timed_nothing():
    record = Record("k", "kernel", "llvm", 4, 0)
    record.trials = []
    record.why = "interrupted"
    record.trials.append(Trial(0, -1, 0, "given"))
    assert "Nothing was timed" in record.to_html()


SECOND = """
import numpy as np
import tilewright as tw
f = tw.jit(lambda x: tw.sum(x * x, axis=1))
x = tw.asarray(np.ones((25, 112), "float32"))
f(x)
print(f.compile(x).kernels[0].schedule, end="")
"""


def test_another_process_finds_what_was_recorded(device, tmp_path):
    f, x = function(), array(25, 112)
    device.make_slow(plan_of(f, x))
    before = schedules(f, x)
    with tw.tune(beam=2, seconds=30, skip_under=0):
        f(x)
    f(x)
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path),
                   "TILEWRIGHT_DISK_CACHE": "1", "TILEWRIGHT_BACKEND": "interpreter",
                   "TILEWRIGHT_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SECOND], env=environment, capture_output=True,
                          text=True, check=True)
    assert [done.stdout] == schedules(f, x) != before


def test_the_display_draws(device, capsys):
    f, x = function(), array(27, 112)
    device.make_slow(plan_of(f, x))
    with tw.tune(beam=2, seconds=30, skip_under=0, progress=True):
        f(x)
    shown = capsys.readouterr().err
    assert "times as fast" in shown and "27x112" in shown


def test_tuning_from_two_threads_searches_once(device):
    tuner = Tuner(Tune(beam=1, seconds=5, skip_under=0), device)
    f, x = function(), array(29, 112)
    plan = plan_of(f, x)
    with tuner._lock:
        assert not tuner.attend(plan, [x._node.attrs.storage])  # asked again at the next run
    assert tuner.attend(plan, [x._node.attrs.storage]) and len(device.searches) == 1
