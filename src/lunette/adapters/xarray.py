"""The verbs over xarray's DataArrays: pooled by dimension, with the coordinates of window centres.

Attributes and the name are kept. A coordinate along one pooled dimension is taken at the centres of
the windows: interpolated between cells, continued in a straight line over padding. A coordinate of
words or other objects, or one over several dimensions of which some is pooled, has no centre and is
left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from lunette import dispatch
from lunette.arguments import tuple_of_sizes
from lunette.axes import order, turned
from lunette.functional import max_unpool
from lunette.ops.base import Op
from lunette.ops.pooling import Pooling
from lunette.regions import Region, Sliding

__all__ = [
    "by_name",
    "forward",
    "forward_with_indices",
    "jvp",
    "labelled",
    "moved",
    "shapeless",
    "unpool",
    "unpool_by_name",
    "vjp",
]


# -- the verbs: the last dimensions are pooled --


def forward(op: Op, operands: tuple[Any, ...], backend: str | None) -> Any:
    """The op's value."""
    op, x = _checked(op, operands)
    return labelled(op, x, dispatch.forward(op, x.data, backend=backend))


def forward_with_indices(op: Op, operands: tuple[Any, ...], backend: str | None) -> Any:
    """A max's value and the flat positions of its winners in the pooled dimensions."""
    op, x = _checked(op, operands)
    value, indices = dispatch.forward_with_indices(op, x.data, backend=backend)
    return labelled(op, x, value), labelled(op, x, indices)


def jvp(op: Op, operands: tuple[Any, ...], tangents: tuple[Any, ...], backend: str | None) -> Any:
    """The directional derivative."""
    op, x = _checked(op, operands)
    directions = tuple(_data(t, x.dims, "tangent of x") for t in tangents)
    return labelled(op, x, dispatch.jvp(op, (x.data,), directions, backend=backend))


def vjp(op: Op, operands: tuple[Any, ...], grad: Any, backend: str | None) -> tuple[Any, ...]:
    """The gradient, with the coordinates of x."""
    op, x = _checked(op, operands)
    dims = x.dims if op.keepdims else x.dims[: x.ndim - op.rank]
    gradient = dispatch.vjp(op, x.data, _data(grad, dims, "gradient"), backend=backend)
    return (x.copy(data=gradient),)


def _checked(op: Op, operands: tuple[Any, ...]) -> tuple[Pooling, Any]:
    if not isinstance(op, Pooling):
        raise TypeError(f"{op!r}: DataArrays can be pooled alone; convolve x.data instead")
    if len(operands) != 1 or not isinstance(operands[0], xr.DataArray):
        kinds = ", ".join(type(x).__name__ for x in operands)
        raise TypeError(f"{op!r} takes one DataArray, got {kinds}")
    return op, operands[0]


def _data(x: Any, dims: tuple[Any, ...], name: str) -> Any:
    """The array of `x`; of a DataArray, with its dimensions in this order."""
    if not isinstance(x, xr.DataArray):
        return x
    if set(x.dims) != set(dims):
        raise ValueError(f"{name} has dimensions {x.dims}; expected {dims}")
    return x.transpose(*dims).data


# -- axes that are not the last --


def moved(x: Any, source: tuple[int, ...], destination: tuple[int, ...]) -> Any:
    """The array with some axes moved; of a DataArray, its dimensions."""
    if not isinstance(x, xr.DataArray):
        return turned(x, source, destination)
    return x.transpose(*(x.dims[axis] for axis in order(x.ndim, source, destination)))


def shapeless(operands: tuple[Any, ...]) -> bool:
    """Whether dimensions are in an order of their own: two DataArrays are matched by name."""
    return len(operands) > 1


# -- unpooling --


def unpool(values: Any, indices: Any, pooled: tuple[int, ...]) -> Any:
    """Each value at its index in the last dimensions; these lose their coordinates."""
    like = values if isinstance(values, xr.DataArray) else indices
    if isinstance(values, xr.DataArray) and isinstance(indices, xr.DataArray):
        _check_labels(values, indices)
    data = max_unpool(
        _data(values, like.dims, "values"), _data(indices, like.dims, "indices"), pooled
    )
    kept = like.dims[: like.ndim - len(pooled)]
    coordinates = {n: c for n, c in like.coords.items() if set(c.dims) <= set(kept)}
    named = (like.name, like.attrs) if like is values else (None, None)
    return xr.DataArray(data, coordinates, like.dims, *named)


