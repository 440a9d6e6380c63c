"""Ops: regions × a reduction, or a convolution. Frozen, hashable, checked when made, no arrays."""

from lunette.ops.base import Op
from lunette.ops.convolution import Conv, ConvTranspose
from lunette.ops.pooling import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AvgPool,
    GlobalAvgPool,
    GlobalMaxPool,
    MaxPool,
    MinPool,
    ModePool,
    Pool,
    SmoothMaxPool,
)

__all__ = [
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "AvgPool",
    "Conv",
    "ConvTranspose",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "MaxPool",
    "MinPool",
    "ModePool",
    "Op",
    "Pool",
    "SmoothMaxPool",
]
