"""The registered operators: torch's own checks of schema, autograd, fakes and tracing."""

import pytest
import torch

import lunette as ln
from lunette.torch import library
from lunette.torch.encoding import encode
from tests.torch.cases import OPS, SMOOTH, distinct

KINDS = [OPS[i] for i in (0, 3, 5, 8, 9)]


@pytest.mark.parametrize(("op", "shape"), KINDS, ids=[repr(op) for op, _ in KINDS])
def test_opcheck(op, shape):
    x, dx = distinct(shape).requires_grad_(), distinct(shape, seed=1).requires_grad_()
    grad = distinct(tuple(op(x).shape), seed=2).requires_grad_()
    text = encode(op)
    torch.library.opcheck(library.pool, (x, None, text, None))
    torch.library.opcheck(library.pool_jvp, (x, dx, None, text, None))
    torch.library.opcheck(library.pool_vjp, (x, grad, None, text, None))
    if isinstance(op.reduction, ln.Max):
        torch.library.opcheck(library.pool_with_indices, (x, None, text, None))


def test_opcheck_with_a_learned_beta():
    op, shape = SMOOTH[0]
    x, beta = distinct(shape).requires_grad_(), torch.tensor(0.7, requires_grad=True)
    torch.library.opcheck(library.pool, (x, beta, encode(op), None))


def test_opcheck_channels_last():
    x = distinct((2, 3, 4, 4)).to(memory_format=torch.channels_last).requires_grad_()
    torch.library.opcheck(library.pool, (x, None, encode(ln.MaxPool((2, 2))), None))


@pytest.mark.parametrize(("op", "shape"), OPS, ids=[repr(op) for op, _ in OPS])
def test_meta_tensors_give_shapes(op, shape):
    x = distinct(shape)
    y = op(x.to("meta"))
    assert y.is_meta and y.shape == op.out_shape(shape) and y.dtype is x.dtype
    assert op.vjp(x.to("meta"), y).shape == shape
    assert (
        ln.AvgPool((1,))(torch.ones(2, 3, dtype=torch.int32, device="meta")).dtype is torch.float64
    )


def test_checks_hold_without_data():
    with pytest.raises(ValueError, match="longer than the padded input"):
        ln.MaxPool((5,))(torch.zeros(2, 3, device="meta"))
    with pytest.raises(TypeError, match="only a max has indices"):
        library.pool_with_indices(torch.zeros(1, 4, device="meta"), None, "AvgPool((2,))", None)
    with pytest.raises(ValueError, match="gradient has shape"):
        ln.MaxPool((2,)).vjp(torch.zeros(2, 4, device="meta"), torch.zeros(2, 3, device="meta"))


def test_deterministic_algorithms_are_happy():
    torch.use_deterministic_algorithms(True)
    try:
        x = distinct((1, 4, 4)).requires_grad_()
        ln.AdaptiveAvgPool((3, 3))(x).sum().backward()
        assert x.grad.sum().item() == pytest.approx(9.0)
    finally:
        torch.use_deterministic_algorithms(False)