def unpool_by_name(values: Any, indices: Any, sizes: Mapping[Any, int]) -> Any:
    """`max_unpool` over the dimensions that `sizes` names, which keep their places."""
    for name, x in (("values", values), ("indices", indices)):
        if not isinstance(x, xr.DataArray):
            raise TypeError(
                f"a dict of sizes names dimensions: expected {name} as an xarray DataArray, "
                f"got {type(x).__name__}"
            )
    pooled = _named(values, sizes)
    turned = values.transpose(..., *pooled)
    result = unpool(turned, indices, tuple_of_sizes([sizes[d] for d in pooled], "output_size"))
    return result.transpose(*values.dims)


def _check_labels(values: Any, indices: Any) -> None:
    try:
        xr.align(values, indices, join="exact")
    except ValueError as error:
        raise ValueError(f"indices have other labels than values: {error}") from None


# -- by name --


def by_name(
    function: Callable[..., Any], x: Any, window: Mapping[Any, int], options: dict[str, Any]
) -> Any:
    """`function(x, window, …)` over the dimensions that `window` names, which keep their places."""
    if not isinstance(x, xr.DataArray):
        raise TypeError(
            f"a dict of sizes names dimensions: expected an xarray DataArray, got {type(x).__name__}"
        )
    if options.get("axes") is not None:
        raise TypeError(
            f"axes={options['axes']!r}: a dict of sizes names the dimensions already; give one of both"
        )
    pooled = _named(x, window)
    sizes = tuple(window[d] for d in pooled)
    options = {name: _per_dimension(v, name, pooled) for name, v in options.items()}
    result = function(x.transpose(..., *pooled), sizes, **options)
    if isinstance(result, tuple):
        return tuple(r.transpose(*x.dims) for r in result)
    return result.transpose(*x.dims)


def _named(x: Any, window: Mapping[Any, int]) -> list[Any]:
    """The dimensions of x that a dict names, in the order of x."""
    if not window:
        raise ValueError("{}: expected at least one dimension to pool")
    for name in window:
        if name not in x.dims:
            raise ValueError(f"dimension {name!r}: expected one of {x.dims}")
    return [d for d in x.dims if d in window]


def _per_dimension(value: Any, name: str, pooled: list[Any]) -> Any:
    """An option given by dimension, in the order in which dimensions are pooled."""
    if not isinstance(value, Mapping):
        if isinstance(value, (tuple, list)) and len(pooled) > 1:
            raise TypeError(
                f"{name}={value!r}: with dimensions by name, expected one number or a dict by name"
            )
        return value
    if set(value) != set(pooled):
        raise ValueError(f"{name}={dict(value)!r}: expected the dimensions {tuple(pooled)}")
    return tuple(value[d] for d in pooled)


# -- coordinates --


def labelled(op: Pooling, x: Any, data: Any) -> Any:
    """The result with what is known of x."""
    regions = dict(zip(x.dims[x.ndim - op.rank :], op.regions, strict=True))
    coordinates = {}
    for name, coordinate in x.coords.items():
        touched = [d for d in coordinate.dims if d in regions]
        if not touched:
            coordinates[name] = coordinate
        elif len(coordinate.dims) == 1 and op.keepdims:
            (dim,) = touched
            values = _at_centres(coordinate.values, centres(regions[dim], x.sizes[dim]))
            if values is not None:
                coordinates[name] = xr.Variable((dim,), values, coordinate.attrs)
    dims = x.dims if op.keepdims else x.dims[: x.ndim - op.rank]
    return xr.DataArray(data, coordinates, dims, x.name, x.attrs)


def centres(region: Region, n: int) -> np.ndarray[Any, Any]:
    """The middle of each window, padding included, as positions; halves lie between two cells."""
    count = region.out_length(n)
    if isinstance(region, Sliding):
        before, _ = region.margins(n)
        first = (region.extent - 1) / 2 - before
        return first + (region.stride or 1) * np.arange(count, dtype=np.float64)
    windows = [region.window(n, i) for i in range(count)]
    return np.array([(w.start + w.stop - 1) / 2 for w in windows])


def _at_centres(values: Any, places: np.ndarray[Any, Any]) -> Any:
    """A coordinate at fractional positions; None where it has no numbers."""
    n = len(values)
    inside = (places == np.floor(places)) & (places >= 0) & (places < n)
    if inside.all():
        return values[places.astype(int)]
    if values.dtype.kind not in "iufmM":
        return None
    if n == 1:
        return np.full(len(places), values[0])
    if values.dtype.kind in "iu":
        values = values.astype(np.float64)
    left = np.clip(np.floor(places).astype(int), 0, n - 2)
    shares, steps = places - left, values[left + 1] - values[left]
    if values.dtype.kind not in "mM":
        return values[left] + shares * steps
    # Times are whole numbers: a step is exact, and what is taken of it is rounded once.
    moved = np.rint(shares * steps.astype(np.int64)).astype(np.int64).astype(steps.dtype)
    return np.where(np.isnat(steps), values[left] + steps, values[left] + moved)
