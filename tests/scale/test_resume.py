"""Interrupted work: by hand, by a signal, by a full disk, by a corrupt chunk; then to the same bits."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import zarr

from lunette.scale import run, work
from lunette.scale.journal import Journal
from lunette.scale.stores import Level
from tests.scale.commands import lunette, volume


def files(folder):
    """Every file below a folder with its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.npy"
    np.save(path, volume((48, 64, 64)))
    return path


def work_folder(out):
    """Where a run that was begun keeps its levels."""
    (folder,) = [p for p in out.with_name(out.name + ".partial").iterdir() if p.is_dir()]
    return folder


def pyramid(source, out, *options, code=0):
    return lunette("pyramid", source, out, "--levels", 3, "--chunks", "8,8,8", *options, code=code)


SLOWLY = """
import time
from lunette.cli import main
from lunette.scale.stores import Level

write = Level.write
Level.write = lambda self, *a: (time.sleep(0.1), write(self, *a))
main()
"""


def test_killed_half_way_and_resumed(tmp_path, source):
    killed, whole = tmp_path / "killed" / "out.zarr", tmp_path / "whole" / "out.zarr"
    killed.parent.mkdir()
    whole.parent.mkdir()
    pyramid(source, whole)
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            SLOWLY,
            "pyramid",
            str(source),
            str(killed),
            "--levels",
            "3",
            "--chunks",
            "8,8,8",
        ]
    )
    journal = killed.with_name("out.zarr.journal")
    while process.poll() is None and not (journal.exists() and journal.read_text().count("\n") > 3):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = journal.read_text().count("\n") - 1
    assert 3 <= done < 9  # of nine tiles in two passes
    pyramid(source, killed, "--resume")
    assert files(killed) == files(whole)
    assert not journal.exists()


def test_only_what_is_missing_is_done(tmp_path, source, monkeypatch):
    out = tmp_path / "out.zarr"
    calls = []
    original = run.run_tile

    def stop_after(count):
        def tile(job, number, t):
            if len(calls) >= count:
                raise KeyboardInterrupt
            calls.append((number, t))
            return original(job, number, t)

        return tile

    monkeypatch.setattr(run, "run_tile", stop_after(7))
    monkeypatch.setattr(run, "_wait_threads", _interrupting(run._wait_threads, after=3))
    assert "--resume" in pyramid(source, out, "--threads", 1, code=130)
    first = list(calls)
    monkeypatch.setattr(run, "run_tile", stop_after(10**9))
    pyramid(source, out, "--resume")
    assert len(set(calls)) == len(calls) > len(first) >= 3
    pyramid(source, tmp_path / "again.zarr")
    expected, actual = files(tmp_path / "again.zarr"), files(out)
    del expected["zarr.json"], actual["zarr.json"]  # they hold the names
    assert actual == expected


def _interrupting(wait, after):
    """Ctrl-C while waiting for the tile after so many."""
    count = 0

    def waiting(futures):
        nonlocal count
        count += 1
        if count == after:
            raise KeyboardInterrupt
        return wait(futures)

    return waiting


def test_a_full_disk_names_the_chunk_and_loses_nothing(tmp_path, source, monkeypatch):
    out, written = tmp_path / "out.npy", []
    original = Level.write

    def write(self, ranges, block):
        if len(written) == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(self, ranges, block)
        written.append(ranges)

    arguments = ["pool", "max", "--kernel", "2,2,2", "--chunks", "8,8,8", source, out]
    with monkeypatch.context() as patch:
        patch.setattr(Level, "write", write)
        message = lunette(*arguments, "--threads", 1, code=1)
    assert "cannot write chunk (0, 1, 1) of level 1" in message
    assert "No space left" in message
    assert "--resume" in message
    assert "was begun and not finished" in lunette(*arguments, code=1)
    lunette(*arguments, "--resume")
    x = np.load(source)
    np.testing.assert_array_equal(np.load(out), x.reshape(24, 2, 32, 2, 32, 2).max((1, 3, 5)))


def test_a_corrupt_chunk_is_named_and_the_rest_is_kept(tmp_path):
    source, out = tmp_path / "in.zarr", tmp_path / "out.zarr"
    x = volume((16, 16, 16))
    zarr.create_array(str(source), data=x, chunks=(4, 4, 4))
    chunk = source / "c" / "2" / "0" / "3"
    good = chunk.read_bytes()
    chunk.write_bytes(b"not a chunk")
    arguments = ["pool", "max", "--kernel", "2,2,2", "--chunks", "2,2,2", source, out]
    message = lunette(*arguments, "--threads", 1, code=1)
    assert "cannot read chunk (2, 0, 3)" in message
    assert not out.with_name("out.zarr.journal").read_text().count("\n") < 2
    chunk.write_bytes(good)
    lunette(*arguments, "--resume")
    expected = x.reshape(8, 2, 8, 2, 8, 2).max((1, 3, 5))
    np.testing.assert_array_equal(zarr.open(str(out), mode="r")[...], expected)


