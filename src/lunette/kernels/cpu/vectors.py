"""Vector code for the tiles of a convolution: a block of a matrix product, and copies of rows.

The block is the innermost loop of every verb: `rows` × `vectors` sums that stay in registers while
it walks along the products. How many fit, and how long a vector is, depends on the processor alone.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = [
    "FUSED",
    "SUMS",
    "VECTOR_BYTES",
    "copy_vectors",
    "dot",
    "multiply_across",
    "multiply_add",
    "transpose_square",
]


@cache
def _processor() -> tuple[int, int, bool]:
    """Bytes of a vector, sums that fit in the registers, and whether a·b + c is one instruction."""
    features = llvmlite.binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 64, 24, True
    if features.get("avx"):
        return 32, 12, bool(features.get("fma"))
    if features.get("neon"):
        return 16, 24, True
    return 16, 12, False


VECTOR_BYTES, SUMS, FUSED = _processor()

INT = ir.IntType(64)


class _Code:
    """The few instructions that the loops below are made of, for one element type."""

    def __init__(self, builder: Any, kind: Any) -> None:
        self.builder = builder
        self.size = kind.bitwidth // 8
        self.lanes = VECTOR_BYTES // self.size
        self.element = ir.FloatType() if self.size == 4 else ir.DoubleType()
        self.vector = ir.VectorType(self.element, self.lanes)
        self.name = f"v{self.lanes}f{kind.bitwidth}"

    def zero(self) -> Any:
        return ir.Constant(self.vector, [0.0] * self.lanes)

    def at(self, address: Any, offset: int) -> Any:
        return self.builder.add(address, ir.Constant(INT, offset)) if offset else address

    def load(self, address: Any, kind: Any) -> Any:
        value = self.builder.load(self.builder.inttoptr(address, kind.as_pointer()))
        value.align = self.size
        return value

    def store(self, value: Any, address: Any) -> None:
        target = self.builder.inttoptr(address, self.vector.as_pointer())
        self.builder.store(value, target).align = self.size

    def load_int(self, address: Any) -> Any:
        return self.builder.load(self.builder.inttoptr(address, INT.as_pointer()))

    def spread(self, scalar: Any) -> Any:
        """A vector of one scalar."""
        kind = ir.VectorType(scalar.type, self.lanes)
        undefined, int32 = ir.Constant(kind, ir.Undefined), ir.IntType(32)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(int32, 0))
        zeros = ir.Constant(ir.VectorType(int32, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, undefined, zeros)

    def mask(self, count: Any) -> Any:
        """The first `count` lanes."""
        int32 = ir.IntType(32)
        numbers = ir.Constant(ir.VectorType(int32, self.lanes), list(range(self.lanes)))
        last = self.builder.trunc(count, int32)
        return self.builder.icmp_signed("<", numbers, self.spread(last))

    def masked_load(self, address: Any, mask: Any) -> Any:
        pointer = self.builder.inttoptr(address, self.vector.as_pointer())
        align = ir.Constant(ir.IntType(32), self.size)
        name = f"llvm.masked.load.{self.name}.p0"
        return self.call(name, self.vector, [pointer, align, mask, self.zero()])

    def masked_store(self, value: Any, address: Any, mask: Any) -> None:
        pointer = self.builder.inttoptr(address, self.vector.as_pointer())
        align = ir.Constant(ir.IntType(32), self.size)
        name = f"llvm.masked.store.{self.name}.p0"
        self.call(name, ir.VoidType(), [value, pointer, align, mask])

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        if not FUSED:
            return self.builder.fadd(self.builder.fmul(a, b), c)
        return self.call(f"llvm.fma.{self.name}", self.vector, [a, b, c])

    def call(self, name: str, result: Any, arguments: list[Any]) -> Any:
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(result, [a.type for a in arguments])
            function = ir.Function(module, kind, name=name)
        return self.builder.call(function, arguments)


def _literals(*values: Any) -> list[int] | None:
    """The values of arguments that must be constants; None where one is not."""
    if not all(isinstance(v, types.IntegerLiteral) for v in values):
        return None
    return [v.literal_value for v in values]


def _step(code: _Code, sums: list[Any], factors: list[Any], at_b: Any, width: int) -> list[Any]:
    """Each sum plus the factor of its row times its vector of b."""
    columns = [code.load(code.at(at_b, v * VECTOR_BYTES), code.vector) for v in range(width)]
    totals = []
    for r, address in enumerate(factors):
        factor = code.spread(code.load(address, code.element))
        for v in range(width):
            totals.append(code.multiply_add(factor, columns[v], sums[r * width + v]))
    return totals


def _places(code: _Code, c: Any, c_row: Any, height: int, width: int) -> list[Any]:
    """The addresses of the vectors of c."""
    rows = [
        code.builder.add(c, code.builder.mul(c_row, ir.Constant(INT, r))) for r in range(height)
    ]
    return [code.at(row, v * VECTOR_BYTES) for row in rows for v in range(width)]


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def multiply_add(
    context: Any,
    rows: Any,
    vectors: Any,
    indexed: Any,
    a: Any,
    b: Any,
    b_step: Any,
    c: Any,
    c_row: Any,
    count: Any,
    zero: Any,
) -> Any:
    """Add `a[k, r]·b[k, :]` to row `c[r, :]` for one k after the other: the fold goes on from c.

    `a` is packed, `rows` numbers for each k. `b`'s vectors of k are at `b + k·b_step`, or, where
    `indexed`, at `b + offset[k]` with `b_step` the address of the offsets. All in bytes; count ≥ 1.
    """
    constants = _literals(rows, vectors, indexed)
    if constants is None:
        return None
    height, width, by_offset = constants

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, _, a, b, b_step, c, c_row, count, _ = arguments
        code = _Code(builder, zero)
        places = _places(code, c, c_row, height, width)
        start = [code.load(place, code.vector) for place in places]
        before = builder.block
        loop, after = builder.append_basic_block("along"), builder.append_basic_block("after")
        builder.branch(loop)
        builder.position_at_end(loop)
        k, at_a, at_b = builder.phi(INT), builder.phi(INT), builder.phi(INT)
        sums = [builder.phi(code.vector) for _ in places]
        row = builder.add(b, code.load_int(at_b)) if by_offset else at_b
        factors = [code.at(at_a, r * code.size) for r in range(height)]
        totals = _step(code, sums, factors, row, width)
        following = builder.add(k, ir.Constant(INT, 1))
        next_b = code.at(at_b, 8) if by_offset else builder.add(at_b, b_step)
        for phi, first, update in (
            (k, ir.Constant(INT, 0), following),
            (at_a, a, code.at(at_a, height * code.size)),
            (at_b, b_step if by_offset else b, next_b),
            *zip(sums, start, totals, strict=True),
        ):
            phi.add_incoming(first, before)
            phi.add_incoming(update, loop)
        builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
        builder.position_at_end(after)
        for total, place in zip(totals, places, strict=True):
            code.store(total, place)
        return context.get_dummy_value()

    return types.void(rows, vectors, indexed, *(types.int64,) * 6, zero), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def multiply_across(
    context: Any,
    rows: Any,
    vectors: Any,
    a: Any,
    offsets: Any,
    b: Any,
    b_step: Any,
    c: Any,
    c_row: Any,
    count: Any,
    repeats: Any,
    jump: Any,
    zero: Any,
) -> Any:
    """Add `Σ_q a[offset[r] + q]·b[q, :]` to row `c[r, :]`; the sum over q starts from zero.

    q takes `count` steps of one element, `repeats` times, and `a` skips `jump` bytes between.
    `offsets` is the address of the rows' offsets, in bytes. count and repeats are at least 1.
    """
    constants = _literals(rows, vectors)
    if constants is None:
        return None
    height, width = constants

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, a, offsets, b, b_step, c, c_row, count, repeats, jump, _ = arguments
        code = _Code(builder, zero)
        starts = [code.load_int(code.at(offsets, 8 * r)) for r in range(height)]
        number = height * width
        before = builder.block
        outside = builder.append_basic_block("again")
        loop, between = builder.append_basic_block("across"), builder.append_basic_block("between")
        after = builder.append_basic_block("after")
        builder.branch(outside)
        builder.position_at_end(outside)
        turn, first_a, first_b = builder.phi(INT), builder.phi(INT), builder.phi(INT)
        first_sums = [builder.phi(code.vector) for _ in range(number)]
        builder.branch(loop)
        builder.position_at_end(loop)
        k, at_a, at_b = builder.phi(INT), builder.phi(INT), builder.phi(INT)
        sums = [builder.phi(code.vector) for _ in range(number)]
        factors = [builder.add(at_a, start) for start in starts]
        totals = _step(code, sums, factors, at_b, width)
        following = builder.add(k, ir.Constant(INT, 1))
        next_a, next_b = code.at(at_a, code.size), builder.add(at_b, b_step)
        builder.cbranch(builder.icmp_signed("<", following, count), loop, between)
        builder.position_at_end(between)
        turned = builder.add(turn, ir.Constant(INT, 1))
        jumped = builder.add(next_a, jump)
        builder.cbranch(builder.icmp_signed("<", turned, repeats), outside, after)
        builder.position_at_end(after)
        zeros = [code.zero()] * number
        for phi, first, update in (
            (turn, ir.Constant(INT, 0), turned),
            (first_a, a, jumped),
            (first_b, b, next_b),
            *zip(first_sums, zeros, totals, strict=True),
        ):
            phi.add_incoming(first, before)
            phi.add_incoming(update, between)
        for phi, first, update in (
            (k, ir.Constant(INT, 0), following),
            (at_a, first_a, next_a),
            (at_b, first_b, next_b),
            *zip(sums, first_sums, totals, strict=True),
        ):
            phi.add_incoming(first, outside)
            phi.add_incoming(update, loop)
        for total, place in zip(totals, _places(code, c, c_row, height, width), strict=True):
            code.store(builder.fadd(code.load(place, code.vector), total), place)
        return context.get_dummy_value()

    return types.void(rows, vectors, *(types.int64,) * 9, zero), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_vectors(context: Any, target: Any, source: Any, count: Any, zero: Any) -> Any:
    """Copy `count` ≥ 1 elements between addresses; the last vector is masked, none reads beyond."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source, count, _ = arguments
        code = _Code(builder, zero)
        before = builder.block
        loop, after = builder.append_basic_block("copy"), builder.append_basic_block("after")
        builder.branch(loop)
        builder.position_at_end(loop)
        left, at_target, at_source = builder.phi(INT), builder.phi(INT), builder.phi(INT)
        mask = code.mask(left)
        code.masked_store(code.masked_load(at_source, mask), at_target, mask)
        remaining = builder.sub(left, ir.Constant(INT, code.lanes))
        for phi, start, update in (
            (left, count, remaining),
            (at_target, target, code.at(at_target, VECTOR_BYTES)),
            (at_source, source, code.at(at_source, VECTOR_BYTES)),
        ):
            phi.add_incoming(start, before)
            phi.add_incoming(update, loop)
        builder.cbranch(builder.icmp_signed(">", remaining, ir.Constant(INT, 0)), loop, after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, zero), generate


