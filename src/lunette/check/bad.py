"""Calls whose only right answer is an error: the inputs that crashed other implementations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lunette.check.calls import Call

__all__ = ["bad_calls"]

HUGE = 2**62


def bad_calls(op: str) -> Iterator[Call]:
    """Every bad call of this op, the same in every run."""
    if op in ("max", "mean", "smooth-max"):
        yield from _bad_sliding(op)
    elif op.startswith("adaptive"):
        yield from _bad_adaptive(op)
    elif op.startswith("global"):
        yield _call(op, (2, 0), {"ndim": 1, **_own(op)}, "a pooled axis of length zero")
    elif op.startswith("conv"):
        yield from _bad_convolution(op)
    elif op == "unpool":
        yield from _bad_unpool()


def _own(op: str) -> dict[str, Any]:
    return {"beta": 1.0} if "smooth" in op else {}


def _call(
    op: str, shape: tuple[int, ...], arguments: dict[str, Any], why: str, verb: str = "forward"
) -> Call:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return Call(op, arguments, verb, (x,), bad=why, tags=frozenset({"bad input"}))


def _sliding(op: str, rank: int = 1, **changed: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "kernel": (2,) * rank,
        "stride": (2,) * rank,
        "padding": ((0, 0),) * rank,
        "dilation": (1,) * rank,
        "ceil_mode": False,
        **_own(op),
    }
    return {**arguments, **changed}


def _bad_sliding(op: str) -> Iterator[Call]:
    for rank in (1, 2, 3):
        shape = (1, 1, *(6,) * rank)

        def bad(why: str, shape: Any = shape, rank: int = rank, **changed: Any) -> Call:
            last = {k: (*((1,) * (rank - 1)), v) for k, v in changed.items() if k != "padding"}
            if "padding" in changed:
                last["padding"] = (*(((0, 0),) * (rank - 1)), changed["padding"])
            return _call(op, shape, _sliding(op, rank, **last), why)

        yield bad("stride 0", stride=0)
        yield bad("a negative stride", stride=-1)
        yield bad("kernel 0", kernel=0)
        yield bad("a negative kernel", kernel=-2)
        yield bad("dilation 0", dilation=0)
        yield bad("negative padding", padding=(-1, -1))
        yield bad("a window longer than the padded input", kernel=9)
        yield bad("(kernel − 1)·dilation past int64", kernel=5, dilation=HUGE)
        yield bad("a kernel past int64's half", kernel=HUGE)
        yield bad("a pooled axis of length zero", shape=(1, 1, *(6,) * (rank - 1), 0))
        yield bad("fewer axes than the kernel", shape=(6,) * (rank - 1))
    # a gradient of another shape than the output
    call = _call(op, (1, 2, 6), _sliding(op), "a gradient of another shape", "vjp")
    for shape in [(1, 2, 2), (1, 2, 7), (1, 1, 3), (0,), (1, 2, 3, 1)]:
        yield Call(
            op, call.arguments, "vjp", call.operands, gradient=np.ones(shape, np.float32),
            bad=f"a gradient of shape {shape} for an output of shape (1, 2, 3)", tags=call.tags,
        )  # fmt: skip


def _bad_adaptive(op: str) -> Iterator[Call]:
    for rank in (1, 2, 3):
        shape = (1, 1, *(4,) * rank)
        ones = (1,) * (rank - 1)
        for size, why in [(-1, "a negative output size"), (2**40, "an output larger than memory")]:
            yield _call(op, shape, {"output_size": (*ones, size)}, why)
        large = (2**60 + 7,) if rank == 1 else (2**31 - 1,) * rank
        yield _call(op, shape, {"output_size": large}, "an output larger than memory")
        empty = (1, 1, *(4,) * (rank - 1), 0)
        yield _call(op, empty, {"output_size": (*ones, 2)}, "a pooled axis of length zero")


def _bad_convolution(op: str) -> Iterator[Call]:
    transposed = op == "conv-transpose"

    def bad(
        why: str, shape: Any = (1, 2, 5), weight: Any = (2, 2, 3), bias: Any = None, **changed: Any
    ) -> Call:
        arguments: dict[str, Any] = {
            "kernel": weight[2:], "stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1,
        }  # fmt: skip
        if transposed:
            arguments["output_padding"] = (0,)
        operands = [np.ones(s, np.float32) for s in (shape, weight, bias) if s is not None]
        return Call(
            op, {**arguments, **changed}, "forward", tuple(operands), bad=why,
            tags=frozenset({"bad input"}),
        )  # fmt: skip

    yield bad("stride 0", stride=(0,))
    yield bad("a negative stride", stride=(-1,))
    yield bad("dilation 0", dilation=(0,))
    yield bad("negative padding", padding=((-1, -1),))
    yield bad("groups 0", groups=0)
    yield bad("groups that do not divide the channels", groups=3)
    yield bad("weights for another number of channels", weight=(3, 3, 3))
    yield bad("a bias of another length", bias=(7,))
    if transposed:
        yield bad("padding larger than the result", padding=((9, 9),))
        yield bad("output_padding past the stride", output_padding=(5,))
    else:
        yield bad("a window longer than the padded input", weight=(2, 2, 9))
        yield bad("(kernel − 1)·dilation past int64", dilation=(HUGE,))


def _bad_unpool() -> Iterator[Call]:
    """Positions outside the output, among them some that fit after cutting off high bits."""
    for rank in (1, 2, 3):
        shape = (1, 1, *(2,) * rank)
        values = np.ones(shape, np.float32)
        for position in (4**rank, -2, 10**6, 2**32, 2**32 + 1, -(2**32) + 1, 2**62):
            indices = np.zeros(shape, np.int64)
            indices.reshape(-1)[-1] = position
            yield Call(
                "unpool", {"output_size": (4,) * rank}, "forward", (values, indices),
                bad=f"index {position} outside the output", tags=frozenset({"bad input"}),
            )  # fmt: skip
