"""A TIFF read within bounds: strips and tiles lie in the file, and decode to their own size.

tifffile decompresses a segment whole before it looks how much there is. So its decoder is given the
segment already expanded, by `bounded.expand` or a decoder that takes a limit.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from lunette.scale.bounded import expand
from lunette.scale.errors import ScaleError
from lunette.scale.packages import require

__all__ = ["check_segments", "guard"]

JPEG = (6, 7, 33007)
FOREIGN = {5: "LZW", **dict.fromkeys(JPEG, "JPEG")}
"""Compressions that tifffile leaves to imagecodecs."""

NAMES = {8: "zlib", 32946: "zlib", 34925: "lzma", 50000: "zstd"}


def segment_bytes(page: Any) -> int:
    """Bytes of a strip or tile when it is decoded whole."""
    return int(prod(int(n) for n in page.chunks)) * int(np.dtype(page.dtype).itemsize)


def check_segments(file: Any, series: Any) -> None:
    """Refuse segments that reach past the end of the file, or are larger than they have reason to be."""
    size = os.fstat(file.filehandle.fileno()).st_size
    keyframe = series.keyframe
    _decompressor(keyframe)
    if len(series.pages) > max(1, size // 4):  # each page has a few bytes of its own
        raise ScaleError(f"{len(series.pages)} pages in a file of {size} bytes")
    expected = prod(keyframe.chunked)
    largest = 2 * segment_bytes(keyframe) + (64 << 10)
    offset = series.dataoffset
    if offset is not None and offset + series.nbytes > size:
        raise ScaleError(
            f"the image has {series.nbytes} bytes at {offset}; the file ends at {size}"
        )
    for number, page in enumerate(series.pages):
        if page is None:
            raise ScaleError(f"page {number} of the image is not in this file")
        offsets, counts = page.dataoffsets, page.databytecounts
        if len(offsets) != len(counts) or (
            len(offsets) < expected and not keyframe.is_contiguous and offset is None
        ):
            raise ScaleError(f"page {number} has {len(offsets)} segments, expected {expected}")
        for start, count in zip(offsets, counts, strict=True):
            if start < 0 or count < 0 or start + count > size:
                raise ScaleError(
                    f"page {number} has {count} bytes at {start}; the file ends at {size}"
                )
            if start and not count:  # where both are 0, the segment has no cells of its own
                raise ScaleError(f"page {number} has no bytes at {start}")
            if count > largest and not page.is_contiguous:
                raise ScaleError(
                    f"page {number} has a segment of {count} bytes, expected at most {largest}"
                )


def guard(series: Any) -> None:
    """Have the segments of a series expanded within their size before tifffile sees them."""
    page = series.keyframe
    expander = _decompressor(page)
    if expander is None:
        return
    limit, original = segment_bytes(page), (page.compression, page.fillorder)
    turned = page.compression not in JPEG and page.fillorder == 2
    if page.compression in JPEG:
        decode = page.decode
    else:
        page.compression, page.fillorder = 1, 1
        try:
            decode = page.decode
        finally:
            page.compression, page.fillorder = original

    def bounded(data: Any, index: int, /, **options: Any) -> Any:
        if data is not None:
            if turned:
                data = bytes(data).translate(_TURNED)
            data = expander(data, limit)
        return decode(data, index, **options)

    page.__dict__["decode"] = bounded
    page.parent.root._decoders[page.hash] = bounded


def _decompressor(page: Any) -> Callable[[Any, int], Any] | None:
    """What expands a segment to at most so many bytes; None where nothing is compressed."""
    compression = int(page.compression)
    if compression in FOREIGN:
        require("imagecodecs", f"a TIFF of {FOREIGN[compression]}")
    if int(page.predictor) == 3:
        require("imagecodecs", "a TIFF of floats that are stored as differences")
    if compression == 1:
        return None
    if compression in NAMES:
        name = NAMES[compression]
        return lambda data, limit: _expand(name, data, limit)
    if compression == 32773:
        return _packbits
    if compression in JPEG:
        return _check_jpeg
    if compression == 5:
        from imagecodecs import lzw_decode

        return lambda data, limit: lzw_decode(data, out=limit)
    raise ScaleError(f"TIFF compression {compression} is not known; convert the file first")


def _expand(name: str, data: Any, limit: int) -> Any:
    """The last strip of a page may be shorter than the others."""
    return bytes(expand(name, data, limit, exact=False))


def _packbits(data: Any, limit: int) -> bytes:
    """PackBits: n < 128 and n + 1 bytes as they are, or n > 128 and one byte 257 − n times."""
    data, out, i = bytes(data), bytearray(), 0
    while i < len(data) and len(out) < limit:
        n = data[i]
        if n < 128:
            out += data[i + 1 : i + 2 + n]
            i += n + 2
        else:
            out += data[i + 1 : i + 2] * (257 - n if n > 128 else 0)
            i += 2 if n > 128 else 1
    return bytes(out[:limit])


def _check_jpeg(data: Any, limit: int) -> Any:
    """A JPEG stream whose frame has no more samples than the segment: marker, length, bits, y, x, n."""
    text, i = bytes(data), 2
    while i + 10 <= len(text) and text[i] == 0xFF:
        marker = text[i + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = (int.from_bytes(text[i + k : i + k + 2], "big") for k in (5, 7))
            if height * width * text[i + 9] * (2 if text[i + 4] > 8 else 1) <= limit:
                return data
            raise ValueError(f"a JPEG of {height} × {width} in a segment of {limit} bytes")
        i += 2 + int.from_bytes(text[i + 2 : i + 4], "big")
    raise ValueError("a JPEG without a frame")


_TURNED = bytes(int(f"{i:08b}"[::-1], 2) for i in range(256))
"""Bytes with their bits in the other order."""
