"""The part of a network that some of its numbers depend on: every step cut to a box of its cells.

Rows over a few neighbouring numbers of a convolutional network read a patch of every step before.
On the part that these patches make, rows are as short as the patches are, and so a box for each of
many thousand numbers becomes affordable. The part gives the same bounds as the whole.
"""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import numpy as np

from lunette.bounds import affine
from lunette.bounds.affine import Affine, Shape, Step
from lunette.bounds.box import Array, Box
from lunette.bounds.network import Input, Network
from lunette.bounds.pull import Enclosure
from lunette.bounds.relax import Hull, SmoothHull
from lunette.bounds.windows import Maximum, Relaxation, Smooth, Windowed, counted_padding, table_of
from lunette.ops.convolution import Conv
from lunette.reductions import Mean

__all__ = [
    "Part",
    "Region",
    "cells_of",
    "divisors_of",
    "enclosed",
    "focused",
    "part_of",
    "region_around",
    "regions_of",
]

Region = tuple[tuple[int, int], ...]
"""First and last-but-one position on every axis."""


class Part(NamedTuple):
    """A network, and of each of its steps: which step of the whole it is of, and which region."""

    network: Network
    origins: list[int]
    regions: list[Region]


class Sliced(Affine):
    """A box of the cells of a step."""

    title = "slice"
    exact = True

    def __init__(self, parents: Any, about: str, x: Shape, region: Region) -> None:
        super().__init__(parents, tuple(b - a for a, b in region), about)
        self.x, self.picks = x, tuple(slice(a, b) for a, b in region)

    def linear(self, *inputs: Array) -> Array:
        lead = (slice(None),) * (inputs[0].ndim - len(self.picks))
        return np.asarray(inputs[0][(*lead, *self.picks)])

    def spread(self, *inputs: Array) -> Array:
        return self.linear(*inputs)

    def pull(self, rows: Array) -> list[Array]:
        out = np.zeros((len(rows), *self.x))
        out[(slice(None), *self.picks)] = rows
        return [out]


class Averaged(Affine):
    """Means of windows that a table gives, each over a divisor of its own."""

    title = "mean"

    def __init__(
        self, parents: Any, shape: Shape, about: str, x: Shape, table: Array, divisors: Array
    ) -> None:
        super().__init__(parents, shape, about)
        self.windows = Windowed(parents, shape, about, x, table)
        self.divisors = divisors
        self.terms, self.readers = table.shape[1], self.windows.readers

    def linear(self, *inputs: Array) -> Array:
        lead = inputs[0].shape[: inputs[0].ndim - len(self.windows.x)]
        sums = self.windows.gather(inputs[0], 0.0).sum(axis=-1) / self.divisors
        return np.asarray(sums.reshape(*lead, *self.shape))

    def spread(self, *inputs: Array) -> Array:
        return self.linear(*inputs)

    def pull(self, rows: Array) -> list[Array]:
        each = rows.reshape(len(rows), -1) / self.divisors
        full = np.broadcast_to(each[..., None], (*each.shape, self.windows.table.shape[1]))
        return [self.windows.scatter(full)]


def whole(shape: Shape) -> Region:
    """All cells of a shape."""
    return tuple((0, n) for n in shape)


def region_around(shape: Shape, cells: Array) -> Region:
    """The least region that holds these flat cells."""
    places = np.unravel_index(cells, shape) if len(shape) else ()
    return tuple((int(p.min()), int(p.max()) + 1) for p in places)


def cells_of(shape: Shape, region: Region) -> Array:
    """The flat cells of a region, in its own order."""
    picks = tuple(slice(a, b) for a, b in region)
    return np.arange(math.prod(shape)).reshape(shape)[picks].reshape(-1)


def regions_of(network: Network, k: int, region: Region, inputs: bool = True) -> dict[int, Region]:
    """What a region of step k depends on, step by step; whole inputs unless `inputs`."""
    found = {k: region}
    for j in range(k, -1, -1):
        step = network.steps[j]
        if j not in found:
            continue
        if isinstance(step, Input):
            found[j] = found[j] if inputs else whole(step.shape)
            continue
        found[j] = _possible(step, found[j])
        for p, need in zip(step.parents, _needs(network, step, found[j]), strict=True):
            if need is not None:
                found[p] = need if p not in found else _around(found[p], need)
    return found


