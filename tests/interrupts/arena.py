"""Memory of results that shows who writes to it when nobody has it any more."""

from importlib import import_module

import numpy as np

from lunette.kernels.cpu.memory import block_cache

PATTERN, MOST = 0xA5, 12


class _Ours:
    """NumPy with another `empty`."""

    empty = staticmethod(
        lambda shape, dtype=float: block_cache.new_array(_tuple(shape), _dtype(dtype))
    )

    def __getattr__(self, name):
        return getattr(np, name)


def _tuple(shape):
    return tuple(map(int, shape)) if hasattr(shape, "__iter__") else (int(shape),)


def _dtype(dtype):
    return np.dtype(dtype)


class Arena:
    """Every result lies in a block that is filled with a pattern as soon as its last array is gone."""

    def __init__(self):
        self.given, self.size = [], block_cache.PAGE
        block_cache.LARGE = 0
        block_cache._kept.take, block_cache._kept.give = self.take, self.give
        for name in (
            "correlate",
            "backward_weights",
            "position_sums",
        ):  # which pack and turn weights
            import_module(f"lunette.kernels.cpu.conv.{name}").np = _Ours()

    def take(self, size):
        for number, block in enumerate(self.given):
            if block.nbytes == size + self.size:
                del self.given[number]
                self.untouched(block)
                return block
        return np.empty(size + self.size, np.uint8)

    def give(self, block):
        block.fill(PATTERN)
        self.given.append(block)
        if len(self.given) > MOST:
            self.untouched(self.given.pop(0))

    def untouched(self, block):
        assert (block == PATTERN).all(), "memory was written to after it had been given back"

    def check(self):
        """All that nobody has is as it was left."""
        for block in tuple(self.given):
            self.untouched(block)
