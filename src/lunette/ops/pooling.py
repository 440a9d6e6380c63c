"""The pooling ops: regions on the last axes × a reduction. Every axis before them is batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lunette.arguments import AXES, flag, listed, shape_tuple, shown, size, tuple_of_sizes
from lunette.ops.base import Op, Shape, kind_of, shortest, shortest_padding, sliding
from lunette.reductions import Max, Mean, Reduction, SmoothMax
from lunette.regions import Adaptive, Global, Region

__all__ = [
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "AvgPool",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "MaxPool",
    "Pool",
    "Pooling",
    "SmoothMaxPool",
]


class Pooling(Op):
    """A region for each of the last axes, and what to do with the cells of a window.

    An interpreter needs nothing of a pooling op but `regions`, `reduction` and `keepdims`.
    """

    regions: tuple[Region, ...]
    reduction: Reduction
    keepdims: bool = True

    @property
    def rank(self) -> int:
        """The number of pooled axes."""
        return len(self.regions)

    def out_shape(self, *shapes: Shape) -> Shape:
        """Shape of the result for an input of this shape."""
        if len(shapes) != 1:
            raise TypeError(f"{self!r} takes one operand, got {len(shapes)}")
        shape = shape_tuple(shapes[0])
        if len(shape) < self.rank:
            raise ValueError(
                f"{self!r} pools the last {self.rank} axes; x of shape {shape} has {len(shape)}"
            )
        batch, pooled = shape[: len(shape) - self.rank], shape[len(shape) - self.rank :]
        lengths = []
        for axis, (region, n) in enumerate(zip(self.regions, pooled, strict=True), len(batch)):
            try:
                lengths.append(region.out_length(n))
            except ValueError as error:
                raise ValueError(f"{self!r}, axis {axis} of shape {shape}: {error}") from None
        return batch + tuple(lengths) if self.keepdims else batch

    def check_indices(self) -> None:
        """Only a max has winners."""
        if not isinstance(self.reduction, Max):
            super().check_indices()

    def result_dtype(self, *dtypes: np.dtype[Any]) -> np.dtype[Any]:
        """Max keeps the dtype; mean and smooth max of integers give float64."""
        (dtype,) = dtypes
        if isinstance(self.reduction, SmoothMax):
            _check_beta(self.reduction.beta, dtype)
        if kind_of(dtype) == "integer" and not isinstance(self.reduction, Max):
            return np.dtype(np.float64)
        return dtype


def _check_beta(beta: float, dtype: np.dtype[Any]) -> None:
    """beta must survive in the type the arithmetic is done in: float32 for the half types."""
    if dtype.name in ("float16", "bfloat16", "float32"):
        with np.errstate(over="ignore", under="ignore"):
            rounded = np.float32(beta)
        if rounded == 0 or not np.isfinite(rounded):
            raise ValueError(
                f"beta={beta!r} rounds to {rounded} in float32, the arithmetic of dtype {dtype}; "
                "use float64 or a beta that float32 can hold"
            )


@dataclass(frozen=True, repr=False, eq=False)
class Pool(Pooling):
    """The general pooling: one region per pooled axis and a reduction."""

    regions: tuple[Region, ...]
    reduction: Reduction
    keepdims: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.regions, (tuple, list)):
            raise TypeError(
                f"regions={shown(self.regions)}: expected a tuple of regions, one per axis"
            )
        regions = tuple(listed(self.regions))
        object.__setattr__(self, "regions", regions)
        known = all(isinstance(r, Region) and type(r) is not Region for r in regions)
        if not regions or not known:
            raise TypeError(f"regions={shown(regions)}: expected a tuple of regions, one per axis")
        if len(regions) > AXES:
            raise ValueError(
                f"regions={shown(regions)}: expected at most {AXES}, for arrays have at most "
                f"{AXES} axes; got {len(regions)}"
            )
        if not isinstance(self.reduction, (Max, Mean, SmoothMax)):
            raise TypeError(f"reduction={shown(self.reduction)}: expected Max, Mean or SmoothMax")
        flag(self.keepdims, "keepdims")
        if not self.keepdims and any(not isinstance(r, Global) for r in self.regions):
            raise ValueError("keepdims=False: only global regions have axes that may be dropped")
        self._remember_text()

    def _arguments(self) -> list[tuple[str, Any, Any]]:
        return [
            ("regions", self.regions, None),
            ("reduction", self.reduction, None),
            ("keepdims", self.keepdims, True),
        ]


class _SlidingPool(Pooling):
    """What the sliding ops share: the arguments of their regions."""

    kernel: tuple[int, ...]
    stride: Any
    padding: Any
    dilation: Any
    ceil_mode: bool

    def _set_regions(self, reduction: Reduction) -> None:
        flag(self.ceil_mode, "ceil_mode")
        values = sliding(self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)
        for name, value in {**values, "reduction": reduction}.items():
            object.__setattr__(self, name, value)
        self._remember_text()

    def _arguments(self) -> list[tuple[str, Any, Any]]:
        stride = None if self.stride == self.kernel else shortest(self.stride)
        return [
            ("kernel", self.kernel, None),
            *self._own_arguments_first(),
            ("stride", stride, None),
            ("padding", shortest_padding(self.padding), 0),
            ("dilation", shortest(self.dilation), 1),
            ("ceil_mode", self.ceil_mode, False),
            *self._own_arguments(),
        ]

    def _own_arguments_first(self) -> list[tuple[str, Any, Any]]:
        return []

    def _own_arguments(self) -> list[tuple[str, Any, Any]]:
        return []


@dataclass(frozen=True, repr=False, eq=False)
class MaxPool(_SlidingPool):
    """The largest cell of each window. Padding is never seen; see `ties` in `Max`."""

    kernel: tuple[int, ...]
    stride: int | tuple[int, ...] | None = None
    padding: Any = 0
    dilation: int | tuple[int, ...] = 1
    ceil_mode: bool = False
    ties: str = "first"

    def __post_init__(self) -> None:
        reduction = Max(self.ties)
        object.__setattr__(self, "ties", reduction.ties)
        self._set_regions(reduction)

    def _own_arguments(self) -> list[tuple[str, Any, Any]]:
        return [("ties", self.ties, "first")]


@dataclass(frozen=True, repr=False, eq=False)
class AvgPool(_SlidingPool):
    """The mean of each window; padding counts as zeros while `count_include_pad`."""

    kernel: tuple[int, ...]
    stride: int | tuple[int, ...] | None = None
    padding: Any = 0
    dilation: int | tuple[int, ...] = 1
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None

    def __post_init__(self) -> None:
        reduction = Mean(self.count_include_pad, self.divisor_override)
        object.__setattr__(self, "divisor_override", reduction.divisor_override)
        self._set_regions(reduction)

    def _own_arguments(self) -> list[tuple[str, Any, Any]]:
        return [
            ("count_include_pad", self.count_include_pad, True),
            ("divisor_override", self.divisor_override, None),
        ]


@dataclass(frozen=True, repr=False, eq=False)
class SmoothMaxPool(_SlidingPool):
    """`(1/beta) log Σ exp(beta·x)` of each window; padding counts as zeros while asked to."""

    kernel: tuple[int, ...]
    beta: float
    stride: int | tuple[int, ...] | None = None
    padding: Any = 0
    dilation: int | tuple[int, ...] = 1
    ceil_mode: bool = False
    count_include_pad: bool = True

    def __post_init__(self) -> None:
        reduction = SmoothMax(self.beta, self.count_include_pad)
        object.__setattr__(self, "beta", reduction.beta)
        self._set_regions(reduction)

    def _own_arguments_first(self) -> list[tuple[str, Any, Any]]:
        return [("beta", self.beta, None)]

    def _own_arguments(self) -> list[tuple[str, Any, Any]]:
        return [("count_include_pad", self.count_include_pad, True)]


class _AdaptivePool(Pooling):
    """What the adaptive ops share: `output_size` bins per axis."""

    output_size: tuple[int, ...]

    def _set_regions(self, reduction: Reduction) -> None:
        output_size = tuple_of_sizes(self.output_size, "output_size")
        object.__setattr__(self, "output_size", output_size)
        object.__setattr__(self, "regions", tuple(Adaptive(m) for m in output_size))
        object.__setattr__(self, "reduction", reduction)
        self._remember_text()


@dataclass(frozen=True, repr=False, eq=False)
class AdaptiveAvgPool(_AdaptivePool):
    """The mean of each of `output_size` bins."""

    output_size: tuple[int, ...]

    def __post_init__(self) -> None:
        self._set_regions(Mean())

    def _arguments(self) -> list[tuple[str, Any, Any]]:
        return [("output_size", self.output_size, None)]


@dataclass(frozen=True, repr=False, eq=False)
class AdaptiveMaxPool(_AdaptivePool):
    """The largest cell of each of `output_size` bins."""

    output_size: tuple[int, ...]
    ties: str = "first"

    def __post_init__(self) -> None:
        reduction = Max(self.ties)
        object.__setattr__(self, "ties", reduction.ties)
        self._set_regions(reduction)

    def _arguments(self) -> list[tuple[str, Any, Any]]:
        return [("output_size", self.output_size, None), ("ties", self.ties, "first")]


class _GlobalPool(Pooling):
    """What the global ops share: one window over the last `ndim` axes."""

    ndim: int

    def _set_regions(self, reduction: Reduction) -> None:
        ndim = size(self.ndim, "ndim", 1)
        if ndim > AXES:
            raise ValueError(f"ndim={ndim}: expected at most {AXES}; arrays have at most 64 axes")
        flag(self.keepdims, "keepdims")
        object.__setattr__(self, "ndim", ndim)
        object.__setattr__(self, "regions", (Global(),) * ndim)
        object.__setattr__(self, "reduction", reduction)
        self._remember_text()


@dataclass(frozen=True, repr=False, eq=False)
class GlobalAvgPool(_GlobalPool):
    """The mean over the last `ndim` axes, kept with length one or dropped."""

    ndim: int
    keepdims: bool = True

    def __post_init__(self) -> None:
        self._set_regions(Mean())

    def _arguments(self) -> list[tuple[str, Any, Any]]:
        return [("ndim", self.ndim, None), ("keepdims", self.keepdims, True)]


@dataclass(frozen=True, repr=False, eq=False)
class GlobalMaxPool(_GlobalPool):
    """The largest cell over the last `ndim` axes; every tied cell gets the gradient by default."""

    ndim: int
    keepdims: bool = True
    ties: str = "all"

    def __post_init__(self) -> None:
        reduction = Max(self.ties)
        object.__setattr__(self, "ties", reduction.ties)
        self._set_regions(reduction)

    def _arguments(self) -> list[tuple[str, Any, Any]]:
        return [
            ("ndim", self.ndim, None),
            ("keepdims", self.keepdims, True),
            ("ties", self.ties, "all"),
        ]
