"""Vector instructions of a convolution's loops, and the moves: copies of rows, shifts, transposes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.conv.sizes import FUSED, VECTOR_BYTES

__all__ = [
    "INT",
    "Code",
    "ask_line",
    "collect",
    "copy_column",
    "copy_vectors",
    "lay_row",
    "literals",
    "places",
    "transpose_corner",
    "transpose_part",
    "transpose_square",
]

INT = ir.IntType(64)


class Code:
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

    def masked_load(self, address: Any, mask: Any, others: Any = None) -> Any:
        pointer = self.builder.inttoptr(address, self.vector.as_pointer())
        align = ir.Constant(ir.IntType(32), self.size)
        name = f"llvm.masked.load.{self.name}.p0"
        return self.call(name, self.vector, [pointer, align, mask, others or self.zero()])

    def masked_store(self, value: Any, address: Any, mask: Any) -> None:
        pointer = self.builder.inttoptr(address, self.vector.as_pointer())
        align = ir.Constant(ir.IntType(32), self.size)
        name = f"llvm.masked.store.{self.name}.p0"
        self.call(name, ir.VoidType(), [value, pointer, align, mask])

    def prefetch(self, address: Any, written: int, near: int = 3) -> None:
        """Ask for a line of memory that will be read, or written; 2 is the second-level cache."""
        pointer = self.builder.inttoptr(address, self.vector.as_pointer())
        constants = [ir.Constant(ir.IntType(32), value) for value in (written, near, 1)]
        self.call("llvm.prefetch.p0", ir.VoidType(), [pointer, *constants])

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        if not FUSED:
            return self.builder.fadd(self.builder.fmul(a, b), c)
        return self.call(f"llvm.fma.{self.name}", self.vector, [a, b, c])

    def loop(self, starts: list[Any], body: Any) -> list[Any]:
        """Values that start from `starts`; `body` gives what follows them and whether to go on."""
        before, builder = self.builder.block, self.builder
        again, after = builder.append_basic_block("again"), builder.append_basic_block("after")
        builder.branch(again)
        builder.position_at_end(again)
        values = [builder.phi(start.type) for start in starts]
        updates, condition = body(*values)
        for phi, start, update in zip(values, starts, updates, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(update, builder.block)
        builder.cbranch(condition, again, after)
        builder.position_at_end(after)
        return list(updates)

    def call(self, name: str, result: Any, arguments: list[Any]) -> Any:
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(result, [a.type for a in arguments])
            function = ir.Function(module, kind, name=name)
        return self.builder.call(function, arguments)


def literals(*values: Any) -> list[int] | None:
    """The values of arguments that must be constants; None where one is not."""
    if not all(isinstance(v, types.IntegerLiteral) for v in values):
        return None
    return [v.literal_value for v in values]


def places(code: Code, c: Any, c_row: Any, height: int, width: int, step: Any = None) -> list[Any]:
    """The addresses of the vectors of c; those of a row lie side by side, or `step` apart."""
    builder = code.builder
    apart = ir.Constant(INT, VECTOR_BYTES) if step is None else step
    rows = [builder.add(c, builder.mul(c_row, ir.Constant(INT, r))) for r in range(height)]
    moves = [builder.mul(apart, ir.Constant(INT, v)) for v in range(width)]
    return [builder.add(row, move) for row in rows for move in moves]


@intrinsic  # type: ignore[untyped-decorator]
def copy_vectors(context: Any, target: Any, source: Any, count: Any, zero: Any) -> Any:
    """Copy `count` ≥ 1 elements between addresses; the last vector is masked, none reads beyond."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source, count, _ = arguments
        code = Code(builder, zero)
        lanes = ir.Constant(INT, code.lanes)

        def whole(left: Any, at_target: Any, at_source: Any) -> Any:
            code.store(code.load(at_source, code.vector), at_target)
            remaining = builder.sub(left, lanes)
            moved = [code.at(at_target, VECTOR_BYTES), code.at(at_source, VECTOR_BYTES)]
            return [remaining, *moved], builder.icmp_signed(">", remaining, lanes)

        start = builder.block
        with builder.if_then(builder.icmp_signed(">", count, lanes)):
            moved = code.loop([count, target, source], whole)
            end = builder.block
        last = [builder.phi(INT) for _ in moved]
        for phi, value, first in zip(last, moved, (count, target, source), strict=True):
            phi.add_incoming(first, start)
            phi.add_incoming(value, end)
        left, at_target, at_source = last
        mask = code.mask(left)
        code.masked_store(code.masked_load(at_source, mask), at_target, mask)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, zero), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def ask_line(context: Any, written: Any, near: Any, address: Any, zero: Any) -> Any:
    """Ask for a line of memory, to be written or read; `near` is 3, or 2 for the second-level cache."""
    constants = literals(written, near)
    if constants is None:
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        Code(builder, zero).prefetch(arguments[2], *constants)
        return context.get_dummy_value()

    return types.void(written, near, types.int64, zero), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def collect(
    context: Any,
    whole: Any,
    target: Any,
    target_row: Any,
    source: Any,
    other: Any,
    offsets: Any,
    count: Any,
    low: Any,
    zero: Any,
) -> Any:
    """A vector from `source`, its lanes from `low` on from `other`, in each of `count` ≥ 1 rows.

    Row k reads at `offset[k]` from both, `offsets` being their address. Without `whole` the lanes
    below `low` are neither read nor written. All in bytes.
    """
    constants = literals(whole)
    if constants is None:
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, target, target_row, source, other, offsets, count, low, _ = arguments
        code = Code(builder, zero)
        mask = builder.not_(code.mask(low))

        def move(left: Any, at: Any, place: Any) -> Any:
            offset = code.load_int(place)
            if constants[0]:
                value = code.load(builder.add(source, offset), code.vector)
                value = code.masked_load(builder.add(other, offset), mask, value)
                code.store(value, at)
            else:
                value = code.masked_load(builder.add(other, offset), mask)
                code.masked_store(value, at, mask)
            remaining = builder.sub(left, ir.Constant(INT, 1))
            updates = [remaining, builder.add(at, target_row), code.at(place, 8)]
            return updates, builder.icmp_signed(">", remaining, ir.Constant(INT, 0))

        code.loop([count, target, offsets], move)
        return context.get_dummy_value()

    return types.void(whole, *(types.int64,) * 7, zero), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def lay_row(
    context: Any,
    step: Any,
    target: Any,
    source: Any,
    low: Any,
    high: Any,
    count: Any,
    ahead: Any,
    zero: Any,
) -> Any:
    """Elements 1 or 2 apart, for places `low … high` of `count` ≥ 1, and zeros in the others.

    Place i comes from element `step·i`; nothing else is read, but what lies `ahead` bytes on is
    asked for. Whole vectors are written.
    """
    constants = literals(step)
    if constants is None:
        return None
    double = constants[0] == 2

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, target, source, low, high, count, ahead, _ = arguments
        code = Code(builder, zero)
        lanes = code.lanes
        evens = ir.VectorType(ir.IntType(32), lanes)
        order = ir.Constant(evens, list(range(0, 2 * lanes, 2)))

        def between(first: Any, end: Any, shift: int) -> Any:
            outside = builder.not_(code.mask(code.at(first, -shift)))
            return builder.and_(code.mask(code.at(end, -shift)), outside)

        def move(left: Any, at_target: Any, at_source: Any, first: Any, end: Any) -> Any:
            if double:
                one = ir.Constant(INT, 1)
                twice = builder.shl(first, one), builder.sub(builder.shl(end, one), one)
                parts = [
                    code.masked_load(
                        code.at(at_source, i * VECTOR_BYTES), between(*twice, i * lanes)
                    )
                    for i in range(2)
                ]
                value = builder.shuffle_vector(*parts, order)
            else:
                value = code.masked_load(at_source, between(first, end, 0))
            code.prefetch(builder.add(at_source, ahead), 0)
            code.store(value, at_target)
            remaining = code.at(left, -lanes)
            moved = [code.at(at_target, VECTOR_BYTES), code.at(at_source, step_bytes)]
            updates = [remaining, *moved, code.at(first, -lanes), code.at(end, -lanes)]
            return updates, builder.icmp_signed(">", remaining, ir.Constant(INT, 0))

        step_bytes = 2 * VECTOR_BYTES if double else VECTOR_BYTES
        code.loop([count, target, source, low, high], move)
        return context.get_dummy_value()

    return types.void(step, *(types.int64,) * 6, zero), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_column(
    context: Any,
    target: Any,
    target_row: Any,
    source: Any,
    source_row: Any,
    rows: Any,
    count: Any,
    zero: Any,
) -> Any:
    """The first `count` lanes of a vector, in each of `rows` ≥ 1 rows so many bytes apart."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, target_row, source, source_row, rows, count, _ = arguments
        code = Code(builder, zero)
        mask = code.mask(count)

        def move(left: Any, to: Any, at: Any) -> Any:
            code.masked_store(code.masked_load(at, mask), to, mask)
            remaining = code.at(left, -1)
            updates = [remaining, builder.add(to, target_row), builder.add(at, source_row)]
            return updates, builder.icmp_signed(">", remaining, ir.Constant(INT, 0))

        code.loop([rows, target, source], move)
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 6, zero), generate


@intrinsic  # type: ignore[untyped-decorator]
def transpose_square(
    context: Any, target: Any, target_row: Any, source: Any, source_row: Any, zero: Any
) -> Any:
    """Transpose a square of as many rows as a vector has lanes; rows are so many bytes apart."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, target_row, source, source_row, _ = arguments
        code = Code(builder, zero)
        columns = _transposed(code, source, source_row)
        for value, place in zip(
            columns, places(code, target, target_row, len(columns), 1), strict=True
        ):
            code.store(value, place)
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 4, zero), generate


