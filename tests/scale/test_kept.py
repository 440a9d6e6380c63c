"""What a pyramid takes over of its input: channels, labels, fill values, attributes, sizes of cells."""

import json

import numpy as np
import pytest
import tifffile
import zarr

from lunette.scale.opening import open_source
from lunette.scale.xml import elements
from tests.scale.commands import lunette, volume

OMERO = {
    "channels": [
        {
            "label": "DAPI",
            "color": "0000FF",
            "active": True,
            "window": {"min": 0, "max": 255, "start": 3, "end": 99},
        }
    ],
    "rdefs": {"model": "color"},
}


def image(folder, version, data, more=(), fill=0):
    """A multiscale image of one level with attributes besides, its array with some of its own."""
    group = zarr.create_group(str(folder), zarr_format=2 if version == "0.4" else 3)
    array = group.create_array(
        "0", shape=data.shape, dtype=data.dtype, chunks=(4, 4), fill_value=fill
    )
    array[...] = data
    array.attrs["stain"] = "blue"
    axes = [{"name": a, "type": "space", "unit": "micrometer"} for a in "yx"]
    scale = [{"type": "scale", "scale": [0.5, 0.5]}]
    datasets = [{"path": "0", "coordinateTransformations": scale}]
    found = {"multiscales": [{"axes": axes, "datasets": datasets, "name": "mine"}], **dict(more)}
    if version == "0.4":
        found["multiscales"][0]["version"] = "0.4"
        group.attrs.update({**found, "lab": {"room": 7}})
    else:
        group.attrs.update({"ome": {"version": "0.5", **found}, "lab": {"room": 7}})
    return group


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_attributes_of_the_image_and_of_its_array(tmp_path, version):
    x = np.full((10, 12), 7, "u2")
    x[:2, :2] = 9
    image(tmp_path / "in.zarr", version, x, {"omero": OMERO}, fill=7)
    lunette("pyramid", tmp_path / "in.zarr", tmp_path / "out.zarr", "--levels", 1)
    group = zarr.open_group(str(tmp_path / "out.zarr"), mode="r")
    found = group.attrs.asdict()
    ome = found if version == "0.4" else found["ome"]
    assert ome["omero"] == OMERO
    assert ome["multiscales"][0]["name"] == "mine"
    assert found["lab"] == {"room": 7}
    for level in "01":
        array = group[level]
        assert array.metadata.zarr_format == (2 if version == "0.4" else 3)
        assert array.fill_value == 7
        assert array.attrs["stain"] == "blue"
    np.testing.assert_array_equal(group["0"][...], x)
    assert group["1"][0, 0] == 9
    assert (group["1"][2:, 2:] == 7).all()


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_labels_of_an_image_stay_with_it(tmp_path, version):
    x = volume((8, 8))
    group = image(tmp_path / "in.zarr", version, x, {"omero": OMERO})
    labels = group.create_group("labels")
    names = {"labels": ["cells"]}
    labels.attrs.update(names if version == "0.4" else {"ome": {"version": "0.5", **names}})
    cells = (x > 100).astype("u4")
    colors = {"image-label": {"colors": [{"label-value": 1, "rgba": [255, 0, 0, 255]}]}}
    image(tmp_path / "in.zarr" / "labels" / "cells", version, cells, colors)
    out = tmp_path / "out.zarr"
    for force in ((), ("--force",)):  # what was copied is ours, and may be replaced
        lunette("pyramid", tmp_path / "in.zarr", out, "--levels", 1, *force)
        found = zarr.open_group(str(out), mode="r")["labels"]
        assert found["cells"].attrs.asdict() == (
            zarr.open_group(str(tmp_path / "in.zarr"), mode="r")["labels/cells"].attrs.asdict()
        )
        np.testing.assert_array_equal(found["cells/0"][...], cells)
    # A pyramid of the label image itself keeps what its numbers mean, and is named for what it is.
    said = lunette("pyramid", out / "labels" / "cells", tmp_path / "l.zarr", "--levels", 1)
    assert "look like labels" in said
    found = zarr.open_group(str(tmp_path / "l.zarr"), mode="r").attrs.asdict()
    assert found.get("ome", found)["image-label"]["colors"] == colors["image-label"]["colors"]


