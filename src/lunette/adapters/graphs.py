"""Dask arrays of tasks: one task for each chunk of the result, with what it reads of its operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product
from math import isnan
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import Task, TaskRef
from dask.base import is_dask_collection, tokenize
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from lunette import inputs
from lunette.adapters.slabs import Reading, Span, bounds_of, spans

__all__ = [
    "Operand",
    "Whole",
    "build",
    "collection",
    "dask_array",
    "gather",
    "inputs_of",
    "on_host",
    "ranges_of",
]

Chunks = tuple[tuple[int, ...], ...]


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
    if isinstance(x, da.Array):
        inputs.check_plain(x._meta, name)
        array = x
    elif is_dask_collection(x):
        raise TypeError(f"{name} is a {type(x).__name__}; expected a Dask array")
    else:
        array = da.from_array(inputs.array(x, name), chunks=-1)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    for axis, chunks in enumerate(array.chunks):
        if any(isinstance(c, float) and isnan(c) for c in chunks):
            raise ValueError(
                f"{name} has chunks of unknown size on axis {axis}: windows need every size; "
                f"call {name}.compute_chunk_sizes() first"
            )
    return array


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
        readings, references = inputs_of(operands, index)
        key = (name, *index[:rank])
        tasks[key] = Task(key, task, *arguments(index), readings, *references)
    return collection(name, tasks, arrays, chunks, dtype)


def inputs_of(
    operands: Sequence[Operand | Whole], index: tuple[int, ...]
) -> tuple[tuple[Reading, ...], list[TaskRef]]:
    """How the task of this index reads its operands, and the references of all of them."""
    taken = [o.take(index) for o in operands]
    return tuple(reading for reading, _ in taken), [r for _, refs in taken for r in refs]


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
