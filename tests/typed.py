"""What type checkers are told, told to one: `make lint` runs mypy over this file. It is never run."""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import lunette as ln


class Tensor:
    """An array of some other library."""


x, t = np.zeros((4, 4), np.float32), Tensor()
op = ln.MaxPool([2, 2], stride=1, padding="same", ties="split", axes=(0, 1))
conv = ln.Conv((3, 3), padding=((1, 0), (0, 1)))

assert_type(ln.max_pool(t, (2, 2)), Tensor)
assert_type(ln.max_pool(t, (2, 2), return_indices=True), tuple[Tensor, Tensor])
assert_type(ln.max_pool(x, (2, 2)), NDArray[Any])
assert_type(ln.max_pool(t, {"y": 2}, stride={"y": 1}["y"]), Tensor)
assert_type(ln.avg_pool([1.0, 2.0], (2,), dtype="same"), NDArray[Any])
assert_type(ln.adaptive_avg_pool(t, (4, None)), Tensor)
assert_type(ln.conv(t, t, padding=1), Tensor)
assert_type(op(t), Tensor)
assert_type(op([1.0]), np.ndarray[Any, Any])
assert_type(op.jvp(t, t), Tensor)
assert_type(op.vjp(x, x), np.ndarray[Any, Any])
assert_type(conv.vjp((t, t), t), tuple[Tensor, ...])
assert_type(ln.forward(op, t), Tensor)
assert_type(ln.vjp(op, t, t), Tensor)
