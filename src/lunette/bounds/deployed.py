"""How far the number that a float network returns can lie from the exact one, step by step.

The operands are those the network really had, so the errors of several steps never multiply here:
the boxes hold deployed numbers, and each step adds its own error. For sums of n products and a
constant, in any order, with or without fused multiply-adds,

    |ŷ − y| ≤ γ_(n+1)·(Σ|w|·max|x̂| + |b|) + 2(n + 1)·η,

η the smallest positive number. A max returns one of its operands.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette.arguments import choice, flag
from lunette.bounds.affine import Affine, Pooled, Step, Summed
from lunette.bounds.box import SLACK, TINY, Array, gamma
from lunette.bounds.windows import Curve, Jump, Maximum, Smooth, Softmax
from lunette.check.bounds import EXP_ERROR, EXPONENTIALS, LOG_ERROR

__all__ = ["Deployment", "error", "own_error", "softmax_error"]


class Deployment:
    """The arithmetic of the network that will run: float32 or float64, every step rounded to it.

    Covered: any order of summation, fused multiply-adds or not, any batch, layout and number of
    threads, sums in a wider type, means by division or by a reciprocal. `flush_subnormals` adds
    hardware that takes numbers below the normal range for 0. Not covered: Winograd and FFT
    convolution, TF32 and other products of fewer bits, overflow (refused where it can happen).

    Parameters
    ----------
    dtype : {"float32", "float64"}, default "float32"
        What every step is rounded to.
    flush_subnormals : bool, default False
        Let the hardware take numbers below the normal range for 0.

    Raises
    ------
    ValueError, TypeError
        For another dtype.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.Deployment("float64")
    Deployment('float64')
    """

    __slots__ = ("dtype", "flush_subnormals", "largest", "normal", "smallest", "unit")

    def __init__(self, dtype: str = "float32", flush_subnormals: bool = False) -> None:
        name = dtype if isinstance(dtype, str) else getattr(np.dtype(dtype), "name", dtype)
        self.dtype = choice(name, "dtype", ("float32", "float64"))
        self.flush_subnormals = flag(flush_subnormals, "flush_subnormals")
        numbers = np.finfo(self.dtype)
        self.unit = float(numbers.eps) / 2
        self.normal = float(numbers.tiny)
        self.smallest = self.normal if flush_subnormals else float(numbers.smallest_subnormal)
        self.largest = float(numbers.max)

    def __repr__(self) -> str:
        more = ", flush_subnormals=True" if self.flush_subnormals else ""
        return f"Deployment({self.dtype!r}{more})"

    def check_constant(self, value: Array, about: str, role: str) -> None:
        """Refuse weights that the deployed network cannot hold."""
        if self.dtype == "float32":
            with np.errstate(over="ignore"):
                wrong = value.astype(np.float32).astype(np.float64) != value
            if wrong.any():
                raise ValueError(
                    f"{about}: {role} holds {float(value[wrong][0])!r}, which is no float32 number; "
                    "round it first, as the deployed network does, or pass deployment=None"
                )
        if self.flush_subnormals and ((value != 0) & (np.abs(value) < self.normal)).any():
            raise ValueError(f"{about}: {role} holds subnormal numbers, which would be flushed")


def error(step: Step, sizes: list[Array], result: Array, deployment: Deployment | None) -> Array:
    """A bound on |deployed − exact| for every number of a step.

    `sizes` are the largest magnitudes of its operands and `result` that of its result.
    """
    if deployment is None or getattr(step, "exact", False):
        return np.zeros(step.shape)
    if isinstance(step, Affine):
        return _of_sums(step, sizes, deployment)
    if isinstance(step, Maximum):
        lost = deployment.smallest if deployment.flush_subnormals else 0.0
        return np.full(step.shape, lost)
    if isinstance(step, Smooth):
        return _of_smooth(step, sizes[0], result, deployment)
    if isinstance(step, Jump):
        return np.zeros(step.shape)
    if isinstance(step, Softmax):
        return _of_softmax(step, sizes[0], deployment)
    assert isinstance(step, Curve)
    # Eight units in the last place of a result below 1. Runtimes that compute a sigmoid as a half and
    # an odd function, as onnxruntime does, lose these of 1, however small the result is.
    whole = np.ones_like(result) if step.title == "sigmoid" else result
    return np.asarray(16 * deployment.unit * whole * SLACK + 8 * deployment.normal)


def _of_sums(step: Affine, sizes: list[Array], deployment: Deployment) -> Array:
    n = int(step.terms)
    if n * deployment.unit > 2.0**-6:
        raise ValueError(
            f"{step.about}: sums of {n} products are too long for a bound in {deployment.dtype}"
        )
    size = step.sizes(*sizes) * SLACK
    whole = step.sums(*sizes) * SLACK if isinstance(step, (Pooled, Summed)) else size
    if whole.size and not whole.max() * 1.1 < deployment.largest:
        raise ValueError(
            f"{step.about}: its sums may reach {whole.max():.3g} and overflow {deployment.dtype}; "
            "give a smaller box"
        )
    lost = 2 * (n + 1) * deployment.smallest
    each = (n + 1) * deployment.unit
    total = (each + 2 * each * each) * size + lost  # γ_(n+1), and no division
    if deployment.flush_subnormals:  # a cell that is taken for 0 is off by up to η
        total = total + step.sizes(*(np.ones_like(s) for s in sizes)) * deployment.smallest
    return np.asarray(total * SLACK)


def _of_smooth(step: Smooth, size: Array, result: Array, deployment: Deployment) -> Array:
    """`(γ_(n+1) + E + (u + L)·ln n)/|β| + 2u·|y| + η`, the promise of this library's kernels."""
    unit, beta = deployment.unit, abs(step.beta)
    n = step.present.sum(axis=-1) + step.zeros
    if size.size and not 4 * size.max() * max(1.0, beta) < deployment.largest:
        raise ValueError(f"{step.about}: β·x may overflow {deployment.dtype}; give a smaller box")
    logarithm = np.log(np.maximum(n, 1))
    exponentials = unit * (EXPONENTIALS * EXP_ERROR + 3 * logarithm)
    total = gamma(n + 1, unit) + exponentials + (1 + LOG_ERROR) * unit * logarithm
    total = total.reshape(step.shape) / beta + 2 * unit * result + deployment.smallest
    if deployment.flush_subnormals:
        total = total + 8 * deployment.smallest * (1 + 1 / beta)
    return np.asarray(total * SLACK * SLACK + TINY)


def softmax_error(classes: int, size: float, deployment: Deployment) -> float:
    """The relative error of a softmax of numbers up to this size, besides underflow.

    The argument of an exponential is off by one rounding of a difference, the exponential by a few
    units, the sum by one rounding per class, the quotient by one.
    """
    unit = deployment.unit
    if classes * unit > 2.0**-8 or 4 * size * unit > 2.0**-4:
        raise ValueError(f"softmax of {classes} numbers up to {size:.3g}: its error is not bounded")
    return 4 * unit * (2 * size + classes + EXPONENTIALS * EXP_ERROR + 8)


def _of_softmax(step: Softmax, size: Array, deployment: Deployment) -> Array:
    relative = softmax_error(step.table.shape[1], float(size.max(initial=0.0)), deployment)
    return np.full(step.shape, relative + 8 * deployment.normal)


def own_error(step: Step, sizes: list[Any]) -> Array:
    """What float64 can lose when this step's box is computed, or rows are pulled through it."""
    assert isinstance(step, Affine)
    if step.exact and step.readers == 1:
        return np.zeros(step.shape)
    count = int(step.terms) + step.readers + step.cells + 16
    return np.asarray(4 * gamma(count) * step.sizes(*sizes) * SLACK + TINY)