@intrinsic  # type: ignore[untyped-decorator]
def transpose_square(
    context: Any, target: Any, target_row: Any, source: Any, source_row: Any, zero: Any
) -> Any:
    """Transpose a square of as many rows as a vector has lanes; rows are so many bytes apart."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, target_row, source, source_row, _ = arguments
        code = _Code(builder, zero)
        n = code.lanes
        rows = _places(code, source, source_row, n, 1)
        values = [code.load(row, code.vector) for row in rows]
        indices = ir.VectorType(ir.IntType(32), n)
        low = ir.Constant(indices, [i // 2 + n * (i % 2) for i in range(n)])
        high = ir.Constant(indices, [i // 2 + n // 2 + n * (i % 2) for i in range(n)])
        # Each round interleaves row i with row i + n/2; after log2(n) rounds rows are columns.
        for _ in range(n.bit_length() - 1):
            pairs = [(values[i], values[i + n // 2]) for i in range(n // 2)]
            values = [builder.shuffle_vector(a, b, m) for a, b in pairs for m in (low, high)]
        for value, place in zip(values, _places(code, target, target_row, n, 1), strict=True):
            code.store(value, place)
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 4, zero), generate


@intrinsic  # type: ignore[untyped-decorator]
def dot(context: Any, a: Any, b: Any, count: Any, zero: Any) -> Any:
    """`Σ a[i]·b[i]` of `count` ≥ 1 elements: a sum for each lane, then the lanes by halves."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, count, _ = arguments
        code = _Code(builder, zero)
        before = builder.block
        loop, after = builder.append_basic_block("dot"), builder.append_basic_block("after")
        builder.branch(loop)
        builder.position_at_end(loop)
        left, at_a, at_b = builder.phi(INT), builder.phi(INT), builder.phi(INT)
        sums = builder.phi(code.vector)
        mask = code.mask(left)
        numbers = code.masked_load(at_a, mask)
        total = code.multiply_add(numbers, code.masked_load(at_b, mask), sums)
        remaining = builder.sub(left, ir.Constant(INT, code.lanes))
        for phi, start, update in (
            (left, count, remaining),
            (at_a, a, code.at(at_a, VECTOR_BYTES)),
            (at_b, b, code.at(at_b, VECTOR_BYTES)),
            (sums, code.zero(), total),
        ):
            phi.add_incoming(start, before)
            phi.add_incoming(update, loop)
        builder.cbranch(builder.icmp_signed(">", remaining, ir.Constant(INT, 0)), loop, after)
        builder.position_at_end(after)
        half = code.lanes // 2
        while half:
            order = [(i + half) % code.lanes for i in range(code.lanes)]
            mask = ir.Constant(ir.VectorType(ir.IntType(32), code.lanes), order)
            total = builder.fadd(total, builder.shuffle_vector(total, total, mask))
            half //= 2
        return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

    return zero(types.int64, types.int64, types.int64, zero), generate
