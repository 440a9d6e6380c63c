"""What a kernel took on trust and does again: the specification's bits, wherever the strange cells are and however arrays lie."""

import os

import numpy as np
import pytest

import lunette as ln
from cases import oracle, redone, values
from cases.agreement import differing_bits
from lunette.kernels.cpu.program import calls
from lunette.kernels.cpu.select.vjp import gradient_call

SEED = int(os.environ.get("LUNETTE_FUZZ_SEED", "0"))
COUNT = int(os.environ.get("LUNETTE_FUZZ_CASES", "0"))


def check(dtype, count):
    for number in range(COUNT or count):
        rng = np.random.default_rng([SEED, number])
        shape, regions = redone.drawn(rng)
        x = redone.with_specials(rng, shape, dtype)
        assert not redone.disagreements(shape, regions, x, number), (SEED, number)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("op", [ln.MaxPool((2, 2), 1, 1), ln.AdaptiveMaxPool((3, 2))], ids=repr)
def test_items_of_one_cell(op, dtype):
    # Their batch axis is the one whose cells lie side by side, though the array is in order.
    x = np.arange(2048, dtype=dtype).reshape(-1, 1, 1)
    x[7] = np.nan
    zeros = np.where(np.arange(2048) % 2, 0.0, -0.0).astype(dtype).reshape(-1, 1, 1)
    for cells in (x, zeros, x[:1024, :, :]):
        expected, _ = oracle.forward_with_indices(op, cells)
        assert not differing_bits(op(cells), expected)


@pytest.mark.parametrize("ties", ["all", "split"])
def test_ties_of_items_of_one_cell(ties):
    # Values and sums of winners are two calls on one array between them.
    rng = np.random.default_rng(0)
    for shape, op in (
        ((1024, 1, 1), ln.MaxPool((2, 2), 1, 1, ties=ties)),
        ((2048, 1), ln.MaxPool((2,), 1, 1, ties=ties)),
    ):
        x = redone.with_specials(rng, shape, "float32")
        grad = rng.standard_normal(op.out_shape(shape)).astype("float32")
        expected = oracle.vjp(op, x, grad)
        for _, view in redone.layouts_of(grad, op.rank):
            assert not differing_bits(op.vjp(x, view), expected, any_nan=True)
        assert not differing_bits(op.jvp(x, x), oracle.jvp(op, x, x), any_nan=True)


def test_drawn_cases():
    check("float32", 6)


@pytest.mark.full
@pytest.mark.parametrize("dtype", values.DTYPES)
def test_many_drawn_cases(dtype):
    check(dtype, 300)


def test_calls_on_one_array_that_lay_it_out_otherwise_are_refused():
    x = np.zeros((32, 4, 4), "f4")
    last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -1)), -1, 0)
    op = ln.MaxPool((2, 2))
    by_rows, by_channels = (
        gradient_call(op, a.shape, a.strides, op(a).strides, a.dtype) for a in (x, last)
    )
    calls.laid_alike(by_rows, by_rows)
    with pytest.raises(RuntimeError, match=r"None and as \[\(1, 2, 0\)\]"):
        calls.laid_alike(by_rows, by_channels)
