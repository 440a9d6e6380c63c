"""Neuroglancer's precomputed volumes, written: raw chunks that browsers load, and the file that tells of them.

A chunk is a file named by the voxels that it holds, `0-64_0-64_0-64` for x, y and z, cut at the edge of the
volume: x fastest, then y, z and channels, little-endian, which is the C order of `czyx`.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from lunette.scale.containers import container_of
from lunette.scale.errors import ScaleError

__all__ = ["DTYPES", "check", "info", "read", "write"]

Array = np.ndarray[Any, Any]
Ranges = tuple[tuple[int, int], ...]

DTYPES = {f"{k}{n}" for k in ("uint", "int") for n in (8, 16, 32, 64)} | {"float32"}

NANOMETERS = {
    "meter": 1e9,
    "centimeter": 1e7,
    "millimeter": 1e6,
    "micrometer": 1e3,
    "nanometer": 1.0,
    "picometer": 1e-3,
    "angstrom": 0.1,
}


def check(letters: str, names: tuple[str, ...], dtype: str, multiscale: bool) -> None:
    """Refuse what such a volume cannot hold."""
    if not multiscale:
        raise ScaleError("a precomputed volume is written by `pyramid` alone; write .zarr or .npy")
    if not set("yx") <= set(letters) or not set(letters) <= set("czyx"):
        raise ScaleError(
            f"a precomputed volume holds x, y, z and channels; IN has axes {','.join(names)}: give --axes, "
            "or write .zarr"
        )
    if np.dtype(dtype).name not in DTYPES:
        raise ScaleError(
            f"a precomputed volume holds integers and float32; IN has dtype {np.dtype(dtype)}"
        )


def _key(ranges: Ranges, channels: bool) -> str:
    space = ranges[channels:]
    return "_".join(f"{lo}-{hi}" for lo, hi in [*reversed(space), *[(0, 1)] * (3 - len(space))])


def _pieces(ranges: Ranges, chunks: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """The chunks that ranges touch, each by the cells that it holds."""
    grids = [range(lo // c, -(-hi // c)) for (lo, hi), c in zip(ranges, chunks, strict=True)]
    for index in product(*grids):
        yield tuple(
            (i * c, min((i + 1) * c, n)) for i, c, n in zip(index, chunks, shape, strict=True)
        )


def write(level: Any, ranges: Ranges, block: Array) -> None:
    """Whole chunks of a level; each appears whole or not at all."""
    stored = np.dtype(level.dtype).newbyteorder("<")
    container: Any = container_of(level.path)
    for piece in _pieces(ranges, level.chunks, level.shape):
        place = tuple(
            slice(lo - first, hi - first)
            for (lo, hi), (first, _) in zip(piece, ranges, strict=True)
        )
        data: Any = np.ascontiguousarray(block[place], stored)
        container.write(_key(piece, level.letters.startswith("c")), memoryview(data).cast("B"))


def read(level: Any, ranges: Ranges) -> Array:
    """The cells of these ranges of a level that was written."""
    stored = np.dtype(level.dtype).newbyteorder("<")
    container = container_of(level.path)
    out = np.empty([hi - lo for lo, hi in ranges], level.dtype)
    for piece in _pieces(ranges, level.chunks, level.shape):
        shape = [hi - lo for lo, hi in piece]
        size = prod(shape) * stored.itemsize
        key = _key(piece, level.letters.startswith("c"))
        data = container.read(key, None, size)
        if data is None or len(data) != size:
            raise ScaleError(f"cannot read chunk {key} of {level.path}: expected {size} bytes")
        block = np.frombuffer(data, stored).reshape(shape)
        cut, target = [], []
        for (lo, hi), (a, b) in zip(piece, ranges, strict=True):
            first, last = max(lo, a), min(hi, b)
            cut.append(slice(first - lo, last - lo))
            target.append(slice(first - a, last - a))
        out[tuple(target)] = block[tuple(cut)]
    return out


def info(job: Any, scales: list[tuple[tuple[float, ...], tuple[float, ...]]]) -> dict[str, Any]:
    """What tells a reader of the levels. Sizes of unknown unit are taken for nanometers."""
    source = job.source
    channels = source.axes.startswith("c")
    nanometers = [NANOMETERS.get(u or "", 1.0) for u in source.units]
    rows = []
    for number, (level, (scale, _)) in enumerate(zip([job.base, *job.levels], scales, strict=True)):
        sizes = [s * n for s, n in zip(scale, nanometers, strict=True)][channels:]
        flat = 3 - len(sizes)
        rows.append(
            {
                "key": str(number),
                "size": [*reversed(level.shape[channels:]), *[1] * flat],
                "resolution": [*map(abs, reversed(sizes)), *[1.0] * flat],
                "voxel_offset": [0, 0, 0],
                "chunk_sizes": [[*reversed(level.chunks[channels:]), *[1] * flat]],
                "encoding": "raw",
            }
        )
    labels = job.operator in ("mode", "sparse-mode") or source.kept.labels
    return {
        "@type": "neuroglancer_multiscale_volume",
        "type": "segmentation" if labels and np.dtype(source.dtype).kind in "iu" else "image",
        "data_type": np.dtype(source.dtype).name,
        "num_channels": source.shape[0] if channels else 1,
        "scales": rows,
    }
