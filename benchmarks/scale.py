"""Downsampling a volume of 512×1024×1024 bytes: in memory against peers, and from disk to disk."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from itertools import pairwise, product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.machine import describe
from benchmarks.report import write_section
from benchmarks.timing import once

__all__ = ["main"]

HEADING = "## Larger than memory"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
RESULTS = Path(__file__).parent / "results" / "scale.json"
PACKAGES = ("tensorstore", "tinybrain", "dask", "scikit-image", "zarr")
CHUNK = 128
GOALS = {"tensorstore": 1.0, "tinybrain": 1.0, "dask.array.coarsen": 3.0, "scikit-image": 3.0}
PLAIN = 0.7
PARTS = ["memory", "modes", "disk", "jobs", "graph", "cluster"]


def volume(depth: int) -> Any:
    """A smooth image with noise in the low bits, so that a compressor finds something."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:1024, :1024]
    plane = 100 + 60 * np.sin(x / 37) * np.cos(y / 53)
    noise = rng.integers(0, 8, (1024, 1024))
    planes = (np.roll(plane, 3 * z, 1) + np.roll(noise, 7 * z, 0) for z in range(depth))
    return np.stack([p.astype(np.uint8) for p in planes])


# -- in memory --


def in_memory(x: Any, rounds: int) -> dict[str, Any]:
    """Seconds of 2×2×2 means in turns; every peer has the layout that suits it."""
    import dask.array as da
    import tensorstore
    import tinybrain
    from skimage.transform import downscale_local_mean

    import lunette as ln

    fortran = np.asfortranarray(x)
    down = tensorstore.downsample(tensorstore.array(x), [2, 2, 2], "mean")
    lazy = da.from_array(x, chunks=(CHUNK, 256, 256), name=False)
    coarse = da.coarsen(np.mean, lazy, {0: 2, 1: 2, 2: 2})
    functions: dict[str, Callable[[], Any]] = {
        "copy": x.copy,
        "lunette": lambda: ln.avg_pool(x, (2, 2, 2), dtype="same"),
        "tensorstore": lambda: down.read().result(),
        "tinybrain": lambda: tinybrain.downsample_with_averaging(fortran, (2, 2, 2)),
        "dask.array.coarsen": lambda: coarse.round().astype("u1").compute(),
        "scikit-image": lambda: downscale_local_mean(x, (2, 2, 2)),
    }
    same = bool((functions["lunette"]() == functions["tensorstore"]()).all())
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for round_ in range(rounds):
        for name, function in functions.items():
            slow = name in ("dask.array.coarsen", "scikit-image")
            if not (slow and round_):  # seconds each: once is enough
                seconds[name].append(once(function))
    return {"seconds": {k: median(v) for k, v in seconds.items()}, "same_as_tensorstore": same}


def modes(rounds: int) -> dict[str, Any]:
    """Seconds of 2×2×2 modes of labels in turns, by dtype; tinybrain has its order."""
    import tensorstore
    import tinybrain

    import lunette as ln

    rng = np.random.default_rng(0)
    things = np.repeat(np.repeat(rng.integers(0, 250, (64, 64, 64)), 5, 0), 5, 1)
    found = {}
    for dtype in ("uint8", "uint32", "uint64"):
        x = np.repeat(things, 5, 2)[:256, :256, :256].astype(dtype)
        x *= np.array((1 << (np.dtype(dtype).itemsize * 8 - 8)) | 1, dtype)  # large numbers, too
        x = np.ascontiguousarray(x)
        fortran = np.asfortranarray(x)
        down = tensorstore.downsample(tensorstore.array(x), [2, 2, 2], "mode")
        functions: dict[str, Callable[[], Any]] = {
            "lunette": lambda x=x: ln.mode_pool(x, (2, 2, 2)),
            "tensorstore": lambda down=down: down.read().result(),
            "tinybrain": lambda f=fortran: tinybrain.downsample_segmentation(f, (2, 2, 2)),
        }
        seconds: dict[str, list[float]] = {name: [] for name in functions}
        for function in functions.values():
            function()
        for _ in range(max(rounds, 5)):
            for name, function in functions.items():
                seconds[name].append(once(function))
        found[dtype] = {k: median(v) for k, v in seconds.items()}
    return found


# -- from disk to disk --


def on_disk(x: Any, folder: Path, rounds: int) -> dict[str, Any]:
    """Seconds of `lunette pool` on Zarr, and of reading and writing the same bytes with nothing between."""
    import zarr

    from lunette.scale.work import Options, pool

    found = {}
    for compression in ("none", "zstd"):
        codec = None if compression == "none" else zarr.codecs.ZstdCodec(level=1)
        source = folder / f"{compression}.zarr"
        zarr.create_array(str(source), data=x, chunks=(CHUNK,) * 3, compressors=codec)
        plain, ours = [], []
        for _ in range(rounds + 1):  # the first of each is not counted
            plain.append(once(lambda s=source, c=codec: _copy(s, folder / "plain.zarr", c)))
            start = time.perf_counter()
            options = Options(codec=f"{compression}:1".removesuffix("none:1") or "none", force=True)
            pool("mean", source, folder / "ours.zarr", (2, 2, 2), options=options)
            ours.append(time.perf_counter() - start)
        found[compression] = {"plain": median(plain[1:]), "lunette": median(ours[1:])}
    return found


