"""Memory asked for ahead of its use, eight pages at a time.

Read one after the other, pages come slower than they could: the processor foresees what follows
within a page, not past it, and one page keeps few of the memory's channels at work. So while a
kernel goes through a block of eight pages, it asks for the next block line by line, the first
lines of all eight pages, then the second lines. Where to ask follows from where the kernel is in the
input, so nothing is kept between calls. An address outside any array does no harm.

That is a gain on Intel's processors. AMD's foresee enough by themselves, and lose by it, see the benchmarks;
so nothing is asked for there.
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

from lunette.kernels.cpu.machine import compiled

__all__ = ["ask", "ask_for"]

LINE, PAGE, PAGES = 64, 4096, 8
BLOCK = PAGES * PAGE
TOGETHER = PAGES * LINE
"""Bytes of lines that are asked for at once."""

ASKS = not llvm.get_host_cpu_name().startswith("znver")
"""Whether this processor gains by it."""


def _ask(builder: Any, places: list[Any]) -> None:
    """Ask for the lines at some addresses."""
    if not ASKS:
        return
    word, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    # For reading, to be kept in every cache, data.
    flags = [ir.Constant(word, flag) for flag in (0, 3, 1)]
    for place in places:
        builder.call(function, [place, *flags])


@intrinsic  # type: ignore[untyped-decorator]
def ask_lines(context: Any, at: Any) -> Any:
    """Ask for the lines at an address and at the same place of the pages after it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        steps = [ir.Constant(arguments[0].type, page * PAGE) for page in range(PAGES)]
        _ask(builder, [builder.gep(first, [step]) for step in steps])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def ask_for(context: Any, p: Any, i: Any) -> Any:
    """While element `i` of a pointer is read, ask for the line of the next block whose turn it is.

    For kernels that read each line once, in any order. Line l of a block of lines asks for line
    l // PAGES of page l % PAGES.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = ir.IntType(64)

        def constant(n: int) -> Any:
            return ir.Constant(whole, n)

        at = builder.ptrtoint(builder.gep(*arguments[:1], [arguments[1]]), whole)
        block = builder.add(builder.and_(at, constant(-BLOCK)), constant(BLOCK))
        page = builder.and_(at, constant((PAGES - 1) * LINE))
        page = builder.mul(page, constant(PAGE // LINE))
        line = builder.and_(builder.udiv(at, constant(PAGES)), constant(PAGE - LINE))
        place = builder.or_(builder.or_(block, page), line)
        _ask(builder, [builder.inttoptr(place, ir.IntType(8).as_pointer())])
        return context.get_dummy_value()

    return types.void(p, types.int64), generate


@compiled
def ask(array_at, asked, reached):
    """Ask for a block ahead of bytes asked … reached of an array; gives the bytes asked for so far."""
    if not ASKS:
        return reached
    first = array_at - array_at % PAGE + BLOCK
    asked -= asked % TOGETHER
    while asked + TOGETHER <= reached:
        ask_lines(first + asked - asked % BLOCK + asked % BLOCK // PAGES)
        asked += TOGETHER
    return asked
