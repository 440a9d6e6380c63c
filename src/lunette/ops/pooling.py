"""The pooling ops: regions on the last axes, or on `axes`, × a reduction. Every other axis is batch."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from lunette.annotations import Axes, Bins, Kernel, Padding, Sizes, Ties
from lunette.arguments import AXES, choice, flag, listed, shape_tuple, shown, size, tuple_of_sizes
from lunette.ops.base import Op, Shape, kind_of, shortest, shortest_padding, sliding
from lunette.reductions import Max, Mean, Min, Mode, Reduction, RoundedMean, SmoothMax
from lunette.regions import Adaptive, Global, Region, Sliding

__all__ = [
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "AvgPool",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "MaxPool",
    "MinPool",
    "ModePool",
    "Pool",
    "Pooling",
    "SmoothMaxPool",
]


class Pooling(Op):
    """A region for each pooled axis, and what to do with the cells of a window.

    An interpreter needs nothing of a pooling op but `regions`, `reduction` and `keepdims`: it gets the op
    over the last axes.
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
            which = f"the last {self.rank} axes" if self.axes is None else f"{self.rank} axes"
            raise ValueError(f"{self!r} pools {which}; x of shape {shape} has {len(shape)}")
        lengths, pooled = list(shape), self.places(len(shape))
        for axis, region in zip(pooled, self.regions, strict=True):
            try:
                lengths[axis] = region.out_length(shape[axis])
            except ValueError as error:
                raise ValueError(f"{self!r}, axis {axis} of shape {shape}: {error}") from None
        if self.keepdims:
            return tuple(lengths)
        return tuple(n for axis, n in enumerate(shape) if axis not in pooled)

    def check_indices(self) -> None:
        """Only a max or a min has winners."""
        if not isinstance(self.reduction, (Max, Min)):
            super().check_indices()

    def result_dtype(self, *dtypes: np.dtype[Any]) -> np.dtype[Any]:
        """Max, min and mode keep the dtype; mean and smooth max of integers give float64."""
        (dtype,) = dtypes
        if isinstance(self.reduction, Mode) and kind_of(dtype) == "float":
            raise TypeError(
                f"x has dtype {dtype}: a mode counts equal values, expected an integer type or bool; "
                "use a mean or a max of floats, or convert to an integer type"
            )
        if isinstance(self.reduction, RoundedMean) and dtype.kind == "b":
            raise TypeError(
                "x has dtype bool, which has no mean of its own; use a mode, or convert to uint8"
            )
        if isinstance(self.reduction, (Max, Min, Mode, RoundedMean)):
            return dtype
        if isinstance(self.reduction, SmoothMax):
            _check_beta(self.reduction.beta, dtype)
        return np.dtype(np.float64) if kind_of(dtype) == "integer" else dtype

    def _repr_svg_(self) -> str | None:
        """A drawing of the windows, for notebooks; None where they are too long to draw."""
        from lunette.drawing import draw

        try:
            return draw(self)
        except ValueError:
            return None

    def _check_differentiable(self, dtypes: tuple[np.dtype[Any], ...]) -> None:
        if isinstance(self.reduction, Mode):
            raise TypeError(f"{self!r}: a mode has no derivative")
        super()._check_differentiable(dtypes)


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
    """The general pooling: one region per pooled axis and a reduction.

    Parameters
    ----------
    regions : tuple of Sliding, Adaptive or Global
        Which cells an output reads, one region per pooled axis.
    reduction : Max, Min, Mean, RoundedMean, SmoothMax or Mode
        What happens to the cells of a window.
    keepdims : bool, default True
        Keep the pooled axes, with length one.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.Pool((ln.Adaptive(2), ln.Sliding(3)), ln.Max()).out_shape((5, 9))
    (2, 3)
    """

    regions: tuple[Region, ...]
    reduction: Reduction
    keepdims: bool = True
    _: KW_ONLY
    axes: Axes = None

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
        if not isinstance(self.reduction, (Max, Mean, SmoothMax, Min, Mode, RoundedMean)):
            raise TypeError(
                f"reduction={shown(self.reduction)}: expected Max, Min, Mean, RoundedMean, SmoothMax or "
                "Mode"
            )
        flag(self.keepdims, "keepdims")
        if not self.keepdims and any(not isinstance(r, Global) for r in self.regions):
            raise ValueError("keepdims=False: only global regions have axes that may be dropped")
        self._set_axes()
        self._remember_text()

    def _arguments(self) -> list[tuple[str, Any, Any]]:
        return [
            ("regions", self.regions, None),
            ("reduction", self.reduction, None),
            ("keepdims", self.keepdims, True),
        ]


