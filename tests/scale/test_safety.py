"""A broken journal, two processes on one output, signals and a full disk: one line, and nothing is lost."""

import fcntl
import json
import os
import random
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest
import zarr

from lunette.scale import marks
from tests.scale.commands import lunette, volume
from tests.scale.test_kills import contents

POOL = ["pool", "max", "--kernel", "2,2", "--chunks", "4,4"]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.npy"
    np.save(path, volume((32, 32)))
    return path


def refused(folder, *arguments):
    """The message; not a byte has changed."""
    before = contents(folder)
    output = lunette(*arguments, code=1)
    assert contents(folder) == before
    assert output.count("\n") == 1
    return output


def broken(*_):
    raise OSError("the disk is gone")


# -- the journal --


def begun(source, out, monkeypatch):
    """A run that stopped after its setup."""
    from lunette.scale import run

    with monkeypatch.context() as patch:
        patch.setattr(run, "run_tile", broken)
        lunette(*POOL, source, out, code=1)
    return out.with_name(out.name + ".journal")


def test_a_broken_journal(tmp_path, source, monkeypatch):
    out = tmp_path / "out.zarr"
    journal = begun(source, out, monkeypatch)
    good = journal.read_bytes()
    first = good.split(b"\n")[0]
    changed = json.loads(first) | {"plan": []}
    for bad in (
        *(b"rubbish\n", b"{}\n", b"[]\n", b"\x00" * 100, b"\xff\xfe\n", b"{" * 10_000 + b"\n"),
        *(good + b"0 1 2\n", good + b"-1 2\n", good + b"x y\n", good + b"\xff\n", good + b"\n"),
        *(good + b"0 " + b"9" * 5000 + b"\n", json.dumps(changed).encode() + b"\n"),
        *(first[:-5] + b"\n", first.replace(b'"token"', b'"tokem"') + b"\n"),
    ):
        journal.write_bytes(bad)
        refused(tmp_path, *POOL, source, out, "--resume")
        assert "error: " in refused(tmp_path, *POOL, source, out)
    journal.write_bytes(good)
    lunette(*POOL, source, out, "--resume")


def test_a_broken_journal_and_force(tmp_path, source, monkeypatch):
    out = tmp_path / "out.zarr"
    journal = begun(source, out, monkeypatch)
    journal.write_bytes(journal.read_bytes() + b"0 x\n")
    lunette(*POOL, source, out, "--force")
    out.rename(tmp_path / "first.zarr")
    journal = begun(source, out, monkeypatch)
    journal.write_text("rubbish\n")  # beside a folder of ours: set aside rather than removed
    lunette(*POOL, source, out, "--force")
    assert (tmp_path / "out.zarr.journal.broken").read_text() == "rubbish\n"
    assert contents(out) == contents(tmp_path / "first.zarr")


@pytest.mark.parametrize("cut", [0, 1, 10, 22, 23, 60, -1])
def test_killed_while_the_journal_was_begun(tmp_path, source, monkeypatch, cut):
    out = tmp_path / "out.npy"
    journal = begun(source, out, monkeypatch)
    header = journal.read_bytes().split(b"\n")[0] + b"\n"
    lunette(*POOL, source, out, "--force")
    expected = out.read_bytes()
    out.unlink()
    journal.write_bytes(header[:cut])
    assert "was begun" in refused(tmp_path, *POOL, source, out)
    lunette(*POOL, source, out, "--resume")
    assert out.read_bytes() == expected


def test_an_output_of_zeros_is_not_taken_for_a_finished_one(tmp_path, source, monkeypatch):
    """Killed between the empty levels and the first tile, in the old order and in this."""
    out = tmp_path / "out.zarr"
    begun(source, out, monkeypatch)
    assert not out.exists()
    lunette(*POOL, source, out, "--resume")
    x = np.load(source)
    expected = x.reshape(16, 2, 16, 2).max((1, 3))
    np.testing.assert_array_equal(zarr.open_array(str(out), mode="r")[...], expected)


def test_a_workspace_that_is_gone_or_of_another_run(tmp_path, source, monkeypatch):
    out = tmp_path / "out.npy"
    journal = begun(source, out, monkeypatch)
    folder = tmp_path / "out.npy.partial"
    folder.rename(tmp_path / "moved")
    assert "is gone" in refused(tmp_path, *POOL, source, out, "--resume")
    folder.mkdir()
    (folder / marks.MARK).write_text(marks.TEXT + "0123456789ab\n")
    assert "not the folder of this journal" in refused(tmp_path, *POOL, source, out, "--resume")
    marks.discard(folder, "partial")
    (tmp_path / "moved").rename(folder)
    journal.unlink()
    assert "there is no journal" in refused(tmp_path, *POOL, source, out)
    lunette(*POOL, source, out, "--force")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npy", "out.npy"]


# -- one process at a time --

RACE = """
import sys, time
from lunette.cli import app
import lunette.scale.work, lunette.scale.bounded_zarr
print("ready", flush=True)
sys.stdin.readline()
app(sys.argv[1:])
"""


