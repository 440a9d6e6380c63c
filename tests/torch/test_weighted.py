"""GeM and SoftPool against their formulas in plain torch."""

import copy
import pickle

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
    for module in (lt.nn.SoftPool((2, 2), beta=1.5), lt.nn.GeM(2.0).double()):
        assert torch.autograd.gradcheck(module, x, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(module, x)
        assert torch.equal(torch.func.vmap(module)(x[None])[0], module(x))
