"""lunette pool and lunette pyramid in every format: right cells, right metadata, one writer per chunk."""

import json
import threading
from itertools import pairwise

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

import lunette as ln
from lunette.scale import work
from lunette.scale.stores import Level, Source
from tests.scale.commands import halved, lunette, volume


def read(path):
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".png":
        return np.asarray(Image.open(path))
    return tifffile.imread(path) if path.suffix == ".tif" else zarr.open(str(path), mode="r")[...]


def write(path, x, **options):
    if path.suffix == ".npy":
        np.save(path, x)
    elif path.suffix == ".png":
        Image.fromarray(x).save(path)
    elif path.suffix == ".tif":
        tifffile.imwrite(path, x, photometric="minisblack", **options)
    else:
        zarr.create_array(str(path), data=x, chunks=(4,) * x.ndim, **options)
    return path


SUFFIXES = [".npy", ".tif", ".png", ".zarr"]


@pytest.mark.parametrize("into", SUFFIXES)
@pytest.mark.parametrize("out_of", SUFFIXES)
def test_pool_from_any_format_into_any(tmp_path, out_of, into):
    x = volume((13, 18))
    source, out = write(tmp_path / f"in{out_of}", x), tmp_path / f"out{into}"
    lunette("pool", "max", "--kernel", "3,2", "--stride", "2,1", "--padding", "1,0", source, out)
    np.testing.assert_array_equal(read(out), ln.max_pool(x, (3, 2), (2, 1), ((1, 1), (0, 0))))
    assert [p.name for p in sorted(tmp_path.iterdir())] == sorted({source.name, out.name})


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u4", "bool"])
@pytest.mark.parametrize("operator", ["max", "min", "stride", "mean"])
def test_pool_keeps_the_dtype(tmp_path, operator, dtype):
    if operator == "mean" and dtype == "bool":
        pytest.skip("bool has no mean; that it is refused is tested elsewhere")
    x = volume((9, 10, 11), dtype)
    source = write(tmp_path / "in.npy", x)
    lunette("pool", operator, "--kernel", "2,2", source, tmp_path / "out.zarr")
    result = read(tmp_path / "out.zarr")
    assert result.dtype == x.dtype
    blocks = x[:, :, :10].reshape(9, 5, 2, 5, 2)
    expected = {
        "max": blocks.max((2, 4)),
        "min": blocks.min((2, 4)),
        "stride": blocks[:, :, 0, :, 0],
        "mean": None if dtype == "bool" else ln.avg_pool(x, (2, 2), dtype="same"),
    }[operator]
    np.testing.assert_array_equal(result, expected)


def test_compressed_and_tiled_tiff_is_read_by_tiles(tmp_path):
    x = volume((3, 70, 90), "u2")
    source = write(tmp_path / "in.tif", x, compression="zlib", tile=(32, 32))
    lunette("pool", "mean", "--kernel", "2,2", source, tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), halved(x, (1, 2)))


@pytest.mark.parametrize("operator", ["max", "min", "stride", "mean"])
@pytest.mark.parametrize("kind", ["npy", "fortran", "tif", "zarr 2", "zarr 3"])
def test_bytes_in_any_order(tmp_path, kind, operator):
    x = volume((6, 8, 34), "u2", seed=3) * np.uint16(200)
    swapped = x.astype(">u2")
    source = tmp_path / {"npy": "in.npy", "fortran": "in.npy", "tif": "in.tif"}.get(kind, "in.zarr")
    if source.suffix == ".npy":
        np.save(source, np.asarray(swapped, order="F" if kind == "fortran" else "C"))
    elif kind == "tif":
        tifffile.imwrite(source, x, byteorder=">", photometric="minisblack")
    else:
        options = {"zarr_format": int(kind[-1]), "chunks": (4, 4, 5)}
        zarr.create_array(str(source), shape=x.shape, dtype=">u2", **options)[...] = x
    native = tmp_path / "native.npy"
    np.save(native, x)
    results = []
    for name, path in (("a", source), ("b", native)):
        out = tmp_path / f"{name}.npy"
        lunette("pyramid", path, out, "--levels", 1, "--op", operator)
        results.append(np.load(out.with_name(f"{name}.1.npy")))
    np.testing.assert_array_equal(*results)
    if operator == "mean":
        np.testing.assert_array_equal(results[0], halved(x))


