"""Convolution of any rank as a module: torch's parameters, our op."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import torch
from torch import Tensor, nn

from lunette import ops
from lunette.adapters import torch as adapter
from lunette.annotations import Kernel, Padding, Sizes
from lunette.arguments import flag, size
from lunette.torch import convolution
from lunette.torch.nn.words import documented

__all__ = ["Conv"]


@documented(
    "nn.Conv(3, 8, (3, 3), padding=1)(torch.ones(1, 3, 6, 6)).shape", "torch.Size([1, 8, 6, 6])"
)
class Conv(nn.Module):  # type: ignore[misc]
    """A convolution over the last `len(kernel)` axes, with a weight and a bias as torch's modules have them.

    It goes by our CPU kernels where they are the faster ones, and by torch's own convolution elsewhere; with `always`, by
    ours for every float CPU tensor.
    """

    replaced: Any = None
    """torch's module in whose place this one is."""

    preferred: Any = None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: Kernel,
        stride: Sizes = 1,
        padding: Padding = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        always: bool = False,
    ) -> None:
        super().__init__()
        self.op = ops.Conv(kernel, stride, padding, dilation, groups)
        channels, rows = size(in_channels, "in_channels", 1), size(out_channels, "out_channels", 1)
        if channels % groups or rows % groups:
            raise ValueError(
                f"in_channels={channels}, out_channels={rows}: expected multiples of groups={groups}"
            )
        self.always = flag(always, "always")
        self.weight = nn.Parameter(torch.empty(rows, channels // groups, *self.op.kernel))
        self.bias = nn.Parameter(torch.empty(rows)) if flag(bias, "bias") else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias as torch's modules do: uniform, up to one over the root of the products of a sum."""
        nn.init.kaiming_uniform_(self.weight, a=sqrt(5))
        if self.bias is not None:
            bound = 1 / sqrt(prod(self.weight.shape[1:]))
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Any:
        """The convolution of x."""
        adapter.check_plain(x, "x")
        operands = (x, self.weight) if self.bias is None else (x, self.weight, self.bias)
        return convolution.forward(self.op, operands, self.always)

    def extra_repr(self) -> str:
        rows, each = self.weight.shape[:2]
        inside = repr(self.op).partition("(")[2][:-1]
        bias = "" if self.bias is not None else ", bias=False"
        return f"{each * self.op.groups}, {rows}, {inside}{bias}"
