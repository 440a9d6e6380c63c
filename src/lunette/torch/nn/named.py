"""torch's pooling modules with Lunette's functions: the same names, arguments, attributes, repr and state.

Each is a subclass of torch's module of that name, so `isinstance` holds, and what is set on one counts at the next call.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lunette.torch.nn import functional
from lunette.torch.nn.words import documented

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "Named",
]


class Named:
    """A module of torch's whose pooling is ours."""

    function: Any


class _Max(Named):
    def forward(self: Any, input: Tensor) -> Any:
        """The pooled tensor; with `return_indices`, the indices too."""
        return self.function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )


class _Avg(Named):
    def forward(self: Any, input: Tensor) -> Any:
        """The pooled tensor."""
        return self.function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            *self._divisor(),
        )

    def _divisor(self: Any) -> tuple[Any, ...]:
        return (self.divisor_override,)


class _AdaptiveAvg(Named):
    def forward(self: Any, input: Tensor) -> Any:
        """The pooled tensor."""
        return self.function(input, self.output_size)


class _AdaptiveMax(Named):
    def forward(self: Any, input: Tensor) -> Any:
        """The pooled tensor; with `return_indices`, the indices too."""
        return self.function(input, self.output_size, self.return_indices)


class _Unpool(Named):
    def forward(self: Any, input: Tensor, indices: Tensor, output_size: Any = None) -> Any:
        """Zeros with each value put back at its index."""
        return self.function(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )


class _LP(Named):
    def forward(self: Any, input: Tensor) -> Any:
        """The pooled tensor."""
        return self.function(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )


@documented("nn.MaxPool1d(2)(torch.ones(1, 4)).shape", "torch.Size([1, 2])")
class MaxPool1d(_Max, nn.MaxPool1d):  # type: ignore[misc]
    """The largest cell of each window of 1 axis."""

    function = staticmethod(functional.max_pool1d)


@documented("nn.MaxPool2d(2)(torch.ones(1, 4, 4)).shape", "torch.Size([1, 2, 2])")
class MaxPool2d(_Max, nn.MaxPool2d):  # type: ignore[misc]
    """The largest cell of each window of 2 axes."""

    function = staticmethod(functional.max_pool2d)


@documented("nn.MaxPool3d(2)(torch.ones(1, 4, 4, 4)).shape", "torch.Size([1, 2, 2, 2])")
class MaxPool3d(_Max, nn.MaxPool3d):  # type: ignore[misc]
    """The largest cell of each window of 3 axes."""

    function = staticmethod(functional.max_pool3d)


@documented("nn.AvgPool1d(2)(torch.ones(1, 4)).shape", "torch.Size([1, 2])")
class AvgPool1d(_Avg, nn.AvgPool1d):  # type: ignore[misc]
    """The mean of each window of 1 axis."""

    function = staticmethod(functional.avg_pool1d)

    def _divisor(self) -> tuple[Any, ...]:
        return ()


@documented("nn.AvgPool2d(2)(torch.ones(1, 4, 4)).shape", "torch.Size([1, 2, 2])")
class AvgPool2d(_Avg, nn.AvgPool2d):  # type: ignore[misc]
    """The mean of each window of 2 axes."""

    function = staticmethod(functional.avg_pool2d)


@documented("nn.AvgPool3d(2)(torch.ones(1, 4, 4, 4)).shape", "torch.Size([1, 2, 2, 2])")
class AvgPool3d(_Avg, nn.AvgPool3d):  # type: ignore[misc]
    """The mean of each window of 3 axes."""

    function = staticmethod(functional.avg_pool3d)


@documented("nn.AdaptiveMaxPool1d(2)(torch.ones(1, 4)).shape", "torch.Size([1, 2])")
class AdaptiveMaxPool1d(_AdaptiveMax, nn.AdaptiveMaxPool1d):  # type: ignore[misc]
    """The largest cell of each bin of 1 axis."""

    function = staticmethod(functional.adaptive_max_pool1d)


