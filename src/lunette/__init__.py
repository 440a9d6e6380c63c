"""Lunette: window operators with one exact meaning and kernels that agree with it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lunette.dispatch import SlowPathWarning, backend_for, forward, jvp, vjp
from lunette.functional import (
    adaptive_avg_pool,
    adaptive_max_pool,
    avg_pool,
    conv,
    conv_transpose,
    global_avg_pool,
    global_max_pool,
    max_pool,
    max_unpool,
    min_pool,
    mode_pool,
    smooth_max_pool,
)
from lunette.kernels.threads import get_num_threads, set_num_threads
from lunette.ops import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AvgPool,
    Conv,
    ConvTranspose,
    GlobalAvgPool,
    GlobalMaxPool,
    MaxPool,
    MinPool,
    ModePool,
    Op,
    Pool,
    SmoothMaxPool,
)
from lunette.reductions import Max, Mean, Min, Mode, RoundedMean, SmoothMax
from lunette.regions import Adaptive, Global, Sliding

if TYPE_CHECKING:
    from lunette import bounds, check, offsets, onnx, spec, tape, testing, torchlean
    from lunette import torch as torch
    from lunette.bounds import Box, Deployment
    from lunette.explanation import explain
    from lunette.scale.arrays import pyramid
    from lunette.tape import Tape
    from lunette.warmup import warm

__version__ = "0.2.0"

__all__ = [
    "Adaptive",
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "AvgPool",
    "Box",
    "Conv",
    "ConvTranspose",
    "Deployment",
    "Global",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "Max",
    "MaxPool",
    "Mean",
    "Min",
    "MinPool",
    "Mode",
    "ModePool",
    "Op",
    "Pool",
    "RoundedMean",
    "Sliding",
    "SlowPathWarning",
    "SmoothMax",
    "SmoothMaxPool",
    "Tape",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "avg_pool",
    "backend_for",
    "bounds",
    "check",
    "conv",
    "conv_transpose",
    "explain",
    "forward",
    "get_num_threads",
    "global_avg_pool",
    "global_max_pool",
    "jvp",
    "max_pool",
    "max_unpool",
    "min_pool",
    "mode_pool",
    "offsets",
    "onnx",
    "pyramid",
    "set_num_threads",
    "smooth_max_pool",
    "spec",
    "tape",
    "testing",
    "torchlean",
    "vjp",
    "warm",
]


# `from lunette import *` leaves torch and jax out: they may be missing, and take seconds to load.
PARTS = (
    "bounds",
    "check",
    "jax",
    "offsets",
    "onnx",
    "spec",
    "tape",
    "testing",
    "torch",
    "torchlean",
)


def __getattr__(name: str) -> Any:
    """The parts that few programs need load on first use."""
    if name in PARTS:
        try:
            return import_module(f"lunette.{name}")
        except ModuleNotFoundError as error:
            if error.name not in ("jax", "torch"):
                raise
            words = f"lunette.{name} needs {error.name}: pip install 'lunette-ops[{error.name}]'"
            raise ModuleNotFoundError(words, name=error.name) from error
    if name == "Tape":
        return import_module("lunette.tape").Tape
    if name == "explain":
        return import_module("lunette.explanation").explain
    if name == "pyramid":
        return import_module("lunette.scale.arrays").pyramid
    if name == "warm":
        return import_module("lunette.warmup").warm
    if name in ("Box", "Deployment"):
        return getattr(import_module("lunette.bounds"), name)
    raise AttributeError(f"module 'lunette' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "jax", "torch"]
