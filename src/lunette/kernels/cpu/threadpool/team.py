"""torch's OpenMP threads, which share our calls out where they are.

After each of torch's calls its threads look for work for some milliseconds. Threads of our own beside them would wait for a core, and
so would torch's beside ours. So where torch is loaded, the main thread's calls go to the team that torch keeps: nobody has to be woken.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["parallel"]

MAPS = Path("/proc/self/maps")


class _Team:
    """Where `GOMP_parallel` is in this process; 0 where there is none, and None before anybody has looked."""

    address: int | None = None


def parallel(count: int) -> int:
    """The address of `GOMP_parallel` where this thread may have `count` threads by it; else 0.

    torch never asks for fewer threads than it has, for OpenMP ends those that are left over; so neither do we.
    """
    threads: Any = getattr(sys.modules.get("torch"), "get_num_threads", None)
    if threads is None or _Team.address == 0:
        return 0
    if threading.get_ident() != threading.main_thread().ident or threads() < count:
        return 0
    if _Team.address is None:
        _Team.address = 0 if os.environ.get("LUNETTE_OPENMP") == "0" else _find()
    return _Team.address


def _find() -> int:
    """`GOMP_parallel` of the one libgomp that is loaded, or of torch's own."""
    paths: set[str] = set()
    with suppress(OSError):
        lines = (
            line.split(maxsplit=5)
            for line in MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
        )
        paths = {line[5] for line in lines if len(line) == 6 and "/libgomp" in line[5]}
    own = {path for path in paths if "/torch" in path} or paths
    if len(own) != 1:
        return 0
    with suppress(OSError, AttributeError):
        function = ctypes.CDLL(own.pop(), mode=os.RTLD_NOLOAD | os.RTLD_NOW).GOMP_parallel
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


def _forget_after_fork() -> None:
    """OpenMP's threads are not there in a child, and it does not know."""
    _Team.address = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
