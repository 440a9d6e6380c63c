"""Memory that kernels work in and nobody keeps: each thread has its own."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from lunette.kernels.cpu.plans.sizes import PAGE

__all__ = ["Memory", "of_this_thread"]


APART = 16 * PAGE
"""Bytes on either side that nobody uses. Processors fetch what lies ahead, by more than a page: where the next thread's
memory lay there, one kept taking from the other what it was about to write (a 9×9 max took 0.65 to 1.0 ms by chance)."""


class _Scratch:
    """Memory that kernels use and nobody keeps.

    It grows and never shrinks, and what it had before stays: a signal handler may come, ask for more and go between
    the question of a call for an address and its kernel. So it at least doubles.
    """

    def __init__(self) -> None:
        self.blocks: list[np.ndarray[Any, Any]] = []
        self.newest = 0, 0  # bytes, and where they are

    def of(self, size: int) -> int:
        """The address of at least `size` bytes, from a page on."""
        known, at = self.newest
        if known < size:
            size = max(size, 2 * known)
            block = np.empty(size + PAGE + 2 * APART, np.uint8)
            self.blocks.append(block)
            address = block.__array_interface__["data"][0]
            at = -(-(address + APART) // PAGE) * PAGE
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
