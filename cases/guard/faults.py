"""A fault as a message: which block was left, how far, and whether to read or to write; then the process ends."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import platform
import signal
import sys
from typing import Any

from cases.guard.pages import nearest

__all__ = ["STATUS", "report_faults"]

STATUS = 70
"""The status of a process that a fault has ended."""

ADDRESS_AT = 16
"""Bytes into the system's account of a signal where the address is that was touched."""

WRITES_AT, WRITE = 192, 2
"""Where x86-64 keeps the code of a fault in the context of a signal, and its bit for a write."""

_Action = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _SignalAction(ctypes.Structure):
    """`struct sigaction` of Linux."""

    _fields_ = (
        ("action", _Action),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def _fault(number: int, account: int, context: int) -> None:
    address = ctypes.c_size_t.from_address(account + ADDRESS_AT).value
    verb = "touched"
    if platform.machine() == "x86_64":
        code = ctypes.c_size_t.from_address(context + WRITES_AT).value
        verb = "written" if code & WRITE else "read"
    os.write(2, f"guard page: {verb} {nearest(address)}\n".encode())
    faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
    os._exit(STATUS)


_kept: list[Any] = []


def report_faults() -> None:
    """From now on. Where the system is not known well enough, a fault tells the lines of Python alone."""
    if not sys.platform.startswith("linux"):
        faulthandler.enable()
        return
    action = _SignalAction(_Action(_fault), (ctypes.c_ulong * 16)(), 4, None)  # 4: with an account
    _kept.append(action)
    library = ctypes.CDLL(None)
    for number in (signal.SIGSEGV, signal.SIGBUS):
        if library.sigaction(int(number), ctypes.byref(action), None):
            raise OSError(f"no handler for {number.name}")
