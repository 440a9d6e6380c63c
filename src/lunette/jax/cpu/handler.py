"""The handler that XLA calls on the CPU: machine code around our kernels, and what Python does when it is asked.

XLA's threads flush subnormal numbers to zero. So the code around sets the processor's floating-point mode to the plain one, in
the caller and in helpers, and gives it back afterwards.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import sys
import threading
import time
from typing import Any

import jax
import numpy as np

from lunette.background import forever
from lunette.jax.cpu.frame import Frame, failure
from lunette.jax.cpu.kernels import XLA, address_of
from lunette.jax.cpu.programs import Programs
from lunette.jax.verbs import compute
from lunette.kernels.cpu.xla.words import (
    ASKED,
    CLOSED,
    FREE,
    GONE,
    INSIDE,
    MADVISE,
    MALLOC,
    PREPARE,
    PYTHON,
    SERVED,
    STRANGE,
    TASK,
    YIELD,
)
from lunette.loading import uninterrupted

__all__ = ["TARGET", "counts", "huge_pages", "programs", "register"]

TARGET = "lunette_task"
"""What programs call."""

PLAIN = {"x86": 0x1F80, "arm": 0}
"""The floating-point mode in which subnormal numbers are numbers, results are rounded to nearest, and nothing traps."""


# -- what Python does --


def _answer(at: int, why: int) -> int:
    """Do a call in NumPy, and see to it that the next of its kind needs nobody."""
    try:
        frame = Frame(at)
        if why == PREPARE:
            programs().prepare(frame)
        elif why == STRANGE:
            programs().prepare_again(frame)
        arrays = [b.array for b in frame.operands]
        compute(frame.task(), arrays, [b.array for b in frame.results])
    except BaseException as error:
        return failure(at, f"lunette: {type(error).__name__}: {error}")
    return 0


_programs = Programs()


def programs() -> Programs:
    """The programs of this process."""
    return _programs


def counts() -> tuple[int, int]:
    """Calls that machine code served alone, and calls for which Python was asked."""
    state = programs().state
    return int(state[SERVED]), int(state[ASKED])


def huge_pages(wanted: bool) -> None:
    """Whether large results ask Linux for huge pages; elsewhere nothing happens."""
    found = getattr(ctypes.CDLL(None), "madvise", None) if sys.platform == "linux" else None
    programs().state[MADVISE] = address_of(found) if wanted and found else 0


# -- machine code --


def _x86(get: bool, place: str) -> str:
    return f"call void @llvm.x86.sse.{'st' if get else 'ld'}mxcsr(ptr {place})"


def _mode(kind: str) -> tuple[str, str, str, str]:
    """LLVM's text: declarations; what keeps the floating-point mode; what makes it plain; and what gives it back."""
    if kind == "x86":
        declared = (
            "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)"
        )
        keep = f"%old = alloca i32\n%new = alloca i32\n{_x86(True, '%old')}"
        plain = f"store i32 {PLAIN[kind]}, ptr %new\n{_x86(False, '%new')}"
        return declared, keep, plain, _x86(False, "%old")
    if kind == "arm":
        declared = "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)"
        return (
            declared,
            "%old = call i64 @llvm.aarch64.get.fpcr()",
            f"call void @llvm.aarch64.set.fpcr(i64 {PLAIN[kind]})",
            "call void @llvm.aarch64.set.fpcr(i64 %old)",
        )
    return "", "", "", ""


def _kind() -> str:
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return "x86"
    return "arm" if machine in ("aarch64", "arm64") else ""


def _text(kind: str, handler: int, task: int, state: int) -> str:
    """The functions that XLA is given, in LLVM's words: of a call, and of a helper."""
    declared, keep, plain, back = _mode(kind)
    zeros = ", ".join(["i64 0"] * 5)
    return f"""
        {declared}
        define i64 @lunette_call(i64 %frame) {{
            {keep}
            %error = alloca i64
            %place = ptrtoint ptr %error to i64
            {plain}
            %kernel = inttoptr i64 {handler} to ptr
            call i32 %kernel(i64 %frame, i64 {state}, i64 %place, {zeros})
            {back}
            %found = load i64, ptr %error
            ret i64 %found
        }}
        define void @lunette_help(i64 %job) {{
            {keep}
            {plain}
            %kernel = inttoptr i64 {task} to ptr
            call i32 %kernel(i64 %job, i64 0, i64 0, {zeros})
            {back}
            ret void
        }}
    """


def _compiled(text: str) -> Any:
    import llvmlite.binding as llvm

    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    module = llvm.parse_assembly(text)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    forever(engine)
    return engine


class _Gone(ctypes.Structure):
    """The arguments of the error that the interpreter is gone."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int),
    ]


GONE_MESSAGE = b"lunette: the interpreter is about to end, and this call needs it: wait for results before, with jax.block_until_ready"


_turn = threading.RLock()
_registered: list[bool] = []


def register() -> None:
    """Make the target known to XLA, once, whoever asks first."""
    if not _registered:
        with _turn:
            if not _registered:
                uninterrupted(_register)
                _registered.append(True)


def _register() -> None:
    state = programs().state
    system = ctypes.CDLL("msvcrt") if sys.platform == "win32" else ctypes.CDLL(None)
    for word, name in ((MALLOC, "malloc"), (FREE, "free"), (YIELD, "sched_yield")):
        function = (
            getattr(system, name, None) if name != "sched_yield" or os.name == "posix" else None
        )
        state[word] = address_of(function) if function else 0
    ask = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(_answer)
    gone = _Gone(28, None, GONE_MESSAGE, 13)
    state[PYTHON], state[GONE] = address_of(ask), ctypes.addressof(gone)
    forever((ask, gone, system))
    call, help_out = address_of(XLA.handler_kernel()), address_of(XLA.task_kernel())
    at: int = state.__array_interface__["data"][0]
    engine = _compiled(_text(_kind(), call, help_out, at))
    state[TASK] = engine.get_function_address("lunette_help")
    address = ctypes.c_void_p(engine.get_function_address("lunette_call"))
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(address), platform="cpu")
    jax.ffi.register_ffi_target_as_batch_partitionable(TARGET)
    atexit.register(_close, state)


LONGEST = 5.0
"""Seconds for which the end of the process waits for calls that are in Python."""


def _close(state: np.ndarray[Any, Any]) -> None:
    """From here on nobody asks Python: the interpreter's lock will never be given back."""
    state[CLOSED] = 1
    end = time.monotonic() + LONGEST
    while state[INSIDE] and time.monotonic() < end:
        time.sleep(0.001)
