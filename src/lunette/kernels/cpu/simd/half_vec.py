"""float16 and bfloat16 on vectors, as patterns of 16 bits: to float32 and back, and in order.

The steps are those of `halves`, written for whole vectors in LLVM's own terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from lunette.kernels.cpu.simd.half import INFINITY

__all__ = ["narrowed", "ordered_lanes", "out_of_order", "widened"]


def _constants(pattern: int, vector: Any) -> Any:
    return ir.Constant(vector, [pattern] * vector.count)


def _integers(value: Any, width: int) -> Any:
    return ir.VectorType(ir.IntType(width), value.type.count)


def ordered_lanes(builder: Any, raw: Any) -> Any:
    """Half patterns as integers that compare alike, and back: the steps of `halves`, on vectors."""
    kind = raw.type
    sign = builder.ashr(raw, _constants(15, kind))
    return builder.xor(raw, builder.and_(sign, _constants(0x7FFF, kind)))


def out_of_order(builder: Any, value: Any, half: str) -> Any:
    """Lanes past either infinity, and those of −0."""
    up, kind = INFINITY[half], value.type
    place = builder.add(value, _constants(up + 1, kind))
    nan = builder.icmp_unsigned(">", place, _constants(2 * up + 1, kind))
    return builder.or_(nan, builder.icmp_signed("==", value, _constants(-1, kind)))


def widened(builder: Any, raw: Any, half: str) -> Any:
    """Half patterns as float32: the steps of `halves`, on vectors."""
    wide, single = _integers(raw, 32), ir.VectorType(ir.FloatType(), raw.type.count)
    h = builder.zext(raw, wide)
    if half == "bfloat16":
        return builder.bitcast(builder.shl(h, _constants(16, wide)), single)
    magnitude = builder.shl(builder.and_(h, _constants(0x7FFF, wide)), _constants(13, wide))
    scale = ir.Constant(single, [float(np.float32(2.0**112))] * raw.type.count)
    scaled = builder.bitcast(builder.fmul(builder.bitcast(magnitude, single), scale), wide)
    exponent = builder.and_(h, _constants(0x7C00, wide))
    special = builder.icmp_unsigned("==", exponent, _constants(0x7C00, wide))
    infinite = builder.or_(magnitude, _constants(0x7F800000, wide))
    sign = builder.shl(builder.and_(h, _constants(0x8000, wide)), _constants(16, wide))
    pattern = builder.or_(builder.select(special, infinite, scaled), sign)
    return builder.bitcast(pattern, single)


def narrowed(builder: Any, value: Any, half: str) -> Any:
    """float32 rounded to half patterns: the steps of `halves`, on vectors."""
    wide, narrow = _integers(value, 32), _integers(value, 16)
    single = value.type

    def constant(n: int) -> Any:
        return _constants(n, wide)

    b = builder.bitcast(value, wide)
    sign = builder.and_(builder.lshr(b, constant(16)), constant(0x8000))
    nan = builder.fcmp_unordered("uno", value, value)
    if half == "bfloat16":
        odd = builder.and_(builder.lshr(b, constant(16)), constant(1))
        rounded = builder.add(builder.add(b, constant(0x7FFF)), odd)
        rounded = builder.lshr(rounded, constant(16))
        return builder.trunc(
            builder.select(nan, builder.or_(sign, constant(0x7FC0)), rounded), narrow
        )
    magnitude = builder.and_(b, constant(0x7FFFFFFF))
    odd = builder.and_(builder.lshr(magnitude, constant(13)), constant(1))
    normal = builder.add(builder.sub(magnitude, constant((112 << 23) - 0xFFF)), odd)
    normal = builder.lshr(normal, constant(13))
    half_one = ir.Constant(single, [0.5] * single.count)
    shifted = builder.bitcast(builder.fadd(builder.bitcast(magnitude, single), half_one), wide)
    subnormal = builder.sub(shifted, constant(126 << 23))
    small = builder.icmp_unsigned("<", magnitude, constant(113 << 23))
    result = builder.select(small, subnormal, normal)
    large = builder.icmp_unsigned(">=", magnitude, constant(143 << 23))
    result = builder.select(large, constant(0x7C00), result)
    payload = builder.and_(builder.lshr(magnitude, constant(13)), constant(0x3FF))
    empty = builder.icmp_unsigned("==", payload, constant(0))
    payload = builder.select(empty, constant(1), payload)
    result = builder.select(nan, builder.or_(payload, constant(0x7C00)), result)
    return builder.trunc(builder.or_(result, sign), narrow)
