"""Which cells meet which taps on an axis, without the zeros between and around them.

Of an output on one axis, the taps that meet a cell are so many apart, and so are the cells: a *line* is (output, first cell, step,
first tap, step, how many). Everything is found in Python's integers where int64 might not hold it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Any

import numpy as np

from lunette.regions import SAFE, Sliding

__all__ = ["Span", "image_lines", "reached", "weight_lines", "window_lines"]

Array = np.ndarray[Any, Any]

MANY = 1 << 18
"""Outputs of an axis whose lines are found at a time."""


class Span:
    """One axis: windows `i` of `count` read image cell `i·stride + j·dilation − before` of `length` through tap `j`."""

    def __init__(self, region: Sliding, length: int, count: int) -> None:
        self.length, self.count = length, count
        self.stride, self.dilation, self.kernel = region.stride or 1, region.dilation, region.kernel
        self.before = region.margins(length)[0]
        farthest = self.count * self.stride + self.kernel * self.dilation + self.before + length
        self.safe = farthest < SAFE and self.stride < 1 << 30
        self.number: Any = np.int64 if self.safe else object

    def upto(self, n: int, first: int = 0) -> Array:
        """first … n − 1, of a type that holds every product below."""
        return np.arange(first, n).astype(self.number)

    def windows_of_taps(self) -> tuple[Array, Array]:
        """The windows of which each tap is in the image, as first and end."""
        origin = self.upto(self.kernel) * self.dilation - self.before
        first = np.minimum(np.maximum(-(origin // self.stride), 0), self.count)
        end = np.minimum((self.length - 1 - origin) // self.stride + 1, self.count)
        return first.astype(np.int64), np.maximum(first, end).astype(np.int64)

    def pairs(self) -> int:
        """How many windows meet how many cells, all in all."""
        first, end = self.windows_of_taps()
        return int((end - first).sum())


def _table(number: Any, columns: tuple[Any, ...], length: int) -> Array:
    """Lines as rows of int64; the steps of a line of one are 0, so that no number is larger than its array."""
    rows = np.zeros((length, len(columns)), number)
    for i, column in enumerate(columns):
        rows[:, i] = column
    count = rows[:, -1]
    rows[:, 2] = np.where(count > 1, rows[:, 2], 0)
    rows[:, 4] = np.where(count > 1, rows[:, 4], 0)
    rows[count <= 0, 1:] = 0
    return rows.astype(np.int64)


def window_lines(axis: Span) -> Iterator[Array]:
    """For every window that may read a cell, many at a time: the cells of the image that it reads, and their taps."""
    reach = axis.dilation * (axis.kernel - 1)
    first = max(0, -((reach - axis.before) // axis.stride))
    end = min(axis.count, (axis.length - 1 + axis.before) // axis.stride + 1)
    for low in range(first, end, MANY):
        yield _window_lines(axis, axis.upto(min(end, low + MANY), low))


def _window_lines(axis: Span, i: Array) -> Array:
    step = axis.dilation
    origin = i * axis.stride - axis.before
    first = np.maximum(-(origin // step), 0)
    last = np.minimum((axis.length - 1 - origin) // step, axis.kernel - 1)
    columns = (i, origin + first * step, step, first, 1, last - first + 1)
    return _table(axis.number, columns, len(i))


def weight_lines(axis: Span) -> Array:
    """For every tap: the cells of the image that it meets, and their windows."""
    j = axis.upto(axis.kernel)
    first, end = axis.windows_of_taps()
    cells = j * axis.dilation - axis.before + first * axis.stride
    return _table(axis.number, (j, cells, axis.stride, first, 1, end - first), axis.kernel)


def image_lines(axis: Span) -> Iterator[Array]:
    """For every cell of the image that a window reaches, many at a time: those windows, and their taps, the first tap first."""
    if axis.length <= max(4096, 4 * axis.count * axis.kernel):
        for low in range(0, axis.length, MANY):
            yield _image_lines(axis, axis.upto(min(axis.length, low + MANY), low))
    else:
        yield _image_lines(axis, _reachable(axis))


def _reachable(axis: Span) -> Array:
    """The cells of an image at which a tap of a window falls: few of its cells."""
    taps = axis.upto(axis.kernel) * axis.dilation - axis.before
    cells = np.add.outer(axis.upto(axis.count) * axis.stride, taps).ravel()
    return np.unique(cells[(cells >= 0) & (cells < axis.length)])


def _image_lines(axis: Span, cells: Array) -> Array:
    common = gcd(axis.stride, axis.dilation)
    stride, step = axis.stride // common, axis.dilation // common
    place = (cells + axis.before) // common
    # Taps j with place − j·step a multiple of the stride.
    least = np.maximum(-((stride * (axis.count - 1) - place) // step), 0)
    wanted = place % stride * pow(step, -1, stride) % stride if stride > 1 else least * 0
    first = least + (wanted - least) % stride
    last = np.minimum(place // step, axis.kernel - 1)
    count = (last - first) // stride + 1
    count = np.where((cells + axis.before) % common == 0, count, 0)
    windows = (place - first * step) // stride
    columns = (cells, windows, -step, first, stride, count)
    rows = _table(axis.number, columns, len(cells))
    return rows[rows[:, -1] > 0]


def reached(axis: Span) -> dict[int, list[tuple[int, int]]]:
    """The residues of image cells modulo the stride that some tap reaches: (tap, windows ahead) of each, by residue."""
    found: dict[int, list[tuple[int, int]]] = {}
    for j in range(axis.kernel):
        residue = (j * axis.dilation - axis.before) % axis.stride
        if residue < axis.length:
            ahead = (residue + axis.before - j * axis.dilation) // axis.stride
            found.setdefault(residue, []).append((j, ahead))
    return dict(sorted(found.items()))
