"""Pooling past cells that hold nothing: NaN, or a number that stands for no data.

Such cells have no part in a value; a window of them alone gives the same mark again. Sums and counts
are exact: those of integers of up to 32 bits in float64, for windows of less than 2¹⁹ cells.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lunette import dispatch
from lunette.arguments import shown
from lunette.ops.base import is_float
from lunette.ops.pooling import Pool
from lunette.reductions import Max, Mean, Min, Mode, Reduction
from lunette.regions import Region

__all__ = ["check", "pooled"]

Array = np.ndarray[Any, Any]
Number = float | int

SUM = Mean(count_include_pad=False, divisor_override=1)


def check(operator: str, dtype: np.dtype[Any], mark: Number) -> None:
    """Refuse a mark that the dtype cannot hold, and sums that would not be exact."""
    if dtype.kind == "b":
        raise TypeError("nodata of bools: every value of theirs is data; convert to uint8")
    if not is_float(dtype):
        info = np.iinfo(dtype)
        if not info.min <= mark <= info.max or int(mark) != mark:  # a NaN is not between them
            raise ValueError(f"nodata={shown(mark)}: expected an integer that {dtype} can hold")
        if operator == "mean" and dtype.itemsize == 8:
            raise TypeError(
                f"nodata={mark} in a mean of {dtype}: expected at most 32 bits, or floats"
            )
        return
    try:
        with np.errstate(over="ignore"):
            lost = bool(np.isinf(dtype.type(mark))) and not math.isinf(mark)
    except OverflowError:
        lost = True
    if lost:
        raise ValueError(f"nodata={shown(mark)}: expected a number that {dtype} can hold")


def pooled(operator: str, slab: Array, regions: tuple[Region, ...], mark: Number) -> Array:
    """The values of windows over the cells that are not marked."""
    missing = np.isnan(slab) if math.isnan(mark) else slab == slab.dtype.type(mark)
    if not missing.any():
        return _over(slab, regions, _plain(operator))
    if operator in ("mode", "sparse-mode"):
        return _mode(operator, slab, regions, missing, int(mark))
    if operator == "mean":
        wide = np.where(missing, 0, slab).astype(np.float64)
        count = _over((~missing).astype(np.uint8), regions, SUM)
        value = _over(wide, regions, SUM) / np.maximum(count, 1)
        if not is_float(slab.dtype):
            value = np.rint(value)
        empty = count == 0
    else:
        lowest, reduction = (_least, Max()) if operator == "max" else (_largest, Min())
        value = _over(np.where(missing, lowest(slab.dtype), slab), regions, reduction)
        empty = ~_over(~missing, regions, Max())
    result: Array = value.astype(slab.dtype)
    result[empty] = mark
    return result


def _over(x: Array, regions: tuple[Region, ...], reduction: Reduction) -> Array:
    result: Array = dispatch.forward(Pool(regions, reduction), np.ascontiguousarray(x))
    return result


def _plain(operator: str) -> Reduction:
    from lunette.scale.operators import REDUCTIONS  # which knows this file

    return REDUCTIONS[operator]


def _least(dtype: np.dtype[Any]) -> Any:
    return dtype.type(-np.inf) if is_float(dtype) else np.iinfo(dtype).min


def _largest(dtype: np.dtype[Any]) -> Any:
    return dtype.type(np.inf) if is_float(dtype) else np.iinfo(dtype).max


def _mode(
    operator: str, slab: Array, regions: tuple[Region, ...], missing: Array, mark: int
) -> Array:
    """Numbers are moved up, in their order, so that 0 stands for what is missing and has no vote."""
    unsigned = np.dtype(f"u{slab.dtype.itemsize}")
    flip = unsigned.type(0)
    if slab.dtype.kind == "i":
        flip = unsigned.type(1 << (8 * slab.dtype.itemsize - 1))
    if operator == "sparse-mode":
        missing = missing | (slab == 0)
    place = unsigned.type(np.asarray(mark, slab.dtype).view(unsigned) ^ flip)
    moved = np.ascontiguousarray(slab).view(unsigned) ^ flip
    moved = np.where(moved < place, moved + unsigned.type(1), moved)
    moved[missing] = 0
    if operator == "sparse-mode":  # a window of zeros alone stays one of zeros
        found = _over(moved, regions, Mode(sparse=True))
        zeros = _over(slab == 0, regions, Max())
    else:
        found, zeros = _over(moved, regions, Mode(sparse=True)), None
    result: Array = np.where(found <= place, found - unsigned.type(1), found) ^ flip
    result[found == 0] = place ^ flip
    result = result.view(slab.dtype)
    if zeros is not None and mark != 0:
        result[(found == 0) & zeros] = 0
    return result
