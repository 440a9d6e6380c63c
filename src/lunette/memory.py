"""What memory a call may take: a call that needs more is refused before anything is allocated.

A process may use what the machine has, what its container grants it (control groups, Linux), and what its limit
of address space leaves it (`ulimit -v`), whichever is least.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np

from lunette.platform import address_space_left, container_memory, machine_memory

__all__ = ["available", "check_fits", "check_room"]


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
    return min(_of_machine(), address_space_left())


@cache
def _of_machine() -> int:
    """Bytes of physical memory, or what the container has of them."""
    return min(machine_memory(), container_memory())
