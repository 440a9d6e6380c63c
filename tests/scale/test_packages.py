"""A package that is missing is named with the line that installs it, and nothing is begun."""

import sys

import numpy as np
import pytest
import tifffile

from tests.scale.commands import lunette, volume
from tests.scale.test_refusals import refused


def without(monkeypatch, name):
    for module in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(
    ("package", "install", "out"),
    [
        ("zarr", "zarr", "out.zarr"),
        ("tifffile", "tifffile", "o.tif"),
        ("PIL", "pillow", "out.png"),
    ],
)
def test_of_an_output(tmp_path, monkeypatch, package, install, out):
    np.save(tmp_path / "in.npy", volume((8, 8)))
    without(monkeypatch, package)
    for command in (["pyramid"], ["pool", "max", "--kernel", "2,2"]):
        message = refused(tmp_path, *command, tmp_path / "in.npy", tmp_path / out)
        assert f"pip install {install}" in message
        assert len(message) < 200


def test_of_a_cluster(tmp_path, monkeypatch):
    np.save(tmp_path / "in.npy", volume((8, 8)))
    without(monkeypatch, "distributed")
    begin = ("pyramid", tmp_path / "in.npy", tmp_path / "out.zarr", "--scheduler", "tcp://x:1")
    assert "pip install distributed" in refused(tmp_path, *begin)


@pytest.mark.parametrize("how", ["lzw", "jpeg", "floats"])
def test_of_the_compression_of_a_tiff(tmp_path, monkeypatch, how):
    x = volume((64, 64), "f4" if how == "floats" else "u1")
    options = {"compression": "zlib", "predictor": 3} if how == "floats" else {"compression": how}
    tifffile.imwrite(tmp_path / "in.tif", x, photometric="minisblack", **options)
    lunette("pyramid", tmp_path / "in.tif", tmp_path / "out.npy", "--levels", 1, "--op", "max")
    (tmp_path / "out.1.npy").unlink()
    without(monkeypatch, "imagecodecs")
    begin = ("pyramid", tmp_path / "in.tif", tmp_path / "out.zarr", "--levels", 1)
    assert "pip install imagecodecs" in refused(tmp_path, *begin)
