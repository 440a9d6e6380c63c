"""What every launch of a plan needs: a request, a grid, constants, and tables on the device."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import triton.language as tl

from lunette.kernels.triton.arrays import name_of, table
from lunette.kernels.triton.plan import Axis, Plan
from lunette.kernels.triton.tiles import Tile, power_of_two

__all__ = [
    "INTEGERS",
    "Cut",
    "FlatCut",
    "Request",
    "arithmetic",
    "axis_tables",
    "bits",
    "cut",
    "divisor_of",
    "empty_code",
    "flat_cut",
    "grid_of",
    "magic",
    "outer_tables",
    "reader_tables",
    "taps",
    "unit_of",
]

Tensor = Any
MOST_PROGRAMS = (1 << 31) - 1
FEWEST_LANES, MOST_LANES = 8, 64
"""Channels side by side that make a row of a block, a power of two that divides them; fewer are positions like others."""

INTEGERS = {
    "uint8": tl.uint8,
    "int8": tl.int8,
    "int16": tl.int16,
    "int32": tl.int32,
    "int64": tl.int64,
    "uint16": tl.uint16,
    "uint32": tl.uint32,
    "uint64": tl.uint64,
}


class Request(NamedTuple):
    """What is asked of every window: a form of the kernels, and its parameters."""

    form: str
    beta: float = 1.0
    divisor: int | None = None
    count_padding: bool = False


class Cut(NamedTuple):
    """How a plan is cut into programs: the grid, sizes in the kernels' order, and constants."""

    grid: tuple[int]
    sizes: tuple[int, ...]
    constants: dict[str, int]


