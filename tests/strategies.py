"""Hypothesis strategies shared by the tests: ops that fit a shape, and arrays of exact numbers."""

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

import lunette as ln

TIES = ("first", "all", "split")


def object_array(values, shape):
    """An object array of this shape, filled in row-major order."""
    out = np.empty(shape, object)
    for place, v in zip(np.ndindex(*shape), values, strict=True):
        out[place] = v
    return out


POOL = sorted({Fraction(n, d) for n in range(-4, 5) for d in (1, 2, 3)}, key=abs)


@st.composite
def fraction_arrays(draw, shape):
    """Fractions from a small pool, so that ties are common; zeros when shrunk."""
    size = int(np.prod(shape, dtype=int))
    choices = draw(st.binary(min_size=size, max_size=size))
    return object_array([POOL[c % len(POOL)] for c in choices], shape)


@st.composite
def axis_arguments(draw, n, ceil_mode=False):
    """(kernel, stride, (before, after), dilation) that fit an axis of length n."""
    kernel, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    before, after = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    stride = draw(st.integers(1, 4))
    # Under ceil_mode the edge may cut a window short by less than a stride.
    spared = min(stride, kernel) - 1 if ceil_mode else 0
    before += max(0, dilation * (kernel - 1) + 1 - (n + before + after) - spared)
    return kernel, stride, (before, after), dilation


@st.composite
def shapes(draw, max_rank=3):
    """(shape, rank): up to one batch axis, then `rank` pooled axes."""
    rank = draw(st.integers(1, max_rank))
    longest = {1: 8, 2: 4, 3: 3}[rank]
    batch = draw(st.sampled_from([(), (2,), (1,)]))
    return batch + tuple(draw(st.integers(1, longest)) for _ in range(rank)), rank


@st.composite
def sliding_arguments(draw, pooled):
    """The keyword arguments of a sliding op on axes of these lengths."""
    ceil_mode = draw(st.booleans())
    axes = [draw(axis_arguments(n, ceil_mode)) for n in pooled]
    kernel, stride, padding, dilation = (tuple(a) for a in zip(*axes, strict=True))
    return {
        "kernel": kernel,
        "stride": draw(st.sampled_from([stride, stride, None])),
        "padding": draw(st.sampled_from([padding, padding, "same"])),
        "dilation": dilation,
        "ceil_mode": ceil_mode,
    }


@st.composite
def ops(draw, shape, rank, kinds=("max", "mean"), smooth=False):
    """Any pooling op over the last `rank` axes of `shape`."""
    pooled = shape[len(shape) - rank :]
    family = draw(st.sampled_from(["sliding", "sliding", "adaptive", "global"]))
    kind = draw(st.sampled_from(kinds))
    if smooth:
        beta = draw(st.sampled_from([1.0, 0.5, 7.0, -1.0, -3.0]))
        arguments = draw(sliding_arguments(pooled))
        return ln.SmoothMaxPool(beta=beta, count_include_pad=draw(st.booleans()), **arguments)
    if family == "sliding":
        arguments = draw(sliding_arguments(pooled))
        if kind == "max":
            return ln.MaxPool(**arguments, ties=draw(st.sampled_from(TIES)))
        return ln.AvgPool(
            **arguments,
            count_include_pad=draw(st.booleans()),
            divisor_override=draw(st.sampled_from([None, None, 5])),
        )
    if family == "adaptive":
        output_size = tuple(draw(st.integers(1, 6 if rank < 3 else 4)) for _ in range(rank))
        if kind == "max":
            return ln.AdaptiveMaxPool(output_size, draw(st.sampled_from(TIES)))
        return ln.AdaptiveAvgPool(output_size)
    keepdims = draw(st.booleans())
    if kind == "max":
        return ln.GlobalMaxPool(rank, keepdims, draw(st.sampled_from(TIES)))
    return ln.GlobalAvgPool(rank, keepdims)


@st.composite
def ops_and_arrays(draw, count=1, max_rank=3, **kinds):
    """An op and `count` arrays of Fractions of its input's shape."""
    shape, rank = draw(shapes(max_rank))
    op = draw(ops(shape, rank, **kinds))
    return op, *(draw(fraction_arrays(shape)) for _ in range(count))
