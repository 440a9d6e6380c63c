"""From the numbers of items, rows and outputs to places in memory."""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from lunette.kernels.cpu.jit.intrinsics import compiled, noinline, real

__all__ = [
    "batch_offset",
    "cell_place",
    "input_line",
    "list_offsets",
    "list_tap_ids",
    "output_row",
    "parted",
    "place_of",
    "readers_of_row",
    "receptive_range",
    "rows_of",
    "rows_of_planes",
    "skipped",
]


@compiled
def parted(number, parts):
    """number // parts and number % parts; often there is one part, and nothing to divide."""
    return (number, 0) if parts == 1 else (number // parts, number % parts)


@compiled
def batch_offset(plan, item, array):
    """Where batch item number `item` begins in one of the three arrays."""
    offset = 0
    for axis in range(plan.batch_rank - 1, 0, -1):
        entry = plan.batch[axis]
        offset += (item % entry.length) * entry.strides[array]
        item //= entry.length
    # Of the first axis there is nothing left to divide, and mostly there is no other.
    return offset + (item * plan.batch[0].strides[array] if plan.batch_rank > 0 else 0)


@compiled
def output_row(plan, row, array):
    """Where output row number `row` of an item begins in an output-shaped array."""
    offset = 0
    for axis in range(plan.rank - 2, -1, -1):
        entry = plan.axes[axis]
        row, i = parted(row, entry.out_len)
        offset += i * entry.strides[array]
    return offset


@compiled
def place_of(plan, flat, array):
    """Offset in an input-shaped array of a flat position in the pooled axes."""
    offset = 0
    for axis in range(plan.rank):
        entry = plan.axes[axis]
        offset += (flat // entry.flat_stride) * entry.strides[array]
        flat %= entry.flat_stride
    return offset


@compiled
def list_offsets(plan, axes, output, lists, most):
    """The cells that a window reads on the first `axes` axes, in row-major order.

    `output` is its number among the outputs of these axes. Fills three lists of `most` each: offset in
    array 0, offset in array 2, and the flat position in the pooled axes. Gives how many there are,
    and the product of the counted cells.
    """
    count, counted = 1, 1.0
    lists[0] = lists[most] = lists[2 * most] = 0
    for axis in range(axes):
        entry = plan.axes[axis]
        after = 1
        for later in range(axis + 1, axes):
            after *= plan.axes[later].out_len
        window = entry.windows[(output // after) % entry.out_len]
        start, step, length = window.start, window.step, window.in_bounds
        counted *= real(window.counted)
        for old in range(count - 1, -1, -1):  # from the back: each makes room for its own
            a, c, flat = lists[old], lists[most + old], lists[2 * most + old]
            for tap in range(length - 1, -1, -1):
                p, new = start + tap * step, old * length + tap
                lists[new] = a + p * entry.x_stride
                lists[most + new] = c + p * entry.z_stride
                lists[2 * most + new] = flat + p * entry.flat_stride
        count *= length
    return count, counted


@compiled
def rows_of_planes(planes, count, step, length, rows, across):
    """Where the rows of a window begin, from its first row in a plane: `length` of each, `step` apart.

    Plane by plane or, `across`, the first row of every plane first.
    """
    for plane in range(count):
        for tap in range(length):
            place = tap * count + plane if across else plane * length + tap
            rows[place] = planes[plane] + tap * step


@compiled
def skipped(entry, i):
    """Taps of output `i` on an axis that lie before the input."""
    if entry.taps == 0:
        return 0
    before = entry.windows[i].start - entry.stride * i - entry.origin
    return before // entry.dilation if before > 0 else 0


@compiled
def list_tap_ids(plan, axes, output, codes):
    """Which taps of the box of the first `axes` axes a window has there, in row-major order, as `list_offsets` has its cells."""
    count, codes[0] = 1, 0
    for axis in range(axes):
        entry, after = plan.axes[axis], 1
        for later in range(axis + 1, axes):
            after *= plan.axes[later].out_len
        i = (output // after) % entry.out_len
        length, skip = entry.windows[i].in_bounds, skipped(entry, i)
        for old in range(count - 1, -1, -1):  # from the back: each makes room for its own
            code = codes[old] * entry.box + skip
            for tap in range(length - 1, -1, -1):
                codes[old * length + tap] = code + tap
        count *= length


@compiled
def readers_of_row(plan, row, marks, grads, codes):
    """The rows of outputs that read a row of inputs, in order: where their marks and gradients are, and its number in their box."""
    noinline()
    count = 1
    marks[0] = grads[0] = codes[0] = 0
    for axis in range(plan.rank - 1):
        entry, after = plan.axes[axis], 1
        for later in range(axis + 1, plan.rank - 1):
            after *= plan.axes[later].in_len
        list_at = entry.readers_at + row // after % entry.in_len
        first, last = plan.numbers[list_at], plan.numbers[list_at + 1]
        readers = (last - first) // 2
        for old in range(count - 1, -1, -1):  # from the back: each makes room for its own
            a, b, code = marks[old], grads[old], codes[old]
            for number in range(readers - 1, -1, -1):
                i, tap = plan.numbers[first + 2 * number], plan.numbers[first + 2 * number + 1]
                new = old * readers + number
                marks[new] = a * entry.out_len + i
                grads[new] = b + i * entry.y_stride
                codes[new] = code * entry.box + tap
        count *= readers
    return count


@compiled
def receptive_range(plan, axis, first, last):
    """The least range of positions that outputs first … last of an axis read."""
    entry = plan.axes[axis]
    if entry.taps > 0:
        low = min(max(entry.stride * first + entry.origin, 0), entry.in_len)
        high = min(
            entry.stride * (last - 1) + entry.origin + entry.dilation * (entry.taps - 1) + 1,
            entry.in_len,
        )
        return low, max(low, high)
    table = entry.windows
    low, high = table[first].start, table[first].stop
    for i in range(first + 1, last):
        low, high = (
            min(low, table[i].start),
            max(high, table[i].stop),
        )
    return low, high


@compiled
def input_line(plan, line, array):
    """Offset of a row, by its number among the rows of one position of the first axis."""
    at = 0
    for axis in range(plan.rank - 2, 0, -1):
        entry = plan.axes[axis]
        at += (line % entry.in_len) * entry.strides[array]
        line //= entry.in_len
    return at


@compiled
def rows_of(plan, row):
    """Of the windows of an output row: rows of a block, elements between them, and blocks."""
    rows, pitch, blocks = 1, 0, 1
    if plan.rank > 1:
        entry = plan.axes[plan.rank - 2]
        row, i = parted(row, entry.out_len)
        w = entry.windows[i]
        rows, pitch = w.in_bounds, w.step * entry.x_stride
    for axis in range(plan.rank - 3, -1, -1):
        entry = plan.axes[axis]
        row, i = parted(row, entry.out_len)
        blocks *= entry.windows[i].in_bounds
    return rows, pitch, blocks


@compiled
def cell_place(plan, row, block, r, p, array):
    """Where a cell is, from the item's first: of row `r` of a block of an output row, at position p.

    Offsets are in one of the arrays, or in `FLAT`, the positions of the pooled axes one after the other.
    """
    place = p * plan.axes[plan.rank - 1].strides[array]
    if plan.rank > 1:
        entry = plan.axes[plan.rank - 2]
        row, i = parted(row, entry.out_len)
        w = entry.windows[i]
        place += (w.start + r * w.step) * entry.strides[array]
    for axis in range(plan.rank - 3, -1, -1):
        entry = plan.axes[axis]
        row, i = parted(row, entry.out_len)
        w = entry.windows[i]
        block, cell = parted(block, w.in_bounds)
        place += (w.start + cell * w.step) * entry.strides[array]
    return place
