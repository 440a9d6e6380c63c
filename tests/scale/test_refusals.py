"""What the commands refuse, by name, before any work."""

import json
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr

from lunette.scale import work
from tests.scale.commands import lunette, volume


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.npy"
    np.save(path, volume((12, 10)))
    return path


def refused(folder, *arguments, code=1):
    """The message; nothing was written."""
    before = sorted(folder.rglob("*"))
    output = lunette(*arguments, code=code)
    assert sorted(folder.rglob("*")) == before
    return " ".join(output.replace("│", " ").split())


POOL = ["pool", "max", "--kernel", "2,2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pool", "max", "--kernel", "13,1"], "axis 0 of shape (12, 10): a window of 13 positions"),
        (
            ["pool", "max", "--kernel", "0,2"],
            "kernel=0 on axis 0: expected an integer of at least 1",
        ),
        (["pool", "max", "--kernel", "2,2,2"], "--kernel names 3 axes"),
        ([*POOL, "--stride", "0"], "stride=0"),
        ([*POOL, "--padding", "-1"], "padding=-1"),
        (["pool", "median", "--kernel", "2,2"], "operator 'median': expected one of mean, max"),
        (["pool", "stride", "--kernel", "2,2", "--padding", "1"], "stride takes the first cell"),
        ([*POOL, "--chunks", "4"], "--chunks (4,): expected 2 sizes"),
        ([*POOL, "--chunks", "0,4"], "--chunks (0, 4): expected sizes of at least 1"),
        ([*POOL, "--chunks", "4,4", "--shards", "6,8"], "--shards (6, 8): expected multiples"),
        ([*POOL, "--compression", "rar"], "--codec 'rar'"),
        ([*POOL, "--memory", "1MB"], "use smaller --chunks or more --memory"),
        ([*POOL, "--threads", "0"], "threads=0"),
        ([*POOL, "--axes", "yy"], "--axes 'yy'"),
        ([*POOL, "--array", "a"], "only a Zarr group has arrays"),
        (["pyramid", "--levels", "0"], "levels=0: expected an integer of at least 1"),
        (["pyramid", "--levels", "-3"], "levels=-3"),
        (["pyramid", "--levels", "5"], "level 5 would be empty"),
        (["pyramid", "--levels", "1", "--op", "sum"], "operator 'sum'"),
    ],
)
def test_arguments(tmp_path, source, arguments, message):
    assert message in refused(tmp_path, *arguments, source, tmp_path / "out.zarr")


@pytest.mark.parametrize(
    ("option", "value"),
    [("--kernel", "2;2"), ("--kernel", "two"), ("--memory", "much"), ("--memory", "0GB")],
)
def test_words_that_are_no_numbers(tmp_path, source, option, value):
    arguments = ["pool", "max", source, tmp_path / "out.npy", "--kernel", "2,2", option, value]
    assert repr(value) in refused(tmp_path, *arguments, code=2)


def test_chunks_larger_than_memory_allows(tmp_path):
    source = tmp_path / "in.zarr"
    zarr.create_array(str(source), shape=(4096,) * 3, chunks=(64,) * 3, dtype="u1")
    arguments = ["--levels", 1, "--chunks", "2048,2048,2048", "--memory", "2GB"]
    message = refused(tmp_path, "pyramid", source, tmp_path / "out.zarr", *arguments)
    assert "a tile of chunks (2048, 2048, 2048) needs" in message


def test_an_output_inside_the_input_or_around_it(tmp_path):
    source = tmp_path / "in.zarr"
    zarr.create_array(str(source), data=volume((4, 4)), chunks=(2, 2))
    for out in (source / "out.zarr", source, tmp_path / "x" / ".." / "in.zarr" / "b.zarr"):
        (tmp_path / "x").mkdir(exist_ok=True)
        assert "lies inside IN" in refused(tmp_path, *POOL, source, out, "--force")
    inner = tmp_path / "outer.zarr" / "in.npy"
    inner.parent.mkdir()
    np.save(inner, volume((4, 4)))
    assert "lies inside OUT" in refused(tmp_path, *POOL, inner, inner.parent, "--force")
    link = tmp_path / "link.zarr"
    link.symlink_to(source, target_is_directory=True)
    assert "lies inside IN" in refused(tmp_path, *POOL, source, link / "out.zarr")


def test_a_numbered_level_in_the_place_of_the_input(tmp_path):
    source = tmp_path / "a.1.npy"
    np.save(source, volume((4, 4)))
    arguments = ["pyramid", source, tmp_path / "a.npy", "--levels", 1, "--force"]
    assert "lies inside IN" in refused(tmp_path, *arguments)


def test_a_png_larger_than_memory_allows(tmp_path, monkeypatch):
    monkeypatch.setattr(
        work, "resident_memory", lambda: 100_000_000
    )  # other tests leave theirs behind
    source = tmp_path / "in.npy"
    np.lib.format.open_memmap(source, "w+", np.uint8, (40000, 20000))
    arguments = ["--chunks", "256,256", "--memory", "500MB"]
    assert "a PNG needs 800.0 MB" in refused(
        tmp_path, "pool", "max", "--kernel", "2,1", source, tmp_path / "out.png", *arguments
    )


def test_an_existing_output_is_kept_unless_forced(tmp_path, source):
    for name in ("out.npy", "out.zarr"):
        out = tmp_path / name
        lunette(*POOL, source, out)
        assert "exists; write over it with --force" in refused(tmp_path, *POOL, source, out)
        assert "expected one of them" in refused(
            tmp_path, *POOL, source, out, "--force", "--resume"
        )
        lunette("pool", "min", "--kernel", "3,3", source, out, "--force")
    assert np.load(tmp_path / "out.npy").shape == (4, 3)


