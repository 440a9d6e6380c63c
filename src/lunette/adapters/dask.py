"""The verbs over Dask arrays: every chunk of the result is one task that reads just its slab."""

from __future__ import annotations

from itertools import pairwise, product
from operator import getitem
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import Task, TaskRef
from dask.base import tokenize

from lunette import dispatch
from lunette.adapters import dask_convolution
from lunette.adapters.graphs import (
    Operand,
    Whole,
    build,
    collection,
    dask_array,
    gather,
    on_host,
    ranges_of,
)
from lunette.adapters.slabs import Clipped, bounds_of, cut_outputs
from lunette.functional import max_unpool
from lunette.inputs import names
from lunette.ops.base import Op
from lunette.ops.convolution import Convolution
from lunette.ops.pooling import Pool, Pooling
from lunette.positions import unravel
from lunette.reductions import Max, Mean, Min, Reduction
from lunette.regions import Region
from lunette.unpooling import check_operands

__all__ = ["forward", "forward_with_indices", "jvp", "unpool", "vjp"]

# -- the verbs --


def forward(
    op: Op, operands: tuple[Any, ...], backend: str | None = None, chunks: Any = None
) -> Any:
    """The op's value, lazy. `chunks` of the result are aligned to the input's, or as asked."""
    arrays = _checked(op, operands, backend)
    if isinstance(op, Convolution):
        return dask_convolution.forward(op, arrays, backend, chunks)
    assert isinstance(op, Pooling)
    return _pool(op, "forward", arrays, backend, chunks)


def forward_with_indices(
    op: Op, operands: tuple[Any, ...], backend: str | None = None, chunks: Any = None
) -> Any:
    """A max's value and each winner's flat position in the pooled axes of the whole array, lazy."""
    arrays = _checked(op, operands, backend)
    if not isinstance(op, Pooling) or not isinstance(op.reduction, (Max, Min)):
        raise TypeError(f"{op!r}: only a max has indices")
    pairs = _pool(op, "forward_with_indices", arrays, backend, chunks)
    return _item(pairs, 0, arrays[0].dtype), _item(pairs, 1, np.dtype(np.int64))


def jvp(
    op: Op,
    operands: tuple[Any, ...],
    tangents: tuple[Any, ...],
    backend: str | None = None,
    chunks: Any = None,
) -> Any:
    """The directional derivative, lazy."""
    arrays = _checked(op, operands, backend)
    directions = tuple(
        dask_array(t, f"tangent of {n}") for n, t in zip(names(op, tangents), tangents, strict=True)
    )
    op.check_tangents(*_signature(arrays), *_signature(directions))
    if isinstance(op, Convolution):
        return dask_convolution.jvp(op, arrays, directions, backend, chunks)
    assert isinstance(op, Pooling)
    if isinstance(op.reduction, Mean):  # linear: its derivative is itself
        return _pool(op, "forward", directions, backend, chunks)
    return _pool(op, "jvp", arrays + directions, backend, chunks)


def vjp(
    op: Op, operands: tuple[Any, ...], grad: Any, backend: str | None = None
) -> tuple[Any, ...]:
    """The gradient in each operand, lazy, in the operand's own chunks."""
    arrays = _checked(op, operands, backend)
    gradient = dask_array(grad, "gradient")
    op.check_gradient(*_signature(arrays), gradient.shape, gradient.dtype)
    if isinstance(op, Convolution):
        return dask_convolution.vjp(op, arrays, gradient, backend)
    assert isinstance(op, Pooling)
    return (_pool_gradient(op, arrays[0], gradient, backend),)


def _checked(op: Op, operands: tuple[Any, ...], backend: str | None) -> tuple[Any, ...]:
    arrays = tuple(
        dask_array(x, name) for x, name in zip(operands, names(op, operands), strict=True)
    )
    dispatch.check_backend(backend)
    op.check_operands(*_signature(arrays))
    return arrays


def _signature(arrays: tuple[Any, ...]) -> tuple[Any, Any]:
    return tuple(a.shape for a in arrays), tuple(np.dtype(a.dtype) for a in arrays)


# -- pooling --


