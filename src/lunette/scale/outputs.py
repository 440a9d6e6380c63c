"""What an output looks like: a Zarr folder, or files that are made from levels once these are done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from lunette.scale import png, precomputed
from lunette.scale.containers import is_remote
from lunette.scale.durable import sync_file, sync_tree
from lunette.scale.errors import ScaleError
from lunette.scale.label_groups import copy_labels
from lunette.scale.ngff import write_image
from lunette.scale.placing import scales
from lunette.scale.plan import Job
from lunette.scale.stores import Source
from lunette.scale.tif_output import is_ome, write_tif
from lunette.scale.zarr_output import (
    array_metadata,
    create_group,
    group_metadata,
    replace_json,
    send_json,
    set_attributes,
)

__all__ = [
    "FOLDERS",
    "begin",
    "check_format",
    "final_paths",
    "level_path",
    "made_paths",
    "make",
    "tidy",
]


FOLDERS = ("zarr", "precomputed")
"""Outputs that are a folder of chunks."""


def check_format(
    out: Path, kind: str, source: Source, out_shape: tuple[int, ...], multiscale: bool
) -> None:
    """Refuse an array that the format of the output cannot hold."""
    dtype, axes = np.dtype(source.dtype), source.axes
    if kind == "png":
        image = axes == "yx" or (axes == "yxc" and out_shape[-1] in png.DTYPES)
        if not image:
            raise ScaleError(
                f"a PNG holds axes yx or yxc of 2 to 4 channels; OUT would have axes {axes}, shape "
                f"{out_shape}"
            )
        allowed = png.DTYPES[1 if axes == "yx" else out_shape[-1]]
        if dtype.name not in allowed:
            raise ScaleError(
                f"a PNG of axes {axes} holds {', '.join(allowed)}; IN has dtype {dtype}"
            )
    if (
        kind == "tif"
        and is_ome(out, multiscale)
        and dtype.name in ("float16", "int64", "uint64", "bool")
    ):
        raise ScaleError(f"OME-TIFF does not hold dtype {dtype}; write Zarr instead")
    if kind == "tif" and len(axes) < 2:
        raise ScaleError(f"a TIFF holds images; IN has shape {source.shape}")
    if kind == "zarr" and multiscale:
        _check_ngff(source)
    if kind == "precomputed":
        precomputed.check(axes, source.names, source.dtype, multiscale)


def _check_ngff(source: Source) -> None:
    axes = source.axes
    if not {"y", "x"} <= set(axes):
        raise ScaleError(
            f"OME-NGFF wants at least axes y and x; IN has {','.join(source.names)}: give --axes, or "
            "write another format"
        )
    others = sum(a not in "tzyx" for a in axes)
    if others > 1:
        raise ScaleError(
            f"OME-NGFF holds one axis besides time and space; IN has {','.join(source.names)}: choose "
            "one array of them, or write .npy"
        )


def level_path(root: Any, kind: str, multiscale: bool, level: int) -> Any:
    """Where a level is written while the work goes on, in the folder of the run."""
    if is_remote(str(root)):
        return f"{root}/{level}" if multiscale else root
    if kind in FOLDERS:
        return root / "zarr" / str(level) if multiscale else root / "zarr"
    return root / f"level-{level}.npy"


def final_paths(out: Path, kind: str, multiscale: bool, levels: int) -> list[Path]:
    """The files that there will be: levels of a `.npy` or `.png` pyramid are numbered files."""
    if kind in (*FOLDERS, "tif") or not multiscale:
        return [out]
    return [out.with_name(f"{out.stem}.{k}{out.suffix}") for k in range(1, levels + 1)]


def made_paths(
    root: Any, kind: str, multiscale: bool, levels: int, added: bool = False
) -> list[Path]:
    """What will get those names, in the folder of the run; on the network it has them already."""
    if is_remote(str(root)):
        return []
    if added:
        return [level_path(root, kind, multiscale, k) for k in range(1, levels + 1)]
    if kind in FOLDERS:
        return [root / "zarr"]
    if kind == "npy":
        return [level_path(root, kind, multiscale, k) for k in range(1, levels + 1)]
    return [root / f"made-{k}.{kind}" for k in range(1, 2 if kind == "tif" else levels + 1)]


def begin(job: Job, root: Any, kind: str, multiscale: bool) -> None:
    """An empty group for the levels."""
    if kind == "zarr" and multiscale and not is_remote(str(root)):
        create_group(root / "zarr", version_of(job))


def version_of(job: Job) -> int:
    """The version of Zarr that is written."""
    storage = job.levels[0].storage
    return storage.version if storage else 3


def tidy(root: Any, kind: str) -> None:
    """Take away the chunks that a killed run had begun to write, under names of their own."""
    if kind in FOLDERS and not is_remote(str(root)):
        for path in (root / "zarr").rglob("*.partial"):
            path.unlink(missing_ok=True)


def make(job: Job, out: Path, kind: str, multiscale: bool, made: list[Path]) -> None:
    """Make what is to be called `out` from its finished levels, and have it on the disk."""
    if is_remote(job.levels[0].path):
        _send_metadata(job, multiscale)
        return
    if kind == "precomputed":
        replace_json(made[0] / "info", precomputed.info(job, scales(job)))
        sync_tree(made[0])
        return
    if kind == "zarr":
        if multiscale and not job.added:
            set_attributes(made[0], version_of(job), image_attributes(job, out))
            copy_labels(job.source, made[0], version_of(job))
        for path in made:
            sync_tree(path)
        return
    for path, level in zip(made, job.levels, strict=False):
        if kind == "npy":
            sync_file(path)
            continue
        temporary = path.with_name(path.name + ".new")
        if kind == "tif":
            write_tif(job, temporary, out, multiscale)
        else:
            png.write(np.load(level.path, mmap_mode="r"), temporary)
        sync_file(temporary)
        os.replace(temporary, path)


def _send_metadata(job: Job, multiscale: bool) -> None:
    """What makes an array or an image of the chunks that were sent."""
    if not multiscale:
        send_json(job.levels[0].path, array_metadata(job.levels[0]))
        return
    url = job.levels[0].path.rpartition("/")[0]
    attributes = image_attributes(job, Path(url.rpartition("/")[2]))
    send_json(url, group_metadata(version_of(job), attributes))


def image_attributes(job: Job, out: Path) -> dict[str, Any]:
    """The attributes of the multiscale group."""
    source = job.source
    datasets = [(str(k), *pair) for k, pair in enumerate(scales(job))]
    name = out.name.removesuffix(".zarr").removesuffix(".ome")
    kept = source.kept.group_attributes
    if "channels" in kept:
        kept = {"omero": omero(kept.pop("channels"), source)}
    return write_image(
        name,
        source.axes,
        source.names,
        source.units,
        datasets,
        operator=job.operator,
        description=f"lunette pyramid: {job.operator} of windows of {windows(job)} cells",
        kept=kept,
        version="0.4" if version_of(job) == 2 else "0.5",
    )


def windows(job: Job) -> str:
    """The factors of every level: `1×2×2, 2×2×2`."""
    rows = [[r.stride or 1 for r in step.regions] for step in job.steps]  # type: ignore[attr-defined]
    return ", ".join("×".join(map(str, row)) for row in rows)


def omero(channels: list[dict[str, Any]], source: Source) -> dict[str, Any]:
    """Channels of an OME-TIFF for OME-NGFF, which wants a window and a colour of each."""
    dtype = np.dtype(source.dtype)
    top = float(np.iinfo(dtype).max) if dtype.kind in "iu" else 1.0
    window = {"min": 0.0, "max": top, "start": 0.0, "end": top}
    rows = [{"active": True, "color": "FFFFFF", "window": window} | c for c in channels]
    return {"channels": rows}
