"""An allocator for NumPy whose blocks have an inaccessible page on either side, and are checked when they are freed.

    from cases.guard import pages
    with pages.guarded("end"):
        x = np.ones(7, np.float32)  # x[7] is not there: to read it ends the process

A block lies flush against the page after it (`"end"`) or before it (`"start"`). What is left of its pages has a
pattern of its own: a write there is found when the block is freed, and raised by `check`. New memory is filled with
`fill`, so that nobody takes it for zeros.

NumPy asks for memory through a handler that may be replaced (NEP 49). Handlers belong to a context: `guarded`
serves the thread that it is in, and threads that are started meanwhile. The handler is compiled: arrays are also freed
while an exception is on its way, when no Python may run. It is called under the interpreter lock.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numba
from numba import types
from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

from lunette.kernels.cpu.jit.intrinsics import pointer

__all__ = ["SUPPORTED", "check", "guarded", "nearest"]

SUPPORTED = hasattr(mmap, "PROT_READ")
"""Whether the system lets pages be protected."""

SET_HANDLER = 304
"""Where NumPy's table of functions has `PyDataMem_SetHandler`."""

PAGE, PATTERN = mmap.PAGESIZE, 0xA5
MOST = 1 << 17
"""Blocks in use, at most."""

FAR = 1 << 40
"""Bytes from a block past which an address has nothing to do with it."""

AT_END, FILL, TOUCHED, SIZE_TOUCHED, BLOCKS = 0, 1, 2, 3, 4
"""Of the state: whether blocks lie against the page after them; what new ones are filled with; blocks beside which
something was written, and the size of the last of them; then the address and size of each block, by a hash of its address."""

_state = (ctypes.c_int64 * (BLOCKS + 2 * MOST))()


# -- the allocator, compiled --


class _Functions(NamedTuple):
    """The addresses of NumPy's four functions, and a function that looks at all blocks."""

    malloc: int
    calloc: int
    realloc: int
    free: int
    check: Any
    kept: Any


