"""Calls allocate their result and a little scratch memory, never a copy of the input."""

import tracemalloc

import numpy as np
import pytest

import lunette as ln
from cases import values
from cases.agreement import direction, run

SHAPE = (8, 64, 96, 96)
SCRATCH = 4 << 20
"""Bytes besides the result: some planes for each thread, and the plan."""

OPS = (
    ln.MaxPool((3, 3), stride=2, padding=1),
    ln.MaxPool((13, 13), stride=1, padding=6),
    ln.AvgPool((2, 2)),
    ln.SmoothMaxPool((3, 3), 2.0, stride=2, padding=1),
    ln.GlobalAvgPool(2),
)


def views(x):
    yield "contiguous", x
    yield "channels last", np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    yield "reversed", np.ascontiguousarray(x[..., ::-1])[..., ::-1]


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_no_hidden_copy(backend, op):
    x = values.filled("random", SHAPE, "float32")
    grad = direction(op.out_shape(SHAPE), x.dtype)
    for name, view in views(x):
        for verb, along in (("forward", None), ("vjp", grad)):
            run(
                op, verb, view, along, backend
            )  # plans and compiled code stay; they are not scratch
            tracemalloc.start()
            result = run(op, verb, view, along, backend)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert result.nbytes <= peak < result.nbytes + SCRATCH, (name, verb, peak)
            assert x.nbytes / 2 > SCRATCH
