"""What the commands do to a slab: an op of the library in the array's own dtype, or plain subsampling."""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette import dispatch
from lunette.ops.base import is_float
from lunette.ops.pooling import Pool
from lunette.reductions import Max, Min, Mode, Reduction, RoundedMean
from lunette.regions import Region
from lunette.scale import missing

__all__ = ["OPERATORS", "apply", "check_dtype"]

Array = np.ndarray[Any, Any]

REDUCTIONS: dict[str, Reduction] = {
    "mean": RoundedMean(),
    "max": Max(),
    "min": Min(),
    "mode": Mode(),
    "sparse-mode": Mode(sparse=True),
}

OPERATORS = (*REDUCTIONS, "stride")


def check_dtype(operator: str, dtype: np.dtype[Any]) -> None:
    """Refuse a dtype that the operator does not offer."""
    if dtype.kind not in "iub" and not is_float(dtype):
        raise TypeError(
            f"dtype {dtype}: expected an integer type, bool, float16, float32 or float64"
        )
    if operator == "mean" and dtype.kind == "b":
        raise TypeError("dtype bool has no mean; use mode, max, min or stride, or convert to uint8")
    if operator in ("mode", "sparse-mode") and is_float(dtype):
        raise TypeError(
            f"dtype {dtype} has no mode, which counts equal values; use mean, max or min"
        )


def apply(
    operator: str, slab: Array, parts: tuple[Region, ...], nodata: float | int | None = None
) -> Array:
    """The operator's outputs of these parts, one part per axis, over the slab that they read.

    Cells that equal `nodata`, which may be NaN, have no part in them.
    """
    if operator == "stride":
        index = []
        for part, n in zip(parts, slab.shape, strict=True):
            starts = [part.window(n, i).start for i in range(part.out_length(n))]
            step = starts[1] - starts[0] if len(starts) > 1 else 1
            index.append(slice(starts[0], starts[-1] + 1, step))
        return np.ascontiguousarray(slab[tuple(index)])
    if nodata is not None:
        return missing.pooled(operator, slab, parts, nodata)
    result: Array = dispatch.forward(Pool(parts, REDUCTIONS[operator]), slab)
    return result
