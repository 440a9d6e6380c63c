"""Machine code on disk: kept whole, and read only where nobody but this user and the system can write.

Whoever can write a piece of machine code that is loaded can run what they like. So, as OpenSSH does with
keys, a folder is used only if it, and every folder above it, belongs to this user or to the system's
administrator, and no one else can write it. Windows has no such modes: there nothing is looked at, and a
folder is as safe as its access list.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

__all__ = ["KernelCacheWarning", "Untrusted", "content", "prune", "read", "reason_against", "write"]

LARGEST = 1 << 26
"""Bytes of a file that is read at all. Kernels have some hundred thousand."""

KEPT = 4
"""Pieces of machine code of one kernel that are kept on disk: versions, processors, settings."""

LINKS = 40
"""Symbolic links on the way to a folder, as many as Linux follows."""

OTHERS = stat.S_IWGRP | stat.S_IWOTH

CAREFULLY = sum(
    getattr(os, name, 0)
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")
)
"""How files are opened: not through a link, without waiting for anybody, and not for child processes."""


class KernelCacheWarning(UserWarning):
    """Kernels cannot be kept: others could write where they would lie. They compile in every process."""


class Untrusted(OSError):
    """A folder that others can write; the text says why."""


# -- whom to trust --


def reason_against(folder: Path, user: int | None = None) -> str | None:
    """Why others could change what lies in a folder, or None if nobody can.

    A folder that does not exist is judged by those above it. In one that all may write but where each
    removes their own alone, as in /tmp, a folder of ours is safe.
    """
    if not hasattr(os, "geteuid"):
        return None
    user = os.geteuid() if user is None else user
    place, links = os.sep, 0
    left = str(folder.absolute()).split(os.sep)[::-1]
    try:
        why = _reason(place, os.lstat(place), user, above=True)
        while left and not why:
            name = left.pop()
            if name in ("", "."):
                continue
            if name == "..":
                place = os.path.dirname(place)
                continue
            path = os.path.join(place, name)
            info = os.lstat(path)
            if stat.S_ISLNK(info.st_mode):
                links += 1
                target = os.readlink(path)
                left += target.split(os.sep)[::-1]
                place = os.sep if os.path.isabs(target) else place
                why = (
                    _reason(path, info, user, above=True)
                    if links <= LINKS
                    else f"{path}: too many links"
                )
                continue
            above = any(part not in ("", ".") for part in left)
            why, place = _reason(path, info, user, above), path
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{folder} cannot be looked at ({error.strerror})"
    return why


def _reason(path: str, info: os.stat_result, user: int, above: bool) -> str | None:
    """Why someone else could put other things in the place of what lies in this folder, or behind this link."""
    if info.st_uid not in (user, 0):
        return f"{path} belongs to another user (uid {info.st_uid}); set NUMBA_CACHE_DIR to a folder of your own"
    sticky = above and info.st_mode & stat.S_ISVTX
    if info.st_mode & OTHERS and not stat.S_ISLNK(info.st_mode) and not sticky:
        return f"others can write {path}; run chmod go-w on it, or set NUMBA_CACHE_DIR to a folder of your own"
    return None


# -- files --


def content(path: Path | str, most: int, ours: bool) -> bytes | None:
    """What a regular file of at most so many bytes holds; None for anything else.

    With `ours`, only a file that this user or the administrator has written, and nobody else can.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | CAREFULLY)
    except (OSError, ValueError):
        return None
    try:
        info = os.fstat(descriptor)
        theirs = hasattr(os, "geteuid") and (
            info.st_uid not in (os.geteuid(), 0) or info.st_mode & OTHERS
        )
        if not stat.S_ISREG(info.st_mode) or info.st_size > most or (ours and theirs):
            return None
        with os.fdopen(os.dup(descriptor), "rb") as file:
            found = file.read(most + 1)
        return found if len(found) <= most else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def read(folder: Path, file: str, key: bytes) -> bytes | None:
    """What `write` wrote for this key, whole, where nobody else could; otherwise None."""
    if reason_against(folder) is not None:
        return None
    found = content(folder / file, LARGEST, ours=True)
    if found is None:
        return None
    checksum, code = found[:32], found[32:]
    return code if checksum == hashlib.sha256(key + code).digest() else None


def write(folder: Path, file: str, key: bytes, code: bytes, mode: int = 0o700) -> None:
    """Keep machine code, in a folder that is made with this mode if it is missing.

    A reader finds all of it or nothing, and the last of several writers wins.
    """
    _make(folder, mode)
    part = folder / f"{file}.{os.urandom(8).hex()}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | CAREFULLY
        with os.fdopen(os.open(part, flags, 0o644), "wb") as output:
            output.write(hashlib.sha256(key + code).digest() + code)
        part.replace(folder / file)
    finally:
        part.unlink(missing_ok=True)


def _make(folder: Path, mode: int) -> None:
    """Make a folder, and those above it, unless others could write there."""
    _trust(folder)
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(new, mode)
    _trust(missing[0] if missing else folder)  # another may have been quicker


def _trust(folder: Path) -> None:
    why = reason_against(folder)
    if why is not None:
        raise Untrusted(why)


def prune(folder: Path, file: str) -> None:
    """Of a kernel's machine code for other circumstances, such as an earlier version, keep the newest few."""
    name, dash, _ = file.rpartition("-")
    ages = {}
    for path in folder.glob(f"{name}{dash}{'?' * 16}.kernel"):
        with suppress(OSError):  # another process may be doing the same
            ages[path] = path.lstat().st_mtime
    for path in sorted(ages, key=ages.__getitem__)[:-KEPT]:
        with suppress(OSError):
            path.unlink()