class _SlidingPool(Pooling):
    """What the sliding ops share: the arguments of their regions."""

    kernel: Kernel
    stride: Any
    padding: Any
    dilation: Any
    ceil_mode: bool

    def _set_regions(self, reduction: Reduction) -> None:
        flag(self.ceil_mode, "ceil_mode")
        values = sliding(self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)
        for name, value in {**values, "reduction": reduction}.items():
            object.__setattr__(self, name, value)
        self._set_axes()
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
    """The largest cell of each window. Padding is never seen.

    Parameters
    ----------
    kernel : tuple of int
        Cells of a window, one length per pooled axis; for an xarray DataArray also a dict by dimension.
    stride : int or tuple of int, optional
        Positions between windows. Default: the kernel.
    padding : int, tuple, {"valid", "same"}, default 0
        Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word.
    dilation : int or tuple of int, default 1
        Positions between the cells of a window.
    ceil_mode : bool, default False
        Keep a last window that the edge cuts short.
    ties : {"first", "all", "split"}, default "first"
        Which of equal cells wins, and so gets the gradient: the first in row-major order, each of them whole, or
        each an equal share.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.MaxPool((3, 3), stride=2, padding=1).out_shape((8, 64, 112, 112))
    (8, 64, 56, 56)
    """

    kernel: Kernel
    stride: Sizes | None = None
    padding: Padding = 0
    dilation: Sizes = 1
    ceil_mode: bool = False
    ties: Ties = "first"
    _: KW_ONLY
    axes: Axes = None

    def __post_init__(self) -> None:
        reduction = Max(self.ties)
        object.__setattr__(self, "ties", reduction.ties)
        self._set_regions(reduction)

    def _own_arguments(self) -> list[tuple[str, Any, Any]]:
        return [("ties", self.ties, "first")]


@dataclass(frozen=True, repr=False, eq=False)
class MinPool(_SlidingPool):
    """The smallest cell of each window. Padding is never seen.

    Parameters
    ----------
    kernel : tuple of int
        Cells of a window, one length per pooled axis; for an xarray DataArray also a dict by dimension.
    stride : int or tuple of int, optional
        Positions between windows. Default: the kernel.
    padding : int, tuple, {"valid", "same"}, default 0
        Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word.
    dilation : int or tuple of int, default 1
        Positions between the cells of a window.
    ceil_mode : bool, default False
        Keep a last window that the edge cuts short.
    ties : {"first", "all", "split"}, default "first"
        Which of equal cells wins, and so gets the gradient: the first in row-major order, each of them whole, or
        each an equal share.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.MinPool((2, 2)).out_shape((8, 8))
    (4, 4)
    """

    kernel: Kernel
    stride: Sizes | None = None
    padding: Padding = 0
    dilation: Sizes = 1
    ceil_mode: bool = False
    ties: Ties = "first"
    _: KW_ONLY
    axes: Axes = None

    def __post_init__(self) -> None:
        reduction = Min(self.ties)
        object.__setattr__(self, "ties", reduction.ties)
        self._set_regions(reduction)

    def _own_arguments(self) -> list[tuple[str, Any, Any]]:
        return [("ties", self.ties, "first")]


@dataclass(frozen=True, repr=False, eq=False)
class ModePool(_SlidingPool):
    """The most frequent value of each window, of integers or bools: how label images shrink.

    Padding is never seen. There is no derivative.

    Parameters
    ----------
    kernel : tuple of int
        Cells of a window, one length per pooled axis; for an xarray DataArray also a dict by dimension.
    stride : int or tuple of int, optional
        Positions between windows. Default: the kernel.
    padding : int, tuple, {"valid", "same"}, default 0
        Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word.
    dilation : int or tuple of int, default 1
        Positions between the cells of a window.
    ceil_mode : bool, default False
        Keep a last window that the edge cuts short.
    ties : {"smallest", "first"}, default "smallest"
        Which of equally frequent values is taken.
    sparse : bool, default False
        Let zeros have no vote where a window holds anything else.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.ModePool((2, 2, 2)).out_shape((64, 64, 64))
    (32, 32, 32)
    """

    kernel: Kernel
    stride: Sizes | None = None
    padding: Padding = 0
    dilation: Sizes = 1
    ceil_mode: bool = False
    ties: str = "smallest"
    sparse: bool = False
    _: KW_ONLY
    axes: Axes = None

    def __post_init__(self) -> None:
        reduction = Mode(self.ties, self.sparse)
        object.__setattr__(self, "ties", reduction.ties)
        self._set_regions(reduction)

    def _own_arguments(self) -> list[tuple[str, Any, Any]]:
        return [("ties", self.ties, "smallest"), ("sparse", self.sparse, False)]


