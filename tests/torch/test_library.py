"""The registered operators: torch's own checks of schema, autograd, fakes and tracing."""

import pytest
import torch

import lunette as ln
from lunette.encoding import encode
from lunette.torch import library, offsets
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
    """The operator that stands in where a gradient is asked for: which calls it serves, and its shapes."""
    text = encode(ln.MaxPool((3, 3), 2, 1))
    for taps, op in [
        (255, ln.MaxPool((15, 17))),
        (256, ln.MaxPool((16, 16))),
        (256, ln.MaxPool((2,), ties="all")),
        (256, ln.AdaptiveMaxPool((2,))),
        (256, ln.AvgPool((2,))),
    ]:
        assert offsets._taps(encode(op)) == taps, op
    last = torch.channels_last
    x = torch.zeros(1, 2, 4, 4, requires_grad=True)
    assert offsets.serves(x, text, None) and offsets.serves(x, text, "cpu")
    assert not offsets.serves(x, text, "spec")
    assert not offsets.serves(x.detach(), text, None)
    assert offsets.serves(x.to(memory_format=last), text, None)
    assert not offsets.serves(x[..., ::2], text, None)
    assert not offsets.serves(x, encode(ln.MaxPool((9, 9), padding=4)), None)
    x = torch.zeros(2, 3, 7, 8, device="meta").to(memory_format=last).requires_grad_()
    value, winners = offsets.max_with_offsets(x, text)
    assert value.shape == winners.shape == (2, 3, 4, 4)
    assert winners.dtype is torch.uint8 and not winners.requires_grad
    value.sum().backward()
    assert x.grad.shape == x.shape and x.grad.is_contiguous(memory_format=last)
    many = torch.func.vmap(lambda x: offsets.max_with_offsets(x, text)[1])(x)
    assert many.shape == winners.shape


@pytest.mark.parametrize(
    "op",
    [ln.MaxPool((3, 3), stride=2, padding=1), ln.MaxPool((2,), dilation=2), ln.MaxPool((2, 2, 2))],
)
def test_operators_from_offsets_on_a_cpu(op):
    shape = (2, 4, 5, 6)[-op.rank - 1 :]
    x, text = distinct(shape).double(), encode(op)
    value, winners = offsets.max_with_offsets(x, text)
    assert torch.equal(value, op(x))
    grad = torch.randn(value.shape, dtype=torch.float64).requires_grad_()
    dx = torch.randn(shape, dtype=torch.float64).requires_grad_()
    x.requires_grad_()
    torch.library.opcheck(offsets.max_with_offsets, (x, text))
    torch.library.opcheck(offsets.max_vjp_from_offsets, (winners, grad, shape, text))
    torch.library.opcheck(offsets.max_jvp_from_offsets, (winners, dx, text))
    assert op(x).grad_fn.name().startswith("lunette_max_with_offsets")
    modes = {"check_forward_ad": True, "check_batched_grad": True, "fast_mode": True}
    assert torch.autograd.gradcheck(op, x, eps=1e-3, **modes)
    assert torch.autograd.gradgradcheck(
        op, x, eps=1e-3, check_fwd_over_rev=True, check_rev_over_rev=True, fast_mode=True
    )
