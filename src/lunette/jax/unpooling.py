"""Max unpooling of JAX arrays, differentiable in its values at every order."""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lunette.unpooling import check_indices, check_operands

__all__ = ["unpool"]


def unpool(values: Any, indices: Any, pooled: tuple[int, ...]) -> Any:
    """Zeros of `pooled` with each value at its index, the last of equals.

    A program that is traced shows no numbers: there an index that is no position goes nowhere, as −1 does.
    """
    values, indices = jnp.asarray(values), jnp.asarray(indices)
    check_operands(
        (values.shape, np.dtype(values.dtype)), (indices.shape, np.dtype(indices.dtype)), pooled
    )
    if not isinstance(indices, jax.core.Tracer):
        check_indices(np.asarray(indices).astype(np.int64), pooled)
    batch, cells = values.shape[: values.ndim - len(pooled)], prod(pooled)
    items, each = prod(batch), prod(values.shape[values.ndim - len(pooled) :])
    flat = values.reshape(items, each)
    right = (indices >= 0) & (indices < cells)
    places = jnp.where(right, indices, cells).astype(np.int32).reshape(items, each)
    rows = jnp.arange(items)[:, None]
    nobody = jnp.full((items, cells + 1), -1, np.int32)
    last = nobody.at[rows, places].max(jnp.arange(each, dtype=np.int32)[None])[:, :cells]
    found = jnp.take_along_axis(flat, jnp.maximum(last, 0), axis=1) if each else flat
    found = jnp.where(last < 0, jnp.zeros((), values.dtype), found)
    return found.reshape(*batch, *pooled)
