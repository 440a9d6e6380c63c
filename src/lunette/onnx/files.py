"""Files of bounded size: plain, gzipped, or the external data that a network points to."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from stat import S_ISREG
from typing import Any

from lunette.arguments import size
from lunette.onnx.errors import ReadError

__all__ = ["MAX_BYTES", "limit_of", "read_bytes", "read_external"]

MAX_BYTES = 2**31
"""Bytes that a file may hold, unpacked, when nobody says otherwise."""


def limit_of(max_bytes: Any) -> int:
    """The limit as a positive integer."""
    return size(max_bytes, "max_bytes", 1)


def read_bytes(path: Any, max_bytes: int) -> bytes:
    """The bytes of a file, unpacked where it is gzipped; one byte past the limit is an error."""
    path = Path(path)
    with path.open("rb") as file:
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ReadError(f"{path}: not a regular file")
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not packed:
            data: bytes = file.read(max_bytes + 1)
        else:
            try:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    data = unpacked.read(max_bytes + 1)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise ReadError(f"{path}: a damaged gzip file ({error})") from None
    if len(data) > max_bytes:
        raise ReadError(
            f"{path}: more than max_bytes={max_bytes} bytes; pass a larger max_bytes to read it"
        )
    return data


def read_external(folder: Path | None, fields: dict[str, str], name: str, expected: int) -> bytes:
    """The bytes of a tensor that stand in another file, which must lie in the network's folder."""
    unknown = sorted(set(fields) - {"location", "offset", "length", "checksum"})
    if unknown:
        raise ReadError(f"tensor {name!r}: external data has the unknown field {unknown[0]!r}")
    if folder is None:
        raise ReadError(
            f"tensor {name!r} has external data, but the network was given as bytes; "
            "use lunette.onnx.load with its path"
        )
    location = fields.get("location", "")
    offset = _count(fields.get("offset", "0"), "offset", name)
    length = _count(fields.get("length", str(expected)), "length", name)
    if length != expected:
        raise ReadError(
            f"tensor {name!r}: external data of length={length} bytes; its shape needs {expected}"
        )
    parts = Path(location).parts
    if not location or "\0" in location or Path(location).is_absolute() or ".." in parts:
        raise ReadError(
            f"tensor {name!r}: external data at location={location!r}; "
            "expected a file in the folder of the network"
        )
    path = folder
    for part in parts:  # a link could lead out of the folder
        path = path / part
        if path.is_symlink():
            raise ReadError(f"tensor {name!r}: external data at location={location!r} is a link")
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not S_ISREG(status.st_mode) or status.st_nlink > 1:
                raise ReadError(
                    f"tensor {name!r}: external data at location={location!r}: "
                    "expected a regular file with one name"
                )
            if status.st_size < offset + length:
                raise ReadError(
                    f"tensor {name!r}: external data at location={location!r} has "
                    f"{status.st_size} bytes; expected {length} from offset {offset}"
                )
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        raise ReadError(
            f"tensor {name!r}: external data at location={location!r}: {error.strerror}"
        ) from None


def _count(text: str, field: str, name: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise ReadError(f"tensor {name!r}: external data has {field}={text[:30]!r}")
    return int(text)
