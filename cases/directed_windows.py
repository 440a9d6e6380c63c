"""Windows on small arrays, chosen so that a wrong line in a kernel shows: lengths of axes, and a region for each."""

from __future__ import annotations

from lunette.regions import Adaptive, Global, Region, Sliding

__all__ = [
    "LARGE",
    "LARGE_APART",
    "LINES",
    "NARROW",
    "OTHERS",
    "PAIRS",
    "PLANES",
    "WIDE",
]

Regions = tuple[Region, ...]

PAIRS: tuple[tuple[tuple[int, ...], Regions], ...] = (
    ((6, 37), (Sliding(3, 2, 1), Sliding(3, 2, 1))),
    ((5, 23), (Sliding(2, 2, 0, 1, True), Sliding(2, 2, 0, 1, True))),
    ((7, 21), (Sliding(3, 1, (2, 1), 2), Sliding(3, 3, (1, 3), 2, True))),
    ((6, 19), (Sliding(3, 1, 1), Sliding(3, 1, 1))),
)
LARGE: tuple[tuple[tuple[int, ...], Regions], ...] = (
    ((7, 50), (Sliding(5, 1, 2), Sliding(17, 1, 8))),
    ((24, 22), (Sliding(19, 1, 9), Sliding(3, 1, 1))),
    ((20, 40), (Sliding(9, 1, 4), Sliding(9, 1, (3, 5)))),
    ((20, 40), (Sliding(11, 2, 4), Sliding(13, 2, 3, 1, True))),
)
LARGE_APART: tuple[tuple[tuple[int, ...], Regions], ...] = (
    ((30, 33), (Sliding(9, 2, 8, 2), Sliding(8, 3, 10, 3))),
    ((5, 9, 21), (Sliding(4, 1, 2), Sliding(4, 2, 1), Sliding(6, 1, 3))),
    ((200,), (Sliding(70, 3, 30),)),
    ((9, 14), (Adaptive(4), Adaptive(5))),
)
"""With strides, dilations, three axes, one, and windows that do not lie alike."""
LINES: tuple[tuple[tuple[int, ...], Regions], ...] = tuple(
    ((length,), (Sliding(kernel, stride, padding),))
    for kernel, length, stride, padding in (
        (25, 60, 1, 0),
        (31, 90, 1, 0),
        (22, 70, 1, 0),
        (20, 60, 1, (0, 1)),
        (3, 50, 2, 1),
    )
)
OTHERS: tuple[tuple[tuple[int, ...], Regions], ...] = (
    ((7, 19), (Adaptive(3), Adaptive(5))),
    ((4, 33), (Global(), Global())),
    ((6, 100), (Global(), Global())),
    ((3, 63), (Sliding(1, 1), Sliding(9, 9))),
    ((3, 52), (Sliding(1, 1), Sliding(3, 1, 1))),
    ((4, 150), (Sliding(3, 2, 1), Sliding(3, 2, 1))),
    ((5, 45), (Sliding(3, 2, 0), Sliding(3, 2, 0))),
    ((29,), (Sliding(3, 2, 1),)),
    ((601,), (Sliding(3, 2, 1),)),  # too long to go with others
    ((11, 23), (Sliding(5, 3, 2), Sliding(4, 2, 1))),
    ((8, 40), (Sliding(3, 1, 2, 2), Sliding(3, 1, 2, 2))),  # few cells, apart
    ((9, 40), (Sliding(2, 3, 1), Sliding(2, 3, 1))),
    ((12, 20), (Sliding(3, 1, (3, 2), 5), Sliding(2, 1))),
    ((3, 4, 18), (Sliding(2, 1, 1), Sliding(3, 2, 1), Sliding(3, 2, 1))),
)
WIDE: tuple[tuple[tuple[int, ...], Regions], ...] = (
    ((4, 33), (Global(), Global())),
    ((12, 47), (Sliding(4, 3, 1), Sliding(20, 20, (0, 3)))),
    ((3, 5, 41), (Sliding(2, 2), Adaptive(2), Adaptive(2))),
    ((5, 38), (Sliding(1, 1), Sliding(35, 35, 1))),
    ((50,), (Adaptive(3),)),
    ((9, 90), (Adaptive(2), Adaptive(5))),
    ((4, 9, 41), (Sliding(2, 2), Adaptive(2), Adaptive(2))),
    ((5, 110), (Global(), Sliding(20, 24))),
    ((5, 110), (Global(), Sliding(20, 45))),
    ((5, 2300), (Global(), Sliding(300, 500))),  # longer than a band
)
PLANES: tuple[tuple[tuple[int, ...], Regions], ...] = (
    ((4, 6, 37), (Sliding(2, 2), Sliding(2, 2), Sliding(2, 2))),
    ((4, 4, 5, 35), (Sliding(2, 2),) * 3 + (Sliding(2, 2, 0, 1, True),)),
    ((5, 4, 9, 32), (Sliding(3, 3, 1), Sliding(2, 3, (1, 0)), Sliding(2, 1, 1), Sliding(2, 2))),
    ((6, 7, 34), (Adaptive(3), Adaptive(4), Adaptive(17))),
    ((4, 3, 4, 3, 6), (Sliding(2, 2), Sliding(1, 2), Sliding(2, 2), Sliding(2, 2), Sliding(2, 2))),
)
"""Windows of a few planes that share none."""
NARROW: tuple[tuple[tuple[int, ...], Regions], ...] = (
    ((7, 7), (Global(), Global())),
    ((9, 21), (Adaptive(2), Global())),
    ((4, 50), (Sliding(1, 1, 1), Sliding(3, 2, 1))),  # some rows have no cell
    ((4, 50), (Sliding(1, 1), Sliding(2, 2))),
)
