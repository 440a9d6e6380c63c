"""Where the files of a Zarr store lie: a folder, a Zip file, or a place on the network.

`read` gives the bytes of a key, or a range of them, and None where there is no such key. It never
gives more than `largest` bytes: what is larger than it has reason to be is refused.
"""

from __future__ import annotations

import os
import stat
import time
import uuid
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from lunette.platform import BINARY, NONBLOCK, begin_to_flush, read_at
from lunette.scale.errors import ScaleError
from lunette.scale.packages import require

__all__ = ["Container", "Folder", "Remote", "Zipped", "container_of", "is_remote", "new_file"]

Span = tuple[int, int | None] | int | None
"""All of it, from one byte to another (None: the end), or so many last bytes."""

TRIES = 4
"""How often a server is asked that answers with an error of its own."""

PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "az": "adlfs",
}
PACKAGES |= {"http": "aiohttp", "https": "aiohttp"}
"""What fsspec needs besides itself, by the protocol."""

MOST_ENTRIES = 1 << 22


class Container(Protocol):
    """See the module."""

    def read(self, key: str, span: Span, largest: int) -> bytes | None:
        """The bytes of a key."""


def is_remote(place: str) -> bool:
    """Whether a place is on the network: it has a protocol, such as `s3://`."""
    head, sign, _ = place.partition("://")
    return bool(sign) and head.replace("+", "").replace("-", "").isalnum()


@lru_cache(maxsize=64)
def container_of(path: str) -> Container:
    """The container at a path, by its name."""
    if is_remote(path):
        return Remote(path)
    if path.lower().endswith(".zip"):
        return Zipped(path)
    return Folder(path)


def _range(span: Span, size: int, name: str) -> tuple[int, int]:
    """The bytes that were asked for; a file that does not have them was cut short."""
    start, end = 0, size
    if isinstance(span, int):
        start = size - span
    elif span is not None:
        start, end = span[0], size if span[1] is None else span[1]
    if not 0 <= start <= end <= size:
        raise ScaleError(f"{name!r} has {size} bytes, and {start} to {end} were asked for")
    return start, end


def _check(size: int, largest: int, name: str) -> None:
    if not size:
        raise ScaleError(f"{name!r} is empty")
    _check_length(size, largest, name)


def _check_length(length: int, largest: int, name: str) -> None:
    if length > largest:
        raise ScaleError(f"{name!r} has {length} bytes; expected at most {largest}")


@dataclass(frozen=True)
class Folder:
    """Plain files below a folder."""

    root: str

    def read(self, key: str, span: Span, largest: int) -> bytes | None:
        path = Path(self.root, key)
        try:
            handle = os.open(path, os.O_RDONLY | NONBLOCK | BINARY)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise ScaleError(f"{str(path)!r} is a folder or a device, where a file should be")
            start, end = _range(span, status.st_size, str(path))
            _check(status.st_size, largest if span is None else status.st_size, str(path))
            _check_length(end - start, largest, str(path))
            parts = []
            while start < end and (part := read_at(handle, end - start, start)):
                parts.append(part)
                start += len(part)
        finally:
            os.close(handle)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, key: str, data: Any) -> None:
        """The bytes of a key, whole or not at all."""
        target = f"{self.root}/{key}"
        temporary = f"{target}.{uuid.uuid4().hex}.partial"
        try:
            with new_file(temporary) as file:
                file.write(data)
                file.flush()
                begin_to_flush(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise

    def delete(self, key: str) -> None:
        """No such key any more."""
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(f"{self.root}/{key}")


def new_file(path: str) -> Any:
    """A file to write; the folder that it lies in is made when it is missed."""
    try:
        return open(path, "wb")
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "wb")


