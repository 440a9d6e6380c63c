"""Pooling modules of any rank, and torch's own pooling modules by their names; all other names are those of torch.nn."""

from typing import Any

from torch import nn as theirs

from lunette.torch.nn import functional, named, pools
from lunette.torch.nn.named import *  # noqa: F403
from lunette.torch.nn.pools import *  # noqa: F403

__all__ = [*pools.__all__, *(n for n in named.__all__ if n != "Named"), "functional"]


def __getattr__(name: str) -> Any:
    """What is not pooling, from torch."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(theirs, name)
