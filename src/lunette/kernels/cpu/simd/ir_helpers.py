"""What vector operations are made of in machine code: spreads, masks of lanes, addresses."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from lunette.kernels.cpu.jit.processor import abilities

__all__ = ["broadcast", "i32", "mask", "places", "suffix", "transposed"]

FEW = 16
"""Lanes whose numbers fit a vector."""


def i32(n: int) -> Any:
    """A constant of 32 bits."""
    return ir.Constant(ir.IntType(32), n)


def suffix(element: Any) -> str:
    """How LLVM's functions are named for an element type."""
    if isinstance(element, ir.FloatType):
        return "f32"
    return "f64" if isinstance(element, ir.DoubleType) else f"i{element.width}"


def broadcast(builder: Any, value: Any, vector: Any) -> Any:
    """A number in every lane."""
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, i32(0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), order)


def _numbers(count: int) -> Any:
    """The number of each lane."""
    return ir.Constant(ir.VectorType(ir.IntType(64), count), list(range(count)))


def mask(builder: Any, low: Any, high: Any, count: int) -> Any:
    """Lanes low … high. Lane numbers are compared in 32 bits: the bounds fit after clamping."""
    if count > FEW:
        make = _long_mask if abilities().masks_halves else _byte_mask
        return make(builder, low, high, count)
    lane = ir.IntType(32)
    numbers = ir.Constant(ir.VectorType(lane, count), list(range(count)))
    low, high = (broadcast(builder, builder.trunc(v, lane), numbers.type) for v in (low, high))
    above = builder.icmp_signed(">=", numbers, low)
    return builder.and_(above, builder.icmp_signed("<", numbers, high))


def _long_mask(builder: Any, low: Any, high: Any, count: int) -> Any:
    """The same as bits of an integer, where lane numbers would not fit a vector."""
    whole = ir.IntType(64)
    none, one, full = (ir.Constant(whole, n) for n in (0, 1, 64))

    def below(bound: Any) -> Any:
        bits = builder.sub(builder.shl(one, bound), one)
        bits = builder.select(builder.icmp_signed(">=", bound, full), ir.Constant(whole, -1), bits)
        return builder.select(builder.icmp_signed(">", bound, none), bits, none)

    bits = builder.and_(below(high), builder.not_(below(low)))
    bits = bits if count == whole.width else builder.trunc(bits, ir.IntType(count))
    return builder.bitcast(bits, ir.VectorType(ir.IntType(1), count))


def _byte_mask(builder: Any, low: Any, high: Any, count: int) -> Any:
    """The same by lane numbers in bytes, where the processor has no registers of bits."""
    whole, byte = ir.IntType(64), ir.IntType(8)
    none, full = (ir.Constant(whole, n) for n in (0, count))
    numbers = ir.Constant(ir.VectorType(byte, count), list(range(count)))

    def bound(v: Any) -> Any:
        v = builder.select(builder.icmp_signed("<", v, none), none, v)
        v = builder.select(builder.icmp_signed(">", v, full), full, v)
        return broadcast(builder, builder.trunc(v, byte), numbers.type)

    above = builder.icmp_signed(">=", numbers, bound(low))
    return builder.and_(above, builder.icmp_signed("<", numbers, bound(high)))


def places(builder: Any, p: Any, i: Any, step: Any, count: int, size: int) -> Any:
    """Addresses of elements i, i + step, … of `size` bytes each."""
    whole = ir.VectorType(ir.IntType(64), count)
    bytes_apart = builder.mul(step, ir.Constant(ir.IntType(64), size))
    offsets = builder.mul(_numbers(count), broadcast(builder, bytes_apart, whole))
    first = broadcast(builder, builder.ptrtoint(builder.gep(p, [i]), ir.IntType(64)), whole)
    return builder.inttoptr(builder.add(first, offsets), ir.VectorType(p.type, count))


def transposed(builder: Any, vectors: list[Any]) -> list[Any]:
    """Rows become columns: of vectors of as many lanes as there are, or in each part of so many lanes."""
    side, count, step = len(vectors), vectors[0].type.count, 1
    while step < side:
        low = [k if not k & step else count + k - step for k in range(count)]
        high = [k + step if not k & step else count + k for k in range(count)]
        for i in (i for i in range(side) if not i & step):
            a, b = vectors[i], vectors[i + step]
            for place, order in ((i, low), (i + step, high)):
                mask = ir.Constant(ir.VectorType(ir.IntType(32), count), order)
                vectors[place] = builder.shuffle_vector(a, b, mask)
        step *= 2
    return vectors
