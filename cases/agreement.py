"""Whether an interpreter agrees with the specification: bit for bit, or within the bound."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import flint
import numpy as np

import lunette as ln
from cases import oracle
from lunette import dispatch
from lunette.check.bounds import arithmetic_of, bound
from lunette.ops.pooling import Pool, Pooling
from lunette.reductions import Max, Mean, Reduction
from lunette.regions import Region
from lunette.spec import pooling as meaning

__all__ = [
    "TIES",
    "bounded_errors",
    "differing_bits",
    "max_disagreements",
    "pool",
    "run",
]

Array = np.ndarray[Any, Any]
TIES = ("first", "all", "split")
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def pool(regions: tuple[Region, ...], reduction: Reduction) -> Pool:
    """The general pooling op of these regions."""
    return Pool(regions, reduction)


def run(
    op: Pooling, verb: str, x: Array, direction: Array | None = None, backend: str | None = "cpu"
) -> Any:
    """One verb of one interpreter."""
    if verb in ("jvp", "vjp"):
        return getattr(dispatch, verb)(op, x, direction, backend=backend)
    return getattr(dispatch, verb)(op, x, backend=backend)


# -- bit for bit --


def differing_bits(actual: Array, expected: Array, any_nan: bool = False) -> str:
    """Where two arrays differ in shape, dtype or bits; empty where they do not.

    With `any_nan` one NaN is as good as another: sums do not say which payload survives.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return (
            f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
        )
    unsigned = _UNSIGNED[expected.dtype.itemsize]
    a, b = np.ascontiguousarray(actual), np.ascontiguousarray(expected)
    different = a.reshape(-1).view(unsigned) != b.reshape(-1).view(unsigned)
    if any_nan:
        both = (a.reshape(-1) != a.reshape(-1)) & (b.reshape(-1) != b.reshape(-1))
        different &= ~both
    if not different.any():
        return ""
    first = int(np.argmax(different))
    where = tuple(map(int, np.unravel_index(first, expected.shape)))
    return (
        f"{int(different.sum())} of {expected.size} differ, first at {where}: "
        f"{a.reshape(-1)[first]!r} instead of {b.reshape(-1)[first]!r}"
    )


def max_disagreements(
    regions: tuple[Region, ...],
    x: Array,
    backend: str | None = "cpu",
    ties: tuple[str, ...] = TIES,
    verbs: tuple[str, ...] = ("forward", "forward_with_indices", "jvp", "vjp"),
    seed: int = 0,
    reference: Any = None,
) -> list[str]:
    """Every verb of a max whose bits are not the specification's, told with what to run.

    `reference` gives the expected results: the specification, or the oracle that stands for it.
    """
    expect: Any = reference or oracle
    found = []

    def compare(op: Pooling, verb: str, actual: Array, expected: Array, any_nan: bool) -> None:
        difference = differing_bits(actual, expected, any_nan)
        if difference:
            found.append(f"{verb} of {op!r} on {x.dtype}{list(x.shape)}: {difference}")

    op = pool(regions, Max("first"))
    values, indices = expect.forward_with_indices(op, x)
    if "forward" in verbs:
        compare(op, "forward", run(op, "forward", x, backend=backend), values, False)
    if "forward_with_indices" in verbs:
        got_values, got_indices = run(op, "forward_with_indices", x, backend=backend)
        compare(op, "forward_with_indices", got_values, values, False)
        compare(op, "indices", got_indices, indices, False)
    if x.dtype.kind in "iub":
        return found
    for rule in ties:
        op = pool(regions, Max(rule))
        if "jvp" in verbs:
            dx = direction(x.shape, x.dtype, seed)
            compare(op, "jvp", run(op, "jvp", x, dx, backend), expect.jvp(op, x, dx), True)
        if "vjp" in verbs:
            grad = direction(values.shape, x.dtype, seed + 1)
            compare(op, "vjp", run(op, "vjp", x, grad, backend), expect.vjp(op, x, grad), True)
    return found


class Specification:
    """The specification, called as the oracle is."""

    forward_with_indices = staticmethod(ln.spec.forward_with_indices)
    jvp = staticmethod(ln.spec.jvp)
    vjp = staticmethod(ln.spec.vjp)


def direction(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> Array:
    """A tangent or gradient whose sums round: normal numbers, with a −0 here and there."""
    rng = np.random.default_rng([seed, 77])
    values = rng.standard_normal(shape)
    values[rng.random(shape) < 0.1] = -0.0
    return values.astype(dtype)


# -- within the bound --


def bounded_errors(
    op: Pooling, verb: str, x: Array, direction: Array | None = None, backend: str | None = "cpu"
) -> float:
    """The largest error/bound of a mean or smooth max; infinite where a result makes no sense.

    Finite inputs only. The exact values are rationals for mean and balls of 256 bits otherwise.
    """
    actual = run(op, verb, x, direction, backend)
    # Integers become float64 before anything is computed, which is part of the bound.
    exact = _exact(op, verb, x, direction)
    allowed = np.broadcast_to(bound(op, verb, x, direction), exact.shape)
    if actual.shape != exact.shape:
        return float("inf")
    largest = arithmetic_of(x.dtype).stored_largest
    worst = 0.0
    for place in np.ndindex(exact.shape):
        limit = float(allowed[place])
        if limit == np.inf:
            continue
        size = abs(float(_middle(exact[place])))
        value = float(actual[place])
        if size + limit >= largest and np.isinf(value):
            continue  # the exact result is past the largest number of the dtype
        if not np.isfinite(value):
            return float("inf")
        error = _distance(value, exact[place])
        worst = max(worst, error / limit if limit else (0.0 if error == 0 else float("inf")))
    return worst


def _exact(op: Pooling, verb: str, x: Array, direction: Array | None) -> Array:
    rational = isinstance(op.reduction, Mean)
    convert = _rationals if rational else _balls
    with flint.ctx.workprec(256):
        exact = convert(x)
        if verb == "forward":
            return np.asarray(meaning.forward(op, (exact,)))
        assert direction is not None
        if verb == "jvp":
            return np.asarray(meaning.jvp(op, (exact,), (convert(direction),)))
        return np.asarray(meaning.vjp(op, (exact,), convert(direction))[0])


def _rational(value: Any) -> Any:
    exact = Fraction(int(value)) if isinstance(value, np.integer) else Fraction(float(value))
    return flint.fmpq(exact.numerator, exact.denominator)


def _rationals(x: Array) -> Array:
    return _mapped(x, _rational)


def _balls(x: Array) -> Array:
    return _mapped(x, lambda value: flint.arb(_rational(value)))


def _mapped(x: Array, function: Any) -> Array:
    out = np.empty(x.shape, object)
    for place in np.ndindex(x.shape):
        out[place] = function(x[place])
    return out


def _middle(value: Any) -> float:
    if isinstance(value, flint.fmpq):
        return int(value.p) / int(value.q)
    return float(value.mid())


def _distance(value: float, exact: Any) -> float:
    """An upper bound of |value − exact|."""
    with flint.ctx.workprec(256):
        ball = exact if isinstance(exact, flint.arb) else flint.arb(exact)
        return float((flint.arb(value) - ball).abs_upper())
