"""Which lanes can still be trusted: masks that lose a lane where a number is met that needs care.

A mask stays in its register, and each look at a vector is one instruction. Of halves that are compared as
integers the mask is their lowest number so far: NaNs of one sign are below all others, and those of the other
sign are found among the maxima.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.jit.intrinsics import compiled
from lunette.kernels.cpu.simd.half import INFINITY
from lunette.kernels.cpu.simd.vec import Vector, vec

__all__ = ["Guards", "guards"]


class Guards(NamedTuple):
    """Masks of lanes; those that begin with `while` lose the lanes that they find wanting."""

    all_true: Any
    both: Any
    failed: Any
    and_not_nan: Any
    and_not_zero: Any
    and_not_minus_zero: Any
    and_above_neg_inf: Any


@cache
def guards(work: Any, half: str) -> Guards:
    """The masks for vectors of `work`; `half` names a half type that is compared as integers."""
    if half in INFINITY:
        return _lowest(work, INFINITY[half])
    count, real = vec(work, work, "").width, isinstance(work, types.Float)
    mask = Vector(types.boolean, count)

    @intrinsic  # type: ignore[untyped-decorator]
    def all_true(context: Any) -> Any:
        """Every lane."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return ir.Constant(ir.VectorType(ir.IntType(1), count), [1] * count)

        return mask(), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def both(context: Any, some: Any, others: Any) -> Any:
        """The lanes that are among some and among others."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.and_(*arguments)

        return mask(some, others), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def failed(context: Any, lanes: Any) -> Any:
        """Whether a lane is not among them."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kept = builder.bitcast(arguments[0], ir.IntType(count))
            return builder.icmp_unsigned("!=", kept, ir.Constant(kept.type, -1))

        return types.boolean(lanes), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def and_not_nan(context: Any, lanes: Any, a: Any, b: Any) -> Any:
        """The lanes where neither is NaN."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            before, a, b = arguments
            return builder.and_(before, builder.fcmp_ordered("ord", a, b)) if real else before

        return mask(lanes, a, b), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def and_not_zero(context: Any, lanes: Any, value: Any) -> Any:
        """The lanes where a number is not +0 or −0."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            before, value = arguments
            zero = ir.Constant(value.type, None)
            return (
                builder.and_(before, builder.fcmp_unordered("!=", value, zero)) if real else before
            )

        return mask(lanes, value), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def and_not_minus_zero(context: Any, lanes: Any, value: Any) -> Any:
        """The lanes where a number is not −0."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            before, value = arguments
            if not real:
                return before
            whole = ir.VectorType(ir.IntType(work.bitwidth), count)
            pattern = ir.Constant(whole, [-(1 << (work.bitwidth - 1))] * count)
            return builder.and_(
                before, builder.icmp_signed("!=", builder.bitcast(value, whole), pattern)
            )

        return mask(lanes, value), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def and_above_neg_inf(context: Any, lanes: Any, value: Any) -> Any:
        """The lanes where a number is above −∞."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            before, value = arguments
            if not real:
                return before
            lowest = ir.Constant(value.type, [float("-inf")] * count)
            return builder.and_(before, builder.fcmp_unordered("!=", value, lowest))

        return mask(lanes, value), generate

    return Guards(
        all_true, both, failed, and_not_nan, and_not_zero, and_not_minus_zero, and_above_neg_inf
    )


def _lowest(work: Any, infinity: int) -> Guards:
    """The masks for halves as integers: a lane is lost where its lowest number is below −∞."""
    here = vec(work, work, "")
    count, least = here.width, here.min_num
    mask = Vector(work, count)
    kind = ir.VectorType(ir.IntType(work.bitwidth), count)

    def all_of(number: int) -> Any:
        return ir.Constant(kind, [number] * count)

    def without(builder: Any, before: Any, found: Any) -> Any:
        return builder.select(found, all_of(work.minval), before)

    @intrinsic  # type: ignore[untyped-decorator]
    def all_true(context: Any) -> Any:
        """Every lane."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return all_of(work.maxval)

        return mask(), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def failed(context: Any, lanes: Any) -> Any:
        """Whether a lane is not among them."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            below = builder.icmp_signed("<", arguments[0], all_of(-1 - infinity))
            found = builder.bitcast(below, ir.IntType(count))
            return builder.icmp_unsigned("!=", found, ir.Constant(found.type, 0))

        return types.boolean(lanes), generate

    @compiled
    def and_not_nan(lanes, a, b):
        """The lanes where neither is a NaN below −∞."""
        return least(least(lanes, a), b)

    @intrinsic  # type: ignore[untyped-decorator]
    def and_not_zero(context: Any, lanes: Any, value: Any) -> Any:
        """The lanes where a maximum is neither +0, which may have come after a −0, nor a NaN."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            before, value = arguments
            zero = builder.icmp_signed("==", value, all_of(0))
            nan = builder.icmp_signed(">", value, all_of(infinity))
            return without(builder, before, builder.or_(zero, nan))

        return mask(lanes, value), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def and_not_minus_zero(context: Any, lanes: Any, value: Any) -> Any:
        """The lanes where a number is neither −0 nor a NaN above +∞."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            before, value = arguments
            zero = builder.icmp_signed("==", value, all_of(-1))
            nan = builder.icmp_signed(">", value, all_of(infinity))
            return without(builder, before, builder.or_(zero, nan))

        return mask(lanes, value), generate

    # Of halves that are compared as integers nobody asks for more: −∞ is among their numbers.
    return Guards(all_true, least, failed, and_not_nan, and_not_zero, and_not_minus_zero, None)