def test_pages_and_samples_of_a_tiff_are_what_they_are(tmp_path):
    # RGB pages without names: the pages are z, the samples channels, which are not pooled.
    x = volume((5, 12, 14, 3))
    tifffile.imwrite(tmp_path / "in.tif", x, photometric="rgb")
    lunette("pyramid", tmp_path / "in.tif", tmp_path / "out.npy", "--levels", 1)
    np.testing.assert_array_equal(np.load(tmp_path / "out.1.npy"), halved(x, (0, 1, 2)))


def test_channels_of_an_image_are_not_pooled(tmp_path):
    x = volume((9, 12, 3))
    source = write(tmp_path / "in.png", x)
    lunette("pyramid", source, tmp_path / "out.png", "--levels", 2)
    first = halved(x, (0, 1))
    np.testing.assert_array_equal(read(tmp_path / "out.1.png"), first)
    np.testing.assert_array_equal(read(tmp_path / "out.2.png"), halved(first, (0, 1)))


# -- pyramids --


@pytest.mark.parametrize("memory", ["", "100GB"])
@pytest.mark.parametrize("shape", [(33, 18, 47), (1, 40, 21)])
def test_a_pyramid_in_zarr_has_every_level(tmp_path, shape, memory):
    x = volume(shape, "u2")
    source, out = write(tmp_path / "in.npy", x), tmp_path / "out.ome.zarr"
    options = ["--memory", memory] if memory else []
    lunette("pyramid", source, out, "--levels", 3, "--chunks", "4,4,4", *options)
    group = zarr.open_group(str(out), mode="r")
    expected = x
    for level in range(4):
        np.testing.assert_array_equal(group[str(level)][...], expected)
        assert group[str(level)].metadata.zarr_format == 3
        assert group[str(level)].metadata.dimension_names == ("z", "y", "x")
        expected = halved(expected)


@pytest.mark.parametrize("operator", ["max", "min", "stride"])
def test_the_other_operators_of_a_pyramid(tmp_path, operator):
    x = volume((21, 30))
    source = write(tmp_path / "in.npy", x)
    lunette("pyramid", source, tmp_path / "out.npy", "--levels", 2, "--op", operator)
    for level in (1, 2):
        step = 2**level
        result = np.load(tmp_path / f"out.{level}.npy")
        for i in np.ndindex(result.shape):
            block = x[i[0] * step : (i[0] + 1) * step, i[1] * step : (i[1] + 1) * step]
            expected = block[0, 0] if operator == "stride" else getattr(block, operator)()
            assert result[i] == expected


def test_a_pyramid_in_ome_tiff_has_sub_images_of_y_and_x(tmp_path):
    x = volume((5, 60, 50))
    source, out = write(tmp_path / "in.npy", x), tmp_path / "out.ome.tif"
    lunette("pyramid", source, out, "--levels", 2)
    with tifffile.TiffFile(out) as file:
        assert file.is_ome
        assert file.series[0].axes == "ZYX"
        levels = [level.asarray() for level in file.series[0].levels]
    first = halved(x, (1, 2))
    for level, expected in zip(levels, [x, first, halved(first, (1, 2))], strict=True):
        np.testing.assert_array_equal(level, expected)


# -- metadata --


def multiscale(out):
    return json.loads((out / "zarr.json").read_text())["attributes"]["ome"]["multiscales"][0]


def transformations(out):
    found = []
    for dataset in multiscale(out)["datasets"]:
        scale, translation = dataset["coordinateTransformations"]
        assert (scale["type"], translation["type"]) == ("scale", "translation")
        found.append((dataset["path"], scale["scale"], translation["translation"]))
    return found


