"""Winners that autograd keeps, one byte each: right for every geometry, and checked where they come from elsewhere."""

import gc

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import lunette as ln  # noqa: E402
from lunette.encoding import encode  # noqa: E402
from lunette.torch import offsets  # noqa: E402


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (ln.MaxPool((2, 2)), (4, 4)),
        (ln.MaxPool((5,), stride=100, padding=2), (64, 3)),
        (ln.MaxPool((2,), stride=100, padding=1), (16, 1)),
        (ln.MaxPool((2, 2), 1, 1), (1024, 1, 1)),
    ],
    ids=repr,
)
def test_gradients_of_a_backward_pass(op, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    x.flat[x.size // 2] = np.nan
    tensor = torch.from_numpy(x.copy()).requires_grad_()
    y = op(tensor)
    grad = np.random.default_rng(1).standard_normal(tuple(y.shape)).astype("float32")
    y.backward(torch.from_numpy(grad))
    np.testing.assert_array_equal(tensor.grad.numpy(), op.vjp(x, grad))


def test_offsets_of_others_are_checked():
    op = ln.MaxPool((2, 2), 1, 1)
    x = torch.arange(9.0).reshape(1, 3, 3)
    _, winners = offsets.max_with_offsets(x, encode(op))
    assert winners.data_ptr() in offsets._given
    grad = torch.ones(winners.shape)
    right = offsets.max_vjp_from_offsets(winners, grad, x.shape, encode(op))
    copied = winners.clone()
    assert torch.equal(offsets.max_vjp_from_offsets(copied, grad, x.shape, encode(op)), right)
    copied[0, 0, 0] = 0
    with pytest.raises(
        ValueError, match=r"offsets: 0 at \(0, 0, 0\) is no cell of its window \(0, 0\)"
    ):
        offsets.max_vjp_from_offsets(copied, grad, x.shape, encode(op))
    with pytest.raises(ValueError, match="is no cell"):
        offsets.max_jvp_from_offsets(copied, x, encode(op))
    at = winners.data_ptr()
    del winners
    gc.collect()
    assert at not in offsets._given
