"""Convolution of Dask arrays: exact over rationals for any chunking, the same bits where promised."""

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lunette as ln
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
def test_floats_have_the_same_bits_but_for_sums_over_positions(transposed, data):
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
    lazy_gx, *_ = ln.vjp(op, (lazy, *operands[1:]), gradient, **options)
    same_bits(lazy_gx, ln.vjp(op, operands, gy, **options)[0])


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


@pytest.mark.parametrize("seed", range(4))
def test_the_kernels_keep_the_bits_of_each_output_and_the_bound_of_the_weights(seed):
    rng = np.random.default_rng(seed)
    into, out, k = (int(v) for v in rng.integers(1, (30, 12, 4)))
    x = rng.integers(-8, 9, (2, into, 23, 31)).astype("f4") / 7
    weight = rng.normal(size=(out, into, k, k)).astype("f4")
    op = ln.Conv((k, k), stride=int(rng.integers(1, 3)), padding=1)
    lazy = da.from_array(x, chunks=(1, into, *rng.integers(3, 20, 2).tolist()))
    y = ln.forward(op, x, weight)
    same_bits(ln.forward(op, lazy, weight), y)
    gy = rng.normal(size=y.shape).astype("f4")
    lazy_gx, lazy_weight = ln.vjp(op, (lazy, weight), da.from_array(gy, chunks=(2, out, 7, 9)))
    gx, _ = ln.vjp(op, (x, weight), gy)
    same_bits(lazy_gx, gx)
    wide, ones = (x.astype("f8"), weight.astype("f8")), gy.astype("f8")
    exact = ln.vjp(op, wide, ones)[1]
    sizes = ln.vjp(op, tuple(map(np.abs, wide)), np.abs(ones))[1]
    terms = gy[:, 0].size
    bound = terms * 2**-24 / (1 - terms * 2**-24) * sizes
    assert (np.abs(lazy_weight.compute(scheduler="sync") - exact) <= bound).all()
