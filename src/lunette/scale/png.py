"""PNG files of every depth: Pillow reads and writes 8 bits a sample of colour, and the rest is here.

A file of 16 bits a sample is decoded twice, for the high and for the low byte of each sample.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from lunette.scale.described import Described
from lunette.scale.errors import ScaleError

__all__ = ["DTYPES", "describe", "read", "write"]

Array = np.ndarray[Any, Any]

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Samples of a cell, by the kind of colour in the header."""

DTYPES = {1: ("bool", "uint8", "uint16"), 2: ("uint8", "uint16")}
DTYPES |= {3: DTYPES[2], 4: DTYPES[2]}
"""What a PNG of so many channels holds."""

INDICES = "indices"
"""`--array` of a palette image: its indices in place of its colours."""


def _header(path: str) -> tuple[int, int]:
    """Bits of a sample, kind of colour (PNG specification, 11.2.1)."""
    with open(path, "rb") as file:
        data = file.read(33)
    if len(data) < 33 or data[:8] != b"\x89PNG\r\n\x1a\n" or data[12:16] != b"IHDR":
        raise ValueError("its header is no PNG header")
    return data[24], data[25]


def _opened(path: str) -> Any:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # the size is held against the memory before it is read
    return Image.open(path, formats=["PNG"])


def describe(path: Path, inner: str) -> Described:
    """Shape and dtype; of a palette the colours, unless its indices are asked for."""
    from PIL import Image

    bits, colour = _header(str(path))
    if inner and (inner != INDICES or colour != 3):
        raise ScaleError(
            f"--array {inner!r}: of a PNG, only a palette image has {INDICES!r} besides its colours"
        )
    limit = Image.MAX_IMAGE_PIXELS
    try:
        with _opened(str(path)) as image:
            shape: tuple[int, ...] = (image.height, image.width)
            clear = "transparency" in image.info
    finally:
        Image.MAX_IMAGE_PIXELS = limit
    channels = CHANNELS.get(colour, 0)
    if colour == 3 and not inner:
        channels = 3 + clear
    dtype = "<u2" if bits == 16 else ("|b1" if bits == 1 and colour == 0 else "|u1")
    shape += (channels,) * (channels > 1)
    return Described(
        shape, dtype, shape, inner, letters="yxc"[: len(shape)], told="the header of the PNG"
    )


def read(path: str, inner: str) -> Array:
    """All cells."""
    bits, colour = _header(path)
    with _opened(path) as image:
        if bits == 16 and colour in (2, 4, 6):
            return _deep(path, colour)
        if colour == 3 and not inner:
            clear = "transparency" in image.info
            return np.asarray(image.convert("RGBA" if clear else "RGB"))
        if colour == 0 and bits in (2, 4):
            return np.asarray(image.convert("L"))
        return np.asarray(image)


def _deep(path: str, colour: int) -> Array:
    """Colours of 16 bits, which are stored with the high byte first."""
    if colour == 4:  # two samples of two bytes are filtered as four samples of one
        found = _decoded(path, "RGBA", "RGBA").astype(np.uint16)
        return found[..., ::2] << 8 | found[..., 1::2]
    mode = "RGB" if colour == 2 else "RGBA"
    high = _decoded(path, mode, f"{mode};16B").astype(np.uint16)
    high <<= 8
    high |= _decoded(path, mode, f"{mode};16L")
    return high


def _decoded(path: str, mode: str, raw: str) -> Array:
    with _opened(path) as image:
        image._mode = mode
        image.tile = [tile._replace(args=raw) for tile in image.tile]
        image.info.pop("transparency", None)
        return np.asarray(image)


def write(array: Any, path: Path) -> None:
    """A PNG of these cells."""
    array = np.ascontiguousarray(array)
    if array.dtype == np.uint16 and array.ndim == 3:
        _write_deep(array, path)
        return
    from PIL import Image

    Image.fromarray(array).save(path, format="PNG")


def _write_deep(array: Array, path: Path) -> None:
    """Rows as differences to the cell before (filter 1), in the order of bytes of PNG."""
    height, width, channels = array.shape
    colour = {2: 4, 3: 2, 4: 6}[channels]
    with path.open("wb") as file:

        def chunk(name: bytes, data: bytes) -> None:
            file.write(struct.pack(">I", len(data)) + name + data)
            file.write(struct.pack(">I", zlib.crc32(name + data)))

        file.write(b"\x89PNG\r\n\x1a\n")
        chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0))
        stream = zlib.compressobj(6)
        for row in array.astype(">u2", copy=False):
            data = row.reshape(-1).view(np.uint8).reshape(width, 2 * channels)
            turned = data.copy()
            turned[1:] -= data[:-1]
            if part := stream.compress(b"\1" + turned.tobytes()):
                chunk(b"IDAT", part)
        chunk(b"IDAT", stream.flush())
        chunk(b"IEND", b"")
