"""Records under several processes, threads, forks and kill -9."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from records_tools import TIMINGS, digest, entry, key

from tilewright.search.records import FILE, Records

WRITER = """
import sys
from pathlib import Path
from records_tools import TIMINGS, digest, entry, key
from tilewright.search.records import Records
path, name, count = sys.argv[1:]
records = Records(Path(path))
for number in range(int(count)):
    records.put(entry(f"{name}{number}", schedule=f"{name}{number}" * 200))
    records.add_timings(key("shared"), name, TIMINGS)
    records.put_artifact(digest(f"{name}{number}"), bytes(20_000))
    print(number, flush=True)
"""


def start(path: Path, name: str, count: int) -> subprocess.Popen:
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(
        [str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, str(count)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment)


def test_processes_that_begin_a_file_together_lose_nothing(tmp_path):
    path = tmp_path / "cache" / FILE
    running = [start(path, name, 100) for name in "ab"]
    for process in running:
        assert process.communicate(timeout=60)[1] == "" and process.returncode == 0
    records = Records(path)
    assert len(records.ls()) == 200
    assert records.timings(key("shared")).keys() == {"a", "b"}
    found = [records.artifact(digest(f"{n}{i}")) for n in "ab" for i in range(100)]
    # an artifact may be dropped while another process writes; none may be wrong
    assert {code for code in found if code is not None} == {bytes(20_000)}


def test_a_killed_writer_leaves_whole_records(tmp_path):
    path = tmp_path / FILE
    reader = Records(path)
    for attempt in range(4):
        process = start(path, f"p{attempt}-", 100_000)
        done = -1
        for _ in range(20 + 7 * attempt):
            done = int(process.stdout.readline())
        time.sleep(0.003 * attempt)  # somewhere within a write
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        names = {e.name for e in reader.ls()}
        assert {f"sum p{attempt}-{number}" for number in range(done + 1)} <= names
        reader.put(entry("mine", seconds=1e-3 / (attempt + 1)))
    reader.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert not list(tmp_path.glob("*damaged*"))


def test_threads_share_records(tmp_path):
    records = Records(tmp_path / FILE)

    def work(name: str) -> None:
        for number in range(30):
            records.put(entry(f"{name}{number}"))
            assert records.lookup(key(f"{name}{number}")) is not None
    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(records.ls()) == 120


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_connection_of_its_own(tmp_path):
    records = Records(tmp_path / FILE)
    records.put(entry("parent"))
    child = os.fork()
    if child == 0:
        try:
            records.put(entry("child"))
            found = len(records.ls()) == 2 and len(records._store._handles) == 2
            records.close()
            os._exit(0 if found else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    records.put(entry("later"))
    assert {e.name for e in records.ls()} == {"sum parent", "sum child", "sum later"}


def test_object_code_is_dropped_rather_than_waited_for(tmp_path):
    records = Records(tmp_path / FILE)
    records.put_artifact(digest("x"), b"code")
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        records.put_artifact(digest("y"), b"code")
        assert records.artifact(digest("y")) is None and records.artifact(digest("x")) == b"code"
        assert records._store._next_try > time.monotonic()
        other.execute("ROLLBACK")
    records.add_timings(key(), "1", TIMINGS)  # these wait, and are written
    assert records.timings(key()) and records.path is not None
