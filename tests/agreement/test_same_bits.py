"""The order of a sum follows from its window alone: the same bits for any layout, number of threads, chunks and part."""

import os

import dask.array as da
import numpy as np
import pytest

import lunette as ln
from cases import drawn, same_bits, values
from cases.agreement import differing_bits
from lunette.kernels.cpu import pooling
from lunette.kernels.cpu.layout import split_axis

SEED = int(os.environ.get("LUNETTE_FUZZ_SEED", "0"))
COUNT = int(os.environ.get("LUNETTE_FUZZ_CASES", "0"))


def check(kind, count, dtype="float32"):
    for number, case in enumerate(same_bits.cases(kind, COUNT or count, SEED, dtype)):
        rng = np.random.default_rng([SEED, number])
        found = [
            *same_bits.by_layout(case),
            *same_bits.by_threads(case),
            *same_bits.by_parts(case, rng),
            *same_bits.by_chunks(case, rng),
        ]
        assert not found, (SEED, number)


def test_one_long_window_to_a_row_in_any_layout():
    op = ln.AvgPool((17, 4), stride=(3, 100), padding=(7, 3))
    x = drawn.numbers(np.random.default_rng(0), (1, 5, 53, 48), "float32")
    assert not differing_bits(op(np.asfortranarray(x)), op(x))


def test_chunks_shorter_than_a_long_window():
    op = ln.AvgPool((20, 20), stride=1)
    x = drawn.numbers(np.random.default_rng(0), (64, 64), "float32")
    assert not differing_bits(op(da.from_array(x, chunks=(5, 5))).compute(scheduler="sync"), op(x))


def test_gradients_of_a_mean_with_dilation_in_chunks_of_one_cell():
    # In a chunk each window has a cell at most, so its readers are neighbours; in the whole they are not.
    op = ln.AvgPool((2, 2), stride=2, padding=1, dilation=2)
    x = np.zeros((9, 9), "float32")
    grad = drawn.numbers(np.random.default_rng(0), op.out_shape(x.shape), "float32")
    lazy = op.vjp(da.from_array(x, chunks=1), da.from_array(grad, chunks=2))
    assert not differing_bits(lazy.compute(scheduler="sync"), op.vjp(x, grad))


@pytest.mark.parametrize(("kind", "count"), [("mean", 16), ("smooth", 4)])
def test_drawn_cases(kind, count):
    check(kind, count)


@pytest.mark.full
@pytest.mark.parametrize("dtype", values.FLOATS)
@pytest.mark.parametrize("kind", ["mean", "smooth"])
def test_many_drawn_cases(kind, dtype):
    check(kind, 200, dtype)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["mean", "smooth"])
def test_axes_that_are_cut(monkeypatch, kind):
    for op, x, dx, grad in same_bits.cases(kind, COUNT or 100, SEED):
        whole = [op(x), op.jvp(x, dx), op.vjp(x, grad)]
        with monkeypatch.context() as short:
            short.setattr(split_axis, "LONG", 48)
            short.setattr(pooling, "LONG", 48)
            parts = [op(x), op.jvp(x, dx), op.vjp(x, grad)]
        for a, b in zip(parts, whole, strict=True):
            assert not differing_bits(a, b, any_nan=True), op
