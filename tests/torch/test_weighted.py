"""GeM, SoftPool and BlurPool against their formulas in plain torch."""

import copy
import pickle
from functools import reduce
from math import comb

import pytest
import torch
from torch import nn

import lunette.torch as lt
from tests.torch.cases import distinct


def plain_gem(x, p, eps=1e-6):
    return nn.functional.adaptive_avg_pool2d(x.clamp(min=eps).pow(p), 1).pow(1 / p)


def plain_soft(x, kernel, stride, beta=1.0):
    windows = x.unfold(-2, kernel, stride).unfold(-2, kernel, stride).flatten(-2)
    return (windows * torch.softmax(beta * windows, -1)).sum(-1)


def test_gem_is_its_formula_and_p_is_learned():
    module, x = lt.nn.GeM(2.5).double(), distinct((2, 3, 5, 4)).requires_grad_()
    p = torch.tensor(2.5, dtype=torch.float64, requires_grad=True)
    y, expected = module(x), plain_gem(x, p)
    torch.testing.assert_close(y, expected)
    ours = torch.autograd.grad(y.square().sum(), (x, module.p))
    for a, b in zip(ours, torch.autograd.grad(expected.square().sum(), (x, p)), strict=True):
        torch.testing.assert_close(a, b)
    assert repr(module) == "GeM(p=2.5, ndim=2, eps=1e-06)" and list(module.state_dict()) == ["p"]
    assert not list(lt.nn.GeM(learnable=False).parameters())
    for bad in (0, -1.0, True, "3", float("nan")):
        with pytest.raises(ValueError, match="p="):
            lt.nn.GeM(bad)


@pytest.mark.parametrize(("kernel", "stride", "beta"), [(2, 2, 1.0), (3, 1, -0.7), (3, 2, 4.0)])
def test_soft_pool_is_its_formula(kernel, stride, beta):
    module, x = lt.nn.SoftPool((kernel, kernel), stride, beta=beta), distinct((2, 3, 7, 6))
    torch.testing.assert_close(module(x), plain_soft(x, kernel, stride, beta))
    large = x * 400  # exp overflows in the plain quotient
    torch.testing.assert_close(module(large), plain_soft(large, kernel, stride, beta))
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(copied(x), module(x))


def test_derivatives_in_every_mode():
    x = distinct((1, 2, 4, 4)).add(2.5).requires_grad_()
    for module in (lt.nn.SoftPool((2, 2), beta=1.5), lt.nn.GeM(2.0).double(), lt.nn.BlurPool()):
        assert torch.autograd.gradcheck(module, x, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(module, x)
        assert torch.equal(torch.func.vmap(module)(x[None])[0], module(x))


def plain_blur(x, kernel, stride, ndim, mode):
    """A depthwise convolution with the outer product of binomial coefficients."""
    row = torch.tensor([comb(kernel - 1, i) for i in range(kernel)], dtype=x.dtype)
    row = row / row.sum()
    weight = reduce(lambda a, b: a[..., None] * b, [row] * ndim).expand(x.shape[1], 1, *[-1] * ndim)
    around = ((kernel - 1) // 2, kernel // 2) * ndim
    padded = nn.functional.pad(x, around, mode="constant" if mode == "zeros" else mode)
    convolve = getattr(nn.functional, f"conv{ndim}d")
    return convolve(padded, weight, stride=stride, groups=x.shape[1])


@pytest.mark.parametrize("mode", ["reflect", "replicate", "zeros"])
@pytest.mark.parametrize(
    ("kernel", "stride", "ndim"), [(1, 2, 2), (2, 2, 2), (3, 2, 2), (4, 1, 1), (5, 3, 2), (3, 2, 3)]
)
def test_blur_pool_is_a_binomial_convolution(kernel, stride, ndim, mode):
    module = lt.nn.BlurPool(kernel, stride, ndim, padding_mode=mode)
    x = distinct((2, 3, 7, 6, 5)[: 2 + ndim]).requires_grad_()
    expected = plain_blur(x, kernel, stride, ndim, mode)
    y = module(x)
    torch.testing.assert_close(y, expected)
    slopes = [torch.autograd.grad(v.square().sum(), x)[0] for v in (y, expected)]
    torch.testing.assert_close(*slopes)
    alone, many = module(x[0, 0]), module(x[None, None])  # any number of axes before
    assert torch.equal(alone, y[0, 0]) and torch.equal(many[0, 0], y)


def test_blur_pool_rounds_once_and_keeps_the_layout():
    module, x = lt.nn.BlurPool(5), torch.rand(2, 16, 8, 8)
    half = x.half()
    assert torch.equal(module(half), module(half.float()).half())
    last = x.to(memory_format=torch.channels_last)
    assert module(last).is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(module(last), module(x))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"kernel": 0}, "kernel=0"),
        ({"kernel": 10**9}, "kernel=1000000000: expected at most 1024"),
        ({"stride": 0}, "stride=0"),
        ({"ndim": 4}, "ndim=4"),
        ({"padding_mode": "circular"}, "padding_mode='circular'"),
    ],
)
def test_blur_pool_refuses(arguments, text):
    with pytest.raises(ValueError, match=text):
        lt.nn.BlurPool(**arguments)


def test_blur_pool_of_too_short_an_axis():
    with pytest.raises(ValueError, match="reflecting 2 cells needs longer axes"):
        lt.nn.BlurPool(5)(torch.zeros(1, 1, 2, 9))
    assert lt.nn.BlurPool(5, padding_mode="replicate")(torch.zeros(1, 1, 2, 9)).shape[-2:] == (1, 5)
    with pytest.raises(ValueError, match="pools the last 2 axes"):
        lt.nn.BlurPool()(torch.zeros(3))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "zeros"])
def test_blur_pool_of_nothing(mode):
    module = lt.nn.BlurPool(4, padding_mode=mode)
    for batch in ((0,), (0, 3), (2, 0, 3)):
        assert module(torch.zeros(*batch, 8, 6)).shape == (*batch, 4, 3)
    with pytest.raises(ValueError, match="length"):
        module(torch.zeros(1, 1, 0, 8))