def part_of(network: Network, k: int, region: Region, inputs: bool = True) -> Part:
    """The part of a network that a region of step k depends on."""
    regions = regions_of(network, k, region, inputs)
    steps: list[Step] = []
    origins: list[int] = []
    place: dict[int, int] = {}
    for j in sorted(regions):
        step, mine = network.steps[j], regions[j]
        read = []
        for p, need in zip(step.parents, _needs(network, step, mine), strict=True):
            if need is None:
                continue
            at = place[p]
            if need != regions[p] and not isinstance(step, (Windowed, affine.Pooled, affine.Moved)):
                inside = tuple(
                    (a - c, b - c) for (a, b), (c, _) in zip(need, regions[p], strict=True)
                )
                steps.append(Sliced((at,), step.about, steps[at].shape, inside))
                origins.append(-1)
                at = len(steps) - 1
            read.append(at)
        place[j] = len(steps)
        held = tuple(regions.get(p) for p in step.parents)
        steps.append(_cut(network, step, mine, held, tuple(read)))
        origins.append(j)
    regions_in_order = [regions[j] if j >= 0 else () for j in origins]
    return Part(Network(steps, {}), origins, regions_in_order)


def focused(network: Network, rows: Array) -> tuple[Network, Array]:
    """The part of a network that rows over its output depend on, and the rows over its output.

    Steps at the end that only move numbers are gone. Inputs stay whole.
    """
    k = len(network.steps) - 1
    while isinstance(network.steps[k], affine.Moved) and len(network.steps[k].parents) == 1:
        step = network.steps[k]
        assert isinstance(step, affine.Moved)
        if isinstance(step, affine.Filled) or step.readers > 1:
            break
        rows, k = step.pull(rows)[0], step.parents[0]
    shape = network.steps[k].shape
    used = np.flatnonzero((rows != 0).reshape(len(rows), -1).any(axis=0))
    if not len(used):
        return network, rows
    region = region_around(shape, used)
    part = part_of(network, k, region, inputs=False)
    picks = tuple(slice(a, b) for a, b in part.regions[-1])
    return part.network, np.ascontiguousarray(rows[(slice(None), *picks)])


def _around(one: Region, other: Region) -> Region:
    return tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


def _possible(step: Step, region: Region) -> Region:
    """The least region that holds this one and that the step can be cut to."""
    full = whole(step.shape)
    if isinstance(step, affine.Convolved):
        if _of_windows(step, region) is None:
            return full
        channels = len(step.shape) - step.op.rank - 1
        if step.op.groups > 1:
            return (*region[:channels], full[channels], *region[channels + 1 :])
        return region
    kinds = (affine.Joined, affine.Scaled, affine.Moved, affine.Pooled, Averaged, Sliced, Windowed)
    return region if isinstance(step, kinds) else full


def _needs(network: Network, step: Step, region: Region) -> list[Region | None]:
    """Of each operand, the region that a region of the result reads; None where it reads nothing."""
    shapes = [network.steps[p].shape for p in step.parents]
    if isinstance(step, affine.Convolved):
        return [_of_windows(step, region) or whole(shapes[0])]
    if isinstance(step, affine.Joined):
        return [_unstretched(side.x, region) for side in step.sides]
    if isinstance(step, affine.Scaled):
        return [_unstretched(step.x, region)]
    if isinstance(step, affine.Moved):
        index = step.index[cells_of(step.shape, region)]
        ends = np.cumsum([0, *map(math.prod, step.shapes)])
        found: list[Region | None] = []
        for shape, a, b in zip(step.shapes, ends, ends[1:], strict=False):
            mine = index[(index >= a) & (index < b)] - a
            found.append(region_around(shape, mine) if len(mine) else None)
        return found
    if isinstance(step, Sliced):
        starts = [pick.start for pick in step.picks]
        return [tuple((a + s, b + s) for (a, b), s in zip(region, starts, strict=True))]
    table = _table(step)
    if table is not None:
        cells = table[cells_of(step.shape, region)]
        cells = cells[cells >= 0]
        return [region_around(shapes[0], cells) if len(cells) else whole(shapes[0])]
    return [whole(shape) for shape in shapes]


