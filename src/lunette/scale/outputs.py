"""What an output looks like: Zarr is written in place; files are gathered in a folder, then made."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lunette.scale.errors import ScaleError
from lunette.scale.ngff import write_metadata
from lunette.scale.plan import Job
from lunette.scale.stores import Source

__all__ = ["begin", "check_format", "final_paths", "finish", "level_path", "remove"]

TILE = 256
"""Rows and columns of a tile of a TIFF file."""


def check_format(kind: str, source: Source, out_shape: tuple[int, ...], multiscale: bool) -> None:
    """Refuse an array that the format of the output cannot hold."""
    dtype, axes = np.dtype(source.dtype), source.axes
    if kind == "png":
        image = axes == "yx" or (axes == "yxc" and out_shape[-1] in (2, 3, 4))
        if not image:
            raise ScaleError(
                f"a PNG holds axes yx or yxc; IN has axes {axes}, shape {source.shape}"
            )
        allowed = ("bool", "uint8", "uint16") if axes == "yx" else ("uint8",)
        if dtype.name not in allowed:
            raise ScaleError(
                f"a PNG of axes {axes} holds {', '.join(allowed)}; IN has dtype {dtype}"
            )
    if kind == "tif" and multiscale and dtype.name in ("float16", "int64", "uint64", "bool"):
        raise ScaleError(f"OME-TIFF does not hold dtype {dtype}; write Zarr instead")
    if kind == "tif" and len(axes) < 2:
        raise ScaleError(f"a TIFF holds images; IN has shape {source.shape}")
    if kind == "zarr" and multiscale:
        order = "".join(a for a in "tczyx" if a in axes)
        if axes != order or sum(a in "zyx" for a in axes) < 2:
            raise ScaleError(
                f"OME-NGFF wants axes in the order t, c, z, y, x with at least y and x; IN has "
                f"{axes!r}: give --axes, or write another format"
            )


def level_path(out: Path, kind: str, multiscale: bool, level: int) -> Path:
    """Where a level is written while the work goes on."""
    if kind == "zarr":
        return out / str(level) if multiscale else out
    return _folder(out) / f"level-{level}.npy"


def final_paths(out: Path, kind: str, multiscale: bool, levels: int) -> list[Path]:
    """The files that there will be: levels of a `.npy` or `.png` pyramid are numbered files."""
    if kind in ("zarr", "tif") or not multiscale:
        return [out]
    return [out.with_name(f"{out.stem}.{k}{out.suffix}") for k in range(1, levels + 1)]


def remove(out: Path, kind: str, multiscale: bool, levels: int) -> None:
    """Take away an earlier output and what an unfinished run left."""
    for path in [_folder(out), *final_paths(out, kind, multiscale, levels)]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def begin(out: Path, kind: str, multiscale: bool) -> None:
    """An empty group or folder for the levels."""
    if kind == "zarr":
        if multiscale:
            import zarr

            zarr.create_group(str(out), zarr_format=3)
    else:
        _folder(out).mkdir()


def finish(job: Job, out: Path, kind: str, multiscale: bool) -> None:
    """Make the output from its finished levels; a file appears whole, under its name, or not at all."""
    if kind == "zarr":
        if multiscale:
            import zarr

            zarr.open_group(str(out), mode="r+").attrs.update(_metadata(job, out))
        return
    paths = final_paths(out, kind, multiscale, len(job.levels))
    if kind == "npy":
        for level, path in zip(job.levels, paths, strict=True):
            Path(level.path).replace(path)
    elif kind == "png":
        for level, path in zip(job.levels, paths, strict=True):
            _write_png(np.load(level.path, mmap_mode="r"), path)
    else:
        _write_tif(job, out, multiscale)
    shutil.rmtree(_folder(out))


def _folder(out: Path) -> Path:
    return out.with_name(out.name + ".partial")


def scales(job: Job) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """The scale and translation of level 0 and of every level after it.

    A cell of a pooled level stands at the centre of its window, one that was subsampled at the
    cell that was taken. A window of k cells at stride s centres (k−1)/2 cells after its first.
    """
    found = [(job.source.scale, job.source.translation)]
    for step in job.steps:
        scale, translation = found[-1]
        strides = [r.stride or 1 for r in step.regions]  # type: ignore[attr-defined]
        shifts = [(r.kernel - 1) / 2 for r in step.regions]  # type: ignore[attr-defined]
        found.append(
            (
                tuple(s * k for s, k in zip(scale, strides, strict=True)),
                tuple(t + s * h for t, s, h in zip(translation, scale, shifts, strict=True)),
            )
        )
    return found


def _metadata(job: Job, out: Path) -> dict[str, Any]:
    datasets = [(str(k), *pair) for k, pair in enumerate(scales(job))]
    name = out.name.removesuffix(".zarr").removesuffix(".ome")
    return write_metadata(name, job.source.axes, job.source.units, datasets, job.operator)


def _write_png(array: Any, path: Path) -> None:
    from PIL import Image

    temporary = path.with_name(path.name + ".new")
    Image.fromarray(np.ascontiguousarray(array)).save(temporary, format="PNG")
    temporary.replace(path)


def _write_tif(job: Job, out: Path, multiscale: bool) -> None:
    """A tiled TIFF; a pyramid is an OME-TIFF whose smaller levels are sub-images of the first."""
    import tifffile

    axes = job.source.axes
    arrays: list[Any] = [job.source, *job.levels] if multiscale else list(job.levels)
    channels = axes.endswith("c")
    sizes = scales(job)[0 if multiscale else 1][0]
    options: dict[str, Any] = {
        "photometric": "rgb" if channels and arrays[0].shape[-1] in (3, 4) else "minisblack",
        "tile": (TILE, TILE),
        "dtype": np.dtype(job.source.dtype),
    }
    metadata: dict[str, Any] = {"axes": (axes[:-1] + "s" if channels else axes).upper()}
    metadata |= {
        f"PhysicalSize{a.upper()}": s for a, s in zip(axes, sizes, strict=True) if a in "zyx"
    }
    temporary = out.with_name(out.name + ".new")
    with tifffile.TiffWriter(temporary, bigtiff=True, ome=multiscale) as writer:
        for number, array in enumerate(arrays):
            first = number == 0
            writer.write(
                _tiles(array, channels),
                shape=array.shape,
                subifds=len(arrays) - 1 if first and multiscale else None,
                subfiletype=0 if first else 1,
                metadata=metadata if first else None,
                **options,
            )
    temporary.replace(out)


def _tiles(array: Any, channels: bool) -> Iterator[Any]:
    """The tiles of every plane, in the order in which TIFF wants them."""
    shape = array.shape[:-1] if channels else array.shape
    last = ((0, array.shape[-1]),) if channels else ()
    *planes, height, width = shape
    for plane in product(*map(range, planes)):
        for y, x in product(range(0, height, TILE), range(0, width, TILE)):
            ranges = tuple((p, p + 1) for p in plane)
            ranges += ((y, min(y + TILE, height)), (x, min(x + TILE, width)), *last)
            tile = array.read(ranges)
            yield np.ascontiguousarray(tile.reshape(tile.shape[len(planes) :]))
