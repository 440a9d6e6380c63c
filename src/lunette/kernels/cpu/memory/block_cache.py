"""Memory for large results: blocks that were given back are used again, for new pages are slow.

The system clears every page that it hands out, which takes longer than most kernels need to fill
it. So a large result lies in a block that is kept when the last array on it is gone, and goes to
the next result of that size. `LUNETTE_KEEP_BYTES` bounds what is kept; 0 keeps nothing.
"""

from __future__ import annotations

import os
from collections import deque
from math import prod
from typing import Any

import numpy as np

from lunette.kernels.cpu.memory.scratchpad import exact
from lunette.kernels.cpu.tuning import PAGE

__all__ = ["new_array"]

Array = np.ndarray[Any, Any]

LARGE = 1 << 20
"""Bytes from which a result lies in a block; smaller ones come from the allocator's own lists."""

START = PAGE // 2
"""Where in a page a result begins. Arrays of others begin at the start of a page, or near it. A kernel that reads
and writes as fast would have its loads wait for the store before, where both lie alike in their pages
but for a few bytes: the processor knows a store in flight by its place in the page alone."""


def _limit() -> int:
    text = os.environ.get("LUNETTE_KEEP_BYTES", "")
    if not text:
        return 512 << 20
    if not (text.isascii() and text.isdigit()):
        raise ValueError(
            f"LUNETTE_KEEP_BYTES={text!r}: expected a number of bytes, 0 or more, in digits alone, "
            "such as 536870912"
        )
    return int(text)


class BlockCache:
    """Blocks that nobody uses, the longest unused first."""

    def __init__(self) -> None:
        self.blocks: deque[Array] = deque()
        self.limit: int | None = None

    def take(self, size: int) -> Array:
        """A block of `size` bytes and a page more."""
        if (
            self.limit is None
        ):  # now: whoever gives it back may be a destructor, which cannot refuse
            self.limit = _limit()
        for _ in range(len(self.blocks)):
            try:
                block = self.blocks.popleft()  # atomic: no other thread gets it too
            except IndexError:
                break
            if block.nbytes == size + PAGE:
                return block
            self.blocks.append(block)
        return np.empty(size + PAGE, np.uint8)

    def give(self, block: Array) -> None:
        """Keep a block that was taken, and let go of others until what is kept is within the limit."""
        limit = self.limit or 0
        if block.nbytes <= limit:
            self.blocks.append(block)
        while sum(b.nbytes for b in tuple(self.blocks)) > limit:
            try:
                self.blocks.popleft()
            except IndexError:
                return


_kept = BlockCache()


class Block:
    """The memory under a result: given back when the last array on it is gone."""

    __slots__ = ("__array_interface__", "block")

    def __init__(self, size: int) -> None:
        self.block: Array | None = None  # there may be no memory for it
        self.block = _kept.take(size)
        at = self.block.__array_interface__["data"][0]
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (at + (START - at) % PAGE, False),
            "version": 3,
        }

    def __del__(self) -> None:
        block = getattr(self, "block", None)
        if block is not None:  # it was not interrupted before it had one
            _kept.give(block)


def new_array(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of any content, contiguous, which owns its memory for as long as it is used."""
    size = prod(shape) * dtype.itemsize
    if size < LARGE or exact():
        return np.empty(shape, dtype)
    array: Array = np.asarray(Block(size)).view(dtype).reshape(shape)
    return array
