"""How a call is cut into programs, and which cut is fastest: measured once per shape, remembered on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from lunette.kernels.triton import choices
from lunette.kernels.triton.arrays import described
from lunette.kernels.triton.plan import Plan

__all__ = [
    "FLAT",
    "MOST_FLAT_TAPS",
    "UNROLLED_TAPS",
    "Tile",
    "best_tile",
    "flat_gradient_tiles",
    "flat_tiles",
    "forward_tiles",
    "gradient_tiles",
    "power_of_two",
]

WORTH_TUNING = 1 << 20  # input elements; below it a launch costs more than any choice of tile
MOST_LOADS = 130  # unrolled loads of one program, and
MOST_STEPS = 220  # unrolled comparisons: more make the compiler slow
PATIENCE = 0.6  # seconds that may pass before another tile is compiled and tried
MOST_TERMS = 110  # exponentials in one step of a smooth max's gradient
TALLEST_STRIP = 16  # rows of windows that a program walks
LONGEST_BAND = 16  # taps along an axis that a band takes


class Tile(NamedTuple):
    """Input columns a lane owns, rows a program owns, lanes per thread, warps; no rows: the flat kernel."""

    group: int
    rows: int
    lanes: int
    warps: int


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()


@lru_cache(maxsize=1024)
def forward_tiles(plan: Plan, form: str, itemsize: int) -> list[Tile]:
    """Tiles for the band kernels, the likeliest best first; none where a band does not fit."""
    h, w = plan.h, plan.w
    if h.table or w.table or max(h.kernel, w.kernel) > LONGEST_BAND or form in TIED:
        return []
    tiles = []
    for group, most, warps in _forward_choices(plan, form, itemsize):
        rows = min(most, power_of_two(h.m))
        fitting = [r for r in _halvings(rows) if _fits(plan, form, group, r)]
        if fitting:
            tiles.append(Tile(group, fitting[0], _lanes(plan, itemsize), warps))
    return list(dict.fromkeys(tiles))


FLAT = Tile(1, 0, 1, 4)
"""The cut of the flat kernels: an output, or an input, a thread."""

MOST_FLAT_TAPS = 128
"""Taps of a window that one lane walks."""

UNROLLED_TAPS = 64
"""Taps that are unrolled, at most."""


def flat_tiles(plan: Plan, itemsize: int) -> list[Tile]:
    """Cuts of the flat forward kernel; none where windows are too large for a lane each."""
    if plan.cells > MOST_FLAT_TAPS or plan.outer_taps > UNROLLED_TAPS:
        return []
    return [FLAT._replace(lanes=max(1, 4 // itemsize))]


def flat_gradient_tiles(plan: Plan, itemsize: int) -> list[Tile]:
    """Cuts of the flat gradient kernel; none where an input has too many readers, or windows are irregular."""
    h, w = plan.h, plan.w
    outer = plan.plane_readers.shape[1] if plan.outer else 1
    if h.readers * w.readers * outer > UNROLLED_TAPS:
        return []
    return [FLAT._replace(lanes=max(1, 4 // itemsize))]


def _halvings(rows: int) -> list[int]:
    return [rows >> i for i in range(rows.bit_length())]


TIED = ("split", "tied_jvp", "split_jvp")


def _forward_choices(plan: Plan, form: str, itemsize: int) -> list[tuple[int, int, int]]:
    w = plan.w
    smooth = form in ("smooth", "smooth_jvp", "stats")
    rows = 2 if smooth else 8
    if plan.lanes > 1:
        return [(1, rows // 2, 4), (1, rows, 2)]
    if w.dilation > 1 or w.stride not in (1, 2, 4) or w.m == 1:
        return [(1, rows, 2), (1, rows // 2, 4)]
    group = max(2, w.stride)
    if smooth:
        return [(group, 4, 2), (group, 2, 2)]
    if itemsize <= 2 or w.kernel > 4:
        return [(max(4, w.stride), rows, 2), (max(4, w.stride), rows // 2, 2)]
    return [(group, rows, 2), (group, rows // 2, 2)]


def _fits(plan: Plan, form: str, group: int, rows: int) -> bool:
    """Whether one program's unrolled work is small enough to compile in a second or so."""
    h, w, planes = plan.h, plan.w, max(plan.outer_taps, 1)
    height = (rows - 1) * h.stride + h.extent
    outputs = max(group // w.stride, 1)
    span = w.kernel if group == 1 else -(-((outputs - 1) * w.stride + w.kernel) // group) + 1
    loads = height * span * planes * (2 if form == "smooth_jvp" else 1)
    doubled = form == "max" and w.stride == 1 and w.kernel >= 5
    along = 5 if doubled else w.kernel
    down = 5 if form == "max" and h.stride == 1 and h.kernel >= 5 else h.kernel
    steps = (height * along + rows * down) * outputs * planes
    if form == "codes":
        steps = steps * 3 // 2
    if form in ("smooth", "smooth_jvp", "stats"):
        steps = 3 * rows * outputs * h.kernel * w.kernel * planes
    return loads <= MOST_LOADS and steps <= MOST_STEPS


def _lanes(plan: Plan, itemsize: int) -> int:
    """Elements per thread: several where neighbouring lanes are neighbours in memory."""
    return max(1, 8 // itemsize) if plan.lanes > 1 and plan.lanes % 16 == 0 else 1


@lru_cache(maxsize=1024)
def gradient_tiles(plan: Plan, itemsize: int) -> list[Tile]:
    """Tiles for the band gradient kernel; none where it does not serve."""
    h, w = plan.h, plan.w
    if h.table or w.table or max(h.kernel, w.kernel) > LONGEST_BAND:
        return []
    if h.dilation > 1 or w.dilation > 1 or w.stride not in (1, 2, 4) or h.stride > 4:
        return []
    reach = (-(-h.kernel // h.stride)) * (-(-w.kernel // w.stride)) * max(plan.outer_taps, 1)
    if reach > 36:
        return []
    group = max(2, w.stride)
    wide = max(4, w.stride)
    choices = [(wide, 4, 2), (group, 4, 2)]
    if plan.lanes > 1:
        choices = [(group, 2, 2)]
    elif itemsize <= 2:
        choices = [(wide, 4, 2)]
    rows_in = power_of_two(-(-h.n // h.stride))
    lanes = 4 if plan.lanes > 1 and plan.lanes % 16 == 0 else 1
    tiles = [Tile(g, min(r, rows_in), lanes, warps) for g, r, warps in choices]
    tiles = [t for t in tiles if t.rows * h.stride * t.group * reach <= 512]
    return list(dict.fromkeys(tiles))


@lru_cache(maxsize=1024)
def smooth_gradient_tiles(plan: Plan) -> list[Tile]:
    """Tiles for a smooth max's gradient in one launch; none where windows are too many or large."""
    h, w = plan.h, plan.w
    if plan.outer or plan.lanes > 1 or h.table or w.table or h.dilation > 1 or w.dilation > 1:
        return []
    if w.stride not in (1, 2, 4) or h.stride > 4:
        return []
    group = max(4, w.stride)
    columns = (group - 1 + w.before) // w.stride + (w.kernel - 1 - w.before) // w.stride + 1
    if columns * h.kernel * w.kernel > MOST_TERMS:
        return []
    rows = -(-h.n // h.stride)
    strips = -(-rows // TALLEST_STRIP)
    return [Tile(group, -(-rows // strips), 1, 2)]


_BEST: dict[Any, Tile] = {}


def best_tile(key: Any, tiles: list[Tile], run: Callable[[Tile], None], size: int) -> None:
    """Run with the fastest of `tiles`; the first call of a large shape, in any process, measures them."""
    first = tiles[0]
    devices = described()
    if devices is not None:  # for later: what was measured on such a GPU, else the likeliest
        measured = choices.kept(key, tiles, devices) if devices and size >= WORTH_TUNING else None
        run(measured or first)
        return
    import torch

    from lunette.kernels.triton.replay import paused

    known = _BEST.get(key)
    if known is not None or len(tiles) == 1 or size < WORTH_TUNING or not torch.cuda.is_available():
        run(known or first)
        return
    known = choices.kept(key, tiles)
    if known is not None:
        _BEST[key] = known
        run(known)
        return
    if torch.cuda.is_current_stream_capturing():
        with paused(final=False):  # a later call, outside a graph, may measure
            run(first)
        return
    began = time.perf_counter()
    times: dict[Tile, float] = {}
    with paused():
        for tile in tiles:
            if not times or time.perf_counter() - began < PATIENCE:
                times[tile] = _milliseconds(partial(run, tile))
    _BEST[key] = min(times, key=lambda tile: times[tile])
    choices.keep(key, tiles, _BEST[key])
    run(_BEST[key])


def _milliseconds(run: Callable[[], None]) -> float:
    """The fastest of a few runs, after one that compiles."""
    import torch

    run()
    best = float("inf")
    for _ in range(4):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end))
    return best