def race(commands):
    """Run the commands at the same moment; (exit status, errors) of each."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, *map(str, c)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for c in commands
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [(p, p.communicate(timeout=300)[1], p.returncode) for p in processes]


def check_race(folder, source, name, rng):
    """Two or three at once, in any ways: who reports success has the output that it asked for."""
    out = folder / name
    operators = rng.choices(["max", "min", "stride"], k=rng.choice([2, 2, 3]))
    commands = [["pool", o, *POOL[2:], source, out, "--force", "--quiet"] for o in operators]
    answers = race(commands)
    won = [o for o, (_, _, code) in zip(operators, answers, strict=True) if code == 0]
    for _, errors, code in answers:
        assert code in (0, 1), errors
        if code:
            assert "is being written by process" in errors, errors
            assert str(out) + ".lock" in errors
            assert errors.count("\n") == 1
    assert won
    x = np.load(source)
    blocks = x.reshape(16, 2, 16, 2)
    results = {"max": blocks.max((1, 3)), "min": blocks.min((1, 3)), "stride": blocks[:, 0, :, 0]}
    found = np.load(out) if name.endswith("npy") else zarr.open_array(str(out), mode="r")[...]
    assert any(np.array_equal(found, results[o]) for o in won)
    assert sorted(p.name for p in folder.iterdir()) == sorted({source.name, *made_so_far(folder)})
    return len(operators) - len(won)


def made_so_far(folder):
    return {p.name for p in folder.glob("out.*") if p.suffix in (".npy", ".zarr")}


def test_processes_on_one_output(tmp_path, source):
    check_race(tmp_path, source, "out.zarr", random.Random(0))


@pytest.mark.full
def test_processes_on_one_output_many_times(tmp_path, source):
    rng = random.Random(int(os.environ.get("LUNETTE_SEED", "0")))
    rounds = int(os.environ.get("LUNETTE_RACES", "20"))
    lost = [
        check_race(tmp_path, source, rng.choice(["out.zarr", "out.npy"]), rng)
        for _ in range(rounds)
    ]
    assert any(lost)


def test_a_lock_that_is_held(tmp_path, source):
    """Whatever was asked for; also of a file that a pyramid would number."""
    out = tmp_path / "out.1.npy"
    lock = tmp_path / "out.1.npy.lock"
    lock.write_text(f"lunette lock: process {os.getpid()} on here\n")
    pyramid = ["pyramid", source, tmp_path / "out.npy", "--levels", 1]
    with open(lock) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for arguments in ([*POOL, source, out], pyramid):
            for option in ([], ["--force"], ["--resume"]):
                message = refused(tmp_path, *arguments, *option)
                assert f"process {os.getpid()} on here" in message
                assert str(lock) in message
    lunette(*POOL, source, out)  # the file that is left locks nothing
    assert not lock.exists()


def test_a_lock_whose_holder_died(tmp_path, source):
    out = tmp_path / "out.npy"
    out.with_name("out.npy.lock").write_text("lunette lock: process 1 on elsewhere\n")
    lunette(*POOL, source, out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npy", "out.npy"]


# -- Ctrl-C, and a full disk --

SLOW = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
from lunette.scale import run
from lunette.cli import app
original = run.run_tile
def slowly(*a):
    os.write(1, b"tile\\n")  # in one piece, whichever threads are at it
    time.sleep(0.05)
    return original(*a)
run.run_tile = slowly
app(sys.argv[1:])
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_one_line(tmp_path, number, code):
    source, out = tmp_path / "in.zarr", tmp_path / "out.zarr"
    zarr.create_array(str(source), data=volume((32, 32)), chunks=(4, 4))
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *map(str, [*POOL, source, out])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "tile\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == code
    assert errors == "stopped; go on with --resume\n"
    assert not out.with_name("out.zarr.lock").exists()
    lunette(*POOL, source, out, "--resume")
    x = volume((32, 32)).reshape(16, 2, 16, 2).max((1, 3))
    np.testing.assert_array_equal(zarr.open_array(str(out), mode="r")[...], x)


@pytest.mark.parametrize("name", ["out.zarr", "out.npy", "out.png", "out.tif"])
def test_a_disk_that_takes_only_small_files(tmp_path, name):
    """RLIMIT_FSIZE stands for a full disk: a write beyond it fails half-way."""
    source, out = tmp_path / "in.npy", tmp_path / name
    x = np.random.default_rng(0).integers(0, 256, (512, 512)).astype("u1")
    np.save(source, x)
    arguments = ["pool", "max", "--kernel", "2,2", "--chunks", "64,64", source, out]
    expected = x.reshape(256, 2, 256, 2).max((1, 3))
    limits = [100, 400, 3000] if name == "out.zarr" else [100, 400, 66000]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = contents(tmp_path)
    for limit in limits:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            option = ["--resume"] * out.with_name(out.name + ".journal").exists()
            message = lunette(*arguments, *option, code=1 if limit < 66000 else None)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert message.count("\n") == 1
        assert not out.exists() or limit == 66000
        assert contents(tmp_path).items() >= before.items()
    if not out.exists():
        lunette(*arguments, *["--resume"] * out.with_name(out.name + ".journal").exists())
    from tests.scale.test_formats import read

    np.testing.assert_array_equal(read(out), expected)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npy", name]
