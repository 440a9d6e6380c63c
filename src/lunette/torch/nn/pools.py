"""Pooling modules of any rank: an op in a `torch.nn.Module`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lunette import ops
from lunette.adapters import torch as adapter
from lunette.annotations import Axes, Bins, Kernel, Padding, Sizes, Ties
from lunette.arguments import flag
from lunette.ops.pooling import Pooling
from lunette.torch import eager
from lunette.torch.nn.words import documented
from lunette.torch.speed import is_slower

__all__ = [
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "AvgPool",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "MaxPool",
    "Pool",
    "SmoothMaxPool",
]


@documented("nn.Pool(ln.MaxPool((2, 2)))(torch.ones(1, 4, 4)).shape", "torch.Size([1, 2, 2])")
class Pool(nn.Module):  # type: ignore[misc]
    """Any pooling op as a module; the op decides which axes are pooled, the last if it does not say.

    With `return_indices` a max gives its winners' flat positions too, as torch's modules do.
    """

    replaced: Any = None
    """torch's module in whose place this one is."""

    preferred: Any = None
    """The same, where it is to serve the calls that it is faster at."""

    def __init__(self, op: Pooling, return_indices: bool = False) -> None:
        super().__init__()
        if not isinstance(op, Pooling):
            raise TypeError(f"op={op!r}: expected a pooling op, such as lunette.MaxPool((2, 2))")
        self.op = op
        self.return_indices = flag(return_indices, "return_indices")

    def forward(self, x: Tensor) -> Any:
        """The pooled tensor; with `return_indices`, the indices too."""
        if not self.return_indices and eager.serves(x):
            if self.preferred is not None and is_slower(x):
                return self.preferred.forward(x)
            found = eager.forward(self.op, x)
            if found is not None:
                return found
        return adapter.pooled(self.op, x, self.return_indices)

    def extra_repr(self) -> str:
        text = repr(self.op)
        inside = text if type(self) is Pool else text.partition("(")[2][:-1]
        return f"{inside}, return_indices=True" if self.return_indices else inside


@documented("nn.MaxPool((2, 2), axes=(0, 1))(torch.ones(4, 4, 3)).shape", "torch.Size([2, 2, 3])")
class MaxPool(Pool):
    """The largest cell of each window."""

    def __init__(
        self,
        kernel: Kernel,
        stride: Sizes | None = None,
        padding: Padding = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        ties: Ties = "first",
        return_indices: bool = False,
        *,
        axes: Axes = None,
    ) -> None:
        op = ops.MaxPool(kernel, stride, padding, dilation, ceil_mode, ties, axes=axes)
        super().__init__(op, return_indices)


@documented("nn.AvgPool((2,))(torch.tensor([1.0, 3.0]))", "tensor([2.])")
class AvgPool(Pool):
    """The mean of each window."""

    def __init__(
        self,
        kernel: Kernel,
        stride: Sizes | None = None,
        padding: Padding = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        *,
        axes: Axes = None,
    ) -> None:
        counting = count_include_pad, divisor_override
        super().__init__(
            ops.AvgPool(kernel, stride, padding, dilation, ceil_mode, *counting, axes=axes)
        )


@documented(
    "nn.SmoothMaxPool((2, 2), 1.0, learnable=True)",
    "SmoothMaxPool((2, 2), beta=1.0, learnable=True)",
)
class SmoothMaxPool(Pool):
    """`(1/beta) log Σ exp(beta·x)` of each window, with a beta that stays or is learned.

    With `learnable`, `beta` is a parameter of one element, trained like any other. A step that
    takes it to zero is an error at the next forward: smooth max has no meaning there.
    """

    def __init__(
        self,
        kernel: Kernel,
        beta: float,
        stride: Sizes | None = None,
        padding: Padding = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        learnable: bool = False,
        *,
        axes: Axes = None,
    ) -> None:
        op = ops.SmoothMaxPool(
            kernel, beta, stride, padding, dilation, ceil_mode, count_include_pad, axes=axes
        )
        super().__init__(op)
        self.beta = nn.Parameter(torch.tensor(op.beta)) if flag(learnable, "learnable") else op.beta

    def forward(self, x: Tensor) -> Any:
        """The pooled tensor."""
        if not isinstance(self.beta, float):  # a parameter, or what torch.fx records for it
            return adapter.forward_with_beta(self.op, x, self.beta)
        return super().forward(x)

    def extra_repr(self) -> str:
        learned = isinstance(self.beta, Tensor)
        return f"{super().extra_repr()}, learnable=True" if learned else super().extra_repr()


@documented("nn.AdaptiveAvgPool((2, None))(torch.ones(1, 4, 3)).shape", "torch.Size([1, 2, 3])")
class AdaptiveAvgPool(Pool):
    """The mean of each of `output_size` bins; None keeps an axis as it is."""

    def __init__(self, output_size: Bins, *, axes: Axes = None) -> None:
        super().__init__(ops.AdaptiveAvgPool(output_size, axes=axes))


@documented("nn.AdaptiveMaxPool((2,))(torch.tensor([1.0, 3.0, 2.0]))", "tensor([3., 3.])")
class AdaptiveMaxPool(Pool):
    """The largest cell of each of `output_size` bins; None keeps an axis as it is."""

    def __init__(
        self,
        output_size: Bins,
        ties: Ties = "first",
        return_indices: bool = False,
        *,
        axes: Axes = None,
    ) -> None:
        super().__init__(ops.AdaptiveMaxPool(output_size, ties, axes=axes), return_indices)


@documented("nn.GlobalAvgPool(2, keepdims=False)(torch.ones(8, 4, 4)).shape", "torch.Size([8])")
class GlobalAvgPool(Pool):
    """The mean over the last `ndim` axes, or over `axes`."""

    def __init__(
        self, ndim: int | None = None, keepdims: bool = True, *, axes: Axes = None
    ) -> None:
        super().__init__(ops.GlobalAvgPool(ndim, keepdims, axes=axes))


@documented("nn.GlobalMaxPool(axes=(0, 1))(torch.ones(4, 4, 3)).shape", "torch.Size([1, 1, 3])")
class GlobalMaxPool(Pool):
    """The largest cell over the last `ndim` axes, or over `axes`."""

    def __init__(
        self,
        ndim: int | None = None,
        keepdims: bool = True,
        ties: Ties = "all",
        *,
        axes: Axes = None,
    ) -> None:
        super().__init__(ops.GlobalMaxPool(ndim, keepdims, ties, axes=axes))
