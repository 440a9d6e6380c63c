"""The checkers that users run: right implementations pass, each kind of wrong one is caught."""

from functools import partial

import ml_dtypes
import numpy as np
import pytest

import lunette as ln
from lunette.testing import check_adjoint, check_op

OPS = [
    ln.MaxPool((3,), stride=2, padding=1),
    ln.MaxPool((2, 2), ties="split", ceil_mode=True),
    ln.AvgPool((2, 2), padding=1),
    ln.SmoothMaxPool((3,), 2.0, stride=1, padding=1),
    ln.AdaptiveAvgPool((3,)),
    ln.GlobalMaxPool(2),
]


@pytest.mark.parametrize("verb", ["forward", "jvp", "vjp"])
@pytest.mark.parametrize("op", OPS, ids=repr)
def test_the_meaning_passes_its_own_check(op, verb):
    assert check_op(partial(getattr(ln.spec, verb), op), op, verb=verb) >= 30


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.int8, bool, object]
)
def test_every_dtype_can_be_checked(dtype):
    op = ln.MaxPool((2,), stride=1)
    assert check_op(op, op, dtype=dtype) > 0


@pytest.mark.parametrize("op", [op for op in OPS if not isinstance(op, ln.SmoothMaxPool)], ids=repr)
def test_adjoint_of_the_meaning(op):
    assert check_adjoint(op.jvp, op.vjp, op) > 0


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_adjoint_in_floats(op):
    assert check_adjoint(op.jvp, op.vjp, op, dtype=np.float32) > 0


def numpy_windows(x, k, stride):
    return np.lib.stride_tricks.sliding_window_view(x, k, -1)[..., ::stride, :]


OP = ln.MaxPool((3,), stride=2)
WRONG = {
    "min": lambda x: numpy_windows(x, 3, 2).min(-1),
    "lost nan": lambda x: np.fmax.reduce(numpy_windows(x, 3, 2), -1),
    "sign of zero": lambda x: np.abs(numpy_windows(x, 3, 2).max(-1)) + 0.0,
    "stride": lambda x: numpy_windows(x, 3, 1).max(-1),
    "dtype": lambda x: OP(x).astype(np.float32),
    "shape": lambda x: OP(x)[None],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_forward_is_caught(name):
    with pytest.raises(AssertionError, match=r"forward of MaxPool\(\(3,\), stride=2\)"):
        check_op(WRONG[name], OP)


def test_a_wrong_tie_is_caught():
    last = ln.MaxPool((3,), stride=2, ties="split")
    with pytest.raises(AssertionError, match="vjp of MaxPool"):
        check_op(last.vjp, OP, verb="vjp")


def test_a_wrong_divisor_is_caught_and_rounding_is_not():
    op = ln.AvgPool((3,), stride=1, padding=1)
    with pytest.raises(AssertionError):
        check_op(ln.AvgPool((3,), stride=1, padding=1, count_include_pad=False), op)
    backwards = ln.AvgPool((3,), stride=1, padding=1)
    check_op(lambda x: backwards(x[..., ::-1])[..., ::-1], op, dtype=np.float32)


def test_a_vjp_of_another_op_is_no_adjoint():
    with pytest.raises(AssertionError, match="not the adjoint"):
        check_adjoint(OP.jvp, ln.MaxPool((3,), stride=2, ties="all").vjp, OP)


def test_a_convolution_is_checked_on_the_shapes_given():
    op = ln.Conv((2,), stride=2, groups=2)
    shapes = [((4, 5), (6, 2, 2), (6,)), ((2, 4, 4), (2, 2, 2))]
    assert check_op(op, op, shapes=shapes, dtype=np.float32) == 12
    assert check_op(op.vjp, op, verb="vjp", shapes=shapes) == 12
    assert check_adjoint(op.jvp, op.vjp, op, shapes=shapes[1:]) == 3
    with pytest.raises(AssertionError, match="forward of Conv"):
        check_op(lambda x, w, *b: op(x, w[..., ::-1].copy(), *b), op, shapes=shapes)
    with pytest.raises(TypeError, match="shapes=None"):
        check_op(op, op)


def test_bad_arguments():
    with pytest.raises(ValueError, match="verb='backward'"):
        check_op(OP, OP, verb="backward")
    with pytest.raises(ValueError, match="seed=-1"):
        check_op(OP, OP, seed=-1)
