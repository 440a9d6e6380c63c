"""Memory that kernels work in and nobody keeps: each thread has its own."""

from __future__ import annotations

import threading

import numpy as np

from lunette.kernels.cpu.plans.sizes import PAGE

__all__ = ["Memory", "of_this_thread"]


APART = 16 * PAGE
"""Bytes on either side that nobody uses. Processors fetch what lies ahead, by more than a page: where the next thread's
memory lay there, one kept taking from the other what it was about to write (a 9×9 max took 0.65 to 1.0 ms by chance)."""


class _Scratch:
    """Memory that kernels use and nobody keeps."""

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)
        self.size = self.at = 0

    def of(self, size: int) -> int:
        """The address of at least `size` bytes, from a page on."""
        if self.size < size:
            self.memory = np.empty(size + PAGE + 2 * APART, np.uint8)
            address = self.memory.__array_interface__["data"][0]
            self.size, self.at = size, -(-(address + APART) // PAGE) * PAGE
        return self.at


class Memory:
    """Of one thread: what a kernel works in, and where it leaves results that go past the caches."""

    def __init__(self) -> None:
        self.scratch, self.stage = _Scratch().of, _Scratch().of


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.memory = Memory()


_own = _OfThread()


def of_this_thread() -> Memory:
    """The memory of the thread that asks."""
    return _own.memory
