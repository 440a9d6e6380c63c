"""Matrices copied so that rows become columns: square blocks of them in registers, the rest element by element."""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, pointer
from lunette.kernels.cpu.simd import ir_helpers
from lunette.kernels.cpu.simd.streaming import stream_fence
from lunette.kernels.cpu.tuning import LINE

__all__ = ["BLOCK", "kernel", "turning"]

BLOCK = 16
"""Rows and columns of a block, at most; they are of 64 bytes, at most."""


@cache
def turning(side: int) -> Any:
    """`turn(x, at, far, y, to)`: of `side` vectors of 64 bytes, `far` elements apart, rows become columns, in each part of `side` lanes.

    They follow each other in y.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def turn(context: Any, x: Any, at: Any, far: Any, y: Any, to: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x_first, at, far, y_first, to = arguments
            size = x.dtype.bitwidth // 8
            kind = ir.VectorType(context.get_value_type(x.dtype), LINE // size)
            vectors = []
            for _ in range(side):
                place = builder.bitcast(builder.gep(x_first, [at]), kind.as_pointer())
                vectors.append(builder.load(place, align=size))
                at = builder.add(at, far)
            first = builder.bitcast(builder.gep(y_first, [to]), kind.as_pointer())
            for i, vector in enumerate(ir_helpers.transposed(builder, vectors)):
                builder.store(vector, builder.gep(first, [ir_helpers.i32(i)]), align=size)
            return context.get_dummy_value()

        return types.void(x, at, far, y, to), generate

    return turn


@cache
def kernel(size: int) -> Any:
    """The kernel for elements of `size` bytes.

    Arrays 0 and 1 are the source and the target. The table has: rows and columns of a matrix of the source; elements
    from one matrix to the next and from one row to the next, in the source, then in the target; and
    positions of a unit, and units of a matrix, on the axis along which the rows that lie further apart go.
    """
    element, side = types.Integer.from_bitwidth(8 * size), min(BLOCK, 64 // size)

    def turned(context: Any, builder: Any, arguments: Any, streaming: bool) -> Any:
        x, at, far, y, to, apart = arguments
        kind = ir.VectorType(ir.IntType(8 * size), side)
        vectors = []
        for _ in range(side):
            place = builder.bitcast(builder.gep(x, [at]), kind.as_pointer())
            vectors.append(builder.load(place, align=size))
            at = builder.add(at, far)
        for vector in ir_helpers.transposed(builder, vectors):
            place = builder.bitcast(builder.gep(y, [to]), kind.as_pointer())
            store = builder.store(vector, place, align=side * size if streaming else size)
            if streaming:
                flag = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
                store.set_metadata("nontemporal", flag)
            to = builder.add(to, apart)
        return context.get_dummy_value()

    @intrinsic  # type: ignore[untyped-decorator]
    def turn(context: Any, x: Any, at: Any, far: Any, y: Any, to: Any, apart: Any) -> Any:
        """A block of rows, `far` apart in x, becomes columns of y, whose rows are `apart`."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return turned(context, builder, arguments, False)

        return types.void(x, at, far, y, to, apart), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def turn_past(context: Any, x: Any, at: Any, far: Any, y: Any, to: Any, apart: Any) -> Any:
        """`turn` past the caches: rows of the block are whole lines of y."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return turned(context, builder, arguments, True)

        return types.void(x, at, far, y, to, apart), generate

    @compiled
    def one_by_one(x, at, far, rows, columns, y, to, apart):
        """Any part of a matrix."""
        alwaysinline()
        for r in range(rows):
            for c in range(columns):
                y[to + c * apart + r] = x[at + r * far + c]

    @compiled
    def block(x, at, far, rows, columns, y, to, apart, streaming):
        """A block, or what there is of it."""
        alwaysinline()
        if (rows == side) & (columns == side) & streaming:
            turn_past(x, at, far, y, to, apart)
        elif (rows == side) & (columns == side):
            turn(x, at, far, y, to, apart)
        else:
            one_by_one(x, at, far, rows, columns, y, to, apart)

    @intrinsics.kernel
    def transpose(x_at, y_at, z_at, scratch_at, g_at, room, first, last):
        g, x, y = pointer(g_at, types.int64), pointer(x_at, element), pointer(y_at, element)
        rows, columns, x_next, far, y_next, apart = g[0], g[1], g[2], g[3], g[4], g[5]
        chunk, chunks = g[6], g[7]
        line = side * size
        streaming = (line == LINE) & (y_at % LINE == 0) & (apart * size % LINE == 0)
        streaming &= y_next * size % LINE == 0
        for unit in range(first, last):
            base, target, begin = (
                unit // chunks * x_next,
                unit // chunks * y_next,
                unit % chunks * chunk,
            )
            # Blocks follow each other where the rows that lie further apart go on: few rows at a time are written or read.
            if far < apart:
                end = min(rows, begin + chunk)
                for c in range(0, columns, side):
                    for r in range(begin, end, side):
                        at, to = base + r * far + c, target + c * apart + r
                        block(
                            x,
                            at,
                            far,
                            min(side, end - r),
                            min(side, columns - c),
                            y,
                            to,
                            apart,
                            False,
                        )
            else:
                end = min(columns, begin + chunk)
                for r in range(0, rows, side):
                    for c in range(begin, end, side):
                        at, to = base + r * far + c, target + c * apart + r
                        block(
                            x,
                            at,
                            far,
                            min(side, rows - r),
                            min(side, end - c),
                            y,
                            to,
                            apart,
                            streaming,
                        )

        stream_fence()

    return transpose
