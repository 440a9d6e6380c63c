"""Decompression that stops at a size known beforehand, however much a stream would give.

A few kilobytes can inflate to gigabytes. How large a chunk is follows from its shape, so a stream
gets room for that and no more: what has more to say is refused. Streams that say their size at the
start are asked before any memory is taken.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["EXPANDING", "expand"]

WINDOW = 192 << 20
"""Bytes that an LZMA stream may take for its dictionary: the largest preset has 64 MB."""


def expand(codec: str, data: Any, limit: int, exact: bool = True, out: Any = None) -> Any:
    """The bytes in a stream: `limit` of them if `exact`, and at most so many otherwise.

    Codecs that fill an array given to them use `out`, of `limit` bytes.
    """
    data = memoryview(data).cast("B")
    if out is not None and exact and codec in ("zstd", "blosc"):
        found = (_zstd if codec == "zstd" else _blosc)(data, limit, exact, out)
    else:
        found = EXPANDING[codec](data, limit, exact)
    if len(found) > limit:
        raise ValueError(f"{codec}: the stream holds more than the {limit} bytes that it should")
    if exact and len(found) != limit:
        raise ValueError(f"{codec}: the stream holds {len(found)} bytes, expected {limit}")
    return found


def _inflate(data: memoryview, limit: int, window: int) -> bytes:
    parts, left = [], limit
    rest: Any = data
    while True:
        stream = zlib.decompressobj(window)
        part = stream.decompress(rest, left + 1)
        parts.append(part)
        left -= len(part)
        if left < 0:
            raise ValueError(f"the stream holds more than the {limit} bytes that it should")
        if not stream.eof:
            raise ValueError("the stream is cut short")
        rest = stream.unused_data
        # A gzip file may have members one after another, and zeros after the last.
        if window < 31 or not rest.strip(b"\0"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _in_steps(stream: Any, data: memoryview, limit: int) -> bytes:
    found: bytes = stream.decompress(data, limit + 1)
    if len(found) <= limit and not stream.eof:
        raise ValueError("the stream is cut short")
    return found


def _zstd(data: memoryview, limit: int, exact: bool, out: Any = None) -> Any:
    from numcodecs.zstd import Zstd

    size = _zstd_size(data)
    if size is None and not exact:
        raise ValueError("the stream does not say its size")
    _check_size(size if size is not None else limit, limit, exact)
    if out is None:
        out = np.empty(limit if size is None else size, np.uint8)
    Zstd().decode(data, out=out)  # with room given, the stream has to fill it and may not pass it
    return out


def _zstd_size(data: memoryview) -> int | None:
    """What the header of a frame says of its content (RFC 8878, 3.1.1.1); None if it does not say."""
    if bytes(data[:4]) != b"\x28\xb5\x2f\xfd" or len(data) < 6:
        raise ValueError("no Zstandard frame")
    flags = data[4]
    single = bool(flags & 0x20)
    start = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    width = (1 if single else 0, 2, 4, 8)[flags >> 6]
    if not width:
        return None
    size = int.from_bytes(data[start : start + width], "little")
    return size + 256 if width == 2 else size


def _blosc(data: memoryview, limit: int, exact: bool, out: Any = None) -> Any:
    from numcodecs import blosc

    if len(data) < 16:
        raise ValueError("the stream is cut short")
    size = int.from_bytes(data[4:8], "little")
    if int.from_bytes(data[12:16], "little") > len(data):
        raise ValueError("the stream is cut short")
    _check_size(size, limit, exact)
    if out is None:
        out = np.empty(size, np.uint8)
    blosc.decompress(data, out)
    return out


def _lz4(data: memoryview, limit: int, exact: bool) -> Any:
    from numcodecs.lz4 import LZ4

    if len(data) < 5:
        raise ValueError("the stream is cut short")
    size = int.from_bytes(data[:4], "little")
    _check_size(size, limit, exact)
    out = np.empty(size, np.uint8)
    LZ4().decode(data, out=out)
    return out


def _check_size(size: int, limit: int, exact: bool) -> None:
    if size > limit or (exact and size != limit):
        raise ValueError(f"the stream says that it holds {size} bytes, expected {limit}")


EXPANDING: dict[str, Callable[[memoryview, int, bool], Any]] = {
    "zlib": lambda data, limit, exact: _inflate(data, limit, 15),
    "gzip": lambda data, limit, exact: _inflate(data, limit, 31),
    "bz2": lambda data, limit, exact: _in_steps(bz2.BZ2Decompressor(), data, limit),
    "lzma": lambda data, limit, exact: _in_steps(
        lzma.LZMADecompressor(lzma.FORMAT_AUTO, memlimit=WINDOW), data, limit
    ),
    "zstd": _zstd,
    "blosc": _blosc,
    "lz4": _lz4,
}
"""The codecs whose streams can grow, by the names that Zarr gives them."""
