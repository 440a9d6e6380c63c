"""Poolings between mean and max that are made of other ops: generalised means, and means weighted by softmax."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lunette import ops
from lunette.arguments import flag

__all__ = ["GeM", "SoftPool"]


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
                raise ValueError(f"{name}={value!r}: expected a positive finite number")
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


class SoftPool(nn.Module):  # type: ignore[misc]
    """`Σ x·exp(beta·x) / Σ exp(beta·x)` of each window: a smooth max's derivative along x, finite for every finite x.

    Padding does not count.
    """

    def __init__(
        self,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
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
