"""Pooled axes that are not the last: moved to the end, pooled there, and moved back.

An array is turned without a copy of its own; kernels read most turned layouts as they lie in memory.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lunette.arguments import listed, shown, size

if TYPE_CHECKING:
    from lunette.ops.base import Op, Shape

__all__ = ["Turn", "chosen", "gradient_fits", "order", "places", "shapes_fit", "turned"]

FARTHEST = 64
"""Axes are named from −64 to 63: arrays have at most 64."""

Axes = tuple[int, ...]


def chosen(axes: Any, rank: int) -> Axes | None:
    """The checked `axes` argument: one integer per pooled axis, or None for the last ones."""
    if axes is None:
        return None
    items = listed(axes) if isinstance(axes, (tuple, list)) else (axes,)
    found = tuple(_axis(value, axes) for value in items)
    if len(found) != rank:
        raise ValueError(
            f"axes={shown(axes)}: expected {rank} of them, one per pooled axis; got {len(found)}"
        )
    if len(set(found)) != len(found):
        raise ValueError(f"axes={shown(axes)}: expected different axes")
    return None if found == tuple(range(-rank, 0)) else found


def _axis(value: Any, axes: Any) -> int:
    try:
        number = size(value, "axes", -FARTHEST)
    except ValueError:
        number = FARTHEST
    except TypeError as error:
        raise TypeError(
            f"axes={shown(axes)}: expected integers, one per pooled axis; negative ones count from the end"
        ) from error
    if not -FARTHEST <= number < FARTHEST:
        raise ValueError(
            f"axes={shown(axes)}: expected integers from −{FARTHEST} to {FARTHEST - 1}; arrays have at most "
            f"{FARTHEST} axes"
        )
    return number


@lru_cache(maxsize=4096)
def places(axes: Axes | None, rank: int, ndim: int) -> Axes:
    """The checked axes of an array of `ndim` axes, the last where none are named, as numbers from 0."""
    if axes is None:
        if ndim < rank:
            raise ValueError(f"an array of {ndim} axes has no last {rank}")
        return tuple(range(ndim - rank, ndim))
    for axis in axes:
        if not -ndim <= axis < ndim:
            raise ValueError(
                f"axes={axes}: axis {axis} is none of an array of {ndim} axes; expected −{ndim} … {ndim - 1}"
            )
    found = tuple(axis % ndim for axis in axes)
    if len(set(found)) != rank:
        raise ValueError(
            f"axes={axes}: two of them are one axis of an array of {ndim} axes; expected different axes"
        )
    return found


@lru_cache(maxsize=4096)
def order(ndim: int, source: Axes, destination: Axes) -> Axes:
    """The permutation that moves axes: where each axis of the result comes from."""
    goes = dict(zip((d % ndim for d in destination), (s % ndim for s in source), strict=True))
    rest = iter([axis for axis in range(ndim) if axis not in goes.values()])
    return tuple(goes[axis] if axis in goes else next(rest) for axis in range(ndim))


def turned(x: Any, source: Axes, destination: Axes) -> Any:
    """The array with some axes moved, the others in their order."""
    return x.transpose(order(x.ndim, source, destination))


class Turn:
    """The way of an op's arrays to the last axes and back; `move` moves the axes of an array."""

    def __init__(self, op: Op, move: Any = None) -> None:
        assert op.axes is not None
        self.op, self.move, self.axes = op, move or turned, op.axes
        self.last: Axes = tuple(range(-len(op.axes), 0))
        self.kept = getattr(op, "keepdims", True)

    def there(self, x: Any) -> Any:
        """An array of x's axes, with the pooled ones last."""
        return self.move(x, self.axes, self.last)

    def back(self, x: Any) -> Any:
        """The reverse of `there`."""
        return self.move(x, self.last, self.axes)

    def operands(self, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """The operands, or their tangents, with x turned; a weight and a bias have axes of their own."""
        return (self.there(operands[0]), *operands[1:])

    def operands_back(self, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Gradients of the operands; one that nobody needs is None."""
        first, *others = operands
        return (first if first is None else self.back(first), *others)

    def gradient(self, grad: Any) -> Any:
        """A gradient of the result."""
        return self.there(grad) if self.kept else grad

    def result(self, found: Any) -> Any:
        """The result, or several."""
        if isinstance(found, tuple):
            return tuple(map(self.result, found))
        return self.back(found) if self.kept else found


def shapes_fit(op: Op, operands: tuple[Shape, ...], tangents: tuple[Shape, ...]) -> None:
    """Refuse tangents of other shapes than their operands have, before axes are moved."""
    if len(operands) != len(tangents):
        raise ValueError(f"{op!r}: {len(operands)} operands but {len(tangents)} tangents")
    for name, shape, other in zip(op.operand_names, operands, tangents, strict=False):
        if shape != other:
            raise ValueError(
                f"tangent of {name} has shape {other}; expected {name}'s shape {shape}"
            )


def gradient_fits(op: Op, operands: tuple[Shape, ...], grad: Shape) -> None:
    """Refuse a gradient of another shape than the result has, before axes are moved."""
    expected = op.out_shape(*operands)
    if grad != expected:
        raise ValueError(f"gradient has shape {grad}; expected the output's {expected}")
