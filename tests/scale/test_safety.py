"""What is not ours is never removed, one process at a time has an output, and a full disk loses nothing."""

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


# -- only what bears our mark is removed --


def own(path):
    """A folder of the user's."""
    path.mkdir(parents=True)
    (path / "thesis.txt").write_text("years of work")
    return path


@pytest.mark.parametrize("option", [[], ["--force"], ["--resume"]])
@pytest.mark.parametrize("name", ["out.zarr", "out.npy", "out.png", "out.tif"])
@pytest.mark.parametrize("suffix", ["", ".partial"])
def test_a_folder_that_is_not_ours(tmp_path, source, name, option, suffix):
    own(tmp_path / (name + suffix))
    refused(tmp_path, *POOL, source, tmp_path / name, *option)


@pytest.mark.parametrize("name", ["out.zarr", "out.npy"])
@pytest.mark.parametrize("suffix", ["", ".partial", ".journal", ".lock"])
def test_names_that_are_links_or_no_plain_files(tmp_path, source, name, suffix):
    elsewhere = own(tmp_path / "elsewhere")
    taken = tmp_path / (name + suffix)
    makers = [
        lambda: taken.symlink_to(elsewhere, target_is_directory=True),
        lambda: taken.symlink_to(tmp_path / "nowhere"),
        lambda: taken.symlink_to(taken),
        lambda: taken.symlink_to(source),
        lambda: os.mkfifo(taken),
        lambda: taken.symlink_to("/dev/null"),
    ]
    for make in makers:
        make()
        for option in ([], ["--force"], ["--resume"]):
            refused_link(tmp_path, taken, *POOL, source, tmp_path / name, *option)
        taken.unlink()


def refused_link(folder, taken, *arguments):
    """The same for what has no bytes of its own."""
    before = {p: os.lstat(p)[:3] for p in folder.rglob("*")}
    output = lunette(*arguments, code=1)
    assert {p: os.lstat(p)[:3] for p in folder.rglob("*")} == before
    assert output.startswith("error: ")
    assert output.count("\n") == 1


@pytest.mark.parametrize("name", ["out.zarr", "out.npy"])
@pytest.mark.parametrize("suffix", [".journal", ".lock", ".partial"])
def test_files_of_the_user_by_our_names(tmp_path, source, name, suffix):
    (tmp_path / (name + suffix)).write_text("my own words\n")
    for option in ([], ["--force"], ["--resume"]):
        refused(tmp_path, *POOL, source, tmp_path / name, *option)


def test_a_zarr_array_of_the_users(tmp_path, source):
    """Also one that has the attributes of ours, or its files."""
    ours, out = tmp_path / "ours.zarr", tmp_path / "out.zarr"
    lunette(*POOL, source, ours)
    attributes = zarr.open_array(str(ours)).attrs.asdict()
    zarr.create_array(str(out), data=volume((8, 8)), chunks=(4, 4), attributes=attributes)
    assert "was not made by lunette" in refused(tmp_path, *POOL, source, out, "--force")
    (out / marks.MARK).write_text("not the text")
    assert "was not made by lunette" in refused(tmp_path, *POOL, source, out, "--force")


@pytest.mark.parametrize(
    "stranger",
    [
        "notes.txt",
        "1/notes.txt",
        "1/c/0/notes",
        "labels/0",
        "1/c/0/x.partial",
        "7/zarr.json",
        "5",
        ".hidden",
    ],
)
def test_an_output_of_ours_that_holds_something_of_the_users(tmp_path, source, stranger):
    out = tmp_path / "out.zarr"
    begin = ["pyramid", source, out, "--levels", 1, "--chunks", "4,4"]
    lunette(*begin)
    (out / stranger).parent.mkdir(parents=True, exist_ok=True)
    (out / stranger).write_text("my own")
    refused(tmp_path, *begin, "--force")
    (out / stranger).unlink()
    for parent in ("labels", "7"):
        if (out / parent).exists():
            (out / parent).rmdir()
    lunette(*begin, "--force")


