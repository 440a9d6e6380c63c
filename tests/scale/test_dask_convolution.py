"""Convolution of Dask arrays by the specification: exact over rationals, the same bits for floats."""

from unittest.mock import patch

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lunette as ln
from lunette import boxes
from lunette.adapters import dask as adapter
from tests.scale.chunkings import axis_chunks, chunked, float_arrays, same_bits
from tests.strategies import axis_arguments, fraction_arrays


@st.composite
def convolutions(draw, transposed):
    """(op, shapes of x, weight and bias)."""
    rank = draw(st.integers(1, 2))
    lengths = tuple(draw(st.integers(1, 6 if rank == 1 else 4)) for _ in range(rank))
    groups = draw(st.integers(1, 2))
    into, out = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    axes = [draw(axis_arguments(n)) for n in lengths]
    kernel, stride, padding, dilation = (tuple(a) for a in zip(*axes, strict=True))
    batch = draw(st.sampled_from([(), (2,)]))
    if not transposed:
        padding = draw(st.sampled_from([padding, padding, "same"]))
        op = ln.Conv(kernel, stride, padding, dilation, groups)
        weight = (out, into // groups, *kernel)
    else:
        extra = tuple(
            draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)
        )
        padding = tuple(
            (min(b, d * (k - 1)), min(a, (n - 1) * s))
            for (b, a), k, s, d, n in zip(padding, kernel, stride, dilation, lengths, strict=True)
        )
        op = ln.ConvTranspose(kernel, stride, padding, extra, dilation, groups)
        weight = (into, out // groups, *kernel)
    return op, ((*batch, into, *lengths), weight, (out,))


@pytest.mark.parametrize("transposed", [False, True])
@given(data=st.data())
@settings(max_examples=30)
def test_over_rationals_every_verb_is_exact_for_any_chunking(transposed, data):
    op, shapes = data.draw(convolutions(transposed))
    operands = tuple(data.draw(fraction_arrays(s)) for s in shapes)
    tangents = tuple(data.draw(fraction_arrays(s)) for s in shapes)
    lazy = tuple(data.draw(chunked(a)) for a in operands)
    directions = tuple(data.draw(chunked(a)) for a in tangents)
    y = ln.forward(op, *operands)
    same_bits(ln.forward(op, *lazy), y)
    same_bits(ln.jvp(op, lazy, directions), ln.jvp(op, operands, tangents))
    gy = data.draw(fraction_arrays(y.shape))
    for a, b in zip(
        ln.vjp(op, lazy, data.draw(chunked(gy))), ln.vjp(op, operands, gy), strict=True
    ):
        same_bits(a, b)


@pytest.mark.parametrize("transposed", [False, True])
@given(data=st.data())
@settings(max_examples=30)
def test_floats_have_the_same_bits_for_any_chunking(transposed, data):
    op, shapes = data.draw(convolutions(transposed))
    operands = tuple(data.draw(float_arrays(s)) for s in shapes)
    tangents = tuple(data.draw(float_arrays(s)) for s in shapes)
    lazy = data.draw(chunked(operands[0]))
    options = {"backend": "spec"}
    y = ln.forward(op, *operands, **options)
    same_bits(ln.forward(op, lazy, *operands[1:], **options), y)
    directions = (data.draw(chunked(tangents[0])), *tangents[1:])
    same_bits(
        ln.jvp(op, (lazy, *operands[1:]), directions, **options),
        ln.jvp(op, operands, tangents, **options),
    )
    gy = data.draw(float_arrays(y.shape))
    gradient = data.draw(chunked(gy))
    with patch.multiple(boxes, NUMBERS=1, POSITIONS=data.draw(st.sampled_from([1, 3, 8, 1000]))):
        found = ln.vjp(op, (lazy, *operands[1:]), gradient, **options)
        for a, b in zip(found, ln.vjp(op, operands, gy, **options), strict=True):
            same_bits(a, b)


@given(data=st.data())
@settings(max_examples=10)
def test_chunks_of_the_result_may_be_asked_for(data):
    x, weight = data.draw(float_arrays((2, 3, 7))), data.draw(float_arrays((4, 3, 3)))
    op = ln.Conv((3,), stride=2, padding=1)
    asked = (data.draw(axis_chunks(2)), (4,), data.draw(axis_chunks(4)))
    lazy = adapter.forward(op, (data.draw(chunked(x)), weight), backend="spec", chunks=asked)
    assert lazy.chunks == asked
    same_bits(lazy, ln.forward(op, x, weight, backend="spec"))


def test_half_types_round_a_sum_over_blocks_once():
    # 2048 + 1 is 2048 in float16: a sum that rounded after every block would never pass it.
    x = da.from_array(np.ones((1, 2050), np.float16), chunks=((1,), (2048, 1, 1)))
    weight = np.ones((1, 1, 1), np.float16)
    gy = da.from_array(np.ones((1, 2050), np.float16), chunks=((1,), (2048, 1, 1)))
    bias = np.zeros(1, np.float16)
    _, gweight, gbias = ln.vjp(ln.Conv((1,)), (x, weight, bias), gy, backend="spec")
    assert (
        gweight.compute(scheduler="sync").item() == gbias.compute(scheduler="sync").item() == 2050
    )


def test_channels_of_the_result_are_one_chunk():
    x = da.ones((2, 6), chunks=3)
    with pytest.raises(ValueError, match="one chunk of all output channels"):
        adapter.forward(ln.Conv((2,)), (x, np.ones((4, 2, 2))), chunks=((2, 2), (5,)))


def test_what_does_not_fit_is_refused_before_any_work():
    x = da.ones((2, 6), chunks=3)
    with pytest.raises(ValueError, match="channels"):
        ln.conv(x, np.ones((4, 3, 2)))
    with pytest.raises(TypeError, match="bias has dtype"):
        ln.conv(x, np.ones((4, 2, 2)), np.ones(4, np.float32))
