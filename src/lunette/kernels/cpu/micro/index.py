"""From the numbers of items, rows and outputs to places in memory."""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from lunette.kernels.cpu.jit.intrinsics import compiled, noinline, real
from lunette.kernels.cpu.schedule.slots import (
    AXES,
    AXIS_WIDTH,
    BATCH,
    BATCH_RANK,
    BATCH_WIDTH,
    BOX,
    COUNT,
    COUNTS,
    DILATION,
    EXTENT,
    FLAT,
    KERNEL,
    MEMBERS,
    ORIGIN,
    RANK,
    READ_BY,
    START,
    STEP,
    STEP_X,
    STEP_Y,
    STEP_Z,
    STOP,
    STRIDE,
    TABLE,
    WINDOW_WIDTH,
)

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
def batch_offset(g, item, array):
    """Where batch item number `item` begins in one of the three arrays."""
    offset = 0
    for axis in range(g[BATCH_RANK] - 1, 0, -1):
        entry = BATCH + axis * BATCH_WIDTH
        offset += (item % g[entry]) * g[entry + 1 + array]
        item //= g[entry]
    # Of the first axis there is nothing left to divide, and mostly there is no other.
    return offset + (item * g[BATCH + 1 + array] if g[BATCH_RANK] > 0 else 0)


@compiled
def output_row(g, row, array):
    """Where output row number `row` of an item begins in an output-shaped array."""
    offset = 0
    for axis in range(g[RANK] - 2, -1, -1):
        entry = AXES + axis * AXIS_WIDTH
        row, i = parted(row, g[entry + COUNT])
        offset += i * g[entry + STEP_X + array]
    return offset


