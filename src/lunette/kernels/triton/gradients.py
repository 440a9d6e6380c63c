"""An input's gradient from arrays over its windows, gathered: one program writes each cell."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from lunette.kernels.triton.arrays import launch, name_of
from lunette.kernels.triton.band_gather import band_gather
from lunette.kernels.triton.band_smooth_gradient import band_smooth_gradient
from lunette.kernels.triton.disjoint import disjoint
from lunette.kernels.triton.flat_gather import flat_gather
from lunette.kernels.triton.gather import gather
from lunette.kernels.triton.launch import (
    Request,
    arithmetic,
    axis_tables,
    bits,
    cut,
    divisor_of,
    flat_cut,
    grid_of,
    reader_tables,
    taps,
)
from lunette.kernels.triton.plan import ONE, Plan
from lunette.kernels.triton.tiles import (
    Tile,
    best_tile,
    flat_gradient_tiles,
    gradient_tiles,
    power_of_two,
    smooth_gradient_tiles,
)
from lunette.kernels.triton.whole import whole_gradient

__all__ = ["spread", "spread_smooth", "spread_whole"]

Tensor = Any
SHORTEST_ROW = 256  # positions; shorter rows leave a program's threads idle
SHORT_ROW = 32  # positions; a band of shorter rows leaves most lanes of a program idle
MOST_ROWS = 16  # of one window that a program writes


def spread(
    plan: Plan,
    request: Request,
    grad: Tensor,
    out: Tensor,
    codes: Tensor | None = None,
    x: Tensor | None = None,
    value: Tensor | None = None,
) -> None:
    """Fill `out` with what every window sends back to its cells."""
    codes = grad if codes is None else codes
    x = out if x is None else x
    value = grad if value is None else value
    tiles = gradient_tiles(plan, out.element_size())
    if request.form in ("codes", "mean") and (not tiles or plan.w.n * plan.lanes < SHORT_ROW):
        tiles = flat_gradient_tiles(plan, out.element_size()) or tiles
    if _tiling(plan) and (request.form != "mean" or divisor_of(plan, request)[0] == "fixed"):
        _disjoint(plan, request, grad, codes, x, value, out)
    elif tiles:
        best_tile(
            (plan, "spread", request.form, name_of(out.dtype)),
            tiles,
            lambda tile: (
                _band_gather(plan, request, tile, grad, codes, x, value, out)
                if tile.rows
                else _flat_gather(plan, request, tile, grad, codes, out)
            ),
            plan.size,
        )
    else:
        _gather(plan, request, grad, codes, x, value, out)


def _flat_gather(plan: Plan, request: Request, tile: Tile, grad: Any, codes: Any, out: Any) -> None:
    mode, divisor = divisor_of(plan, request)
    made = flat_cut(plan, plan.outer_in, plan.h.n, plan.w.n, tile)
    tables = axis_tables(plan, out.device)
    launch(
        flat_gather, made.grid, grad, codes, out, *reader_tables(plan, out.device),
        tables.start_h, tables.length_h, tables.readers_h,
        tables.start_w, tables.length_w, tables.readers_w,
        *made.sizes, divisor, 1 / divisor, *made.magics,
        FORM=request.form, ACC=arithmetic(out.dtype)[0],
        OUTER=plan.plane_readers.shape[1] if plan.outer else 0,
        TABLE_H=plan.h.table is not None, TABLE_W=plan.w.table is not None, DIVISOR=mode,
        **taps(plan, dilated=True), RH=plan.h.readers, RW=plan.w.readers, **made.constants,
    )  # fmt: skip


def _band_gather(
    plan: Plan, request: Request, tile: Tile, grad: Any, codes: Any, x: Any, value: Any, out: Any
) -> None:
    mode, divisor = divisor_of(plan, request)
    rows = -(-plan.h.n // plan.h.stride)
    made = cut(plan, tile, rows, plan.w.n, tile.group, plan.outer_in)
    items, bands, *_ = made.sizes
    launch(
        band_gather, made.grid,
        grad, codes, x, value, out, *reader_tables(plan, out.device),
        items, bands, plan.outer_out, plan.outer_in,
        plan.h.n, plan.w.n // made.constants["UNIT"], plan.lanes, plan.h.m,
        plan.w.m // made.constants["OUT_UNIT"],
        plan.h.limit, plan.w.limit, divisor, 1 / divisor, bits(request.beta),
        FORM=request.form, ACC=arithmetic(out.dtype)[0], WIDE=plan.wide, LANED=plan.lanes > 1,
        OUTER=plan.plane_readers.shape[1] if plan.outer else 0, DIVISOR=mode,
        **taps(plan, dilated=False), **made.constants,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _tiling(plan: Plan) -> bool:
    """Whether the windows tile both axes, in columns of lanes or in fours of columns."""
    if plan.w.whole and plan.lanes == 1:
        return False  # a row for each window: the flat kernel reads each gradient once as well
    plain = all(
        a.table is None and (a.stride, a.before, a.dilation) == (a.kernel, 0, 1)
        for a in (plan.h, plan.w)
    )
    laned = plan.lanes > 1 or plan.w.identity
    return plain and not plan.outer and (laned or plan.w.kernel % 4 == 0)


def _disjoint(
    plan: Plan, request: Request, grad: Any, codes: Any, x: Any, value: Any, out: Any
) -> None:
    h, w, lanes = plan.h, plan.w, plan.lanes
    if lanes > 1 and h.n == 1 and h.identity:  # one row: its columns can be rows, of lanes
        h, w = w, h
    if w.identity:  # every column is a window's own: as good as a lane
        lanes, w = lanes * w.n, ONE
    group = 4 if lanes == 1 else 1
    warps, per_thread = 2, 1 if lanes == 1 else max(1, 16 // out.element_size())
    wide = -(-w.n * lanes // group)
    c = min(power_of_two(wide), 32 * warps * per_thread)
    p = 32 * warps * per_thread // c
    rows = min(h.kernel, MOST_ROWS)
    bands = -(-h.n // h.kernel) * -(-h.kernel // rows)
    unit = group if w.n % group == 0 and plan.wide < 2 else 1
    _, divisor = divisor_of(plan, request)
    launch(
        disjoint, grid_of(plan.batch * bands, p, wide, c),
        grad, codes, x, value, out, plan.batch * bands, bands, h.n, w.n // unit, lanes, h.m, w.m,
        divisor, 1 / divisor,
        bits(request.beta), FORM=request.form, ACC=arithmetic(out.dtype)[0], WIDE=plan.wide,
        KH=h.kernel, KW=w.kernel, R=rows, UNIT=unit, GROUP=group, P=p, C=c,
        num_warps=warps,
    )  # fmt: skip


def _gather(
    plan: Plan, request: Request, grad: Any, codes: Any, x: Any, value: Any, out: Any
) -> None:
    mode, divisor = divisor_of(plan, request)
    lanes, items = plan.w.n * plan.lanes, plan.batch * plan.outer_in * plan.h.n
    warps = 4
    elements = 32 * warps * max(1, 8 // out.element_size())
    c = min(power_of_two(lanes), elements)
    p = min(max(elements // c, 1), power_of_two(items))
    tables = axis_tables(plan, out.device)
    launch(
        gather, grid_of(items, p, lanes, c),
        grad, codes, x, value, out, *reader_tables(plan, out.device),
        tables.start_h, tables.length_h, tables.readers_h,
        tables.start_w, tables.length_w, tables.readers_w,
        items, plan.outer_out, plan.outer_in, plan.h.n, plan.w.n, plan.lanes, plan.h.m, plan.w.m,
        plan.h.limit, plan.w.limit, divisor, 1 / divisor, bits(request.beta),
        FORM=request.form, ACC=arithmetic(out.dtype)[0], WIDE=plan.wide,
        OUTER=plan.plane_readers.shape[1] if plan.outer else 0,
        TABLE_H=plan.h.table is not None, TABLE_W=plan.w.table is not None, DIVISOR=mode,
        **taps(plan, dilated=True), RH=plan.h.readers, RW=plan.w.readers,
        P=p, C=c, num_warps=warps,
    )  # fmt: skip


def spread_whole(plan: Plan, request: Request, x: Tensor, grad: Tensor, out: Tensor) -> bool:
    """Fill `out` in one launch where every window is a row of its own; False where it is not.

    The form is "mean", "smooth", or the ties of a max: "first", "all", "split".
    """
    length = plan.w.n
    if plan.outer or plan.lanes > 1 or plan.h.n > 1 or not plan.w.whole or length < SHORTEST_ROW:
        return False
    block = min(power_of_two(length), 16384)
    warps = max(4, block // 1024)
    divisor = divisor_of(plan, request)[1]
    launch(
        whole_gradient, grid_of(plan.batch, 1, 1, 1),
        x, grad, out, length, divisor, 1 / divisor, bits(request.beta),
        FORM=request.form, ACC=arithmetic(x.dtype)[0],
        RISING=request.form != "smooth" or request.beta > 0, WIDE=plan.wide,
        STEPS=-(-length // block), K=block, num_warps=warps,
    )  # fmt: skip
    return True


def spread_smooth(plan: Plan, request: Request, x: Tensor, grad: Tensor, out: Tensor) -> bool:
    """Fill `out` with a smooth max's gradient in one launch; False where the windows are too large."""
    tiles = smooth_gradient_tiles(plan)
    if not tiles:
        return False

    def run(tile: Tile) -> None:
        made = cut(plan, tile, -(-plan.h.n // plan.h.stride), plan.w.n, tile.group, 1)
        items, bands, *_ = made.sizes
        launch(
            band_smooth_gradient, made.grid,
            x, grad, out, items, bands, plan.h.n, plan.w.n // made.constants["UNIT"],
            plan.h.m, plan.w.m // made.constants["OUT_UNIT"], plan.h.limit, plan.w.limit,
            bits(request.beta), ACC=arithmetic(x.dtype)[0], RISING=request.beta > 0,
            WIDE=plan.wide, PADDED=plan.padded, COUNT_PADDING=request.count_padding,
            **taps(plan, dilated=False), **made.constants,
        )  # fmt: skip

    best_tile((plan, "smooth gradient", name_of(x.dtype)), tiles, run, plan.size)
    return True
