"""The verbs over Dask arrays: every chunk of the result is one task that reads just its slab."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product
from math import isnan
from operator import getitem
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import Task, TaskRef
from dask.base import tokenize
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from lunette import dispatch
from lunette.adapters.slabs import Clipped, Reading, Span, bounds_of, cut_outputs, spans
from lunette.ops.base import Op
from lunette.ops.pooling import Pool, Pooling
from lunette.reductions import Max, Mean, Reduction
from lunette.regions import Region

__all__ = ["forward", "forward_with_indices", "jvp", "vjp"]

Chunks = tuple[tuple[int, ...], ...]


# -- the verbs --


def forward(
    op: Op, operands: tuple[Any, ...], backend: str | None = None, chunks: Any = None
) -> Any:
    """The op's value, lazy. `chunks` of the result are aligned to the input's, or as asked."""
    arrays = _checked(op, operands, backend)
    if not isinstance(op, Pooling):
        return _convolution().forward(op, arrays, backend, chunks)
    return _pool(op, "forward", arrays, backend, chunks)


def forward_with_indices(
    op: Op, operands: tuple[Any, ...], backend: str | None = None, chunks: Any = None
) -> Any:
    """A max's value and each winner's flat position in the pooled axes of the whole array, lazy."""
    (x,) = _checked(op, operands, backend)
    if not isinstance(op, Pooling) or not isinstance(op.reduction, Max):
        raise TypeError(f"{op!r}: only a max has indices")
    pairs = _pool(op, "forward_with_indices", (x,), backend, chunks)
    return _item(pairs, 0, x.dtype), _item(pairs, 1, np.dtype(np.int64))


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
        dask_array(t, f"tangent of {n}")
        for n, t in zip(dispatch.names(op, tangents), tangents, strict=True)
    )
    op.check_tangents(*_signature(arrays), *_signature(directions))
    if not isinstance(op, Pooling):
        return _convolution().jvp(op, arrays, directions, backend, chunks)
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
    if not isinstance(op, Pooling):
        gradients: tuple[Any, ...] = _convolution().vjp(op, arrays, gradient, backend)
        return gradients
    return (_pool_gradient(op, arrays[0], gradient, backend),)


def _convolution() -> Any:
    from lunette.adapters import dask_convolution

    return dask_convolution


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
    places = np.unravel_index(np.where(inside, indices, 0), slab)
    moved = [p + region.slab_range[0] for p, region in zip(places, regions, strict=True)]
    shape = [region.length for region in regions]
    flat = np.zeros_like(indices)
    for place, n in zip(moved, shape, strict=True):
        flat = flat * n + place
    return np.where(inside, flat, -1)


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


# -- operands --


class Operand:
    """A Dask array and, for each axis, the range that each index of the tasks reads."""

    def __init__(self, array: Any, ranges: list[list[tuple[int, int]]]) -> None:
        self.array = array
        self.axes = [spans(c, r) for c, r in zip(array.chunks, ranges, strict=True)]
        self.key, self.source = _source(array)
        self.references: dict[tuple[int, ...], TaskRef] = {}

    def take(self, index: tuple[int, ...]) -> tuple[Reading, list[TaskRef]]:
        """How the task of this index reads the operand, and the references it needs."""
        axes: tuple[Span, ...] = tuple(a[i] for a, i in zip(self.axes, index, strict=False))
        reading = Reading(axes, self.source)
        if self.source is not None:
            return reading, [TaskRef(self.key)]
        return reading, list(map(self._reference, reading.chunk_indices))

    def _reference(self, chunk: tuple[int, ...]) -> TaskRef:
        """One object per chunk, however many tasks read it."""
        reference = self.references.get(chunk)
        if reference is None:
            reference = self.references[chunk] = TaskRef((self.array.name, *chunk))
        return reference


class Whole:
    """An operand that every task reads from end to end."""

    def __init__(self, array: Any) -> None:
        self.array = array.rechunk(-1)
        self.reading = Reading(tuple(spans(c, [(0, sum(c))])[0] for c in self.array.chunks), None)
        self.references = [TaskRef((self.array.name, *(0,) * array.ndim))]

    def take(self, index: tuple[int, ...]) -> tuple[Reading, list[TaskRef]]:
        """The one chunk, for any index."""
        return self.reading, self.references


def _source(array: Any) -> tuple[Any, dict[str, Any] | None]:
    """The store beneath an array made by `from_array` or `from_zarr`, and how to read it.

    A task then reads its slab from the store, and nothing waits in memory for its neighbours.
    """
    layer = array.dask.layers.get(array.name)
    key = f"original-{array.name}"
    if not isinstance(layer, Blockwise) or key not in array.dask.layers:
        return None, None
    if getattr(layer.task, "func", None) is not da.core.getter or layer.new_axes:
        return None, None
    return key, dict(layer.task.kwargs)


def dask_array(x: Any, name: str) -> Any:
    """`x` as a Dask array with known chunks; NumPy's become one chunk."""
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; fill the masked cells first")
    array = x if isinstance(x, da.Array) else da.from_array(np.asarray(x), chunks=-1)
    for axis, chunks in enumerate(array.chunks):
        if any(isinstance(c, float) and isnan(c) for c in chunks):
            raise ValueError(
                f"{name} has chunks of unknown size on axis {axis}: windows need every size; "
                f"call {name}.compute_chunk_sizes() first"
            )
    return array


