"""The label images of a multiscale image, which stand in its group `labels`: taken over as they are."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from lunette.scale import interrupts, marks
from lunette.scale.containers import container_of
from lunette.scale.stores import Source
from lunette.scale.zarr_metadata import NAMES, node_or_none
from lunette.scale.zarr_output import copy_file

__all__ = ["can_copy", "copy_labels", "labels_of"]


def labels_of(source: Source) -> list[str]:
    """Their names."""
    if source.kind != "zarr" or source.kept.root is None:
        return []
    path = "/".join(filter(None, (source.kept.root, "labels")))
    found = node_or_none(container_of(source.path), path)
    if found is None or found.kind != "group":
        return []
    ome: Any = found.attributes.get("ome", found.attributes)
    names = ome.get("labels") if isinstance(ome, dict) else None
    if not isinstance(names, list):
        return []
    return [n for n in names if isinstance(n, str) and re.fullmatch(r"\w[\w .-]*", n)]


def can_copy(source: Source, version: int) -> bool:
    """Whether files can be copied: those of a folder, of the same version of Zarr."""
    return source.kept.version == version and os.path.isdir(source.path)


def copy_labels(source: Source, out: Path, version: int) -> None:
    """Copy the groups, file by file, into the group of a new pyramid."""
    names = labels_of(source)
    if not names or not can_copy(source, version):
        return
    origin = Path(source.path, source.kept.root or "", "labels")
    target = out / "labels"
    _copy_files(origin, target)
    for name in names:
        for folder, _, _ in os.walk(origin / name):
            interrupts.check()
            below = target / os.path.relpath(folder, origin)
            _copy_files(Path(folder), below)
        if (target / name).is_dir():
            marks.mark(target / name)
    marks.mark(target)


def _copy_files(origin: Path, target: Path) -> None:
    """The metadata and the chunks that lie in a folder."""
    target.mkdir(exist_ok=True)
    for entry in os.scandir(origin):
        if entry.is_file(follow_symlinks=False) and (
            entry.name in (*NAMES, ".zattrs", ".zmetadata")
            or re.fullmatch(r"c|(c\.)?\d+(\.\d+)*", entry.name)
        ):
            copy_file(entry.path, target / entry.name)
