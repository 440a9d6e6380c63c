"""What convolution means: a sum over windows × cells of `window · weight · image`.

A convolution reads the image and gives the windows; its transpose reads the windows and gives the
image; the gradient of the weights reads both. So every verb is one of three sums over one walk.
Padding is zeros around the image: they are multiplied, and nothing is sent to them. A product with such a
zero is left out where it is zero; where it is not, as of an infinity, it comes after the others. Sums start
from zero and fold left to right in the order of the walk, and the bias is added last: that order
is the meaning. Gradients of weights and bias are sums over all positions: they fold so within each
box of `lunette.boxes`, and boxes are added in its tree. Half types are computed in float32 and
rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from lunette.boxes import Box, Range, add_up, boxes, of_grad, of_windows
from lunette.memory import check_room
from lunette.ops.convolution import Convolution
from lunette.regions import Sliding
from lunette.spec.scalars import filled, lift_all, lower, of_array

__all__ = ["forward", "jvp", "vjp"]

Array = np.ndarray[Any, Any]
Index = tuple[int, ...]

BYTES = 40
"""Of a number in the specification's arrays: an object and its place."""


# -- the verbs --


def forward(op: Convolution, operands: tuple[Array, ...]) -> Array:
    """The value of the convolution."""
    out_shape = op.out_shape(*(a.shape for a in operands))
    x, weight, *bias = _lift(op, operands)
    with np.errstate(all="ignore"):
        out = _zeros(out_shape, (x, weight, *bias))
        _add_value(op, out, x, weight)
        _add_bias(op, out, bias)
    return lower(out, operands[0].dtype)


