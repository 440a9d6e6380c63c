"""Memory that kernels work in and nobody keeps: each thread has its own.

What is asked for is whole lines, and begins a line. As a rule it is kept, grows, and has room on either side.
`be_exact` gives every call a block of its own instead, of the size asked for and no more, from NumPy's allocator:
with guard pages there, whoever counts too few bytes is found out.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from lunette.kernels.cpu.plans.sizes import LINE, PAGE

__all__ = ["Memory", "be_exact", "exact", "of_this_thread"]


APART = 16 * PAGE
"""Bytes on either side that nobody uses. Processors fetch what lies ahead, by more than a page: where the next thread's
memory lay there, one kept taking from the other what it was about to write (a 9×9 max took 0.65 to 1.0 ms by chance)."""

KEPT = 16 << 20
"""Bytes of several blocks that are kept for the next call, at most."""

MOST_KNOWN = 256
"""Sizes of several blocks whose addresses are remembered, at most."""

Array = np.ndarray[Any, Any]

_exact = False


def be_exact() -> None:
    """From now on, and before the first call: blocks of exactly the size asked for, and none is used again."""
    global _exact  # noqa: PLW0603
    _exact = True


def exact() -> bool:
    """Whether blocks have exactly the size asked for."""
    return _exact


class _Scratch:
    """Memory that kernels use and nobody keeps."""

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)
        self.size = self.at = 0

    def of(self, size: int) -> int:
        """The address of at least `size` bytes, whole lines, from a line on."""
        if self.size < size:
            if _exact:  # `size` stays what it was: the next call gets another block
                self.memory = np.empty(-(-size // LINE) * LINE, np.uint8)
                return _address(self.memory)
            self.memory = np.empty(size + PAGE + 2 * APART + LINE, np.uint8)
            self.size, self.at = size, -(-(_address(self.memory) + APART) // PAGE) * PAGE
        return self.at


class _Rooms:
    """Several blocks at a time, each from a line on."""

    def __init__(self) -> None:
        self.scratch = _Scratch()
        self.known: dict[tuple[int, ...], Array] = {}

    def of(self, sizes: tuple[int, ...]) -> tuple[Array, Any]:
        """The addresses of blocks of at least so many bytes, whole lines, and what has to be kept while they are used."""
        places = self.known.get(sizes)
        if places is not None:
            return places, None
        lines = [-(-size // LINE) * LINE for size in sizes]
        if _exact:
            blocks = [np.empty(size, np.uint8) for size in lines]
            return np.array([*map(_address, blocks)], np.int64), blocks
        scratch, total = self.scratch, sum(lines)
        if total > KEPT:
            scratch = _Scratch()
        elif total > scratch.size or len(self.known) >= MOST_KNOWN:
            self.known.clear()  # for it moves
        places = np.cumsum([scratch.of(total), *lines[:-1]], dtype=np.int64)
        if scratch is self.scratch:
            self.known[sizes] = places
        return places, scratch


class Memory:
    """Of one thread: what a kernel works in, and where it leaves results that go past the caches."""

    def __init__(self) -> None:
        self.scratch, self.stage, self.rooms = _Scratch().of, _Scratch().of, _Rooms().of


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.memory = Memory()


_own = _OfThread()


def of_this_thread() -> Memory:
    """The memory of the thread that asks."""
    return _own.memory


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
