"""Levels added to a multiscale image that is there: nothing of it is touched, its metadata comes last."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lunette.scale.containers import container_of, is_remote
from lunette.scale.errors import ScaleError
from lunette.scale.journal import Journal
from lunette.scale.ngff import dataset_of, multiscales_of, read_image
from lunette.scale.placing import scales
from lunette.scale.plan import Job
from lunette.scale.workspace import journal_of
from lunette.scale.zarr_metadata import LARGEST, NAMES, node
from lunette.scale.zarr_output import replace_json

__all__ = ["Image", "announce", "find"]

HIGHEST = 4
"""Groups above an image whose copies of its metadata are kept up."""


@dataclass(frozen=True)
class Image:
    """A multiscale image on this machine, and the level of it that others are made from."""

    folder: Path
    last: str
    datasets: tuple[str, ...]
    scale: tuple[float, ...]
    translation: tuple[float, ...]

    def names(self, count: int) -> tuple[str, ...]:
        """Names of so many more levels, after the manner of those that are there."""
        match = re.fullmatch(r"(\D*)(\d+)", self.last)
        stem, first = (match[1], int(match[2]) + 1) if match else ("", len(self.datasets))
        found = tuple(f"{stem}{first + k}" for k in range(count))
        for name in found:
            if name in self.datasets:
                raise ScaleError(f"--in-place: the image has a level {name!r} that is not its last")
        return found


def find(place: str, array: str, resume: bool) -> Image:
    """The image at a place. A run that is gone on with reads the level that it read before."""
    if is_remote(place) or not Path(place).is_dir():
        raise ScaleError(f"--in-place: IN={place!r} is no folder of this machine; name an OUT")
    folder = Path(place, array).resolve()
    found = node(container_of(str(folder)))
    images = multiscales_of(found.attributes) if found.kind == "group" else []
    if len(images) != 1:
        raise ScaleError(
            f"--in-place: IN={place!r} is no group of one multiscale image; name an OUT, or the group by "
            "--array"
        )
    datasets = tuple(str(d["path"]).strip("/") for d in images[0]["datasets"])
    last = datasets[-1]
    journal = Journal(journal_of(folder))
    if resume and journal.state == "none":  # else levels would be added to those of a finished run
        raise ScaleError(
            f"--resume: there is no journal {str(journal.path)!r}; the levels were added, or never begun"
        )
    if resume and journal.state == "begun":
        last = str(journal.header.get("from", last))
        if last in datasets:  # what comes after it may be of the run that is gone on with
            datasets = datasets[: datasets.index(last) + 1]
    if not re.fullmatch(r"\w[\w.-]*", last):
        raise ScaleError(
            f"--in-place: a level {last!r}; expected one that lies in the group itself"
        )
    own = {k: v for k, v in images[0].items() if k != "coordinateTransformations"}
    read = read_image(found.attributes, own, last)
    if read is None:
        raise ScaleError(f"--resume: the image {str(folder)!r} has no level {last!r} any more")
    return Image(folder, last, datasets, read["scale"], read["translation"])


def announce(job: Job, folder: Path) -> None:
    """Name the new levels in the metadata; that is one write, and doing it again changes nothing."""
    rows = [dataset_of(n, *p) for n, p in zip(job.added, scales(job)[1:], strict=True)]
    found = node(container_of(str(folder)))
    attributes = json.loads(json.dumps(found.attributes))
    image = multiscales_of(attributes)[0]
    there = {str(d["path"]) for d in image["datasets"]}
    image["datasets"] += [row for row in rows if row["path"] not in there]
    _keep_up_copies(job, folder, attributes)
    if found.version == 2:
        _replace(job, folder / ".zattrs", attributes)
        return
    metadata = {**found.metadata, "attributes": attributes}
    copies = _copies(metadata)
    if copies is not None:
        copies |= _entries(job, folder, 3, "")
    _replace(job, folder / "zarr.json", metadata)


def _keep_up_copies(job: Job, folder: Path, attributes: dict[str, Any]) -> None:
    """Consolidated metadata of the image in Zarr 2, and of the groups that it lies in."""
    above, prefix = folder, ""
    for _ in range(HIGHEST):
        for name, version in ((".zmetadata", 2), ("zarr.json", 3)):
            path = above / name
            if (version == 3 and not prefix) or not path.is_file():
                continue
            metadata = json.loads(container_of(str(above)).read(name, None, LARGEST) or b"{}")
            copies = metadata.get("metadata") if version == 2 else _copies(metadata)
            key = f"{prefix}.zattrs" if version == 2 else prefix.rstrip("/")
            if not isinstance(copies, dict) or (prefix and key not in copies):
                continue
            if version == 2:
                copies[key] = attributes
            else:
                copies[key] = {**copies[key], "attributes": attributes}
            copies |= _entries(job, folder, version, prefix)
            _replace(job, path, metadata)
        if not any((above.parent / name).is_file() for name in NAMES):
            return
        prefix, above = f"{above.name}/{prefix}", above.parent


def _copies(metadata: dict[str, Any]) -> dict[str, Any] | None:
    found = metadata.get("consolidated_metadata")
    copies = found.get("metadata") if isinstance(found, dict) else None
    return copies if isinstance(copies, dict) else None


def _entries(job: Job, folder: Path, version: int, prefix: str) -> dict[str, Any]:
    """The metadata of the new arrays, by their names in consolidated metadata."""
    files = (".zarray", ".zattrs") if version == 2 else ("zarr.json",)
    found = {}
    for name in job.added:
        for file in files:
            path = folder / name / file
            if path.is_file():
                key = f"{prefix}{name}/{file}" if version == 2 else f"{prefix}{name}"
                found[key] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _replace(job: Job, path: Path, value: Any) -> None:
    """Under a name of this run, which a run that goes on writes over."""
    replace_json(path, value, f".{path.name}.{Path(job.levels[0].path).parts[-3]}.partial")
