"""Kernels compiled before they are needed: `ln.warm(op, shape)` and `lunette warm`.

A kernel compiles at its first call and is kept on disk. Which kernels a call needs follows from its op, verb, shape, dtype
and memory format, so each call is made once, on arrays that nobody sees, in processes beside this one. The disk has
the kernels then, and this process loads them in milliseconds.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lunette.arguments import choice, flag, listed, shape_tuple, shown, size
from lunette.memory import check_fits
from lunette.ops import (
    AdaptiveAvgPool,
    AvgPool,
    Conv,
    GlobalAvgPool,
    GlobalMaxPool,
    MaxPool,
    Op,
    SmoothMaxPool,
)
from lunette.ops.base import check_is_op, is_float
from lunette.ops.pooling import Pooling
from lunette.platform import usable_cores
from lunette.reductions import Max

__all__ = ["VERBS", "Call", "typical_calls", "warm", "warm_calls"]

VERBS = ("forward", "jvp", "vjp", "autograd")
"""What can be compiled ahead; `autograd` is a forward that keeps its argmax, and the gradient from it."""


@dataclass(frozen=True)
class Call:
    """One call to make once: a verb of an op on arrays of these shapes."""

    op: Op
    shapes: tuple[tuple[int, ...], ...]
    dtype: Any
    verb: str
    channels_last: bool = False

    def __str__(self) -> str:
        first = "×".join(map(str, self.shapes[0]))
        return f"{self.verb} of {self.op!r} on {first} {self.dtype}"


def warm(
    op: Op,
    *shapes: tuple[int, ...],
    dtype: Any = "float32",
    verbs: Sequence[str] = ("forward", "vjp"),
    channels_last: bool = False,
    processes: int | None = None,
) -> None:
    """Compile what a call will need, before it is made.

    Parameters
    ----------
    op : Op
        The op that will be called.
    *shapes : tuple of int
        The shape of each operand: one of a pooling; input and weight, and bias if there is one, of a convolution.
    dtype : dtype-like, default "float32"
        The dtype of the operands.
    verbs : sequence of str, default ("forward", "vjp")
        Some of "forward", "jvp", "vjp" and "autograd"; torch's training needs "autograd".
    channels_last : bool, default False
        Whether the channels lie last in memory, as torch's `channels_last` and NHWC views have them.
    processes : int, optional
        How many processes compile side by side; the default is one for each core.

    Raises
    ------
    ValueError, TypeError
        For what the call itself would refuse, an unknown verb, or a number of processes below 1.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.warm(ln.MaxPool((2, 2)), (8, 3, 32, 32), verbs=["forward"])
    """
    check_is_op(op)
    if not isinstance(verbs, (tuple, list)):
        raise ValueError(f"verbs={shown(verbs)}: expected a tuple of some of {', '.join(VERBS)}")
    asked = dict.fromkeys(choice(verb, "verbs", VERBS) for verb in listed(verbs))
    try:
        found = np.dtype(dtype)
    except Exception as trouble:  # a foreign object may raise anything
        raise TypeError(f"dtype={shown(dtype)}: expected a dtype; {trouble}") from None
    if not found.isnative:
        found = found.newbyteorder("=")  # which would make a plain void of bfloat16
    flag(channels_last, "channels_last")
    given = tuple(shape_tuple(shape) for shape in shapes)
    out = op.check_operands(given, (found,) * len(given))
    check_fits(out, found)
    for verb in asked:
        if verb != "forward":
            _check_derivative(op, given, found, out, verb)
    calls = [Call(op, given, found, verb, channels_last) for verb in asked]
    for call, failed in warm_calls(calls, processes):
        if failed:
            raise RuntimeError(f"{call} could not be compiled: {failed}")


def _check_derivative(op: Op, shapes: Any, dtype: np.dtype[Any], out: Any, verb: str) -> None:
    """Refuse a derivative that the op does not have of this dtype."""
    dtypes = (dtype,) * len(shapes)
    try:
        op.check_gradient(shapes, dtypes, out, op.result_dtype(*dtypes))
    except TypeError as error:
        raise TypeError(f"verbs={verb!r}: {error}") from None


def warm_calls(calls: Sequence[Call], processes: int | None = None) -> Iterator[tuple[Call, str]]:
    """Make every call once, some side by side; each comes back when it is done, with its error or ''."""
    workers = usable_cores() if processes is None else size(processes, "processes", 1)
    with ThreadPoolExecutor(min(workers, max(1, len(calls))), "lunette-warm") as pool:
        waiting = {pool.submit(_in_a_process, call): call for call in calls}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def _in_a_process(call: Call) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "lunette.warmup"],
        input=pickle.dumps(call),
        capture_output=True,
        check=False,
    )
    if run.returncode == 0:
        return ""
    lines = run.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {run.returncode}"


def typical_calls(dtypes: Sequence[str], verbs: Sequence[str]) -> list[Call]:
    """The calls of common networks: 2-D pooling of middle-sized images in both memory formats, and a convolution."""
    image = (8, 64, 56, 56)
    poolings: list[Op] = [
        MaxPool((2, 2)),
        MaxPool((3, 3), stride=2, padding=1),
        AvgPool((2, 2)),
        AvgPool((3, 3), stride=2, padding=1),
        SmoothMaxPool((2, 2), beta=1.0),
        AdaptiveAvgPool((7, 7)),
        GlobalAvgPool(2),
        GlobalMaxPool(2),
    ]
    calls = [
        Call(op, (image,), dtype, verb, last)
        for dtype in dtypes
        for op in poolings
        for verb in verbs
        for last in (False, True)
    ]
    convolution = Conv((3, 3), padding=1)
    shapes = (image, (64, 64, 3, 3))
    plain = [v for v in verbs if v != "autograd"]
    return calls + [Call(convolution, shapes, d, v) for d in dtypes for v in plain]


def make(call: Call) -> None:
    """Make a call in this process: on ordinary numbers, and on those that send a fast kernel to its fallback."""
    for special in (False, True):
        operands = [_operand(shape, call, special) for shape in call.shapes]
        _ACTIONS[call.verb](call.op, operands)


def _operand(shape: tuple[int, ...], call: Call, special: bool) -> np.ndarray[Any, Any]:
    """An array of a shape, in its memory format; with a NaN and zeros of both signs, where asked."""
    dtype = np.dtype(call.dtype)
    last = call.channels_last and len(shape) > 2
    made = np.zeros((shape[0], *shape[2:], shape[1]) if last else shape, dtype)
    made.reshape(-1)[::3] = 1
    if special and is_float(dtype) and made.size:
        made.reshape(-1)[1::5] = -0.0
        made.reshape(-1)[-1] = np.nan
    return np.moveaxis(made, -1, 1) if last else made


def _forward(op: Op, operands: list[Any]) -> Any:
    return op(*operands)


def _jvp(op: Op, operands: list[Any]) -> None:
    given = operands[0] if len(operands) == 1 else tuple(operands)
    op.jvp(given, given)


def _vjp(op: Op, operands: list[Any]) -> None:
    given = operands[0] if len(operands) == 1 else tuple(operands)
    op.vjp(given, np.ones_like(op(*operands)))


def _autograd(op: Op, operands: list[Any]) -> None:
    from lunette.offsets import NOWHERE, forward_with_offsets, vjp_from_offsets

    if not (isinstance(op, Pooling) and isinstance(op.reduction, Max)):
        return _vjp(op, operands)
    (x,) = operands
    pooled = x.shape[len(x.shape) - op.rank :]
    if prod(region.boxes(n)[2] for region, n in zip(op.regions, pooled, strict=True)) > NOWHERE:
        return _vjp(op, operands)  # a byte does not tell so many taps apart
    values, kept = forward_with_offsets(op, x)
    vjp_from_offsets(op, kept, np.ones_like(values), x.shape)
    return None


_ACTIONS: dict[str, Callable[[Op, list[Any]], Any]] = {
    "forward": _forward,
    "jvp": _jvp,
    "vjp": _vjp,
    "autograd": _autograd,
}


if __name__ == "__main__":
    make(pickle.loads(sys.stdin.buffer.read()))
