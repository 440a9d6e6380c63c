"""The convolutions: sliding windows on the last axes, and a weight for each of their cells."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from lunette.annotations import Axes, Kernel, Padding, Sizes
from lunette.arguments import shape_tuple, size, sizes, tuple_of_sizes
from lunette.ops.base import Op, Shape, kind_of, shortest, shortest_padding, sliding
from lunette.regions import Sliding, transposed_length

__all__ = ["Conv", "ConvTranspose", "Convolution"]


class Convolution(Op):
    """What a convolution and its transpose share: windows that slide over an image.

    The weights of both are `(windows' channels, image's channels / groups, *kernel)`. A convolution
    reads the image and gives a number per window; its transpose reads a number per window and gives
    the image. An interpreter needs nothing but `regions`, `groups` and `transposed`.
    """

    kernel: Kernel
    stride: Any
    padding: Any
    dilation: Any
    groups: int
    regions: tuple[Sliding, ...]
    transposed: bool
    operand_names = ("x", "weight", "bias")

    def _set_regions(self) -> None:
        kernel = tuple_of_sizes(self.kernel, "kernel")
        values = sliding(
            kernel,
            sizes(self.stride, len(kernel), "stride", 1),
            self.padding,
            self.dilation,
        )
        groups = size(self.groups, "groups", 1)
        for name, value in {**values, "groups": groups}.items():
            object.__setattr__(self, name, value)

    @property
    def rank(self) -> int:
        """The number of axes that the windows slide over."""
        return len(self.regions)

    def out_shape(self, *shapes: Shape) -> Shape:
        """Shape of the result for an x, a weight and maybe a bias of these shapes."""
        self._check_count(len(shapes))
        x, weight, *bias = (
            shape_tuple(shape, f"shape of {name}")
            for shape, name in zip(shapes, self.operand_names, strict=False)
        )
        if len(x) < self.rank + 1:
            raise ValueError(
                f"{self!r} needs x of shape (*batch, channels, *{self.rank} axes); "
                f"x of shape {x} has {len(x)} axes"
            )
        spatial = self.places(len(x))
        channel = max(axis for axis in range(len(x)) if axis not in spatial)
        channels = self._check_channels(x, channel, weight)
        if bias and bias[0] != (channels,):
            raise ValueError(
                f"bias has shape {bias[0]}; expected ({channels},), one number per output channel"
            )
        lengths = list(x)
        lengths[channel] = channels
        for number, axis in enumerate(spatial):
            try:
                lengths[axis] = self._out_length(number, x[axis])
            except ValueError as error:
                raise ValueError(f"{self!r}, axis {axis} of shape {x}: {error}") from None
        return tuple(lengths)

    def result_dtype(self, *dtypes: np.dtype[Any]) -> np.dtype[Any]:
        """The one dtype of all operands: a float type, or objects."""
        self._check_count(len(dtypes))
        for name, dtype in zip(self.operand_names, dtypes, strict=False):
            if kind_of(dtype, name) == "integer":
                raise TypeError(
                    f"{name} has dtype {dtype}: a convolution of integers may overflow; convert to a "
                    "float type, or to an object array for exact numbers"
                )
            if dtype != dtypes[0]:
                raise TypeError(
                    f"{name} has dtype {dtype}, x has {dtypes[0]}; expected one dtype for all operands"
                )
        return dtypes[0]

    def _check_count(self, count: int) -> None:
        if count not in (2, 3):
            raise TypeError(f"{self!r} takes x, weight and maybe a bias; got {count} operands")

    def _check_channels(self, x: Shape, axis: int, weight: Shape) -> int:
        """Refuse channels that do not fit; the number of output channels otherwise."""
        order = "in, out/groups" if self.transposed else "out, in/groups"
        if len(weight) != self.rank + 2 or weight[2:] != self.kernel:
            raise ValueError(
                f"weight has shape {weight}; expected ({order}, {', '.join(map(str, self.kernel))}), "
                f"for the kernel {self.kernel}"
            )
        in_channels = x[axis]
        if in_channels < 1:
            raise ValueError(f"x has shape {x}, no channel on axis {axis}; expected at least one")
        if min(weight[:2]) < 1:
            raise ValueError(
                f"weight has shape {weight}, no channel on axis {weight.index(0)}; "
                "expected at least one"
            )
        if in_channels % self.groups:
            raise ValueError(
                f"x of shape {x} has {in_channels} channels on axis {axis}; expected a multiple of "
                f"groups={self.groups}"
            )
        if weight[0] % self.groups:
            raise ValueError(
                f"weight of shape {weight} has {weight[0]} channels on axis 0; expected a multiple "
                f"of groups={self.groups}"
            )
        expected = in_channels if self.transposed else in_channels // self.groups
        place = 0 if self.transposed else 1
        if weight[place] != expected:
            raise ValueError(
                f"weight of shape {weight} has {weight[place]} channels on axis {place}; expected "
                f"{expected}: x of shape {x} has {in_channels} channels, in groups={self.groups}"
            )
        return weight[1] * self.groups if self.transposed else weight[0]

    def _out_length(self, axis: int, n: int) -> int:
        raise NotImplementedError


@dataclass(frozen=True, repr=False, eq=False)
class Conv(Convolution):
    """Each output is the sum of weight × cell over its window: a cross-correlation, zero-padded.

    Operands: x `(*batch, in, *spatial)`, weight `(out, in/groups, *kernel)`, maybe bias `(out,)`.

    Parameters
    ----------
    kernel : tuple of int
        Cells of a window, one length per pooled axis; for an xarray DataArray also a dict by dimension.
    stride : int or tuple of int, default 1
        Positions between windows.
    padding : int, tuple, {"valid", "same"}, default 0
        Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word.
    dilation : int or tuple of int, default 1
        Positions between the cells of a window.
    groups : int, default 1
        Groups of channels that do not see each other.
    axes : int or tuple of int, optional
        The spatial axes. Default: the last.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.Conv((3, 3), padding=1).out_shape((8, 3, 32, 32), (16, 3, 3, 3))
    (8, 16, 32, 32)
    """

    kernel: Kernel
    stride: Sizes = 1
    padding: Padding = 0
    dilation: Sizes = 1
    groups: int = 1
    transposed = False
    _: KW_ONLY
    axes: Axes = None

    def __post_init__(self) -> None:
        self._set_regions()
        self._set_axes()

    def _out_length(self, axis: int, n: int) -> int:
        return self.regions[axis].out_length(n)

    def _arguments(self) -> list[tuple[str, Any, Any]]:
        return [
            ("kernel", self.kernel, None),
            ("stride", shortest(self.stride), 1),  # type: ignore[arg-type]
            ("padding", shortest_padding(self.padding), 0),
            ("dilation", shortest(self.dilation), 1),  # type: ignore[arg-type]
            ("groups", self.groups, 1),
        ]


@dataclass(frozen=True, repr=False, eq=False)
class ConvTranspose(Convolution):
    """The adjoint of `Conv` in x: each cell sends weight × itself to the window of its outputs.

    Operands: x `(*batch, in, *spatial)`, weight `(in, out/groups, *kernel)`, maybe bias `(out,)`.
    `output_padding` is smaller than stride or dilation.

    Parameters
    ----------
    kernel : tuple of int
        Cells of a window, one length per pooled axis; for an xarray DataArray also a dict by dimension.
    stride : int or tuple of int, default 1
        Positions between windows.
    padding : int, tuple, {"valid", "same"}, default 0
        Cells around the input: a number, one per axis, a (before, after) pair per axis, or a word.
    output_padding : int or tuple of int, default 0
        Positions added at the end of each axis.
    dilation : int or tuple of int, default 1
        Positions between the cells of a window.
    groups : int, default 1
        Groups of channels that do not see each other.
    axes : int or tuple of int, optional
        The spatial axes. Default: the last.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.ConvTranspose((2, 2), stride=2).out_shape((8, 3, 16, 16), (3, 16, 2, 2))
    (8, 16, 32, 32)
    """

    kernel: Kernel
    stride: Sizes = 1
    padding: Padding = 0
    output_padding: Sizes = 0
    dilation: Sizes = 1
    groups: int = 1
    transposed = True
    _: KW_ONLY
    axes: Axes = None

    def __post_init__(self) -> None:
        if isinstance(self.padding, str) and str.__str__(self.padding) == "same":
            raise ValueError(
                "padding='same': a transposed convolution has none; give the padding in numbers"
            )
        self._set_regions()
        extra = sizes(self.output_padding, self.rank, "output_padding", 0)
        object.__setattr__(self, "output_padding", extra)
        self._set_axes()
        for axis, (region, n) in enumerate(zip(self.regions, extra, strict=True)):
            if n >= max(region.stride or 1, region.dilation):
                raise ValueError(
                    f"output_padding={n} on axis {axis}: expected less than the stride "
                    f"{region.stride} or the dilation {region.dilation}"
                )

    def _out_length(self, axis: int, n: int) -> int:
        return transposed_length(
            n,
            self.kernel[axis],
            self.stride[axis],  # type: ignore[index]
            self.padding[axis],  # type: ignore[index, arg-type]
            self.dilation[axis],  # type: ignore[index]
            self.output_padding[axis],  # type: ignore[index]
        )

    def _arguments(self) -> list[tuple[str, Any, Any]]:
        return [
            ("kernel", self.kernel, None),
            ("stride", shortest(self.stride), 1),  # type: ignore[arg-type]
            ("padding", shortest_padding(self.padding), 0),
            ("output_padding", shortest(self.output_padding), 0),  # type: ignore[arg-type]
            ("dilation", shortest(self.dilation), 1),  # type: ignore[arg-type]
            ("groups", self.groups, 1),
        ]
