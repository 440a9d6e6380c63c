"""Running a plan: arrays over windows from an input, or an input's gradient from its windows."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton.language as tl

from lunette.kernels.triton.band import band
from lunette.kernels.triton.band_gather import band_gather
from lunette.kernels.triton.band_smooth import band_smooth
from lunette.kernels.triton.band_smooth_gradient import band_smooth_gradient
from lunette.kernels.triton.disjoint import disjoint
from lunette.kernels.triton.gather import gather, locate
from lunette.kernels.triton.plan import Axis, Plan, passes, separable
from lunette.kernels.triton.tiles import (
    Tile,
    best_tile,
    forward_tiles,
    gradient_tiles,
    power_of_two,
    smooth_gradient_tiles,
)
from lunette.kernels.triton.whole import whole_gradient
from lunette.kernels.triton.window import window

__all__ = [
    "INTEGERS",
    "Request",
    "empty_code",
    "locate_winners",
    "reduce_windows",
    "spread",
    "spread_smooth",
    "spread_whole",
]

Tensor = Any
MOST_PROGRAMS = (1 << 31) - 1
SHORTEST_ROW = 256  # positions; shorter rows leave a program's threads idle

INTEGERS = {
    torch.uint8: tl.uint8,
    torch.int8: tl.int8,
    torch.int16: tl.int16,
    torch.int32: tl.int32,
    torch.int64: tl.int64,
    torch.uint16: tl.uint16,
    torch.uint32: tl.uint32,
    torch.uint64: tl.uint64,
}


class Request(NamedTuple):
    """What is asked of every window: a form of the kernels, and its parameters."""

    form: str
    beta: float = 1.0
    divisor: int | None = None
    count_padding: bool = False


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
    if request.form == "max" and separable(plan):
        along_w, along_h = passes(plan)
        between = torch.empty(along_w.out_size, dtype=x.dtype, device=x.device)
        reduce_windows(along_w, request, x, between)
        reduce_windows(along_h, request, between, y)
        return
    tiles = forward_tiles(plan, request.form, x.element_size())
    if not tiles:
        _window(plan, request, x, y, second, other, value)
    elif request.form in SMOOTH:
        best_tile(
            (plan, request.form, x.dtype),
            tiles,
            lambda tile: _band_smooth(plan, request, tile, x, y, second, other),
            plan.size,
        )
    else:
        best_tile(
            (plan, request.form, x.dtype),
            tiles,
            lambda tile: _band(plan, request, tile, x, y, second),
            plan.size,
        )


def _band(plan: Plan, request: Request, tile: Tile, x: Any, y: Any, second: Any) -> None:
    accumulator, lowest = _arithmetic(x.dtype)
    mode, divisor = _divisor(plan, request)
    cut = _cut(plan, tile, plan.h.m, plan.w.m, _outputs(plan, tile), plan.outer_out)
    band[cut.grid](
        x, y, second, *_outer_tables(plan, x.device), *cut.sizes,
        plan.h.limit, plan.w.limit, divisor, 1 / divisor,
        FORM=request.form, ACC=accumulator, OTHER=0 if request.form == "mean" else lowest,
        EMPTY=empty_code(second.dtype), WIDE=plan.wide, OUTER=plan.outer_taps,
        MAY_BE_EMPTY=plan.may_be_empty, DIVISOR=mode,
        **_taps(plan, dilated=True), **cut.constants,
    )  # fmt: skip


def _band_smooth(
    plan: Plan, request: Request, tile: Tile, x: Any, y: Any, second: Any, other: Any
) -> None:
    cut = _cut(plan, tile, plan.h.m, plan.w.m, _outputs(plan, tile), plan.outer_out)
    band_smooth[cut.grid](
        x, other, y, second, *_outer_tables(plan, x.device), *cut.sizes,
        plan.h.limit, plan.w.limit, _bits(request.beta),
        FORM=SMOOTH[request.form], ACC=_arithmetic(x.dtype)[0], RISING=request.beta > 0,
        WIDE=plan.wide, OUTER=plan.outer_taps, PADDED=plan.padded,
        COUNT_PADDING=request.count_padding, **_taps(plan, dilated=True), **cut.constants,
    )  # fmt: skip


def _window(
    plan: Plan, request: Request, x: Any, y: Any, second: Any, other: Any, value: Any
) -> None:
    accumulator, lowest = _arithmetic(x.dtype)
    if request.form in SMOOTH and request.beta < 0:
        lowest = float("inf")
    mode, divisor = _divisor(plan, request)
    lanes, items = plan.w.m * plan.lanes, plan.batch * plan.outer_out * plan.h.m
    warps = 4
    per_step = 32 * warps * max(1, 8 // x.element_size())
    k = 1 if plan.lanes > 1 else min(power_of_two(plan.w.kernel), per_step)
    c = min(power_of_two(lanes), max(per_step // k, 1))
    p = min(max(per_step // (k * c), 1), power_of_two(items))
    grid = _grid(items, p, lanes, c)
    tables = _axis_tables(plan, x.device)
    window[grid](
        x, other, value, y, second, *_outer_tables(plan, x.device),
        tables.start_h, tables.length_h, tables.start_w, tables.length_w,
        items, plan.outer_out, plan.outer_in, plan.h.n, plan.w.n, plan.lanes, plan.h.m, plan.w.m,
        plan.h.limit, plan.w.limit, divisor, 1 / divisor, _bits(request.beta),
        FORM=request.form, ACC=accumulator, OTHER=lowest, EMPTY=empty_code(second.dtype),
        RISING=request.beta > 0, WIDE=plan.wide, OUTER=plan.outer_taps,
        TABLE_H=plan.h.table is not None, TABLE_W=plan.w.table is not None, DIVISOR=mode,
        **_taps(plan, dilated=True), P=p, C=c, K=k, UNROLL=4, num_warps=warps,
    )  # fmt: skip


# -- gradients: arrays over the windows → an input's gradient --


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
    if _tiling(plan) and (request.form != "mean" or _divisor(plan, request)[0] == "fixed"):
        _disjoint(plan, request, grad, codes, x, value, out)
    elif tiles:
        best_tile(
            (plan, "spread", request.form, out.dtype),
            tiles,
            lambda tile: _band_gather(plan, request, tile, grad, codes, x, value, out),
            plan.size,
        )
    else:
        _gather(plan, request, grad, codes, x, value, out)


def _band_gather(
    plan: Plan, request: Request, tile: Tile, grad: Any, codes: Any, x: Any, value: Any, out: Any
) -> None:
    mode, divisor = _divisor(plan, request)
    rows = -(-plan.h.n // plan.h.stride)
    cut = _cut(plan, tile, rows, plan.w.n, tile.group, plan.outer_in)
    items, bands, *_ = cut.sizes
    band_gather[cut.grid](
        grad, codes, x, value, out, *_reader_tables(plan, out.device),
        items, bands, plan.outer_out, plan.outer_in,
        plan.h.n, plan.w.n // cut.constants["UNIT"], plan.h.m,
        plan.w.m // cut.constants["OUT_UNIT"],
        plan.h.limit, plan.w.limit, divisor, 1 / divisor, _bits(request.beta),
        FORM=request.form, ACC=_arithmetic(out.dtype)[0], WIDE=plan.wide,
        OUTER=plan.plane_readers.shape[1] if plan.outer else 0, DIVISOR=mode,
        **_taps(plan, dilated=False), **cut.constants,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _tiling(plan: Plan) -> bool:
    """Whether the windows tile both axes, in columns that lanes of four can share."""
    plain = all(
        a.table is None and (a.stride, a.before, a.dilation) == (a.kernel, 0, 1)
        for a in (plan.h, plan.w)
    )
    return plain and not plan.outer and plan.lanes == 1 and plan.w.kernel % 4 == 0


def _disjoint(
    plan: Plan, request: Request, grad: Any, codes: Any, x: Any, value: Any, out: Any
) -> None:
    tile = Tile(4, 1, 1, 2)
    bands = -(-plan.h.n // plan.h.kernel)
    cut = _cut(plan, tile, bands, plan.w.n, 4, 1)
    _, divisor = _divisor(plan, request)
    constants = {name: cut.constants[name] for name in ("UNIT", "GROUP", "P", "C", "num_warps")}
    disjoint[cut.grid](
        grad, codes, x, value, out, plan.batch * bands, bands, plan.h.n,
        plan.w.n // constants["UNIT"], plan.h.m, plan.w.m, divisor, 1 / divisor,
        _bits(request.beta), FORM=request.form, ACC=_arithmetic(out.dtype)[0], WIDE=plan.wide,
        KH=plan.h.kernel, KW=plan.w.kernel, **constants,
    )  # fmt: skip


def _gather(
    plan: Plan, request: Request, grad: Any, codes: Any, x: Any, value: Any, out: Any
) -> None:
    mode, divisor = _divisor(plan, request)
    lanes, items = plan.w.n * plan.lanes, plan.batch * plan.outer_in * plan.h.n
    warps = 4
    elements = 32 * warps * max(1, 8 // out.element_size())
    c = min(power_of_two(lanes), elements)
    p = min(max(elements // c, 1), power_of_two(items))
    tables = _axis_tables(plan, out.device)
    gather[_grid(items, p, lanes, c)](
        grad, codes, x, value, out, *_reader_tables(plan, out.device),
        tables.start_h, tables.length_h, tables.readers_h,
        tables.start_w, tables.length_w, tables.readers_w,
        items, plan.outer_out, plan.outer_in, plan.h.n, plan.w.n, plan.lanes, plan.h.m, plan.w.m,
        plan.h.limit, plan.w.limit, divisor, 1 / divisor, _bits(request.beta),
        FORM=request.form, ACC=_arithmetic(out.dtype)[0], WIDE=plan.wide,
        OUTER=plan.plane_readers.shape[1] if plan.outer else 0,
        TABLE_H=plan.h.table is not None, TABLE_W=plan.w.table is not None, DIVISOR=mode,
        **_taps(plan, dilated=True), RH=plan.h.readers, RW=plan.w.readers,
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
    divisor = _divisor(plan, request)[1]
    whole_gradient[_grid(plan.batch, 1, 1, 1)](
        x, grad, out, length, divisor, 1 / divisor, _bits(request.beta),
        FORM=request.form, ACC=_arithmetic(x.dtype)[0],
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
        cut = _cut(plan, tile, -(-plan.h.n // plan.h.stride), plan.w.n, tile.group, 1)
        items, bands, *_ = cut.sizes
        band_smooth_gradient[cut.grid](
            x, grad, out, items, bands, plan.h.n, plan.w.n // cut.constants["UNIT"],
            plan.h.m, plan.w.m // cut.constants["OUT_UNIT"], plan.h.limit, plan.w.limit,
            _bits(request.beta), ACC=_arithmetic(x.dtype)[0], RISING=request.beta > 0,
            WIDE=plan.wide, PADDED=plan.padded, COUNT_PADDING=request.count_padding,
            **_taps(plan, dilated=False), **cut.constants,
        )  # fmt: skip

    best_tile((plan, "smooth gradient", x.dtype), tiles, run, plan.size)
    return True


def locate_winners(plan: Plan, codes: Tensor, out: Tensor, tangent: Tensor | None = None) -> None:
    """Each winner's flat position in the pooled axes, or its entry of `tangent`."""
    tables = _axis_tables(plan, codes.device)
    trailing = (plan.w.n if plan.lanes_in_row else plan.lanes) // plan.channels
    block = 512
    locate[_grid(1, 1, plan.out_size, block)](
        codes, out if tangent is None else tangent, out, _outer_tables(plan, codes.device)[0],
        tables.start_h, tables.start_w, plan.out_size, plan.outer_out, plan.outer_in,
        plan.h.n, plan.w.n, plan.lanes, plan.h.m, plan.w.m,
        plan.leading, trailing, plan.channels,
        FORM="indices" if tangent is None else "jvp", EMPTY=empty_code(codes.dtype),
        ACC=tl.int64 if tangent is None else _arithmetic(tangent.dtype)[0], WIDE=plan.wide,
        OUTER=plan.outer_taps, TABLE_H=plan.h.table is not None,
        TABLE_W=plan.w.table is not None, LANES_IN_ROW=plan.lanes_in_row,
        **_taps(plan, dilated=True), C=block, num_warps=4,
    )  # fmt: skip


