"""The three sums of a convolution where most taps meet zeros: over the cells and taps that meet alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lunette.kernels.cpu.conv.arrays import FORMS, Array, Form, address, place, run
from lunette.kernels.cpu.conv.lines import Span, image_lines, weight_lines, window_lines
from lunette.kernels.cpu.conv.records import SPARSE
from lunette.kernels.cpu.jit.cache import Kernels
from lunette.ops.convolution import Convolution

__all__ = ["fill", "sparse_image", "sparse_weights", "sparse_windows"]

sparse_kernels = Kernels("conv.sparse_kernels")


class Factor(NamedTuple):
    """One array of a product, in bytes: where it is for each sum (`base`), for each term of it, and from cell to cell."""

    base: Array
    terms: Array
    strides: Any


def fill(op: Convolution, bias: list[Array], out: Array) -> None:
    """Every cell what it is without a tap: the bias, or zero."""
    out[...] = bias[0].reshape(-1, *(1,) * op.rank) if bias else 0


def sparse_image(
    op: Convolution, axes: list[Span], sources: list[Any], bias: list[Array], out: Array
) -> None:
    """out = bias + Σ over the sources (windows, weight): a number per image cell."""
    fill(op, bias, out)
    _correlate(op, _blocks(image_lines, axes), sources, (1, 0), bias, out)


def sparse_windows(
    op: Convolution, axes: list[Span], sources: list[Any], bias: list[Array], out: Array
) -> None:
    """out = bias + Σ over the sources (image, weight): a number per window."""
    fill(op, bias, out)
    _correlate(op, _blocks(window_lines, axes), sources, (0, 1), bias, out)
    for _, weight in sources:
        if not np.isfinite(weight).all():
            _spoil_windows(axes, weight, out)


def _blocks(
    lines: Callable[[Span], Iterable[Array]], axes: list[Span]
) -> Iterator[tuple[Array, ...]]:
    """Lines of all axes, many outputs of each at a time."""
    if not axes:
        yield ()
        return
    for first in lines(axes[0]):
        for rest in _blocks(lines, axes[1:]):
            yield (first, *rest)


def _correlate(
    op: Convolution,
    blocks: Iterator[tuple[Array, ...]],
    sources: list[Any],
    axes: tuple[int, int],
    bias: list[Array],
    out: Array,
) -> None:
    """Sums over channels and lines; `axes` are the weight's axes of output rows and of input channels."""
    form, groups = FORMS[out.dtype], op.groups
    shape = list(sources[0][1].shape)
    shape[0] //= groups
    rows, channels = shape[axes[0]], shape[axes[1]]
    target = place(out, op.rank)
    item, group, row = (
        n.ravel() for n in np.indices((len(target.offsets), groups, rows), np.int64, sparse=False)
    )
    cells, taps, held = [], [], [target]
    for x, weight in sources:
        at, w = place(x, op.rank), place(weight, op.rank)
        held += at, w
        strides = np.array(w.array.strides, np.int64)
        base = at.offsets[item] + group * channels * at.channel
        cells.append(_factor(at.address, base, np.arange(channels) * at.channel, at.strides, form))
        base = group * shape[0] * strides[0] + row * strides[axes[0]]
        terms = np.arange(channels) * strides[axes[1]]
        taps.append(Factor(w.address + base, terms, strides[2:]))
    starts = np.zeros(len(row), form.work)
    if bias:
        starts[:] = bias[0][group * rows + row]
    base = (
        target.address + (target.offsets[item] + (group * rows + row) * target.channel) * form.size
    )
    strides = np.array(target.strides) * form.size
    for lines in blocks:
        if all(map(len, lines)):
            _add_up([*lines], (cells, taps), starts, (base, strides), form, held)


def _factor(address: int, base: Array, terms: Array, strides: Any, form: Form) -> Factor:
    """What is counted in elements, in bytes."""
    return Factor(address + base * form.size, terms * form.size, np.array(strides) * form.size)


