"""The machine code of modes: pairs of cells a row at a time, and any windows one by one.

Where every axis is halved or left alone, a window has eight cells, two along each of three axes; a cell
that stands alone stands for both. That doubles every count, so the mode and its ties stay the same. A
block of outputs whose cells are all equal, pair by pair, is done in one look. Otherwise all eight
votes of each cell are counted, branch-free, so that a processor does many windows at once.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import Any

from numba import types

from lunette.kernels.cpu.jit.intrinsics import compiled, kernel, pointer

__all__ = ["pair_kernel", "window_kernel"]

BLOCK, WIDE_BLOCK = 32, 8
"""Outputs that are looked at together: fewer of eight bytes, of which a vector holds few."""

FEW = 48
"""Cells of a window whose votes are counted cell by cell; more are sorted."""


def pair_kernel(dtype: str, first_wins: bool, sparse: bool) -> Any:
    """Modes over pairs: rows `first ≤ row < last` of the result.

    The table has nz, ny, nx and the factors of z and y; that of x is 2.
    """
    number = getattr(types, dtype)
    one, zero = number(1), number(0)
    together = WIDE_BLOCK if number.bitwidth == 64 else BLOCK

    @compiled
    def votes(v, a, b, c, d, e, f, g):
        n = one
        n += one if v == a else zero
        n += one if v == b else zero
        n += one if v == c else zero
        n += one if v == d else zero
        n += one if v == e else zero
        n += one if v == f else zero
        n += one if v == g else zero
        if sparse:
            n = n if v != zero else zero
        return n

    @compiled
    def better(v, n, best, most):
        if first_wins:
            return n > most
        return (n > most) | ((n == most) & (v < best))

    @compiled
    def block(e, f, g, h, out, start, stop):
        for i in range(start, stop):
            a, b = e[2 * i], e[2 * i + 1]
            c, d = f[2 * i], f[2 * i + 1]
            p, q = g[2 * i], g[2 * i + 1]
            r, s = h[2 * i], h[2 * i + 1]
            best, most = a, votes(a, b, c, d, p, q, r, s)
            n = votes(b, a, c, d, p, q, r, s)
            take = better(b, n, best, most)
            best, most = (b if take else best), (n if take else most)
            n = votes(c, a, b, d, p, q, r, s)
            take = better(c, n, best, most)
            best, most = (c if take else best), (n if take else most)
            n = votes(d, a, b, c, p, q, r, s)
            take = better(d, n, best, most)
            best, most = (d if take else best), (n if take else most)
            n = votes(p, a, b, c, d, q, r, s)
            take = better(p, n, best, most)
            best, most = (p if take else best), (n if take else most)
            n = votes(q, a, b, c, d, p, r, s)
            take = better(q, n, best, most)
            best, most = (q if take else best), (n if take else most)
            n = votes(r, a, b, c, d, p, q, s)
            take = better(r, n, best, most)
            best, most = (r if take else best), (n if take else most)
            n = votes(s, a, b, c, d, p, q, r)
            take = better(s, n, best, most)
            best, most = (s if take else best), (n if take else most)
            out[i] = best

    @kernel
    def rows(at_x, at_out, at_g, size, unused, none, first, last):
        table = pointer(at_g, types.int64)
        nz, ny, nx, fz, fy = table[0], table[1], table[2], table[3], table[4]
        oz, oy, ox = (nz + fz - 1) // fz, (ny + fy - 1) // fy, (nx + 1) // 2
        whole = nx // 2
        for row in range(first, last):
            y = row % oy
            z = row // oy % oz
            base = row // oy // oz * nz
            z0, y0 = z * fz, y * fy
            z1, y1 = min(z0 + fz - 1, nz - 1), min(y0 + fy - 1, ny - 1)
            e = pointer(at_x + ((base + z0) * ny + y0) * nx * size, number)
            f = pointer(at_x + ((base + z0) * ny + y1) * nx * size, number)
            g = pointer(at_x + ((base + z1) * ny + y0) * nx * size, number)
            h = pointer(at_x + ((base + z1) * ny + y1) * nx * size, number)
            out = pointer(at_out + row * ox * size, number)
            for start in range(0, whole, together):
                stop = min(start + together, whole)
                differ = zero
                for i in range(start, stop):
                    a = e[2 * i]
                    differ |= (a ^ e[2 * i + 1]) | (a ^ f[2 * i]) | (a ^ f[2 * i + 1])
                    differ |= (a ^ g[2 * i]) | (a ^ g[2 * i + 1])
                    differ |= (a ^ h[2 * i]) | (a ^ h[2 * i + 1])
                    out[i] = a
                if differ != zero:
                    block(e, f, g, h, out, start, stop)
            if nx % 2:
                i = nx - 1
                a, c, p, r = e[i], f[i], g[i], h[i]
                best, most = a, votes(a, a, c, c, p, p, r, r)
                for v, n in (
                    (c, votes(c, c, a, a, p, p, r, r)),
                    (p, votes(p, p, a, a, c, c, r, r)),
                    (r, votes(r, r, a, a, c, c, p, p)),
                ):
                    if better(v, n, best, most):
                        best, most = v, n
                out[ox - 1] = best

    return rows


RANK, OUTPUTS, CELLS, AXES = 0, 1, 2, 3
LENGTH, COUNT, STEP, TABLE, WIDTH = 0, 1, 2, 3, 4
START, MEMBERS, STRIDE, WINDOW = 0, 1, 2, 3
"""Of the table of any windows: the rank, the outputs and the cells of one batch item; then for each axis its
length, its outputs, the cells to the next position and where its windows are: start, members, step."""


def window_kernel(dtype: str, first_wins: bool, sparse: bool) -> Any:
    """Modes of any windows: outputs `first ≤ i < last`. Scratch holds the axes' state, then two lists of cells."""
    number = getattr(types, dtype)
    zero = number(0)

    @compiled
    def ordered(cells, count):
        """Heap sort, in place."""
        begin, end = count // 2, count
        while end > 1:
            if begin > 0:
                begin -= 1
            else:
                end -= 1
                cells[0], cells[end] = cells[end], cells[0]
            parent = begin
            while 2 * parent + 1 < end:
                child = 2 * parent + 1
                if child + 1 < end and cells[child] < cells[child + 1]:
                    child += 1
                if not cells[parent] < cells[child]:
                    break
                cells[parent], cells[child] = cells[child], cells[parent]
                parent = child

    @compiled
    def counted(cells, count):
        """The mode, by comparing each cell with all."""
        best, most = cells[0], 0
        for i in range(count):
            v, n = cells[i], 0
            for j in range(count):
                n += 1 if cells[j] == v else 0
            if n > most or (not first_wins and n == most and v < best):
                best, most = v, n
        return best

    @compiled
    def run(cells, count, v):
        """How often v stands in a sorted list."""
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if cells[middle] < v:
                low = middle + 1
            else:
                high = middle
        begin, high = low, count
        while low < high:
            middle = (low + high) // 2
            if v < cells[middle]:
                high = middle
            else:
                low = middle + 1
        return low - begin

    @compiled
    def mode(cells, other, count):
        """The mode of a list; `other` is room for as many."""
        if count <= FEW:
            return counted(cells, count)
        for i in range(count):
            other[i] = cells[i]
        ordered(other, count)
        best, most, i = other[0], 0, 0
        while i < count:
            j = i + 1
            while j < count and other[j] == other[i]:
                j += 1
            if j - i > most:
                best, most = other[i], j - i
            i = j
        if first_wins:
            for i in range(count):
                if run(other, count, cells[i]) == most:
                    return cells[i]
        return best

    @kernel
    def windows(at_x, at_out, at_g, size, at_state, room, first, last):
        g, state = pointer(at_g, types.int64), pointer(at_state, types.int64)
        rank, outputs, item_cells = g[RANK], g[OUTPUTS], g[CELLS]
        cells = pointer(at_state + 32 * rank, number)
        other = pointer(at_state + 32 * rank + room * size, number)
        x, out = pointer(at_x, number), pointer(at_out, number)
        for output in range(first, last):
            rest, at = output % outputs, output // outputs * item_cells
            total = 1
            for axis in range(rank - 1, -1, -1):
                entry = AXES + WIDTH * axis
                window = g[entry + TABLE] + WINDOW * (rest % g[entry + COUNT])
                rest //= g[entry + COUNT]
                at += g[window + START] * g[entry + STEP]
                state[4 * axis] = 0
                state[4 * axis + 1] = g[window + MEMBERS]
                state[4 * axis + 2] = g[window + STRIDE] * g[entry + STEP]
                total *= g[window + MEMBERS]
            count = 0
            for _ in range(total):
                v = x[at]
                if not sparse or v != zero:
                    cells[count] = v
                    count += 1
                for axis in range(rank - 1, -1, -1):
                    state[4 * axis] += 1
                    at += state[4 * axis + 2]
                    if state[4 * axis] < state[4 * axis + 1]:
                        break
                    at -= state[4 * axis] * state[4 * axis + 2]
                    state[4 * axis] = 0
            out[output] = mode(cells, other, count) if count else zero

    return windows
