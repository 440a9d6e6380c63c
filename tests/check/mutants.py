"""Adapters for the right implementation and for each of its mutants, by name."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.check.right import answer

MUTANTS = [
    # who wins a max
    "any cell of a tie", "all ties as the first", "split not divided", "last NaN wins", "NaN loses",
    "indices within the row", "indices in int8", "indices in int16", "indices through float32",
    # values of a max
    "padding is zero", "padding is the lowest number", "plus zero for minus zero",
    "denormals flushed", "integers compared as floats", "unsigned compared as signed",
    "an empty window is −inf",
    # geometry
    "padding off by one", "padding swapped", "same puts the odd cell in front", "dilation ignored",
    "dilation ignored in vjp", "stride is kernel", "ceil_mode ignored",
    "ceil keeps windows past the input", "last window lost", "last window off by one",
    "vector tail dropped", "last output of seventeen", "adaptive bins end too early",
    "growing bins repeat in order", "keepdims ignored", "empty batch loses axes",
    "sizes in int32",
    # means and sums
    "divisor counts cells past the padding", "padding always counted", "padding never counted",
    "divisor_override ignored", "sums in half precision", "sums in float32",
    "a mean of integers truncates",
    # smooth max
    "no pivot", "beta without its sign", "padding not in the smooth sum", "weights not normalised",
    # derivatives
    "gradient transposed", "gradient overwritten", "gradient in float32",
    "gradient of the first output only", "tangent negated", "tangent is the largest tangent",
    "tangent divided by the kernel",
    # convolution
    "kernel flipped", "groups read the first channels", "bias forgotten",
    "tangent of the weight forgotten", "weight gradient flipped", "bias gradient of one image",
    # memory and state
    "strides ignored", "negative strides reversed", "stale cache",
    # bad input
    "any gradient shape", "unpool narrows indices", "unpool wraps negative indices",
    # the process
    "crash on one geometry", "hang on one geometry", "exit on one geometry", "heap overrun",
]  # fmt: skip


def adapter_name(wrong: str) -> str:
    """The function's name for a mutant."""
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in wrong)


def right(call: Any) -> Any:
    """The implementation without a fault."""
    return answer(call)


for _wrong in MUTANTS:
    globals()[adapter_name(_wrong)] = partial(answer, wrong=_wrong)
