"""Lunette in PyTorch: registered operators, modules, and a swap of torch's own pooling modules."""

from lunette.torch import library, nn
from lunette.torch.replacement import Change, Replacement, replace

__all__ = ["Change", "Replacement", "library", "nn", "replace"]
