"""Sizes by which work is cut, made small: a few thousand cells then have as many tiles, parts, pieces and threads as some megabytes.

Nothing in a kernel depends on them, and no promise: plans follow from whatever they are. Only what goes by their names in
other modules is left as it is.
"""

from __future__ import annotations

from importlib import import_module

from lunette.kernels import threads

__all__ = ["make_sizes_small"]

SMALL_SIZES: dict[str, dict[str, object]] = {
    "schedule.staging": {"LARGE": 1 << 10, "STAGE": 1 << 9},
    "schedule.properties": {"LARGE": 1 << 10},
    "schedule.tiling": {"LARGE": 1 << 10, "SMALL": 1 << 9, "NEAR": 1 << 11, "LONGEST": 128},
    "schedule.plan": {
        "SERIAL_MAX_CELLS": 1 << 7,
        "CELLS_NEAR": 1 << 10,
        "FOLDED_OUTPUTS": 1 << 7,
        "ROW_CELLS": 1 << 7,
        "SLAB_CELLS": 1 << 9,
        "SMALL": 1 << 9,
        "SPREAD_CELLS": 1 << 8,
        "SPREAD_CHANNELS": 1 << 9,
        "TILE_CELLS": 1 << 9,
    },
    "micro.lse_pairs_scratch": {"SPACE": 1 << 7},
    "program.calls": {"SMALL": 1 << 9},
    "layout.nhwc_to_nchw": {"PART": 1 << 11, "CHUNK": 1 << 9, "SMALL": 1 << 7},
    "layout.batch_interleave": {"BYTES": 1 << 11},
    "layout.split_axis": {"LONG": 1 << 10},
    "pooling": {"LONG": 1 << 10},
    "convolution": {"SCRATCH": 1 << 11, "NUMBERS": 1 << 10},
    "conv.correlate": {"SCRATCH": 1 << 11, "PACKED_EACH": 1 << 6},
    "conv.backward_weights": {"CHUNK": 48, "SEGMENT": 64, "PRODUCTS_EACH": 1 << 8},
    "conv.tiling": {"TILE": 4000, "NEAR": 1 << 10, "CYCLES_EACH": 100},
}
"""By module of the CPU kernels."""

FEW_ITEMS = {"USUAL": (1 << 12, 64, 64), "SEARCHED": (1 << 12, 32, 16), "TIED": (1 << 16, 16, 16)}
"""Bounds of small items: cells of one, how many there are, and how many make a part."""


def make_sizes_small() -> None:
    """From now on, and before the first call: what is prepared already keeps its sizes."""
    for name, sizes in SMALL_SIZES.items():
        module = import_module(f"lunette.kernels.cpu.{name}")
        for constant, value in sizes.items():
            assert hasattr(module, constant), f"{name} has no {constant}"
            setattr(module, constant, value)
    threads.CELLS_AWAKE = threads.CELLS_ASLEEP = 1 << 8
    items = import_module("lunette.kernels.cpu.layout.batch_interleave")
    for constant, bounds in FEW_ITEMS.items():
        setattr(items, constant, items.Bounds(*bounds))
