"""Vectors of 64 bytes: the kernels say which elements go side by side, and every tail is a mask.

`Lanes(work)` has the loads, stores and arithmetic of one element type, as functions for compiled
code. Nothing is left to the optimiser's guess, so a kernel's speed and its bits are the same for
every length, offset and alignment. Lanes that a mask leaves out are never read nor written.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,no-any-return"

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

from lunette.kernels.cpu.simd import ir_helpers
from lunette.kernels.cpu.simd.half import INFINITY
from lunette.kernels.cpu.simd.half_vec import narrowed, ordered_lanes, out_of_order, widened
from lunette.kernels.cpu.simd.partial_access import bounds, has_masks, load_within, store_first

__all__ = ["WIDTH", "Vec", "Vector", "vec"]

WIDTH = 64
"""Bytes of a vector of the arithmetic's type."""


class Vector(types.Type):  # type: ignore[misc]
    """`count` elements side by side, in one register or a few."""

    def __init__(self, element: Any, count: int) -> None:
        self.element, self.count = element, count
        super().__init__(name=f"Vector({element}, {count})")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    """A vector is held as the machine's own."""

    def __init__(self, manager: Any, vector: Vector) -> None:
        element = manager.lookup(vector.element).get_value_type()
        super().__init__(manager, vector, ir.VectorType(element, vector.count))


class Vec(NamedTuple):
    """The vector operations of one codec.

    `load(p, i)` reads elements `i, i+1, …`; `load_n(p, i, low, high, fill)` those of lanes low … high, and fills the
    others; `load_masked(p, i, bits, fill)` those whose bits are set; `load_halves(p, i, j, high)` `high` elements from `i`
    on and, in the second half of the lanes, from `j` on, and zeros; `gather_strided(p, i, step, low, high, fill)` elements
    `i, i + step, …`. `concat_even` and `concat_odd` unzip two vectors, `interleave_lower` and `interleave_upper` join them.
    `maximum` keeps the first of equals and the first NaN; `max_num` keeps the first of equals, one instruction, for
    vectors that `isnan_bits` has found free of NaN; `min_num` is its opposite. `select_maximum` and `select_max_num`
    choose marks by the same rules, and `load_where_equal` reads where a mark in memory has a code, else it is zero.
    `slide_down_1(a, b)` and `slide_down_2(a, b)` are the elements one and two after those of `a`.
    """

    width: int
    load: Any
    load_n: Any
    load_halves: Any
    gather_strided: Any
    store: Any
    store_n: Any
    scatter_strided: Any
    broadcast: Any
    concat_even: Any
    concat_odd: Any
    interleave_lower: Any
    interleave_upper: Any
    add: Any
    multiply: Any
    divide: Any
    maximum: Any
    select_maximum: Any
    subtract: Any
    max_num: Any
    select_max_num: Any
    isnan_bits: Any
    load_where_equal: Any
    load_masked: Any
    slide_down_1: Any
    slide_down_2: Any
    min_num: Any