@dataclass(frozen=True, repr=False, eq=False)
class AvgPool(_SlidingPool):
    """The mean of each window; padding counts as zeros while `count_include_pad`.

    Parameters
    ----------
    kernel : tuple of int
        Cells of a window, one length per pooled axis; for an xarray DataArray also a dict by dimension.
    stride : int or tuple of int, optional
        Positions between windows. Default: the kernel.
    padding : int, tuple, {"valid", "same"}, default 0
        Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word.
    dilation : int or tuple of int, default 1
        Positions between the cells of a window.
    ceil_mode : bool, default False
        Keep a last window that the edge cuts short.
    count_include_pad : bool, default True
        Count padding as zeros.
    divisor_override : int, optional
        Divide by this instead of by the cells counted.
    dtype : {"same"}, optional
        Give the mean of integers in their own type, rounded half to even, instead of in float64.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.AvgPool((2, 2), axes=(1, 2)).out_shape((8, 32, 32, 3))
    (8, 16, 16, 3)
    """

    kernel: Kernel
    stride: Sizes | None = None
    padding: Padding = 0
    dilation: Sizes = 1
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None
    dtype: str | None = None
    _: KW_ONLY
    axes: Axes = None

    def __post_init__(self) -> None:
        reduction: Any = Mean(self.count_include_pad, self.divisor_override)
        object.__setattr__(self, "divisor_override", reduction.divisor_override)
        if self.dtype is not None:
            object.__setattr__(self, "dtype", choice(self.dtype, "dtype", ("same",)))
            if self.divisor_override is not None:
                raise ValueError(
                    f"divisor_override={self.divisor_override}: a mean with dtype='same' divides by the "
                    "cells counted; expected None"
                )
            reduction = RoundedMean(self.count_include_pad)
        self._set_regions(reduction)

    def _own_arguments(self) -> list[tuple[str, Any, Any]]:
        return [
            ("count_include_pad", self.count_include_pad, True),
            ("divisor_override", self.divisor_override, None),
            ("dtype", self.dtype, None),
        ]


@dataclass(frozen=True, repr=False, eq=False)
class SmoothMaxPool(_SlidingPool):
    """`(1/beta) log Σ exp(beta·x)` of each window; padding counts as zeros while asked to.

    Parameters
    ----------
    kernel : tuple of int
        Cells of a window, one length per pooled axis; for an xarray DataArray also a dict by dimension.
    beta : float
        Finite and not zero; the larger, the closer to the max. Negative: a smooth min.
    stride : int or tuple of int, optional
        Positions between windows. Default: the kernel.
    padding : int, tuple, {"valid", "same"}, default 0
        Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word.
    dilation : int or tuple of int, default 1
        Positions between the cells of a window.
    ceil_mode : bool, default False
        Keep a last window that the edge cuts short.
    count_include_pad : bool, default True
        Count padding as zeros.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.SmoothMaxPool((2,), beta=4.0)
    SmoothMaxPool((2,), beta=4.0)
    """

    kernel: Kernel
    beta: float
    stride: Sizes | None = None
    padding: Padding = 0
    dilation: Sizes = 1
    ceil_mode: bool = False
    count_include_pad: bool = True
    _: KW_ONLY
    axes: Axes = None

    def __post_init__(self) -> None:
        reduction = SmoothMax(self.beta, self.count_include_pad)
        object.__setattr__(self, "beta", reduction.beta)
        self._set_regions(reduction)

    def _own_arguments_first(self) -> list[tuple[str, Any, Any]]:
        return [("beta", self.beta, None)]

    def _own_arguments(self) -> list[tuple[str, Any, Any]]:
        return [("count_include_pad", self.count_include_pad, True)]


def bins(value: Any) -> tuple[int | None, ...]:
    """A checked `output_size`: a number of bins per axis, or None for as many as cells."""
    if not isinstance(value, (tuple, list)):
        return tuple_of_sizes(value, "output_size")
    items = listed(value)
    numbers = iter(tuple_of_sizes(tuple(1 if m is None else m for m in items), "output_size"))
    return tuple(None if m is None else n for m, n in zip(items, numbers, strict=True))


class _AdaptivePool(Pooling):
    """What the adaptive ops share: `output_size` bins per axis; None keeps the axis as it is."""

    output_size: Bins

    def _set_regions(self, reduction: Reduction) -> None:
        output_size = bins(self.output_size)
        object.__setattr__(self, "output_size", output_size)
        # An axis that keeps its length has windows of one cell each.
        regions = tuple(Sliding(1) if m is None else Adaptive(m) for m in output_size)
        object.__setattr__(self, "regions", regions)
        object.__setattr__(self, "reduction", reduction)
        self._set_axes()
        self._remember_text()