def test_scale_and_translation_of_every_level(tmp_path):
    source = tmp_path / "in.ome.zarr"
    group = zarr.create_group(str(source), zarr_format=3)
    group.create_array("full", data=volume((2, 3, 8, 16)), chunks=(1, 2, 4, 4))
    axes = [
        {"name": "c", "type": "channel"},
        *({"name": a, "type": "space", "unit": "micrometer"} for a in "zyx"),
    ]
    steps = [
        {"type": "scale", "scale": [1, 4, 0.5, 0.5]},
        {"type": "translation", "translation": [0, 100, 0, 10]},
    ]
    dataset = {"path": "full", "coordinateTransformations": steps}
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [dataset]}]}
    lunette("pyramid", source, tmp_path / "mean.zarr", "--levels", 3, "--factors", 2)
    # z has 3, 2, 1, 1 planes: the third halving leaves it alone. Centres: t + s·(2ᵏ − 1)/2.
    assert transformations(tmp_path / "mean.zarr") == [
        ("0", [1, 4, 0.5, 0.5], [0, 100, 0, 10]),
        ("1", [1, 8, 1, 1], [0, 102, 0.25, 10.25]),
        ("2", [1, 16, 2, 2], [0, 106, 0.75, 10.75]),
        ("3", [1, 16, 4, 4], [0, 106, 1.75, 11.75]),
    ]
    assert multiscale(tmp_path / "mean.zarr")["axes"] == axes
    lunette(
        "pyramid", source, tmp_path / "taken.zarr", "--levels", 1, "--op", "stride", "--factors", 2
    )
    assert transformations(tmp_path / "taken.zarr")[1] == ("1", [1, 8, 1, 1], [0, 100, 0, 10])


