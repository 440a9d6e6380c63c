"""What memory a call may take: a call that needs more is refused before anything is allocated.

A process may use what the machine has, what its container grants it (control groups, Linux), and what its limit
of address space leaves it (`ulimit -v`), whichever is least.
"""

from __future__ import annotations

import os
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["available", "check_fits", "check_room"]

UNKNOWN = 1 << 46
"""Bytes where the system does not say what it has."""

GROUPS = Path("/sys/fs/cgroup")


def check_fits(shape: tuple[int, ...], dtype: np.dtype[Any], beside: int = 0) -> None:
    """Refuse a result that does not fit into memory, with so many bytes of tables and scratch beside it."""
    cells = prod(shape)
    if cells or beside:
        check_room(f"the result of shape {shape} and dtype {dtype}", cells * dtype.itemsize, beside)


def check_room(what: str, size: int, beside: int = 0) -> None:
    """Refuse what has more bytes than there are: `size` of its own, and tables and scratch `beside` it."""
    room = available()
    if size + beside > room:
        scratch = f", {beside} of them for tables and scratch" if beside else ""
        raise ValueError(
            f"{what} needs {size + beside} bytes{scratch}; this machine has {room} for this process. "
            "A smaller output_size or padding, another stride, or the array in parts needs less"
        )


def available() -> int:
    """Bytes that this process may have, at most."""
    return min(_of_machine(), _of_address_space())


@cache
def _of_machine() -> int:
    """Bytes of physical memory, or what the container has of them."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        physical = UNKNOWN
    return min(physical if physical > 0 else UNKNOWN, _of_group())


def _of_group() -> int:
    """The least limit of the control groups that this process is in, of either version."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return UNKNOWN
    least = UNKNOWN
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        if controllers == "":
            least = min(least, _along(GROUPS, place, "memory.max"))
        elif "memory" in controllers.split(","):
            least = min(least, _along(GROUPS / "memory", place, "memory.limit_in_bytes"))
    return least


def _along(root: Path, place: str, name: str) -> int:
    """The least limit from a group up to the root; inside a container the path may not be there."""
    least, group = UNKNOWN, root / place.lstrip("/")
    for folder in (group, *group.parents):
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            text = ""
        if text.isdigit():
            least = min(least, int(text))
        if folder == root:
            break
    return least


def _of_address_space() -> int:
    """Bytes that the limit of address space leaves; asked each time, for a process may set it at any time."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit == resource.RLIM_INFINITY or limit < 0:
            return UNKNOWN
    except (ImportError, AttributeError, ValueError, OSError):
        return UNKNOWN
    try:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        taken = 0
    return max(0, limit - taken)
