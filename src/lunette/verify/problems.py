"""One case of a property beside its network: float boxes, rows of coefficients, exact bounds."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from lunette.onnx import Case, Constraint, Network, ReadError

__all__ = ["Problem", "below", "check_shapes", "input_shape", "nearest"]

Array = np.ndarray[Any, Any]


def input_shape(net: Network) -> tuple[int, ...]:
    """The shape of the only input; an open size must be that of the batch, and is 1."""
    if len(net.inputs) != 1 or len(net.outputs) != 1:
        raise ReadError(
            f"the network has {len(net.inputs)} inputs and {len(net.outputs)} outputs; "
            "a property speaks of one input and one output"
        )
    shape = net.inputs[0].shape
    if shape is None or any(n is None for n in shape[1:]):
        raise ReadError(
            f"input {net.inputs[0].name!r} has open sizes: {shape}; only the first may be"
        )
    return tuple(1 if n is None else n for n in shape)


def check_shapes(net: Network, inputs: int, outputs: int) -> None:
    """The property speaks of as many numbers as the network has."""
    shape = input_shape(net)
    if math.prod(shape) != inputs:
        raise ReadError(f"the property has {inputs} inputs; the network takes {shape}")
    probe = net(np.zeros(shape, net.dtype))
    if probe.size != outputs:
        raise ReadError(f"the property has {outputs} outputs; the network gives {probe.shape}")


def nearest(value: Fraction, dtype: Any) -> Any:
    """A float near an exact number, by one rounding of its nearest float64."""
    return dtype.type(value.numerator / value.denominator)


def below(value: Fraction, dtype: Any) -> Any:
    """The largest float at or below an exact number."""
    near = nearest(value, dtype)
    while Fraction(float(near)) > value:
        near = np.nextafter(near, dtype.type(-np.inf))
    following = np.nextafter(near, dtype.type(np.inf))
    while Fraction(float(following)) <= value:
        near, following = following, np.nextafter(following, dtype.type(np.inf))
    return near


class Problem:
    """A case: `lo`, `hi` hold its box, rounded outward to floats of the network.

    `inner_lo`, `inner_hi` are floats inside of the exact box; where none lies between two ends, the
    nearest one stands for both. `rows` are the constraints that some conjunction needs, one row of
    integers each, and a conjunction is a tuple of rows.
    """

    def __init__(self, net: Network, case: Case) -> None:
        self.net, self.case, dtype = net, case, np.dtype(net.dtype)
        shape = input_shape(net)
        largest = Fraction(float(np.finfo(dtype).max))
        for i, v in enumerate((*case.lower, *case.upper)):
            if abs(v) > largest:
                place = i % len(case.lower)
                raise ReadError(
                    f"the box of X_{place} reaches past the floats of the network, {dtype}"
                )
        lower = [below(v, dtype) for v in case.lower]
        upper = [-below(-v, dtype) for v in case.upper]
        self.lo, self.hi = (np.array(side, np.float64).reshape(shape) for side in (lower, upper))
        inner_lo = np.array([-below(-v, dtype) for v in case.lower], dtype).reshape(shape)
        inner_hi = np.array([below(v, dtype) for v in case.upper], dtype).reshape(shape)
        none = inner_lo > inner_hi
        near = np.array([nearest(v, dtype) for v in case.lower], dtype).reshape(shape)
        self.inner_lo = np.where(none, near, inner_lo) + dtype.type(0)  # −0 + 0 is 0
        self.inner_hi = np.where(none, near, inner_hi) + dtype.type(0)
        self.shape = shape
        places: dict[Constraint, int] = {}
        self.every = tuple(
            tuple(places.setdefault(c, len(places)) for c in conjunction)
            for conjunction in case.unsafe
        )
        self.constraints = tuple(places)
        self.rows, self.limits = self._rows()

    def _rows(self) -> tuple[Array, list[Fraction]]:
        """Rows scaled to integers, and the exact limits under the same scale."""
        outputs = self.net(self.center().astype(self.net.dtype))
        rows = np.zeros((len(self.constraints), outputs.size))
        limits = []
        for k, constraint in enumerate(self.constraints):
            scale = math.lcm(*(c.denominator for _, c in constraint.coefficients))
            for j, c in constraint.coefficients:
                if abs(c * scale) >= 2**53:
                    raise ReadError(f"a coefficient of Y_{j}, {float(c):g}, has too many digits")
                rows[k, j] = float(c * scale)
            limits.append(constraint.bound * scale)
        return rows.reshape(len(rows), *outputs.shape), limits

    def center(self) -> Array:
        """The middle of the box."""
        return np.asarray(self.lo + (self.hi - self.lo) / 2)

    def middle(self) -> Array:
        """A float of the property's box, near its middle."""
        x = self.center().astype(self.inner_lo.dtype)
        return np.asarray(np.clip(x, self.inner_lo, self.inner_hi))

    def refuted(self, least: Array, limits: list[Fraction]) -> list[bool]:
        """For each conjunction, whether one of its constraints can never hold."""
        never = [
            bool(np.isfinite(v)) and Fraction(float(v)) > limit
            for v, limit in zip(least, limits, strict=True)
        ]
        return [any(never[k] for k in conjunction) for conjunction in self.every]

    def margins(self, outputs: Array) -> Array:
        """How far each constraint is from holding; negative where it does."""
        flat = self.rows.reshape(len(self.rows), -1) @ outputs.reshape(-1).astype(np.float64)
        return np.asarray(flat - np.array([float(v) for v in self.limits]))

    def violated(self, outputs: Array) -> bool:
        """Whether these outputs are unsafe, judged exactly."""
        exact = outputs.reshape(-1).tolist()
        if not all(map(math.isfinite, exact)):
            return False
        return any(all(self.constraints[k].holds(exact) for k in every) for every in self.every)
