"""Poolings that are made of other ops: generalised means, means weighted by softmax, and binomial blurs."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lunette import ops
from lunette.annotations import Kernel, Padding, Sizes
from lunette.arguments import choice, flag, shown, size
from lunette.torch.nn.words import documented

__all__ = ["BlurPool", "GeM", "SoftPool"]


@documented("nn.GeM(p=3.0)(torch.ones(1, 8, 4, 4)).shape", "torch.Size([1, 8, 1, 1])")
class GeM(nn.Module):  # type: ignore[misc]
    """The generalised mean over the last `ndim` axes: the p-th root of the mean of `max(x, eps)ᵖ`; p is learned by default."""

    def __init__(
        self, p: float = 3.0, ndim: int = 2, eps: float = 1e-6, learnable: bool = True
    ) -> None:
        super().__init__()
        for name, value in (("p", p), ("eps", eps)):
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or not 0 < value < 1e30
            ):
                raise ValueError(f"{name}={shown(value)}: expected a positive finite number")
        self.op, self.eps = ops.GlobalAvgPool(ndim), float(eps)
        self.p: Any = (
            nn.Parameter(torch.tensor(float(p))) if flag(learnable, "learnable") else float(p)
        )

    def forward(self, x: Tensor) -> Any:
        """The mean, with axes of length one."""
        return self.op(x.clamp(min=self.eps).pow(self.p)).pow(1.0 / self.p)

    def extra_repr(self) -> str:
        learned = isinstance(self.p, Tensor)
        p = float(self.p.detach()) if learned else self.p
        return f"p={p:g}, ndim={self.op.ndim}, eps={self.eps:g}" + ", learnable=False" * (
            not learned
        )


@documented("nn.SoftPool((2, 2))(torch.ones(1, 4, 4)).shape", "torch.Size([1, 2, 2])")
class SoftPool(nn.Module):  # type: ignore[misc]
    """`Σ x·exp(beta·x) / Σ exp(beta·x)` of each window: a smooth max's derivative along x, finite for every finite x.

    Padding does not count.
    """

    def __init__(
        self,
        kernel: Kernel,
        stride: Sizes | None = None,
        padding: Padding = 0,
        beta: float = 1.0,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.op = ops.SmoothMaxPool(
            kernel, beta, stride, padding, ceil_mode=ceil_mode, count_include_pad=False
        )

    def forward(self, x: Tensor) -> Any:
        """The pooled tensor."""
        return self.op.jvp(x, x)

    def extra_repr(self) -> str:
        return repr(self.op).partition("(")[2][:-1].replace(", count_include_pad=False", "")


MODES = ("reflect", "replicate", "zeros")
"""What BlurPool may put around x."""


LONGEST = 1024
"""Cells of a BlurPool's filter, at most; the deviation of so long a binomial is 16 cells."""


@documented("nn.BlurPool()(torch.ones(1, 8, 6, 6)).shape", "torch.Size([1, 8, 3, 3])")
class BlurPool(nn.Module):  # type: ignore[misc]
    """A binomial filter of `kernel` cells on each of the last `ndim` axes, then every `stride`-th cell: shift-invariant downsampling.

    Its weights are those of R. Zhang, "Making Convolutional Networks Shift-Invariant Again", 2019: 1 2 1 over 4 for 3 cells.
    They are means of two neighbours, taken `kernel − 1` times, so that is how it is computed. `padding_mode` says
    what lies `(kernel − 1) // 2` before x, and as much or one more after it: "reflect", "replicate" or "zeros".
    """

    def __init__(
        self, kernel: int = 3, stride: int = 2, ndim: int = 2, padding_mode: str = "reflect"
    ) -> None:
        super().__init__()
        self.kernel, self.stride = size(kernel, "kernel", 1), size(stride, "stride", 1)
        if self.kernel > LONGEST:
            raise ValueError(
                f"kernel={shown(kernel)}: expected at most {LONGEST}, for each cell is a pass over x"
            )
        self.ndim = size(ndim, "ndim", 1)
        if self.ndim > 3:
            raise ValueError(f"ndim={shown(ndim)}: expected 1, 2 or 3, the axes that torch can pad")
        self.padding_mode = choice(padding_mode, "padding_mode", MODES)
        pair = min(self.kernel, 2)
        self.steps = [ops.AvgPool((pair,) * self.ndim, 1)] * (self.kernel - 2)
        self.steps.append(ops.AvgPool((pair,) * self.ndim, self.stride))

    def forward(self, x: Tensor) -> Any:
        """The pooled tensor; half types are rounded once."""
        batch = x.ndim - self.ndim
        if batch < 0:
            raise ValueError(f"{self!r} pools the last {self.ndim} axes; x has {x.ndim}")
        y = self._padded(x, batch)
        half = x.dtype in (torch.float16, torch.bfloat16)
        y = y.float() if half else y
        for op in self.steps:
            y = op(y)
        y = y.reshape(*x.shape[:batch], *y.shape[y.ndim - self.ndim :])
        return y.to(x.dtype) if half else y

    def _padded(self, x: Tensor, batch: int) -> Tensor:
        before, after = (self.kernel - 1) // 2, self.kernel // 2
        if not after:
            return x
        if self.padding_mode == "zeros":
            return functional.pad(x, (before, after) * self.ndim)
        if batch not in (1, 2) or not x.numel():  # torch pads so with one axis or two before
            x = x.reshape(prod(x.shape[:batch]), 1, *x.shape[batch:])
        shortest = min(x.shape[x.ndim - self.ndim :])
        if not shortest:
            raise ValueError(f"{self!r}: x of shape {tuple(x.shape)} has a pooled axis of length 0")
        if self.padding_mode == "reflect" and after >= shortest:
            raise ValueError(
                f"{self!r}: reflecting {after} cells needs longer axes than x of shape {tuple(x.shape)} has; "
                "use padding_mode='replicate'"
            )
        return functional.pad(x, (before, after) * self.ndim, mode=self.padding_mode)

    def extra_repr(self) -> str:
        mode = "" if self.padding_mode == "reflect" else f", padding_mode={self.padding_mode!r}"
        return f"kernel={self.kernel}, stride={self.stride}, ndim={self.ndim}{mode}"
