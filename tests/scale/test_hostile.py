"""Files that lie, break off or attack: one line each and an exit status, no traceback, no hang, no flood.

`LUNETTE_FUZZ` is how many files of each format are spoiled at random, `LUNETTE_SEED` says how.
"""

import copy
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import zlib

import numcodecs
import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

from lunette.scale import zarr_metadata
from lunette.scale.bounded import EXPANDING, expand
from tests.scale.commands import lunette, volume
from tests.scale.hostile import attempt, no_hang, refused  # noqa: F401

SEED = int(os.environ.get("LUNETTE_SEED", "0"))
FUZZ = int(os.environ.get("LUNETTE_FUZZ", "0"))


# -- Zarr --

VALUES = [
    *(
        None,
        0,
        -1,
        1.5,
        10**18,
        10**400,
        True,
        "x",
        "|O",
        "",
        [],
        {},
        [0],
        [-1, -1],
        [0, 0],
        [1.5, 2],
    ),
    *([10**18, 10**18], [2**63, 1], ["a", "b"], [[4], [4]], [None, 4], [4], [4, 4, 4], {"name": 3}),
    *(float("nan"), {"name": "x"}, [{"name": "x"}], [{"id": "pickle"}], {"id": "pickle"}, "NaN"),
    *(
        [{"name": "bytes"}] * 2,
        [{"name": "vlen-utf8"}],
        {"configuration": {}},
        "\ud800",
        "a" * 5000,
    ),
]


def store(path, version):
    """A small array; the path of its metadata."""
    zarr.create_array(str(path), data=volume((8, 8)), chunks=(4, 4), zarr_format=version)
    return path / ("zarr.json" if version == 3 else ".zarray")


def places(found, path=()):
    """The way to every value in a JSON object."""
    items = found.items() if isinstance(found, dict) else enumerate(found)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_with_other_values(tmp_path, version):
    source = tmp_path / "in.zarr"
    file = store(source, version)
    good = json.loads(file.read_text())
    cases = [(place, v) for place in places(good) for v in [*VALUES, "DELETE"]]
    rng = random.Random(SEED)
    for place, value in rng.sample(cases, min(len(cases), FUZZ or 60)):
        bad = copy.deepcopy(good)
        inner = bad
        for key in place[:-1]:
            inner = inner[key]
        if value == "DELETE":
            del inner[place[-1]]
        else:
            inner[place[-1]] = value
        file.write_text(json.dumps(bad))
        attempt(source, tmp_path)


@pytest.mark.parametrize(
    ("version", "change", "words"),
    [
        (3, {"shape": [10**18, 10**18]}, "expected at most"),
        (3, {"shape": [10**9, 10**9]}, "expected at most"),
        (3, {"shape": [-8, 8]}, "shape [-8, 8]"),
        (3, {"shape": "8"}, "shape '8'"),
        (
            3,
            {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 4]}}},
            "chunk_shape [0, 4]: expected a list of sizes of at least 1",
        ),
        (3, {"codecs": [{"name": "pickle"}]}, "codec 'pickle' is not known"),
        (3, {"codecs": [{"name": "numcodecs.pickle"}]}, "codec 'numcodecs.pickle' is not known"),
        (3, {"codecs": []}, "codecs []"),
        (3, {"data_type": "string"}, "data_type 'string'"),
        (3, {"fill_value": "NaN"}, "cannot be read as zarr"),
        (2, {"chunks": [0, 4]}, "chunks [0, 4]"),
        (2, {"chunks": [4]}, "expected 2 sizes"),
        (2, {"dtype": "|O", "filters": [{"id": "pickle"}]}, "dtype '|O'"),
        (2, {"filters": [{"id": "pickle"}]}, "codec 'pickle' is not known"),
        (2, {"filters": [{"id": "json2"}]}, "codec 'json2' is not known"),
        (2, {"compressor": {"id": "msgpack2"}}, "codec 'msgpack2' is not known"),
        (2, {"dtype": [["a", "<u2"]]}, "dtype [['a', '<u2']]"),
        (2, {"order": "K"}, "order 'K'"),
        (2, {"zarr_format": 4}, "Zarr 2"),
    ],
)
def test_metadata_is_refused_by_name(tmp_path, version, change, words):
    file = store(tmp_path / "in.zarr", version)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    refused(tmp_path / "in.zarr", tmp_path, words)


def test_metadata_that_is_deep_long_or_no_json(tmp_path, monkeypatch):
    file = store(tmp_path / "in.zarr", 3)
    for text in (
        "",
        "{",
        "[]",
        "3",
        "[" * 100_000,
        '{"a":' * 100_000,
        "\xff\xfe",
        '{"zarr_format": 3}',
    ):
        file.write_text(text, encoding="latin-1")
        refused(tmp_path / "in.zarr", tmp_path)
    with open(file, "wb") as handle:
        handle.truncate(100 << 20)
    refused(tmp_path / "in.zarr", tmp_path, "expected at most")


