"""Names of axes in a file are believed: space is halved, and nothing else."""

import json

import numpy as np
import pytest
import zarr

from lunette.scale import axes
from lunette.scale.opening import open_source
from tests.scale.commands import halved, lunette, volume


def level(out, number=1):
    return zarr.open_group(str(out), mode="r")[str(number)]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("names", [("t", "y", "x"), ("time", "lat", "lon")])
def test_time_is_kept(tmp_path, version, names):
    x = volume((4, 12, 10))
    options = {"dimension_names": names} if version == 3 else {}
    array = zarr.create_array(
        str(tmp_path / "in.zarr"), data=x, chunks=(2, 4, 4), zarr_format=version, **options
    )
    if version == 2:
        array.attrs["_ARRAY_DIMENSIONS"] = list(names)
    said = lunette("pyramid", tmp_path / "in.zarr", tmp_path / "out.zarr", "--levels", 1)
    np.testing.assert_array_equal(level(tmp_path / "out.zarr")[...], halved(x, (1, 2)))
    where = "dimension_names" if version == 3 else "_ARRAY_DIMENSIONS"
    first = said.splitlines()[0]
    assert first.startswith(f"axes: {names[0]}")
    assert "÷2" in first
    assert f"named by {where}" in first
    # The names stay, and the kinds are those of OME-NGFF.
    opened = open_source(tmp_path / "out.zarr")
    assert (opened.axes, opened.names) == ("tyx", names)


def test_xarray_says_what_is_what(tmp_path):
    xr = pytest.importorskip("xarray")
    x = volume((3, 8, 6), "f4")
    data = xr.Dataset({"temperature": (("time", "lat", "lon"), x)})
    data.to_zarr(tmp_path / "in.zarr", zarr_format=2, consolidated=False)
    lunette(
        *("pyramid", tmp_path / "in.zarr", tmp_path / "out.zarr", "--levels", 1),
        *("--array", "temperature"),
    )
    np.testing.assert_array_equal(level(tmp_path / "out.zarr")[...], halved(x, (1, 2)))


@pytest.mark.parametrize("by", ["--array", "path"])
def test_a_level_of_our_own_pyramid_keeps_its_channels(tmp_path, by):
    x = volume((9, 12, 3))
    np.save(tmp_path / "in.npy", x)
    lunette("pyramid", tmp_path / "in.npy", tmp_path / "p.zarr", "--levels", 1, "--axes", "yxc")
    place, options = tmp_path / "p.zarr" / "0", ()
    if by == "--array":
        place, options = tmp_path / "p.zarr", ("--array", "0")
    lunette("pyramid", place, tmp_path / "q.zarr", "--levels", 1, *options)
    np.testing.assert_array_equal(level(tmp_path / "q.zarr")[...], level(tmp_path / "p.zarr")[...])


@pytest.mark.parametrize("by", ["--array", "path"])
@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_metadata_of_the_image_counts_for_its_arrays(tmp_path, by, version):
    """Its arrays name no axes themselves; the second level has a scale of its own."""
    x = volume((2, 3, 8, 8))
    group = zarr.create_group(str(tmp_path / "in.zarr"), zarr_format=2 if version == "0.4" else 3)
    inner = group.create_group("cells")
    inner.create_array("s1", data=x, chunks=(1, 3, 4, 4))
    inner.create_array("s0", data=x, chunks=(1, 3, 4, 4))
    scale = [{"type": "scale", "scale": [60, 3, 0.5, 0.5]}]
    image = {
        "axes": [
            {"name": "when", "type": "time", "unit": "second"},
            {"name": "up", "type": "space"},
            {"name": "down", "type": "space"},
            {"name": "left", "type": "space"},
        ],
        "datasets": [
            {"path": "s0", "coordinateTransformations": [{"type": "scale", "scale": [1] * 4}]},
            {"path": "s1", "coordinateTransformations": scale},
        ],
    }
    found = {"multiscales": [{"version": version, **image}]}
    inner.attrs.update(found if version == "0.4" else {"ome": {"version": "0.5", **found}})
    if by == "path":
        opened = open_source(tmp_path / "in.zarr" / "cells" / "s1")
    else:
        opened = open_source(tmp_path / "in.zarr", "cells/s1")
    assert opened.axes == "tzyx"
    assert opened.names == ("when", "up", "down", "left")
    assert opened.scale == (60, 3, 0.5, 0.5)
    assert opened.units[0] == "second"
    assert open_source(tmp_path / "in.zarr", "cells").scale == (1, 1, 1, 1)


def test_axes_given_by_hand_count_more(tmp_path):
    x = volume((4, 12, 10))
    zarr.create_array(
        str(tmp_path / "in.zarr"), data=x, chunks=(2, 4, 4), dimension_names=("t", "y", "x")
    )
    begin = ("pyramid", tmp_path / "in.zarr", tmp_path / "out.zarr", "--levels", 1, "--force")
    said = lunette(*begin, "--axes", "zyx")
    assert "as --axes says" in said
    np.testing.assert_array_equal(level(tmp_path / "out.zarr")[...], halved(x))
    lunette(*begin, "--axes", "depth,lat,lon")
    np.testing.assert_array_equal(level(tmp_path / "out.zarr")[...], halved(x, (1, 2)))
    names = json.loads((tmp_path / "out.zarr" / "1" / "zarr.json").read_text())["dimension_names"]
    assert names == ["depth", "lat", "lon"]


def test_axes_that_are_not_known_are_kept_or_refused(tmp_path):
    x = volume((4, 6, 8))
    np.save(tmp_path / "in.npy", x)
    begin = ("pyramid", tmp_path / "in.npy", tmp_path / "out.npy", "--levels", 1)
    lunette(*begin, "--axes", "a,b,x")
    np.testing.assert_array_equal(np.load(tmp_path / "out.1.npy"), halved(x, (2,)))
    message = lunette(*begin, "--axes", "a,b,d", "--force", code=1)
    assert "axes a,b,d" in message
    assert "--axes" in message
    out = tmp_path / "out.zarr"
    message = lunette("pyramid", tmp_path / "in.npy", out, "--axes", "a,b,x", code=1)
    assert "OME-NGFF wants at least axes y and x" in message


@pytest.mark.parametrize("names", [["t"], "tyx", [1, 2, 3], ["t", "", "x"], ["t", "y", "x" * 999]])
def test_names_that_are_no_names(tmp_path, names):
    array = zarr.create_array(
        str(tmp_path / "in.zarr"), data=volume((2, 4, 4)), chunks=(2, 4, 4), zarr_format=2
    )
    array.attrs["_ARRAY_DIMENSIONS"] = names
    begin = ("pyramid", tmp_path / "in.zarr", tmp_path / "out.zarr", "--levels", 1)
    assert "_ARRAY_DIMENSIONS" in lunette(*begin, code=1)


@pytest.mark.parametrize(
    ("names", "types", "letters"),
    [
        (("t", "c", "z", "y", "x"), (), "tczyx"),
        (("Time", "latitude", "longitude"), (), "tyx"),
        (("member", "time", "lat", "lon"), (), "0tyx"),
        ((None, "y", "x"), (), "0yx"),
        (("x", "x"), (), "x1"),
        (("rows", "cols"), ("space", "space"), "yx"),
        (("x", "y"), ("time", "space"), "ty"),
        (("a", "b", "c"), ("channel", "space", "space"), "cyx"),
    ],
)
def test_letters(names, types, letters):
    assert axes.letters_of(names, types) == letters


def test_the_order_of_ome_ngff():
    assert axes.ngff_order("xyzct") == "tczyx"
    assert axes.ngff_order("yx0") == "0yx"
