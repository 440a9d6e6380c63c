"""Lunette in PyTorch: registered operators, modules and functions, and a swap of a model's own pooling."""

from lunette.torch import library, nn
from lunette.torch.functions import replaced
from lunette.torch.replacement import Change, Replacement, Served, replace, restore

__all__ = [
    "Change",
    "Replacement",
    "Served",
    "library",
    "nn",
    "replace",
    "replaced",
    "restore",
]
