"""A small right implementation of every op and verb in vectorised NumPy, and where it can be spoilt.

`answer(call, wrong)` is right while `wrong` is empty. Each name in `wrong` breaks one thing.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from typing import Any

import numpy as np

from lunette.check import Call, NotOffered
from tests.check.right_convolution import convolve
from tests.check.right_pooling import pool

_STALE: dict[Any, Any] = {}


def answer(call: Call, wrong: str = "") -> Any:
    """The call's value in NumPy."""
    before(call, wrong)
    if call.op == "unpool":
        return unpool(call, wrong)
    x = call.x
    if wrong == "strides ignored" and x.base is not None and not x.flags.c_contiguous:
        x = np.ndarray(x.shape, x.dtype, np.ascontiguousarray(x.base).tobytes())
    if wrong == "negative strides reversed" and x.ndim and x.strides[-1] < 0:
        x = x[..., ::-1]
    if wrong == "stale cache":
        key = (call.op, call.verb, str(call.arguments), x.shape, x.dtype.name)
        if key in _STALE:
            return _STALE[key]
    check(call, wrong)
    result = convolve(call, wrong) if call.op.startswith("conv") else pool(call, x, wrong)
    if wrong == "stale cache":
        _STALE[key] = result
    return result


def before(call: Call, wrong: str) -> None:
    """The mutants that harm the process itself."""
    shape = [call.arguments.get(k) for k in ("kernel", "stride")]
    hit = (call.op, call.verb) == ("max", "forward") and shape == [(3, 3), (2, 2)]
    if wrong == "crash on one geometry" and hit:
        os.abort()
    if wrong == "hang on one geometry" and hit:
        time.sleep(60)
    if wrong == "exit on one geometry" and hit:
        os._exit(0)
    if wrong == "heap overrun" and hit:
        block = np.empty(24, np.uint8)
        ctypes.memset(block.ctypes.data + 24, 0xAB, 64)


def check(call: Call, wrong: str) -> None:
    """Refuse what the op refuses; the mutants forget one thing."""
    if call.bad and call.bad == wrong:
        return
    op = call.lunette_op
    if wrong == "any gradient shape" and call.verb == "vjp":
        return
    op.check_operands(tuple(a.shape for a in call.operands), tuple(a.dtype for a in call.operands))
    if math.prod(op.out_shape(*(a.shape for a in call.operands))) > 2**32:
        raise ValueError("too large")
    if call.verb == "vjp":
        assert call.gradient is not None
        shape = op.out_shape(*(a.shape for a in call.operands))
        if call.gradient.shape != shape:
            raise ValueError("gradient of another shape")


def unpool(call: Call, wrong: str) -> Any:
    values, indices = call.operands
    size = call.arguments["output_size"]
    cells = math.prod(size)
    if wrong == "unpool narrows indices":
        indices = indices.astype(np.int32).astype(np.int64)
    low = -cells if wrong == "unpool wraps negative indices" else -1
    if indices.size and (indices.min() < low or indices.max() >= cells):
        raise ValueError("index out of range")
    batch = values.shape[: values.ndim - len(size)]
    out = np.zeros((math.prod(batch), cells), values.dtype)
    flat = indices.reshape(math.prod(batch), math.prod(values.shape[len(batch) :]))
    lines = values.reshape(flat.shape)
    for r in range(flat.shape[0]):
        keep = flat[r] != -1
        out[r, flat[r][keep]] = lines[r][keep]
    if call.verb != "forward":
        raise NotOffered("derivatives of unpooling")
    return out.reshape(*batch, *size)