def _pool(op: Pooling, verb: str, arrays: tuple[Any, ...], backend: str | None, chunks: Any) -> Any:
    """One task for each chunk of the result; all operands have one shape."""
    x = arrays[0]
    batch = x.ndim - op.rank
    if chunks is None:
        pooled = tuple(
            cut_outputs(region, c) for region, c in zip(op.regions, x.chunks[batch:], strict=True)
        )
        out_chunks = x.chunks[:batch] + pooled
    else:
        kept = x.shape[:batch] + tuple(
            r.out_length(n) for r, n in zip(op.regions, x.shape[batch:], strict=True)
        )
        out_chunks = da.core.normalize_chunks(chunks, kept, dtype=x.dtype)
    parts: list[list[Any]] = []
    for region, n, cs in zip(op.regions, x.shape[batch:], out_chunks[batch:], strict=True):
        edges = bounds_of(cs)
        parts.append([region.part(n, a, b) for a, b in pairwise(edges)])
    ranges = [ranges_of(c) for c in out_chunks[:batch]]
    ranges += [[p.slab_range for p in axis] for axis in parts]
    operands = [Operand(a, ranges) for a in arrays]
    settings = (verb, op.reduction, op.keepdims, backend)

    def arguments(index: tuple[int, ...]) -> tuple[Any, ...]:
        regions = tuple(axis[i] for axis, i in zip(parts, index[batch:], strict=True))
        return settings, regions

    keys = len(out_chunks) if op.keepdims else batch
    dtype = op.result_dtype(x.dtype)
    return build(
        f"lunette-{verb}",
        out_chunks[:keys],
        dtype,
        operands,
        _pool_task,
        arguments,
        tuple(len(c) for c in out_chunks),
        (repr(op), backend),
    )


def _pool_task(settings: Any, regions: Any, readings: Any, *blocks: Any) -> Any:
    return on_host(_pool_slab, settings, regions, gather(readings, blocks))


def _pool_slab(settings: Any, regions: tuple[Any, ...], slabs: list[Any]) -> Any:
    verb, reduction, keepdims, backend = settings
    result = getattr(dispatch, verb)(Pool(regions, reduction), *slabs, backend=backend)
    if verb == "forward_with_indices":
        value, indices = result
        indices = _whole_indices(indices, slabs[0].shape[-len(regions) :], regions)
        return _reshaped(value, keepdims, regions), _reshaped(indices, keepdims, regions)
    return _reshaped(result, keepdims, regions)


def _reshaped(result: Any, keepdims: bool, regions: tuple[Any, ...]) -> Any:
    return result if keepdims else result.reshape(result.shape[: -len(regions)])


def _whole_indices(indices: Any, slab: tuple[int, ...], regions: tuple[Any, ...]) -> Any:
    """Flat positions in a slab as flat positions in the pooled axes of the whole array."""
    inside = indices >= 0
    places = unravel(np.where(inside, indices, 0), slab)
    moved = [p + region.slab_range[0] for p, region in zip(places, regions, strict=True)]
    shape = [region.length for region in regions]
    flat = np.zeros_like(indices)
    for place, n in zip(moved, shape, strict=True):
        flat = flat * n + place
    return np.where(inside, flat, -1)


# -- unpooling --


def unpool(values: Any, indices: Any, pooled: tuple[int, ...]) -> Any:
    """Each value at its index, lazy: a task for each chunk of the batch, with its pooled axes whole."""
    values, indices = dask_array(values, "values"), dask_array(indices, "indices")
    check_operands(
        (values.shape, np.dtype(values.dtype)), (indices.shape, np.dtype(indices.dtype)), pooled
    )
    batch = values.ndim - len(pooled)
    values = values.rechunk(values.chunks[:batch] + values.shape[batch:])
    indices = indices.rechunk(values.chunks)
    return da.map_blocks(
        _unpool_task,
        values,
        indices,
        pooled=pooled,
        chunks=values.chunks[:batch] + tuple((n,) for n in pooled),
        dtype=values.dtype,
        meta=values._meta,
        name=f"lunette-unpool-{tokenize(values.name, indices.name, pooled)}",
    )


def _unpool_task(values: Any, indices: Any, pooled: tuple[int, ...]) -> Any:
    return on_host(_unpool_slabs, pooled, [values, indices])


def _unpool_slabs(pooled: tuple[int, ...], slabs: list[Any]) -> Any:
    values, indices = slabs
    return max_unpool(values, indices, pooled)


# -- the gradient of pooling --


