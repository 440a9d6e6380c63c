"""Windows folded by doubling, whole axes at a time, in NumPy: for windows so long, and so many to a cell, that one by one would take too long.

What is folded is a tuple of arrays, of which each place is one thing (such as a maximum and how often it was met), and a function
that joins two of these. Runs of 1, 2, 4, … neighbours are joined for all positions of an axis at once, and after each doubling
the windows whose length has that digit take their run, the last run of a window first. So a cell is joined as often as a length has
digits, and the order depends on the window alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lunette.kernels.cpu.schedule.slots import MEMBERS, START, STEP
from lunette.kernels.cpu.schedule.windows import reader_table, window_table
from lunette.regions import Region

__all__ = ["Folded", "Join", "Windows", "fold", "readers", "windows"]

Array = np.ndarray[Any, Any]
Folded = tuple[Array, ...]
Join = Callable[[Folded, Folded], Folded]
Windows = tuple[Array, Array, int]
"""Where each window of an axis starts, how many members it has, and what is between these."""


def fold(
    things: Folded,
    axis: int,
    of: Windows,
    join: Join,
    nothing: tuple[Any, ...],
) -> Folded:
    """The windows of one axis; one of none is `nothing`."""
    starts, members, step = of
    runs = tuple(np.ascontiguousarray(np.moveaxis(a, axis, 0)) for a in things)
    out = tuple(
        np.full((len(starts), *a.shape[1:]), empty, a.dtype)
        for a, empty in zip(runs, nothing, strict=True)
    )
    level, longest = 0, int(members.max(initial=0))
    while longest >> level:
        if level:
            far = step << (level - 1)
            runs = join(_at(runs, slice(None, -far)), _at(runs, slice(far, None)))
        (taking,) = np.nonzero(members >> level & 1)
        before = members[taking] >> (level + 1) << (level + 1)
        run = _at(runs, starts[taking] + step * before)
        first = members[taking] & ((1 << level) - 1) == 0  # nothing is taken yet
        joined = join(run, _at(out, taking))
        for target, alone, both in zip(out, run, joined, strict=True):
            both[first] = alone[first]
            target[taking] = both
        level += 1
    return tuple(np.moveaxis(a, 0, axis) for a in out)


def windows(region: Region, n: int) -> Windows:
    """The cells that each output reads."""
    return _columns(window_table(region, n, region.out_length(n)))


def readers(region: Region, n: int) -> Windows | None:
    """The outputs that read each position; None where they are not at equal steps, as those of any region here are."""
    table = reader_table(window_table(region, n, region.out_length(n)), n)
    return None if table is None else _columns(table)


def _columns(table: Array) -> Windows:
    steps = table[table[:, MEMBERS] > 1, STEP]
    return table[:, START], table[:, MEMBERS], int(steps[0]) if len(steps) else 1


def _at(things: Folded, where: Any) -> Folded:
    return tuple(a[where] for a in things)
