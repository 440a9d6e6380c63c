"""DataArrays are pooled by dimension, with the coordinates of window centres."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import lunette as ln


def image():
    data = np.random.default_rng(0).normal(size=(6, 3, 8)).astype("f4")
    return xr.DataArray(
        data,
        dims=("y", "band", "x"),
        coords={
            "y": np.linspace(50.0, 40.0, 6),
            "x": 10 + 2 * np.arange(8),
            "band": ["red", "green", "blue"],
            "row": ("y", list("abcdef")),
            "lat": (("y", "x"), np.zeros((6, 8))),
            "when": 2026,
        },
        attrs={"units": "K"},
        name="temperature",
    )


def test_dimensions_by_name_keep_their_places():
    x = image()
    y = ln.max_pool(x, {"x": 3, "y": 3}, stride=2)
    assert y.dims == ("y", "band", "x")
    expected = ln.max_pool(x.transpose("band", "y", "x").values, (3, 3), stride=2)
    np.testing.assert_array_equal(y.transpose("band", "y", "x").values, expected)
    assert y.attrs == {"units": "K"}
    assert y.name == "temperature"


def test_coordinates_are_those_of_window_centres():
    x = image()
    y = ln.max_pool(x, {"x": 3, "y": 2}, stride=2)
    np.testing.assert_allclose(y.y, [49.0, 45.0, 41.0])
    np.testing.assert_array_equal(y.x, [12, 16, 20])
    assert y.x.dtype == x.x.dtype
    assert list(y.band.values) == ["red", "green", "blue"]
    assert y.when == 2026
    assert "row" not in y.coords  # words have no middle
    assert "lat" not in y.coords


def test_the_centre_of_a_padded_window_may_lie_outside():
    x = xr.DataArray(np.arange(4.0), dims="t", coords={"t": [0.0, 10.0, 20.0, 30.0]})
    y = ln.avg_pool(x, {"t": 2}, stride=2, padding=1)
    np.testing.assert_array_equal(y.t, [-5, 15, 35])
    np.testing.assert_array_equal(ln.max_pool(x, {"t": 3}, stride=1, padding=1).t, x.t)
    np.testing.assert_array_equal(ln.adaptive_max_pool(x, {"t": 2}).t, [5, 25])
    np.testing.assert_array_equal(ln.max_pool(x, {"t": 2}, stride=1, dilation=2).t, [10, 20])


def test_times_are_interpolated_exactly():
    days = np.array(["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-05"], "M8[ns]")
    x = xr.DataArray(np.arange(4.0), dims="t", coords={"t": days})
    y = ln.avg_pool(x, {"t": 2})
    expected = np.array(["2026-01-01T12", "2026-01-04"], "M8[ns]")
    np.testing.assert_array_equal(y.t.values, expected)


def test_times_to_the_nanosecond_and_times_that_are_missing():
    first = np.datetime64("1990-01-01T00:00:00.000000001")
    moments = first + np.arange(12_000).astype("m8[D]").astype("m8[ns]")
    x = xr.DataArray(np.zeros(12_000), dims="t", coords={"t": moments})
    y = ln.avg_pool(x, {"t": 2})
    np.testing.assert_array_equal(y.t.values, moments[::2] + np.timedelta64(12, "h"))
    moments[5] = "NaT"
    y = ln.avg_pool(x.assign_coords(t=moments), {"t": 2})
    assert list(np.flatnonzero(np.isnat(y.t.values))) == [2]


def test_options_by_name():
    x = image()
    y = ln.max_pool(
        x, kernel={"y": 3, "x": 2}, stride={"x": 1, "y": 2}, padding={"x": (0, 1), "y": 1}
    )
    expected = ln.max_pool(x.transpose("band", "y", "x").values, (3, 2), (2, 1), ((1, 1), (0, 1)))
    np.testing.assert_array_equal(y.transpose("band", "y", "x").values, expected)
    value, indices = ln.max_pool(x, {"x": 2}, return_indices=True)
    assert value.dims == indices.dims == x.dims
    assert indices.dtype == np.int64


def test_verbs_of_an_op_pool_the_last_dimensions():
    x = image().transpose("band", "y", "x")
    op = ln.SmoothMaxPool((2, 2), beta=1.0)
    y = op(x)
    np.testing.assert_array_equal(y.values, op(x.values))
    np.testing.assert_array_equal(op.jvp(x, x).values, op.jvp(x.values, x.values))
    gx = op.vjp(x, y)
    np.testing.assert_array_equal(gx.values, op.vjp(x.values, y.values))
    xr.testing.assert_equal(gx.x, x.x)
    whole = ln.global_avg_pool(x, 2, keepdims=False)
    assert whole.dims == ("band",)
    np.testing.assert_array_equal(whole.values, ln.global_avg_pool(x.values, 2, keepdims=False))


def test_lazy_arrays_stay_lazy():
    x = image().chunk({"x": 3, "y": 2})
    y = ln.avg_pool(x, {"x": 3, "y": 3}, stride=2, padding=1)
    assert isinstance(y.data, da.Array)
    xr.testing.assert_identical(y.compute(), ln.avg_pool(image(), {"x": 3, "y": 3}, 2, 1))


def test_what_is_refused():
    x = image()
    with pytest.raises(ValueError, match=r"dimension 'z': expected one of"):
        ln.max_pool(x, {"z": 2})
    with pytest.raises(ValueError, match="at least one dimension"):
        ln.max_pool(x, {})
    with pytest.raises(TypeError, match="expected x to be an xarray DataArray, got ndarray"):
        ln.max_pool(x.values, {"x": 2})
    with pytest.raises(ValueError, match=r"stride={'x': 2}: expected the dimensions"):
        ln.max_pool(x, {"x": 2, "y": 2}, stride={"x": 2})
    with pytest.raises(TypeError, match="expected one number or a dict by name"):
        ln.max_pool(x, {"x": 2, "y": 2}, stride=(1, 2))
    with pytest.raises(ValueError, match="longer than the padded input"):
        ln.max_pool(x, {"x": 9})
    with pytest.raises(TypeError, match=r"convolve x\.data"):
        ln.conv(x, np.ones((1, 3, 2), "f4"))
