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
    Op,
    Pool,
    SmoothMaxPool,
)
from lunette.reductions import Max, Mean, SmoothMax
from lunette.regions import Adaptive, Global, Sliding

if TYPE_CHECKING:
    from lunette import bounds, onnx, spec, tape, torchlean
    from lunette.bounds import Box, Deployment
    from lunette.tape import Tape

__version__ = "0.1.0"

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
    "Op",
    "Pool",
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
    "conv",
    "conv_transpose",
    "forward",
    "get_num_threads",
    "global_avg_pool",
    "global_max_pool",
    "jvp",
    "max_pool",
    "max_unpool",
    "onnx",
    "set_num_threads",
    "smooth_max_pool",
    "spec",
    "tape",
    "torchlean",
    "vjp",
]


def __getattr__(name: str) -> Any:
    """The parts that few programs need load on first use."""
    if name in ("bounds", "onnx", "spec", "tape", "torchlean"):
        return import_module(f"lunette.{name}")
    if name == "Tape":
        return import_module("lunette.tape").Tape
    if name in ("Box", "Deployment"):
        return getattr(import_module("lunette.bounds"), name)
    raise AttributeError(f"module 'lunette' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
