"""Ties that count: derivatives by all winners of a window, wherever they lie side by side with others."""

import numpy as np
import pytest

import lunette as ln
from cases import oracle, values
from cases.agreement import differing_bits, max_disagreements
from cases.ties import ties_that_count
from lunette.kernels.cpu.layout.batch_interleave import BatchInterleave
from lunette.kernels.cpu.program.calls import TiedGradient, TiedTangent
from lunette.kernels.cpu.select.argmax import tangent_call
from lunette.kernels.cpu.select.vjp import gradient_call
from lunette.regions import Global


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        *(pytest.param(d, marks=pytest.mark.full) for d in ("float16", "float64", "bfloat16")),
    ],
)
def test_ties_count_side_by_side_as_they_do_alone(dtype):
    assert not ties_that_count(dtype)


@pytest.mark.parametrize("rule", ["all", "split"])
def test_which_arrays_go_side_by_side(rule):
    op = ln.MaxPool((3, 3), 2, 1, ties=rule)

    def calls(x):
        out = np.zeros(op.out_shape(x.shape), x.dtype)
        if not x.flags.c_contiguous:
            out = np.moveaxis(np.ascontiguousarray(np.moveaxis(out, 1, -1)), -1, 1)
        yield gradient_call(op, x.shape, x.strides, out.strides, x.dtype)
        yield tangent_call(op, x.shape, x.strides, x.strides, x.dtype)

    last = np.zeros((2, 30, 30, 16), "f4").transpose(0, 3, 1, 2)
    assert [type(call) for call in calls(last)] == [TiedGradient, TiedTangent]
    assert all(
        isinstance(call, BatchInterleave) for call in calls(np.zeros((2, 16, 250, 250), "f4"))
    )
    assert not any(
        isinstance(call, BatchInterleave) for call in calls(np.zeros((1, 16, 9, 9), "f4"))
    )
    assert not any(
        isinstance(call, BatchInterleave) for call in calls(np.zeros((2, 16, 260, 260), "f4"))
    )


@pytest.mark.parametrize("kind", ["ties", "nans", "infinities"])
def test_items_with_one_window_each_at_every_length(kind):
    """Bits of 64 cells at a time, and what is left of them."""
    for length in (*range(1, 71), 127, 128, 129, 200):
        x = values.filled(kind, (20, length), "float32", seed=length)
        assert not max_disagreements((Global(),), x), length


def test_all_cells_win_where_there_is_nothing_larger():
    """What fills the last vector is −∞ too, and is no cell."""
    op = ln.GlobalMaxPool(1, ties="split")
    for length in (3, 16, 17, 49, 65):
        x = np.full((4, length), -np.inf, np.float32)
        grad = np.ones((4, 1), np.float32)
        assert not differing_bits(op.vjp(x, grad), oracle.vjp(op, x, grad))
        assert not differing_bits(op.jvp(x, np.ones_like(x)), oracle.jvp(op, x, np.ones_like(x)))