@dataclass(frozen=True, repr=False, eq=False)
class AdaptiveAvgPool(_AdaptivePool):
    """The mean of each of `output_size` bins.

    Parameters
    ----------
    output_size : tuple of int or None
        Bins per pooled axis; None keeps an axis as it is.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.AdaptiveAvgPool((None, 2)).out_shape((5, 7))
    (5, 2)
    """

    output_size: Bins
    _: KW_ONLY
    axes: Axes = None

    def __post_init__(self) -> None:
        self._set_regions(Mean())

    def _arguments(self) -> list[tuple[str, Any, Any]]:
        return [("output_size", self.output_size, None)]


@dataclass(frozen=True, repr=False, eq=False)
class AdaptiveMaxPool(_AdaptivePool):
    """The largest cell of each of `output_size` bins.

    Parameters
    ----------
    output_size : tuple of int or None
        Bins per pooled axis; None keeps an axis as it is.
    ties : {"first", "all", "split"}, default "first"
        Which of equal cells wins, and so gets the gradient: the first in row-major order, each of them whole, or
        each an equal share.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.AdaptiveMaxPool((2, 2)).out_shape((3, 7, 5))
    (3, 2, 2)
    """

    output_size: Bins
    ties: Ties = "first"
    _: KW_ONLY
    axes: Axes = None

    def __post_init__(self) -> None:
        reduction = Max(self.ties)
        object.__setattr__(self, "ties", reduction.ties)
        self._set_regions(reduction)

    def _arguments(self) -> list[tuple[str, Any, Any]]:
        return [("output_size", self.output_size, None), ("ties", self.ties, "first")]


class _GlobalPool(Pooling):
    """What the global ops share: one window over the last `ndim` axes, or over `axes`."""

    ndim: int | None

    def _rank(self) -> int:
        if self.ndim is not None:
            return size(self.ndim, "ndim", 1)
        if self.axes is None:
            raise TypeError("ndim=None: expected how many axes to pool, or axes=, which ones")
        named = len(listed(self.axes)) if isinstance(self.axes, (tuple, list)) else 1
        if not named:
            raise ValueError("axes=(): expected at least one axis")
        return named

    def _set_regions(self, reduction: Reduction) -> None:
        ndim = self._rank()
        if ndim > AXES:
            raise ValueError(f"ndim={ndim}: expected at most {AXES}; arrays have at most 64 axes")
        flag(self.keepdims, "keepdims")
        object.__setattr__(self, "ndim", ndim)
        object.__setattr__(self, "regions", (Global(),) * ndim)
        object.__setattr__(self, "reduction", reduction)
        self._set_axes()
        self._remember_text()


@dataclass(frozen=True, repr=False, eq=False)
class GlobalAvgPool(_GlobalPool):
    """The mean over the last `ndim` axes, or over `axes`.

    Parameters
    ----------
    ndim : int, optional
        How many of the last axes are pooled; not needed with `axes`.
    keepdims : bool, default True
        Keep the pooled axes, with length one.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.GlobalAvgPool(2, keepdims=False).out_shape((8, 64, 7, 7))
    (8, 64)
    """

    ndim: int | None = None
    keepdims: bool = True
    _: KW_ONLY
    axes: Axes = None

    def __post_init__(self) -> None:
        self._set_regions(Mean())

    def _arguments(self) -> list[tuple[str, Any, Any]]:
        return [("ndim", self.ndim, None), ("keepdims", self.keepdims, True)]


@dataclass(frozen=True, repr=False, eq=False)
class GlobalMaxPool(_GlobalPool):
    """The largest cell over the last `ndim` axes, or over `axes`; every tied cell gets the gradient by default.

    Parameters
    ----------
    ndim : int, optional
        How many of the last axes are pooled; not needed with `axes`.
    keepdims : bool, default True
        Keep the pooled axes, with length one.
    ties : {"all", "first", "split"}, default "all"
        Which of equal cells wins, and so gets the gradient.
    axes : int or tuple of int, optional
        Which axes are pooled, one per window axis. Default: the last.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.GlobalMaxPool(axes=1).out_shape((8, 64, 7))
    (8, 1, 7)
    """

    ndim: int | None = None
    keepdims: bool = True
    ties: Ties = "all"
    _: KW_ONLY
    axes: Axes = None

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
