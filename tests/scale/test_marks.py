"""What is not ours is never removed, and an output is replaced when the new one is whole."""

import os

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
