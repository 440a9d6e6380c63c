"""Flat positions as indices on axes."""

import numpy as np
import pytest

from lunette.positions import unravel


@pytest.mark.parametrize("shape", [(20000, 1), (1, 20000), (3, 5000, 2), (16000,), (0, 3)])
def test_positions_of_any_shape(shape):
    flat = np.arange(np.prod(shape)).reshape(shape) % 77
    found = unravel(flat, (7, 11))
    assert all(index.shape == shape for index in found)
    np.testing.assert_array_equal(found[0], flat // 11)
    np.testing.assert_array_equal(found[1], flat % 11)


def test_one_position_and_no_axis():
    assert unravel(9, (2, 5)) == (1, 4)
    assert unravel(0, ()) == unravel(np.zeros(3, int), ()) == ()
