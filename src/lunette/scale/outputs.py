"""What an output looks like: a Zarr folder, or files that are made from levels once these are done."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lunette.scale import interrupts
from lunette.scale.durable import sync_file, sync_tree
from lunette.scale.errors import ScaleError
from lunette.scale.journal import state_of
from lunette.scale.ngff import write_metadata
from lunette.scale.opening import SYMBOLS
from lunette.scale.plan import Job
from lunette.scale.stores import Source

__all__ = ["begin", "check_format", "final_paths", "level_path", "made_paths", "make", "tidy"]

TILE = 256
"""Rows and columns of a tile of a TIFF file."""


def check_format(
    out: Path, kind: str, source: Source, out_shape: tuple[int, ...], multiscale: bool
) -> None:
    """Refuse an array that the format of the output cannot hold."""
    dtype, axes = np.dtype(source.dtype), source.axes
    if kind == "png":
        image = axes == "yx" or (axes == "yxc" and out_shape[-1] in (2, 3, 4))
        if not image:
            raise ScaleError(
                f"a PNG holds axes yx or yxc of 2 to 4 channels; OUT would have axes {axes}, shape "
                f"{out_shape}"
            )
        allowed = ("bool", "uint8", "uint16") if axes == "yx" else ("uint8",)
        if dtype.name not in allowed:
            raise ScaleError(
                f"a PNG of axes {axes} holds {', '.join(allowed)}; IN has dtype {dtype}"
            )
    if (
        kind == "tif"
        and _is_ome(out, multiscale)
        and dtype.name in ("float16", "int64", "uint64", "bool")
    ):
        raise ScaleError(f"OME-TIFF does not hold dtype {dtype}; write Zarr instead")
    if kind == "tif" and len(axes) < 2:
        raise ScaleError(f"a TIFF holds images; IN has shape {source.shape}")
    if kind == "zarr" and multiscale and not {"y", "x"} <= set(axes):
        raise ScaleError(
            f"OME-NGFF wants at least axes y and x; IN has {axes!r}: give --axes, or write another "
            "format"
        )


def _is_ome(out: Path, multiscale: bool) -> bool:
    return multiscale or out.name.lower().endswith((".ome.tif", ".ome.tiff"))


def level_path(root: Path, kind: str, multiscale: bool, level: int) -> Path:
    """Where a level is written while the work goes on, in the folder of the run."""
    if kind == "zarr":
        return root / "zarr" / str(level) if multiscale else root / "zarr"
    return root / f"level-{level}.npy"


def final_paths(out: Path, kind: str, multiscale: bool, levels: int) -> list[Path]:
    """The files that there will be: levels of a `.npy` or `.png` pyramid are numbered files."""
    if kind in ("zarr", "tif") or not multiscale:
        return [out]
    return [out.with_name(f"{out.stem}.{k}{out.suffix}") for k in range(1, levels + 1)]


def made_paths(root: Path, kind: str, multiscale: bool, levels: int) -> list[Path]:
    """What will get those names, in the folder of the run."""
    if kind == "zarr":
        return [root / "zarr"]
    if kind == "npy":
        return [level_path(root, kind, multiscale, k) for k in range(1, levels + 1)]
    return [root / f"made-{k}.{kind}" for k in range(1, 2 if kind == "tif" else levels + 1)]


def begin(root: Path, kind: str, multiscale: bool) -> None:
    """An empty group for the levels."""
    if kind == "zarr" and multiscale:
        import zarr

        zarr.create_group(str(root / "zarr"), zarr_format=3)


def tidy(root: Path, kind: str) -> None:
    """Take away the chunks that a killed run had begun to write, under names of their own."""
    if kind == "zarr":
        for path in (root / "zarr").rglob("*.partial"):
            path.unlink(missing_ok=True)


def make(job: Job, out: Path, kind: str, multiscale: bool, made: list[Path]) -> None:
    """Make what is to be called `out` from its finished levels, and have it on the disk."""
    if kind == "zarr":
        if multiscale:
            import zarr

            zarr.open_group(str(made[0]), mode="r+").attrs.update(_metadata(job, out))
        sync_tree(made[0])
        return
    for path, level in zip(made, job.levels, strict=False):
        if kind == "npy":
            sync_file(path)
            continue
        temporary = path.with_name(path.name + ".new")
        if kind == "tif":
            _write_tif(
                job, temporary, multiscale, _identity(job, out) if _is_ome(out, multiscale) else ""
            )
        else:
            _write_png(np.load(level.path, mmap_mode="r"), temporary)
        sync_file(temporary)
        os.replace(temporary, path)


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

    Image.fromarray(np.ascontiguousarray(array)).save(path, format="PNG")


def _identity(job: Job, out: Path) -> str:
    """The UUID of an OME-TIFF: that of the job and its input, so that a job gives the same bytes again."""
    text = f"{out.name} {job.operator} {job.steps} {state_of(job.source)}"
    return str(uuid.uuid5(uuid.NAMESPACE_OID, text))


def _write_tif(job: Job, path: Path, multiscale: bool, identity: str) -> None:
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
    for a, s, unit in zip(axes, sizes, job.source.units, strict=True):
        if a in "zyx" and (unit is not None or s != 1):
            metadata[f"PhysicalSize{a.upper()}"] = s
            metadata[f"PhysicalSize{a.upper()}Unit"] = SYMBOLS.get(unit or "", "reference frame")
    if identity:
        metadata["UUID"] = identity
    with tifffile.TiffWriter(path, bigtiff=True, ome=bool(identity)) as writer:
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


def _tiles(array: Any, channels: bool) -> Iterator[Any]:
    """The tiles of every plane, in the order in which TIFF wants them."""
    shape = array.shape[:-1] if channels else array.shape
    last = ((0, array.shape[-1]),) if channels else ()
    *planes, height, width = shape
    for plane in product(*map(range, planes)):
        for y in range(0, height, TILE):
            interrupts.check()
            ranges = tuple((p, p + 1) for p in plane)
            ranges += ((y, min(y + TILE, height)), (0, width), *last)
            row = array.read(ranges)  # of a stored strip, which is then decoded once
            row = row.reshape(row.shape[len(planes) :])
            for x in range(0, width, TILE):
                yield np.ascontiguousarray(row[:, x : x + TILE])