def areas(shape, dtype="u4"):
    """Squares of seven cells with numbers at random, between background."""
    rng = np.random.default_rng(0)
    grid = rng.integers(1, 5000, [n // 9 for n in shape])
    grid[rng.random(grid.shape) < 0.3] = 0
    found = np.zeros(shape, dtype)
    whole = np.kron(grid, np.ones([9] * len(shape), int))
    found[tuple(slice(0, n) for n in whole.shape)] = whole
    return found


@pytest.mark.parametrize(
    ("data", "labels"),
    [
        (areas((90, 90)), True),
        (areas((36, 36, 36), "u2"), True),
        ((areas((90, 90)) > 0).astype("u1"), True),
        (volume((90, 90)), False),
        (np.add.outer(np.arange(90), np.arange(90)).astype("u1") // 4, False),  # a slow ramp
        (areas((90, 90)).astype("f4"), False),
        (np.zeros((90, 90), "u1"), False),
    ],
)
def test_integers_that_look_like_labels(tmp_path, data, labels):
    np.save(tmp_path / "in.npy", data)
    begin = ("pyramid", tmp_path / "in.npy", tmp_path / "out.zarr", "--levels", 1, "--force")
    said = lunette(*begin)
    assert ("warning: the integers of" in said) == labels
    assert ("--op mode" in said) == labels
    assert "warning" not in lunette(*begin, "--op", "mean")
    assert lunette(*begin, "--quiet") == ""


# -- TIFF --


def test_imagej_knows_sizes_and_times(tmp_path):
    x = volume((3, 4, 12, 10), "u2")
    meta = {"axes": "TZYX", "spacing": 2.0, "unit": "um", "finterval": 30.0}
    tifffile.imwrite(tmp_path / "in.tif", x, imagej=True, resolution=(4.0, 2.0), metadata=meta)
    found = open_source(tmp_path / "in.tif")
    assert found.axes == "tzyx"
    assert found.scale == (30.0, 2.0, 0.5, 0.25)
    assert found.units == ("second", "micrometer", "micrometer", "micrometer")
    lunette("pyramid", tmp_path / "in.tif", tmp_path / "out.ome.tif", "--levels", 1)
    again = open_source(tmp_path / "out.ome.tif")
    assert (again.scale, again.units) == (found.scale, found.units)
    lunette("pool", "max", "--kernel", "1,1", tmp_path / "in.tif", tmp_path / "plain.tif")
    again = open_source(tmp_path / "plain.tif")
    assert (again.scale, again.units) == (found.scale, found.units)


@pytest.mark.parametrize("micro", ["&#181;m", "&#xB5;m", "µm"])
def test_units_in_xml_as_anyone_writes_them(tmp_path, micro):
    source = tmp_path / "in.ome.tif"
    sizes = {"PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "UNIT", "PhysicalSizeY": 0.5}
    meta = {"axes": "CYX", **sizes, "Channel": {"Name": ["a&b", "c"], "Color": [-1, 255]}}
    tifffile.imwrite(source, volume((2, 12, 10)), photometric="minisblack", metadata=meta)
    with tifffile.TiffFile(source) as file:
        text = file.ome_metadata.replace("UNIT", micro).replace("Size", "Size")
    tifffile.tiffcomment(source, text.encode())
    found = open_source(source)
    assert found.scale[1:] == (0.5, 0.5)
    assert found.units[1:] == ("micrometer", "micrometer")
    lunette("pyramid", source, tmp_path / "out.zarr", "--levels", 1)
    attributes = zarr.open_group(str(tmp_path / "out.zarr"), mode="r").attrs["ome"]
    labels = [c["label"] for c in attributes["omero"]["channels"]]
    assert labels == ["a&b", "c"]
    lunette("pyramid", tmp_path / "out.zarr", tmp_path / "again.ome.tif", "--levels", 1)
    with tifffile.TiffFile(tmp_path / "again.ome.tif") as file:
        names = [a.get("Name") for _, _, a in elements(file.ome_metadata, ("Channel",))]
    assert names == ["a&b", "c"]


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
        '<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>',
        "<a>" * 200 + "</a>" * 200,
        "<a>",
        "<a><b></a>",
    ],
)
def test_xml_with_entities_or_without_end(text):
    with pytest.raises(ValueError, match="XML"):
        elements(text, ("a",))


def test_a_series_of_a_tiff(tmp_path):
    source = tmp_path / "in.tif"
    x, y = volume((8, 10)), volume((6, 4, 4), "u2", seed=1)
    with tifffile.TiffWriter(source) as writer:
        writer.write(x, photometric="minisblack")
        writer.write(y, photometric="minisblack")
    lunette("pool", "max", "--kernel", "1,1", source, tmp_path / "out.npy", "--series", 1)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), y)
    message = lunette(
        "pool", "max", "--kernel", "1,1", source, tmp_path / "b.npy", "--series", 2, code=1
    )
    assert "--series 2" in message
    assert json.dumps("numbered from 0")[1:-1] in message
