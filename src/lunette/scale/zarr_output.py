"""Zarr metadata that is written: empty arrays, groups, and files copied as they are."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from lunette.scale.storage import Storage, compressor
from lunette.scale.stores import Level, chunks_of
from lunette.scale.zarr_metadata import chunk_key

__all__ = [
    "copy_chunks",
    "copy_file",
    "create_array",
    "create_group",
    "replace_json",
    "set_attributes",
]


def create_array(level: Level) -> None:
    """An empty array: as another one is stored, or as it was asked for."""
    storage = level.storage
    assert storage is not None
    attributes = json.loads(level.attributes)
    if storage.version == 2:
        attributes["_ARRAY_DIMENSIONS"] = list(level.names)
    if storage.like:
        _create_like(level, storage, attributes)
        return
    import zarr

    options: dict[str, Any] = {"shards": storage.shards, "dimension_names": list(level.names)}
    if storage.version == 2:
        options = {"chunk_key_encoding": {"name": "v2", "separator": "/"}}
    zarr.create_array(
        level.path,
        shape=level.shape,
        dtype=level.dtype,
        chunks=storage.chunks,
        compressors=compressor(storage.codec, storage.version),
        fill_value=np.dtype(level.dtype).type(level.fill),
        attributes=attributes,
        zarr_format=storage.version,
        overwrite=True,
        **options,
    )


def _create_like(level: Level, storage: Storage, attributes: dict[str, Any]) -> None:
    folder = Path(level.path)
    folder.mkdir(parents=True, exist_ok=True)
    metadata = {**json.loads(storage.like), "shape": list(level.shape)}
    if storage.version == 2:
        metadata["zarr_format"] = 2
        replace_json(folder / ".zattrs", attributes)
        replace_json(folder / ".zarray", metadata)
        return
    metadata |= {"attributes": attributes, "dimension_names": list(level.names)}
    replace_json(folder / "zarr.json", metadata)


def create_group(folder: Path, version: int) -> None:
    """An empty group."""
    folder.mkdir(parents=True, exist_ok=True)
    if version == 2:
        replace_json(folder / ".zgroup", {"zarr_format": 2})
    else:
        replace_json(
            folder / "zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": {}}
        )


def set_attributes(folder: Path, version: int, attributes: dict[str, Any]) -> None:
    """The attributes of a group, all at once."""
    if version == 2:
        replace_json(folder / ".zattrs", attributes)
        return
    metadata = json.loads((folder / "zarr.json").read_text(encoding="utf-8"))
    replace_json(folder / "zarr.json", {**metadata, "attributes": attributes})


def replace_json(path: Path, value: Any, temporary_name: str = "") -> None:
    """A file with this JSON, whole or not at all."""
    stem = path.name.removesuffix(".json")
    temporary = path.with_name(temporary_name or f"{stem}.{uuid.uuid4().hex}.partial")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def copy_chunks(origin: Path, target: Path, storage: Storage, ranges: Any) -> None:
    """The stored chunks of these cells, or their shards, from one array to another that is stored alike."""
    metadata = json.loads(storage.like)
    for index in chunks_of(ranges, storage.unit):
        key = chunk_key(metadata, index)
        try:
            copy_file(f"{origin}/{key}", f"{target}/{key}")
        except FileNotFoundError:  # it holds the fill value alone
            continue


def copy_file(source: str | Path, target: str | Path) -> None:
    """The bytes of a file under another name; file systems that can will share them."""
    temporary = f"{target}.{uuid.uuid4().hex}.partial"
    with open(source, "rb") as a:
        try:
            with _new_file(temporary) as b:
                if not _copied_by_the_system(a.fileno(), b.fileno()):
                    shutil.copyfileobj(a, b, 1 << 20)
            os.replace(temporary, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise


def _new_file(path: str) -> Any:
    """A file to write; the folder that it lies in is made when it is missed."""
    try:
        return open(path, "wb")
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "wb")


def _copied_by_the_system(a: int, b: int) -> bool:
    """Whether the system has copied it all; some file systems do not offer it."""
    if not hasattr(os, "copy_file_range"):
        return False
    left = os.fstat(a).st_size
    try:
        while left and (done := os.copy_file_range(a, b, left)):
            left -= done
    except OSError:
        os.lseek(a, 0, os.SEEK_SET)
        os.lseek(b, 0, os.SEEK_SET)
        os.ftruncate(b, 0)
        return False
    return not left
