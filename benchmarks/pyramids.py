"""A whole job, from disk to disk: three levels of a 2×2×2 mean of a Zarr volume, each tool in a process of its own.

`python -m benchmarks.pyramids TOOL SOURCE OUT` is one such process; `compare` runs them in turns and gives
wall time, processor time and peak memory of the whole process, with the time to load the tool.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

__all__ = ["TOOLS", "compare", "make_volume"]

CHUNK = 128
LEVELS = 3
TIMEOUT = 300


def make_volume(path: Path, depth: int) -> None:
    """A Zarr array of uint16, 1 GB at 512 planes: a smooth image with noise in the low bits."""
    import zarr

    rng = np.random.default_rng(0)
    y, x = np.mgrid[:1024, :1024]
    plane = 1000 + 600 * np.sin(x / 37) * np.cos(y / 53)
    noise = rng.integers(0, 64, (1024, 1024))
    array = zarr.create_array(
        str(path),
        shape=(depth, 1024, 1024),
        dtype="u2",
        chunks=(CHUNK,) * 3,
        compressors=zarr.codecs.ZstdCodec(level=1),
        dimension_names=["z", "y", "x"],
    )
    for first in range(0, depth, CHUNK):
        planes = [
            (np.roll(plane, 3 * z, 1) + np.roll(noise, 7 * z, 0)).astype("u2")
            for z in range(first, min(first + CHUNK, depth))
        ]
        array[first : first + len(planes)] = np.stack(planes)


# -- the tools --


def lunette(source: str, out: str) -> None:
    """Level 0, copied, and three more, with metadata, on the disk when it ends."""
    from lunette.cli import app

    app(["pyramid", source, out, "--levels", str(LEVELS), "--quiet"], standalone_mode=False)


def lunette_in_place(source: str, out: str) -> None:
    """Three levels beside the one that is there."""
    from lunette.cli import app

    app(["pyramid", out, "--in-place", "--levels", str(LEVELS), "--quiet"], standalone_mode=False)


def _tensorstore(source: str, out: str, copied: bool) -> None:
    import tensorstore as ts

    codecs = [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "zstd", "configuration": {"level": 1}},
    ]
    grid = {"name": "regular", "configuration": {"chunk_shape": [CHUNK] * 3}}

    def opened(path: str, shape: Any = None) -> Any:
        spec: dict[str, Any] = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}
        if shape is None:
            return ts.open(spec).result()
        spec["metadata"] = {"shape": list(shape), "data_type": "uint16", "chunk_grid": grid}
        spec["metadata"]["codecs"] = codecs
        return ts.open(spec, create=True).result()

    below = opened(source)
    if copied:
        level = opened(f"{out}/0", below.shape)
        level.write(below).result()
        below = level
    for number in range(1, LEVELS + 1):
        smaller = ts.downsample(below, [2, 2, 2], "mean")
        level = opened(f"{out}/{number}", smaller.shape)
        level.write(smaller).result()
        below = level


def tensorstore(source: str, out: str) -> None:
    """Three levels by the downsample driver, without level 0 and without metadata of an image."""
    _tensorstore(source, out, False)


def tensorstore_with_level_0(source: str, out: str) -> None:
    """The same, and level 0."""
    _tensorstore(source, out, True)


def ome_zarr(source: str, out: str) -> None:
    """ome-zarr-py's writer, from a Dask array."""
    import dask.array as da
    from ome_zarr.writer import write_image

    write_image(da.from_zarr(source), out, axes="zyx")


def ngff_zarr(source: str, out: str) -> None:
    """ngff-zarr's, by its Dask method."""
    import dask.array as da
    import ngff_zarr as nz

    image = nz.to_ngff_image(da.from_zarr(source), dims=["z", "y", "x"])
    factors = [2**k for k in range(1, LEVELS + 1)]
    levels = nz.to_multiscales(image, factors, method=nz.Methods.DASK_IMAGE_GAUSSIAN)
    nz.to_ngff_zarr(out, levels)


