"""Winners of a max of items with one window each, and its derivatives by them: global max, mostly.

An item is folded, then its cells are looked at again, 64 at a time: a bit for each that wins. There is nothing to add up
for a gradient: a cell has one reader.
"""

# Numba types the kernels, not mypy; `v != v` is how a NaN is known.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: PLR0124

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.jit import intrinsics
from lunette.kernels.cpu.jit.intrinsics import alwaysinline, compiled, pointer
from lunette.kernels.cpu.micro.index import batch_offset
from lunette.kernels.cpu.micro.reduce_window import equal, lowest, wide_windows
from lunette.kernels.cpu.schedule.records import PLAN
from lunette.kernels.cpu.simd.half import dtype_of
from lunette.kernels.cpu.simd.prefetch import prefetch_line
from lunette.kernels.cpu.simd.shuffle import folded
from lunette.kernels.cpu.simd.vec import vec
from lunette.kernels.cpu.tuning import LOOKUP_BATCH

__all__ = ["kernel"]

plan_of = PLAN.at

BITS = 64
"""Cells that are looked at together: a bit of an integer for each."""

SHORT = 4096
"""Bytes of an item, at most, where the winners of several are found before their tangents are looked up."""


@intrinsic  # type: ignore[untyped-decorator]
def number_of(context: Any, bits: Any) -> Any:
    """How many bits are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


@cache
def kernel(dtype: str, verb: str, ties: str) -> Any:
    """The kernel of a verb for a dtype and a rule for ties. There is one pooled axis, whose cells lie side by side.

    Of `winners` array 1 is the values, array 2 of int64 the first winners' positions. Of `jvp` array 1 is the result, array 2 the
    tangent. Of `vjp` array 1 is the gradient of the output, array 2 that of the input.
    """
    outer = dtype_of(dtype, False)
    memory, work, read, write = outer.memory, outer.work, outer.load, outer.store
    from_x = vec(memory, work, outer.half)
    width, load, load_n, broadcast = from_x.width, from_x.load, from_x.load_n, from_x.broadcast
    store, store_n, isnan_bits = from_x.store, from_x.store_n, from_x.isnan_bits
    fold_block, max_of_lanes = wide_windows(outer).fold_block, folded(work, "max_num")
    fill, zero, first_only, split = outer.lowest, work(0), ties == "first", ties == "split"
    finds, follows, size_of = verb == "winners", verb == "jvp", memory.bitwidth // 8

    @compiled
    def winning(x, at, size, wanted, nan):
        """A bit for each of up to 64 cells: it equals what is wanted, or is a NaN where there are any."""
        alwaysinline()
        bits, whole = 0, size - size % width
        for c in range(0, whole, width):
            a = load(x, at + c)
            bits |= (isnan_bits(a, a) if nan else equal(a, wanted)) << c
        if whole < size:
            a = load_n(x, at + whole, 0, size - whole, fill)
            found = isnan_bits(a, a) if nan else equal(a, wanted)
            # What fills the vector may be equal, too.
            bits |= (found & ((1 << (size - whole)) - 1)) << whole
        return bits

    @compiled
    def first_winner(x, at, size, wanted, nan):
        alwaysinline()
        for c in range(0, size, BITS):
            bits = winning(x, at + c, min(BITS, size - c), wanted, nan)
            if bits != 0:
                return c + lowest(bits)
        return 0

    @compiled
    def number_of_winners(x, at, size, wanted, nan):
        alwaysinline()
        number = 0
        for c in range(0, size, BITS):
            number += number_of(winning(x, at + c, min(BITS, size - c), wanted, nan))
        return number

    @compiled
    def tangent(x, at, size, winner, dx, there, step):
        """The sum of the winners' tangents, from the first winner to the last."""
        alwaysinline()
        if first_only:
            return read(dx[there + winner * step]) + zero
        value, total, number = read(x[at + winner]), zero, 0
        for c in range(winner - winner % BITS, size, BITS):
            some = min(BITS, size - c)
            bits = winning(x, at + c, some, broadcast(value), value != value)
            while bits != 0:
                total += read(dx[there + (c + lowest(bits)) * step])
                number += 1
                bits &= bits - 1
        return total / work(number) if split else total

    @compiled
    def tangents(x, y, dx, dx_at, winners, plan, items, size):
        """Those of some items. What their winners' tangents are is asked for first: it may be anywhere."""
        alwaysinline()
        first, last = items
        step = plan.axes[0].z_stride
        for item in range(first, last):
            at, there = batch_offset(plan, item, 0), batch_offset(plan, item, 2)
            best, seen = fold_block(x, at, 0, 1, size, broadcast(fill))
            winner = first_winner(x, at, size, broadcast(max_of_lanes(best)), seen != 0)
            winners[item - first] = winner
            prefetch_line(dx_at + (there + winner * step) * size_of)
        for item in range(first, last):
            at, there = batch_offset(plan, item, 0), batch_offset(plan, item, 2)
            total = tangent(x, at, size, winners[item - first], dx, there, step)
            y[batch_offset(plan, item, 1)] = write(total)

    @compiled
    def put_gradient(x, at, size, wanted, nan, gx, to, gradient):
        """The gradient to the winners, zero to the other cells."""
        alwaysinline()
        if split:
            gradient = gradient / work(number_of_winners(x, at, size, wanted, nan))
        share, sought = write(zero + gradient), True
        for c in range(0, size, BITS):
            some = min(BITS, size - c)
            whole = some - some % width
            for k in range(0, whole, width):
                store(gx, to + c + k, broadcast(zero))
            store_n(gx, to + c + whole, broadcast(zero), some - whole)
            bits = winning(x, at + c, some, wanted, nan) if sought else 0
            while bits != 0:
                gx[to + c + lowest(bits)] = share
                bits &= bits - 1
                if first_only:
                    bits, sought = 0, False

    @intrinsics.kernel
    def whole_items(x_at, b_at, c_at, scratch_at, plan_at, room, first, last):
        plan, x = plan_of(plan_at), pointer(x_at, memory)
        b, c, places = (
            pointer(b_at, memory),
            pointer(c_at, memory),
            pointer(c_at, types.int64),
        )
        size = plan.axes[0].in_len
        if follows:
            winners = pointer(scratch_at, types.int64)
            some = LOOKUP_BATCH if size * size_of <= SHORT else 1
            for item in range(first, last, some):
                tangents(x, b, c, c_at, winners, plan, (item, min(last, item + some)), size)
            return
        for item in range(first, last):
            at = batch_offset(plan, item, 0)
            to, there = batch_offset(plan, item, 1), batch_offset(plan, item, 2)
            best, seen = fold_block(x, at, 0, 1, size, broadcast(fill))
            nan, wanted = seen != 0, broadcast(max_of_lanes(best))
            if finds:
                winner = first_winner(x, at, size, wanted, nan)
                b[to], places[there] = x[at + winner], winner
            else:
                put_gradient(x, at, size, wanted, nan, c, there, read(b[to]))

    return whole_items
