"""Records: what is kept, found, exchanged, bounded, and who may read it."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from records_tools import TIMINGS, Clock, digest, entry, key

import tilewright as tw
from tilewright import config
from tilewright.backends import backend
from tilewright.backends.llvm import LLVM
from tilewright.backends.llvm.host import Host
from tilewright.cli import main
from tilewright.errors import RecordError
from tilewright.kernel import Kernel
from tilewright.plan.kernels import kernel_cache
from tilewright.plan.recorded import opened
from tilewright.search import store
from tilewright.search.entries import Timing, better, joined
from tilewright.search.keys import Key, artifact_key, code_version, fingerprint
from tilewright.search.records import CODES, FILE, Records

CODE = b"\x7fELF object code"


@pytest.fixture(params=["file", "memory"])
def records(request, tmp_path):
    made = Records(tmp_path / "cache" / FILE if request.param == "file" else None, clock=Clock())
    yield made
    made.close()


# -- keys ------------------------------------------------------------------------------------------


def test_a_key_tells_apart_all_that_a_schedule_depends_on():
    kernel, llvm = Kernel((), (), ()), backend("llvm")
    first = Key.of(kernel, llvm, 2, {"b": 1, "a": 2})
    assert first == Key.of(kernel, llvm, 2, {"a": 2, "b": 1}) and first.options == "a=2,b=1"
    others = [Key.of(kernel, llvm, 1, {"a": 2, "b": 1}), Key.of(kernel, llvm, 2),
              Key.of(kernel, llvm, 2, {"a": 2, "b": 1}, "cold"),
              Key.of(kernel, backend("interpreter"), 2, {"a": 2, "b": 1}),
              replace(first, grammar=first.grammar + 1)]
    assert len({k.digest for k in (first, *others)}) == 6
    with pytest.raises(ValueError, match="records: cannot file under cache mode 'tepid'"):
        Key.of(kernel, llvm, 1, cache="tepid")


def test_devices_differ_by_features_and_objects_by_the_compiler_too():
    here = Host.here()
    if not here.x86:
        pytest.skip("another processor")
    less = Host(here.triple, here.cpu, here.features - {"fma"}, here.missing | {"fma"})
    assert fingerprint(LLVM(here)) != fingerprint(LLVM(less))
    assert artifact_key(LLVM(here), "source") != artifact_key(LLVM(less), "source")
    assert artifact_key(LLVM(here), "source") != artifact_key(LLVM(here), "source ")


def test_the_code_version_names_the_package_and_is_stable():
    assert code_version() == code_version()
    assert code_version().startswith(tw.__version__ + "+")


# -- schedules and timings -------------------------------------------------------------------------


def test_what_is_put_is_found_with_its_dates(records):
    clock = records._clock
    assert records.lookup(key()) is None
    records.put(entry())
    clock.now = 2000.0
    records.put(entry(seconds=5e-4))
    found = records.lookup(key())
    assert found == entry(seconds=5e-4, created=1000.0, updated=2000.0)
    assert not found.stale and replace(found, code="0.0+old").stale
    assert records.lookup(key(threads=2)) is None and records.lookup(key(cache="cold")) is None
    records.drop(key())
    assert records.lookup(key()) is None


def test_ls_filters_and_show_takes_the_beginning_of_a_key(records):
    for name in ("a", "b"):
        records.put(entry(name))
    records.add_timings(key("a"), "1", TIMINGS)
    assert [e.name for e in records.ls()] == ["sum a", "sum b"]
    assert [e.name for e in records.ls("sum b")] == ["sum b"]
    assert [e.name for e in records.ls(key("a").digest[:10])] == ["sum a"]
    found, timings = records.show(key("a").digest[:10])
    assert found.kernel == "kernel text" and timings == {"1": TIMINGS}
    with pytest.raises(RecordError, match="records: cannot show 'xyz' \\(there is none\\)"):
        records.show("xyz")
    with pytest.raises(RecordError, match="2 records begin with it"):
        records.show("")


def test_timings_join_by_candidate_and_old_code_is_forgotten(records):
    again = [replace(TIMINGS[0], seconds=9e-4), Timing(0, "Unroll(i0)", "slow", "", 1.0, 0.0, 1)]
    records.add_timings(key(), "new", TIMINGS)
    records.add_timings(key(), "new", again)
    assert records.timings(key()) == {"new": [again[0], TIMINGS[1], again[1]]}
    for number in range(CODES + 2):
        records._clock.now += 1
        records.add_timings(key(), str(number), TIMINGS)
    assert list(records.timings(key())) == ["5", "4", "3", "2"]


def test_unreadable_texts_do_not_hide_the_schedule(tmp_path):
    with_damage = Records(tmp_path / FILE)
    with_damage.put(entry())
    with_damage._store.write(lambda c: c.execute("UPDATE schedules SET texts = x'00'"))
    assert with_damage.lookup(key()).schedule and with_damage.lookup(key()).kernel == ""


# -- export, import, merge -------------------------------------------------------------------------


def test_export_and_import_round_trip_without_object_code(records):
    records.put(entry("a"))
    records.put(entry("b", seconds=3e-3))
    records.add_timings(key("a"), "1", TIMINGS)
    records.put_artifact(digest("x"), CODE)
    lines = list(records.export())
    assert len(lines) == 3 and not any("ELF" in line or "artifact" in line for line in lines)
    other = Records()
    assert other.import_(lines) == (2, 2)
    assert list(other.export()) == lines and other.artifact(digest("x")) is None
    assert other.import_(lines) == (2, 0) and list(other.export()) == lines


ENTRIES = st.builds(
    entry, seconds=st.sampled_from([1e-3, 1.05e-3, 2e-3]), spread=st.sampled_from([0.0, 0.1, 0.5]),
    samples=st.integers(1, 3), code=st.sampled_from(["1", "2"]), created=st.just(1.0),
    schedule=st.sampled_from(["A", "B"]), updated=st.sampled_from([1.0, 2.0]))


@given(st.lists(ENTRIES, min_size=1, max_size=4))
def test_merging_gives_the_same_in_any_order_and_never_a_worse_bound(entries):
    found = set()
    for order in itertools.permutations(entries):
        best = order[0]
        for e in order[1:]:
            best = better(best, e)
        found.add(best)
    assert len(found) == 1
    assert best.seconds * (1 + best.spread) == min(e.seconds * (1 + e.spread) for e in entries)


def test_a_wide_spread_loses_and_more_samples_break_a_tie():
    sure, lucky = entry(seconds=1e-3, spread=0.01), entry(seconds=9e-4, spread=0.5)
    assert better(sure, lucky) == better(lucky, sure) == sure
    more = replace(sure, samples=15)
    assert better(sure, more) == more
    known = Timing(0, "A", "timed", "", 1.0, 0.0, 3)
    assert joined([Timing(0, "A", "timeout")], [known]) == [known]


def test_merge_reads_databases_and_lines(tmp_path):
    other = Records(tmp_path / "other" / FILE)
    other.put(entry("a", seconds=5e-4))
    other.put(entry("b", seconds=5e-3))
    other.put_artifact(digest("x"), CODE)
    (tmp_path / "lines.jsonl").write_text("\n".join(other.export()))
    for file in (tmp_path / "other" / FILE, tmp_path / "lines.jsonl"):
        records = Records()
        records.put(entry("a"))
        records.put(entry("b"))
        assert records.merge(file) == (2, 1)
        assert records.lookup(key("a")).seconds == 5e-4
        assert records.lookup(key("b")).seconds == 1e-3
        assert records.artifact(digest("x")) is None
    (tmp_path / "bad").write_bytes(b"SQLite format 3\0 but no more")
    with pytest.raises(RecordError, match="records: cannot merge .*bad"):
        records.merge(tmp_path / "bad")


def _line(**changes) -> str:
    records = Records()
    records.put(entry())
    data = json.loads(next(records.export()))
    data["schedule"].update(changes)
    return json.dumps(data)


@pytest.mark.parametrize("line", [
    "not json", "[]", "{}", '{"tilewright": 99, "schedule": {}}', '{"tilewright": 1}',
    _line(seconds=-1.0), _line(seconds=float("nan")), _line(seconds="1"), _line(schedule=3),
    _line(samples=True), _line(unknown=1), _line(key={"kernel": "a"}), _line(key=3),
    '{"tilewright": 1, "timings": {"key": "../x", "code": "1", "updated": 1, "trials": []}}',
    "[" * 100_000,
])
def test_import_takes_all_or_nothing(line):
    records = Records()
    with pytest.raises(RecordError, match="records: cannot import line 2"):
        records.import_([_line(), line])
    assert records.ls() == []


# -- object code -----------------------------------------------------------------------------------


def test_artifacts_are_found_and_damage_is_noticed(records):
    assert records.artifact(digest("x")) is None
    records.put_artifact(digest("x"), CODE)
    assert records.artifact(digest("x")) == CODE and records.artifact_bytes == len(CODE)
    records._store.write(lambda c: c.execute("UPDATE artifacts SET code = x'00'"))
    assert records.artifact(digest("x")) is None


def test_artifacts_are_bounded_and_the_longest_unused_go_first(tmp_path):
    clock = Clock()
    records = Records(tmp_path / FILE, artifact_bytes=1000, clock=clock)
    for number in range(10):
        clock.now += 10_000
        records.put_artifact(digest(str(number)), bytes(100))
    clock.now += 10_000
    assert records.artifact(digest("0")) is not None  # used now, so it outlives the next
    records.put_artifact(digest("more"), bytes(100))
    kept = [n for n in (*map(str, range(10)), "more") if records.artifact(digest(n))]
    assert kept == ["0", "5", "6", "7", "8", "9", "more"]
    assert records.artifact_bytes == 700
    records.put_artifact(digest("huge"), bytes(2000))
    assert records.artifact_bytes == 0


def test_clear_forgets(records):
    records.put(entry())
    records.add_timings(key(), "1", TIMINGS)
    records.put_artifact(digest("x"), CODE)
    records.clear(artifacts_only=True)
    assert records.lookup(key()) and records.artifact(digest("x")) is None
    records.clear()
    assert records.lookup(key()) is None and records.timings(key()) == {}


def test_only_the_user_can_read_the_files(tmp_path):
    path = tmp_path / "cache" / FILE
    before = os.umask(0)
    try:
        records = Records(path)
        records.put(entry())
    finally:
        os.umask(before)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert len(list(path.parent.iterdir())) == 3  # with the log and its index
    assert {p.stat().st_mode & 0o777 for p in path.parent.iterdir()} == {0o600}


@pytest.mark.parametrize("what", ["directory", "file"])
def test_object_code_that_others_could_write_is_not_loaded(tmp_path, what):
    path = tmp_path / "cache" / FILE
    records = Records(path)
    records.put(entry())
    records.put_artifact(digest("x"), CODE)
    records.close()
    os.chmod(path.parent if what == "directory" else path, 0o777)
    with pytest.warns(RuntimeWarning, match="records: cannot keep object code in"):
        assert records.artifact(digest("x")) is None
    records.put_artifact(digest("y"), CODE)
    assert records._select("SELECT count(*) FROM artifacts") == [(1,)]
    assert records.lookup(key()) is not None


# -- files that cannot be used ---------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["text", "torn", "page"])
def test_a_damaged_file_is_kept_aside_and_a_new_one_begun(tmp_path, damage):
    path = tmp_path / FILE
    records = Records(path)
    for number in range(300):
        records.put(entry(str(number)))
    records.close()
    content = path.read_bytes()
    broken = {"text": b"hello " * 100, "torn": content[:5000],
              "page": content[:4096] + b"\xff" * (len(content) - 4096)}[damage]
    path.write_bytes(broken)
    with pytest.warns(RuntimeWarning, match="records: cannot read .* it is kept as") as caught:
        assert records.lookup(key("1")) is None
    assert len(caught) == 1
    records.put(entry("1"))
    assert Records(path).lookup(key("1")) is not None
    (aside,) = [p for p in tmp_path.glob("*.damaged-*") if not p.name.endswith(("-wal", "-shm"))]
    assert aside.read_bytes() == broken


def test_another_process_that_replaced_the_file_is_not_undone(tmp_path):
    path = tmp_path / FILE
    path.write_bytes(b"hello " * 100)
    late = Records(path)
    error = sqlite3.DatabaseError("damaged")
    handle = store._Handle()
    handle.file = (0, 0)  # the damaged file that is there no longer
    late._store._set_aside(handle, error)
    assert path.read_bytes() == b"hello " * 100


def test_a_place_that_cannot_be_used_means_memory_and_one_warning(tmp_path):
    (tmp_path / "file").write_text("")
    records = Records(tmp_path / "file" / FILE)
    with pytest.warns(RuntimeWarning, match="kept in memory only") as caught:
        records.put(entry())
        records.put_artifact(digest("x"), CODE)
        assert records.lookup(key()) is not None and records.path is None
    assert len(caught) == 1


def test_records_that_cannot_be_written_can_be_read(tmp_path, monkeypatch):
    path = tmp_path / FILE
    first = Records(path)
    first.put(entry())
    first.add_timings(key(), "1", TIMINGS)
    first.close()

    def refuse(*arguments):
        raise PermissionError("read-only file system")
    monkeypatch.setattr(store.os, "open", refuse)
    records = Records(path)
    with pytest.warns(RuntimeWarning, match="with 1 schedules read from it"):
        assert records.lookup(key()) is not None
    assert records.timings(key()) == {"1": TIMINGS}


def test_a_full_disk_while_writing_keeps_the_program_going(tmp_path):
    records = Records(tmp_path / FILE)
    records.put(entry("a"))
    records._store.run(lambda c: c.execute("PRAGMA max_page_count = 1"))
    with pytest.warns(RuntimeWarning, match="full.*kept in memory only"):
        for number in range(100):
            records.put(entry(str(number), schedule=str(number) * 1000))
    assert records.lookup(key("a")) and records.lookup(key("99"))


# -- versions of the schema ------------------------------------------------------------------------


def test_an_older_file_is_migrated_and_a_newer_one_left_alone(tmp_path, monkeypatch):
    path = tmp_path / FILE
    records = Records(path)
    records.put(entry())
    records.close()
    now = store.MIGRATIONS
    monkeypatch.setattr(store, "MIGRATIONS", (*now, ("CREATE TABLE extra (x INTEGER)",)))
    merged = Records()
    assert merged.merge(path) == (1, 1)  # read without changing it
    newer = Records(path)
    assert newer.lookup(key()) and newer._select("SELECT count(*) FROM extra") == [(0,)]
    newer.close()
    monkeypatch.setattr(store, "MIGRATIONS", now)
    content = path.read_bytes()
    with pytest.warns(RuntimeWarning, match="schema is version 2; this code knows 1"):
        assert Records(path).lookup(key()) is None
    assert path.read_bytes() == content


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / FILE
    first = Records(path)
    first.put(entry())
    first.close()
    steps = (*store.MIGRATIONS, ("CREATE TABLE extra (x)", "CREATE TABLE schedules (x)"))
    with monkeypatch.context() as patch:
        patch.setattr(store, "MIGRATIONS", steps)
        with pytest.raises(sqlite3.OperationalError, match="already exists"):
            Records(path).lookup(key())
    assert Records(path).lookup(key()) is not None


# -- plans -----------------------------------------------------------------------------------------


def _compile(x):
    kernel_cache.clear()
    f = tw.jit(lambda a: tw.sum(a * 3 + 1, axis=1))
    return np.asarray(f(tw.asarray(x))), f.compile(tw.asarray(x)).counts


def test_plans_find_their_object_code_on_disk(tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    with config.using(backend="llvm", disk_cache=True, cache_dir=tmp_path):
        first, cold = _compile(x)
        second, warm = _compile(x)
    assert np.array_equal(first, second) and np.array_equal(first, (x * 3 + 1).sum(1))
    assert cold["programs compiled"] == warm["programs found"] > 0
    assert warm["programs compiled"] == 0 and "programs found" not in cold
    with config.using(backend="llvm", disk_cache=False, cache_dir=tmp_path):
        assert _compile(x)[1]["programs compiled"] > 0
    with config.using(backend="interpreter", disk_cache=True, cache_dir=tmp_path / "none"):
        assert _compile(x)[1]["programs compiled"] > 0
    assert not (tmp_path / "none").exists()
    opened.clear()


# -- the command line ------------------------------------------------------------------------------


def run(directory: Path, *arguments: str, given: str = ""):
    with config.using(cache_dir=directory):
        return CliRunner().invoke(main, ["records", *arguments], input=given,
                                  catch_exceptions=False, env={"COLUMNS": "160"})


def test_the_commands(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    assert "0 schedules" in run(here, "ls").output
    records = Records(here / FILE)
    records.put(entry("a"))
    records.put(entry("b", code="0.0+old"))
    records.add_timings(key("a"), "1.0+c", TIMINGS)
    records.put_artifact(digest("x"), CODE)
    records.close()
    listed = run(here, "ls").output
    assert "sum a" in listed and "2.00*" in listed and "2 schedules" in listed
    assert "1 schedules" in run(here, "ls", "sum b").output
    shown = run(here, "show", key("a").digest[:8]).output
    for text in ("kernel text", "for i0 in 64", "for i0.0 in 8", "Vectorize(i0.1)", "2.00 times",
                 "candidates timed by 1.0+c", "illegal (i0 is too short)", "10.0%"):
        assert text in shown
    lost = run(here, "show", "zz")
    assert lost.exit_code == 1 and "cannot show 'zz' (there is none)" in lost.output
    file = tmp_path / "out.jsonl"
    assert "3 lines" in run(here, "export", str(file)).output
    assert run(here, "export", "-").output == file.read_text()
    assert "2 schedules read, 2 of them new or better" in run(there, "import", str(file)).output
    assert "2 schedules read, 0" in run(there, "merge", str(here / FILE), str(file)).output
    assert run(there, "export", "-").output == file.read_text()
    assert "object code removed" in run(here, "clear", "--artifacts").output
    assert run(here, "clear", given="n\n").exit_code == 1
    assert "2 schedules, and 0 bytes" in run(here, "ls").output
    assert "records removed" in run(here, "clear", "--yes").output
    assert "0 schedules" in run(here, "ls").output


def test_commands_refuse_records_that_cannot_be_kept(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning):
        result = run(tmp_path / "file", "ls")
    assert result.exit_code == 1 and "records: cannot use" in result.output
    (tmp_path / "bad").write_text("nothing\n")
    result = run(tmp_path / "ok", "import", str(tmp_path / "bad"))
    assert result.exit_code == 1 and "cannot import line 1" in result.output
