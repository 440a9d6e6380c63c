"""Zarr metadata that is written: empty arrays, groups, and files copied as they are."""

from __future__ import annotations

import json
import os
import shutil
import sys
import uuid
from contextlib import suppress
from math import isfinite, isnan
from pathlib import Path
from typing import Any

import numpy as np

from lunette.platform import begin_to_flush
from lunette.scale.containers import container_of, is_remote, new_file
from lunette.scale.storage import Storage, codec_metadata
from lunette.scale.stores import Level, chunks_of
from lunette.scale.zarr_metadata import chunk_key

__all__ = [
    "array_metadata",
    "copy_chunks",
    "copy_file",
    "create_array",
    "create_group",
    "group_metadata",
    "replace_json",
    "send_json",
    "set_attributes",
    "waits",
]


LARGEST_FILE = 1 << 40
"""Bytes of a chunk that is sent as it is."""


def create_array(level: Level) -> None:
    """An empty array: as another one is stored, or as it was asked for."""
    if is_remote(level.path):
        if not waits(level):
            send_json(level.path, array_metadata(level))
        return
    folder = Path(level.path)
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in array_metadata(level).items():
        replace_json(folder / name, value)


def waits(level: Level) -> bool:
    """Whether the metadata of an array on the network comes after its chunks.

    That of the levels of an image need not: it is the metadata of their group that tells of them.
    """
    if level.path.rpartition("/")[2].isdecimal():
        return False
    from lunette.scale.zarr_arrays import writer_of

    return writer_of(level.path, list(array_metadata(level).values())[-1]) is not None


def send_json(url: str, files: dict[str, dict[str, Any]]) -> None:
    """Files of metadata, one after the other, to a place on the network."""
    container: Any = container_of(url)
    for name, value in files.items():
        container.write(name, json.dumps(value, indent=2).encode())


def group_metadata(version: int, attributes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The metadata files of a group; the one that makes it a group is the last."""
    if version == 2:
        return {".zattrs": attributes, ".zgroup": {"zarr_format": 2}}
    return {"zarr.json": {"zarr_format": 3, "node_type": "group", "attributes": attributes}}


def array_metadata(level: Level) -> dict[str, dict[str, Any]]:
    """The metadata files of an array; the one that makes it an array is the last."""
    storage = level.storage
    assert storage is not None
    attributes = json.loads(level.attributes)
    if storage.version == 2:
        attributes["_ARRAY_DIMENSIONS"] = list(level.names)
        found = json.loads(storage.like) if storage.like else _metadata_2(level, storage)
        found |= {"zarr_format": 2, "shape": list(level.shape)}
        return {".zattrs": attributes, ".zarray": found}
    found = json.loads(storage.like) if storage.like else _metadata_3(level, storage)
    found |= {"shape": list(level.shape), "attributes": attributes}
    return {"zarr.json": {**found, "dimension_names": list(level.names)}}


def _metadata_2(level: Level, storage: Storage) -> dict[str, Any]:
    return {
        "chunks": list(storage.chunks),
        "dtype": np.dtype(level.dtype).str,
        "compressor": codec_metadata(storage.codec, 2, np.dtype(level.dtype).itemsize),
        "fill_value": _fill(level),
        "order": "C",
        "filters": None,
        "dimension_separator": "/",
    }


def _metadata_3(level: Level, storage: Storage) -> dict[str, Any]:
    dtype = np.dtype(level.dtype)
    order = {"configuration": {"endian": sys.byteorder}} if dtype.itemsize > 1 else {}
    codecs: list[Any] = [{"name": "bytes", **order}]
    compressor = codec_metadata(storage.codec, 3, dtype.itemsize)
    codecs += [] if compressor is None else [compressor]
    if storage.shards:
        index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
        inside: dict[str, Any] = {
            "chunk_shape": list(storage.chunks),
            "codecs": codecs,
            "index_codecs": index,
        }
        inside["index_location"] = "end"
        codecs = [{"name": "sharding_indexed", "configuration": inside}]
    return {
        "zarr_format": 3,
        "node_type": "array",
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(storage.unit)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": _fill(level),
        "codecs": codecs,
        "storage_transformers": [],
    }


def _fill(level: Level) -> Any:
    """What stands where nothing was written, as JSON."""
    kind = np.dtype(level.dtype).kind
    if kind == "b":
        return bool(level.fill)
    if kind != "f":
        return int(level.fill)
    value = float(level.fill)
    if isfinite(value):
        return value
    return "NaN" if isnan(value) else ("Infinity" if value > 0 else "-Infinity")


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


def copy_chunks(
    origin: Path, target: Path | str, storage: Storage, ranges: Any, linked: bool = False
) -> None:
    """The stored chunks of these cells, or their shards, from one array to another that is stored alike."""
    metadata = json.loads(storage.like)
    for index in chunks_of(ranges, storage.unit):
        key = chunk_key(metadata, index)
        if is_remote(str(target)):
            data = container_of(str(origin)).read(key, None, LARGEST_FILE)
            if data is not None:
                remote: Any = container_of(str(target))
                remote.write(key, data)
            continue
        try:
            (link_file if linked else copy_file)(f"{origin}/{key}", f"{target}/{key}")
        except FileNotFoundError:  # it holds the fill value alone
            continue


def link_file(source: str, target: str) -> None:
    """Another name for the same file."""
    try:
        os.link(source, target)
    except FileExistsError:
        if not os.path.samefile(source, target):
            raise
    except FileNotFoundError:
        if not os.path.exists(source):
            raise
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.link(source, target)


def copy_file(source: str | Path, target: str | Path) -> None:
    """The bytes of a file under another name; file systems that can will share them."""
    temporary = f"{target}.{uuid.uuid4().hex}.partial"
    with open(source, "rb") as a:
        try:
            with new_file(temporary) as b:
                if not _copied_by_the_system(a.fileno(), b.fileno()):
                    shutil.copyfileobj(a, b, 1 << 20)
                    b.flush()
                begin_to_flush(b.fileno())
            os.replace(temporary, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise


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