@intrinsic  # type: ignore[untyped-decorator]
def transpose_part(
    context: Any, target: Any, target_row: Any, source: Any, source_row: Any, count: Any, zero: Any
) -> Any:
    """Transpose a square, of which the first `count` columns are written in each row."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, target_row, source, source_row, count, _ = arguments
        code = Code(builder, zero)
        mask = code.mask(count)
        columns = _transposed(code, source, source_row)
        for value, place in zip(
            columns, places(code, target, target_row, len(columns), 1), strict=True
        ):
            code.masked_store(value, place, mask)
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 5, zero), generate


@intrinsic  # type: ignore[untyped-decorator]
def transpose_corner(
    context: Any,
    target: Any,
    target_row: Any,
    source: Any,
    source_row: Any,
    rows: Any,
    count: Any,
    zero: Any,
) -> Any:
    """Transpose a square of which only the first `rows` and their first `count` numbers are read; zeros for the others."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, target_row, source, source_row, rows, count, _ = arguments
        code = Code(builder, zero)
        values = []
        for r, row in enumerate(places(code, source, source_row, code.lanes, 1)):
            known = builder.icmp_signed("<", ir.Constant(INT, r), rows)
            some = builder.select(known, count, ir.Constant(INT, 0))
            values.append(code.masked_load(row, code.mask(some)))
        for value, place in zip(
            _columns(code, values), places(code, target, target_row, code.lanes, 1), strict=True
        ):
            code.store(value, place)
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 6, zero), generate


def _transposed(code: Code, source: Any, source_row: Any) -> list[Any]:
    """The columns of a square of rows that are so many bytes apart."""
    rows = places(code, source, source_row, code.lanes, 1)
    return _columns(code, [code.load(row, code.vector) for row in rows])


def _columns(code: Code, values: list[Any]) -> list[Any]:
    """Rows, as many as lanes, to columns."""
    n, builder = code.lanes, code.builder
    indices = ir.VectorType(ir.IntType(32), n)
    low = ir.Constant(indices, [i // 2 + n * (i % 2) for i in range(n)])
    high = ir.Constant(indices, [i // 2 + n // 2 + n * (i % 2) for i in range(n)])
    # Each round interleaves row i with row i + n/2; after log2(n) rounds rows are columns.
    for _ in range(n.bit_length() - 1):
        pairs = [(values[i], values[i + n // 2]) for i in range(n // 2)]
        values = [builder.shuffle_vector(a, b, m) for a, b in pairs for m in (low, high)]
    return values
