"""Parts of vectors read and written where the processor has no masks: SSE, AVX2 with short lanes, NEON.

LLVM takes a masked access apart there, a branch for each lane. Two facts do better. Memory is protected by pages: what lies
in a page with a lane that may be read can be read as well, and is thrown away. And the first lanes of a vector are stored
in pieces whose sizes are falling powers of two.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from lunette.kernels.cpu.jit.processor import abilities

__all__ = ["bounds", "has_masks", "load_within", "store_first"]

PAGE = 4096
"""Bytes of the smallest pages that any system has."""

WHOLE, BYTE = ir.IntType(64), ir.IntType(8)


def has_masks(element: Any) -> bool:
    """Whether the processor reads and writes vectors of these elements under a mask."""
    short = isinstance(element, ir.IntType) and element.width < 32
    return abilities().masks_halves if short else abilities().masks_words


def _number(value: int) -> Any:
    return ir.Constant(WHOLE, value)


def _size(kind: Any) -> int:
    """Bytes of an element."""
    element = kind.element
    if isinstance(element, ir.FloatType):
        return 4
    return 8 if isinstance(element, ir.DoubleType) else int(element.width) // 8


def bounds(builder: Any, mask: Any) -> tuple[Any, Any]:
    """The first lane of a mask, and the one after its last; an empty mask's first is not below its last."""
    count = mask.type.count
    bits = builder.bitcast(mask, ir.IntType(count))
    bits = bits if count == WHOLE.width else builder.zext(bits, WHOLE)
    some = ir.Constant(ir.IntType(1), 0)  # no bit at all gives 64
    low = builder.cttz(bits, some)
    return low, builder.sub(_number(64), builder.ctlz(bits, some))


def load_within(builder: Any, at: Any, low: Any, high: Any, align: int) -> Any:
    """The vector at a typed address, of which lanes low … high are wanted; the others hold anything.

    A page that has none of the wanted lanes is not read.
    """
    kind = at.type.pointee
    count, size = kind.count, _size(kind)
    place = builder.and_(builder.ptrtoint(at, WHOLE), _number(PAGE - 1))
    within = builder.icmp_unsigned("<=", place, _number(PAGE - count * size))
    low = builder.select(builder.icmp_signed(">", low, _number(0)), low, _number(0))
    high = builder.select(builder.icmp_signed("<", high, _number(count)), high, _number(count))
    quick = builder.and_(within, builder.icmp_signed("<", low, high))
    with builder.if_else(quick, likely=True) as (then, otherwise):
        with then:
            one, after_one = builder.load(at, align=align), builder.block
        with otherwise:
            other = builder.call(_careful_load(builder.module, kind), [at, low, high])
            after_other = builder.block
    result = builder.phi(kind)
    result.add_incoming(one, after_one)
    result.add_incoming(other, after_other)
    return result


def _careful_load(module: Any, kind: Any) -> Any:
    """A function that reads from the pages of the wanted lanes alone, and moves the lanes to their places."""
    count, size = kind.count, _size(kind)
    name = f"lunette_load_v{count}x{kind.element}".replace(" ", "")
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(kind, [kind.as_pointer(), WHOLE, WHOLE]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("cold")
    builder, total = ir.IRBuilder(function.append_basic_block()), count * size
    at, low, high = function.args
    address = builder.ptrtoint(at, WHOLE)
    begin = builder.and_(builder.add(address, builder.mul(low, _number(size))), _number(-PAGE))
    last = builder.sub(builder.add(address, builder.mul(high, _number(size))), _number(1))
    end = builder.add(builder.and_(last, _number(-PAGE)), _number(PAGE - total))
    source = builder.select(builder.icmp_unsigned("<", address, begin), begin, address)
    source = builder.select(builder.icmp_unsigned(">", source, end), end, source)
    moved = builder.sub(address, source)
    # The room is three vectors long: what is read lies in the middle, at most one vector from where it belongs.
    room = builder.alloca(ir.ArrayType(BYTE, 3 * total))
    middle = builder.add(builder.ptrtoint(room, WHOLE), _number(total))
    some = builder.icmp_signed("<", low, high)
    source = builder.select(some, source, middle)
    moved = builder.select(some, moved, _number(0))

    def pointer(place: Any) -> Any:
        return builder.inttoptr(place, kind.as_pointer())

    builder.store(builder.load(pointer(source), align=1), pointer(middle), align=1)
    builder.ret(builder.load(pointer(builder.add(middle, moved)), align=1))
    return function


def store_first(builder: Any, at: Any, value: Any, high: Any) -> None:
    """Store the first `high` lanes: the whole, or pieces of falling powers of two."""
    kind, size = value.type, _size(value.type)
    whole = builder.icmp_signed(">=", high, _number(kind.count))
    with builder.if_else(whole) as (then, otherwise):
        with then:
            builder.store(value, at, align=size)
        with otherwise:
            high = builder.select(builder.icmp_signed(">", high, _number(0)), high, _number(0))
            _store_pieces(builder, at, value, high, size)


def _store_pieces(builder: Any, at: Any, value: Any, high: Any, size: int) -> None:
    """Fewer lanes than there are: half of them if there are so many, then half of what is left."""
    place, lanes = builder.ptrtoint(at, WHOLE), value.type.count // 2
    rest = value
    while lanes:
        low, upper = _halves(builder, rest)
        target = builder.inttoptr(place, low.type.as_pointer())
        some = builder.icmp_unsigned("!=", builder.and_(high, _number(lanes)), _number(0))
        before = builder.block
        with builder.if_then(some):
            builder.store(low, target, align=size)
            beyond, within = builder.add(place, _number(lanes * size)), builder.block
        kept, moved = builder.phi(low.type), builder.phi(WHOLE)
        for phi, there, here in ((kept, low, upper), (moved, place, beyond)):
            phi.add_incoming(there, before)
            phi.add_incoming(here, within)
        rest, place, lanes = kept, moved, lanes // 2


def _halves(builder: Any, value: Any) -> tuple[Any, Any]:
    """The lower and the upper half of a vector; of two lanes, the lanes."""
    half = value.type.count // 2
    if half == 1:
        low, upper = (
            builder.extract_element(value, ir.Constant(ir.IntType(32), k)) for k in (0, 1)
        )
        return low, upper
    index = ir.VectorType(ir.IntType(32), half)
    nothing = ir.Constant(value.type, ir.Undefined)
    low, upper = (
        builder.shuffle_vector(value, nothing, ir.Constant(index, list(range(k, k + half))))
        for k in (0, half)
    )
    return low, upper
