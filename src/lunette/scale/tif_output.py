"""TIFF files that are written from finished levels: tiled, a pyramid as sub-images of its first."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lunette.scale import interrupts
from lunette.scale.journal import state_of
from lunette.scale.lengths import SYMBOLS
from lunette.scale.placing import scales
from lunette.scale.plan import Job
from lunette.scale.storage import check_codec

__all__ = ["TILE", "is_ome", "tif_letters", "write_tif"]

TILE = 256
"""Rows and columns of a tile of a TIFF file."""


def is_ome(out: Path, multiscale: bool) -> bool:
    """Whether a TIFF of this name is an OME-TIFF."""
    return multiscale or out.name.lower().endswith((".ome.tif", ".ome.tiff"))


def _identity(job: Job, out: Path) -> str:
    """The UUID of an OME-TIFF: that of the job and its input, so that a job gives the same bytes again."""
    text = f"{out.name} {job.operator} {job.steps} {state_of(job.source)}"
    return str(uuid.uuid5(uuid.NAMESPACE_OID, text))


def write_tif(job: Job, path: Path, out: Path, multiscale: bool) -> None:
    """A tiled TIFF; a pyramid is an OME-TIFF whose smaller levels are sub-images of the first."""
    import tifffile

    axes = job.source.axes
    ome = is_ome(out, multiscale)
    arrays: list[Any] = [job.source, *job.levels] if multiscale else list(job.levels)
    channels = axes.endswith("c")
    options: dict[str, Any] = {
        "photometric": "rgb" if channels and arrays[0].shape[-1] in (3, 4) else "minisblack",
        "tile": (TILE, TILE),
        "dtype": np.dtype(job.source.dtype),
        **_compression(job.codec, arrays[0].dtype),
    }
    metadata = _metadata(job, 0 if multiscale else 1)
    if ome:
        metadata["UUID"] = _identity(job, out)
    with tifffile.TiffWriter(path, bigtiff=True, ome=ome) as writer:
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


def _compression(codec: str, dtype: str) -> dict[str, Any]:
    """Deflate or Zstandard of differences between neighbours, by the codec that was asked for."""
    name, level = check_codec(codec) if codec else ("none", 0)
    if name == "none":
        return {}
    options: dict[str, Any] = {"compression": "zstd" if name == "zstd" else "zlib"}
    options["compressionargs"] = {"level": level}
    if np.dtype(dtype).kind in "iu":
        options["predictor"] = 2
    return options


def tif_letters(axes: str) -> str:
    """The axes as OME-TIFF names them: samples last, and an axis of another kind under a free letter."""
    channels = axes.endswith("c")
    found = list(axes[:-1] + "s" if channels else axes)
    free = [a for a in "ctz" if a not in axes]
    for i, letter in enumerate(found):
        if letter.isdigit() and free:
            found[i] = free.pop(0)
    return "".join(found).upper()


def _metadata(job: Job, level: int) -> dict[str, Any]:
    """Axes, sizes of cells and names of channels, for OME-XML or the description of a plain TIFF."""
    source = job.source
    metadata: dict[str, Any] = {"axes": tif_letters(source.axes)}
    for a, s, unit in zip(source.axes, scales(job)[level][0], source.units, strict=True):
        if unit is None and s == 1:
            continue
        if a in "zyx":
            metadata[f"PhysicalSize{a.upper()}"] = s
            metadata[f"PhysicalSize{a.upper()}Unit"] = SYMBOLS.get(unit or "", "reference frame")
        if a == "t":
            metadata["TimeIncrement"] = s
            metadata["TimeIncrementUnit"] = SYMBOLS.get(unit or "", "s")
    kept = source.kept.group_attributes
    rows = kept.get("channels") or _omero_channels(kept)
    place = source.axes.find("c")
    if rows and 0 <= place < len(source.axes) - 1 and len(rows) == source.shape[place]:
        metadata["Channel"] = {"Name": [str(r.get("label", "")) for r in rows]}
        colors = [_color(r.get("color")) for r in rows]
        if all(c is not None for c in colors):
            metadata["Channel"]["Color"] = colors
    return metadata


def _omero_channels(kept: dict[str, Any]) -> list[Any]:
    found = kept.get("omero")
    rows = found.get("channels") if isinstance(found, dict) else None
    return rows if isinstance(rows, list) and all(isinstance(r, dict) for r in rows) else []


def _color(text: Any) -> int | None:
    """RGBA in a signed integer, of six digits."""
    if not isinstance(text, str) or not re.fullmatch("[0-9a-fA-F]{6}", text):
        return None
    value = int(text, 16) << 8 | 0xFF
    return value - (1 << 32) if value >= 1 << 31 else value


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