@lru_cache(maxsize=1024)
def cut(plan: Plan, tile: Tile, rows: int, columns: int, owned: int, planes: int) -> Cut:
    """Programs over `rows` × `columns` of each plane, of which a lane owns `owned` columns."""
    lanes = -(-columns // owned) * plan.lanes
    elements = 32 * tile.warps * tile.lanes
    c = min(power_of_two(lanes), elements)
    bands = -(-rows // tile.rows)
    items = plan.batch * planes * bands
    p = elements // c
    # A row past 2³¹ positions is passed whole: Triton makes it a 64-bit argument.
    unit = 1 if plan.wide == 2 else unit_of(plan.w.n, tile.group)
    out_unit = 1 if plan.wide == 2 else unit_of(plan.w.m, max(tile.group // plan.w.stride, 1))
    sizes = (
        items, bands, plan.outer_out, plan.outer_in, plan.h.n, plan.w.n // unit, plan.lanes,
        plan.h.m, plan.w.m // out_unit,
    )  # fmt: skip
    constants = {"UNIT": unit, "OUT_UNIT": out_unit, "GROUP": tile.group, "R": tile.rows}
    constants |= {"P": p, "C": c, "num_warps": tile.warps}
    return Cut(grid_of(items, p, lanes, c), sizes, constants)


class FlatCut(NamedTuple):
    """How positions in the order of memory are cut into programs."""

    grid: tuple[int]
    sizes: tuple[int, ...]
    magics: tuple[int, ...]
    constants: dict[str, int]


@lru_cache(maxsize=1024)
def flat_cut(plan: Plan, outer: int, rows: int, columns: int, tile: Tile) -> FlatCut:
    """Programs over `outer` × `rows` × `columns` positions of every image, `tile.lanes` of them a thread."""
    lanes = min(plan.lanes & -plan.lanes, MOST_LANES)
    lanes = lanes if lanes >= FEWEST_LANES else 1
    units = plan.lanes // lanes
    positions = max(32 * tile.warps * tile.lanes // lanes, 1)
    total = plan.batch * outer * rows * columns * units
    sizes = (
        total, plan.outer_out, plan.outer_in, plan.h.n, plan.w.n, units, plan.h.m, plan.w.m,
        plan.h.limit, plan.w.limit,
    )  # fmt: skip
    magics = tuple(m for d in (units, columns, rows, outer) for m in magic(d))
    wide = plan.wide > 0 or (total + positions) * lanes >= 1 << 31
    constants = {"WIDE": int(wide), "LANED": plan.lanes > 1, "P": positions, "LANES": lanes}
    return FlatCut(
        grid_of(total, positions, 1, 1), sizes, magics, constants | {"num_warps": tile.warps}
    )


def magic(divisor: int) -> tuple[int, int]:
    """A multiplier, as the int32 of its bits, and a shift that divide numbers below 2³¹; zeros for 1."""
    if divisor == 1 or divisor >= 1 << 31:
        return 0, 0
    bits_ = (divisor - 1).bit_length()
    multiplier = -(-(1 << (31 + bits_)) // divisor)
    return multiplier - (1 << 32) if multiplier >= 1 << 31 else multiplier, bits_ - 1


def unit_of(length: int, most: int) -> int:
    """The largest power of two up to `most` that divides `length`: what loads may rely on."""
    unit = 1
    while unit * 2 <= most and length % (unit * 2) == 0:
        unit *= 2
    return unit


def grid_of(items: int, per_program: int, lanes: int, columns: int) -> tuple[int]:
    """Programs for `items` of `lanes`, each taking `per_program` items and `columns` lanes."""
    programs = -(-items // per_program) * -(-lanes // columns)
    if programs > MOST_PROGRAMS:
        raise ValueError(
            f"{items} rows of {lanes} positions need {programs} programs; a launch has at most "
            f"{MOST_PROGRAMS}: split the batch"
        )
    return (programs,)


@lru_cache(maxsize=1024)
def taps(plan: Plan, dilated: bool) -> dict[str, int]:
    """The windows as constants: kernels, strides and beginnings of both axes, and dilations."""
    h, w = plan.h, plan.w
    made = {"KH": h.kernel, "KW": w.kernel, "SH": h.stride, "SW": w.stride}
    made |= {"BH": h.before, "BW": w.before}
    return made | {"DH": h.dilation, "DW": w.dilation} if dilated else made


@lru_cache(maxsize=1024)
def divisor_of(plan: Plan, request: Request) -> tuple[str, int]:
    """How a mean finds its divisor ("fixed", "counted" or "real" cells), and a fixed one."""
    if request.divisor is not None:
        return "fixed", request.divisor
    if request.form == "mean":
        uniform = plan.uniform[1 if request.count_padding else 0]
        if uniform:
            return "fixed", uniform
    return ("counted" if request.count_padding else "real"), 1


def empty_code(dtype: Any) -> int:
    """The code of a window without a cell."""
    return 255 if name_of(dtype) == "uint8" else -1


@lru_cache(maxsize=256)
def bits(beta: float) -> int:
    """A float64 as the integer of its bits: Triton passes plain floats as float32."""
    return int(struct.unpack("q", struct.pack("d", beta))[0])


@lru_cache(maxsize=64)
def arithmetic(dtype: Any) -> tuple[Any, Any]:
    """The type of the arithmetic, and the value below or equal to every other."""
    name = name_of(dtype)
    if name in INTEGERS:
        return INTEGERS[name], int(np.iinfo(name).min)
    return (tl.float64 if name == "float64" else tl.float32), float("-inf")


class AxisTables(NamedTuple):
    start_h: Tensor
    length_h: Tensor
    readers_h: Tensor
    start_w: Tensor
    length_w: Tensor
    readers_w: Tensor


@lru_cache(maxsize=256)
def outer_tables(plan: Plan, device: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Planes of each outer output with the first of them after it, real planes, counted planes."""
    if not plan.outer:
        return (_nothing(device),) * 3
    planes = table(np.concatenate([plan.planes.ravel(), plan.outer_first]), device)
    return planes, table(plan.outer_real, device), table(plan.outer_counted, device)


@lru_cache(maxsize=256)
def reader_tables(plan: Plan, device: Any) -> tuple[Tensor, Tensor, Tensor]:
    if not plan.outer:
        return (_nothing(device),) * 3
    _, real, counted = outer_tables(plan, device)
    return table(plan.plane_readers, device), real, counted


@lru_cache(maxsize=256)
def axis_tables(plan: Plan, device: Any) -> AxisTables:
    return AxisTables(*_axis_table(plan.h, device), *_axis_table(plan.w, device))


def _axis_table(axis: Axis, device: Any) -> tuple[Tensor, Tensor, Tensor]:
    if axis.table is None:
        return (_nothing(device),) * 3
    starts, lengths = axis.table
    return table(starts, device), table(lengths, device), table(axis.reader_table, device)


@lru_cache(maxsize=16)
def _nothing(device: Any) -> Tensor:
    return table([0], device)