@cache
def vec(memory: Any, work: Any, half: str) -> Vec:
    """The operations on `work`, loading from and storing to `memory`; `half` names a half type."""
    count = WIDTH // (work.bitwidth // 8)
    vector = Vector(work, count)
    signed = getattr(work, "signed", True)
    real = isinstance(work, types.Float)

    def widen(context: Any, builder: Any, raw: Any) -> Any:
        to = context.get_value_type(vector)
        if half in INFINITY:
            return ordered_lanes(builder, raw)
        if half:
            return widened(builder, raw, half)
        if memory == work:
            return raw
        if isinstance(memory, types.Float):
            return builder.fpext(raw, to) if memory.bitwidth < work.bitwidth else raw
        if not real:  # small numbers, marks among them
            return (builder.sext if memory.signed else builder.zext)(raw, to)
        convert = builder.sitofp if memory.signed else builder.uitofp
        return convert(raw, to)

    def narrow(builder: Any, value: Any) -> Any:
        if half in INFINITY:
            return ordered_lanes(builder, value)
        if half:
            return narrowed(builder, value, half)
        if kept.bitwidth > work.bitwidth:
            return builder.sext(value, ir.VectorType(ir.IntType(kept.bitwidth), count))
        if kept != work:
            return builder.trunc(value, ir.VectorType(ir.IntType(kept.bitwidth), count))
        return value

    def place(context: Any, builder: Any, p: Any, i: Any) -> Any:
        """The address of element `i` of a pointer."""
        return builder.gep(p, [i])

    def raw_type(context: Any) -> Any:
        return ir.VectorType(context.get_value_type(memory), count)

    align = memory.bitwidth // 8
    # Integers computed as reals are kept as reals.
    kept = work if real and not half else memory
    kept_align = kept.bitwidth // 8

    def kept_type(context: Any) -> Any:
        return ir.VectorType(context.get_value_type(kept), count)

    def _raw_fill(context: Any, builder: Any, fill: Any) -> Any:
        return ir_helpers.broadcast(builder, narrow_scalar(builder, fill), raw_type(context))

    def narrow_scalar(builder: Any, value: Any) -> Any:
        if not half:
            if memory == work:
                return value
            return ir.Constant(ir.IntType(memory.bitwidth), 0)  # see `filled`
        one = builder.insert_element(
            ir.Constant(ir.VectorType(value.type, 1), ir.Undefined), value, ir_helpers.i32(0)
        )
        return builder.extract_element(narrow(builder, one), ir_helpers.i32(0))

    def filled(context: Any, builder: Any, mask: Any, value: Any, fill: Any) -> Any:
        """Integers as others have no number below all of those, so they are filled once they are others."""
        if half or memory == work:
            return value
        return builder.select(
            mask, value, ir_helpers.broadcast(builder, fill, context.get_value_type(vector))
        )

    def masked_load(
        builder: Any, at: Any, mask: Any, rest: Any, low: Any = None, high: Any = None
    ) -> Any:
        """What is at an address in lanes of a mask, `rest` in the others; low … high where it is all of these."""
        if not has_masks(rest.type.element):
            if low is None:
                low, high = bounds(builder, mask)
            return builder.select(mask, load_within(builder, at, low, high, align), rest)
        element = ir_helpers.suffix(rest.type.element)
        name = f"llvm.masked.load.v{rest.type.count}{element}.p0"
        kind = ir.FunctionType(rest.type, [at.type, ir.IntType(32), mask.type, rest.type])
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(function, [at, ir_helpers.i32(align), mask, rest])

    def load_where(
        context: Any, builder: Any, p: Any, i: Any, mask: Any, fill: Any, *ends: Any
    ) -> Any:
        """Elements `i, i+1, …` of a pointer in lanes of a mask, `fill` in the others."""
        at = builder.bitcast(place(context, builder, p, i), raw_type(context).as_pointer())
        loaded = masked_load(builder, at, mask, _raw_fill(context, builder, fill), *ends)
        return filled(context, builder, mask, widen(context, builder, loaded), fill)

    @intrinsic  # type: ignore[untyped-decorator]
    def load(context: Any, p: Any, i: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            at = place(context, builder, *arguments)
            at = builder.bitcast(at, raw_type(context).as_pointer())
            return widen(context, builder, builder.load(at, align=align))

        return vector(p, i), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def load_n(context: Any, p: Any, i: Any, low: Any, high: Any, fill: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            p, i, low, high, fill = arguments
            mask = ir_helpers.mask(builder, low, high, count)
            return load_where(context, builder, p, i, mask, fill, low, high)

        return vector(p, types.int64, types.int64, types.int64, work), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def load_halves(context: Any, p: Any, i: Any, j: Any, high: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            p, i, j, high = arguments
            half_raw = ir.VectorType(raw_type(context).element, count // 2)
            first = ir.Constant(ir.IntType(64), 0)
            mask = ir_helpers.mask(builder, first, high, count // 2)
            rest, kind = ir.Constant(half_raw, None), half_raw.as_pointer()
            parts = [
                masked_load(builder, builder.bitcast(at, kind), mask, rest, first, high)
                for at in (place(context, builder, p, i), place(context, builder, p, j))
            ]
            order = ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(count)))
            return widen(context, builder, builder.shuffle_vector(*parts, order))

        return vector(p, types.int64, types.int64, types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def gather_strided(
        context: Any, p: Any, i: Any, step: Any, low: Any, high: Any, fill: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            p, i, step, low, high, fill = arguments
            raw = raw_type(context)
            at = ir_helpers.places(builder, p, i, step, count, align)
            mask = ir_helpers.mask(builder, low, high, count)
            name = f"llvm.masked.gather.v{count}{ir_helpers.suffix(raw.element)}.v{count}p0"
            kind = ir.FunctionType(raw, [at.type, ir.IntType(32), mask.type, raw])
            function = cgutils.get_or_insert_function(builder.module, kind, name)
            rest = _raw_fill(context, builder, fill)
            loaded = widen(
                context, builder, builder.call(function, [at, ir_helpers.i32(align), mask, rest])
            )
            return filled(context, builder, mask, loaded, fill)

        whole = types.int64
        return vector(p, whole, whole, whole, whole, work), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def store(context: Any, p: Any, i: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            p, i, value = arguments
            at = builder.bitcast(place(context, builder, p, i), kept_type(context).as_pointer())
            builder.store(narrow(builder, value), at, align=kept_align)
            return context.get_dummy_value()

        return types.void(p, i, value), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def store_n(context: Any, p: Any, i: Any, value: Any, high: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            p, i, value, high = arguments
            raw = kept_type(context)
            at = builder.bitcast(place(context, builder, p, i), raw.as_pointer())
            if not has_masks(raw.element):
                store_first(builder, at, narrow(builder, value), high)
                return context.get_dummy_value()
            mask = ir_helpers.mask(builder, ir.Constant(ir.IntType(64), 0), high, count)
            name = f"llvm.masked.store.v{count}{ir_helpers.suffix(raw.element)}.p0"
            kind = ir.FunctionType(
                ir.VoidType(), [raw, raw.as_pointer(), ir.IntType(32), mask.type]
            )
            function = cgutils.get_or_insert_function(builder.module, kind, name)
            builder.call(function, [narrow(builder, value), at, ir_helpers.i32(kept_align), mask])
            return context.get_dummy_value()

        return types.void(p, types.int64, value, types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def scatter_strided(context: Any, p: Any, i: Any, step: Any, value: Any, high: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            p, i, step, value, high = arguments
            raw = kept_type(context)
            at = ir_helpers.places(builder, p, i, step, count, kept_align)
            mask = ir_helpers.mask(builder, ir.Constant(ir.IntType(64), 0), high, count)
            name = f"llvm.masked.scatter.v{count}{ir_helpers.suffix(raw.element)}.v{count}p0"
            kind = ir.FunctionType(ir.VoidType(), [raw, at.type, ir.IntType(32), mask.type])
            function = cgutils.get_or_insert_function(builder.module, kind, name)
            builder.call(function, [narrow(builder, value), at, ir_helpers.i32(kept_align), mask])
            return context.get_dummy_value()

        return types.void(p, types.int64, types.int64, value, types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def broadcast(context: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return ir_helpers.broadcast(builder, arguments[0], context.get_value_type(vector))

        return vector(work), generate

    def shuffle(order: list[int]) -> Any:
        @intrinsic  # type: ignore[untyped-decorator]
        def unzip(context: Any, a: Any, b: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                mask = ir.Constant(ir.VectorType(ir.IntType(32), count), order)
                return builder.shuffle_vector(*arguments, mask)

            return vector(a, b), generate

        return unzip

    def arithmetic(on_reals: str, on_integers: str) -> Any:
        @intrinsic  # type: ignore[untyped-decorator]
        def operation(context: Any, a: Any, b: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                return getattr(builder, on_reals if real else on_integers)(*arguments)

            return vector(a, b), generate

        return operation

    def take(builder: Any, best: Any, value: Any) -> Any:
        if not real:
            compare = builder.icmp_signed if signed else builder.icmp_unsigned
            return compare(">", value, best)
        # Larger, or unordered while `best` is a number: then `value` is the first NaN.
        beats = builder.fcmp_unordered("<", best, value)
        return builder.and_(beats, builder.fcmp_ordered("ord", best, best))

    @intrinsic  # type: ignore[untyped-decorator]
    def maximum(context: Any, best: Any, value: Any) -> Any:
        """The larger of each pair; `best` of equals, and the first NaN."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.select(take(builder, *arguments), arguments[1], arguments[0])

        return vector(best, value), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def select_maximum(context: Any, best: Any, value: Any, mark: Any, other: Any) -> Any:
        """`other` where `value` beats `best`, `mark` elsewhere: vectors of marks."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            best, value, mark, other = arguments
            return builder.select(take(builder, best, value), other, mark)

        return mark(best, value, mark, other), generate

    def exceeds(builder: Any, best: Any, value: Any) -> Any:
        return builder.fcmp_ordered(">", value, best) if real else take(builder, best, value)

    @intrinsic  # type: ignore[untyped-decorator]
    def max_num(context: Any, best: Any, value: Any) -> Any:
        """The larger of each pair, `best` of equals; neither may be NaN."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            best, value = arguments
            return builder.select(exceeds(builder, best, value), value, best)

        return vector(best, value), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def min_num(context: Any, best: Any, value: Any) -> Any:
        """The smaller of each pair, `best` of equals; neither may be NaN."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            best, value = arguments
            return builder.select(exceeds(builder, value, best), value, best)

        return vector(best, value), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def select_max_num(context: Any, best: Any, value: Any, mark: Any, other: Any) -> Any:
        """`other` where `value` is larger than `best`, `mark` elsewhere; neither may be NaN."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            best, value, mark, other = arguments
            return builder.select(exceeds(builder, best, value), other, mark)

        return mark(best, value, mark, other), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def isnan_bits(context: Any, a: Any, b: Any) -> Any:
        """A bit for each lane where one of the two is NaN, as an integer; 0 for integers.

        In halves that are compared as integers, −0 is found too.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            if half in INFINITY:
                found = builder.or_(*(out_of_order(builder, v, half) for v in arguments))
            elif not real:
                return ir.Constant(ir.IntType(64), 0)
            else:
                found = builder.fcmp_unordered("uno", *arguments)
            return builder.zext(builder.bitcast(found, ir.IntType(count)), ir.IntType(64))

        return types.int64(a, b), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def load_where_equal(context: Any, p: Any, i: Any, marks: Any, k: Any, code: Any) -> Any:
        """Elements `i, i+1, …` in lanes whose byte of `marks`, from `k` on, is the code; else zero."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            p, i, marks, k, code = arguments
            raw, codes = raw_type(context), ir.VectorType(ir.IntType(8), count)
            marks = builder.bitcast(builder.gep(marks, [k]), codes.as_pointer())
            code = ir_helpers.broadcast(builder, code, codes)
            mask = builder.icmp_signed("==", builder.load(marks, align=1), code)
            at = builder.bitcast(place(context, builder, p, i), raw.as_pointer())
            return widen(context, builder, masked_load(builder, at, mask, ir.Constant(raw, None)))

        return vector(p, i, marks, k, types.uint8), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def load_masked(context: Any, p: Any, i: Any, bits: Any, fill: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            p, i, bits, fill = arguments
            bits = bits if count == 64 else builder.trunc(bits, ir.IntType(count))
            mask = builder.bitcast(bits, ir.VectorType(ir.IntType(1), count))
            return load_where(context, builder, p, i, mask, fill)

        return vector(p, types.int64, types.int64, work), generate

    concat_even, concat_odd = list(range(0, 2 * count, 2)), list(range(1, 2 * count, 2))
    joined = [i // 2 + count * (i % 2) for i in range(2 * count)]
    return Vec(
        count,
        load,
        load_n,
        load_halves,
        gather_strided,
        store,
        store_n,
        scatter_strided,
        broadcast,
        shuffle(concat_even),
        shuffle(concat_odd),
        shuffle(joined[:count]),
        shuffle(joined[count:]),
        arithmetic("fadd", "add"),
        arithmetic("fmul", "mul"),
        arithmetic("fdiv", "sdiv"),
        maximum,
        select_maximum,
        arithmetic("fsub", "sub"),
        max_num,
        select_max_num,
        isnan_bits,
        load_where_equal,
        load_masked,
        shuffle(list(range(1, count + 1))),
        shuffle(list(range(2, count + 2))),
        min_num,
    )
