"""HDF5, NIfTI, N5 and precomputed volumes, as h5py, nibabel and TensorStore write them."""

import gzip

import h5py
import nibabel
import numpy as np
import pytest
import zarr

from lunette.scale.opening import open_source
from tests.scale.commands import halved, lunette, volume


def levels(source, folder, *options):
    lunette("pyramid", source, folder / "out.zarr", "--levels", 1, "--op", "mean", *options)
    group = zarr.open_group(str(folder / "out.zarr"), mode="r")
    return group["0"][...], group["1"][...]


# -- HDF5 --


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunks": (4, 5, 6)},
        {"chunks": (4, 5, 6), "compression": "gzip"},
        {"chunks": (4, 5, 6), "compression": "gzip", "shuffle": True, "fletcher32": True},
        {"chunks": (4, 5, 6), "compression": "lzf"},
    ],
)
@pytest.mark.parametrize("dtype", ["u2", ">f4"])
def test_hdf5(tmp_path, options, dtype):
    x = volume((9, 14, 11), dtype)
    with h5py.File(tmp_path / "in.h5", "w") as file:
        data = file.create_dataset("a/b", data=x, **options)
        file["other"] = [1]
        for dim, label in zip(data.dims, "tyx", strict=True):
            dim.label = label
        data.attrs["element_size_um"] = [3.0, 0.5, 0.5]
    place = f"{tmp_path / 'in.h5'}:/a/b"
    full, half = levels(place, tmp_path)
    np.testing.assert_array_equal(full, x)
    np.testing.assert_array_equal(half, halved(x.astype(x.dtype.newbyteorder("=")), (1, 2)))
    found = open_source(tmp_path / "in.h5", "a/b")
    assert (found.names, found.scale[1:]) == (("t", "y", "x"), (0.5, 0.5))


def test_hdf5_that_was_not_written_everywhere(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        data = file.create_dataset(
            "a", (8, 8), "u1", chunks=(4, 4), compression="gzip", fillvalue=7
        )
        data[:4, :4] = 1
    full, _ = levels(tmp_path / "in.h5", tmp_path)
    assert (full[:4, :4] == 1).all()
    assert (full[4:] == 7).all()
    assert zarr.open_group(str(tmp_path / "out.zarr"), mode="r")["1"].fill_value == 7


def test_hdf5_that_is_refused(tmp_path):
    path = tmp_path / "in.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("bomb", (8, 8), "u1", chunks=(8, 8), compression="gzip")
        import zlib

        data.id.write_direct_chunk((0, 0), zlib.compress(bytes(1 << 26), 9))
        file["words"] = ["a", "b"]
        file["away"] = h5py.ExternalLink("/etc/passwd", "/x")
        file["soft"] = h5py.SoftLink("/bomb")
        file.create_group("group")
    begin = ("pyramid", f"{path}:/bomb", tmp_path / "out.zarr")
    for name, words in [
        ("bomb", "the stream holds more"),
        ("words", "expected numbers"),
        ("away", "is a link"),
        ("soft", "is a link"),
        ("group", "not a dataset"),
        ("none", "there is no 'none'"),
        ("", "name one, as in file.h5:/path, of bomb, words"),
    ]:
        place = f"{path}:/{name}" if name else path
        assert words in lunette("pyramid", place, tmp_path / "out.zarr", code=1)
        assert not list(tmp_path.glob("out*"))
    path.write_bytes(b"rubbish")
    assert "cannot be read as hdf5" in lunette(*begin, code=1)


# -- NIfTI --


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize("scaled", [False, True])
def test_nifti(tmp_path, suffix, scaled):
    x = volume((7, 9, 10, 3), "i2")  # x, y, z, t
    image = nibabel.Nifti1Image(x, np.diag([0.5, 0.5, 2.0, 1.0]))
    image.header.set_xyzt_units("mm", "sec")
    image.header["pixdim"][4] = 1.5
    if scaled:
        image.header.set_slope_inter(0.5, 3)
    path = tmp_path / f"in{suffix}"
    nibabel.save(image, path)
    full, half = levels(path, tmp_path)
    expected = np.asarray(nibabel.load(path).dataobj).transpose(3, 2, 1, 0)
    np.testing.assert_array_equal(full, expected)
    assert full.dtype == (np.float64 if scaled else np.int16)
    np.testing.assert_array_equal(half, halved(np.ascontiguousarray(expected), (2, 3)))
    found = open_source(path)
    assert (found.axes, found.scale) == ("xyzt", (0.5, 0.5, 2.0, 1.5))
    assert found.units == ("millimeter",) * 3 + ("second",)


def test_nifti_that_lies(tmp_path):
    image = nibabel.Nifti1Image(volume((8, 8, 8)), np.eye(4))
    nibabel.save(image, tmp_path / "in.nii")
    data = (tmp_path / "in.nii").read_bytes()
    out = tmp_path / "out.zarr"
    huge = bytearray(data)
    huge[42:44] = (30000).to_bytes(2, "little")  # dim[1], NIfTI-1, nifti1.h
    for name, text in [
        ("a.nii", bytes(huge)),
        ("b.nii", data[:200]),
        ("c.nii", data[:-9]),
        ("d.nii.gz", gzip.compress(bytes(huge))),
        ("e.nii.gz", gzip.compress(data)[:100]),
        ("f.nii", b"rubbish" * 99),
    ]:
        (tmp_path / name).write_bytes(text)
        message = lunette("pyramid", tmp_path / name, out, code=1)
        assert message.startswith("error: ")
        assert message.count("\n") == 1
        assert not list(tmp_path.glob("out*"))


# -- TensorStore's --


@pytest.mark.parametrize("driver", ["n5", "neuroglancer_precomputed"])
def test_volumes_of_tensorstore(tmp_path, driver):
    ts = pytest.importorskip("tensorstore")
    x = volume((11, 8, 9), "u2")
    spec = {
        "driver": driver,
        "kvstore": {"driver": "file", "path": f"{tmp_path / 'in'}/"},
        "create": True,
        "dtype": "uint16",
    }
    if driver == "n5":
        compression = {"type": "gzip"}
        spec["metadata"] = {
            "dimensions": [11, 8, 9],
            "blockSize": [4] * 3,
            "compression": compression,
        }
        data = x
    else:
        shape = {
            "domain": {"shape": [11, 8, 9, 1]},
            "chunk_layout": {"chunk": {"shape": [4, 4, 4, 1]}},
        }
        spec["schema"] = {**shape, "dimension_units": ["4nm", "4nm", "40nm", None]}
        data = x[..., None]
    ts.open(spec).result().write(data).result()
    factors = ("--factors", "2")
    full, half = levels(tmp_path / "in", tmp_path, *factors)
    expected = np.ascontiguousarray(data.T)
    np.testing.assert_array_equal(full, expected)
    np.testing.assert_array_equal(half[..., :, :, :].reshape(5, 4, 6), halved(x.T.copy()))
    if driver != "n5":
        assert open_source(tmp_path / "in").scale[:3] == (4, 4, 40)