def _pool_gradient(op: Pooling, x: Any, gradient: Any, backend: str | None) -> Any:
    """One task for each chunk of x: the outputs that read it, and the slab that those read.

    They send their shares in the order in which they would for the whole array.
    """
    batch = x.ndim - op.rank
    mean = isinstance(op.reduction, Mean)
    parts: list[list[Any]] = []
    for region, n, chunks in zip(op.regions, x.shape[batch:], x.chunks[batch:], strict=True):
        parts.append(
            [_gradient_part(region, n, lo, hi, op.reduction) for lo, hi in ranges_of(chunks)]
        )
    batch_ranges = [ranges_of(c) for c in x.chunks[:batch]]
    outputs = [[p[1] for p in axis] for axis in parts]
    slabs = [[p[2] for p in axis] for axis in parts]
    operands: list[Operand | Whole] = [] if mean else [Operand(x, batch_ranges + slabs)]
    operands.append(Operand(gradient, batch_ranges + (outputs if op.keepdims else [])))
    reduction: Reduction = op.reduction
    if isinstance(reduction, Mean):
        reduction = Mean(divisor_override=reduction.divisor_override)
    settings = (reduction, op.keepdims, backend, np.dtype(x.dtype))

    def arguments(index: tuple[int, ...]) -> tuple[Any, ...]:
        regions = tuple(axis[i][0] for axis, i in zip(parts, index[batch:], strict=True))
        kept = tuple(axis[i][3] for axis, i in zip(parts, index[batch:], strict=True))
        shape = tuple(c[i] for c, i in zip(x.chunks, index, strict=True))
        return settings, regions, (kept, shape)

    return build(
        "lunette-vjp",
        x.chunks,
        x.dtype,
        operands,
        _gradient_task,
        arguments,
        x.numblocks,
        (repr(op), backend, x.name),
    )


def _gradient_part(region: Region, n: int, lo: int, hi: int, reduction: Reduction) -> Any:
    """(region, its outputs, its slab, the chunk within the slab) for the chunk `[lo, hi)`.

    The region is None where no output reads the chunk.
    """
    readers = region.readers(n, lo, hi)
    if not len(readers):
        return None, (0, 0), (0, 0), (0, 0)
    first, last = readers[0], readers[-1] + 1
    if isinstance(reduction, Mean):
        real = not reduction.count_include_pad
        clipped = Clipped(region, n, (first, last), (lo, hi), real)
        return clipped, (first, last), (lo, hi), (0, hi - lo)
    part = region.part(n, first, last)
    return part, (first, last), part.slab_range, (lo - part.slab_range[0], hi - part.slab_range[0])


def _gradient_task(settings: Any, regions: Any, chunk: Any, readings: Any, *blocks: Any) -> Any:
    return on_host(_gradient_of, settings, regions, chunk, gather(readings, blocks))


def _gradient_of(settings: Any, regions: Any, chunk: Any, slabs: list[Any]) -> Any:
    reduction, keepdims, backend, dtype = settings
    kept, shape = chunk
    if None in regions:
        return np.zeros(shape, dtype)
    op = Pool(regions, reduction)
    gy = slabs[-1]
    rank = len(regions)
    if not keepdims:
        gy = gy.reshape(gy.shape + (1,) * rank)
    if isinstance(reduction, Mean):  # its gradient does not depend on x: any x of the shape will do
        x = np.broadcast_to(np.zeros((), dtype), shape)
        return dispatch.vjp(op, x, gy, backend=backend)
    gx = dispatch.vjp(op, slabs[0], gy, backend=backend)
    return _window_of(gx, kept, shape)


def _window_of(gx: Any, kept: tuple[tuple[int, int], ...], shape: tuple[int, ...]) -> Any:
    """The chunk of a gradient over a slab; cells outside the slab were read by nobody: zeros."""
    lengths = gx.shape[-len(kept) :]
    inside = [(max(lo, 0), min(hi, n)) for (lo, hi), n in zip(kept, lengths, strict=True)]
    part = gx[(..., *(slice(lo, hi) for lo, hi in inside))]
    if part.shape == shape:
        return part
    whole: Any = np.zeros(shape, gx.dtype)
    places = (slice(a - lo, b - lo) for (lo, _), (a, b) in zip(kept, inside, strict=True))
    whole[(..., *places)] = part
    return whole


def _item(pairs: Any, item: int, dtype: Any) -> Any:
    """One of the two results of each task."""
    name = f"{pairs.name}-{item}"
    tasks = {
        (name, *index): Task((name, *index), getitem, TaskRef((pairs.name, *index)), item)
        for index in product(*map(range, pairs.numblocks))
    }
    return collection(name, tasks, [pairs], pairs.chunks, dtype)
