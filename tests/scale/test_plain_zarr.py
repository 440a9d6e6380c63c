"""Plain Zarr arrays by our own reader and writer, against the Zarr library on both sides."""

import json
import os
import subprocess
import sys

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ZstdCodec

from lunette.scale.zarr_arrays import open_array, writer_of
from tests.scale.commands import lunette, volume

DTYPES = ("bool", "u1", "i1", "u2", "i4", "u8", "f2", "f4", "f8")

CODECS_3 = {
    "none": None,
    "zstd": ZstdCodec(level=3, checksum=True),
    "gzip": GzipCodec(level=1),
    "blosc": BloscCodec(cname="lz4", clevel=4, shuffle="shuffle"),
    "bits": BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle"),
}
CODECS_2 = {
    "none": None,
    "zstd": numcodecs.Zstd(3),
    "gzip": numcodecs.GZip(1),
    "blosc": numcodecs.Blosc("lz4", 4, numcodecs.Blosc.SHUFFLE),
    "bits": numcodecs.Blosc("zstd", 1, numcodecs.Blosc.AUTOSHUFFLE),
}


def metadata_of(path, version):
    return json.loads((path / ("zarr.json" if version == 3 else ".zarray")).read_text())


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("codec", CODECS_3)
def test_every_dtype_both_ways(tmp_path, codec, version):
    for number, dtype in enumerate(DTYPES):
        x = volume((7, 9), dtype, seed=number)
        x[:4, 4:8] = 0
        path = tmp_path / f"{dtype}.zarr"
        codecs = CODECS_3 if version == 3 else CODECS_2
        options = {"chunks": (4, 4), "compressors": codecs[codec], "zarr_format": version}
        theirs = zarr.create_array(str(path), shape=x.shape, dtype=x.dtype, fill_value=0, **options)
        theirs[...] = x
        place = tuple(slice(0, n) for n in x.shape)
        ours = open_array(str(path), "")
        assert hasattr(ours, "read_again"), "the library was asked"
        np.testing.assert_array_equal(ours[place], x)
        there = {p.relative_to(path) for p in path.rglob("*") if p.is_file()}
        for name in there - {p for p in there if p.name.startswith((".z", "zarr"))}:
            (path / name).unlink()
        writer = writer_of(str(path), metadata_of(path, version))
        if writer is None:  # a shuffle that the library chooses
            assert codec == "bits" and version == 2
            continue
        writer[place] = x
        np.testing.assert_array_equal(theirs[...], x)
        assert {p.relative_to(path) for p in path.rglob("*") if p.is_file()} == there


@pytest.mark.parametrize("fill", [0.0, -0.0, 2.5, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("version", [2, 3])
def test_fill_values(tmp_path, version, fill):
    """A chunk is left out where its bits are those of the fill value, and no other."""
    path = tmp_path / "x.zarr"
    options = {"chunks": (2,), "zarr_format": version, "compressors": None}
    theirs = zarr.create_array(str(path), shape=(8,), dtype="f4", fill_value=fill, **options)
    x = np.array([fill, fill, 0.0, 0.0, -0.0, -0.0, np.nan, 1.0], "f4")
    writer_of(str(path), metadata_of(path, version))[(slice(0, 8),)] = x
    np.testing.assert_array_equal(theirs[...].view("u4"), x.view("u4"))
    np.testing.assert_array_equal(
        open_array(str(path), "")[(slice(0, 8),)].view("u4"), x.view("u4")
    )
    chunk = path / "c" / "0" if version == 3 else path / "0"
    assert not chunk.exists()


def test_big_endian_numbers(tmp_path):
    x, place = volume((6,), "u2"), (slice(0, 6),)
    zarr.create_array(
        str(tmp_path / "3.zarr"), data=x, chunks=(4,), serializer=BytesCodec(endian="big")
    )
    zarr.create_array(str(tmp_path / "2.zarr"), data=x.astype(">u2"), chunks=(4,), zarr_format=2)
    for version in (2, 3):
        path = tmp_path / f"{version}.zarr"
        np.testing.assert_array_equal(open_array(str(path), "")[place], x)
        writer_of(str(path), metadata_of(path, version))[place] = x[::-1]
        np.testing.assert_array_equal(zarr.open_array(str(path))[...], x[::-1])


def test_what_is_unusual_is_left_to_the_library(tmp_path):
    path = tmp_path / "x.zarr"
    zarr.create_array(str(path), data=volume((8, 8), "f4"), chunks=(4, 4))
    found = metadata_of(path, 3)
    assert writer_of(str(path), found) is not None
    for key, value in [
        ("fill_value", "0x7fc00000"),
        ("an_extension", {"must_understand": True}),
        ("chunk_key_encoding", {"name": "v3"}),
        ("codecs", [{"name": "bytes"}]),
        ("codecs", [*found["codecs"], {"name": "crc32c"}]),
    ]:
        assert writer_of(str(path), found | {key: value}) is None


def test_the_library_is_not_loaded(tmp_path):
    """It has its share of the start and of memory."""
    zarr.create_array(str(tmp_path / "in.zarr"), data=volume((8, 8)), chunks=(4, 4))
    script = "import sys; from lunette.cli import app; app(sys.argv[1:], standalone_mode=False)"
    script += "\nassert not {'zarr', 'rich', 'numba', 'dask'} & set(sys.modules), sys.modules"
    arguments = ["pyramid", str(tmp_path / "in.zarr"), str(tmp_path / "out.zarr"), "--levels", "1"]
    lunette(*arguments, "--op", "max")  # the kernel is compiled now, which needs Numba
    run = [sys.executable, "-c", script, *arguments, "--op", "max", "--force", "--quiet"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- level 0 without a copy --


def test_level_0_as_links(tmp_path):
    x = volume((9, 10), "u2")
    zarr.create_array(str(tmp_path / "in.zarr"), data=x, chunks=(4, 4))
    np.save(tmp_path / "in.npy", x)
    begin = ("pyramid", tmp_path / "in.zarr", tmp_path / "out.zarr", "--levels", 1, "--op", "mean")
    for again in ((), ("--force",)):
        lunette(*begin, "--link", *again)
        a, b = (tmp_path / name / "c" / "0" / "1" for name in ("in.zarr", "out.zarr/0"))
        assert os.path.samefile(a, b)
    lunette(*begin, "--force")  # takes names away, not files
    assert a.stat().st_nlink == 1
    np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "in.zarr"))[...], x)
    for arguments in (
        (tmp_path / "in.npy", tmp_path / "b.zarr"),
        (tmp_path / "in.zarr", tmp_path / "b.zarr", "--codec", "none"),
        (tmp_path / "in.zarr", "memory://b.zarr"),
    ):
        assert "--link: level 0" in lunette("pyramid", *arguments, "--link", code=1)
    assert not list(tmp_path.glob("b.zarr*"))