def sparse_weights(
    op: Convolution,
    axes: list[Span],
    image: Array,
    windows: Array,
    shape: tuple[int, ...],
    work: Any,
) -> Array:
    """The sum over positions of image cell × window, for each weight of an array of this shape."""
    form, groups = FORMS[np.dtype(work)], op.groups
    sums = np.zeros(shape, form.work)
    if not image.size or not windows.size:
        return sums
    source, grads = place(image, op.rank), place(windows, op.rank)
    row, channel = (n.ravel() for n in np.indices(shape[:2], np.int64, sparse=False))
    group = row // (shape[0] // groups)
    base = (group * shape[1] + channel) * source.channel
    cells = _factor(source.address, base, source.offsets, source.strides, form)
    senders = _factor(grads.address, row * grads.channel, grads.offsets, grads.strides, form)
    starts, strides = np.zeros(len(row), form.work), np.array(sums.strides)
    base = address(sums) + row * strides[0] + channel * strides[1]
    lines = [weight_lines(axis) for axis in axes]
    _add_up(lines, ([cells], [senders]), starts, (base, strides[2:]), form, (source, grads, sums))
    if not np.isfinite(windows).all():
        _spoil_weights(axes, windows, sums)
    return sums


def _add_up(
    lines: list[Array],
    factors: tuple[list[Factor], list[Factor]],
    starts: Array,
    out: tuple[Array, Any],
    form: Form,
    held: Any,
) -> None:
    """All sums, on all threads; `out` is where the results of each begin, in bytes, and their strides.

    What is `held` has the factors and the results, of which addresses are told.
    """
    counts = np.array([len(table) for table in lines], np.int64)
    cells, (base, strides) = prod(map(int, counts)), out
    arrays = [np.concatenate(lines), np.cumsum(counts) - counts, counts]
    for side in factors:
        arrays += [np.array([getattr(f, name) for f in side], np.int64) for name in Factor._fields]
    arrays += [starts, np.ascontiguousarray(base, np.int64), np.array(strides, np.int64)]
    terms = len(factors[0][0].terms)
    record = [cells, len(lines), len(factors[0]), terms, len(base), *map(address, arrays)]
    assert len(record) == len(SPARSE.fields)
    run(
        sparse_kernels.sums_kernel(form.name),
        len(base) * cells,
        record,
        (arrays, held),
        4 * 8 * len(lines),
    )


# -- zeros of padding times an infinity or a NaN --


def _spoil_windows(axes: list[Span], weight: Array, out: Array) -> None:
    """NaN for the windows of which a weight that is no number lies on padding, where a zero is."""
    ends = [axis.windows_of_taps() for axis in axes]
    strange: Array = np.logical_not(np.isfinite(weight).all(axis=1))
    for row in np.flatnonzero(strange.reshape(len(strange), -1).any(1)):
        result = np.moveaxis(out, -len(axes) - 1, 0)[row]
        for a, taps in enumerate(np.nonzero(strange[row])):
            first, end = ends[a][0][taps].max(), ends[a][1][taps].min()
            along = np.moveaxis(result, a - len(axes), 0)
            along[:first] = np.nan
            along[max(end, 0) :] = np.nan


def _spoil_weights(axes: list[Span], windows: Array, sums: Array) -> None:
    """NaN for the weights that meet padding, where a zero is, in a window whose gradient is no number."""
    items = tuple(range(windows.ndim - len(axes) - 1))
    strange: Array = np.logical_not(np.isfinite(windows).all(axis=items))
    for row in np.flatnonzero(strange.reshape(len(strange), -1).any(1)):
        for a, places in enumerate(np.nonzero(strange[row])):
            first, end = axes[a].windows_of_taps()
            wrong = (first > places.min()) | (end <= places.max())
            np.moveaxis(sums[row], a + 1, 0)[wrong] = np.nan
