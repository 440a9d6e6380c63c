"""Derivatives of a max with channels last where ties count: every cell that equals its window's maximum takes part.

The maxima are known. A cell wins a window if it equals the maximum, or is a NaN: then so is the maximum.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, noinline, pointer
from lunette.kernels.cpu.micro.index import (
    batch_offset,
    list_offsets,
    output_row,
    place_of,
    readers_of_row,
)
from lunette.kernels.cpu.schedule.records import NHWC_PLAN
from lunette.kernels.cpu.schedule.slots import DIRECT
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.prefetch import prefetch_in_order
from lunette.kernels.cpu.simd.streaming import store_or_stream, stream_fence
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import LINE

__all__ = ["gather_kernel", "kernel"]

plan_of = NHWC_PLAN.at

MANY = 256
"""Cells of a window, at most, that a vector of channels goes through by itself; of larger ones positions come in the order of memory,
each with all channels."""


def _wins(builder: Any, cell: Any, value: Any) -> Any:
    """A lane's cell wins a window with this maximum."""
    same = builder.fcmp_ordered("==", cell, value)
    return builder.or_(same, builder.fcmp_unordered("uno", cell, cell))


@intrinsic  # type: ignore[untyped-decorator]
def winning(context: Any, cell: Any, value: Any) -> Any:
    """A bit for each lane whose cell wins, as an integer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(_wins(builder, *arguments), ir.IntType(cell.count))
        return builder.zext(bits, ir.IntType(64))

    return types.int64(cell, value), generate


@intrinsic  # type: ignore[untyped-decorator]
def where_winning(context: Any, cell: Any, value: Any, share: Any) -> Any:
    """The share in lanes whose cell wins, +0 in the others."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        cell, value, share = arguments
        return builder.select(_wins(builder, cell, value), share, ir.Constant(share.type, None))

    return share(cell, value, share), generate


