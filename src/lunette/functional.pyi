"""What type checkers read of `functional.py`: the kind of array that goes in comes out; nested lists give NumPy's.

A mean of integers is of floats, so of NumPy's arrays the dtype is left open.
"""

from typing import Any, Literal, TypeAlias, overload

from numpy.typing import NDArray

from lunette.annotations import Axes, Given, Kernel, NamedBins, Padding, Plain, Sizes, Ties, Windows

Result: TypeAlias = NDArray[Any]

__all__: list[str]

@overload
def max_pool(
    x: Plain,
    kernel: Windows,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    ties: Ties = ...,
    return_indices: Literal[False] = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Result: ...
@overload
def max_pool(
    x: Plain,
    kernel: Windows,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    ties: Ties = ...,
    *,
    return_indices: Literal[True],
    backend: str | None = ...,
    axes: Axes = ...,
) -> tuple[Result, Result]: ...
@overload
def max_pool(
    x: Given,
    kernel: Windows,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    ties: Ties = ...,
    return_indices: Literal[False] = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Given: ...
@overload
def max_pool(
    x: Given,
    kernel: Windows,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    ties: Ties = ...,
    *,
    return_indices: Literal[True],
    backend: str | None = ...,
    axes: Axes = ...,
) -> tuple[Given, Given]: ...
@overload
def max_pool(
    x: Any,
    kernel: Windows,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    ties: Ties = ...,
    return_indices: bool = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Any: ...
@overload
def min_pool(
    x: Plain,
    kernel: Windows,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    ties: Ties = ...,
    return_indices: Literal[False] = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Result: ...
@overload
def min_pool(
    x: Plain,
    kernel: Windows,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    ties: Ties = ...,
    *,
    return_indices: Literal[True],
    backend: str | None = ...,
    axes: Axes = ...,
) -> tuple[Result, Result]: ...
@overload
def min_pool(
    x: Given,
    kernel: Windows,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    ties: Ties = ...,
    return_indices: Literal[False] = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Given: ...
@overload
def min_pool(
    x: Given,
    kernel: Windows,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    ties: Ties = ...,
    *,
    return_indices: Literal[True],
    backend: str | None = ...,
    axes: Axes = ...,
) -> tuple[Given, Given]: ...
@overload
def min_pool(
    x: Any,
    kernel: Windows,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    ties: Ties = ...,
    return_indices: bool = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Any: ...
@overload
def mode_pool(
    x: Plain,
    kernel: Windows,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    ties: Literal["smallest", "first"] = ...,
    sparse: bool = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Result: ...
@overload
def mode_pool(
    x: Given,
    kernel: Windows,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    ties: Literal["smallest", "first"] = ...,
    sparse: bool = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Given: ...
@overload
def avg_pool(
    x: Plain,
    kernel: Windows,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    count_include_pad: bool = ...,
    divisor_override: int | None = ...,
    dtype: Literal["same"] | None = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Result: ...
@overload
def avg_pool(
    x: Given,
    kernel: Windows,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    count_include_pad: bool = ...,
    divisor_override: int | None = ...,
    dtype: Literal["same"] | None = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Given: ...
@overload
def smooth_max_pool(
    x: Plain,
    kernel: Windows,
    beta: float,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    count_include_pad: bool = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Result: ...
@overload
def smooth_max_pool(
    x: Given,
    kernel: Windows,
    beta: float,
    stride: Sizes | None = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    ceil_mode: bool = ...,
    count_include_pad: bool = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Given: ...
@overload
def adaptive_avg_pool(
    x: Plain,
    output_size: NamedBins,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Result: ...
@overload
def adaptive_avg_pool(
    x: Given,
    output_size: NamedBins,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Given: ...
@overload
def adaptive_max_pool(
    x: Plain,
    output_size: NamedBins,
    ties: Ties = ...,
    return_indices: Literal[False] = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Result: ...
@overload
def adaptive_max_pool(
    x: Plain,
    output_size: NamedBins,
    ties: Ties = ...,
    *,
    return_indices: Literal[True],
    backend: str | None = ...,
    axes: Axes = ...,
) -> tuple[Result, Result]: ...
@overload
def adaptive_max_pool(
    x: Given,
    output_size: NamedBins,
    ties: Ties = ...,
    return_indices: Literal[False] = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Given: ...
@overload
def adaptive_max_pool(
    x: Given,
    output_size: NamedBins,
    ties: Ties = ...,
    *,
    return_indices: Literal[True],
    backend: str | None = ...,
    axes: Axes = ...,
) -> tuple[Given, Given]: ...
@overload
def adaptive_max_pool(
    x: Any,
    output_size: NamedBins,
    ties: Ties = ...,
    return_indices: bool = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Any: ...
@overload
def global_avg_pool(
    x: Plain,
    ndim: int | None = ...,
    keepdims: bool = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Result: ...
@overload
def global_avg_pool(
    x: Given,
    ndim: int | None = ...,
    keepdims: bool = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Given: ...
@overload
def global_max_pool(
    x: Plain,
    ndim: int | None = ...,
    keepdims: bool = ...,
    ties: Ties = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Result: ...
@overload
def global_max_pool(
    x: Given,
    ndim: int | None = ...,
    keepdims: bool = ...,
    ties: Ties = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Given: ...
@overload
def max_unpool(values: Plain, indices: Any, output_size: Kernel, *, axes: Axes = ...) -> Result: ...
@overload
def max_unpool(values: Given, indices: Any, output_size: Kernel, *, axes: Axes = ...) -> Given: ...
@overload
def conv(
    x: Plain,
    weight: Plain,
    bias: Plain | None = ...,
    stride: Sizes = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    groups: int = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Result: ...
@overload
def conv(
    x: Given,
    weight: Given,
    bias: Given | None = ...,
    stride: Sizes = ...,
    padding: Padding = ...,
    dilation: Sizes = ...,
    groups: int = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Given: ...
@overload
def conv_transpose(
    x: Plain,
    weight: Plain,
    bias: Plain | None = ...,
    stride: Sizes = ...,
    padding: Padding = ...,
    output_padding: Sizes = ...,
    dilation: Sizes = ...,
    groups: int = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Result: ...
@overload
def conv_transpose(
    x: Given,
    weight: Given,
    bias: Given | None = ...,
    stride: Sizes = ...,
    padding: Padding = ...,
    output_padding: Sizes = ...,
    dilation: Sizes = ...,
    groups: int = ...,
    backend: str | None = ...,
    *,
    axes: Axes = ...,
) -> Given: ...