@compiled
def place_of(g, flat, array):
    """Offset in an input-shaped array of a flat position in the pooled axes."""
    offset = 0
    for axis in range(g[RANK]):
        e = AXES + axis * AXIS_WIDTH
        offset += (flat // g[e + FLAT]) * g[e + STEP_X + array]
        flat %= g[e + FLAT]
    return offset


@compiled
def list_offsets(g, axes, output, lists, most):
    """The cells that a window reads on the first `axes` axes, in row-major order.

    `output` is its number among the outputs of these axes. Fills three lists of `most` each: offset in
    array 0, offset in array 2, and the flat position in the pooled axes. Gives how many there are,
    and the product of the counted cells.
    """
    count, counted = 1, 1.0
    lists[0] = lists[most] = lists[2 * most] = 0
    for axis in range(axes):
        entry = AXES + axis * AXIS_WIDTH
        after = 1
        for later in range(axis + 1, axes):
            after *= g[AXES + later * AXIS_WIDTH + COUNT]
        window = g[entry + TABLE] + WINDOW_WIDTH * ((output // after) % g[entry + COUNT])
        start, step, length = g[window + START], g[window + STEP], g[window + MEMBERS]
        counted *= real(g[window + COUNTS])
        for old in range(count - 1, -1, -1):  # from the back: each makes room for its own
            a, c, flat = lists[old], lists[most + old], lists[2 * most + old]
            for tap in range(length - 1, -1, -1):
                p, new = start + tap * step, old * length + tap
                lists[new] = a + p * g[entry + STEP_X]
                lists[most + new] = c + p * g[entry + STEP_Z]
                lists[2 * most + new] = flat + p * g[entry + FLAT]
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
def skipped(g, entry, i):
    """Taps of output `i` on an axis that lie before the input."""
    if g[entry + KERNEL] == 0:
        return 0
    before = (
        g[g[entry + TABLE] + WINDOW_WIDTH * i + START] - g[entry + STRIDE] * i - g[entry + ORIGIN]
    )
    return before // g[entry + DILATION] if before > 0 else 0


@compiled
def list_tap_ids(g, axes, output, codes):
    """Which taps of the box of the first `axes` axes a window has there, in row-major order, as `list_offsets` has its cells."""
    count, codes[0] = 1, 0
    for axis in range(axes):
        entry, after = AXES + axis * AXIS_WIDTH, 1
        for later in range(axis + 1, axes):
            after *= g[AXES + later * AXIS_WIDTH + COUNT]
        i = (output // after) % g[entry + COUNT]
        length, skip = g[g[entry + TABLE] + WINDOW_WIDTH * i + MEMBERS], skipped(g, entry, i)
        for old in range(count - 1, -1, -1):  # from the back: each makes room for its own
            code = codes[old] * g[entry + BOX] + skip
            for tap in range(length - 1, -1, -1):
                codes[old * length + tap] = code + tap
        count *= length


@compiled
def readers_of_row(g, row, most, marks, grads, codes):
    """The rows of outputs that read a row of inputs, in order: where their marks and gradients are, and its number in their box."""
    noinline()
    count = 1
    marks[0] = grads[0] = codes[0] = 0
    for axis in range(g[RANK] - 1):
        e, after = AXES + axis * AXIS_WIDTH, 1
        for later in range(axis + 1, g[RANK] - 1):
            after *= g[AXES + later * AXIS_WIDTH + EXTENT]
        list_at = g[e + READ_BY] + row // after % g[e + EXTENT]
        first, last = g[list_at], g[list_at + 1]
        readers = (last - first) // 2
        for old in range(count - 1, -1, -1):  # from the back: each makes room for its own
            a, b, code = marks[old], grads[old], codes[old]
            for number in range(readers - 1, -1, -1):
                i, tap = g[first + 2 * number], g[first + 2 * number + 1]
                new = old * readers + number
                marks[new] = a * g[e + COUNT] + i
                grads[new] = b + i * g[e + STEP_Y]
                codes[new] = code * g[e + BOX] + tap
        count *= readers
    return count


@compiled
def receptive_range(g, axis, first, last):
    """The least range of positions that outputs first … last of an axis read."""
    e = AXES + axis * AXIS_WIDTH
    if g[e + KERNEL] > 0:
        low = min(max(g[e + STRIDE] * first + g[e + ORIGIN], 0), g[e + EXTENT])
        high = min(
            g[e + STRIDE] * (last - 1) + g[e + ORIGIN] + g[e + DILATION] * (g[e + KERNEL] - 1) + 1,
            g[e + EXTENT],
        )
        return low, max(low, high)
    table = g[e + TABLE]
    low, high = g[table + WINDOW_WIDTH * first + START], g[table + WINDOW_WIDTH * first + STOP]
    for i in range(first + 1, last):
        low, high = (
            min(low, g[table + WINDOW_WIDTH * i + START]),
            max(high, g[table + WINDOW_WIDTH * i + STOP]),
        )
    return low, high


@compiled
def input_line(g, line, array):
    """Offset of a row, by its number among the rows of one position of the first axis."""
    at = 0
    for axis in range(g[RANK] - 2, 0, -1):
        e = AXES + axis * AXIS_WIDTH
        at += (line % g[e + EXTENT]) * g[e + STEP_X + array]
        line //= g[e + EXTENT]
    return at


@compiled
def rows_of(g, row):
    """Of the windows of an output row: rows of a block, elements between them, and blocks."""
    rows, pitch, blocks = 1, 0, 1
    if g[RANK] > 1:
        e = AXES + (g[RANK] - 2) * AXIS_WIDTH
        row, i = parted(row, g[e + COUNT])
        w = g[e + TABLE] + WINDOW_WIDTH * i
        rows, pitch = g[w + MEMBERS], g[w + STEP] * g[e + STEP_X]
    for axis in range(g[RANK] - 3, -1, -1):
        e = AXES + axis * AXIS_WIDTH
        row, i = parted(row, g[e + COUNT])
        blocks *= g[g[e + TABLE] + WINDOW_WIDTH * i + MEMBERS]
    return rows, pitch, blocks


@compiled
def cell_place(g, row, block, r, p, what):
    """Where a cell is, from the item's first: of row `r` of a block of an output row, at position p.

    `what` is the entry of an axis that counts: a step through memory, or `FLAT` for the flat position.
    """
    place = p * g[AXES + (g[RANK] - 1) * AXIS_WIDTH + what]
    if g[RANK] > 1:
        e = AXES + (g[RANK] - 2) * AXIS_WIDTH
        row, i = parted(row, g[e + COUNT])
        w = g[e + TABLE] + WINDOW_WIDTH * i
        place += (g[w + START] + r * g[w + STEP]) * g[e + what]
    for axis in range(g[RANK] - 3, -1, -1):
        e = AXES + axis * AXIS_WIDTH
        row, i = parted(row, g[e + COUNT])
        w = g[e + TABLE] + WINDOW_WIDTH * i
        block, cell = parted(block, g[w + MEMBERS])
        place += (g[w + START] + cell * g[w + STEP]) * g[e + what]
    return place