def test_a_torn_line_is_no_line(tmp_path, source):
    out = tmp_path / "out.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_wait_threads", _interrupting(run._wait_threads, after=4))
        pyramid(source, out, code=130)
    path = tmp_path / "out.zarr.journal"
    text = path.read_text()
    path.write_text(text + "0 1")
    pyramid(source, out, "--resume")
    pyramid(source, tmp_path / "again.zarr")
    assert (
        zarr.open(str(out), mode="r")["3"][...] == zarr.open(str(tmp_path / "again.zarr"))["3"][...]
    ).all()


def test_another_job_or_a_changed_input_is_not_resumed(tmp_path, source, monkeypatch):
    out = tmp_path / "out.zarr"
    with monkeypatch.context() as patch:
        patch.setattr(run, "_wait_threads", _interrupting(run._wait_threads, after=4))
        pyramid(source, out, code=130)
    assert "another job" in pyramid(source, out, "--resume", "--op", "max", code=1)
    os.utime(source, (1, 1))
    assert "another job, or the input has changed" in pyramid(source, out, "--resume", code=1)
    pyramid(source, out, "--force")
    assert "no journal" in pyramid(source, out, "--resume", code=1)


def test_a_journal_is_not_written_before_the_tile(tmp_path, source, monkeypatch):
    order = []
    write, add = Level.write, Journal.add
    monkeypatch.setattr(
        Level, "write", lambda self, *a: (write(self, *a), order.append("write"))[0]
    )
    monkeypatch.setattr(Journal, "add", lambda self, *a: (order.append("add"), add(self, *a))[1])
    out = tmp_path / "out.npy"
    lunette("pool", "max", "--kernel", "2,2,2", "--chunks", "8,8,8", source, out, "--threads", 1)
    assert order.index("write") < order.index("add")
    assert all(order[:i].count("write") >= order[:i].count("add") for i in range(len(order) + 1))


def interrupted(source, out, monkeypatch, *options):
    """A run that Ctrl-C stopped after some tiles."""
    with monkeypatch.context() as patch:
        patch.setattr(run, "_wait_threads", _interrupting(run._wait_threads, after=4))
        pyramid(source, out, *options, code=130)


def test_chunks_that_a_killed_run_had_begun_are_taken_away(tmp_path, source, monkeypatch):
    out = tmp_path / "out.zarr"
    interrupted(source, out, monkeypatch)
    torn = work_folder(out) / "zarr" / "1" / "c" / "0" / "0" / "0.1234.partial"
    torn.parent.mkdir(parents=True, exist_ok=True)
    torn.write_bytes(b"half")
    pyramid(source, out, "--resume")
    assert not torn.exists()


def test_a_resumed_run_stays_within_the_memory_of_its_own(tmp_path, monkeypatch):
    source, out = tmp_path / "in.npy", tmp_path / "out.zarr"
    np.lib.format.open_memmap(source, "w+", np.uint8, (128, 256, 256))
    begin = ["pyramid", source, out, "--levels", 2, "--chunks", "16,16,16", "--threads", 1]
    with monkeypatch.context() as patch:
        patch.setattr(run, "_wait_threads", _interrupting(run._wait_threads, after=1))
        lunette(*begin, code=130)
    resident = work.resident_memory() + work.SLACK
    monkeypatch.setattr(work, "resident_memory", lambda: resident - work.SLACK)
    # Level by level, a tile would need 8.5 MB; the run that was begun does two levels at once.
    message = lunette(*begin, "--resume", "--memory", str(resident + 8_700_000), code=1)
    assert "a tile of (16, 16, 16) needs 9.0 MB, and 8.7 MB of --memory are left" in message
    lunette(*begin, "--resume")


def test_a_corrupt_chunk_of_a_level_is_named(tmp_path, source, monkeypatch):
    out = tmp_path / "out.zarr"
    interrupted(source, out, monkeypatch, "--memory", "100GB", "--threads", 1)
    plan = json.loads((tmp_path / "out.zarr.journal").read_text().split("\n")[0])["plan"]
    assert len(plan) == 2  # the second pass reads level 2, which the first one writes
    level = work_folder(out) / "zarr" / "2"
    chunk = level / "c" / "0" / "1" / "1"
    original = run.run_tile

    def spoil(job, number, tile):
        if number == 1:
            chunk.write_bytes(b"not a chunk")
        return original(job, number, tile)

    with monkeypatch.context() as patch:
        patch.setattr(run, "run_tile", spoil)
        message = pyramid(source, out, "--resume", code=1)
    assert f"cannot read chunk (0, 1, 1) of {level}" in message


def test_a_disk_that_cannot_take_the_journal(tmp_path, source, monkeypatch):
    out, added = tmp_path / "out.zarr", []
    add = Journal.add

    def full(self, *line):
        if len(added) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        added.append(line)
        add(self, *line)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "add", full)
        message = pyramid(source, out, code=1)
    assert "No space left on device" in message
    assert "--resume" in message
    pyramid(source, out, "--resume")
