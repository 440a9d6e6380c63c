"""`ln.pyramid` of arrays and of files."""

import warnings

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
import zarr

import lunette as ln
from tests.scale.commands import halved, volume


def test_levels_of_a_numpy_array():
    x = volume((13, 20), "u2")
    levels = ln.pyramid(x, levels=3)
    assert levels[0] is x
    expected = x
    for level in levels:
        np.testing.assert_array_equal(level, expected)
        assert level.dtype == x.dtype
        expected = halved(expected)


@pytest.mark.parametrize("op", ["mean", "max", "min", "mode", "sparse-mode", "stride"])
def test_every_array_has_the_same_levels(op):
    x = volume((9, 14, 11))
    options = {"op": op, "levels": 2, "factors": [{"z": 1, "y": 2, "x": 3}, 2]}
    expected = ln.pyramid(x, **options)
    assert [level.shape for level in expected] == [(9, 14, 11), (9, 7, 4), (5, 4, 2)]
    lazy = ln.pyramid(da.from_array(x, chunks=(4, 5, 3)), **options)
    named = ln.pyramid(xr.DataArray(x, dims=("z", "y", "x")), **options)
    for a, b, c in zip(expected, lazy, named, strict=True):
        assert isinstance(a, np.ndarray)
        np.testing.assert_array_equal(a, b.compute())
        np.testing.assert_array_equal(a, c.data)
    tensor = ln.pyramid(torch.from_numpy(x), **options)
    np.testing.assert_array_equal(tensor[-1].numpy(), expected[-1])


@pytest.mark.parametrize("kind", ["numpy", "dask", "xarray", "xarray of dask"])
@pytest.mark.parametrize("how", [{"skipna": True}, {"nodata": 7}])
def test_missing_cells(kind, how):
    x = volume((9, 14), "f4").round(1)
    x[2:7, 3:9] = np.nan if "skipna" in how else 7
    lazy = da.from_array(x, chunks=(5, 3)) if "dask" in kind else x
    array = xr.DataArray(lazy, {"x": np.arange(14.0)}, ("y", "x")) if "xarray" in kind else lazy
    found = ln.pyramid(array, levels=1, factors={"y": 2, "x": 3}, **how)[1]
    mark = np.nan if "skipna" in how else 7
    marked = np.isnan(x) if "skipna" in how else x == 7
    assert marked.any()
    wide = np.where(marked, np.nan, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a window of nothing
        expected = [
            [np.nanmean(wide[2 * i : 2 * i + 2, 3 * j : 3 * j + 3]) for j in range(5)]
            for i in range(5)
        ]
    expected = np.where(np.isnan(expected), mark, expected)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)
    if "xarray" in kind:
        np.testing.assert_array_equal(found.x[:4], [1, 4, 7, 10])


def test_a_dataset_is_cut_along_space():
    data = xr.Dataset(
        {
            "rain": (("time", "lat", "lon"), volume((3, 8, 6), "f4"), {"units": "mm"}),
            "height": (("lat", "lon"), volume((8, 6))),
            "year": (("time",), np.arange(3)),
        },
        {"lat": np.arange(8.0)},
        {"source": "gauges"},
    )
    levels = ln.pyramid(data, levels=2)
    assert [dict(level.sizes) for level in levels][1:] == [
        {"time": 3, "lat": 4, "lon": 3},
        {"time": 3, "lat": 2, "lon": 2},
    ]
    one = levels[1]
    np.testing.assert_array_equal(one.rain, halved(data.rain.values, (1, 2)))
    np.testing.assert_array_equal(one.height, halved(data.height.values))
    np.testing.assert_array_equal(one.year, data.year)
    np.testing.assert_array_equal(one.lat, [0.5, 2.5, 4.5, 6.5])
    assert one.rain.attrs == {"units": "mm"}
    assert one.attrs == {"source": "gauges"}


