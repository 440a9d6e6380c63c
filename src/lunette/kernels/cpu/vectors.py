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

__all__ = ["FUSED", "SUMS", "VECTOR_BYTES", "copy_vectors", "multiply_add"]


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

    def spread(self, scalar: Any) -> Any:
        """A vector of one scalar."""
        kind = ir.VectorType(scalar.type, self.lanes)
        undefined, int32 = ir.Constant(kind, ir.Undefined), ir.IntType(32)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(int32, 0))
        zeros = ir.Constant(ir.VectorType(int32, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, undefined, zeros)

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


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def multiply_add(
    context: Any,
    rows: Any,
    vectors: Any,
    a: Any,
    a_row: Any,
    a_step: Any,
    b: Any,
    b_step: Any,
    c: Any,
    c_row: Any,
    count: Any,
    zero: Any,
) -> Any:
    """Add `Σ_k a[r, k]·b[k, :]` to row `c[r, :]`, for a few rows and vectors of columns.

    `a`, `b`, `c` are addresses; `a_row`, `a_step`, `b_step`, `c_row` are bytes from one row or one
    k to the next. The sum over k starts from zero and folds left to right; `count` is at least 1.
    """
    if not isinstance(rows, types.IntegerLiteral) or not isinstance(vectors, types.IntegerLiteral):
        return None
    height, width = rows.literal_value, vectors.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, a, a_row, a_step, b, b_step, c, c_row, count, _ = arguments
        code = _Code(builder, zero)
        row_starts = [builder.mul(a_row, ir.Constant(INT, r)) for r in range(height)]
        before = builder.block
        loop, after = builder.append_basic_block("along"), builder.append_basic_block("after")
        builder.branch(loop)
        builder.position_at_end(loop)
        k, at_a, at_b = builder.phi(INT), builder.phi(INT), builder.phi(INT)
        sums = [builder.phi(code.vector) for _ in range(height * width)]
        columns = [code.load(code.at(at_b, v * VECTOR_BYTES), code.vector) for v in range(width)]
        totals = []
        for r in range(height):
            factor = code.spread(code.load(builder.add(at_a, row_starts[r]), code.element))
            for v in range(width):
                totals.append(code.multiply_add(factor, columns[v], sums[r * width + v]))
        following = builder.add(k, ir.Constant(INT, 1))
        for phi, start, update in (
            (k, ir.Constant(INT, 0), following),
            (at_a, a, builder.add(at_a, a_step)),
            (at_b, b, builder.add(at_b, b_step)),
            *((s, code.zero(), t) for s, t in zip(sums, totals, strict=True)),
        ):
            phi.add_incoming(start, before)
            phi.add_incoming(update, loop)
        builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
        builder.position_at_end(after)
        for r in range(height):
            for v in range(width):
                row = builder.add(c, builder.mul(c_row, ir.Constant(INT, r)))
                place = code.at(row, v * VECTOR_BYTES)
                old = code.load(place, code.vector)
                code.store(builder.fadd(old, totals[r * width + v]), place)
        return context.get_dummy_value()

    addresses = (types.int64,) * 8
    return types.void(rows, vectors, *addresses, zero), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_vectors(context: Any, target: Any, source: Any, count: Any, zero: Any) -> Any:
    """Copy `count` ≥ 1 elements between addresses; the last vector is masked, none reads beyond."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source, count, _ = arguments
        code = _Code(builder, zero)
        lanes = ir.VectorType(INT, code.lanes)
        numbers = ir.Constant(lanes, list(range(code.lanes)))
        align = ir.Constant(ir.IntType(32), code.size)
        before = builder.block
        loop, after = builder.append_basic_block("copy"), builder.append_basic_block("after")
        builder.branch(loop)
        builder.position_at_end(loop)
        left, at_target, at_source = builder.phi(INT), builder.phi(INT), builder.phi(INT)
        mask = builder.icmp_signed("<", numbers, code.spread(left))
        pointer = code.vector.as_pointer()
        values = code.call(
            f"llvm.masked.load.{code.name}.p0",
            code.vector,
            [builder.inttoptr(at_source, pointer), align, mask, code.zero()],
        )
        code.call(
            f"llvm.masked.store.{code.name}.p0",
            ir.VoidType(),
            [values, builder.inttoptr(at_target, pointer), align, mask],
        )
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