class Zipped:
    """Members of a Zip file, stored or deflated; also below the one folder that all lie in."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.file = zipfile.ZipFile(path)
            members = self.file.infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise ScaleError(f"{path!r} is no Zip file that can be read: {error}") from error
        if len(members) > MOST_ENTRIES:
            raise ScaleError(
                f"{path!r} has {len(members)} members; expected at most {MOST_ENTRIES}"
            )
        self.members = {m.filename: m for m in members if not m.is_dir()}
        tops = {name.partition("/")[0] for name in self.members}
        inside = len(tops) == 1 and all("/" in name for name in self.members)
        self.prefix = f"{tops.pop()}/" if inside else ""

    def read(self, key: str, span: Span, largest: int) -> bytes | None:
        member = self.members.get(self.prefix + key)
        if member is None:
            return None
        name = f"{self.path}:{key}"
        _check(member.file_size, largest if span is None else member.file_size, name)
        start, end = _range(span, member.file_size, name)
        _check_length(end - start, largest, name)
        try:
            with self.file.open(member) as file:
                file.seek(start)
                found = file.read(end - start)
        except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, NotImplementedError) as error:
            raise ScaleError(f"{name!r} cannot be read: {error}") from error
        if len(found) != end - start:
            raise ScaleError(f"{name!r} has {start + len(found)} bytes, expected {end}")
        return found

    def __reduce__(self) -> Any:
        return Zipped, (self.path,)


def _below(name: str, root: str) -> str:
    return name.strip("/").removeprefix(root.strip("/")).strip("/")


def _tried(do: Callable[[], Any], path: str, what: str = "read") -> Any:
    """What a store on the network answers; it is asked again where it fails by itself."""
    for attempt in range(TRIES):
        try:
            return do()
        except FileNotFoundError:
            raise
        except (ImportError, TypeError, ValueError, NotImplementedError) as error:
            text = str(error) or type(error).__name__
            raise ScaleError(f"{path!r} cannot be {what}: {text}") from error
        except PermissionError as error:
            raise ScaleError(
                f"{path!r}: no permission, {error}; give credentials as fsspec takes them"
            ) from error
        except Exception as error:
            if attempt == TRIES - 1:
                kind = type(error).__name__
                raise ScaleError(
                    f"{path!r} cannot be {what} after {TRIES} attempts: {kind}: {error}"
                ) from error
            time.sleep(0.05 * 4**attempt)
    raise AssertionError


class Remote:
    """Objects below a URL, through fsspec. A server that fails is asked again, a few times."""

    def __init__(self, url: str) -> None:
        require("fsspec", f"{url!r}")
        import fsspec

        self.url = url.rstrip("/")
        self.absent: list[str] = []
        self.count = 0
        try:
            self.system, self.root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            package = (
                PACKAGES.get(url.partition("://")[0]) if isinstance(error, ImportError) else None
            )
            line = f"; pip install {package}" if package else ""
            raise ScaleError(f"{url!r} cannot be opened: {error}{line}") from error

    def read(self, key: str, span: Span, largest: int) -> bytes | None:
        path = f"{self.root.rstrip('/')}/{key}"
        if isinstance(span, int):
            start, end = -span, None
        elif span is None:
            start, end = 0, largest + 1  # a range, so that not more than that is sent
        else:
            start, end = span
        data = self._asked(path, start, end)
        if data is None:
            if not key.rpartition("/")[2].startswith((".", "zarr.json")):
                self.absent.append(key)
                del self.absent[1:-1]  # the first and the last say enough
                self.count += 1
            return None
        if end is not None and len(data) > end - start:  # the server does not know of ranges
            _check_length(end, max(largest, len(data) if span else 0), path)
            data = data[start:end] if span is not None else data
        wanted = -start if start < 0 else (end - start if end is not None and span else None)
        if start < 0 and len(data) > -start:
            data = data[start:]
        if wanted is not None and len(data) != wanted:
            raise ScaleError(f"{path!r} was cut short: {len(data)} bytes came, expected {wanted}")
        if not data:
            raise ScaleError(f"{path!r} is empty")
        _check_length(len(data), largest, path)
        return data

    def _asked(self, path: str, start: int, end: int | None) -> bytes | None:
        try:
            found = _tried(lambda: self.system.cat_file(path, start=start, end=end), path)
            return bytes(found)
        except FileNotFoundError:
            return None

    def write(self, key: str, data: Any) -> None:
        """Send the bytes of a key; stores of objects take them whole or not at all."""
        path = f"{self.root.rstrip('/')}/{key}"
        sent = bytes(data)
        try:
            _tried(lambda: self.system.pipe_file(path, sent), path, "written")
        except FileNotFoundError as error:  # there is no such bucket
            raise ScaleError(f"{path!r} cannot be written: {error}") from error

    def delete(self, key: str) -> None:
        """No such key any more."""
        path = f"{self.root.rstrip('/')}/{key}"
        with suppress(FileNotFoundError):
            _tried(lambda: self.system.rm_file(path), path, "removed")

    def names(self) -> list[str]:
        """Every key that there is."""
        try:
            found = _tried(lambda: list(self.system.find(self.root)), self.url, "listed")
        except FileNotFoundError:
            return []
        return [_below(name, self.root) for name in found]

    def __reduce__(self) -> Any:
        return Remote, (self.url,)