def test_files_as_the_command_makes_them(tmp_path):
    x = volume((12, 20))
    np.save(tmp_path / "in.npy", x)
    done = ln.pyramid(tmp_path / "in.npy", tmp_path / "out.zarr", chunks=(4, 4), codec="gzip")
    assert done.shapes == ((6, 10), (3, 5), (2, 3))
    group = zarr.open_group(str(tmp_path / "out.zarr"), mode="r")
    np.testing.assert_array_equal(group["1"][...], halved(x))
    ln.pyramid(str(tmp_path / "out.zarr"), in_place=True, levels=1)
    assert "4" in zarr.open_group(str(tmp_path / "out.zarr"), mode="r")
    labels = np.kron(volume((9, 9), "u4"), np.ones((9, 9), "u4"))
    np.save(tmp_path / "labels.npy", labels)
    with pytest.warns(UserWarning, match="look like labels.*op=mode"):
        ln.pyramid(tmp_path / "labels.npy", tmp_path / "l.zarr")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"levels": 9}, ValueError, "would be empty"),
        ({"op": "median"}, ValueError, "op='median'"),
        ({"levels": 0}, ValueError, "levels=0"),
        ({"factors": {"q": 2}}, ValueError, "factors q"),
        ({"factors": {"x": 0}}, ValueError, "at least 1"),
        ({"factors": 1.5}, ValueError, "at least 1"),
        ({"axes": "xx"}, ValueError, "axes 'xx'"),
        ({"op": "mode", "x": np.zeros((4, 4))}, TypeError, "no mode"),
        ({"out": "a.zarr"}, TypeError, "out"),
        ({"force": True}, TypeError, "force"),
    ],
)
def test_what_is_refused(options, error, words):
    options = {"x": volume((8, 8)), **options}
    with pytest.raises(error, match=words):
        ln.pyramid(options.pop("x"), **options)
    with pytest.raises(TypeError, match="'speed' is no option"):
        ln.pyramid("in.npy", "out.zarr", speed=9)
    with pytest.raises(ValueError, match="either out"):
        ln.pyramid("in.npy")


@pytest.mark.parametrize(
    "x, options, error, word",
    [
        (2.0, {}, ValueError, "x has shape"),
        (None, {}, ValueError, "x has shape"),
        (iter(()), {}, TypeError, "x"),
        (np.ma.array(np.ones(8), mask=[1, 0] * 4), {}, TypeError, "x is a masked array"),
        (np.ma.array(np.ones(8)), {"op": "stride"}, TypeError, "x is a masked array"),
        (np.ones(8), {"nodata": [3]}, TypeError, "nodata"),
        (np.ones(8), {"nodata": True}, TypeError, "nodata"),
        (np.ones(8), {"nodata": 10**400}, ValueError, "nodata"),
        (np.ones(8, "f4"), {"nodata": 1e300}, ValueError, "nodata"),
        (np.ones(8, "u1"), {"nodata": np.inf}, ValueError, "nodata"),
        (np.ones(8), {"skipna": 1}, TypeError, "skipna"),
        (np.ones(8), {"axes": 3}, TypeError, "axes"),
        (np.ones(8), {"factors": 10**5000}, ValueError, "factors"),
        (np.ones(8), {"levels": -(10**5000)}, ValueError, "levels"),
        (np.ones(8), {"op": ("mean",)}, ValueError, "op"),
        ("in.npy", {"out": 3}, TypeError, "out"),
        ("in.npy", {"out": "no/such/folder.zarr"}, ValueError, "in.npy"),
    ],
)
def test_whatever_is_given_is_refused_by_name(x, options, error, word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=word) as caught:
        ln.pyramid(x, **options)
    assert len(str(caught.value)) < 500


def test_masks_within_dask_are_refused():
    x = da.ma.masked_equal(da.arange(8.0, chunks=4), 2)
    for options in ({}, {"nodata": 3}, {"op": "stride"}):
        with pytest.raises(TypeError, match="x is a masked array"):
            ln.pyramid(x, factors=2, **options)


@pytest.mark.parametrize("op", ["mode", "mean", "min"])
def test_the_byte_order_says_nothing(op):
    x = np.array([2, 2, 256, 256, 0, 5, 1, 1], "u2")  # 2 and 256 are 512 and 1 the other way round
    found = ln.pyramid(x.astype(">u2"), op=op, nodata=0, factors=4)[1]
    np.testing.assert_array_equal(found, ln.pyramid(x, op=op, nodata=0, factors=4)[1])
    assert found.dtype == np.uint16


def test_a_list_is_an_array():
    assert [level.tolist() for level in ln.pyramid([1.0, 2.0, 3.0, 5.0])] == [
        [1, 2, 3, 5],
        [1.5, 4],
    ]
