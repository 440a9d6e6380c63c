"""A kernel that divides as the flat kernels do; imported where Triton interprets."""

import triton
import triton.language as tl

from lunette.kernels.triton.flat import divide_by


@triton.jit
def quotients(n, q, d, multiplier, shift, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(q + at, divide_by(tl.load(n + at), d, multiplier, shift, 0))
