"""The mode of every window of an integer array: which machine code serves it, and its tables."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lunette.kernels import threads
from lunette.kernels.cpu.integers.pairs import paired
from lunette.kernels.cpu.jit.cache import Kernels
from lunette.ops.pooling import Pooling
from lunette.reductions import Mode

__all__ = ["values"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

kernels = Kernels("integers.mode_kernels")


def values(op: Pooling, x: Array) -> Array:
    """The most frequent value of each window, with every pooled axis kept."""
    reduction = op.reduction
    assert isinstance(reduction, Mode)
    x = np.ascontiguousarray(x)
    batch, pooled = x.shape[: x.ndim - op.rank], x.shape[x.ndim - op.rank :]
    kept = tuple(r.out_length(n) for r, n in zip(op.regions, pooled, strict=True))
    out = np.empty(batch + kept, x.dtype)
    if not out.size:
        return out
    dtype = "uint8" if x.dtype.kind == "b" else x.dtype.name
    settings = dtype, reduction.ties == "first", reduction.sparse
    at_x, at_out = x.__array_interface__["data"][0], out.__array_interface__["data"][0]
    halved = paired(op.regions, pooled)
    if halved is not None:
        (nz, ny, nx), (fz, fy) = halved
        kernel = kernels.pair_kernel(*settings)
        table = np.array([nz, ny, nx, fz, fy], np.int64)
        rows = out.size // -(-nx // 2)
        at = table.__array_interface__["data"][0]
        threads.run(
            lambda first, last: kernel(at_x, at_out, at, x.itemsize, 0, 0, first, last),
            rows,
            held=(x, out, table),
        )
        return out
    kernel = kernels.window_kernel(*settings)
    table, room = _table(op.regions, pooled)
    at = table.__array_interface__["data"][0]
    words = 4 * op.rank + -(-2 * room * x.itemsize // 8)

    def task(first: int, last: int) -> None:
        state = np.empty(words, np.int64)
        at_state = state.__array_interface__["data"][0]
        kernel(at_x, at_out, at, x.itemsize, at_state, room, first, last)

    threads.run(task, out.size, held=(x, out, table))
    return out


@lru_cache(maxsize=64)
def _table(regions: Any, pooled: Shape) -> tuple[Array, int]:
    """The table of `window_kernel`, and the cells of the largest window."""
    rank = len(regions)
    lengths = [r.out_length(n) for r, n in zip(regions, pooled, strict=True)]
    head = [rank, prod(lengths), prod(pooled)]
    at, tables, room = 3 + 4 * rank, [], 1
    for axis, (region, n, m) in enumerate(zip(regions, pooled, lengths, strict=True)):
        start, members, step, _ = region.cells(n)
        windows = np.stack([start, members, step], axis=1).astype(np.int64)
        room *= max(1, int(members.max()))
        head += [n, m, prod(pooled[axis + 1 :]), at]
        tables.append(windows.ravel())
        at += windows.size
    return np.concatenate([np.array(head, np.int64), *tables]), room