def jobs(depth: int, rounds: int) -> dict[str, Any]:
    """Whole jobs: see `benchmarks.pyramids`."""
    from benchmarks.pyramids import TOOLS, compare, make_volume

    with tempfile.TemporaryDirectory() as folder:
        make_volume(Path(folder) / "in.zarr", depth)
        return compare(Path(folder) / "in.zarr", Path(folder), rounds, list(TOOLS))


def _copy(source: Path, out: Path, codec: Any) -> None:
    """Read every chunk and write an eighth of the cells, tile by tile on two threads."""
    import zarr

    x = zarr.open(str(source), mode="r")
    shape = tuple(n // 2 for n in x.shape)
    chunks = (CHUNK,) * 3
    y = zarr.create_array(
        str(out), shape=shape, dtype=x.dtype, chunks=chunks, compressors=codec, overwrite=True
    )

    def tile(index: tuple[int, ...]) -> None:
        block = x[tuple(slice(2 * CHUNK * i, 2 * CHUNK * (i + 1)) for i in index)]
        half = tuple(slice(0, n // 2) for n in block.shape)
        y[tuple(slice(CHUNK * i, CHUNK * (i + 1)) for i in index)] = block[half]

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(tile, product(*(range(-(-n // CHUNK)) for n in shape))))


# -- the graph --


def graph() -> dict[str, float]:
    """Microseconds of CPU time to build a task of a graph whose windows reach into neighbouring chunks."""
    import dask.array as da

    import lunette as ln

    x = da.zeros((640, 640, 640), chunks=16, dtype="u1")
    start = time.process_time()
    y = ln.max_pool(x, (3, 3, 3), stride=2, padding=1)
    return {
        "tasks": y.npartitions,
        "us_per_task": (time.process_time() - start) / y.npartitions * 1e6,
    }


class Nowhere:
    """A volume of bytes that nobody reads."""

    dtype, ndim = np.dtype("u1"), 3

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __getitem__(self, index: Any) -> Any:
        raise RuntimeError("a simulated graph is counted, not run")


def simulate(length: int = 46416, chunk: int = 512) -> dict[str, float]:
    """Build the graph of a whole 100 TB volume and count: tasks, bytes that they read and write."""
    import pickle

    import dask.array as da

    import lunette as ln

    op = ln.MaxPool((3, 3, 3), stride=2, padding=1)
    store = Nowhere((length,) * 3)
    x = da.from_array(store, chunks=chunk, meta=np.empty((0,) * 3, "u1"), asarray=True, name=False)
    start = time.process_time()
    y = op(x)
    seconds = time.process_time() - start
    read = 1
    for region, chunks in zip(op.regions, y.chunks, strict=True):
        edges = np.cumsum((0, *chunks)).tolist()
        slabs = [region.slab(length, a, b) for a, b in pairwise(edges)]
        read *= sum(hi - lo for lo, hi in slabs)
    tasks = y.dask.layers[y.name]
    middle = tasks[(y.name, *(n // 2 for n in y.numblocks))]
    return {
        "tasks": len(tasks),
        "build_seconds": seconds,
        "read_tb": read / 1e12,
        "write_tb": float(np.prod(y.shape, dtype=np.int64)) / 1e12,
        "task_bytes": len(pickle.dumps(middle)),
    }


# -- the report --


def markdown(results: dict[str, Any]) -> str:
    """The section of the page."""
    machine, memory, disk = results["machine"], results["memory"]["seconds"], results["disk"]
    versions = ", ".join(f"{name} {v}" for name, v in results["versions"].items())
    shape = "×".join(map(str, results["shape"]))
    ours = memory["lunette"]
    lines = [
        f"Measured on {machine['date']}: {machine['processor']}, {machine['cores']} cores, Python "
        f"{machine['python']}, {versions}. `python -m benchmarks scale` prints this again.",
        "",
        f"The 2×2×2 mean of {shape} uint8 in memory, medians of one run in turns. tinybrain has the "
        "Fortran order that it likes, and cuts halves off where the others round them.",
        "",
        "| | seconds | GB/s of input | lunette is faster by | asked |",
        "|---|---|---|---|---|",
    ]
    size = np.prod(results["shape"]) / 1e9
    for name, seconds in memory.items():
        asked = f"≥ {GOALS[name]:g}" if name in GOALS else ""
        faster = "" if name == "lunette" else f"{seconds / ours:.2f}×"
        lines.append(f"| {name} | {seconds:.3f} | {size / seconds:.2f} | {faster} | {asked} |")
    same = "bit for bit" if results["memory"]["same_as_tensorstore"] else "NOT"
    lines += [
        "",
        f"The result agrees {same} with TensorStore's. `copy` is `ndarray.copy` of the input.",
        "",
        f"From Zarr to Zarr in chunks of {CHUNK}³, files in the page cache: `lunette pool mean` "
        "against reading every chunk and writing as many bytes with the same library on two threads.",
        "",
        "| compression | plain read + write, s | lunette pool, s | speed of plain | asked |",
        "|---|---|---|---|---|",
    ]
    for name, pair in disk.items():
        ratio = pair["plain"] / pair["lunette"]
        lines.append(
            f"| {name} | {pair['plain']:.2f} | {pair['lunette']:.2f} | {ratio:.2f} | ≥ {PLAIN} |"
        )
    lines += [*_modes(results["modes"]), *_jobs(results["jobs"])]
    built, big = results["graph"], results["cluster"]
    lines += [
        "",
        f"A Dask graph of {built['tasks']} tasks, each of which reads eight chunks, is built in "
        f"{built['us_per_task']:.0f} µs of CPU time per task (asked: under 100).",
        "",
        f"The graph of a 3×3×3 max at stride 2 over 100 TB in chunks of 512³, built and counted: "
        f"{big['tasks']:,} tasks in {big['build_seconds']:.0f} s of CPU time; they read "
        f"{big['read_tb']:.2f} TB, write {big['write_tb']:.2f} TB, and one is {big['task_bytes']} bytes "
        "when it is sent.",
    ]
    return "\n".join(lines) + "\n"


def _modes(found: dict[str, Any]) -> list[str]:
    lines = [
        "",
        "The 2×2×2 mode of 256³ labels in memory, milliseconds, medians of one run in turns.",
        "",
        "| dtype | lunette | tensorstore | tinybrain |",
        "|---|---|---|---|",
    ]
    for dtype, row in found.items():
        ours = row["lunette"]
        cells = [f"{1e3 * ours:.1f}"]
        cells += [
            f"{1e3 * row[k]:.1f} ({row[k] / ours:.1f}×)" for k in ("tensorstore", "tinybrain")
        ]
        lines.append(f"| {dtype} | {' | '.join(cells)} |")
    return lines


def _jobs(found: dict[str, Any]) -> list[str]:
    lines = [
        "",
        "The whole job: a Zarr array of 512×1024×1024 uint16 (1.07 GB, `zstd:1`, chunks of 128³) to three "
        "more levels of a 2×2×2 mean in Zarr, each tool in a process of its own, files in the page cache. The "
        "times are of the whole process, with what it takes to load the tool.",
        "",
        "| tool | level 0 too | wall, s | processor, s | peak, MB |",
        "|---|---|---|---|---|",
    ]
    with_0 = ("lunette", "tensorstore_with_level_0", "ome_zarr", "ngff_zarr")
    for name, row in found.items():
        level_0 = "yes" if name in (*with_0, "multiscale_spatial_image") else "no"
        cells = (
            f"failed: {row} | |"
            if isinstance(row, str)
            else (f"{row['wall']:.1f} | {row['processor']:.1f} | {row['peak'] / 1e6:.0f}")
        )
        lines.append(f"| {name.replace('_', ' ')} | {level_0} | {cells} |")
    return lines


def main(arguments: list[str]) -> None:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale", description=__doc__)
    parser.add_argument("--depth", type=int, default=512, help="planes of the volume")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--write-docs", action="store_true", help="write the page from all parts")
    chosen = parser.parse_args(arguments)
    parts = chosen.part or PARTS
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() and chosen.part else {}
    x = volume(chosen.depth) if {"memory", "disk"} & set(parts) else None
    results |= {"machine": describe(), "versions": {p: version(p) for p in PACKAGES}}
    if x is not None:
        results["shape"] = list(x.shape)
    if "memory" in parts:
        results["memory"] = in_memory(x, chosen.rounds)
    if "modes" in parts:
        results["modes"] = modes(chosen.rounds)
    if "jobs" in parts:
        results["jobs"] = jobs(chosen.depth, chosen.rounds)
    if "disk" in parts:
        with tempfile.TemporaryDirectory() as folder:
            results["disk"] = on_disk(x, Path(folder), chosen.rounds)
    if "graph" in parts:
        results["graph"] = graph()
    if "cluster" in parts:
        results["cluster"] = simulate()
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if all(part in results for part in PARTS):
        text = markdown(results)
        print(text)
        if chosen.write_docs:
            write_section(PAGE, HEADING, text)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
