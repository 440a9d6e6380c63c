"""Ops that the torch tests share: every reduction and region, ranks 1 to 4, few cells each."""

import torch

import lunette as ln

OPS = [
    (ln.MaxPool((2, 3), stride=(2, 1), padding=1), (2, 4, 5)),
    (
        ln.MaxPool((2,), stride=1, padding=((2, 0),), dilation=2, ceil_mode=True, ties="split"),
        (2, 5),
    ),
    (ln.MaxPool((2, 1, 2, 1), padding="same"), (1, 3, 1, 3, 2)),
    (ln.AvgPool((3, 2), stride=2, padding=1, ceil_mode=True), (2, 4, 5)),
    (ln.AvgPool((2, 2, 2), count_include_pad=False, padding=1), (1, 3, 2, 2)),
    (ln.SmoothMaxPool((2, 2), beta=1.5, stride=1, padding=1), (1, 3, 3)),
    (ln.SmoothMaxPool((3,), beta=-2.0, padding=1, count_include_pad=False), (2, 6)),
    (ln.AdaptiveAvgPool((2, 3)), (2, 5, 4)),
    (ln.AdaptiveMaxPool((3, 2)), (2, 4, 5)),
    (ln.GlobalAvgPool(2, keepdims=False), (2, 3, 2)),
    (ln.GlobalMaxPool(2), (2, 3, 2)),
    (ln.Pool((ln.Sliding(2, 1), ln.Global()), ln.SmoothMax(0.7)), (1, 4, 3)),
]
"""(op, shape of an input with one leading axis that is batch)."""

IDS = [repr(op)[:60] for op, _ in OPS]

SMOOTH = [(op, shape) for op, shape in OPS if isinstance(op.reduction, ln.SmoothMax)]


def distinct(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 0
) -> torch.Tensor:
    """Values in random order, no two of them equal or near: a max has a derivative there."""
    generator = torch.Generator().manual_seed(seed)
    count = torch.Size(shape).numel()
    order = torch.randperm(count, generator=generator).to(torch.float64)
    return (order / max(count, 1) * 4 - 2).reshape(shape).to(dtype)
