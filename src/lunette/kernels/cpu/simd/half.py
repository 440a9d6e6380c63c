"""How elements are stored and computed with: a half type is a pattern of 16 bits and a float32.

A codec has the type in memory, the type of the arithmetic, and the two conversions. Widening is
exact. Narrowing rounds once, to nearest, ties to even, with subnormals, and keeps NaNs.
"""

# Numba types the kernels, not mypy; `v != v` is how a NaN is known.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: PLR0124

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import types

from lunette.kernels.cpu.jit.intrinsics import bits, compiled, real

__all__ = ["INFINITY", "DType", "dtype_of", "ordered"]

INFINITY = {"ordered bfloat16": 0x7F80, "ordered float16": 0x7C00}
"""The pattern of +∞, for half types that are compared as integers."""


class DType(NamedTuple):
    """Element type in memory, type of the arithmetic, `load` and `store` between them.

    `kept` is the type that results have in memory: integers computed as reals stay reals.
    """

    memory: Any
    work: Any
    kept: Any
    load: Callable[..., Any]
    store: Callable[..., Any]
    half: str

    @property
    def lowest(self) -> Any:
        """The number that no other is below."""
        if self.half in INFINITY:
            return self.work(-1 - INFINITY[self.half])
        if isinstance(self.work, types.Float):
            return self.work(-math.inf)
        return self.work(self.work.minval)

    @property
    def scratch(self) -> DType:
        """The codec of intermediate results, which are kept as they are computed."""
        return DType(self.work, self.work, self.work, same, same, "")


@cache
def dtype_of(dtype: str, real_arithmetic: bool) -> DType:
    """The codec of a dtype by name; integers become float64 where the arithmetic is real."""
    if dtype == "bfloat16":
        return DType(
            types.uint16, types.float32, types.uint16, widen_bfloat16, narrow_bfloat16, dtype
        )
    if dtype == "float16":
        return DType(
            types.uint16, types.float32, types.uint16, widen_float16, narrow_float16, dtype
        )
    memory = types.uint8 if dtype == "bool" else getattr(types, dtype)
    if real_arithmetic and not dtype.startswith("float"):
        return DType(memory, types.float64, types.float64, as_float64, same, "")
    return DType(memory, memory, memory, same, same, "")


@cache
def ordered(dtype: str) -> DType:
    """A half type as integers that compare as its numbers do: for a max, twice the lanes.

    Two things are different: NaNs have a place in the order, and −0 is below +0. Vectors that hold
    either are `isnan_bits`.
    """
    kind = f"ordered {dtype}"
    return DType(types.uint16, types.int16, types.uint16, into_order, out_of_order, kind)


@compiled
def into_order(h):
    """A negative number's magnitude upside down."""
    key = np.int16(h)
    return np.int16(key ^ ((key >> np.int16(15)) & np.int16(0x7FFF)))


@compiled
def out_of_order(key):
    """The pattern of a place in the order."""
    return np.uint16(into_order(key))


@compiled
def same(v):
    """A number as it is."""
    return v


@compiled
def as_float64(v):
    """An integer, rounded once."""
    return np.float64(v)


@compiled
def widen_bfloat16(h):
    """The upper half of a float32."""
    return real(np.int32(np.uint32(h) << np.uint32(16)))


@compiled
def narrow_bfloat16(v):
    """Round the lower half away; a NaN becomes the plain one of its sign, as in ml_dtypes."""
    b = np.uint32(bits(v))
    odd = (b >> np.uint32(16)) & np.uint32(1)
    rounded = (b + np.uint32(0x7FFF) + odd) >> np.uint32(16)
    nan = ((b >> np.uint32(16)) & np.uint32(0x8000)) | np.uint32(0x7FC0)
    return np.uint16(nan if v != v else rounded)


@compiled
def widen_float16(h):
    """Exponent and fraction moved into place and scaled by 2¹¹², which is exact for subnormals too."""
    h = np.uint32(h)
    magnitude = np.int32((h & np.uint32(0x7FFF)) << np.uint32(13))
    scaled = real(magnitude) * np.float32(2.0**112)
    special = (h & np.uint32(0x7C00)) == np.uint32(0x7C00)  # infinities and NaNs
    pattern = magnitude | np.int32(0x7F800000) if special else bits(scaled)
    sign = np.int32((h & np.uint32(0x8000)) << np.uint32(16))
    return real(np.int32(pattern | sign))


@compiled
def narrow_float16(v):
    """Round by adding a number whose last place is the last place of the result."""
    b = np.uint32(bits(v))
    magnitude = b & np.uint32(0x7FFFFFFF)
    # Normal results: half of the last place, less one for an even last bit, then truncate.
    odd = (magnitude >> np.uint32(13)) & np.uint32(1)
    normal = (magnitude - np.uint32(112 << 23) + np.uint32(0xFFF) + odd) >> np.uint32(13)
    # Subnormal results: the last place of 0.5 in float32 is 2⁻²⁴, that of a float16 subnormal.
    shifted = real(np.int32(magnitude)) + np.float32(0.5)
    subnormal = np.uint32(bits(shifted)) - np.uint32(126 << 23)
    result = subnormal if magnitude < np.uint32(113 << 23) else normal
    result = np.uint32(0x7C00) if magnitude >= np.uint32(143 << 23) else result
    nan = np.uint32(0x7C00) | ((magnitude >> np.uint32(13)) & np.uint32(0x3FF))
    nan = nan + np.uint32(nan == np.uint32(0x7C00))  # no payload may read as infinity
    result = nan if magnitude > np.uint32(0x7F800000) else result
    return np.uint16(result | ((b >> np.uint32(16)) & np.uint32(0x8000)))