@documented("nn.AdaptiveMaxPool2d(2)(torch.ones(1, 4, 4)).shape", "torch.Size([1, 2, 2])")
class AdaptiveMaxPool2d(_AdaptiveMax, nn.AdaptiveMaxPool2d):  # type: ignore[misc]
    """The largest cell of each bin of 2 axes."""

    function = staticmethod(functional.adaptive_max_pool2d)


@documented("nn.AdaptiveMaxPool3d(2)(torch.ones(1, 4, 4, 4)).shape", "torch.Size([1, 2, 2, 2])")
class AdaptiveMaxPool3d(_AdaptiveMax, nn.AdaptiveMaxPool3d):  # type: ignore[misc]
    """The largest cell of each bin of 3 axes."""

    function = staticmethod(functional.adaptive_max_pool3d)


@documented("nn.AdaptiveAvgPool1d(2)(torch.ones(1, 4)).shape", "torch.Size([1, 2])")
class AdaptiveAvgPool1d(_AdaptiveAvg, nn.AdaptiveAvgPool1d):  # type: ignore[misc]
    """The mean of each bin of 1 axis."""

    function = staticmethod(functional.adaptive_avg_pool1d)


@documented("nn.AdaptiveAvgPool2d(2)(torch.ones(1, 4, 4)).shape", "torch.Size([1, 2, 2])")
class AdaptiveAvgPool2d(_AdaptiveAvg, nn.AdaptiveAvgPool2d):  # type: ignore[misc]
    """The mean of each bin of 2 axes."""

    function = staticmethod(functional.adaptive_avg_pool2d)


@documented("nn.AdaptiveAvgPool3d(2)(torch.ones(1, 4, 4, 4)).shape", "torch.Size([1, 2, 2, 2])")
class AdaptiveAvgPool3d(_AdaptiveAvg, nn.AdaptiveAvgPool3d):  # type: ignore[misc]
    """The mean of each bin of 3 axes."""

    function = staticmethod(functional.adaptive_avg_pool3d)


@documented(
    "nn.MaxUnpool1d(2)(torch.ones(1, 2), torch.zeros(1, 2, dtype=torch.long)).shape",
    "torch.Size([1, 4])",
)
class MaxUnpool1d(_Unpool, nn.MaxUnpool1d):  # type: ignore[misc]
    """A max over 1 axis undone: its values at their indices, zeros elsewhere."""

    function = staticmethod(functional.max_unpool1d)


@documented(
    "nn.MaxUnpool2d(2)(torch.ones(1, 2, 2), torch.zeros(1, 2, 2, dtype=torch.long)).shape",
    "torch.Size([1, 4, 4])",
)
class MaxUnpool2d(_Unpool, nn.MaxUnpool2d):  # type: ignore[misc]
    """A max over 2 axes undone: its values at their indices, zeros elsewhere."""

    function = staticmethod(functional.max_unpool2d)


@documented(
    "nn.MaxUnpool3d(2)(torch.ones(1, 2, 2, 2), torch.zeros(1, 2, 2, 2, dtype=torch.long)).shape",
    "torch.Size([1, 4, 4, 4])",
)
class MaxUnpool3d(_Unpool, nn.MaxUnpool3d):  # type: ignore[misc]
    """A max over 3 axes undone: its values at their indices, zeros elsewhere."""

    function = staticmethod(functional.max_unpool3d)


@documented("nn.LPPool1d(2, 2)(torch.ones(1, 4)).shape", "torch.Size([1, 2])")
class LPPool1d(_LP, nn.LPPool1d):  # type: ignore[misc]
    """The p-norm of each window of 1 axis."""

    function = staticmethod(functional.lp_pool1d)


@documented("nn.LPPool2d(2, 2)(torch.ones(1, 4, 4)).shape", "torch.Size([1, 2, 2])")
class LPPool2d(_LP, nn.LPPool2d):  # type: ignore[misc]
    """The p-norm of each window of 2 axes."""

    function = staticmethod(functional.lp_pool2d)


@documented("nn.LPPool3d(2, 2)(torch.ones(1, 4, 4, 4)).shape", "torch.Size([1, 2, 2, 2])")
class LPPool3d(_LP, nn.LPPool3d):  # type: ignore[misc]
    """The p-norm of each window of 3 axes."""

    function = staticmethod(functional.lp_pool3d)
