"""Lunette: window operators with one exact meaning and kernels that agree with it."""

from lunette import spec, tape, torchlean
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
from lunette.tape import Tape

__version__ = "0.1.0"

__all__ = [
    "Adaptive",
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "AvgPool",
    "Conv",
    "ConvTranspose",
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
    "conv",
    "conv_transpose",
    "forward",
    "get_num_threads",
    "global_avg_pool",
    "global_max_pool",
    "jvp",
    "max_pool",
    "max_unpool",
    "set_num_threads",
    "smooth_max_pool",
    "spec",
    "tape",
    "torchlean",
    "vjp",
]
