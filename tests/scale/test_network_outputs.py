"""Outputs on the network: sent to where they stay, metadata last, and gone on with after a failure."""

import fsspec
import numpy as np
import pytest
import zarr

from lunette.scale import containers
from tests.scale.commands import halved, lunette, volume

URL = "memory://bucket/out.zarr"
BEGIN = ("--levels", 2, "--op", "mean", "--threads", 1)


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """The store that the URL names, empty; the journal lies in a folder of its own."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(containers.time, "sleep", lambda seconds: None)
    system = fsspec.filesystem("memory")
    system.pipe_file("/bucket/other.txt", b"my own")
    yield system
    system.rm("/bucket", recursive=True)


def source(tmp_path, x, **options):
    path = tmp_path / "in.zarr"
    zarr.create_array(str(path), data=x, **{"chunks": (8,) * x.ndim, **options})
    return path


def check(x, url=URL):
    group = zarr.open_group(url, mode="r")
    for level, expected in zip("012", (x, halved(x), halved(halved(x))), strict=True):
        np.testing.assert_array_equal(group[level][...], expected)


@pytest.mark.parametrize(
    "stored", [{"zarr_format": 2}, {}, {"chunks": (4, 4), "shards": (8, 8)}], ids=["2", "3", "s"]
)
def test_a_pyramid_is_sent(tmp_path, bucket, stored):
    x = volume((20, 26), "u2")
    x[:8, :8] = 0  # a chunk that is not stored
    begin = ("pyramid", source(tmp_path, x, **stored), URL, *BEGIN)
    lunette(*begin)
    check(x)
    assert "exists" in lunette(*begin, code=1)
    lunette(*begin, "--force", "--codec", "blosc:3")
    check(x)
    assert not list((tmp_path / "here").iterdir())
    assert bucket.cat("/bucket/other.txt") == b"my own"


def test_an_array_has_its_metadata_last(tmp_path, bucket, monkeypatch):
    x, order, original = volume((20, 26)), [], containers.Remote.write

    def note(self, key, data):
        order.append(key)
        original(self, key, data)

    monkeypatch.setattr(containers.Remote, "write", note)
    lunette("pool", "max", "--kernel", "2,2", source(tmp_path, x), URL)
    assert order[0] == ".lunette"
    assert order[-2:] == ["zarr.json", ".lunette"]
    expected = x.reshape(10, 2, 13, 2).max((1, 3))
    np.testing.assert_array_equal(zarr.open_array(URL, mode="r")[...], expected)


@pytest.mark.parametrize("moment", [1, 2, 4, 9, 15, 17])
def test_a_store_that_fails_half_way(tmp_path, bucket, monkeypatch, moment):
    x, sent, original = volume((20, 26)), [], containers.Remote.write

    def fail(self, key, data):
        sent.append(key)
        if len(sent) >= moment:
            raise containers.ScaleError(f"{key!r} cannot be written: the network is gone")
        original(self, key, data)

    begin = ("pyramid", source(tmp_path, x), URL, *BEGIN)
    with monkeypatch.context() as patch:
        patch.setattr(containers.Remote, "write", fail)
        assert "the network is gone" in lunette(*begin, code=1)
    assert not bucket.exists("/bucket/out.zarr/zarr.json") or moment == 17
    if moment > 4:
        assert "--resume" in lunette(*begin, code=1)
        monkeypatch.chdir(tmp_path)  # without its journal nobody can tell what is done
        assert "being written" in lunette(*begin, code=1)
        monkeypatch.chdir(tmp_path / "here")
        lunette(*begin, "--resume")
    else:
        lunette(*begin, "--force")
    check(x)
    assert not list((tmp_path / "here").iterdir())


def test_what_is_refused(tmp_path, bucket):
    path = source(tmp_path, volume((20, 26)))
    begin = ("pyramid", path, URL, *BEGIN)
    bucket.pipe_file("/bucket/out.zarr/notes.txt", b"my own")
    assert "was not made by lunette" in lunette(*begin, "--force", code=1)
    assert bucket.find("/bucket/out.zarr") == ["/bucket/out.zarr/notes.txt"]
    bucket.rm("/bucket/out.zarr", recursive=True)
    lunette(*begin)
    for arguments, words in [
        ((path, "memory://bucket/out.tif"), "Zarr alone"),
        ((path, "what://bucket/out.zarr"), "not known"),
        ((URL, URL, "--force"), "lie in each other"),
        ((f"{URL}/0", URL, "--force"), "lie in each other"),
        ((path, "memory://bucket/b.zarr", "--resume"), "no journal"),
    ]:
        assert words in lunette("pyramid", *arguments, code=1)
    assert not bucket.exists("/bucket/b.zarr")
    assert not list((tmp_path / "here").iterdir())
