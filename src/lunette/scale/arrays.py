"""Pyramids in Python: of arrays, whose levels come back, and of files, as the command makes them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from lunette import dispatch
from lunette.arguments import choice, flag, shown, size
from lunette.inputs import array, check_plain
from lunette.ops.pooling import Pool
from lunette.scale import axes as axes_
from lunette.scale import missing
from lunette.scale.arguments import Options
from lunette.scale.errors import ScaleError
from lunette.scale.levels import factors_of, steps_of
from lunette.scale.operators import OPERATORS, REDUCTIONS, apply, check_dtype
from lunette.scale.plan import Step
from lunette.scale.stores import Source

__all__ = ["pyramid"]

CHUNK = {1: 1 << 20, 2: 1024, 3: 128}
"""Cells along each axis of space below which no further level is made, unless so many are asked for."""


def pyramid(
    x: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    op: str | None = None,
    levels: int | None = None,
    factors: Any = None,
    axes: str = "",
    nodata: float | int | None = None,
    skipna: bool = False,
    in_place: bool = False,
    progress: Callable[[int, int, int], None] | None = None,
    **options: Any,
) -> Any:
    """An image at smaller and smaller scales, each made from the one before.

    Parameters
    ----------
    x : array or path-like
        An array (NumPy, Dask, a CPU tensor, a DataArray or a Dataset of xarray), or a path or URL of a
        file or a Zarr store.
    out : path-like, optional
        Of a path: where to write; the suffix says what. Arrays have none: their levels are returned.
    op : {"mean", "max", "min", "mode", "sparse-mode", "stride"}, optional
        What happens to the cells of a block. Default: `"mean"`; integers stay integers, rounded half to even.
    levels : int, optional
        How many. Default: until the longest axis fits into a chunk.
    factors : int, dict of str to int, or list of them, optional
        A number, or a dict by axis such as `{"z": 1, "y": 2, "x": 2}`, or a list of them, level by
        level. Default: axes of space are halved, those with the smallest cells first.
    axes : str, optional
        Letters or names with commas, in place of those that the array has: `"czyx"`, `"time,lat,lon"`.
    nodata : number, optional
        A number whose cells have no part in a value.
    skipna : bool, default False
        Whether NaN has no part in one.
    in_place : bool, default False
        Of a path: add levels to the multiscale image that is there.
    progress : callable, optional
        Of a path: called after each tile with the bytes it read and wrote, and those to read in all.
    **options
        Of a path: what `lunette pyramid --help` lists: `memory` (bytes), `chunks`, `shards` (tuples),
        `codec`, `format`, `threads`, `scheduler`, `resume`, `force`, `array`, `series`, `link`.

    Returns
    -------
    list or Outcome
        Of an array `[x, level 1, level 2, …]`; of a path what was done: shapes, dtype, seconds.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value and the remedy; of files, before anything is written.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> [level.shape for level in ln.pyramid(np.zeros((64, 64), np.uint8), levels=2)]
    [(64, 64), (32, 32), (16, 16)]
    """
    if op is not None:
        choice(op, "op", OPERATORS)
    if levels is not None:
        levels = size(levels, "levels", 1)
    if not isinstance(axes, str):
        raise TypeError(f"axes={shown(axes)}: expected letters or names with commas, such as 'zyx'")
    flag(in_place, "in_place")
    _check_marks(nodata, skipna)
    if isinstance(x, (str, os.PathLike)):
        try:
            return _of_file(
                x,
                out,
                op,
                levels,
                factors,
                in_place=in_place,
                progress=progress,
                axes=axes,
                nodata=nodata,
                skipna=skipna,
                options=options,
            )
        except ScaleError as error:
            raise ValueError(str(error).replace("--", "")) from None
    if out is not None or in_place or progress is not None or options:
        given = "out" if out is not None else next(iter(options), "in_place or progress")
        raise TypeError(
            f"{given}: levels of an array are returned; to write them, give the path of a file as x"
        )
    try:
        return _of_array(x, op or "mean", levels, factors, axes, nodata, skipna)
    except ScaleError as error:
        raise ValueError(str(error).replace("--", "")) from None


def _of_file(
    place: Any,
    out: Any,
    op: str | None,
    levels: int | None,
    factors: Any,
    *,
    in_place: bool,
    progress: Any,
    axes: str,
    nodata: Any,
    skipna: bool,
    options: dict[str, Any],
) -> Any:
    from lunette.scale import work

    known = set(Options.__dataclass_fields__) - {"nodata", "skipna", "axes"}
    if unknown := sorted(set(options) - known):
        raise TypeError(f"{shown(unknown[0])} is no option of a pyramid; expected {sorted(known)}")
    if in_place == (out is not None):
        raise ValueError("expected either out, where to write, or in_place=True")
    chosen = Options(axes=axes, nodata=nodata, skipna=skipna, **options)

    def say(text: str) -> None:
        if text.startswith("warning: "):
            warnings.warn(text.removeprefix("warning: ").replace("--op ", "op="), stacklevel=5)

    try:
        target = None if out is None else os.fspath(out)
    except TypeError:
        raise TypeError(f"out={shown(out)}: expected a path") from None
    return work.pyramid(op, os.fspath(place), target, levels, chosen, progress, factors, say)


def _check_marks(nodata: Any, skipna: Any) -> None:
    flag(skipna, "skipna")
    if nodata is not None and (
        isinstance(nodata, bool) or not isinstance(nodata, (int, float, np.integer, np.floating))
    ):
        raise TypeError(f"nodata={shown(nodata)}: expected a number")


# -- arrays --


def _of_array(
    x: Any, op: str, levels: int | None, factors: Any, axes: str, nodata: Any, skipna: bool
) -> list[Any]:
    if hasattr(x, "data_vars"):
        return _of_dataset(x, op, levels, factors, axes, nodata, skipna)
    if dispatch.adapter_of((x,)) is None:
        x = array(x, "x")
    check_plain(x, "x")
    names = getattr(x, "dims", None)
    rows = _cut(tuple(map(int, x.shape)), names, levels, factors, axes)
    found = [x]
    for step in rows:
        found.append(_level(found[-1], op, step, nodata, skipna))
    return found


def _cut(
    shape: tuple[int, ...], names: Any, levels: int | None, factors: Any, axes: str
) -> tuple[Step, ...]:
    if axes:
        letters, names = axes_.asked(axes, shape)
    elif names is not None:
        names = tuple(map(str, names))
        known = axes_.check_names(names, len(shape), "dims")
        letters = axes_.letters_of(known) if any(known) else axes_.by_number(len(shape))
    else:
        letters = axes_.by_number(len(shape))
        names = tuple(letters)
    if not shape or len(letters) != len(shape) or 0 in shape:
        raise ValueError(f"x has shape {shape}: expected 1 to 5 axes with cells, or axes=")
    rank = len(shape)
    source = Source(
        *("", "", "", shape, "|u1", shape, letters),
        *((1.0,) * rank, (0.0,) * rank, (None,) * rank, tuple(range(rank)), tuple(names)),
    )
    spatial = sum(a in axes_.SPACE for a in letters)
    chunks = (CHUNK[max(1, spatial)],) * rank
    return steps_of(factors_of(source, levels, factors, chunks), shape, "mean")


def _level(x: Any, op: str, step: Step, nodata: Any, skipna: bool) -> Any:
    """The next level; a stride takes the first cell of each window."""
    if op == "stride":
        index = tuple(slice(None, None, r.kernel) for r in step.regions)  # type: ignore[attr-defined]
        return x[index]
    kind = np.dtype(getattr(x, "dtype", None)) if not _is_tensor(x) else None
    if kind is not None:
        check_dtype(op, kind)
    mark = nodata if nodata is not None else None
    if mark is None and skipna and (kind is None or kind.kind == "f"):
        mark = float("nan")
    if mark is None:
        return dispatch.forward(Pool(step.regions, REDUCTIONS[op]), x)
    if kind is None:
        raise TypeError("nodata and skipna: expected a NumPy or Dask array, or one of xarray")
    missing.check(op, kind, mark)
    if hasattr(x, "dims") and hasattr(x, "coords"):
        from lunette.adapters.xarray import labelled

        return labelled(Pool(step.regions, REDUCTIONS[op]), x, _past(x.data, op, step, mark))
    return _past(x, op, step, mark)


def _is_tensor(x: Any) -> bool:
    return type(x).__module__.partition(".")[0] == "torch"


def _past(x: Any, op: str, step: Step, mark: Any) -> Any:
    """Pooled past missing cells; blocks of a Dask array hold whole windows."""
    if isinstance(x, np.ndarray):
        return apply(op, x, step.regions, mark)
    factors = [r.kernel for r in step.regions]  # type: ignore[attr-defined]
    chunks = tuple(tuple(_whole(row, f)) for row, f in zip(x.chunks, factors, strict=True))
    smaller = tuple(tuple(-(-c // f) for c in row) for row, f in zip(chunks, factors, strict=True))
    blocks = x.rechunk(chunks)
    return blocks.map_blocks(
        _block, dtype=x.dtype, chunks=smaller, operator=op, regions=step.regions, mark=mark
    )


def _block(block: Any, operator: str, regions: Any, mark: Any) -> Any:
    return apply(operator, array(block, "x"), regions, mark)


def _whole(row: tuple[int, ...], factor: int) -> list[int]:
    """The same lengths, moved so that every edge but the last lies between windows."""
    edges, total = [0], 0
    for length in row:
        total += length
        edge = total // factor * factor
        if edge > edges[-1]:
            edges.append(edge)
    if edges[-1] != total:
        edges.append(total)
    return [b - a for a, b in pairwise(edges)]


def _of_dataset(
    x: Any, op: str, levels: int | None, factors: Any, axes: str, nodata: Any, skipna: bool
) -> list[Any]:
    """Every variable over the dimensions of space that it has; others are taken over."""
    sizes = {str(d): int(n) for d, n in x.sizes.items()}
    names = tuple(sizes)
    rows = _cut(tuple(sizes.values()), names, levels, factors, axes)
    found = [x]
    for step in rows:
        regions = dict(zip(names, step.regions, strict=True))
        variables = {}
        for name, variable in found[-1].data_vars.items():
            cut = [d for d in variable.dims if regions[str(d)].kernel > 1]  # type: ignore[attr-defined]
            part = Step(tuple(regions[str(d)] for d in variable.dims), variable.shape)
            variables[name] = _level(variable, op, part, nodata, skipna) if cut else variable
        found.append(type(x)(variables, attrs=x.attrs))
    return found
