"""Reverse, forward and second derivatives of every op, against differences and by hand."""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import lunette as ln
from lunette.adapters.torch import forward_with_beta
from tests.torch.cases import IDS, OPS, SMOOTH, distinct


@pytest.mark.parametrize(("op", "shape"), OPS, ids=IDS)
def test_gradcheck(op, shape):
    x = distinct(shape).requires_grad_()
    assert gradcheck(
        op,
        x,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        fast_mode=True,
    )
    assert gradgradcheck(op, x, check_fwd_over_rev=True, check_rev_over_rev=True, fast_mode=True)


@pytest.mark.parametrize(("op", "shape"), SMOOTH, ids=[repr(op) for op, _ in SMOOTH])
def test_gradcheck_with_a_learned_beta(op, shape):
    x = distinct(shape).requires_grad_()
    beta = torch.tensor(op.reduction.beta, dtype=torch.float64, requires_grad=True)

    def pool(x, beta):
        return forward_with_beta(op, x, beta)

    assert torch.equal(pool(x, beta), op(x))
    assert gradcheck(pool, (x, beta), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(pool, (x, beta), check_fwd_over_rev=True, fast_mode=True)


def test_the_verbs_are_differentiable_too():
    op = ln.SmoothMaxPool((2,), beta=1.5)
    x, dx = distinct((1, 4)).requires_grad_(), distinct((1, 4), seed=1).requires_grad_()
    grad = distinct((1, 2), seed=2).requires_grad_()
    assert gradcheck(op.jvp, (x, dx), check_forward_ad=True)
    assert gradcheck(op.vjp, (x, grad), check_forward_ad=True)


def test_second_derivative_of_smooth_max_by_hand():
    """Two cells a, b: with s = σ(β(a − b)), the Hessian is β s (1 − s) [[1, −1], [−1, 1]]."""
    beta, x = 3.0, torch.tensor([0.4, 0.1], dtype=torch.float64)
    op = ln.SmoothMaxPool((2,), beta)
    share = torch.sigmoid(beta * (x[0] - x[1]))
    expected = beta * share * (1 - share) * torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    hessian = torch.autograd.functional.hessian(lambda x: op(x).sum(), x)
    assert torch.allclose(hessian, expected.double(), rtol=1e-12)


def test_derivative_in_beta_by_hand():
    """Two equal cells c: y = c + log(2)/β, so dy/dβ = −log(2)/β²."""
    beta = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    x = torch.full((1, 2), 5.0, dtype=torch.float64)
    y = forward_with_beta(ln.SmoothMaxPool((2,), 1.0), x, beta)
    (slope,) = torch.autograd.grad(y.sum(), beta, create_graph=True)
    (bend,) = torch.autograd.grad(slope, beta)
    assert slope.item() == pytest.approx(-torch.log(torch.tensor(2.0)).item() / 4)
    assert bend.item() == pytest.approx(2 * torch.log(torch.tensor(2.0)).item() / 8)


def test_an_infinite_cell_leaves_the_derivative_in_beta_finite():
    beta = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    x = torch.tensor([[1.0, -torch.inf, 1.0]], dtype=torch.float64)
    forward_with_beta(ln.SmoothMaxPool((3,), 1.0), x, beta).sum().backward()
    assert beta.grad.item() == pytest.approx(-torch.log(torch.tensor(2.0)).item() / 4)


@pytest.mark.parametrize("ties", ["first", "all", "split"])
def test_ties_in_reverse_and_forward_mode(ties):
    op = ln.MaxPool((3,), ties=ties)
    share = {"first": [1.0, 0, 0], "all": [1.0, 1, 0], "split": [0.5, 0.5, 0]}[ties]
    x = torch.tensor([[2.0, 2.0, 1.0]], requires_grad=True)
    op(x).sum().backward()
    assert x.grad.tolist() == [share]
    for cell in range(3):
        with forward_ad.dual_level():
            direction = torch.eye(3)[cell : cell + 1]
            y = op(forward_ad.make_dual(x.detach(), direction))
            assert forward_ad.unpack_dual(y).tangent.item() == share[cell]


def test_max_and_mean_are_linear_in_the_gradient():
    for op in (ln.MaxPool((2, 2)), ln.AvgPool((2, 2))):
        x = distinct((1, 4, 4)).requires_grad_()
        y = op(x)
        seed = torch.ones_like(y, requires_grad=True)
        (first,) = torch.autograd.grad(y, x, seed, create_graph=True)
        second = torch.autograd.grad(first.pow(2).sum(), (x, seed), allow_unused=True)
        assert second[0] is None
        assert torch.allclose(second[1], 2 * op.jvp(x, first))


def test_indices_have_no_derivative_and_values_do():
    x = distinct((2, 4, 4)).requires_grad_()
    values, indices = ln.max_pool(x, (2, 2), return_indices=True)
    assert indices.dtype is torch.int64 and not indices.requires_grad
    values.sum().backward()
    plain = x.detach().clone().requires_grad_()
    ln.max_pool(plain, (2, 2)).sum().backward()
    assert torch.equal(x.grad, plain.grad)
    assert torch.equal(x.detach().flatten(1).gather(1, indices.flatten(1)), values.flatten(1))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.detach(), x.detach())
        tangent = forward_ad.unpack_dual(ln.max_pool(dual, (2, 2), return_indices=True)[0]).tangent
    assert torch.equal(tangent, values)


def test_nothing_is_recorded_without_need():
    x = distinct((1, 4)).requires_grad_()
    with torch.no_grad():
        assert not ln.max_pool(x, (2,)).requires_grad
    with torch.inference_mode():
        assert not ln.max_pool(x, (2,)).requires_grad
    assert ln.max_pool(x.detach(), (2,)).grad_fn is None
