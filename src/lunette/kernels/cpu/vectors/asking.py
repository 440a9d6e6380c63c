"""Memory asked for ahead of its use, in the way that the processor gains by.

Read one after the other, pages come slower than they could: the processor foresees what follows
within a page, not past it, and one page keeps few of the memory's channels at work. So while a
kernel goes through a block of eight pages, it asks for the next block line by line, the first
lines of all eight pages, then the second lines. That is the way for Intel's processors, which gain a third by it.

AMD's lose by it, see the benchmarks. They foresee enough by themselves where a kernel does little else than read,
unless it reads a few rows at once that are neither short nor long: these it asks for two pages ahead.
Where it does more, it asks for what is a page ahead; where it goes through several planes at once, for
the rows of the planes after these, or the next rows of large ones; where it goes through several positions of many
channels at once, for what is a page ahead of each. All are to wait in the second cache.

What may be in a cache already is not worth asking for: kernels that are quick enough to notice look at the plan (`DISTANT`).

Where to ask follows from where the kernel is in the input, so nothing is kept between calls. An
address outside any array does no harm.
"""

# Numba types the kernels, not mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from lunette.kernels.cpu.compiling.machine import compiled

__all__ = [
    "BY_BLOCKS",
    "PAGE",
    "ask",
    "ask_by_rows",
    "ask_for",
    "ask_in_order",
    "ask_line",
    "ask_rows",
    "ask_surely",
]

LINE, PAGE, PAGES = 64, 4096, 8
BLOCK = PAGES * PAGE
TOGETHER = PAGES * LINE
"""Bytes of lines that are asked for at once."""

BY_BLOCKS = not llvm.get_host_cpu_name().startswith("znver")
"""Whether blocks of pages are asked for."""

FORESEEN = 512
"""Bytes of a row up to which AMD's processors foresee the next ones, where a few are read at once."""

EVERY_CACHE, SECOND_CACHE = 3, 2


def _ask(builder: Any, places: list[Any], near: int) -> None:
    """Ask for the lines at some addresses, integers."""
    word, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    flags = [ir.Constant(word, flag) for flag in (0, near, 1)]  # for reading; data
    for place in places:
        builder.call(function, [builder.inttoptr(place, pointer), *flags])


@intrinsic  # type: ignore[untyped-decorator]
def ask_lines(context: Any, at: Any) -> Any:
    """Ask for the lines at an address and at the same place of the pages after it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        steps = [ir.Constant(arguments[0].type, page * PAGE) for page in range(PAGES)]
        _ask(builder, [builder.add(arguments[0], step) for step in steps], EVERY_CACHE)
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def ask_line(context: Any, at: Any) -> Any:
    """Ask for the line at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _ask(builder, [arguments[0]], SECOND_CACHE)
        return context.get_dummy_value()

    return types.void(types.int64), generate


@compiled
def ask_in_order(p, i):
    """`ask_for` of kernels that read in the order of memory and do little else: AMD's foresee that."""
    if BY_BLOCKS:
        ask_for(p, i)


@intrinsic  # type: ignore[untyped-decorator]
def ask_for(context: Any, p: Any, i: Any) -> Any:
    """While element `i` of a pointer is read, ask for a line ahead.

    For kernels that read each line once, in any order. By blocks, line l of one asks for line
    l // PAGES of page l % PAGES of the next.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = ir.IntType(64)

        def constant(n: int) -> Any:
            return ir.Constant(whole, n)

        at = builder.ptrtoint(builder.gep(*arguments[:1], [arguments[1]]), whole)
        if not BY_BLOCKS:
            _ask(builder, [builder.add(at, constant(PAGE))], SECOND_CACHE)
            return context.get_dummy_value()
        block = builder.add(builder.and_(at, constant(-BLOCK)), constant(BLOCK))
        page = builder.and_(at, constant((PAGES - 1) * LINE))
        page = builder.mul(page, constant(PAGE // LINE))
        line = builder.and_(builder.udiv(at, constant(PAGES)), constant(PAGE - LINE))
        _ask(builder, [builder.or_(builder.or_(block, page), line)], EVERY_CACHE)
        return context.get_dummy_value()

    return types.void(p, types.int64), generate


@compiled
def ask(array_at, asked, reached):
    """Ask for what lies ahead of bytes asked … reached of an array; gives the bytes asked for so far.

    For kernels that do little else than read.
    """
    if not BY_BLOCKS:
        return reached
    first = array_at - array_at % PAGE + BLOCK
    asked -= asked % TOGETHER
    while asked + TOGETHER <= reached:
        ask_lines(first + asked - asked % BLOCK + asked % BLOCK // PAGES)
        asked += TOGETHER
    return asked


@compiled
def ask_surely(array_at, asked, reached):
    """`ask` for kernels that do more with what they read."""
    if BY_BLOCKS:
        return ask(array_at, asked, reached)
    return line_by_line(array_at, asked, reached, PAGE)


@compiled
def ask_by_rows(array_at, asked, reached, row):
    """`ask` for kernels that go through a few rows at once, of `row` bytes each.

    AMD's processors foresee short rows, which are nearly one, and long ones, which are several: not those between.
    """
    if BY_BLOCKS or not FORESEEN < row <= PAGE:
        return ask(array_at, asked, reached)
    return line_by_line(array_at, asked, reached, 2 * PAGE)


@compiled
def line_by_line(array_at, asked, reached, ahead):
    """Ask for each line so far ahead."""
    asked -= asked % LINE
    while asked + LINE <= reached:
        ask_line(array_at + asked + ahead)
        asked += LINE
    return asked


@compiled
def ask_rows(array_at, places, count, size):
    """Ask for `size` bytes from each of some places of an array on, given in bytes; not by blocks."""
    if BY_BLOCKS:
        return
    for line in range(0, size, LINE):
        for place in range(count):
            ask_line(array_at + places[place] + line)