def _table(step: Step) -> Array | None:
    if isinstance(step, Windowed):
        return step.table
    if isinstance(step, Averaged):
        return step.windows.table
    if isinstance(step, affine.Pooled):
        if not hasattr(step, "_table"):
            step._table = table_of(step.op, step.x)  # type: ignore[attr-defined]
        return step._table  # type: ignore[attr-defined,no-any-return]
    return None


def _of_windows(step: affine.Convolved, region: Region) -> Region | None:
    """The cells that windows of a convolution read, with all channels; None if they are not known."""
    rank, op = step.op.rank, step.op
    if not isinstance(op, Conv) or isinstance(op.padding, str):
        return None
    first = len(step.shape) - rank
    found = [*region[: first - 1], (0, step.x[first - 1])]
    for axis, (a, b) in enumerate(region[first:]):
        begin, end = _reach(op, axis, a, b)
        n = step.x[first + axis]
        if max(begin, 0) >= min(end, n):
            return None
        found.append((max(begin, 0), min(end, n)))
    return tuple(found)


def _reach(op: Any, axis: int, a: int, b: int) -> tuple[int, int]:
    stride, before = op.stride[axis], op.padding[axis][0]
    return a * stride - before, (b - 1) * stride - before + (op.kernel[axis] - 1) * op.dilation[
        axis
    ] + 1


def _unstretched(x: Shape, region: Region) -> Region:
    """The region of an operand that is stretched to the shape of the result."""
    last = region[len(region) - len(x) :]
    return tuple((0, 1) if n == 1 else ends for n, ends in zip(x, last, strict=True))


def _cut(
    network: Network,
    step: Step,
    region: Region,
    held: tuple[Region | None, ...],
    parents: tuple[int, ...],
) -> Step:
    """A step with only a region of its result, of operands of which only regions are held."""
    shape = tuple(b - a for a, b in region)
    if isinstance(step, Input):
        picks = tuple(slice(a, b) for a, b in region)
        if shape == step.shape:
            return Input(shape, step.about, step.box)
        return Input(shape, step.about, Box(step.box.lo[picks], step.box.hi[picks]))
    if isinstance(step, affine.Convolved):
        return _convolution(step, region, parents)
    if isinstance(step, affine.Joined):
        shapes = tuple(tuple(b - a for a, b in _unstretched(side.x, region)) for side in step.sides)
        return affine.Joined(parents, shape, step.about, (shapes[0], shapes[1]), step.sign)
    if isinstance(step, affine.Scaled):
        x = tuple(b - a for a, b in _unstretched(step.x, region))
        scale = _stretched(step.scale, step.shape, region)
        shift = None if step.shift is None else _stretched(step.shift, step.shape, region)
        return affine.Scaled(parents, shape, step.about, x, scale, shift, divisor=step.divisor)
    if isinstance(step, affine.Moved):
        return _moved(step, region, held, parents)
    if isinstance(step, Sliced):
        return Sliced(parents, step.about, shape, whole(shape))
    table = _table(step)
    if table is None:
        new = copy.copy(step)
        new.parents = parents
        return new
    (x_region,) = held
    assert x_region is not None
    x = tuple(b - a for a, b in x_region)
    chosen = cells_of(step.shape, region)
    mine = _remapped(table[chosen], network.steps[step.parents[0]].shape, x_region)
    if isinstance(step, Averaged):
        return Averaged(parents, shape, step.about, x, mine, step.divisors[chosen])
    if isinstance(step, affine.Pooled):
        return Averaged(parents, shape, step.about, x, mine, divisors_of(step)[chosen])
    assert isinstance(step, Windowed)
    return step.cut(parents, shape, x, mine, chosen)


def divisors_of(step: affine.Pooled) -> Array:
    """What the sum of each window is divided by; 1 where the window is empty."""
    reduction = step.op.reduction
    assert isinstance(reduction, Mean)
    table = _table(step)
    assert table is not None
    real = (table >= 0).sum(axis=1)
    counted = real + counted_padding(step.op, step.x) if reduction.count_include_pad else real
    if reduction.divisor_override is not None:
        counted = np.full(len(real), reduction.divisor_override)
    return np.asarray(np.maximum(counted, 1))


