"""Precomputed volumes by the words of their format; TensorStore reads them too, where it is installed."""

import json

import numpy as np
import pytest
import zarr

import lunette as ln
from tests.scale.commands import halved, lunette, volume


def cells(folder, level):
    """A level put together from its files, as (channels, z, y, x)."""
    info = json.loads((folder / "info").read_text())
    scale = info["scales"][level]
    sizes, (chunk,) = scale["size"], scale["chunk_sizes"]
    out = np.full([info["num_channels"], *sizes[::-1]], 77, info["data_type"])
    found = set()
    for path in (folder / scale["key"]).glob("*_*_*"):
        (a, b), (c, d), (e, f) = ([int(n) for n in r.split("-")] for r in path.name.split("_"))
        assert all(lo % n == 0 for lo, n in zip((a, c, e), chunk, strict=True))
        block = np.frombuffer(path.read_bytes(), np.dtype(info["data_type"]).newbyteorder("<"))
        out[:, e:f, c:d, a:b] = block.reshape((b - a, d - c, f - e, -1), order="F").T
        found.add(path.name)
    assert len(found) == np.prod([-(-n // c) for n, c in zip(sizes, chunk, strict=True)])
    return out


@pytest.mark.parametrize("shape", [(20, 26), (12, 20, 26), (3, 12, 20, 26)])
def test_a_volume(tmp_path, shape):
    x = volume(shape, "u2")
    np.save(tmp_path / "in.npy", x)
    out = tmp_path / "out.precomputed"
    chunks = ",".join(["8"] * len(shape))
    begin = ("pyramid", tmp_path / "in.npy", out, "--levels", 2, "--op", "mean", "--chunks", chunks)
    lunette(*begin)
    axes = range(len(shape))[-3:]
    for level in range(3):
        expected = x.reshape((1,) * (4 - x.ndim) + x.shape)
        np.testing.assert_array_equal(cells(out, level), expected)
        x = halved(x, axes)
    assert "exists" in lunette(*begin, code=1)
    lunette(*begin, "--force")
    (out / "notes.txt").write_text("my own")
    assert "notes.txt" in lunette(*begin, "--force", code=1)


def test_labels_and_sizes(tmp_path):
    x = np.kron(volume((4, 4, 4), "u8"), np.ones((6, 6, 6), "u8"))
    source, out = tmp_path / "in.zarr", tmp_path / "out.precomputed"
    ln.pyramid(_zarr(source, x), out, op="mode", levels=2, threads=1, chunks=(5, 5, 5))
    info = json.loads((out / "info").read_text())
    assert info["type"] == "segmentation"
    assert [s["resolution"] for s in info["scales"]] == [[4000.0 * 2**k] * 3 for k in range(3)]
    expected = ln.mode_pool(ln.mode_pool(x, (2, 2, 2)), (2, 2, 2))
    np.testing.assert_array_equal(cells(out, 2)[0], expected)


def test_another_reader(tmp_path):
    tensorstore = pytest.importorskip("tensorstore", reason="another reader of these volumes")
    x, out = volume((3, 12, 20, 26)), tmp_path / "out.precomputed"
    np.save(tmp_path / "in.npy", x)
    lunette(
        "pyramid", tmp_path / "in.npy", out, "--levels", 1, "--op", "mean", "--chunks", "3,8,8,8"
    )
    for level, expected in enumerate((x, halved(x, (1, 2, 3)))):
        spec = {"driver": "neuroglancer_precomputed", "scale_index": level}
        store = tensorstore.open(spec | {"kvstore": {"driver": "file", "path": f"{out}/"}}).result()
        np.testing.assert_array_equal(store.read().result().T, expected)


def _zarr(path, x):
    """An image of one level, in cells of 4 µm."""
    group = zarr.create_group(str(path))
    group.create_array("0", data=x)
    axes = [{"name": a, "type": "space", "unit": "micrometer"} for a in "zyx"]
    scale = [{"type": "scale", "scale": [4.0] * 3}]
    row = {"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": scale}]}
    group.attrs["ome"] = {"version": "0.5", "multiscales": [row]}
    return path


def test_what_is_refused(tmp_path):
    out = tmp_path / "out.precomputed"
    for data, words in [
        (volume((2, 3, 8, 8, 8)), "holds x, y, z and channels"),
        (volume((8, 8), "f8"), "integers and float32"),
    ]:
        np.save(tmp_path / "in.npy", data)
        assert words in lunette("pyramid", tmp_path / "in.npy", out, code=1)
    np.save(tmp_path / "in.npy", volume((8, 8)))
    begin = (tmp_path / "in.npy", out)
    assert "raw" in lunette("pyramid", *begin, "--codec", "zstd", code=1)
    assert "alone" in lunette("pool", "max", *begin, "--kernel", "2,2", code=1)
    assert not list(tmp_path.glob("out*"))
