"""Pooling and convolution modules of any rank, and torch's own pooling modules by their names; all other names are those of torch.nn."""

from typing import Any

from torch import nn as theirs

from lunette.torch.nn import functional
from lunette.torch.nn.convolutions import Conv
from lunette.torch.nn.named import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    LPPool1d,
    LPPool2d,
    LPPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
)
from lunette.torch.nn.pools import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AvgPool,
    GlobalAvgPool,
    GlobalMaxPool,
    MaxPool,
    Pool,
    SmoothMaxPool,
)
from lunette.torch.nn.weighted import BlurPool, GeM, SoftPool

__all__ = [
    "AdaptiveAvgPool",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BlurPool",
    "Conv",
    "GeM",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "Pool",
    "SmoothMaxPool",
    "SoftPool",
    "functional",
]


def __getattr__(name: str) -> Any:
    """What is not pooling, from torch."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(theirs, name)