def _convolution(step: affine.Convolved, region: Region, parents: tuple[int, ...]) -> Step:
    op, first = step.op, len(step.shape) - step.op.rank
    need = _of_windows(step, region)
    if need is None or not isinstance(op, Conv):
        new = copy.copy(step)
        new.parents = parents
        return new  # it is kept whole
    channels = region[first - 1]
    pads = []
    for axis, (a, b) in enumerate(region[first:]):
        begin, end = _reach(op, axis, a, b)
        pads.append((max(0, -begin), max(0, end - step.x[first + axis])))
    x = tuple(b - a for a, b in need)
    full = channels == (0, step.shape[first - 1])
    weight = step.weight if full else np.ascontiguousarray(step.weight[slice(*channels)])
    local = Conv(op.kernel, op.stride, tuple(pads), op.dilation, op.groups)
    shape = tuple(b - a for a, b in region)
    new = affine.Convolved(parents, shape, step.about, local, x, weight)
    new.bias = None if step.bias is None else step.bias[slice(*channels)]
    return new


def _stretched(values: Any, shape: Shape, region: Region) -> Array:
    """A region of values that stretch to a shape, as few of them as before."""
    values = np.asarray(values)
    last = region[len(shape) - values.ndim :]
    picks = tuple(
        slice(None) if n == 1 else slice(a, b) for n, (a, b) in zip(values.shape, last, strict=True)
    )
    return np.asarray(values[picks])


def _remapped(table: Array, shape: Shape, region: Region) -> Array:
    """Flat cells of a shape as flat cells of a region of it; −1 stays."""
    local = np.full(math.prod(shape), -1)
    cells = cells_of(shape, region)
    local[cells] = np.arange(len(cells))
    return np.asarray(np.where(table >= 0, local[np.maximum(table, 0)], -1))


def _moved(
    step: affine.Moved,
    region: Region,
    held: tuple[Region | None, ...],
    parents: tuple[int, ...],
) -> Step:
    joined, count = [], 0
    for shape, one in zip(step.shapes, held, strict=True):
        local = np.full(math.prod(shape), -1)
        cells = np.zeros(0, np.int64) if one is None else cells_of(shape, one)
        local[cells] = count + np.arange(len(cells))
        count += len(cells)
        joined.append(local)
    mine = cells_of(step.shape, region)
    index = np.where(step.index[mine] >= 0, np.concatenate(joined)[step.index[mine]], -1)
    shapes = [tuple(b - a for a, b in one) for one in held if one is not None]
    shape = tuple(b - a for a, b in region)
    if isinstance(step, affine.Filled):
        fixed = step.fixed.reshape(-1)[mine].reshape(shape)
        return affine.Filled(parents, shape, step.about, shapes, index, fixed)
    return affine.Moved(parents, shape, step.about, shapes, index)


def enclosed(whole_network: Enclosure, part: Part, hulls: bool = False) -> Enclosure:
    """What is known of the whole, of the steps of a part; with `hulls`, to choose relaxations anew."""
    found = Enclosure(part.network, whole_network.deployment, whole_network.short)
    for i, (step, j, region) in enumerate(
        zip(part.network.steps, part.origins, part.regions, strict=True)
    ):
        if j < 0:
            (p,) = step.parents
            assert isinstance(step, Sliced)
            lo, hi = found.lo[p][step.picks], found.hi[p][step.picks]
            found.charged[i] = np.zeros(step.shape)
        else:
            picks = tuple(slice(a, b) for a, b in region)
            lo, hi = whole_network.lo[j][picks], whole_network.hi[j][picks]
            if j in whole_network.charged:
                found.charged[i] = whole_network.charged[j][picks]
        found.lo.append(lo)
        found.hi.append(hi)
        if j in whole_network.relaxed:
            windows = cells_of(whole_network.network.steps[j].shape, region)
            sides = whole_network.relaxed[j]
            found.relaxed[i] = Relaxation(*(side[windows] for side in sides))
            if hulls and isinstance(step, (Maximum, Smooth)):
                (p,) = step.parents
                kind: Any = Hull if isinstance(step, Maximum) else SmoothHull
                found.hulls[i] = kind(step, found.lo[p], found.hi[p])
    return found