def test_axes_are_put_in_the_order_that_ome_zarr_wants(tmp_path):
    x = volume((4, 2, 12, 10), "u2")
    sizes = {"PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "nm", "PhysicalSizeZ": 2.0}
    source = write(tmp_path / "in.ome.tif", x, metadata={"axes": "ZCYX", **sizes}, ome=True)
    lunette("pyramid", source, tmp_path / "out.zarr", "--levels", 1, "--factors", 2)
    group = zarr.open_group(str(tmp_path / "out.zarr"), mode="r")
    moved = x.transpose(1, 0, 2, 3)
    np.testing.assert_array_equal(group["0"][...], moved)
    np.testing.assert_array_equal(group["1"][...], halved(moved, (1, 2, 3)))
    assert [a["name"] for a in multiscale(tmp_path / "out.zarr")["axes"]] == list("czyx")
    assert transformations(tmp_path / "out.zarr")[1] == ("1", [1, 4, 2, 1], [0, 1, 0.5, 0.25])
    units = [a.get("unit") for a in multiscale(tmp_path / "out.zarr")["axes"]]
    assert units == [None, "micrometer", None, "nanometer"]  # OME-TIFF means µm where it says none
    picture = write(tmp_path / "in.png", volume((9, 12, 3)))
    lunette("pyramid", picture, tmp_path / "picture.zarr", "--levels", 1)
    level = zarr.open_group(str(tmp_path / "picture.zarr"), mode="r")["1"]
    np.testing.assert_array_equal(level[...], halved(volume((9, 12, 3)), (0, 1)).transpose(2, 0, 1))


def test_ome_tiff_keeps_sizes_and_units(tmp_path):
    x = volume((3, 12, 10))
    sizes = {"PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "nm", "PhysicalSizeY": 2.0}
    source = write(tmp_path / "in.ome.tif", x, metadata={"axes": "ZYX", **sizes}, ome=True)
    lunette("pyramid", source, tmp_path / "pyramid.ome.tif", "--levels", 1)
    lunette("pool", "max", "--kernel", "2,2", source, tmp_path / "pool.ome.tif")
    for name, factor in (("pyramid", 1), ("pool", 2)):
        with tifffile.TiffFile(tmp_path / f"{name}.ome.tif") as file:
            text = file.ome_metadata
        assert f'PhysicalSizeX="{0.5 * factor}" PhysicalSizeXUnit="nm"' in text
        assert f'PhysicalSizeY="{2.0 * factor}" PhysicalSizeYUnit="µm"' in text
        assert "PhysicalSizeZ" not in text


def test_a_validator_of_ome_zarr_reads_it(tmp_path):
    models = pytest.importorskip("ome_zarr_models")
    source = write(tmp_path / "in.npy", volume((2, 9, 8, 16)))
    lunette("pyramid", source, tmp_path / "out.zarr", "--levels", 2)
    group = zarr.open_group(str(tmp_path / "out.zarr"), mode="r")
    image = models.open_ome_zarr(group)
    assert image.ome_attributes.version == "0.5"
    assert [d.path for d in image.ome_attributes.multiscales[0].datasets] == ["0", "1", "2"]


# -- streaming --


def test_levels_share_one_reading_of_the_input(tmp_path, monkeypatch):
    x = volume((64, 64, 64))
    source, out = write(tmp_path / "in.npy", x), tmp_path / "out.zarr"
    reads, original = np.zeros(x.shape, int), Source.read

    def note(self, ranges, again=False):
        reads[tuple(slice(lo, hi) for lo, hi in ranges)] += 1
        return original(self, ranges)

    def read_back(self, ranges, again=False):
        raise AssertionError("a level was read back")

    monkeypatch.setattr(Source, "read", note)
    monkeypatch.setattr(Level, "read", read_back)
    lunette(
        "pyramid", source, out, "--levels", 3, "--op", "mean", "--chunks", "4,4,4", "--threads", 1
    )
    assert (reads == 1).all()


def test_pages_that_are_stored_whole_are_read_once(tmp_path, monkeypatch):
    x = volume((40, 150, 90))
    source, out = write(tmp_path / "in.tif", x, compression="zlib"), tmp_path / "out.zarr"
    reads, original = [], Source.read
    monkeypatch.setattr(
        Source, "read", lambda self, r, **_: (reads.append(r), original(self, r))[1]
    )
    lunette("pyramid", source, out, "--levels", 2, "--op", "mean", "--chunks", "4,16,16")
    assert all(ranges[1:] == ((0, 150), (0, 90)) for ranges in reads)
    planes = sorted(ranges[0] for ranges in reads)
    assert planes[0][0] == 0
    assert planes[-1][1] == 40
    assert all(a[1] == b[0] for a, b in pairwise(planes))
    group = zarr.open_group(str(out), mode="r")
    np.testing.assert_array_equal(group["0"][...], x)
    np.testing.assert_array_equal(group["2"][...], halved(halved(x)))


@pytest.mark.parametrize(("room", "expected"), [(9, 1), (20, 2), (200, 8)])
def test_as_many_tiles_at_once_as_memory_holds(tmp_path, monkeypatch, room, expected):
    """A tile of 16³ needs 8.4 MB: a slab of 32³, its result, and 8 MB of the mapped file."""
    source = write(tmp_path / "in.npy", volume((64, 64, 64)))
    seen = []
    monkeypatch.setattr(work, "resident_memory", lambda: 100_000_000 - work.SLACK)
    monkeypatch.setattr(work, "run", lambda job, journal, workers, *_: seen.append(workers))
    arguments = ["--chunks", "16,16,16", "--threads", 8, "--memory", f"{100 + room}MB"]
    lunette("pool", "max", "--kernel", "2,2,2", source, tmp_path / "out.zarr", *arguments)
    assert seen == [expected]


def test_a_progress_bar_with_throughput(tmp_path, monkeypatch):
    source = write(tmp_path / "in.npy", volume((64, 64)))
    arguments = ["pool", "max", "--kernel", "2,2", source, tmp_path / "out.npy", "--force"]
    arguments += ["--chunks", "8,8"]
    assert "━" not in lunette(*arguments)  # nobody watches
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    shown, _, _ = lunette(*arguments).partition("out.npy:")
    assert "4.1/4.1 kB" in shown
    assert "B/s" in shown
    assert "/s" not in lunette(*arguments, "--quiet")


# -- one writer per chunk --


@pytest.mark.parametrize("shards", ["", "8,8,8"])
def test_every_chunk_has_one_writer(tmp_path, monkeypatch, shards):
    x = volume((37, 20, 50))
    source, out = write(tmp_path / "in.npy", x), tmp_path / "out.zarr"
    writes, lock, original = {}, threading.Lock(), Level.write

    def note(self, ranges, block):
        with lock:
            writes.setdefault(self, []).append(ranges)
        original(self, ranges, block)

    monkeypatch.setattr(Level, "write", note)
    options = ["--shards", shards] if shards else []
    lunette("pyramid", source, out, "--levels", 3, "--chunks", "4,4,4", *options)
    assert len(writes) == 4
    unit = 8 if shards else 4
    for level, places in writes.items():
        owners = np.zeros([-(-n // unit) for n in level.shape], int)
        for ranges in places:
            assert all(
                lo % unit == 0 and (hi % unit == 0 or hi == n)
                for (lo, hi), n in zip(ranges, level.shape, strict=True)
            )
            owners[tuple(slice(lo // unit, -(-hi // unit)) for lo, hi in ranges)] += 1
        assert (owners == 1).all()
    level = zarr.open_group(str(out), mode="r")["1"]
    assert level.shards == ((8, 8, 8) if shards else None)
    np.testing.assert_array_equal(level[...], halved(x))
