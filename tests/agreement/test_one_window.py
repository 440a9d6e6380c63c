"""Items with one window each, small ones and long rows: the specification's numbers, by kernels that take several items at once."""

import numpy as np
import pytest

import lunette as ln
from lunette.dispatch import forward_with_indices
from lunette.kernels.cpu.layout.batch_interleave import BatchInterleave
from lunette.kernels.cpu.select.canonical import collapse_axes
from lunette.kernels.cpu.select.forward import forward_call
from lunette.kernels.cpu.select.vjp import gradient_call
from lunette.reductions import Max
from lunette.regions import Global, Sliding

CASES = [
    (ln.MaxPool((2, 2)), (1024, 2, 2)),
    (ln.MaxPool((2, 2)), (64, 16, 3, 2)),
    (ln.MaxPool((2, 3)), (1030, 2, 3)),
    (ln.MaxPool((4,)), (64, 16, 4)),
    (ln.MaxPool((3, 4, 4)), (40, 5, 4, 4)),
    (ln.MaxPool((2, 4, 4)), (40, 7, 4, 4)),
    (ln.GlobalMaxPool(2, ties="first"), (37, 2, 3)),
]


@pytest.mark.parametrize(("op", "shape"), CASES)
def test_maxima_of_one_window(op, shape):
    x = np.random.default_rng(0).integers(-2, 3, shape).astype(np.float32)
    x[x == 0] = -0.0
    x.flat[:: x.size // 7] = np.nan
    y, places = forward_with_indices(op, x)
    expected, there = forward_with_indices(op, x, backend="spec")
    assert np.array_equal(places, there)
    for found in (y, op(x)):
        assert np.array_equal(np.signbit(found), np.signbit(expected))
        assert np.array_equal(found, expected, equal_nan=True)
    grad = np.arange(y.size, dtype=np.float32).reshape(y.shape)
    assert np.array_equal(op.vjp(x, grad), ln.vjp(op, x, grad, backend="spec"))
    tangent = np.arange(x.size, dtype=np.float32).reshape(x.shape)
    assert np.array_equal(op.jvp(x, tangent), ln.jvp(op, x, tangent, backend="spec"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [9, 16, 209, 256, 257, 700])
@pytest.mark.parametrize("items", [1, 7, 16, 37])
def test_means_of_rows_add_from_the_first_cell_to_the_last(n, items, dtype):
    x = np.random.default_rng(n).standard_normal((items, n)).astype(dtype)
    total = np.zeros(items, dtype)
    for column in range(n):
        total = total + x[:, column]
    expected = total / np.array(n, dtype)
    assert np.array_equal(ln.global_avg_pool(x, 1)[:, 0], expected)
    assert np.array_equal(ln.global_avg_pool(x[:1], 1)[:, 0], expected[:1])


def test_how_they_go():
    assert isinstance(
        gradient_call(CASES[0][0], (1024, 2, 2), (16, 8, 4), (4, 4, 4), np.dtype("f4")),
        BatchInterleave,
    )
    rows = forward_call(ln.GlobalAvgPool(1), (37, 700), (2800, 4), np.dtype("f4"))
    assert rows.units == 3  # a vector has sixteen lanes

    def region(op, shape, size=4):
        strides = tuple(int(size * np.prod(shape[i + 1 :])) for i in range(len(shape)))
        same = collapse_axes(op, shape, (strides,), (), size, 1 << 31)
        return same and same.op.regions[0]

    assert region(ln.MaxPool((2, 2)), (8, 2, 2)) == Global()
    assert region(ln.MaxPool((2, 4)), (8, 7, 4)) == Sliding(8, 8)
    assert region(ln.MaxPool((2, 4), 3), (8, 7, 4)) == Sliding(8, 12)
    for op in (
        ln.MaxPool((2, 4), 1),  # windows share cells
        ln.MaxPool((2, 4), 2, (1, 0)),
        ln.MaxPool((2, 4), 2, 0, (2, 1)),
        ln.MaxPool((2, 3), 2),
        ln.AvgPool((2, 4)),
        ln.Pool((Sliding(2, 2, ceil_mode=True), Global()), Max()),
    ):
        assert region(op, (8, 7, 4)) is None