def _checked(op: Op, operands: tuple[Any, ...], backend: str | None) -> tuple[Any, ...]:
    arrays = tuple(
        dask_array(x, name) for x, name in zip(operands, dispatch.names(op, operands), strict=True)
    )
    dispatch.check_backend(backend)
    op.check_operands(*_signature(arrays))
    return arrays


def _signature(arrays: tuple[Any, ...]) -> tuple[Any, Any]:
    return tuple(a.shape for a in arrays), tuple(np.dtype(a.dtype) for a in arrays)


def ranges_of(chunks: tuple[int, ...]) -> list[tuple[int, int]]:
    """The positions of each chunk of an axis."""
    edges = bounds_of(chunks)
    return list(pairwise(edges))


# -- the graph --


def build(
    name: str,
    chunks: Chunks,
    dtype: Any,
    operands: Sequence[Operand | Whole],
    task: Callable[..., Any],
    arguments: Callable[[tuple[int, ...]], tuple[Any, ...]],
    numblocks: tuple[int, ...],
    token: Any,
) -> Any:
    """The array of `task(*arguments(index), readings, *blocks)` over all indices of chunks."""
    arrays = [o.array for o in operands]
    name = f"{name}-{tokenize(token, chunks, [a.name for a in arrays])}"
    rank = len(chunks)
    tasks = {}
    for index in product(*map(range, numblocks)):
        taken = [o.take(index) for o in operands]
        readings = tuple(reading for reading, _ in taken)
        references = [r for _, refs in taken for r in refs]
        key = (name, *index[:rank])
        tasks[key] = Task(key, task, *arguments(index), readings, *references)
    return collection(name, tasks, arrays, chunks, dtype)


def collection(name: str, tasks: Any, arrays: list[Any], chunks: Chunks, dtype: Any) -> Any:
    """A Dask array of these tasks, after those of `arrays`."""
    layer = MaterializedLayer(tasks)
    graph = HighLevelGraph.from_collections(name, layer, dependencies=arrays)
    meta = np.empty_like(arrays[0]._meta, shape=(0,) * len(chunks), dtype=dtype)
    return da.Array(graph, name, chunks, meta=meta)


def gather(readings: tuple[Reading, ...], blocks: Sequence[Any]) -> list[Any]:
    """The slab of every operand of a task."""
    slabs, used = [], 0
    for reading in readings:
        slabs.append(reading.array(blocks[used : used + reading.count]))
        used += reading.count
    return slabs


def _item(pairs: Any, item: int, dtype: Any) -> Any:
    """One of the two results of each task."""
    name = f"{pairs.name}-{item}"
    tasks = {
        (name, *index): Task((name, *index), getitem, TaskRef((pairs.name, *index)), item)
        for index in product(*map(range, pairs.numblocks))
    }
    return collection(name, tasks, [pairs], pairs.chunks, dtype)


def on_host(function: Callable[..., Any], *arguments: Any) -> Any:
    """Blocks of a NumPy-like library are pooled on the host and given back as they came."""
    *settings, slabs = arguments
    foreign = next((s for s in slabs if not isinstance(s, (np.ndarray, np.generic))), None)
    if foreign is None:
        return function(*settings, slabs)
    hosted = [s.get() if hasattr(s, "get") else np.asarray(s) for s in slabs]
    result = function(*settings, hosted)
    if isinstance(result, tuple):
        return tuple(np.asarray(r, like=foreign) for r in result)
    return np.asarray(result, like=foreign)