def jvp(op: Convolution, operands: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
    """The directional derivative: of x first, then of the weight, then of the bias."""
    out_shape = op.out_shape(*(a.shape for a in operands))
    count = len(operands)
    numbers = _lift(op, operands, tangents)
    (x, weight, *_), (dx, dweight, *dbias) = numbers[:count], numbers[count:]
    with np.errstate(all="ignore"):
        out = _zeros(out_shape, tuple(numbers))
        _add_value(op, out, dx, weight)
        _add_value(op, out, x, dweight)
        _add_bias(op, out, dbias)
    return lower(out, operands[0].dtype)


def vjp(op: Convolution, operands: tuple[Array, ...], grad: Array) -> tuple[Array, ...]:
    """The gradients of x, of the weight and of the bias, if there is one."""
    *numbers, gy = _lift(op, operands, gradient=grad)
    zeros = [_zeros(a.shape, (*numbers, gy)) for a in operands]
    x, weight = numbers[:2]
    image, windows = (gy, x) if op.transposed else (x, gy)
    with np.errstate(all="ignore"):
        (add_windows if op.transposed else add_image)(op, zeros[0], gy, weight)
        gradients = [zeros[0]]
        ranges = of_windows(op, image.shape, windows.shape)
        gradients.append(_over_boxes(add_weight, zeros[1], ranges, op, image, windows))
        if len(operands) == 3:
            ranges = of_grad(op, gy.shape)
            gradients.append(_over_boxes(add_channels, zeros[2], ranges, op, gy))
    return tuple(lower(g, a.dtype) for g, a in zip(gradients, operands, strict=True))


def _over_boxes(
    add: Callable[..., None],
    zeros: Array,
    ranges: list[list[Range]],
    op: Convolution,
    *terms: Array,
) -> Array:
    """The sum over all positions: one that starts from zeros in each box, added in the tree."""

    def part(box: Box) -> Array:
        total = zeros.copy()
        add(op, total, *terms, box)
        return total

    total = add_up(map(part, boxes(ranges)), np.add)
    return zeros if total is None else total


# -- the sums --


def add_windows(op: Convolution, windows: Array, image: Array, weight: Array) -> None:
    """Add to each window the sum of weight × cell; the walk within it: channels, then the kernel."""
    for window, cell, tap in walk(op, windows.shape, image.shape, weight.shape):
        windows[window] = windows[window] + weight[tap] * image[cell]
    products = _not_zero(weight, _zero((image, weight)))
    for window in np.ndindex(windows.shape if products else (0,)):
        for tap, value in products.items():
            if tap[0] == window[-op.rank - 1] and _on_padding(op, window, tap, image.shape):
                windows[window] = windows[window] + value


def add_image(op: Convolution, image: Array, windows: Array, weight: Array) -> None:
    """Add to each cell what the windows that read it send; the walk: those windows, in order."""
    for window, cell, tap in walk(op, windows.shape, image.shape, weight.shape):
        image[cell] = image[cell] + weight[tap] * windows[window]


def add_weight(op: Convolution, weight: Array, image: Array, windows: Array, box: Box) -> None:
    """Add to each weight the sum of window × cell over the windows of a box, in order."""
    for window, cell, tap in walk(op, windows.shape, image.shape, weight.shape, box):
        weight[tap] = weight[tap] + windows[window] * image[cell]
    products = _not_zero(windows, _zero((image, windows)))
    for window, value in products.items():
        if all(first <= i < last for i, (first, last) in zip(window, box, strict=True)):
            for tap in product([window[-op.rank - 1]], *map(range, weight.shape[1:])):
                if _on_padding(op, window, tap, image.shape):
                    weight[tap] = weight[tap] + value


def add_channels(op: Convolution, bias: Array, grad: Array, box: Box) -> None:
    """Add to each channel's sum the gradients of a box, in order."""
    for place in _indices(box):
        channel = place[-op.rank - 1]
        bias[channel] = bias[channel] + grad[place]


def walk(
    op: Convolution, windows: Index, image: Index, weight: Index, box: Box | None = None
) -> Iterator[tuple[Index, Index, Index]]:
    """(window, cell, tap): every window in row-major order, every weight of it in row-major order.

    Each is an index into the array of that shape; taps on padding have no cell and are passed over. With a
    `box`, the windows in it.
    """
    rank, per_group = op.rank, weight[0] // op.groups
    for window in _indices(box or tuple((0, n) for n in windows)):
        batch, channel, place = window[: -rank - 1], window[-rank - 1], window[-rank:]
        first = channel // per_group * weight[1]
        axes = [
            _cells(region, n, i)
            for region, n, i in zip(op.regions, image[-rank:], place, strict=True)
        ]
        for c in range(weight[1]):
            for taps in product(*axes):
                tap = (channel, c, *(j for j, _ in taps))
                yield window, (*batch, first + c, *(p for _, p in taps)), tap


def _indices(box: Box) -> Iterable[Index]:
    """Every index in the box, in row-major order."""
    return product(*(range(first, last) for first, last in box))


def _cells(region: Sliding, n: int, i: int) -> list[tuple[int, int]]:
    """(tap, position) of each cell of window `i` on an axis of length `n`, without those on padding."""
    window = region.window(n, i)
    skipped = (window.start - _position(region, n, i, 0)) // region.dilation
    return list(enumerate(window.positions, skipped))


def _position(region: Sliding, n: int, i: int, j: int) -> int:
    """Where tap `j` of window `i` falls on an axis of length `n`, or outside of it."""
    before, _ = region.margins(n)
    return i * (region.stride or 1) - before + j * region.dilation


def _on_padding(op: Convolution, window: Index, tap: Index, image: Index) -> bool:
    """Whether a tap of a window falls outside an image of this shape."""
    axes = zip(op.regions, image[-op.rank :], window[-op.rank :], tap[2:], strict=True)
    return any(not 0 <= _position(region, n, i, j) < n for region, n, i, j in axes)


def _not_zero(numbers: Array, zero: Any) -> dict[Index, Any]:
    """What numbers times zero are, by their indices, where that is not zero: of an infinity or a NaN."""
    if numbers.dtype.kind == "f":
        places = [tuple(map(int, place)) for place in np.argwhere(~np.isfinite(numbers))]
    else:
        places = list(np.ndindex(numbers.shape))
    products = {place: numbers[place] * zero for place in places}
    return {place: value for place, value in products.items() if not _equals(value, zero)}


def _equals(value: Any, zero: Any) -> bool:
    """Whether a product is zero and nothing else; enclosures that only may be are not."""
    return bool(value == zero)


# -- numbers --


def _add_value(op: Convolution, out: Array, x: Array, weight: Array) -> None:
    if op.transposed:
        add_image(op, out, x, weight)
    else:
        add_windows(op, out, x, weight)


def _add_bias(op: Convolution, out: Array, bias: list[Array]) -> None:
    if bias:
        out += bias[0].reshape(-1, *(1,) * op.rank)


def _lift(
    op: Convolution,
    operands: tuple[Array, ...],
    tangents: tuple[Array, ...] = (),
    **others: Array,
) -> list[Array]:
    """The arrays to compute with; ints among objects join the number system of all of them."""
    named = dict(zip(op.operand_names, operands, strict=False))
    moves = {f"tangent of {n}": t for n, t in zip(op.operand_names, tangents, strict=False)}
    return lift_all(named | moves | others)


def _zero(operands: tuple[Array, ...]) -> Any:
    return of_array(next((a for a in operands if a.size), operands[0])).from_int(0)


def _zeros(shape: Index, operands: tuple[Array, ...]) -> Array:
    check_room(f"the result of shape {shape} in the specification", BYTES * prod(shape))
    return filled(shape, _zero(operands))
