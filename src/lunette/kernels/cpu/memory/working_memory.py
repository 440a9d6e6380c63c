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
    """Memory that kernels use and nobody keeps.

    It grows and never shrinks, and what it had before stays: a signal handler may come, ask for more and go between
    the question of a call for an address and its kernel. So it at least doubles.
    """

    def __init__(self) -> None:
        self.blocks: list[Array] = []
        self.newest = 0, 0  # bytes, and where they are

    def of(self, size: int) -> int:
        """The address of at least `size` bytes, whole lines, from a line on."""
        known, at = self.newest
        if known < size:
            if _exact:  # `newest` stays what it was: the next call gets another block
                self.blocks = [np.empty(-(-size // LINE) * LINE, np.uint8)]
                return _address(self.blocks[0])
            size = max(size, 2 * known)
            block = np.empty(size + PAGE + 2 * APART + LINE, np.uint8)
            self.blocks.append(block)
            at = -(-(_address(block) + APART) // PAGE) * PAGE
            self.newest = size, at
        return at


class Memory:
    """Of one thread: what a kernel works in, and where it leaves results that go past the caches."""

    def __init__(self) -> None:
        self.scratch, self.stage = _Scratch().of, _Scratch().of


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.memory = Memory()


_own = _OfThread()


def of_this_thread() -> Memory:
    """The memory of the thread that asks. Who uses it refers to it meanwhile: it may outlast what Python has of a thread."""
    return _own.memory


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
