"""Lanes moved along: the vector so many elements further on, and the fold of all lanes of one vector."""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,no-any-return"

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from lunette.kernels.cpu.jit.intrinsics import compiled
from lunette.kernels.cpu.simd.vec import vec

__all__ = ["folded", "slide"]


@cache
def slide(by: int) -> Any:
    """`slide(by)(a, b)` has the elements `by` after those of `a`, where `b` follows `a`."""

    @intrinsic  # type: ignore[untyped-decorator]
    def moved(context: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            order = list(range(by, by + a.count))
            mask = ir.Constant(ir.VectorType(ir.IntType(32), a.count), order)
            return builder.shuffle_vector(*arguments, mask)

        return a(a, b), generate

    return moved


@intrinsic  # type: ignore[untyped-decorator]
def first_lane(context: Any, a: Any) -> Any:
    """The first element of a vector."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.extract_element(arguments[0], ir.Constant(ir.IntType(32), 0))

    return a.element(a), generate


@cache
def folded(work: Any, operation: str) -> Any:
    """The fold of all lanes of a vector of `work`, as a tree: halves, quarters, …, neighbours."""
    here = vec(work, work, "")
    join = getattr(here, operation)

    def halved(width: int) -> Any:
        if width == 1:
            return first_lane
        move, rest = slide(width // 2), halved(width // 2)

        @compiled
        def fold(a):
            return rest(join(a, move(a, a)))

        return fold

    return halved(here.width)
