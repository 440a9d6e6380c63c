"""The mean of 2×2×2 cells of small integers, several numbers to a machine word.

Eight bytes hold four pairs of uint8 or two of uint16. Masks spread a pair's members over lanes of
twice the width, where the sum of eight fits. The rounded mean of a sum s of eight is
`(s + 3 + (s/8 odd)) / 8`: halves go to the even neighbour. Where an axis is odd or is not halved,
a row or a column stands for both members of its pair: the mean and its rounding stay the same.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from lunette.kernels.cpu.jit.intrinsics import kernel, pointer

__all__ = ["halving_kernel"]


def halving_kernel(itemsize: int) -> Any:
    """Means of numbers of one or two bytes: rows `first ≤ row < last` of the result.

    The table has nz, ny, nx, the factors of z and y (that of x is 2), and the bit of the sign to turn.
    """
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

    @kernel
    def rows(at_x, at_out, at_g, unused, none, nothing, first, last):
        table = pointer(at_g, types.int64)
        nz, ny, nx, fz, fy, flip = table[0], table[1], table[2], table[3], table[4], table[5]
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

    return rows
