"""Memory asked for ahead of its use, in the way that the processor gains by.

Read one after the other, pages come slower than they could: the processor foresees what follows
within a page, not past it, and one page keeps few of the memory's channels at work. So while a
kernel goes through a block of eight pages, it asks for the next block line by line, the first
lines of all eight pages, then the second lines. That is the way for Intel's processors, which gain a third by it.

AMD's lose by it, see the benchmarks. Those up to Zen 4 foresee enough by themselves where a kernel does little else than read,
unless it reads a few rows at once that are neither short nor long: these it asks for two pages ahead.
Where it does more, it asks for what is a page ahead. Those from Zen 5 on gain wherever a kernel asks for what is two or three pages
ahead, up to twice, and more if it is to wait in the nearest cache instead of the second.

On all of AMD's, a kernel that goes through several planes at once asks for
the rows of the planes after these, or the next rows of large ones; one that goes through several positions of many
channels at once, for what is ahead of each.

What may be in a cache already is not worth asking for: kernels that are quick enough to notice look at the plan (`OUT_OF_CACHE`).

Where to ask follows from where the kernel is in the input, so nothing is kept between calls. An
address outside any array does no harm.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from lunette.kernels.cpu.jit import processor
from lunette.kernels.cpu.jit.intrinsics import compiled

__all__ = [
    "DISTANCE",
    "EVERY_ACCESS",
    "PAGE",
    "PAGE_INTERLEAVED",
    "policy_of",
    "prefetch",
    "prefetch_always",
    "prefetch_by_rows",
    "prefetch_for",
    "prefetch_in_order",
    "prefetch_line",
    "prefetch_rows",
    "prefetch_surely",
    "prefetch_taps",
]

LINE, PAGE, PAGES = 64, 4096, 8
BLOCK = PAGES * PAGE
TOGETHER = PAGES * LINE
"""Bytes of lines that are asked for at once."""

FORESEEN = 512
"""Bytes of a row up to which processors that are seldom asked foresee the next ones, where a few are read at once."""

EVERY_CACHE, SECOND_CACHE = 3, 2


class Prefetch(NamedTuple):
    """How a processor is asked: by blocks of pages; if not, whether always; how many bytes ahead as a rule, and of rows; and for which cache."""

    by_blocks: bool
    always: bool
    ahead: int
    rows_ahead: int
    near: int


def policy_of(processor: str) -> Prefetch:
    """The way of a processor, by LLVM's name for it."""
    if not processor.startswith("znver"):
        return Prefetch(True, False, 0, 0, EVERY_CACHE)
    if processor in ("znver1", "znver2", "znver3", "znver4"):
        return Prefetch(False, False, PAGE, 2 * PAGE, SECOND_CACHE)
    return Prefetch(False, True, 3 * PAGE, 2 * PAGE, EVERY_CACHE)


PAGE_INTERLEAVED, EVERY_ACCESS, DISTANCE, ROWS_DISTANCE, NEAR = policy_of(processor.name())


def _ask(builder: Any, places: list[Any], near: int) -> None:
    """Ask for the lines at some addresses, integers."""
    word, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    flags = [ir.Constant(word, flag) for flag in (0, near, 1)]  # for reading; data
    for place in places:
        builder.call(function, [builder.inttoptr(place, pointer), *flags])


@intrinsic  # type: ignore[untyped-decorator]
def prefetch_lines(context: Any, at: Any) -> Any:
    """Ask for the lines at an address and at the same place of the pages after it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        steps = [ir.Constant(arguments[0].type, page * PAGE) for page in range(PAGES)]
        _ask(builder, [builder.add(arguments[0], step) for step in steps], EVERY_CACHE)
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def prefetch_line(context: Any, at: Any) -> Any:
    """Ask for the line at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _ask(builder, [arguments[0]], NEAR)
        return context.get_dummy_value()

    return types.void(types.int64), generate


@compiled
def prefetch_in_order(p, i):
    """`prefetch_for` of kernels that read in the order of memory and do little else, which some processors foresee."""
    if PAGE_INTERLEAVED or EVERY_ACCESS:
        prefetch_for(p, i)


