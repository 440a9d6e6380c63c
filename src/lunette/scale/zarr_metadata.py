"""What the metadata of a Zarr array may say: checked as plain JSON, before the Zarr library sees it."""

from __future__ import annotations

import json
import re
from math import prod
from typing import Any, NamedTuple

from lunette.scale.bounded import EXPANDING
from lunette.scale.containers import Container
from lunette.scale.errors import ScaleError

__all__ = ["LARGEST", "NAMES", "Node", "check_array", "chunk_key", "load", "node", "node_or_none"]

LARGEST = 16 << 20
"""Bytes of a metadata file."""

NAMES = ("zarr.json", ".zarray", ".zgroup")

WIDEST = 16
"""Bytes of a number, where a codec may have changed its type."""

MOST_AXES = 32
MOST_CODECS = 8
MOST_INNER = 1 << 22
"""Chunks of a shard, whose index has sixteen bytes for each."""

TYPES = {"bool", *(f"{k}{n}" for k in ("int", "uint") for n in (8, 16, 32, 64))}
TYPES |= {"float16", "float32", "float64", "complex64", "complex128"}

PLAIN = {"delta", "fixedscaleoffset", "quantize", "bitround", "astype", "packbits", "shuffle"}
PLAIN |= {"crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"}
"""Codecs of numcodecs that give about as much as they take."""

INDEX = {"bytes", "crc32c"}
"""Codecs of the index of a shard: its size has to be known."""


