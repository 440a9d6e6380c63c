"""Memory that kernels work in and nobody keeps: each thread has its own.

What is asked for is whole lines, and begins a line. As a rule it is kept, grows, and has room on either side.
`be_exact` gives every call a block of its own instead, of the size asked for and no more, from NumPy's allocator:
with guard pages there, whoever counts too few bytes is found out.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from lunette.kernels.cpu.tuning import LINE, PAGE

__all__ = ["Scratchpad", "be_exact", "exact", "scratchpad"]


GUARD_BYTES = 16 * PAGE
"""Bytes on either side that nobody uses. Processors fetch what lies ahead, by more than a page: where the next thread's
memory lay there, one kept taking from the other what it was about to write (a 9×9 max took 0.65 to 1.0 ms by chance)."""

Array = np.ndarray[Any, Any]

_exact = False
_exact_blocks: list[Array] = []


def be_exact() -> None:
    """From now on, and before the first call: blocks of exactly the size asked for, and none is used again.

    They stay until this is called again, while nobody is at work: several callers may prepare a call for the same
    helper at once, and only one of them then has it done.
    """
    global _exact  # noqa: PLW0603
    _exact = True
    _exact_blocks.clear()


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
                block = np.empty(-(-size // LINE) * LINE, np.uint8)
                _exact_blocks.append(block)
                return _address(block)
            size = max(size, 2 * known)
            block = np.empty(size + PAGE + 2 * GUARD_BYTES + LINE, np.uint8)
            self.blocks.append(block)
            at = -(-(_address(block) + GUARD_BYTES) // PAGE) * PAGE
            self.newest = size, at
        return at


class Scratchpad:
    """Of one thread: what a kernel works in, and where it leaves results that go past the caches."""

    def __init__(self) -> None:
        self.scratch, self.stage = _Scratch().of, _Scratch().of


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.memory = Scratchpad()


_own = _OfThread()


def scratchpad() -> Scratchpad:
    """The memory of the thread that asks. Who uses it refers to it meanwhile: it may outlast what Python has of a thread."""
    return _own.memory


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