@cache
def _functions() -> _Functions:
    library = ctypes.CDLL(None)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    new_pages, free_pages, protect = library.mmap, library.munmap, library.mprotect
    fill, copy = library.memset, library.memmove
    new_pages.restype = address
    new_pages.argtypes = address, size, number, number, number, ctypes.c_longlong
    free_pages.restype, free_pages.argtypes = number, (address, size)
    protect.restype, protect.argtypes = number, (address, size, number)
    fill.restype, fill.argtypes = address, (address, number, size)
    copy.restype, copy.argtypes = address, (address, address, size)
    state_at, access = ctypes.addressof(_state), mmap.PROT_READ | mmap.PROT_WRITE
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    compiled = numba.njit(nogil=False)

    @compiled  # type: ignore[untyped-decorator]
    def entry(at):  # type: ignore[no-untyped-def]
        """Where a block is in the table, or is to be."""
        state = pointer(state_at, types.int64)
        i = at // PAGE % MOST
        for _ in range(MOST):
            if state[BLOCKS + 2 * i] in (at, 0):
                break
            i = (i + 1) % MOST
        return BLOCKS + 2 * i

    @compiled  # type: ignore[untyped-decorator]
    def whole(size):  # type: ignore[no-untyped-def]
        return (size + PAGE - 1) // PAGE * PAGE

    @compiled  # type: ignore[untyped-decorator]
    def take(size, content):  # type: ignore[no-untyped-def]
        size = max(size, 1)
        state, pages = pointer(state_at, types.int64), whole(size)
        found = new_pages(0, pages + 2 * PAGE, 0, kind, -1, 0)
        begin = types.int64(found) + PAGE
        if types.int64(found) == -1:
            return 0
        if protect(begin, pages, access) != 0:
            free_pages(found, pages + 2 * PAGE)
            return 0
        at = begin + pages - size if state[AT_END] else begin
        fill(begin, PATTERN, at - begin)
        fill(at, content, size)
        fill(at + size, PATTERN, begin + pages - at - size)
        i = entry(at)
        state[i], state[i + 1] = at, size
        return at

    @compiled  # type: ignore[untyped-decorator]
    def look(at, size):  # type: ignore[no-untyped-def]
        """Whether all is well beside a block."""
        state, begin = pointer(state_at, types.int64), at // PAGE * PAGE
        edges, well = pointer(begin, types.uint8), True
        for i in range(at - begin):
            well &= edges[i] == PATTERN
        for i in range(at - begin + size, whole(size)):
            well &= edges[i] == PATTERN
        if not well:
            state[TOUCHED] += 1
            state[SIZE_TOUCHED] = size
        return well

    @compiled  # type: ignore[untyped-decorator]
    def give(at):  # type: ignore[no-untyped-def]
        state, i = pointer(state_at, types.int64), entry(at)
        look(at, state[i + 1])
        free_pages(at // PAGE * PAGE - PAGE, whole(state[i + 1]) + 2 * PAGE)
        # Those that another had pushed on move up, so that every search ends at an empty place.
        state[i], hole, j = 0, (i - BLOCKS) // 2, (i - BLOCKS) // 2
        while True:
            j = (j + 1) % MOST
            other = state[BLOCKS + 2 * j]
            if other == 0:
                break
            wanted = other // PAGE % MOST
            if (j - wanted) % MOST >= (j - hole) % MOST:
                state[BLOCKS + 2 * hole], state[BLOCKS + 2 * hole + 1] = other, state[BLOCKS + 2 * j + 1]  # fmt: skip
                state[BLOCKS + 2 * j] = 0
                hole = j

    @compiled  # type: ignore[untyped-decorator]
    def check():  # type: ignore[no-untyped-def]
        """Look at all blocks in use."""
        state = pointer(state_at, types.int64)
        for i in range(MOST):
            if state[BLOCKS + 2 * i]:
                look(state[BLOCKS + 2 * i], state[BLOCKS + 2 * i + 1])

    def malloc(_, size):  # type: ignore[no-untyped-def]
        return take(size, pointer(state_at, types.int64)[FILL])

    def calloc(_, count, size):  # type: ignore[no-untyped-def]
        return take(count * size, 0)

    def realloc(_, old, size):  # type: ignore[no-untyped-def]
        state = pointer(state_at, types.int64)
        at = take(size, state[FILL])
        if at and old:
            copy(at, old, min(size, state[entry(old) + 1]))
            give(old)
        return at

    def free(_, at, size):  # type: ignore[no-untyped-def]
        if at:
            give(at)

    whole_number = types.int64
    made = [
        numba.cfunc(whole_number(*[whole_number] * count))(function)
        for function, count in ((malloc, 2), (calloc, 3), (realloc, 3))
    ]
    made.append(numba.cfunc(types.void(*[whole_number] * 3))(free))
    return _Functions(*(f.address for f in made), check, made)


# -- NumPy's handler --


class _Handler(ctypes.Structure):
    """`PyDataMem_Handler` of NumPy's C interface."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in ("malloc", "calloc", "realloc", "free")),
    )


@cache
def _capsule() -> tuple[Any, Any]:
    """The handler as NumPy takes it, and its memory."""
    handler = _Handler(b"guard pages", 1, None, *_functions()[:4])
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)  # fmt: skip
    return new(ctypes.addressof(handler), b"mem_handler", None), handler


@cache
def _set_handler() -> Callable[[Any], Any]:
    """NumPy's function that takes a handler, and gives the one before."""
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = address(_multiarray_umath._ARRAY_API, None)
    functions = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
    return kind(functions[SET_HANDLER] or 0)


@contextmanager
def guarded(side: str = "end", fill: int = 0xFF) -> Iterator[None]:
    """Guard what this thread allocates, and threads that it starts, until the end of the block."""
    if not SUPPORTED:
        raise RuntimeError("guard pages: this system lets no page be protected")
    if side not in ("end", "start"):
        raise ValueError(f"side={side!r}: expected 'end' or 'start'")
    set_handler, (capsule, _), run = _set_handler(), _capsule(), threading.Thread.run

    def run_guarded(thread: threading.Thread) -> None:
        set_handler(capsule)
        run(thread)

    before = _state[AT_END], _state[FILL]
    _state[AT_END], _state[FILL] = side == "end", fill
    threading.Thread.run = run_guarded  # type: ignore[method-assign]
    earlier = set_handler(capsule)
    try:
        yield
    finally:
        set_handler(earlier)
        threading.Thread.run = run  # type: ignore[method-assign]
        _state[AT_END], _state[FILL] = before


# -- what was found --


def check() -> None:
    """Raise an AssertionError where something was written beside a block, in use or freed since the last check."""
    _functions().check()
    count, size = _state[TOUCHED], _state[SIZE_TOUCHED]
    _state[TOUCHED] = 0
    assert not count, f"a write beside {count} blocks, the last of {size} bytes"


def nearest(address: int) -> str:
    """The block in use that an address is nearest to, and how far it is from it, in words."""
    entries = range(BLOCKS, BLOCKS + 2 * MOST, 2)
    known = [(_state[i], _state[i + 1]) for i in entries if _state[i]]
    if not known:
        return "no block is in use"
    at, size = min(known, key=lambda b: max(b[0] - address, address - b[0] - b[1] + 1))
    if abs(address - at) > FAR:
        return "an address far from any block"
    where = f"{at - address} bytes before"
    if address >= at:
        beyond = address - at - size
        where = f"{beyond} bytes past the end of" if beyond >= 0 else "in"
    return f"{where} a block of {size} bytes"