def load(container: Container, key: str) -> Any:
    """The JSON of a key; None where there is no such key."""
    try:
        text = container.read(key, None, LARGEST)
    except NotADirectoryError:
        return None
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScaleError(f"{key!r} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ScaleError(f"{key!r}: expected a JSON object")
    return found


class Node(NamedTuple):
    """`array` or `group`, the version of Zarr, the metadata and the attributes."""

    kind: str
    version: int
    metadata: dict[str, Any]
    attributes: dict[str, Any]


def node(container: Container, path: str = "") -> Node:
    """The array or group at a path of a store."""
    found = node_or_none(container, path)
    if found is None:
        raise ScaleError(f"{path or 'the store'!r} holds none of {', '.join(NAMES)}")
    return found


def node_or_none(container: Container, path: str = "") -> Node | None:
    """The same; None where there is none."""
    prefix = f"{path.strip('/')}/" if path.strip("/") else ""
    if (found := load(container, prefix + "zarr.json")) is not None:
        kind = found.get("node_type")
        if kind not in ("array", "group") or found.get("zarr_format") != 3:
            raise ScaleError(f"{prefix + 'zarr.json'!r}: expected an array or a group of Zarr 3")
        return Node(kind, 3, found, _attributes(found.get("attributes")))
    for name, kind in ((".zarray", "array"), (".zgroup", "group")):
        if (found := load(container, prefix + name)) is not None:
            if found.get("zarr_format") != 2:
                raise ScaleError(f"{prefix + name!r}: expected an array or a group of Zarr 2")
            return Node(kind, 2, found, _attributes(load(container, prefix + ".zattrs")))
    return None


def _attributes(found: Any) -> dict[str, Any]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ScaleError("the attributes are no JSON object")
    return found


def chunk_key(metadata: dict[str, Any], index: tuple[int, ...]) -> str:
    """Where a chunk stands."""
    if metadata["zarr_format"] == 2:
        return str(metadata.get("dimension_separator", ".")).join(map(str, index))
    encoding = metadata.get("chunk_key_encoding") or {"name": "default"}
    configuration = encoding.get("configuration") or {}
    if encoding["name"] == "v2":
        return str(configuration.get("separator", ".")).join(map(str, index))
    return str(configuration.get("separator", "/")).join(["c", *map(str, index)])


def check_array(version: int, found: dict[str, Any]) -> int:
    """Refuse an array that cannot be read within bounds; the bytes of its largest stored chunk.

    Objects, strings and records are refused with their codecs, some of which run what they read.
    """
    shape = _sizes(found.get("shape"), "shape", 0)
    if version == 2:
        return _check_2(found, shape)
    grid = found.get("chunk_grid")
    if not isinstance(grid, dict) or grid.get("name") != "regular":
        raise ScaleError(f"chunk_grid {_short(grid)}: expected a regular grid")
    configuration = grid.get("configuration")
    chunks = _sizes((configuration or {}).get("chunk_shape"), "chunk_shape", 1, len(shape))
    if not isinstance(found.get("data_type"), str) or found["data_type"] not in TYPES:
        raise ScaleError(f"data_type {_short(found.get('data_type'))}: expected a type of numbers")
    if "fill_value" not in found:
        raise ScaleError("fill_value is missing")
    if found.get("storage_transformers"):
        raise ScaleError("storage_transformers: expected none")
    inner = _check_codecs(found.get("codecs"), chunks, 0)
    plain = not any("numcodecs" in _codec(c)[0] for c in found["codecs"])
    size = int((re.findall(r"\d+", found["data_type"]) or [8])[0]) // 8 if plain else WIDEST
    return 2 * size * prod(chunks) + 16 * inner + (64 << 10)


def _check_codecs(codecs: Any, chunks: tuple[int, ...], depth: int) -> int:
    """How many chunks the shards have within; unknown codecs are refused."""
    if not isinstance(codecs, list) or not 1 <= len(codecs) <= MOST_CODECS:
        raise ScaleError(f"codecs {_short(codecs)}: expected a list of 1 to {MOST_CODECS}")
    inner = 0
    for codec in codecs:
        name, configuration = _codec(codec)
        if name == "sharding_indexed" and depth < 2:
            within = _sizes(configuration.get("chunk_shape"), "chunk_shape", 1, len(chunks))
            inner = prod(-(-c // w) for c, w in zip(chunks, within, strict=True))
            if inner > MOST_INNER or any(c % w for c, w in zip(chunks, within, strict=True)):
                raise ScaleError(f"a shard of {chunks} cannot hold chunks of {within}")
            for one in configuration.get("index_codecs", []):
                if _codec(one)[0] not in INDEX:
                    raise ScaleError(f"index_codecs {_short(one)}: expected bytes and crc32c")
            inner += inner * _check_codecs(configuration.get("codecs"), within, depth + 1)
        elif name not in {"bytes", "transpose", "gzip", "zstd", "blosc", "crc32c"}:
            known = name.removeprefix("numcodecs.")
            if known == name or known not in PLAIN | set(EXPANDING):
                raise ScaleError(f"codec {name!r} is not known; convert the array first")
    return inner


def _codec(codec: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(codec, str):
        codec = {"name": codec}
    if not isinstance(codec, dict) or not isinstance(codec.get("name"), str):
        raise ScaleError(f"codec {_short(codec)}: expected a name and a configuration")
    configuration = codec.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise ScaleError(f"codec {codec['name']!r}: expected a configuration that is an object")
    return codec["name"], configuration


def _check_2(found: dict[str, Any], shape: tuple[int, ...]) -> int:
    chunks = _sizes(found.get("chunks"), "chunks", 1, len(shape))
    dtype = found.get("dtype")
    if not isinstance(dtype, str) or not re.fullmatch(
        r"[<>|=]?(b1|[iu][1248]|f[248]|c8|c16)", dtype
    ):
        raise ScaleError(f"dtype {_short(dtype)}: expected a type of numbers")
    if found.get("order") not in ("C", "F"):
        raise ScaleError(f"order {_short(found.get('order'))}: expected 'C' or 'F'")
    if found.get("dimension_separator", ".") not in (".", "/"):
        raise ScaleError(f"dimension_separator {_short(found['dimension_separator'])}")
    filters = found.get("filters") or []
    if not isinstance(filters, list) or len(filters) > MOST_CODECS:
        raise ScaleError(f"filters {_short(filters)}: expected a list")
    compressor = found.get("compressor")
    for one in [*filters, *([] if compressor is None else [compressor])]:
        name = one.get("id") if isinstance(one, dict) else None
        if not isinstance(name, str) or name not in PLAIN | set(EXPANDING):
            raise ScaleError(f"codec {_short(name or one)} is not known; convert the array first")
    size = WIDEST if filters else int(re.findall(r"\d+", dtype)[0])
    return 2 * size * prod(chunks) + (64 << 10)


def _sizes(found: Any, name: str, least: int, rank: int | None = None) -> tuple[int, ...]:
    """A list of sizes, one per axis."""
    good = isinstance(found, list) and len(found) <= MOST_AXES
    if not good or not all(type(n) is int and least <= n < 1 << 62 for n in found):
        raise ScaleError(f"{name} {_short(found)}: expected a list of sizes of at least {least}")
    if rank is not None and len(found) != rank:
        raise ScaleError(f"{name} {_short(found)}: expected {rank} sizes, one per axis")
    return tuple(found)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
