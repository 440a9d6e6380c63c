"""The mean of 2×2×2 cells of small integers, several numbers to a machine word.

Eight bytes hold four pairs of uint8 or two of uint16. Masks spread a pair's members over lanes of
twice the width, where the sum of eight fits. The rounded mean of a sum s of eight is
`(s + 3 + (s/8 odd)) / 8`: halves go to the even neighbour. Where an axis is odd or is not halved,
a row or a column stands for both members of its pair: the mean and its rounding stay the same.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np

from lunette.kernels import threads
from lunette.loading import uninterrupted

__all__ = ["halve", "serves"]

Array = np.ndarray[Any, Any]


def serves(dtype: np.dtype[Any], lengths: tuple[int, ...], factors: tuple[int, ...]) -> bool:
    """Whether `halve` has this mean: one or two bytes per number, the last axis and up to two more."""
    return (
        sys.byteorder == "little"
        and dtype.isnative
        and dtype.kind in "iu"
        and dtype.itemsize <= 2
        and factors[-1] == 2
        and all(f == 1 for f in factors[:-3])
        and lengths[-1] > 1
    )


def halve(x: Array, factors: tuple[int, ...]) -> Array:
    """The rounded means of x over blocks of `factors` cells, each 1 or 2; odd ends are kept."""
    x = np.ascontiguousarray(x)
    lead = x.ndim - min(3, x.ndim)
    shape = (1,) * (3 - (x.ndim - lead)) + x.shape[lead:]
    steps = (1,) * (3 - (x.ndim - lead)) + factors[lead:]
    out_shape = tuple(-(-n // f) for n, f in zip(shape, steps, strict=True))
    out = np.empty((x.size // max(1, _volume(shape)), *out_shape), x.dtype)
    flip = 1 << (8 * x.itemsize - 1) if x.dtype.kind == "i" else 0
    kernel = _kernel(x.itemsize)
    at_x, at_out = x.__array_interface__["data"][0], out.__array_interface__["data"][0]
    rows = out_shape[0] * out_shape[1]

    def task(first: int, last: int) -> None:
        kernel(at_x, at_out, *shape, steps[0], steps[1], flip, first, last)

    threads.run(task, out.shape[0] * rows, held=(x, out))
    return out.reshape(tuple(-(-n // f) for n, f in zip(x.shape, factors, strict=True)))


def _volume(shape: tuple[int, ...]) -> int:
    return shape[0] * shape[1] * shape[2]


@cache
def _kernel(itemsize: int) -> Any:
    return uninterrupted(_new_kernel, itemsize)


def _new_kernel(itemsize: int) -> Any:
    """The kernel for numbers of one or two bytes; it walks output rows `first ≤ row < last`."""
    from numba import types

    from lunette.kernels.cpu.compiling.machine import kernel, pointer

    number = types.uint8 if itemsize == 1 else types.uint16
    unsigned = types.uint64
    low = np.uint64(0x00FF00FF00FF00FF if itemsize == 1 else 0x0000FFFF0000FFFF)
    ones = np.uint64(0x0001000100010001 if itemsize == 1 else 0x0000000100000001)
    middle = np.uint64(0x0000FFFF0000FFFF)
    width = np.uint64(8 * itemsize)
    three, sixteen, eight, lowest = np.uint64(3), np.uint64(16), np.uint64(8), np.uint64(0xFFFFFFFF)
    pairs_per_word = 4 // itemsize
    size = itemsize
    packs_bytes = itemsize == 1

    def rows(at_x, at_out, nz, ny, nx, fz, fy, flip, first, last):
        oz, oy, ox = (nz + fz - 1) // fz, (ny + fy - 1) // fy, (nx + 1) // 2
        words = nx // 2 // pairs_per_word
        flips = np.uint64(flip) * (ones | (ones << width))
        flip_lanes = np.uint64(flip) * ones
        for row in range(first, last):
            y = row % oy
            z = row // oy % oz
            item = row // oy // oz
            z0, y0 = z * fz, y * fy
            z1, y1 = min(z0 + fz - 1, nz - 1), min(y0 + fy - 1, ny - 1)
            base = item * nz
            a_at = at_x + ((base + z0) * ny + y0) * nx * size
            b_at = at_x + ((base + z0) * ny + y1) * nx * size
            c_at = at_x + ((base + z1) * ny + y0) * nx * size
            d_at = at_x + ((base + z1) * ny + y1) * nx * size
            out_at = at_out + row * ox * size
            a, b = pointer(a_at, unsigned), pointer(b_at, unsigned)
            c, d = pointer(c_at, unsigned), pointer(d_at, unsigned)
            packed = pointer(out_at, types.uint32)
            for i in range(words):
                v, w, p, q = a[i] ^ flips, b[i] ^ flips, c[i] ^ flips, d[i] ^ flips
                s = (v & low) + ((v >> width) & low) + (w & low) + ((w >> width) & low)
                s += (p & low) + ((p >> width) & low) + (q & low) + ((q >> width) & low)
                s += three * ones + ((s >> three) & ones)
                s = ((s >> three) & low) ^ flip_lanes
                if packs_bytes:
                    s = (s | (s >> eight)) & middle
                s = (s | (s >> sixteen)) & lowest
                packed[i] = types.uint32(s)
            e, f = pointer(a_at, number), pointer(b_at, number)
            g, h = pointer(c_at, number), pointer(d_at, number)
            out = pointer(out_at, number)
            for i in range(words * pairs_per_word, ox):
                j = 2 * i
                k = min(j + 1, nx - 1)
                t = (e[j] ^ flip) + (e[k] ^ flip) + (f[j] ^ flip) + (f[k] ^ flip)
                t += (g[j] ^ flip) + (g[k] ^ flip) + (h[j] ^ flip) + (h[k] ^ flip)
                out[i] = number(((t + 3 + ((t >> 3) & 1)) >> 3) ^ flip)

    return kernel(rows)
