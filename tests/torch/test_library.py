"""The registered operators: torch's own checks of schema, autograd, fakes and tracing."""

import pytest
import torch

import lunette as ln
from lunette.torch import library, offsets
from lunette.torch.encoding import encode
from tests.torch.cases import IDS, OPS, SMOOTH, distinct


@pytest.mark.parametrize(("op", "shape"), OPS, ids=IDS)
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


def test_a_max_with_offsets_knows_its_shapes_and_its_gradient():
    """The operator that stands in on a GPU, without one: which ops it serves, and its shapes."""
    text = encode(ln.MaxPool((3, 3), 2, 1))
    for served, op in [
        (True, ln.MaxPool((15, 17))),
        (False, ln.MaxPool((16, 16))),
        (False, ln.MaxPool((2,), ties="all")),
        (False, ln.AdaptiveMaxPool((2,))),
        (False, ln.AvgPool((2,))),
    ]:
        assert offsets._fits(encode(op)) is served, op
    assert not offsets.serves(torch.zeros(1, 4, 4, requires_grad=True), text, None)
    last = torch.channels_last
    x = torch.zeros(2, 3, 7, 8, device="meta").to(memory_format=last).requires_grad_()
    value, winners = offsets.max_with_offsets(x, text)
    assert value.shape == winners.shape == (2, 3, 4, 4)
    assert winners.dtype is torch.uint8 and not winners.requires_grad
    value.sum().backward()
    assert x.grad.shape == x.shape and x.grad.is_contiguous(memory_format=last)
    many = torch.func.vmap(lambda x: offsets.max_with_offsets(x, text)[1])(x)
    assert many.shape == winners.shape