@pytest.mark.parametrize("dtype", ["c8", "M8[s]", "U3", "bool"])
def test_dtypes(tmp_path, dtype):
    source = tmp_path / "in.npy"
    np.save(source, np.zeros((4, 4), dtype))
    arguments = ["pool", "mean", "--kernel", "2,2", source, tmp_path / "out.npy"]
    assert f"dtype {np.dtype(dtype)}" in refused(tmp_path, *arguments)


def test_objects_are_not_unpickled(tmp_path):
    source = tmp_path / "in.npy"
    np.save(source, np.array([[object()]]), allow_pickle=True)
    assert "cannot be read as npy" in refused(tmp_path, *POOL, source, tmp_path / "out.npy")


def test_unreadable_files(tmp_path, source):
    assert "no such file" in refused(tmp_path, *POOL, tmp_path / "no.npy", tmp_path / "out.npy")
    for name in ("bad.npy", "bad.tif", "bad.png"):
        (tmp_path / name).write_bytes(b"rubbish")
        message = refused(tmp_path, *POOL, tmp_path / name, tmp_path / "out.npy")
        assert "cannot be read as" in message
    cut = tmp_path / "cut.npy"
    cut.write_bytes(source.read_bytes()[:-20])
    assert "cannot be read as npy" in refused(tmp_path, *POOL, cut, tmp_path / "out.npy")
    (tmp_path / "text.txt").write_text("")
    assert "expected a path that ends in" in refused(
        tmp_path, *POOL, tmp_path / "text.txt", tmp_path / "out.npy"
    )
    assert "expected a path that ends in" in refused(tmp_path, *POOL, source, tmp_path / "out")
    assert "no directory" in refused(tmp_path, *POOL, source, tmp_path / "no" / "out.npy")


def test_a_tiff_that_was_cut_off(tmp_path):
    whole, cut = tmp_path / "whole.tif", tmp_path / "cut.tif"
    tifffile.imwrite(whole, volume((20, 16, 16)), photometric="minisblack", compression="zlib")
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    message = refused(tmp_path, *POOL, cut, tmp_path / "out.npy")
    assert "cannot be read as tif" in message
    assert "invalid page offset" in message


def test_a_tiff_with_channels_and_samples(tmp_path):
    source = tmp_path / "in.ome.tif"
    tifffile.imwrite(
        source, volume((2, 3, 8, 8, 3)), photometric="rgb", metadata={"axes": "ZCYXS"}, ome=True
    )
    assert "--axes 'zcyxc'" in refused(tmp_path, *POOL, source, tmp_path / "out.npy")


def test_an_output_that_cannot_be_made(tmp_path, source):
    for name in ("out.npy", "out.zarr", "out.tif", "out.png"):
        out = Path("/proc") / name  # a file system that takes no files
        assert f"cannot make {out}" in refused(tmp_path, *POOL, source, out)


@pytest.mark.parametrize("name", ["../secret.zarr", "/etc", "a/../../b", "..\\b", "file:x"])
def test_names_that_lead_out_of_a_store(tmp_path, name):
    source = tmp_path / "in.zarr"
    group = zarr.create_group(str(source), zarr_format=3)
    group.create_array("0", data=volume((4, 4)), chunks=(2, 2))
    out = tmp_path / "out.zarr"
    message = "may not lead out of the store"
    assert message in refused(tmp_path, *POOL, source, out, "--array", name)
    group.attrs["ome"] = {
        "version": "0.5",
        "multiscales": [{"axes": [], "datasets": [{"path": name}]}],
    }
    assert message in refused(tmp_path, *POOL, source, out)


def test_groups(tmp_path):
    source = tmp_path / "in.zarr"
    group = zarr.create_group(str(source), zarr_format=3)
    group.create_group("inner").create_array("0", data=volume((4, 4)), chunks=(2, 2))
    out = tmp_path / "out.zarr"
    assert "name one of its arrays by --array" in refused(tmp_path, *POOL, source, out)
    assert "is a group, not an array" in refused(tmp_path, *POOL, source, out, "--array", "inner")
    assert "cannot be read as zarr" in refused(tmp_path, *POOL, source, out, "--array", "none")
    lunette(*POOL, source, out, "--array", "inner/0")


def test_formats_that_cannot_hold_the_array(tmp_path, source):
    wide = tmp_path / "wide.npy"
    np.save(wide, volume((4, 4, 6)))
    assert "a PNG holds axes yx or yxc" in refused(tmp_path, *POOL, wide, tmp_path / "out.png")
    np.save(wide, volume((4, 4), "f4"))
    assert "holds bool, uint8, uint16" in refused(tmp_path, *POOL, wide, tmp_path / "out.png")
    np.save(wide, volume((8, 8), "i8"))
    arguments = ["pyramid", wide, tmp_path / "out.tif", "--levels", 1]
    assert "OME-TIFF does not hold dtype int64" in refused(tmp_path, *arguments)
    np.save(wide, volume((64,)))
    arguments = ["pyramid", wide, tmp_path / "out.zarr", "--levels", 1]
    assert "OME-NGFF wants at least axes y and x" in refused(tmp_path, *arguments)


def test_help_names_every_option():
    text = lunette("pool", "--help") + lunette("pyramid", "--help")
    for option in ("--kernel", "--levels", "--memory", "--resume", "--force", "--scheduler"):
        assert option in text
    assert json.dumps("IN")[1:-1] in text