def test_a_chunk_that_is_no_file(tmp_path):
    for version, key in ((3, "c/1/0"), (2, "1.0")):
        source = tmp_path / f"in{version}.zarr"
        store(source, version)
        chunk = source / key
        good = chunk.read_bytes()
        for spoil in (chunk.mkdir, lambda p=chunk: os.mkfifo(p), lambda p=chunk: p.symlink_to(p)):
            chunk.unlink()
            spoil()
            code, text = attempt(source, tmp_path)
            assert code == 1
            assert "cannot read chunk (1, 0)" in text
            chunk.rmdir() if chunk.is_dir() else chunk.unlink()
            chunk.write_bytes(good)
        assert attempt(source, tmp_path)[0] == 0
    (
        tmp_path / "in3.zarr" / "c" / "1" / "0"
    ).unlink()  # a chunk that is not there is its fill value
    assert attempt(tmp_path / "in3.zarr", tmp_path)[0] == 0
    shutil.rmtree(tmp_path / "in3.zarr" / "c" / "1")
    (tmp_path / "in3.zarr" / "c" / "1").write_text("a file where a folder should be")
    assert attempt(tmp_path / "in3.zarr", tmp_path)[0] == 1


def test_a_shard_that_was_cut_off_is_not_read_as_fill_values(tmp_path):
    source = tmp_path / "in.zarr"
    zarr.create_array(str(source), data=volume((16, 16)) + 1, chunks=(4, 4), shards=(16, 16))
    shard = source / "c" / "0" / "0"
    whole = shard.read_bytes()
    index = whole[-(16 * 16 + 4) :]
    for cut in (whole[:-1], whole[: len(whole) // 2], b"", index, whole[:100] + index):
        shard.write_bytes(cut)
        out = tmp_path / "out.npy"
        for chunks in ("16,16", "4,4"):
            code, text = attempt(source, tmp_path, "--chunks", chunks)
            assert code == 1, (len(cut), np.load(out))
            assert "cannot read" in text


def test_names_that_are_loops_or_pipes(tmp_path):
    loop = tmp_path / "loop.zarr"
    loop.symlink_to(loop)
    refused(loop, tmp_path, "IN=")
    for name in ("pipe.npy", "pipe.tif", "pipe.png", "pipe.zarr"):
        os.mkfifo(tmp_path / name)
        refused(tmp_path / name, tmp_path, "expected" if name != "pipe.zarr" else "folder")
    file = store(tmp_path / "in.zarr", 3)
    file.unlink()
    os.mkfifo(file)
    refused(tmp_path / "in.zarr", tmp_path, "a folder or a device")


# -- bombs --

ZEROS = 1 << 24


def bomb_of(name, size):
    """Very few bytes that say very much."""
    return bytes(numcodecs.get_codec({"id": name}).encode(np.zeros(size, np.uint8)))


BOMB = """
import sys
from lunette.cli import app
try:
    app(sys.argv[1:])
finally:
    with open("/proc/self/status") as status:  # `ru_maxrss` counts the process that started it, too
        print("PEAK", 1024 * int(next(s for s in status if s.startswith("VmHWM")).split()[1]))
"""


def test_a_stream_gives_no_more_than_it_should():
    for name in sorted(EXPANDING):
        bomb = bomb_of(name, ZEROS)
        with pytest.raises((ValueError, RuntimeError)):
            expand(name, bomb, 4096)
        with pytest.raises((ValueError, RuntimeError)):
            expand(name, bomb, 4096, exact=False)
        good = bytes(numcodecs.get_codec({"id": name}).encode(volume((4096,))))
        assert bytes(expand(name, good, 4096)) == volume((4096,)).tobytes()
        for wrong in (4095, 4097):
            with pytest.raises((ValueError, RuntimeError)):
                expand(name, good, wrong)
        for cut in (good[:-1], good[: len(good) // 2], good[:3], b""):
            with pytest.raises((ValueError, RuntimeError, EOFError, zlib.error, OSError)):
                expand(name, cut, 4096)


def test_bombs_in_a_store_take_no_memory(tmp_path):
    """Ten chunks of 1 MB, each of which would give 256 MB, all decoded side by side."""
    source, bomb = tmp_path / "in.zarr", bomb_of("zstd", 1 << 28)
    codec = numcodecs.Zstd()
    shapes = {"shape": (10, 1 << 20), "chunks": (1, 1 << 20)}
    zarr.create_array(str(source), dtype="u1", zarr_format=2, compressors=codec, **shapes)
    for k in range(10):
        (source / f"{k}.0").write_bytes(bomb)
    arguments = ["pool", "max", "--kernel", "2,2", source, tmp_path / "out.npy"]
    run = subprocess.run(
        [sys.executable, "-c", BOMB, *map(str, arguments), "--memory", "400MB"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert "cannot read chunk" in run.stderr
    assert int(run.stdout.split("PEAK")[1]) < 400_000_000


def test_a_tiff_that_inflates(tmp_path):
    source = tmp_path / "in.tif"
    tifffile.imwrite(source, volume((64, 64)), compression="zlib", rowsperstrip=64)
    with tifffile.TiffFile(source) as file:
        offset, count = (file.pages[0].tags[tag].valueoffset for tag in (273, 279))
    data = bytearray(source.read_bytes())
    bomb = zlib.compress(bytes(ZEROS), 9)
    data[offset : offset + 4] = struct.pack("<I", len(data))
    data[count : count + 4] = struct.pack("<I", len(bomb))
    source.write_bytes(bytes(data) + bomb)
    code, text = attempt(source, tmp_path)
    assert code == 1
    assert "more than the 4096 bytes" in text


# -- at random --


def good_files(folder):
    x = volume((24, 20))
    np.save(folder / "a.npy", x)
    Image.fromarray(x).save(folder / "a.png")
    tifffile.imwrite(folder / "a.tif", x, compression="zlib", tile=(16, 16))
    tifffile.imwrite(folder / "b.tif", np.stack([x, x]), photometric="minisblack")
    return [folder / name for name in ("a.npy", "a.png", "a.tif", "b.tif")]


def spoiled(data, rng):
    data = bytearray(data)
    if rng.random() < 0.3:
        return data[: rng.randrange(len(data))]
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(data) if rng.random() < 0.5 else min(len(data), 300))
        data[at] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
    return data


@pytest.mark.parametrize("number", range(4))
def test_bytes_at_random(tmp_path, number):
    source = good_files(tmp_path)[number]
    good = source.read_bytes()
    rng = random.Random(SEED + number)
    for _ in range(FUZZ or 25):
        source.write_bytes(spoiled(good, rng))
        attempt(source, tmp_path)


@pytest.mark.parametrize("version", [2, 3])
def test_bytes_of_a_store_at_random(tmp_path, version):
    source = tmp_path / "in.zarr"
    store(source, version)
    files = [p for p in source.rglob("*") if p.is_file()]
    rng = random.Random(SEED + version)
    for _ in range(FUZZ or 25):
        path = rng.choice(files)
        good = path.read_bytes()
        path.write_bytes(spoiled(good, rng))
        attempt(source, tmp_path)
        path.write_bytes(good)


@pytest.mark.parametrize(
    "attributes",
    [
        {"multiscales": 3},
        {"multiscales": [3]},
        {"multiscales": [{}]},
        {"multiscales": [{"datasets": []}]},
        {"multiscales": [{"datasets": [{"path": 7}]}]},
        {"multiscales": [{"datasets": [{"path": "0"}], "axes": 3}]},
        {"multiscales": [{"datasets": [{"path": "0"}], "axes": [{"no": "name"}]}]},
        {"multiscales": [{"datasets": [{"path": "0", "coordinateTransformations": [{}]}]}]},
        {"multiscales": [{"datasets": [{"path": "../in.zarr/0"}]}]},
        {"multiscales": {"a": 1}},
        {"ome": 3},
        {"ome": None},
    ],
)
def test_attributes_of_a_group(tmp_path, attributes):
    source = tmp_path / "in.zarr"
    group = zarr.create_group(str(source), zarr_format=3)
    group.create_array("0", data=volume((8, 8)), chunks=(4, 4))
    file = source / "zarr.json"
    found = json.loads(file.read_text())
    for attributes_of_group in (attributes, {"ome": attributes}, [attributes], "x"):
        file.write_text(json.dumps(found | {"attributes": attributes_of_group}))
        attempt(source, tmp_path)


def test_what_is_allowed_is_read(tmp_path):
    """Every codec that is known, in both versions, gives the cells back."""
    x = volume((24, 20), "u2")
    names = sorted(EXPANDING)
    cases = [(2, {"compressors": numcodecs.get_codec({"id": n})}) for n in names]
    cases += [(2, {"filters": [numcodecs.Delta("<u2")], "compressors": numcodecs.Zstd()})]
    cases += [(2, {"filters": [numcodecs.Shuffle(2)], "compressors": numcodecs.Zlib()})]
    codecs = zarr.codecs
    cases += [(3, {"compressors": c}) for c in (codecs.GzipCodec(), codecs.BloscCodec(), None)]
    cases += [(3, {"compressors": [codecs.ZstdCodec(), codecs.GzipCodec(), codecs.Crc32cCodec()]})]
    cases += [(3, {"shards": (16, 16), "compressors": [codecs.BloscCodec(), codecs.Crc32cCodec()]})]
    cases += [(3, {"filters": [codecs.TransposeCodec(order=(1, 0))]})]
    for number, (version, options) in enumerate(cases):
        source, out = tmp_path / f"{number}.zarr", tmp_path / f"{number}.npy"
        array = zarr.create_array(
            str(source), shape=x.shape, dtype=x.dtype, chunks=(8, 8), zarr_format=version, **options
        )
        array[...] = x
        lunette("pool", "max", "--kernel", "1,1", source, out)
        np.testing.assert_array_equal(np.load(out), x)
    assert zarr_metadata.LARGEST > 1 << 20
