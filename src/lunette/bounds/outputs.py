"""Bounds of a tape's output, cell by cell, or of linear functions of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette.arguments import choice
from lunette.bounds.box import Array, Box, gamma, magnitude
from lunette.bounds.deployed import Deployment
from lunette.bounds.parts import focused
from lunette.bounds.pull import Enclosure
from lunette.bounds.reading import network_of
from lunette.bounds.tighten import METHODS, ROUNDS, enclose, least, unit_rows
from lunette.inputs import array

__all__ = ["bounds", "least_of", "lower_bounds", "row_array"]

FLOAT32 = Deployment("float32")


def bounds(
    tape: Any,
    output: Any,
    boxes: dict[Any, Box],
    *,
    method: str = "crown",
    deployment: Deployment | None = FLOAT32,
) -> Box:
    """A box that holds every value of a node while leaves lie in their boxes.

    `boxes` maps leaves to boxes; other leaves are constants. `method` is `"ibp"` (interval
    arithmetic), `"crown"` (linear functions, backward) or `"tight"` (the same, chosen anew for each
    output). `deployment` is the arithmetic of the network that will run: the box holds what it
    returns, for any order of summation. None is the network over the real numbers.

    Parameters
    ----------
    tape : Tape
        The network.
    output : Id
        The node to bound.
    boxes : dict of Id to Box
        Where leaves lie.
    method : {"ibp", "crown", "tight"}, default "crown"
        How close, and how long it takes.
    deployment : Deployment or None
        The arithmetic of the network that will run. Default: float32.

    Returns
    -------
    Box
        Of the shape of the output.

    Raises
    ------
    ValueError, TypeError
        For an op that has no bounds, by name, or a box that does not fit its leaf.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> tape = ln.Tape()
    >>> x = tape.leaf(np.zeros((1, 4), np.float32), "x")
    >>> found = ln.bounds(tape, tape.apply(ln.MaxPool((2,)), x), {x: ln.Box([[0.0, 0, 1, 0]], 2.0)})
    >>> found.lo.round(5), found.hi.round(5)
    (array([[0., 1.]]), array([[2., 2.]]))
    """
    choice(method, "method", METHODS)
    network = network_of(tape, output, boxes, deployment)
    enclosure = enclose(network, deployment, method)
    last = network.steps[-1]
    lo, hi = enclosure.lo[-1], enclosure.hi[-1]
    if method == "ibp" or not last.cells:
        return Box(lo, hi)
    low, high = np.empty(last.cells), np.empty(last.cells)
    some = 1 << 10
    for first in range(0, last.cells, some):
        cells = np.arange(first, min(first + some, last.cells))
        low[cells] = least(enclosure, unit_rows(last.shape, cells, 1.0), ROUNDS[method])
        high[cells] = -least(enclosure, unit_rows(last.shape, cells, -1.0), ROUNDS[method])
    return Box(np.maximum(lo, low.reshape(last.shape)), np.minimum(hi, high.reshape(last.shape)))


def lower_bounds(
    tape: Any,
    output: Any,
    boxes: dict[Any, Box],
    rows: Any,
    *,
    method: str = "crown",
    deployment: Deployment | None = FLOAT32,
) -> Array:
    """A number that `Σ row·output` never falls below, for each of `rows`, `(rows, *shape)`.

    The sum over the output is that of exact numbers; the outputs are those of the deployed network.

    Parameters
    ----------
    tape : Tape
        The network.
    output : Id
        The node.
    boxes : dict of Id to Box
        Where leaves lie.
    rows : array_like
        Coefficients, `(rows, *output.shape)`.
    method : {"ibp", "crown", "tight"}, default "crown"
        How close, and how long it takes.
    deployment : Deployment or None
        The arithmetic of the network that will run. Default: float32.

    Returns
    -------
    numpy.ndarray of float64
        A number for each row.

    Raises
    ------
    ValueError, TypeError
        For rows of another shape, an op that has no bounds, or a box that does not fit its leaf.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> tape = ln.Tape()
    >>> x = tape.leaf(np.zeros((1, 2), np.float32), "x")
    >>> y = tape.relu(x)
    >>> least = ln.bounds.lower_bounds(tape, y, {x: ln.Box([[1.0, 0.0]], [[3.0, 0.5]])}, [[[1.0, -1.0]]])
    >>> least.round(3)
    array([0.5])
    """
    choice(method, "method", METHODS)
    network = network_of(tape, output, boxes, deployment)
    matrix = row_array(rows, network.steps[-1].shape)
    network, matrix = focused(network, matrix)
    return least_of(enclose(network, deployment, method), matrix, method)


def least_of(enclosure: Enclosure, rows: Array, method: str) -> Array:
    """The better of interval arithmetic and of going backward."""
    lo, hi = enclosure.lo[-1], enclosure.hi[-1]
    flat = rows.reshape(len(rows), -1)
    corner = np.where(flat > 0, lo.reshape(-1), hi.reshape(-1))
    sizes = np.abs(flat) @ magnitude(lo, hi).reshape(-1)
    interval = (flat * corner).sum(axis=1) - 2 * gamma(flat.shape[1] + 8) * sizes
    if method == "ibp":
        return np.asarray(interval)
    return np.asarray(np.maximum(interval, least(enclosure, rows, ROUNDS[method])))


def row_array(rows: Any, shape: tuple[int, ...]) -> Array:
    """Rows of coefficients as float64, checked."""
    matrix = array(rows, "rows")
    if matrix.dtype.kind not in "fiu":
        raise TypeError(f"rows have dtype {matrix.dtype}: expected numbers")
    matrix = matrix.astype(np.float64)
    if matrix.ndim != len(shape) + 1 or matrix.shape[1:] != shape:
        raise ValueError(
            f"rows have shape {matrix.shape}; expected (rows, {', '.join(map(str, shape))})"
        )
    if not matrix.size:
        raise ValueError(f"rows have shape {matrix.shape}: there is nothing to bound")
    if not np.isfinite(matrix).all():
        raise ValueError("rows hold numbers that are not finite")
    return matrix
