"""Convolution of torch tensors: the specification's numbers at every rank, in every mode."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import lunette as ln

GEOMETRIES = [
    lambda d: ln.Conv((2,) * d, padding=((1, 0),) * d, groups=2),
    lambda d: ln.Conv((2,) * d, stride=2, padding=1, dilation=2),
    lambda d: ln.Conv((3,) + (1,) * (d - 1), padding="same"),
    lambda d: ln.ConvTranspose((2,) * d, stride=2, padding=((1, 0),) * d, output_padding=1),
    lambda d: ln.ConvTranspose((2,) * d, padding=1, dilation=2, groups=2),
]


def operands(op, rank, batch=(2,), dtype=torch.float64):
    generator = torch.Generator().manual_seed(rank)

    def make(*shape):
        return torch.randint(-3, 4, shape, generator=generator).to(dtype)

    length = 3 if rank < 4 else 2
    kernel = op.kernel
    return make(*batch, 2, *(length,) * rank), make(2, 2 // op.groups, *kernel), make(2)


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("geometry", range(len(GEOMETRIES)))
def test_every_verb_is_the_specifications(rank, geometry):
    """Small integers: every sum is exact, so the numbers are equal and not merely close."""
    op = GEOMETRIES[geometry](rank)
    tensors = operands(op, rank)
    arrays = tuple(t.numpy() for t in tensors)
    y = op(*tensors)
    assert np.array_equal(y.numpy(), ln.forward(op, *arrays, backend="spec"))
    if rank in (2, 4):
        tangents = tuple(t.flip(0) for t in tensors)
        expected = ln.jvp(op, arrays, tuple(t.numpy() for t in tangents), backend="spec")
        assert np.array_equal(op.jvp(tensors, tangents).numpy(), expected)
        gradients = ln.vjp(op, arrays, y.numpy(), backend="spec")
        for ours, theirs in zip(op.vjp(tensors, y), gradients, strict=True):
            assert np.array_equal(ours.numpy(), theirs)


def test_five_axes_and_no_bias():
    op = ln.Conv((2, 1, 2, 1, 2))
    x, weight, _ = operands(op, 5, batch=(1,))
    expected = ln.forward(op, x.numpy(), weight.numpy(), backend="spec")
    assert np.array_equal(op(x, weight).numpy(), expected)


@pytest.fixture
def folded(monkeypatch):
    """Convolutions of four axes and more as a GPU does them."""
    from lunette.torch import convolution

    monkeypatch.setattr(convolution, "is_ours", lambda *_: 0)
    monkeypatch.setattr(convolution, "_folds", lambda op, x: op.rank > 3 and not op.transposed)


@pytest.mark.parametrize("batch", [(2,), (), (2, 1), (0,)])
@pytest.mark.parametrize("rank", [4, 5])
@pytest.mark.parametrize("geometry", range(3))
def test_taps_beside_the_channels_are_the_specifications(folded, rank, geometry, batch):
    op = GEOMETRIES[geometry](rank)
    x, weight, bias = operands(op, rank, batch)
    weight = weight + torch.arange(weight.numel(), dtype=weight.dtype).reshape(weight.shape) % 5
    expected = ln.forward(op, x.numpy(), weight.numpy(), bias.numpy(), backend="spec")
    assert np.array_equal(op(x, weight, bias).numpy(), expected)


def test_taps_beside_the_channels_have_derivatives_and_round_once(folded):
    op = GEOMETRIES[0](4)
    x, weight, bias = (t.requires_grad_() for t in operands(op, 4))
    y = op(x, weight, bias)
    arrays = tuple(t.detach().numpy() for t in (x, weight, bias))
    slopes = torch.autograd.grad(y, (x, weight, bias), y.detach())
    gradients = ln.vjp(op, arrays, y.detach().numpy(), backend="spec")
    for ours, theirs in zip(slopes, gradients, strict=True):
        assert np.array_equal(ours.numpy(), theirs)
    half = [torch.randn(t.shape, dtype=torch.float16) for t in (x, weight, bias)]
    wide = op(*(t.float() for t in half)).half()
    torch.testing.assert_close(op(*half), wide, rtol=0, atol=0)


@pytest.mark.parametrize("batch", [(), (2, 3), (0,)])
def test_any_number_of_batch_axes(batch):
    op = ln.Conv((2, 2), padding=1)
    x, weight, bias = operands(op, 2, batch)
    expected = ln.forward(op, x.numpy(), weight.numpy(), bias.numpy(), backend="spec")
    assert op(x, weight, bias).shape == expected.shape
    assert np.array_equal(op(x, weight, bias).numpy(), expected)


@pytest.mark.parametrize("geometry", [0, 3])
def test_derivatives_in_four_dimensions(geometry):
    op = GEOMETRIES[geometry](4)
    tensors = [t.requires_grad_() for t in operands(op, 4, batch=(1,))]
    assert gradcheck(op, tensors, check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(op, tensors, fast_mode=True)
    x, weight, bias = (t.detach() for t in tensors)
    many = torch.stack([x, x.flip(0) + 1])
    batched = torch.func.vmap(lambda x: op(x, weight, bias))(many)
    assert torch.equal(batched, torch.stack([op(m, weight, bias) for m in many]))


def test_four_dimensions_compile_in_one_graph():
    op = ln.Conv((2, 2, 2, 2), padding=1)
    x, weight, bias = operands(op, 4)
    compiled = torch.compile(op.__call__, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, weight, bias), op(x, weight, bias))


def test_halves_round_once_in_four_dimensions():
    """2¹¹ + 1 + 1 over the first axis: 2050 rounded once, but 2048 if every partial sum rounds."""
    x = torch.tensor([2048.0, 1.0, 1.0]).reshape(1, 3, 1, 1, 1).half()
    weight = torch.ones(1, 1, 3, 1, 1, 1).half()
    assert ln.conv(x, weight).item() == 2050


def test_a_backend_by_name():
    op = ln.Conv((2, 2))
    tensors = operands(op, 2)
    y = ln.forward(op, *tensors, backend="spec")
    assert torch.equal(y, op(*tensors))
    for ours, theirs in zip(
        ln.vjp(op, tensors, y, backend="spec"), op.vjp(tensors, y), strict=True
    ):
        assert torch.equal(ours, theirs)
    assert torch.equal(ln.jvp(op, tensors, tensors, backend="spec"), op.jvp(tensors, tensors))


def test_autocast_is_torchs():
    op = ln.Conv((2, 2))
    x, weight, bias = operands(op, 2, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert op(x.bfloat16(), weight, bias).dtype is torch.bfloat16