# -- what the launches share --


class _Cut(NamedTuple):
    grid: tuple[int]
    sizes: tuple[int, ...]
    constants: dict[str, int]


@lru_cache(maxsize=1024)
def _cut(plan: Plan, tile: Tile, rows: int, columns: int, owned: int, planes: int) -> _Cut:
    """Programs over `rows` × `columns` of each plane, of which a lane owns `owned` columns."""
    lanes = columns * plan.lanes if tile.group == 1 else -(-columns // owned)
    elements = 32 * tile.warps * tile.lanes
    c = min(power_of_two(lanes), elements)
    bands = -(-rows // tile.rows)
    items = plan.batch * planes * bands
    p = elements // c
    # A row past 2³¹ positions is passed whole: Triton makes it a 64-bit argument.
    unit = 1 if plan.wide == 2 else _unit(plan.w.n, tile.group)
    out_unit = 1 if plan.wide == 2 else _unit(plan.w.m, max(tile.group // plan.w.stride, 1))
    sizes = (
        items, bands, plan.outer_out, plan.outer_in, plan.h.n, plan.w.n // unit, plan.lanes,
        plan.h.m, plan.w.m // out_unit,
    )  # fmt: skip
    constants = {"UNIT": unit, "OUT_UNIT": out_unit, "GROUP": tile.group, "R": tile.rows}
    constants |= {"P": p, "C": c, "num_warps": tile.warps}
    return _Cut(_grid(items, p, lanes, c), sizes, constants)


def _outputs(plan: Plan, tile: Tile) -> int:
    return 1 if tile.group == 1 else tile.group // plan.w.stride


def _unit(length: int, most: int) -> int:
    """The largest power of two up to `most` that divides `length`: what loads may rely on."""
    unit = 1
    while unit * 2 <= most and length % (unit * 2) == 0:
        unit *= 2
    return unit


def _grid(items: int, per_program: int, lanes: int, columns: int) -> tuple[int]:
    programs = -(-items // per_program) * -(-lanes // columns)
    if programs > MOST_PROGRAMS:
        raise ValueError(
            f"{items} rows of {lanes} positions need {programs} programs; a launch has at most "
            f"{MOST_PROGRAMS}: split the batch"
        )
    return (programs,)


@lru_cache(maxsize=1024)
def _taps(plan: Plan, dilated: bool) -> dict[str, int]:
    h, w = plan.h, plan.w
    taps = {"KH": h.kernel, "KW": w.kernel, "SH": h.stride, "SW": w.stride}
    taps |= {"BH": h.before, "BW": w.before}
    return taps | {"DH": h.dilation, "DW": w.dilation} if dilated else taps


@lru_cache(maxsize=1024)
def _divisor(plan: Plan, request: Request) -> tuple[str, int]:
    if request.divisor is not None:
        return "fixed", request.divisor
    if request.form == "mean":
        uniform = plan.uniform[1 if request.count_padding else 0]
        if uniform:
            return "fixed", uniform
    return ("counted" if request.count_padding else "real"), 1


def empty_code(dtype: Any) -> int:
    """The code of a window without a cell."""
    return 255 if dtype == torch.uint8 else -1


@lru_cache(maxsize=256)
def _bits(beta: float) -> int:
    """A float64 as the integer of its bits: Triton passes plain floats as float32."""
    return int(struct.unpack("q", struct.pack("d", beta))[0])


@lru_cache(maxsize=64)
def _arithmetic(dtype: Any) -> tuple[Any, Any]:
    """The type of the arithmetic, and the value below or equal to every other."""
    if dtype in INTEGERS:
        return INTEGERS[dtype], torch.iinfo(dtype).min
    return (tl.float64 if dtype == torch.float64 else tl.float32), float("-inf")


class _AxisTables(NamedTuple):
    start_h: Tensor
    length_h: Tensor
    readers_h: Tensor
    start_w: Tensor
    length_w: Tensor
    readers_w: Tensor


@lru_cache(maxsize=256)
def _outer_tables(plan: Plan, device: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Planes of each outer output with the first of them after it, real planes, counted planes."""
    if not plan.outer:
        return (_nothing(device),) * 3
    planes = torch.cat([_tensor(plan.planes, device).ravel(), _tensor(plan.outer_first, device)])
    return planes, _tensor(plan.outer_real, device), _tensor(plan.outer_counted, device)


@lru_cache(maxsize=256)
def _reader_tables(plan: Plan, device: Any) -> tuple[Tensor, Tensor, Tensor]:
    if not plan.outer:
        return (_nothing(device),) * 3
    _, real, counted = _outer_tables(plan, device)
    return _tensor(plan.plane_readers, device), real, counted


@lru_cache(maxsize=256)
def _axis_tables(plan: Plan, device: Any) -> _AxisTables:
    return _AxisTables(*_axis_table(plan.h, device), *_axis_table(plan.w, device))


def _axis_table(axis: Axis, device: Any) -> tuple[Tensor, Tensor, Tensor]:
    if axis.table is None:
        return (_nothing(device),) * 3
    starts, lengths = axis.table
    return _tensor(starts, device), _tensor(lengths, device), _tensor(axis.reader_table, device)


@lru_cache(maxsize=16)
def _nothing(device: Any) -> Tensor:
    return torch.zeros(1, dtype=torch.int32, device=device)


def _tensor(values: Any, device: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)
