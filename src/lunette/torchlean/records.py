"""The layer records: frozen, and checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from lunette.arguments import size, sizes, tuple_of_sizes

__all__ = [
    "AdaptiveAvgPool2DSpec",
    "AdaptiveMaxPool2DSpec",
    "AvgPool2DSpec",
    "AvgPoolSpec",
    "GlobalAvgPool2DSpec",
    "GlobalMaxPool2DSpec",
    "MaxPool2DSpec",
    "MaxPoolSpec",
    "checked",
]

Layer = TypeVar("Layer")


@dataclass(frozen=True, slots=True)
class _PositiveSizes:
    """A record whose fields are all sizes of at least one."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = size(getattr(self, field.name), field.name, 1)
            object.__setattr__(self, field.name, value)


@dataclass(frozen=True, slots=True)
class MaxPool2DSpec(_PositiveSizes):
    """Max over windows of `kH × kW`, every `stride` cells on both axes."""

    kH: int
    kW: int
    stride: int


@dataclass(frozen=True, slots=True)
class AvgPool2DSpec(_PositiveSizes):
    """Mean over windows of `kH × kW`, every `stride` cells on both axes."""

    kH: int
    kW: int
    stride: int


@dataclass(frozen=True, slots=True)
class AdaptiveAvgPool2DSpec(_PositiveSizes):
    """Mean over `outH × outW` bins."""

    outH: int
    outW: int


@dataclass(frozen=True, slots=True)
class AdaptiveMaxPool2DSpec(_PositiveSizes):
    """Max over `outH × outW` bins."""

    outH: int
    outW: int


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows on any number of axes; `padding` is symmetric. An int stands for one per axis."""

    kernel: tuple[int, ...]
    stride: int | tuple[int, ...]
    padding: int | tuple[int, ...]

    def __post_init__(self) -> None:
        kernel = tuple_of_sizes(self.kernel, "kernel")
        object.__setattr__(self, "kernel", kernel)
        object.__setattr__(self, "stride", sizes(self.stride, len(kernel), "stride", 1))
        object.__setattr__(self, "padding", sizes(self.padding, len(kernel), "padding", 0))


@dataclass(frozen=True, slots=True)
class MaxPoolSpec(_Windows):
    """Max over windows on `len(kernel)` axes; smooth max takes this record too."""


@dataclass(frozen=True, slots=True)
class AvgPoolSpec(_Windows):
    """Mean over windows on `len(kernel)` axes; padding counts as zeros."""


@dataclass(frozen=True, slots=True)
class GlobalAvgPool2DSpec:
    """Mean over a whole channel."""


@dataclass(frozen=True, slots=True)
class GlobalMaxPool2DSpec:
    """Max over a whole channel."""


def checked(layer: Any, kind: type[Layer]) -> Layer:
    """`layer`, if it is the record that this function takes."""
    if not isinstance(layer, kind):
        raise TypeError(f"layer={layer!r}: expected the record {kind.__name__}")
    return layer
