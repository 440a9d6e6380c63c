"""`torch.func`: grad, jvp, vmap, Jacobians and Hessians, nested in every order."""

import pytest
import torch
from torch.func import (
    functional_call,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)

import lunette as ln
import lunette.torch as lt
from tests.torch.cases import IDS, OPS, distinct


@pytest.mark.parametrize(("op", "shape"), OPS, ids=IDS)
def test_first_order_transforms_are_the_verbs(op, shape):
    x, dx = distinct(shape), distinct(shape, seed=1)
    seed = distinct(tuple(op(x).shape), seed=2)
    value, tangent = jvp(op, (x,), (dx,))
    assert torch.equal(value, op(x)) and torch.equal(tangent, op.jvp(x, dx))
    value, backward = vjp(op, x)
    assert torch.equal(value, op(x)) and torch.equal(backward(seed)[0], op.vjp(x, seed))
    assert torch.equal(grad(lambda x: (op(x) * seed).sum())(x), op.vjp(x, seed))
    batch = distinct((3, *shape), seed=3)
    expected = torch.stack([op(b) for b in batch])
    assert torch.equal(vmap(op)(batch), expected)
    assert torch.equal(vmap(op, in_dims=1, out_dims=1)(batch.movedim(0, 1)).movedim(1, 0), expected)


@pytest.mark.parametrize("op", [ln.SmoothMaxPool((2,), 1.5), ln.MaxPool((2,)), ln.AvgPool((2,))])
def test_jacobians_and_hessians_agree_in_every_order(op):
    x = distinct((4,))

    def scalar(x):
        return op(x).pow(3).sum()

    assert torch.allclose(jacfwd(op)(x), jacrev(op)(x))
    reference = torch.autograd.functional.hessian(scalar, x)
    orders = {
        "fwd over rev": jacfwd(jacrev(scalar)),
        "rev over rev": jacrev(jacrev(scalar)),
        "fwd over fwd": jacfwd(jacfwd(scalar)),
        "rev over fwd": jacrev(jacfwd(scalar)),
        "hessian": hessian(scalar),
    }
    for name, order in orders.items():
        assert torch.allclose(order(x), reference), name


def test_third_derivative_of_smooth_max():
    """Two cells at t and 0: dy/dt = σ(βt), so the third derivative is β² σ(1 − σ)(1 − 2σ)."""
    beta = 1.5
    op = ln.SmoothMaxPool((2,), beta)

    def y(t):
        return op(torch.stack([t, torch.zeros_like(t)])).sum()

    t = torch.tensor(0.3, dtype=torch.float64)
    share = torch.sigmoid(beta * t)
    expected = beta**2 * share * (1 - share) * (1 - 2 * share)
    one = torch.ones_like(t)
    assert torch.allclose(grad(grad(grad(y)))(t), expected)
    thrice = jvp(lambda t: jvp(lambda t: jvp(y, (t,), (one,))[1], (t,), (one,))[1], (t,), (one,))[1]
    assert torch.allclose(thrice, expected)


def test_vmap_over_gradients_tangents_and_both():
    op = ln.SmoothMaxPool((2, 2), 1.5)
    x, dx, seed = distinct((3, 4, 4)), distinct((3, 4, 4), seed=1), distinct((3, 2, 2), seed=2)
    per_sample = vmap(grad(lambda x, g: (op(x) * g).sum()))(x, seed)
    assert torch.equal(per_sample, op.vjp(x, seed))
    assert torch.equal(vmap(op.jvp)(x, dx), op.jvp(x, dx))
    fixed = torch.stack([op.jvp(x[0], d) for d in dx])
    assert torch.equal(vmap(op.jvp, in_dims=(None, 0))(x[0], dx), fixed)
    values, indices = vmap(lambda x: ln.max_pool(x, (2, 2), return_indices=True))(x)
    assert torch.equal(indices, ln.max_pool(x, (2, 2), return_indices=True)[1])
    assert torch.equal(values, ln.max_pool(x, (2, 2)))


def test_an_ensemble_of_learned_betas():
    layers = [lt.nn.SmoothMaxPool((2,), beta, learnable=True) for beta in (0.5, 1.0, -2.0)]
    parameters, buffers = stack_module_state(layers)
    x = distinct((3, 4), torch.float32)

    def one(parameters, buffers, x):
        return functional_call(layers[0], (parameters, buffers), (x,))

    assert torch.equal(
        vmap(one)(parameters, buffers, x),
        torch.stack([layer(xi) for layer, xi in zip(layers, x, strict=True)]),
    )
    slopes = vmap(grad(lambda p, b, x: one(p, b, x).sum()))(parameters, buffers, x)["beta"]
    for layer, xi, slope in zip(layers, x, slopes, strict=True):
        (expected,) = torch.autograd.grad(layer(xi).sum(), layer.beta)
        assert torch.allclose(slope, expected)
