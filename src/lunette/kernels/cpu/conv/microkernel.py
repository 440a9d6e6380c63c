"""Blocks of a matrix product: the innermost loops of every verb of a convolution.

A block is `rows` × `vectors` sums that stay in registers while the loop walks along the products.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.conv.sizes import VECTOR_BYTES
from lunette.kernels.cpu.conv.vectors import INT, Code, literals, places

__all__ = ["dots", "multiply_across", "multiply_add", "multiply_sliding"]


def _step(code: Code, sums: list[Any], factors: list[Any], at_b: Any, width: int) -> list[Any]:
    """Each sum plus the factor of its row times its vector of b."""
    columns = [code.load(code.at(at_b, v * VECTOR_BYTES), code.vector) for v in range(width)]
    totals = []
    for r, address in enumerate(factors):
        factor = code.spread(code.load(address, code.element))
        for v in range(width):
            totals.append(code.multiply_add(factor, columns[v], sums[r * width + v]))
    return totals


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def multiply_add(
    context: Any,
    rows: Any,
    vectors: Any,
    indexed: Any,
    fetched: Any,
    a: Any,
    b: Any,
    b_step: Any,
    c: Any,
    c_row: Any,
    c_step: Any,
    out: Any,
    out_row: Any,
    later: Any,
    later_row: Any,
    count: Any,
    zero: Any,
) -> Any:
    """`out[r, :] = c[r, :] + Σ a[k, r]·b[k, :]`, one k after the other: the fold goes on from c.

    `a` is packed, `rows` numbers for each k. `b`'s vectors of k are at `b + k·b_step`, or, where
    `indexed`, at `b + offset[k]` with `b_step` the address of the offsets. `c`'s vectors are
    `c_step` apart: 0 spreads one over the row. Where `fetched`, the lines of memory at `later` are
    asked for meanwhile, to be written after. All in bytes; count ≥ 1.
    """
    constants = literals(rows, vectors, indexed, fetched)
    if constants is None:
        return None
    height, width, by_offset, fetch = constants

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, b_step, c, c_row, c_step, out, out_row, later, later_row, count, _ = arguments[4:]
        code = Code(builder, zero)
        start = [code.load(p, code.vector) for p in places(code, c, c_row, height, width, c_step)]

        def add(left: Any, at_a: Any, at_b: Any, *sums: Any) -> Any:
            if fetch:
                half = builder.lshr(left, ir.Constant(INT, 1))
                place = builder.mul(builder.urem(half, ir.Constant(INT, height)), later_row)
                lines = ir.Constant(INT, (1 << width.bit_length()) - 1)
                line = builder.and_(builder.udiv(half, ir.Constant(INT, height)), lines)
                line = builder.mul(line, ir.Constant(INT, 64))
                code.prefetch(builder.add(builder.add(later, place), line), 1)
            row = builder.add(b, code.load_int(at_b)) if by_offset else at_b
            factors = [code.at(at_a, r * code.size) for r in range(height)]
            totals = _step(code, list(sums), factors, row, width)
            remaining = builder.sub(left, ir.Constant(INT, 1))
            next_b = code.at(at_b, 8) if by_offset else builder.add(at_b, b_step)
            updates = [remaining, code.at(at_a, height * code.size), next_b, *totals]
            return updates, builder.icmp_signed(">", remaining, ir.Constant(INT, 0))

        found = code.loop([count, a, b_step if by_offset else b, *start], add)
        for total, place in zip(found[3:], places(code, out, out_row, height, width), strict=True):
            code.store(total, place)
        return context.get_dummy_value()

    return types.void(rows, vectors, indexed, fetched, *(types.int64,) * 11, zero), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def multiply_sliding(
    context: Any,
    vectors: Any,
    positions: Any,
    run: Any,
    back: Any,
    a: Any,
    b: Any,
    offsets: Any,
    c: Any,
    c_row: Any,
    out: Any,
    count: Any,
    zero: Any,
) -> Any:
    """`out[p, :] = c[p, :] + Σ_k Σ_t b[offset[k] + p + t]·a[k, t, :]`, one k after the other, then t.

    `t < run` are taps side by side, from the last to the first where `back` (then b is read at
    `p − t`): a number of b is read once for all of them. `a` is packed, `vectors` for each (k, t);
    `offsets` is the address of the offsets. `c`'s rows are `c_row` apart: 0 spreads one over the
    positions. All in bytes; count ≥ 1.
    """
    constants = literals(vectors, positions, run, back)
    if constants is None:
        return None
    width, height, taps, backward = constants

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, offsets, c, c_row, out, count, _ = arguments[4:]
        code = Code(builder, zero)
        start = [code.load(p, code.vector) for p in places(code, c, c_row, height, width)]
        reads = range(height + taps - 1)
        # Each position meets its taps in order, whichever way the numbers are walked.
        order = [height - 1 - j for j in reads] if backward else list(reads)

        def add(left: Any, at_a: Any, at_offset: Any, *sums: Any) -> Any:
            totals = list(sums)
            factors = [
                code.load(code.at(at_a, i * VECTOR_BYTES), code.vector) for i in range(taps * width)
            ]
            at_b = builder.add(b, code.load_int(at_offset))
            for j in order:
                number = code.spread(code.load(code.at(at_b, j * code.size), code.element))
                for t in range(taps):
                    p = j + t if backward else j - t
                    for v in range(width) if 0 <= p < height else ():
                        i = p * width + v
                        totals[i] = code.multiply_add(number, factors[t * width + v], totals[i])
            remaining = builder.sub(left, ir.Constant(INT, 1))
            moved = [code.at(at_a, taps * width * VECTOR_BYTES), code.at(at_offset, 8)]
            go_on = builder.icmp_signed(">", remaining, ir.Constant(INT, 0))
            return [remaining, *moved, *totals], go_on

        found = code.loop([count, a, offsets, *start], add)
        row = ir.Constant(INT, width * VECTOR_BYTES)
        for total, place in zip(found[3:], places(code, out, row, height, width), strict=True):
            code.store(total, place)
        return context.get_dummy_value()

    return types.void(vectors, positions, run, back, *(types.int64,) * 7, zero), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def multiply_across(
    context: Any,
    rows: Any,
    vectors: Any,
    a: Any,
    offsets: Any,
    b: Any,
    b_step: Any,
    c: Any,
    c_row: Any,
    count: Any,
    repeats: Any,
    jump: Any,
    zero: Any,
) -> Any:
    """Add `Σ_q a[offset[r] + q]·b[q, :]` to row `c[r, :]`; the sum over q starts from zero.

    q takes `count` steps of one element, `repeats` times, and `a` skips `jump` bytes between.
    `offsets` is the address of the rows' offsets, in bytes. count and repeats are at least 1.
    """
    constants = literals(rows, vectors)
    if constants is None:
        return None
    height, width = constants

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, a, offsets, b, b_step, c, c_row, count, repeats, jump, _ = arguments
        code = Code(builder, zero)
        starts = [code.load_int(code.at(offsets, 8 * r)) for r in range(height)]

        def step(left: Any, at_a: Any, at_b: Any, *sums: Any) -> Any:
            factors = [builder.add(at_a, start) for start in starts]
            totals = _step(code, list(sums), factors, at_b, width)
            remaining = builder.sub(left, ir.Constant(INT, 1))
            updates = [remaining, code.at(at_a, code.size), builder.add(at_b, b_step), *totals]
            return updates, builder.icmp_signed(">", remaining, ir.Constant(INT, 0))

        def line(left: Any, *values: Any) -> Any:
            _, at_a, *others = code.loop([count, *values], step)
            remaining = builder.sub(left, ir.Constant(INT, 1))
            updates = [remaining, builder.add(at_a, jump), *others]
            return updates, builder.icmp_signed(">", remaining, ir.Constant(INT, 0))

        zeros = [code.zero()] * (height * width)
        found = code.loop([repeats, a, b, *zeros], line)
        for total, place in zip(found[3:], places(code, c, c_row, height, width), strict=True):
            code.store(builder.fadd(code.load(place, code.vector), total), place)
        return context.get_dummy_value()

    return types.void(rows, vectors, *(types.int64,) * 9, zero), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def dots(
    context: Any,
    rows: Any,
    taps: Any,
    a: Any,
    offsets: Any,
    b: Any,
    b_row: Any,
    count: Any,
    repeats: Any,
    a_jump: Any,
    b_jump: Any,
    c: Any,
    c_row: Any,
    zero: Any,
) -> Any:
    """Add `Σ_q a[offset[t] + q]·b[r, q]` to `c[r, t]`: a sum for each lane, then the lanes by halves.

    q takes `count` steps of one element, `repeats` times; a and b are `a_jump` and `b_jump` bytes
    from one line to the next. `offsets` has the taps' offsets, in bytes. All are at least 1.
    """
    constants = literals(rows, taps)
    if constants is None:
        return None
    height, width = constants

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, offsets, b, b_row, count, repeats, a_jump, b_jump, c, c_row, _ = arguments[2:]
        code = Code(builder, zero)
        starts = [code.load_int(code.at(offsets, 8 * t)) for t in range(width)]
        lines = [builder.mul(b_row, ir.Constant(INT, r)) for r in range(height)]
        nought = ir.Constant(INT, 0)

        def step(left: Any, at_a: Any, at_b: Any, *sums: Any) -> Any:
            mask = code.mask(left)
            factors = [code.masked_load(builder.add(at_b, line), mask) for line in lines]
            totals = list(sums)
            for t, start in enumerate(starts):
                read = code.masked_load(builder.add(at_a, start), mask)
                for r in range(height):
                    totals[r * width + t] = code.multiply_add(
                        read, factors[r], totals[r * width + t]
                    )
            remaining = builder.sub(left, ir.Constant(INT, code.lanes))
            moved = [code.at(at_a, VECTOR_BYTES), code.at(at_b, VECTOR_BYTES)]
            return [remaining, *moved, *totals], builder.icmp_signed(">", remaining, nought)

        def line(left: Any, at_a: Any, at_b: Any, *sums: Any) -> Any:
            totals = code.loop([count, at_a, at_b, *sums], step)[3:]
            remaining = builder.sub(left, ir.Constant(INT, 1))
            moved = [builder.add(at_a, a_jump), builder.add(at_b, b_jump)]
            return [remaining, *moved, *totals], builder.icmp_signed(">", remaining, nought)

        found = code.loop([repeats, a, b, *[code.zero()] * (height * width)], line)[3:]
        for i, lanes in enumerate(found):
            total, half = lanes, code.lanes // 2
            while half:
                order = [(j + half) % code.lanes for j in range(code.lanes)]
                mask = ir.Constant(ir.VectorType(ir.IntType(32), code.lanes), order)
                total = builder.fadd(total, builder.shuffle_vector(total, total, mask))
                half //= 2
            value = builder.extract_element(total, ir.Constant(ir.IntType(32), 0))
            row = builder.add(c, builder.mul(c_row, ir.Constant(INT, i // width)))
            place = builder.inttoptr(code.at(row, i % width * code.size), code.element.as_pointer())
            builder.store(builder.fadd(builder.load(place), value), place)
        return context.get_dummy_value()

    return types.void(rows, taps, *(types.int64,) * 10, zero), generate
