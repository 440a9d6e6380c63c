"""Checks of ties that count, where vectors of channels or of items are compared with maxima that are known."""

from __future__ import annotations

import numpy as np

import lunette as ln
from cases import oracle, values
from cases.agreement import differing_bits, direction, pool, run
from cases.channels_last import turned
from lunette.regions import Adaptive, Global, Region, Sliding

__all__ = ["COUNTED", "ties_that_count"]

COUNTED: tuple[tuple[int, tuple[Region, ...]], ...] = (
    (11, (Sliding(3, 2, 1), Sliding(3, 2, 1))),
    (11, (Sliding(2, 2, 0), Sliding(2, 2, 0))),
    (11, (Sliding(3, 1, 1), Sliding(2, 3, (0, 1)))),
    (11, (Adaptive(3), Adaptive(2))),
    (11, (Global(), Global())),
    (60, (Global(), Global())),
    (13, (Sliding(5, 1, 2), Sliding(9, 1, 4))),
    (70, (Sliding(6, 1), Sliding(50, 9, 3))),
    (11, (Sliding(2, 2, 0), Sliding(3, 2, 1), Sliding(3, 1, 1))),
)
"""Lengths of rows, and windows that share cells, or none, or many, of 4 to 360 cells; of two axes and of three."""


def ties_that_count(
    dtype: str,
    windows: tuple[tuple[int, tuple[Region, ...]], ...] = COUNTED,
    channels: tuple[int, ...] = (16, 19, 40),
) -> list[str]:
    """Derivatives by all winners that are not the oracle's: with channels last, and with many items."""
    found = []
    for width, regions in windows:
        for count in channels:
            shape = (2, count, *(6, 5)[: len(regions) - 1], width)
            cells = [(kind, x) for kind, x in values.with_care(shape, dtype) if x.shape == shape]
            for kind, x in cells:
                for rule in ("all", "split"):
                    op = pool(regions, ln.Max(rule))
                    along = direction(shape, x.dtype)
                    grad = direction(op.out_shape(shape), x.dtype, 1)
                    expected = {"jvp": oracle.jvp(op, x, along), "vjp": oracle.vjp(op, x, grad)}
                    for verb, with_it in (("jvp", along), ("vjp", grad)):
                        for order, laid in (("first", np.asarray), ("last", turned)):
                            result = run(op, verb, laid(x), laid(with_it))
                            difference = differing_bits(result, expected[verb], True)
                            if difference:
                                what = f"{verb} of {op!r}, {count} channels {order}, {kind}"
                                found.append(f"{what}: {difference}")
    return found