@compiled
def prefetch_always(p, i):
    """`prefetch_for` on processors that gain by it wherever they read."""
    if EVERY_ACCESS:
        prefetch_for(p, i)


@intrinsic  # type: ignore[untyped-decorator]
def prefetch_for(context: Any, p: Any, i: Any) -> Any:
    """While element `i` of a pointer is read, ask for a line ahead.

    For kernels that read each line once, in any order. By blocks, line l of one asks for line
    l // PAGES of page l % PAGES of the next.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = ir.IntType(64)

        def constant(n: int) -> Any:
            return ir.Constant(whole, n)

        at = builder.ptrtoint(builder.gep(*arguments[:1], [arguments[1]]), whole)
        if not PAGE_INTERLEAVED:
            _ask(builder, [builder.add(at, constant(DISTANCE))], NEAR)
            return context.get_dummy_value()
        block = builder.add(builder.and_(at, constant(-BLOCK)), constant(BLOCK))
        page = builder.and_(at, constant((PAGES - 1) * LINE))
        page = builder.mul(page, constant(PAGE // LINE))
        line = builder.and_(builder.udiv(at, constant(PAGES)), constant(PAGE - LINE))
        _ask(builder, [builder.or_(builder.or_(block, page), line)], EVERY_CACHE)
        return context.get_dummy_value()

    return types.void(p, types.int64), generate


@compiled
def prefetch(array_at, prefetched, read_to):
    """Ask for what lies ahead of bytes asked … reached of an array; gives the bytes asked for so far.

    For kernels that do little else than read.
    """
    if EVERY_ACCESS:
        return line_by_line(array_at, prefetched, read_to, ROWS_DISTANCE)
    if not PAGE_INTERLEAVED:
        return read_to
    first = array_at - array_at % PAGE + BLOCK
    prefetched -= prefetched % TOGETHER
    while prefetched + TOGETHER <= read_to:
        prefetch_lines(first + prefetched - prefetched % BLOCK + prefetched % BLOCK // PAGES)
        prefetched += TOGETHER
    return prefetched


@compiled
def prefetch_surely(array_at, prefetched, read_to):
    """`prefetch` for kernels that do more with what they read."""
    if PAGE_INTERLEAVED:
        return prefetch(array_at, prefetched, read_to)
    return line_by_line(array_at, prefetched, read_to, DISTANCE)


@compiled
def prefetch_by_rows(array_at, prefetched, read_to, row, planes):
    """`prefetch` for kernels that go through a few rows at once, of `row` bytes each; so many more `planes` are asked for by `prefetch_rows`.

    AMD's processors up to Zen 4 foresee short rows, which are nearly one, and long ones, which are several: not those between.
    """
    if EVERY_ACCESS and planes > 0:
        return read_to
    if PAGE_INTERLEAVED or EVERY_ACCESS or not FORESEEN < row <= PAGE:
        return prefetch(array_at, prefetched, read_to)
    return line_by_line(array_at, prefetched, read_to, ROWS_DISTANCE)


@compiled
def line_by_line(array_at, prefetched, read_to, ahead):
    """Ask for each line so far ahead."""
    prefetched -= prefetched % LINE
    while prefetched + LINE <= read_to:
        prefetch_line(array_at + prefetched + ahead)
        prefetched += LINE
    return prefetched


@compiled
def prefetch_rows(array_at, places, count, size):
    """Ask for `size` bytes from each of some places of an array on, given in bytes; not by blocks."""
    if PAGE_INTERLEAVED:
        return
    for line in range(0, size, LINE):
        for place in range(count):
            prefetch_line(array_at + places[place] + line)


@compiled
def prefetch_taps(array_at, at, rows, count, far, positions, size):
    """Ask for what is a page ahead of some positions, `far` apart, of each of some rows, in elements of `size` bytes."""
    for r in range(count):
        for t in range(positions):
            prefetch_line(array_at + (at + rows[r] + t * far) * size + PAGE)