def multiscale_spatial_image(source: str, out: str) -> None:
    """multiscale-spatial-image's, by xarray's coarsening."""
    import dask.array as da
    from multiscale_spatial_image import Methods, to_multiscale
    from spatial_image import to_spatial_image

    image = to_spatial_image(da.from_zarr(source), dims=("z", "y", "x"))
    levels = to_multiscale(image, [2] * LEVELS, method=Methods.XARRAY_COARSEN)
    levels.to_zarr(out, mode="w")


def tinybrain_and_zarr(source: str, out: str) -> None:
    """The whole array in memory, in the order that tinybrain likes; no level 0."""
    import tinybrain
    import zarr

    array = np.asfortranarray(zarr.open_array(source, mode="r")[...])
    levels = tinybrain.downsample_with_averaging(array, (2, 2, 2), num_mips=LEVELS)
    codec = zarr.codecs.ZstdCodec(level=1)
    for number, level in enumerate(levels, 1):
        path = f"{out}/{number}"
        zarr.create_array(path, data=level, chunks=(CHUNK,) * 3, compressors=codec)


def dask_coarsen(source: str, out: str) -> None:
    """Levels by `dask.array.coarsen`, each from the one before on the disk; no level 0."""
    import dask.array as da

    below = da.from_zarr(source)
    for number in range(1, LEVELS + 1):
        level = da.coarsen(np.mean, below, {0: 2, 1: 2, 2: 2}).round().astype("u2")
        path = f"{out}/{number}"
        da.to_zarr(level.rechunk((CHUNK,) * 3), path)
        below = da.from_zarr(path)


TOOLS: dict[str, Callable[[str, str], None]] = {
    f.__name__: f
    for f in (
        *(lunette, lunette_in_place, tensorstore, tensorstore_with_level_0),
        *(ome_zarr, ngff_zarr, multiscale_spatial_image, tinybrain_and_zarr, dask_coarsen),
    )
}


# -- in turns --


def compare(source: Path, folder: Path, rounds: int, tools: list[str]) -> dict[str, Any]:
    """Medians of wall and processor seconds and of peak bytes; the last line of what failed instead."""
    found: dict[str, list[Any]] = {name: [] for name in tools}
    for round_ in range(rounds):
        for name in tools:
            if round_ and not name.startswith(("lunette", "tensorstore")):
                continue  # minutes each: once is enough
            out = folder / "out.zarr"
            shutil.rmtree(out, ignore_errors=True)
            if name == "lunette_in_place":
                _image_of_one_level(source, out)
            found[name].append(_measured(name, source, out))
    return {name: _summary(rows) for name, rows in found.items()}


def _image_of_one_level(source: Path, out: Path) -> None:
    import zarr

    rows = [{"name": a, "type": "space"} for a in "zyx"]
    scale = [{"type": "scale", "scale": [1.0, 1.0, 1.0]}]
    image = {"axes": rows, "datasets": [{"path": "0", "coordinateTransformations": scale}]}
    zarr.create_group(str(out), attributes={"ome": {"version": "0.5", "multiscales": [image]}})
    shutil.copytree(source, out / "0")


def _measured(name: str, source: Path, out: Path) -> tuple[float, float, int] | str:
    command = [sys.executable, "-m", "benchmarks.pyramids", name, str(source), str(out)]
    start = time.perf_counter()
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said) as process,
    ):
        deadline = start + TIMEOUT
        while True:
            number, status, used = os.wait4(process.pid, os.WNOHANG)
            if number:
                wall = time.perf_counter() - start
                process.returncode = os.waitstatus_to_exitcode(status)
                break
            if time.perf_counter() > deadline:
                process.kill()
            time.sleep(0.01)
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines()
    if process.returncode:
        return lines[-1] if lines and process.returncode > 0 else f"more than {TIMEOUT} s"
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def _summary(rows: list[Any]) -> Any:
    good = [row for row in rows if not isinstance(row, str)]
    if not good:
        return rows[-1]
    wall, processor, peak = (median(column) for column in zip(*good, strict=True))
    return {"wall": wall, "processor": processor, "peak": peak}


if __name__ == "__main__":
    TOOLS[sys.argv[1]](*sys.argv[2:])
