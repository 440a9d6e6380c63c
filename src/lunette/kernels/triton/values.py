"""Arrays over windows from an input: values, winners, and where the winners are."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from lunette.kernels.triton.arrays import launch, name_of, new
from lunette.kernels.triton.band import band
from lunette.kernels.triton.band_smooth import band_smooth
from lunette.kernels.triton.flat import flat
from lunette.kernels.triton.gather import locate
from lunette.kernels.triton.launch import (
    Request,
    arithmetic,
    axis_tables,
    bits,
    cut,
    divisor_of,
    empty_code,
    flat_cut,
    grid_of,
    outer_tables,
    taps,
    unit_of,
)
from lunette.kernels.triton.plan import Plan, passes, separable
from lunette.kernels.triton.tiles import (
    FLAT,
    MOST_FLAT_TAPS,
    UNROLLED_TAPS,
    Tile,
    best_tile,
    flat_tiles,
    forward_tiles,
    power_of_two,
)
from lunette.kernels.triton.window import window

__all__ = ["locate_winners", "reduce_windows"]

Tensor = Any
ENOUGH_PROGRAMS = 1024  # that keep every multiprocessor at work
LONG_WINDOW = 256  # taps along a row, from which threads share a window of one lane
WIDE_ROW = 64  # positions, from which a band's lanes are all at work
FEW_TAPS = 16  # of a window, each a load of its own
FLAT_FORMS = ("max", "codes", "mean")
SMOOTH = {"smooth": "value", "smooth_jvp": "jvp", "stats": "stats"}


def reduce_windows(
    plan: Plan,
    request: Request,
    x: Tensor,
    y: Tensor,
    second: Tensor | None = None,
    other: Tensor | None = None,
    value: Tensor | None = None,
) -> None:
    """Fill `y`, and `second` where the form has two results, from every window of `x`."""
    second = y if second is None else second
    other = x if other is None else other
    value = y if value is None else value
    if separable(plan) and _separates(plan, request):
        _by_axes(plan, request, x, y)
        return
    tiles = forward_tiles(plan, request.form, x.element_size())
    if request.form in FLAT_FORMS and not plan.w.whole:
        tiles = _ranked(plan, tiles, flat_tiles(plan, x.element_size()))
    if not tiles:
        _window(plan, request, x, y, second, other, value)
    elif request.form in SMOOTH:
        best_tile(
            (plan, request.form, name_of(x.dtype)),
            tiles,
            lambda tile: _band_smooth(plan, request, tile, x, y, second, other),
            plan.size,
        )
    else:
        best_tile(
            (plan, request.form, name_of(x.dtype)),
            tiles,
            lambda tile: (_band if tile.rows else _flat)(plan, request, tile, x, y, second),
            plan.size,
        )


def _separates(plan: Plan, request: Request) -> bool:
    """Whether rows of windows can be reduced first: a max, or a mean whose divisor is one number."""
    return request.form == "max" or (
        request.form == "mean"
        and divisor_of(plan, request)[0] == "fixed"
        and max(plan.h.kernel, plan.w.kernel) <= MOST_FLAT_TAPS
    )


def _by_axes(plan: Plan, request: Request, x: Tensor, y: Tensor) -> None:
    """Along W, then along H. Sums of rows stay in the type of the arithmetic, and are added as in one pass."""
    along_w, along_h = passes(plan)
    if request.form == "max":
        between = new(along_w.out_size, x.dtype, x.device)
        reduce_windows(along_w, request, x, between)
        reduce_windows(along_h, request, between, y)
        return
    wide = "float64" if name_of(x.dtype) == "float64" else "float32"
    between = new(along_w.out_size, wide, x.device)
    divisor = divisor_of(plan, request)[1]
    _flat(along_w, request._replace(divisor=1), FLAT, x, between, between)
    _flat(along_h, request._replace(divisor=divisor), FLAT, between, y, y)


def _ranked(plan: Plan, bands: list[Tile], flats: list[Tile]) -> list[Tile]:
    """The likeliest best first: a band where windows overlap much, or rows are long and loads can be wide."""
    wide = plan.w.m * plan.lanes >= WIDE_ROW and plan.w.n % 2 == 0
    return [*bands, *flats] if wide or plan.cells > FEW_TAPS else [*flats, *bands]


def _flat(plan: Plan, request: Request, tile: Tile, x: Any, y: Any, second: Any) -> None:
    accumulator, lowest = arithmetic(x.dtype)
    mode, divisor = divisor_of(plan, request)
    made = flat_cut(plan, plan.outer_out, plan.h.m, plan.w.m, tile)
    tables = axis_tables(plan, x.device)
    launch(
        flat, made.grid, x, y, second, *outer_tables(plan, x.device),
        tables.start_h, tables.length_h, tables.start_w, tables.length_w,
        *made.sizes, divisor, 1 / divisor, *made.magics,
        FORM=request.form, ACC=accumulator, OTHER=0 if request.form == "mean" else lowest,
        EMPTY=empty_code(second.dtype), OUTER=plan.outer_taps,
        TABLE_H=plan.h.table is not None, TABLE_W=plan.w.table is not None,
        PADDED_H=plan.h.padded, PADDED_W=plan.w.padded, MAY_BE_EMPTY=plan.may_be_empty,
        DIVISOR=mode, STATIC=plan.cells <= UNROLLED_TAPS,
        **taps(plan, dilated=True), **made.constants,
    )  # fmt: skip


def _band(plan: Plan, request: Request, tile: Tile, x: Any, y: Any, second: Any) -> None:
    accumulator, lowest = arithmetic(x.dtype)
    mode, divisor = divisor_of(plan, request)
    made = cut(plan, tile, plan.h.m, plan.w.m, _outputs(plan, tile), plan.outer_out)
    launch(
        band, made.grid,
        x, y, second, *outer_tables(plan, x.device), *made.sizes,
        plan.h.limit, plan.w.limit, divisor, 1 / divisor,
        FORM=request.form, ACC=accumulator, OTHER=0 if request.form == "mean" else lowest,
        EMPTY=empty_code(second.dtype), WIDE=plan.wide, OUTER=plan.outer_taps,
        MAY_BE_EMPTY=plan.may_be_empty, DIVISOR=mode,
        **taps(plan, dilated=True), **made.constants,
    )  # fmt: skip


def _band_smooth(
    plan: Plan, request: Request, tile: Tile, x: Any, y: Any, second: Any, other: Any
) -> None:
    made = cut(plan, tile, plan.h.m, plan.w.m, _outputs(plan, tile), plan.outer_out)
    launch(
        band_smooth, made.grid,
        x, other, y, second, *outer_tables(plan, x.device), *made.sizes,
        plan.h.limit, plan.w.limit, bits(request.beta),
        FORM=SMOOTH[request.form], ACC=arithmetic(x.dtype)[0], RISING=request.beta > 0,
        WIDE=plan.wide, OUTER=plan.outer_taps, PADDED=plan.padded,
        COUNT_PADDING=request.count_padding, **taps(plan, dilated=True), **made.constants,
    )  # fmt: skip


def _outputs(plan: Plan, tile: Tile) -> int:
    return 1 if tile.group == 1 else tile.group // plan.w.stride


def _window(
    plan: Plan, request: Request, x: Any, y: Any, second: Any, other: Any, value: Any
) -> None:
    accumulator, lowest = arithmetic(x.dtype)
    if request.form in SMOOTH and request.beta < 0:
        lowest = float("inf")
    mode, divisor = divisor_of(plan, request)
    lanes, items = plan.w.m * plan.lanes, plan.batch * plan.outer_out * plan.h.m
    warps, k = 4, power_of_two(plan.w.kernel)
    per_step = 32 * warps * max(1, 8 // x.element_size())
    if plan.w.whole and plan.h.n == 1 and not plan.outer and plan.lanes == 1:
        per_step = _rows_step(plan, x.element_size())
    if plan.lanes == 1:
        k = min(k, per_step)
        c = min(power_of_two(lanes), max(per_step // k, 1))
    elif k < LONG_WINDOW:
        k, c = 1, min(power_of_two(lanes), per_step)
    else:  # neighbours in memory are lanes; threads share a long window of each
        warps, per_step = 8, 32 * 8 * max(1, 16 // x.element_size())
        c = min(power_of_two(lanes), 32)
        k = per_step // c
    p = min(max(per_step // (k * c), 1), power_of_two(items))
    grid = grid_of(items, p, lanes, c)
    tables = axis_tables(plan, x.device)
    unit = unit_of(plan.w.n, 16 // x.element_size()) if plan.wide < 2 else 1
    launch(
        window, grid,
        x, other, value, y, second, *outer_tables(plan, x.device),
        tables.start_h, tables.length_h, tables.start_w, tables.length_w,
        items, plan.outer_out, plan.outer_in, plan.h.n, plan.w.n // unit, plan.lanes, plan.h.m,
        plan.w.m, plan.h.limit, plan.w.limit, divisor, 1 / divisor, bits(request.beta),
        FORM=request.form, ACC=accumulator, OTHER=lowest, EMPTY=empty_code(second.dtype),
        RISING=request.beta > 0, WIDE=plan.wide, OUTER=plan.outer_taps,
        TABLE_H=plan.h.table is not None, TABLE_W=plan.w.table is not None, DIVISOR=mode,
        **taps(plan, dilated=True), UNIT=unit, P=p, C=c, K=k, UNROLL=4, num_warps=warps,
    )  # fmt: skip


def _rows_step(plan: Plan, itemsize: int) -> int:
    """Cells that a program of 4 warps holds at a time where every window is a row: more where rows are many and short."""
    least = 128 * max(1, 8 // itemsize)
    most = 128 * 64 // itemsize
    enough = plan.batch * plan.w.n // ENOUGH_PROGRAMS
    return min(most, max(least, power_of_two(enough + 1) // 2))


def locate_winners(plan: Plan, codes: Tensor, out: Tensor, tangent: Tensor | None = None) -> None:
    """Each winner's flat position in the pooled axes, or its entry of `tangent`."""
    tables = axis_tables(plan, codes.device)
    trailing = (plan.w.n if plan.lanes_in_row else plan.lanes) // plan.channels
    block = 512
    launch(
        locate, grid_of(1, 1, plan.out_size, block),
        codes, out if tangent is None else tangent, out, outer_tables(plan, codes.device)[0],
        tables.start_h, tables.length_h, tables.start_w, tables.length_w,
        plan.out_size, plan.outer_out, plan.outer_in, plan.h.n, plan.w.n, plan.lanes, plan.h.m, plan.w.m,
        plan.leading, trailing, plan.channels,
        FORM="indices" if tangent is None else "jvp", EMPTY=empty_code(codes.dtype),
        ACC=tl.int64 if tangent is None else arithmetic(tangent.dtype)[0], WIDE=plan.wide,
        OUTER=plan.outer_taps, TABLE_H=plan.h.table is not None,
        TABLE_W=plan.w.table is not None, LANES_IN_ROW=plan.lanes_in_row,
        **taps(plan, dilated=True), C=block, num_warps=4,
    )  # fmt: skip
