"""The calls of a draw: every verb that its op has, on arrays with guard pages, from either side."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import lunette as ln
from cases.guard import pages
from cases.guard.draws import FLOATS, Draw, array
from lunette import dispatch, offsets
from lunette.kernels.cpu.conv import tiling
from lunette.kernels.cpu.memory.scratchpad import be_exact
from lunette.ops.pooling import Pooling
from lunette.reductions import Max

__all__ = ["perform"]

Array = np.ndarray[Any, Any]

SIDES = (("end", 0xFF), ("start", 0x7F))
"""Where blocks lie, and what new memory is filled with: no number is made of either by chance."""

WAYS = (tiling.WAYS, ("packed",), ("implicit",), ("sliding",))
"""Kernels that a correlation may choose from: all, or one of them and, where it does not serve, the first."""


def perform(draw: Draw) -> int:
    """Every verb of a draw, twice; how many calls that was. Raises an AssertionError that says what is wrong.

    The two differ in where arrays lie and in what is beside them, and so must agree in every bit.
    """
    be_exact()
    number = draw.seed[1]
    if not isinstance(draw.op, Pooling):
        tiling.WAYS = WAYS[number % len(WAYS)]
        tiling.schedule.cache_clear()
    sides = SIDES if number % 2 else SIDES[::-1]  # tables are made once, for the first
    found = [_results(draw, *side) for side in sides]
    for verb, result in found[0].items():
        other = found[1].get(verb)
        assert result == other, f"{verb}: other bits where memory has other contents"
    if number % 32 == 0:
        forget()
    return sum(map(len, found))


def _results(draw: Draw, side: str, fill: int) -> dict[str, list[bytes] | str]:
    """The bytes of the results of each verb, or the words of an error."""
    found: dict[str, list[bytes] | str] = {}
    with pages.guarded(side, fill), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        ln.set_num_threads(draw.threads)
        for verb, call in _calls(draw):
            try:
                results = call()
            except (ValueError, TypeError) as error:
                found[verb] = str(error)
                continue
            results = results if isinstance(results, tuple) else (results,)
            found[verb] = [_bits(r) for r in results]
            del results
            try:
                pages.check()
            except AssertionError as error:
                raise AssertionError(f"{verb}: {error}") from None
    return found


def _bits(result: Array) -> bytes:
    """The bytes of an array; all NaNs are one."""
    values = np.ascontiguousarray(result)
    if values.dtype.kind not in "iub":
        values = np.where(np.isnan(values), np.asarray(np.nan, values.dtype), values)
    return values.tobytes()


def _calls(draw: Draw) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each verb by name, and the call of it; operands are made before it."""
    op, dtype, rng = draw.op, draw.dtype, np.random.default_rng(draw.seed)
    layouts, values = iter(draw.layouts * 3), draw.values

    def made(shape: tuple[int, ...], content: str = "plain") -> Array:
        return array(shape, dtype, next(layouts), content, rng, op.rank)

    operands = tuple(made(shape, values) for shape in draw.shapes)
    (inputs, *more) = (operands,) if len(operands) > 1 else operands
    yield "forward", lambda: op(*operands)
    pooling = not more and len(operands) == 1
    winners = pooling and isinstance(op.reduction, Max)
    if winners:
        yield "indices", lambda: dispatch.forward_with_indices(op, inputs)
    if dtype not in FLOATS:
        return
    out, x = op.out_shape(*draw.shapes), operands[0]
    tangents = tuple(made(shape) for shape in draw.shapes)
    grad = made(out)
    yield "jvp", lambda: op.jvp(inputs, tangents if len(operands) > 1 else tangents[0])
    yield "vjp", lambda: op.vjp(inputs, grad)
    if not winners or op.reduction.ties != "first":
        return
    try:
        _, kept = offsets.forward_with_offsets(op, x)
    except ValueError:  # windows of more taps than a byte tells apart
        return
    yield "offsets", lambda: offsets.forward_with_offsets(op, x)
    shift = np.uint8(rng.integers(256))
    wrong = array(out, "uint8", next(layouts), "plain", rng, op.rank) + shift
    for name, some in (("offsets", kept), ("wrong offsets", wrong)):
        yield f"vjp from {name}", partial(offsets.vjp_from_offsets, op, some, grad, x.shape)
        yield f"jvp from {name}", partial(offsets.jvp_from_offsets, op, some, tangents[0])


def forget() -> None:
    """Let go of prepared calls and their tables: each has guard pages, and a process may have so many."""
    for name, module in list(sys.modules.items()):
        if name.startswith("lunette."):
            for value in list(vars(module).values()):
                # Those without a bound hold code, not tables.
                if hasattr(value, "cache_info") and value.cache_info().maxsize is not None:
                    value.cache_clear()
    gc.collect()
