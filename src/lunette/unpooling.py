"""What `max_unpool` takes: the checks that every library's arrays share."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lunette.inputs import array
from lunette.ops.base import Shape, kind_of

__all__ = ["check_indices", "check_operands", "checked"]

Array = np.ndarray[Any, Any]


def checked(values: Any, indices: Any, pooled: Shape) -> tuple[Array, Array]:
    """NumPy's values and their indices, as int64, once all is right about them."""
    values, indices = array(values, "values"), array(indices, "indices")
    check_operands((values.shape, values.dtype), (indices.shape, indices.dtype), pooled)
    check_indices(indices, pooled)
    return values, indices.astype(np.int64, copy=False)


def check_operands(
    values: tuple[Shape, np.dtype[Any]], indices: tuple[Shape, np.dtype[Any]], pooled: Shape
) -> None:
    """Refuse shapes and dtypes that do not go together."""
    (shape, dtype), (indices_shape, indices_dtype) = values, indices
    kind_of(dtype, "values")
    if indices_dtype.kind not in "iu":
        raise TypeError(f"indices have dtype {indices_dtype}; expected an integer type, as int64")
    if indices_shape != shape:
        raise ValueError(f"indices have shape {indices_shape}; expected the values' {shape}")
    if len(shape) < len(pooled):
        raise ValueError(
            f"output_size={pooled} names {len(pooled)} axes; values of shape {shape} have {len(shape)}"
        )


def check_indices(indices: Any, pooled: Shape) -> None:
    """Refuse indices that are no positions in the pooled axes."""
    cells = prod(pooled)
    if len(indices.reshape(-1)) and not (indices.min() >= -1 and indices.max() < cells):
        worst = int(indices.max() if indices.max() >= cells else indices.min())
        raise ValueError(
            f"indices contain {worst}; expected −1 … {cells - 1}, positions in {pooled}"
        )