def test_a_stranger_that_comes_while_the_work_goes_on(tmp_path, source, monkeypatch):
    out = tmp_path / "out.zarr"
    lunette(*POOL, source, out)
    from lunette.scale import work

    make = work.outputs.make

    def meanwhile(*arguments):
        make(*arguments)
        (out / "notes.txt").write_text("my own")

    with monkeypatch.context() as patch:
        patch.setattr(work.outputs, "make", meanwhile)
        message = lunette(*POOL, source, out, "--force", code=1)
    assert "notes.txt" in message
    assert (out / "notes.txt").read_text() == "my own"
    (out / "notes.txt").rename(tmp_path / "notes.txt")
    lunette(*POOL, source, out, "--resume")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npy", "notes.txt", "out.zarr"]


@pytest.mark.parametrize("name", ["out.npy", "out.zarr"])
def test_an_output_that_comes_while_the_work_goes_on(tmp_path, source, monkeypatch, name):
    out = tmp_path / name
    from lunette.scale import work

    make = work.outputs.make

    def meanwhile(*arguments):
        make(*arguments)
        own(out) if name == "out.zarr" else out.write_text("years of work")

    with monkeypatch.context() as patch:
        patch.setattr(work.outputs, "make", meanwhile)
        message = lunette(*POOL, source, out, code=1)
    assert "did not when the work was begun" in message
    kept = out / "thesis.txt" if name == "out.zarr" else out
    assert kept.read_text() == "years of work"
    assert "move it away" in lunette(*POOL, source, out, "--resume", code=1)
    out.rename(tmp_path / "mine")
    lunette(*POOL, source, out, "--resume")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npy", "mine", name]


def test_what_is_replaced_is_there_until_the_new_output_is_whole(tmp_path, source, monkeypatch):
    from lunette.scale import run

    for name in ("out.zarr", "out.npy"):
        out = tmp_path / name
        lunette(*POOL, source, out)
        before = contents(out) if out.is_dir() else out.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(run, "run_tile", broken)
            lunette("pool", "min", *POOL[2:], source, out, "--force", code=1)
        assert (contents(out) if out.is_dir() else out.read_bytes()) == before
        lunette("pool", "min", *POOL[2:], source, out, "--resume")
        assert (contents(out) if out.is_dir() else out.read_bytes()) != before


def broken(*_):
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    "out", [".", "..", "/", "", "a/..", "in.npy", "./in.npy", "x/../in.npy", "/dev/null"]
)
def test_paths_that_name_no_output(tmp_path, source, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    refused(tmp_path, *POOL, "in.npy", out, "--force")


def test_slashes_and_dots_name_the_same_output(tmp_path, source, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    lunette(*POOL, "in.npy", "out.zarr/")
    for out in ("./out.zarr", "x/../out.zarr", f"{tmp_path}//out.zarr/.", "out.zarr//"):
        assert "exists" in refused(tmp_path, *POOL, "in.npy", out)
        lunette(*POOL, "in.npy", out, "--force")
    assert sorted(os.listdir(tmp_path)) == ["in.npy", "out.zarr", "x"]


def test_the_input_by_another_name(tmp_path, source):
    hard = tmp_path / "hard.npy"
    os.link(source, hard)
    assert "lies inside IN" in refused(tmp_path, *POOL, source, hard, "--force")
    store = tmp_path / "in.zarr"
    zarr.create_array(str(store), data=volume((8, 8)), chunks=(4, 4))
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    for out in (tmp_path / "link" / "in.zarr", tmp_path / "link" / "in.zarr" / "c" / "out.zarr"):
        assert "lies inside IN" in refused_output(*POOL, store, out, "--force")
    inner = tmp_path / "out.npy.partial" / "in.npy"
    inner.parent.mkdir()
    np.save(inner, volume((8, 8)))
    assert "lies inside OUT" in refused_output(*POOL, inner, tmp_path / "out.npy", "--force")


def refused_output(*arguments):
    return lunette(*arguments, code=1)


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
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
from lunette.scale import run
from lunette.cli import app
original = run.run_tile
def slowly(*a):
    print("tile", flush=True)
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
