"""Lunette in PyTorch: registered operators, modules and functions, and a swap of a model's own pooling."""

try:
    import torch as _torch  # noqa: F401 — to say what is missing before anything else does
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "lunette.torch needs torch: pip install 'lunette-ops[torch]'", name="torch"
    ) from error

from lunette.torch import library, nn
from lunette.torch.functions import replaced
from lunette.torch.lowering import Unlowered, lowered
from lunette.torch.replacement import Change, Replacement, Served, replace, restore

__all__ = [
    "Change",
    "Replacement",
    "Served",
    "Unlowered",
    "library",
    "lowered",
    "nn",
    "replace",
    "replaced",
    "restore",
]
