"""Positions past 2³¹: offsets are 64 bits wide everywhere."""

import numpy as np
import pytest

import lunette as ln
from cases.agreement import run

PAST = 2**31 + 9


def test_indices_past_two_to_the_31_of_a_broadcast_view(backend):
    """2³³ elements that share one row's memory; only the cells of few windows are read."""
    row = np.zeros(2**17, np.int8)
    row[-1] = 3
    x = np.broadcast_to(row, (2**16, 2**17))
    op = ln.MaxPool((2, 2), stride=(2**12, 2**13), padding=((0, 0), (1, 1)))
    y, indices = run(op, "forward_with_indices", x, backend=backend)
    assert y[-1, -1] == 3
    assert indices[-1, -1] == (15 * 2**12) * 2**17 + 2**17 - 1
    assert indices[0, 0] == 0
    assert (y == run(op, "forward", x, backend=backend)).all()


@pytest.mark.full
def test_one_axis_past_two_to_the_31(backend):
    x = np.zeros(PAST, np.int8)
    x[7], x[2**31 - 1], x[2**31 + 1], x[2**31 + 5] = 3, 2, 1, 4
    dense = run(ln.MaxPool((2,)), "forward", x, backend=backend)
    assert dense.shape == (PAST // 2,)
    assert np.flatnonzero(dense).tolist() == [3, 2**30 - 1, 2**30, 2**30 + 2]
    assert dense[[3, 2**30 - 1, 2**30, 2**30 + 2]].tolist() == [3, 2, 1, 4]
    sparse = ln.MaxPool((3,), stride=2**20, padding=((2**20, 2**20),))
    y, indices = run(sparse, "forward_with_indices", x, backend=backend)
    expected, expected_indices = ln.spec.forward_with_indices(sparse, x)
    assert (y == expected).all() and (indices == expected_indices).all()
    assert indices.max() == 2**31 + 1


@pytest.mark.full
def test_many_images_past_two_to_the_31(backend):
    x = np.zeros((3, 2**10, 2**20), np.int8)
    x[2, -1, -1], x[2, -2, 0], x[0, 0, 0] = 9, 8, 7
    y = run(ln.MaxPool((2, 2)), "forward", x, backend=backend)
    assert y[2, -1, -1] == 9 and y[2, -1, 0] == 8 and y[0, 0, 0] == 7
    assert int(np.count_nonzero(y)) == 3
    flipped = run(ln.MaxPool((2, 2)), "forward", x[::-1, ::-1, ::-1], backend=backend)
    assert np.array_equal(flipped[::-1, ::-1, ::-1], y)


@pytest.mark.full
def test_gradients_past_two_to_the_31(backend):
    x = np.zeros(PAST, np.float16)
    x[-1] = 1
    op = ln.MaxPool((1024,), stride=1024, padding=((0, 1024 - PAST % 1024),))
    y = run(op, "forward", x, backend=backend)
    assert y[-1] == 1 and np.count_nonzero(y) == 1
    gx = run(op, "vjp", x, np.ones_like(y), backend=backend)
    assert gx[-1] == 1 and gx[-2] == 0 and gx[0] == 1
    assert np.count_nonzero(gx[-1024 * 3 :]) == 3
