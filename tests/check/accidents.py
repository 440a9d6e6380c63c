"""Adapters that harm their process, each in its own way."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from tests.check.right import answer

_SEEN: list[int] = []


def late(call: Any) -> Any:
    """A stride of seven does the damage; the process dies two calls later."""
    if _SEEN:
        _SEEN.append(1)
        if len(_SEEN) > 2:
            os.abort()
    if call.arguments["stride"] == (7,):
        _SEEN.append(1)
    return answer(call)


def sleepy(call: Any) -> Any:
    """A stride of seven never ends."""
    if call.arguments["stride"] == (7,):
        time.sleep(60)
    return answer(call)


def greedy(call: Any) -> Any:
    """Wants far more memory than it may have."""
    np.ones(1 << 40, np.uint8)
    return answer(call)


def talkative(call: Any) -> Any:
    """Prints into what the parent reads, if it can."""
    os.write(1, b"\x00garbage\n" * 100)
    print("more garbage")
    return answer(call)


def slow(call: Any) -> Any:
    """Every call takes a while."""
    time.sleep(0.2)
    return answer(call)


def slow_and_wrong(call: Any) -> Any:
    """Every call takes a while, and every max is off by one."""
    time.sleep(0.05)
    return answer(call) + (1 if call.op == "max" and call.x.dtype.kind == "f" else 0)


def endless(call: Any) -> Any:
    """The first call never ends."""
    time.sleep(600)


def remembering(call: Any) -> Any:
    """Wrong from the fortieth call on."""
    _SEEN.append(1)
    result = answer(call)
    return result + np.ones((), result.dtype) if len(_SEEN) > 40 else result