@cache
def kernel(dtype: str, verb: str, split: bool) -> Any:
    """The kernel of a verb for a dtype: array 0 is x, and `values_at` is where its maxima are, as their positions come.

    `jvp` reads the tangent from array 2 and writes array 1: the winners' tangents added up from the first to the last, divided by
    their number where ties `split`. `shares` reads the gradient of the result from array 1 and writes array 2: that gradient so divided,
    in the numbers of the arithmetic.
    """
    outer = dtype_of(dtype, False)
    memory, work = outer.memory, outer.work
    from_x, here = vec(memory, work, outer.half), vec(work, work, "")
    width, load, load_masked, store = from_x.width, from_x.load, from_x.load_masked, from_x.store
    load_s, load_ones, store_s = here.load, here.load_masked, here.store
    add, divide, broadcast, follows = here.add, here.divide, here.broadcast, verb == "jvp"
    zero, one = work(0), work(1)

    @compiled
    def finish(total, number, result, k):
        """A vector of results, from what was added up and counted."""
        alwaysinline()
        if split:
            total = divide(total, number)
        if follows:
            store(result, k, total)
        else:
            store_s(result, k, total)

    @compiled
    def small_window(x, p, rows, value, dx, q, others, window):
        """The sum of the winners' tangents in a vector of channels, and how many win."""
        alwaysinline()
        count, members, far, far_z = window
        total, number = broadcast(zero), broadcast(zero)
        for r in range(count):
            for t in range(members):
                cell = load(x, p + rows[r] + t * far)
                if follows:
                    tangent = load(dx, q + others[r] + t * far_z)
                    total = add(total, where_winning(cell, value, tangent))
                if split:
                    number = add(number, where_winning(cell, value, broadcast(one)))
        return total, number

    @compiled
    def add_winners(x, p, values, k, wide, dx, q, s):
        """Add the winners among the channels of a position, and their tangents, to what is counted and added up."""
        noinline()
        for vector in range(0, wide, width):
            # The last vector ends with the position, so it may have lanes that have been counted.
            c = min(vector, wide - width)
            cell, value = load(x, p + c), load(values, k + c)
            prefetch_in_order(x, p + c)
            bits = winning(cell, value) & (-1 << (vector - c))
            if bits != 0:
                if follows:
                    tangent = load_masked(dx, q + c, bits, zero)
                    store_s(s, c, add(load_s(s, c), tangent))
                if split:
                    once = load_ones(s, 2 * wide + c, bits, zero)
                    store_s(s, wide + c, add(load_s(s, wide + c), once))

    @compiled
    def large_window(x, p, rows, maximum, wide, tangent, window, s):
        """Sums and numbers of winners of all channels, in the order of memory, to s."""
        alwaysinline()
        values, k = maximum
        dx, q, others = tangent
        count, members, far, far_z = window
        for channel in range(2 * wide):
            s[channel] = zero
        for r in range(count):
            for t in range(members):
                at, there = p + rows[r] + t * far, q + others[r] + t * far_z
                add_winners(x, at, values, k, wide, dx, there, s)

    @intrinsics.kernel
    def with_ties(x_at, b_at, c_at, scratch_at, plan_at, values_at, first, last):
        plan, rows = plan_of(plan_at), pointer(scratch_at, types.int64)
        x, values = pointer(x_at, memory), pointer(values_at, memory)
        b, c, shares = pointer(b_at, memory), pointer(c_at, memory), pointer(c_at, work)
        rank, wide, most, lines = plan.rank, plan.channels, plan.list_size, plan.output_rows
        others = pointer(scratch_at + 8 * most, types.int64)
        # After the lists, from a line on: sums, numbers of winners, ones.
        s = pointer(scratch_at + -(-40 * most // LINE) * LINE, work)
        for channel in range(wide):
            s[2 * wide + channel] = one
        w_axis = plan.axes[rank - 1]
        m, table = w_axis.out_len, w_axis.windows
        far, far_y, far_z = w_axis.x_stride, w_axis.y_stride, w_axis.z_stride
        for unit in range(first, last):
            item, row = unit // lines, unit % lines
            base, third = batch_offset(plan, item, 0), batch_offset(plan, item, 2)
            source = batch_offset(plan, item, 1) + output_row(plan, row, 1)
            count, _ = list_offsets(plan, rank - 1, row, rows, most)
            for j in range(m):
                w, k = table[j], (unit * m + j) * wide
                start, step, members = w.start, w.step, w.in_bounds
                p, q, given = base + start * far, third + start * far_z, source + j * far_y
                window = (count, members, step * far, step * far_z)
                large = count * members > MANY
                if large:
                    large_window(x, p, rows, (values, k), wide, (c, q, others), window, s)
                for vector in range(0, wide, width):
                    # The last vector ends with the position, so it may repeat some channels of the one before.
                    v = min(vector, wide - width)
                    if large:
                        total, number = load_s(s, v), load_s(s, wide + v)
                    else:
                        value = load(values, k + v)
                        total, number = small_window(
                            x, p + v, rows, value, c, q + v, others, window
                        )
                    if follows:
                        finish(total, number, b, k + v)
                    else:
                        finish(load(b, given + v), number, shares, k + v)

    return with_ties


@cache
def gather_kernel(dtype: str, split: bool) -> Any:
    """The kernel for a dtype that has each cell gather from the windows that it wins.

    Array 0 is x, 1 what each window gives to its winners, 2 the gradient of x; `values_at` is where the maxima are. These and array 2
    lie in memory as their positions come, each with its channels. Array 1 is the gradient of the result or, with ties `split`, its shares.
    """
    outer = dtype_of(dtype, False)
    memory, work = outer.memory, outer.work
    from_x, here = vec(memory, work, outer.half), vec(work, work, "")
    width, load, broadcast, add = from_x.width, from_x.load, here.broadcast, here.add
    number, load_share = (work, here.load) if split else (memory, load)
    keep, zero = store_or_stream(outer), work(0)

    @intrinsics.kernel
    def gather(x_at, shares_at, gx_at, scratch_at, plan_at, values_at, first, last):
        plan = plan_of(plan_at)
        x, gx = pointer(x_at, memory), pointer(gx_at, memory)
        shares, values = pointer(shares_at, number), pointer(values_at, memory)
        rank, wide, most = plan.rank, plan.channels, plan.list_size
        rows = pointer(scratch_at, types.int64)
        grads = pointer(scratch_at + 8 * most, types.int64)
        codes = pointer(scratch_at + 16 * most, types.int64)
        w_axis, lines = plan.axes[rank - 1], 1
        for axis in range(rank - 1):
            lines *= plan.axes[axis].in_len
        n, m, far, list_at = w_axis.in_len, w_axis.out_len, w_axis.x_stride, w_axis.readers_at
        apart_y = w_axis.y_stride
        streaming = (plan.stream == DIRECT) & (gx_at % LINE == 0)
        for unit in range(first, last):
            item, row = unit // lines, unit % lines
            at = batch_offset(plan, item, 0) + place_of(plan, row * n, 0)
            source, before = batch_offset(plan, item, 1), item * plan.output_rows
            count = readers_of_row(plan, row, rows, grads, codes)
            for p in range(n):
                begin, end, to = (
                    plan.numbers[list_at + p],
                    plan.numbers[list_at + p + 1],
                    (unit * n + p) * wide,
                )
                for vector in range(0, wide, width):
                    # The last vector ends with the position, so it may repeat some channels of the one before.
                    c, total = min(vector, wide - width), broadcast(zero)
                    cell = load(x, at + p * far + c)
                    prefetch_in_order(x, at + p * far + c)
                    for r in range(count):
                        k, i = (before + rows[r]) * m * wide + c, source + grads[r] + c
                        for reader in range(begin, end, 2):
                            j = plan.numbers[reader]
                            value = load(values, k + j * wide)
                            share = load_share(shares, i + j * apart_y)
                            total = add(total, where_winning(cell, value, share))
                    keep(gx, to + c, total, streaming)
        stream_fence()

    return gather
