"""The wrong lines that the agreement checks have to notice, kernel by kernel."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MUTATIONS", "Mutation"]


class Mutation(NamedTuple):
    """One wrong line: in `file`, `old` (found exactly once) becomes `new`; `check` must notice."""

    what: str
    file: str
    old: str
    new: str
    check: str


def _of(module: str) -> str:
    return f"kernels/cpu/{module}.py"


DIRECT, PLAN, HALVES, ELEMENTARY = _of("direct"), _of("plan"), _of("halves"), _of("elementary")
PASSES, ROWS, COLUMNS = _of("passes"), _of("row_first"), _of("column_first")
ALONG, WIDE, SWEEPS, LADDER = _of("rows"), _of("wide"), _of("sweeps"), _of("ladder")
WIDE_WINDOWS, SCATTERED = _of("wide_windows"), _of("scattered")
NARROW, SAME_WORK = _of("narrow_means"), _of("same_work")
WINNERS, SPREAD, LANES = _of("winners"), _of("spread"), _of("lanes")
HALF_LANES, STREAMS = _of("half_lanes"), _of("streams")
FOLDED, UNSHARED, COUNTS = _of("folded_rows"), _of("unshared"), _of("counts")
ALIKE, ACROSS = _of("rows_alike"), _of("across_rows")
PLACES, TABLES = _of("places"), _of("window_tables")
OFFSETS, GATHERED, SMOOTH = _of("offsets"), _of("gathered"), _of("smooth")
WINNING = _of("winning_rows")
PHASES, TILING, EXPONENTIALS = _of("phases"), _of("tiling"), _of("exponentials")
PIVOTS, POWERS, SHARES = _of("pivots"), _of("powers"), _of("shares")
POWER_SUMS = _of("power_sums")

MUTATIONS: tuple[Mutation, ...] = (
    # -- which cells a window reads --
    Mutation(
        "dilation forgotten down the rows",
        PLACES,
        "p, new = start + tap * step, old * length + tap",
        "p, new = start + tap, old * length + tap",
        "max vjp all",
    ),
    Mutation(
        "a row's own stride taken for the next axis's",
        PLACES,
        "lists[new] = a + p * g[entry + STEP_X]",
        "lists[new] = a + p * g[entry + AXIS_WIDTH + 2]",
        "max vjp all",
    ),
    Mutation(
        "a flat position without its axis's stride",
        PLACES,
        "lists[2 * most + new] = flat + p * g[entry + FLAT]",
        "lists[2 * most + new] = flat + p",
        "max vjp all",
    ),
    Mutation(
        "batch items a stride apart that is another array's",
        PLACES,
        "(item * g[BATCH + 1 + array] if g[BATCH_RANK] > 0 else 0)",
        "(item * g[BATCH + 1] if g[BATCH_RANK] > 0 else 0)",
        "max vjp all",
    ),
    Mutation(
        "a window one cell short at the edge of a row",
        ALONG,
        "for p in range(start + (not summing), stop):",
        "for p in range(start + (not summing), stop - 1):",
        "max forward",
    ),
    Mutation(
        "a window one cell late",
        TABLES,
        "stride, origin = int(region.stride or 1), -region.margins(n)[0]",
        "stride, origin = int(region.stride or 1), 1 - region.margins(n)[0]",
        "max forward",
    ),
    Mutation(
        "the third cell of three left out",
        ALONG,
        "store(s, q + j, join(join(a, slide_one(a, b)), slide_two(a, b)))",
        "store(s, q + j, join(a, slide_one(a, b)))",
        "max forward",
    ),
    Mutation(
        "the last cell of a window left out",
        ALONG,
        "for t in range(1, kernel):\n                value = load(x, p + t)",
        "for t in range(1, kernel - 1):\n                value = load(x, p + t)",
        "max forward",
    ),
    Mutation(
        "even and odd cells swapped at the end of a window",
        ALONG,
        "            best = join(best, odds(a, b))",
        "            best = join(best, evens(a, b))",
        "max forward",
    ),
    Mutation(
        "a row that ends one cell early for its mask",
        ALONG,
        "return load_part(x, at + p, clamped(-p), clamped(n - p), fill)",
        "return load_part(x, at + p, clamped(-p), clamped(n - 1 - p), fill)",
        "max int8",
    ),
    Mutation(
        "the last rows of a tall window left out",
        ACROSS,
        "for t in range(1, count):\n            value = load(x, p + t * step)",
        "for t in range(1, count - 1):\n            value = load(x, p + t * step)",
        "mean forward",
    ),
    Mutation(
        "the first vector of a long window left out",
        WIDE_WINDOWS,
        "for c in range(0, whole, width):",
        "for c in range(width, whole, width):",
        "wide indices",
    ),
    Mutation(
        "the beginning of the next block one row short",
        SWEEPS,
        "e = t + kernel - 1",
        "e = t + kernel - 2",
        "large max",
    ),
    Mutation(
        "four neighbours moved by three",
        SWEEPS,
        "by_one, by_two, by_four = slide(1), slide(2), slide(4)",
        "by_one, by_two, by_four = slide(1), slide(2), slide(3)",
        "large max",
    ),
    Mutation(
        "a sum of two cells a vector late",
        LADDER,
        "rest = add(rest, moved(other_two, two, kernel & 12))",
        "rest = add(rest, moved(two, two, kernel & 12))",
        "mean along a row",
    ),
    Mutation(
        "four lanes forgotten in a move",
        LADDER,
        "a, b = by_four(a, b), by_four(b, b)",
        "a, b = by_two(a, b), by_two(b, b)",
        "mean along a row",
    ),
    Mutation(
        "a tile's last vector one cell short",
        LADDER,
        "more = load_part(x, at + p, 0, max(0, cells - p), zero)",
        "more = load_part(x, at + p, 0, max(0, cells - 1 - p), zero)",
        "mean along a row",
    ),
    # -- who wins --
    Mutation(
        "a NaN is lost in a vector",
        LANES,
        'beats = builder.fcmp_unordered("<", best, value)',
        'beats = builder.fcmp_ordered("<", best, value)',
        "max forward",
    ),
    Mutation(
        "the last NaN wins in a vector",
        LANES,
        'return builder.and_(beats, builder.fcmp_ordered("ord", best, best))',
        "return beats",
        "max indices",
    ),
    Mutation(
        "the last of equals wins in a vector",
        LANES,
        'beats = builder.fcmp_unordered("<", best, value)',
        'beats = builder.fcmp_unordered("<=", best, value)',
        "max indices",
    ),
    Mutation(
        "the last of equals wins cell by cell",
        DIRECT,
        "return (v > best) | ((v != v) & (best == best))",
        "return (v >= best) | ((v != v) & (best == best))",
        "max indices",
    ),
    Mutation(
        "marks of the next rows not moved down",
        WINNERS,
        "place = add_mark(place, spread_mark(mark(start + t * flat)))",
        "place = add_mark(place, spread_mark(mark(start)))",
        "max indices",
    ),
    Mutation(
        "a zero of a long window with another zero's sign",
        WIDE,
        "if real and nan | (value == zero):",
        "if real and nan:",
        "zeros",
    ),
    Mutation(
        "a NaN of a long window lost",
        WIDE_WINDOWS,
        "            seen |= more\n",
        "            seen |= 0 * more\n",
        "max forward",
    ),
    Mutation(
        "a winner past the last whole vector not found",
        WIDE_WINDOWS,
        "for p in range(c, min(c + width, size)):",
        "for p in range(c, min(c + width, size - size % width)):",
        "wide indices",
    ),
    Mutation(
        "the first row of a block for all its rows",
        WIDE_WINDOWS,
        "                    at += pitch\n",
        "                    at += 0 * pitch\n",
        "wide indices",
    ),
    Mutation(
        "the place of a winner without its block",
        WIDE_WINDOWS,
        "place += (g[w + START] + cell * g[w + STEP]) * g[e + what]",
        "place += g[w + START] * g[e + what]",
        "wide indices",
    ),
    Mutation(
        "a tie of long windows shared by one more",
        SCATTERED,
        "gradient = gradient / work(winner)",
        "gradient = gradient / work(winner + 1)",
        "wide vjp",
    ),
    Mutation(
        "the winner of a slab one cell too early",
        SCATTERED,
        "s[flat - below] += gradient",
        "s[max(0, flat - below - 1)] += gradient",
        "wide vjp",
    ),
    Mutation(
        "tangents of ties not shared",
        WIDE,
        "y[target + j] = write(total / work(tied) if split else total + zero)",
        "y[target + j] = write(total + zero)",
        "wide jvp",
    ),
    Mutation(
        "rows of a window of three axes added in their order",
        FOLDED,
        "place = tap * count + plane if across else plane * length + tap",
        "place = plane * length + tap",
        "layouts",
    ),
    Mutation(
        "the last row of a narrow window left out",
        NARROW,
        "total = add(total, load_part(x, at, 0, cells, zero))",
        "total = add(total, load_part(x, at - pitch, 0, cells, zero))",
        "narrow mean",
    ),
    Mutation(
        "axes taken for one that do not lie so",
        SAME_WORK,
        "if n > 1 and step != size:",
        "if n > 1 and step < 0:",
        "layouts",
    ),
    Mutation(
        "rows of a long batch axis one step apart",
        SAME_WORK,
        "return (*others, step * rows, step, strides[-1])",
        "return (*others, step, step, strides[-1])",
        "short rows",
    ),
    Mutation(
        "the last of equals wins in a block",
        SWEEPS,
        "                    best = join(load(s, p), best)\n",
        "                    best = join(best, load(s, p))\n",
        "large max",
    ),
    Mutation(
        "a half type's -0 taken for less than +0",
        HALF_LANES,
        'return builder.or_(nan, builder.icmp_signed("==", value, _constants(-1, kind)))',
        "return nan",
        "max bfloat16",
    ),
    # -- derivatives --
    Mutation(
        "a tangent that keeps the sign of zero",
        OFFSETS,
        "write(read(dx[third + place + position * far_z]) + zero)",
        "write(read(dx[third + place + position * far_z]))",
        "max jvp first",
    ),
    Mutation(
        "gradients that replace instead of adding up",
        WINNERS,
        "sums[flat - below] += gradient",
        "sums[flat - below] = gradient",
        "max vjp first",
    ),
    Mutation(
        "the last reader of a slab forgotten",
        PLAN,
        "span = (readers[0], readers[-1] + 1)",
        "span = (readers[0], readers[-1])",
        "max vjp split",
    ),
    Mutation(
        "shares of a split not divided",
        DIRECT,
        "divisor = work(tied)",
        "divisor = work(1)",
        "max jvp split",
    ),
    Mutation(
        "one tied cell too few",
        DIRECT,
        "gradient = gradient / work(tied)",
        "gradient = gradient / work(max(tied - 1, 1))",
        "max vjp split",
    ),
    Mutation(
        "a NaN that ties with nothing",
        DIRECT,
        "                                    elif (v == best) | ((v != v) & (best != best)):\n"
        "                                        sums[flat + p - low] += gradient",
        "                                    elif v == best:\n"
        "                                        sums[flat + p - low] += gradient",
        "max vjp all",
    ),
    # -- windows of few rows --
    Mutation(
        "the second row of two trusted",
        ALIKE,
        "trusted, others = safe(trusted, a, d), safe(others, b, e)",
        "trusted, others = safe(trusted, a, a), safe(others, b, b)",
        "one cell",
    ),
    Mutation(
        "a −0 near a zero not looked for",
        FOLDED,
        "mixed |= negative(x, start + i * down, rows, total, n)",
        "mixed |= length < 0",
        "one cell",
    ),
    Mutation(
        "the first column of three taken from the vector at hand",
        ALIKE,
        "best = join(join(slide_back(before, odd), even), odd)",
        "best = join(join(slide_back(odd, odd), even), odd)",
        "max forward",
    ),
    Mutation(
        "the third column of three taken from the vector at hand",
        ALIKE,
        "best = join(best, slide_one(even, more))",
        "best = join(best, slide_one(even, even))",
        "max forward",
    ),
    Mutation(
        "the last of three columns left out",
        ALIKE,
        "best = join(join(even, slide_one(even, a)), slide_two(even, a))",
        "best = join(even, slide_one(even, a))",
        "max forward",
    ),
    Mutation(
        "a row folded that ends one cell early",
        ALIKE,
        "p, low, high = at + c, -c, n - c",
        "p, low, high = at + c, -c, n - 1 - c",
        "max forward",
    ),
    Mutation(
        "rows that lie alike read from the first of them",
        ALIKE,
        "at += down",
        "at += 0",
        "max forward",
    ),
    Mutation(
        "a row of another length taken for one that lies alike",
        FOLDED,
        "& (g[v + MEMBERS] == g[w + MEMBERS])",
        "",
        "max forward",
    ),
    Mutation(
        "the first plane of a window for all its planes",
        FOLDED,
        "rows[place] = planes[plane] + tap * step",
        "rows[place] = planes[0] + tap * step",
        "max forward",
    ),
    Mutation(
        "the sixth vector of a row never added to",
        ACROSS,
        "join(i, load(x, p + four)), join(j, load(x, p + five))",
        "join(i, load(x, p + four)), j",
        "mean forward",
    ),
    Mutation(
        "a mean of few rows not divided by them",
        FOLDED,
        "factor = work(cells_of_row(g, number))",
        "factor = work(1)",
        "mean forward",
    ),
    Mutation(
        "the lower half of the shares for the upper",
        UNSHARED,
        "store(s, to + 2 * j + width, zip_high(value, value))",
        "store(s, to + 2 * j + width, zip_low(value, value))",
        "mean vjp",
    ),
    Mutation(
        "the share of the first output for a whole plane",
        UNSHARED,
        "if (g[w + START] != known) | (reader != other):",
        "if (known < 0) | (reader != other):",
        "mean vjp",
    ),
    # -- padding and divisors of a mean --
    Mutation(
        "padding dropped from the count",
        COUNTS,
        "return real(g[w + COUNTS]) if g[COUNT_PADDING] else float(g[w + MEMBERS])",
        "return float(g[w + MEMBERS])",
        "mean forward",
    ),
    Mutation(
        "padding counted though it should not be",
        PLAN,
        "header[COUNT_PADDING] = reduction.count_include_pad",
        "header[COUNT_PADDING] = True",
        "mean vjp",
    ),
    Mutation(
        "the cells of the axes before the last not divided by",
        PASSES,
        "value = divide(total, multiply(lead, load(cells, first + c)))",
        "value = divide(total, load(cells, first + c))",
        "mean forward",
    ),
    Mutation(
        "a block of a long sum begun one cell early",
        COLUMNS,
        "offset = kernel - kernel % (2 * done)",
        "offset = max(0, kernel - kernel % (2 * done) - 1)",
        "large mean",
    ),
    Mutation(
        "a rung of a long sum in the wrong place",
        LADDER,
        "kernel - kernel % (2 * block) + j",
        "kernel - kernel % block + j",
        "large mean",
    ),
    Mutation(
        "a reciprocal without the axes before the last",
        COLUMNS,
        "reciprocal = work(1) / (work(factor) * work(g[e + KERNEL]))",
        "reciprocal = work(1) / work(g[e + KERNEL])",
        "large mean",
    ),
    Mutation(
        "one reader too few of every cell",
        SPREAD,
        "for i in range(first + 1, last + 1):",
        "for i in range(first + 1, last):",
        "mean vjp",
    ),
    # -- smooth max --
    Mutation(
        "the padding's exponentials left out",
        PIVOTS,
        "return multiply(pads, exp_beside_one(below))",
        "return multiply(spread(zero), exp_beside_one(below))",
        "smooth jvp",
    ),
    Mutation(
        "a smooth min's pivot taken from the largest cell",
        PIVOTS,
        "extreme, least = here.most if rising else here.least, here.least",
        "extreme, least = here.most, here.least",
        "smooth far apart",
    ),
    Mutation(
        "a coefficient of exp a little off",
        ELEMENTARY,
        "np.float32(1.6666665459e-1)",
        "np.float32(1.667e-1)",
        "exp32",
    ),
    Mutation(
        "log without the low part of ln 2",
        ELEMENTARY,
        "- k * np.float32(-2.12194440e-4)",
        "- k * np.float32(0)",
        "log32",
    ),
    Mutation(
        "padding left out of a sum of powers",
        SMOOTH,
        "total = add(load(s, v + c), load(s, pads + c))",
        "total = load(s, v + c)",
        "smooth forward",
    ),
    Mutation(
        "a row of the window left out of a sum of powers",
        POWER_SUMS,
        "add(add(load(s, before + c), a), b)",
        "add(a, b)",
        "smooth forward",
    ),
    Mutation(
        "one row for all in a sum of many",
        POWER_SUMS,
        "total = add(total, load(s, rows[r] + c))",
        "total = add(total, load(s, rows[0] + c))",
        "smooth forward",
    ),
    Mutation(
        "a place for a row of powers that is still needed",
        TILING,
        "1 << (most - 1).bit_length()",
        "max(1, (1 << (most - 1).bit_length()) // 2)",
        "smooth forward",
    ),
    Mutation(
        "rows before the first of a window never raised",
        TILING,
        "starts = np.minimum.accumulate(windows[::-1, START])[::-1]",
        "starts = windows[:, START].copy()",
        "smooth forward",
    ),
    Mutation(
        "the other half of a sum of powers along a row",
        POWER_SUMS,
        "if kernel > 1:\n                        total = add(total, odds(a, b))",
        "if kernel > 1:\n                        total = add(total, evens(a, b))",
        "smooth forward",
    ),
    Mutation(
        "a cell past the limit taken for nothing",
        SMOOTH,
        "how = (scales_here[0], scales_here[1], scales_here[2], infinity)",
        "how = (scales_here[0], scales_here[1], scales_here[2], zero)",
        "smooth mixed",
    ),
    Mutation(
        "windows with a cell past the limit not done again",
        SMOOTH,
        "if not seen:",
        "if seen == seen:",
        "smooth mixed",
    ),
    Mutation(
        "beta·log2(e) without what its rounding left out",
        POWERS,
        "f = v.fma(x, rest, v.fma(x, rate, builder.fneg(n)))",
        "f = v.fma(x, rate, builder.fneg(n))",
        "powers",
    ),
    Mutation(
        "a sum of powers along the rows first",
        POWERS,
        "column += power(v, rate, rest, limit, zero)\n            total += column",
        "total += power(v, rate, rest, limit, zero)\n            total += column",
        "smooth one by one",
    ),
    Mutation(
        "weights that left the range used all the same",
        POWERS,
        'return builder.select(within, total, v.number(float("inf")))',
        "return total",
        "smooth small gradients",
    ),
    Mutation(
        "what windows about pivots send left out",
        SHARES,
        "extra = load(s, more + c)",
        "extra = none",
        "smooth mixed vjp",
    ),
    Mutation(
        "sums of weights that replace instead of adding up",
        SHARES,
        "a = add(a, load(s, k - g[pairs + 2 * tap + 1]))",
        "a = load(s, k - g[pairs + 2 * tap + 1])",
        "smooth vjp",
    ),
    Mutation(
        "the second tap of a phase forgotten",
        SHARES,
        "b = add(load(s, b0 + c), load(s, b1 + c))",
        "b = load(s, b0 + c)",
        "smooth vjp",
    ),
    Mutation(
        "every row of a gradient by the first of its readers",
        SHARES,
        "b = sums + (g[r + 2] - low) * pitch_s",
        "b = sums + (g[r] - low) * pitch_s",
        "smooth vjp",
    ),
    Mutation(
        "weights added window by window",
        DIRECT,
        "sums[weights + c + p] += sums[2 * weights + p]",
        "sums[weights + c + p] = sums[2 * weights + p]",
        "smooth one by one vjp",
    ),
    # -- windows side by side --
    Mutation(
        "an item with a NaN not done again",
        ROWS,
        "if watch & (seen != 0):",
        "if watch & (seen == 12345):",
        "max forward",
    ),
    Mutation(
        "a winner one cell late",
        WINNING,
        "evens(a, b), spread_mark(code), odds(a, b), spread_mark(code + mark(1))",
        "evens(a, b), spread_mark(code), odds(a, b), spread_mark(code + mark(2))",
        "max indices",
    ),
    Mutation(
        "the third cell of a row taken for the second",
        WINNING,
        "best, where = joined(best, where, d, spread_mark(code + mark(2)))",
        "best, where = joined(best, where, d, spread_mark(code + mark(1)))",
        "max indices",
    ),
    Mutation(
        "all −inf won by the padding",
        WINNING,
        "a, b, i = spread(fill), spread(fill), add_mark(load_first(firsts, c), top)",
        "a, b, i = spread(fill), spread(fill), top",
        "max of −inf",
    ),
    Mutation(
        "all −inf won by the padding, in windows of any kind",
        WINNING,
        "first = add_mark(load_first(firsts, c), spread_mark(mark(codes[0])))",
        "first = spread_mark(mark(codes[0]))",
        "max of −inf",
    ),
    Mutation(
        "a row that ends one cell early for its bits",
        WINNING,
        "low, high = max(0, min(64, -p)), max(0, min(64, n - p))",
        "low, high = max(0, min(64, -p)), max(0, min(64, n - 1 - p))",
        "max indices",
    ),
    Mutation(
        "a later cell takes what an equal one has won",
        WINNING,
        "return most(best, value), most_from(best, value, where, code)",
        "return most(value, best), most_from(value, best, code, where)",
        "max indices",
    ),
    Mutation(
        "rows before the input counted as none",
        PHASES,
        "return before // g[entry + DILATION] if before > 0 else 0",
        "return 0",
        "max vjp first",
    ),
    Mutation(
        "the second pair of four vectors marked as the first",
        GATHERED,
        "d = add(d, load_marked(s, at + 2 * width, q, to + 2 * width, mark))",
        "d = add(d, load_marked(s, at + 2 * width, q, to + width, mark))",
        "max vjp first",
    ),
    Mutation(
        "every cell of a window but its winner receives its gradient",
        LANES,
        'mask = builder.icmp_signed("==", builder.load(marks, align=1), code)',
        'mask = builder.icmp_signed("!=", builder.load(marks, align=1), code)',
        "max vjp first",
    ),
    Mutation(
        "a cell's readers on the wrong side",
        GATHERED,
        "entries[3 * entry], entries[3 * entry + 1] = place - back, other - back",
        "entries[3 * entry], entries[3 * entry + 1] = place - back, other + back",
        "max vjp first",
    ),
    Mutation(
        "rows at the edge taken for rows in the middle",
        TILING,
        "alike = np.diff(begins) == taps[residues]",
        "alike = np.diff(begins) > 0",
        "max vjp first",
    ),
    Mutation(
        "one phase of a row's readers begins with the other's",
        GATHERED,
        "d, e = two(s, q, k + c, i + c, entries, one, both)",
        "d, e = two(s, q, k + c, i + c, entries, 0, both)",
        "max vjp first",
    ),
    Mutation(
        "shares of a gradient with the sign of beta lost",
        SHARES,
        "exp_down(multiply(beta, subtract(value, load(s, k))))",
        "exp_down(multiply(beta, subtract(load(s, k), value)))",
        "smooth mixed vjp",
    ),
    Mutation(
        "a block with its first cell alone forgotten",
        PHASES,
        "if first_alone:",
        "if first_alone & (n < 0):",
        "smooth jvp",
    ),
    Mutation(
        "the first tap's phase forgotten",
        TILING,
        "places = [origin % stride + t * dilation for t in range(kernel)]",
        "places = [t * dilation for t in range(kernel)]",
        "smooth jvp",
    ),
    Mutation(
        "a coefficient of a vector's exp a little off",
        EXPONENTIALS,
        "1.6666665459e-1,",
        "1.7e-1,",
        "smooth jvp",
    ),
    # -- results past the caches --
    Mutation(
        "the end of a piece left behind",
        STREAMS,
        "store_part(target, done, load(source, done), size - done)",
        "store_part(target, done, load(source, done), 0)",
        "past the caches",
    ),
    Mutation(
        "the end of a line left on the stage",
        STREAMS,
        "store_part(target, skip, load(stage, skip), max(0, fill - skip))",
        "store_part(target, skip, load(stage, skip), 0)",
        "past the caches",
    ),
    Mutation(
        "a line that begins with what another began with",
        STREAMS,
        "store(stage, 0, load(stage, done))",
        "store(stage, 0, load(stage, 0))",
        "past the caches",
    ),
    Mutation(
        "pieces that begin an element late",
        STREAMS,
        "+ edges[unit % job[UNITS]]",
        "+ edges[unit % job[UNITS]] + 1",
        "past the caches",
    ),
    # -- half types --
    Mutation(
        "bfloat16 rounded half up",
        HALF_LANES,
        "rounded = builder.add(builder.add(b, constant(0x7FFF)), odd)",
        "rounded = builder.add(b, constant(0x8000))",
        "bfloat16 rounding",
    ),
    Mutation(
        "float16 truncated",
        HALVES,
        "+ np.uint32(0xFFF) + odd)",
        "+ np.uint32(0))",
        "float16 tangents",
    ),
)
