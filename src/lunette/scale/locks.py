"""One process at a time on an output: a lock that the system takes back when its holder dies.

`OUT.lock` is locked for as long as the command runs, and says who holds it. The lock
is the system's, not the file: a file that a killed process left behind locks nothing.
"""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from lunette.platform import (
    BINARY,
    NO_FOLLOW,
    NONBLOCK,
    AlreadyLocked,
    can_remove_open_files,
    lock_exclusively,
    read_at,
    unlock,
    write_at,
)
from lunette.scale.errors import ScaleError

__all__ = ["lock_path", "locked"]

FIRST = b"lunette lock: "


def lock_path(out: Path) -> Path:
    """The lock of an output."""
    return out.with_name(out.name + ".lock")


@contextmanager
def locked(outs: list[Path]) -> Iterator[None]:
    """Hold the locks of these outputs; refuse at once where another process holds one."""
    with ExitStack() as stack:
        for path in sorted({lock_path(out) for out in outs}):
            stack.enter_context(_held(path))
        yield


@contextmanager
def _held(path: Path) -> Iterator[None]:
    handle = _acquire(path)
    try:
        os.ftruncate(handle, 0)
        write_at(handle, FIRST + f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        # While it is still ours: whoever waits for this file finds that it has lost its name.
        ours = _is_at(path, handle)
        if ours and can_remove_open_files():
            path.unlink(missing_ok=True)
        unlock(handle)
        os.close(handle)
        if ours and not can_remove_open_files():
            with suppress(OSError):  # another process may have opened it by now: then it is theirs
                path.unlink(missing_ok=True)


def _acquire(path: Path) -> int:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | NO_FOLLOW | NONBLOCK | BINARY, 0o666)
        except OSError as error:
            raise ScaleError(
                f"cannot make {path.with_suffix('')}: its lock {path}: {error}"
            ) from error
        try:
            _check(path, handle)
            lock_exclusively(handle)
        except AlreadyLocked:
            holder = _holder(handle)
            os.close(handle)
            raise ScaleError(
                f"OUT={str(path.with_suffix(''))!r} is being written by {holder}, which holds the "
                f"lock {str(path)!r}; wait for it, or stop it"
            ) from None
        except OSError as error:
            os.close(handle)
            raise ScaleError(
                f"cannot lock {path}: {error}; write to another file system"
            ) from error
        except BaseException:
            os.close(handle)
            raise
        if _is_at(path, handle):
            return handle
        os.close(handle)  # its holder finished and took the name away between our two calls


def _check(path: Path, handle: int) -> None:
    if not stat.S_ISREG(os.fstat(handle).st_mode) or not _ours(read_at(handle, 256, 0)):
        raise ScaleError(
            f"{str(path)!r} is no lock of lunette's; move it away or choose another OUT"
        )


def _ours(text: bytes) -> bool:
    return text.startswith(FIRST) or FIRST.startswith(text)


def _is_at(path: Path, handle: int) -> bool:
    """Whether a path names this open file."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False


def _holder(handle: int) -> str:
    """Who holds a lock; it writes its name right after it has the lock."""
    for _ in range(50):
        text = read_at(handle, 256, 0)
        if text.startswith(FIRST) and text.endswith(b"\n"):
            return text[len(FIRST) :].decode(errors="replace").strip()
        time.sleep(0.02)
    return "another process"
