"""Every transformation of JAX, alone and nested, with the numbers that the ops' own verbs give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import lunette as ln
import lunette.jax

from .cases import CASES, array, same_bits

SOME = pytest.mark.parametrize("name", ["max", "max-all", "mean", "smooth", "global-dropped"])
MAX, SHAPE = CASES["max"]


def given(name):
    op, shape = CASES[name]
    x = array(shape, "float32", ties=False)
    gy = array(op(x).shape, "float32", 1, ties=False)
    return op, jnp.asarray(x), jnp.asarray(gy), op.vjp(x, gy)


@SOME
def test_first_derivatives(name):
    op, x, gy, expected = given(name)

    def loss(x):
        return (op(x) * gy).sum()

    assert same_bits(jax.grad(loss)(x), expected)
    assert same_bits(jax.jit(jax.grad(loss))(x), expected)
    value, gradient = jax.value_and_grad(jax.checkpoint(loss))(x)
    assert same_bits(gradient, expected)
    assert np.isclose(value, loss(x), rtol=1e-5)
    _, linear = jax.linearize(op, x)
    assert same_bits(linear(x), op.jvp(x, x))
    assert same_bits(jax.linear_transpose(linear, x)(gy)[0], expected)


@SOME
def test_jacobians_agree(name):
    op, shape = CASES[name]
    x = jnp.asarray(array((1, *shape[-op.rank :]), "float32", ties=False)[..., :4, :4])
    forward, reverse = jax.jacfwd(op)(x), jax.jacrev(op)(x)
    np.testing.assert_allclose(forward, reverse, rtol=1e-5, atol=1e-6)
    ones = np.ones(op(x).shape, np.float32)
    summed = np.tensordot(ones, reverse, ones.ndim)
    np.testing.assert_allclose(summed, op.vjp(np.asarray(x), ones), rtol=1e-5, atol=1e-6)


def test_second_derivatives_of_a_smooth_max(wide):
    """By differences of first ones, and in all four orders of forward and reverse."""
    op = ln.SmoothMaxPool((2, 2), 1.5, 1, 1)
    x = jnp.asarray(array((1, 3, 3), "float64", ties=False))

    def loss(x):
        return (op(x) ** 2).sum()

    hessian = np.asarray(jax.hessian(loss)(x)).reshape(9, 9)
    for outer in (jax.jacfwd, jax.jacrev):
        for inner in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(
                np.asarray(outer(inner(loss))(x)).reshape(9, 9), hessian, rtol=1e-9, atol=1e-12
            )
    step = 1e-5
    for cell in range(9):
        along = np.zeros(9)
        along[cell] = step
        along = along.reshape(x.shape)
        change = (jax.grad(loss)(x + along) - jax.grad(loss)(x - along)) / (2 * step)
        np.testing.assert_allclose(hessian[cell], np.ravel(change), rtol=1e-6, atol=1e-8)


def test_third_derivatives(wide):
    op = ln.SmoothMaxPool((2,), 0.7, 1)
    x, v = (jnp.asarray(array((5,), "float64", seed, ties=False)) for seed in (0, 1))

    def along(f):
        return lambda x: jax.jvp(f, (x,), (v,))[1]

    third = along(along(along(op)))(x)
    softmax = lambda x: jax.nn.logsumexp(0.7 * jnp.stack([x[:-1], x[1:]]), axis=0) / 0.7  # noqa: E731
    np.testing.assert_allclose(third, along(along(along(softmax)))(x), rtol=1e-8, atol=1e-10)


def test_max_and_mean_are_linear_where_they_are_differentiable():
    for name in ("max", "max-split", "mean"):
        op, x, gy, _ = given(name)
        hessian_times = jax.jvp(jax.grad(lambda x, op=op, gy=gy: (op(x) * gy).sum()), (x,), (x,))[1]
        assert not np.asarray(hessian_times).any()


@SOME
def test_vmap(name):
    op, x, gy, expected = given(name)
    axis = jnp.moveaxis(x, 0, -1)
    mapped = jax.vmap(op, in_axes=-1, out_axes=1)(axis)
    assert same_bits(jnp.moveaxis(mapped, 1, 0), op(x))

    def gradient(x, gy):
        return jax.vjp(op, x)[1](gy)[0]

    assert same_bits(jax.vmap(gradient)(x, gy), expected)
    assert same_bits(jax.vmap(jax.vmap(gradient))(x[None], gy[None])[0], expected)
    same_x = jax.vmap(gradient, in_axes=(None, 0))(x, jnp.stack([gy, gy]))
    assert same_bits(same_x[1], expected)
    same_g = jax.vmap(gradient, in_axes=(0, None))(jnp.stack([x, x]), gy)
    assert same_bits(same_g[1], expected)


def test_vmap_with_channels_last_and_indices():
    x = jnp.asarray(array((4, 2, 9, 8, 3), "float32"))
    found = jax.vmap(lambda x: lunette.jax.apply_with_indices(MAX, x, channels_last=True))(x)
    y, i = ln.max_pool(np.moveaxis(np.asarray(x), -1, -3), (3, 3), 2, 1, return_indices=True)
    assert same_bits(found[0], np.moveaxis(y, -3, -1))
    assert np.array_equal(found[1], np.moveaxis(i, -3, -1))


def test_in_loops():
    op, x, _, _ = given("max")
    pad = ln.MaxPool((3, 3), 1, 1)

    def body(carry, _):
        carry = pad(carry) * 0.5
        return carry, op(carry).sum()

    def loss(x):
        last, sums = lax.scan(body, x, None, length=3)
        return last.sum() + sums.sum()

    def unrolled(x):
        total = 0.0
        for _ in range(3):
            x, s = body(x, None)
            total += s
        return x.sum() + total

    np.testing.assert_allclose(jax.grad(loss)(x), jax.grad(unrolled)(x), rtol=1e-6)
    once = lax.cond(True, op, lambda x: op(-x), x)
    assert same_bits(once, op(np.asarray(x)))
    assert same_bits(lax.map(op, x), op(np.asarray(x)))
    many = lax.fori_loop(0, 4, lambda _, x: pad(x), x)
    expected = np.asarray(x)
    for _ in range(4):
        expected = pad(expected)
    assert same_bits(many, expected)


def test_indices_have_a_gradient_in_their_values():
    op, x, gy, expected = given("max")

    def loss(x):
        y, i = ln.dispatch.forward_with_indices(op, x)
        return (y * gy).sum(), i

    gradient, places = jax.jit(jax.grad(loss, has_aux=True))(x)
    assert same_bits(gradient, expected)
    assert np.array_equal(places, ln.dispatch.forward_with_indices(op, np.asarray(x))[1])


@pytest.mark.parametrize("name", ["max-3d", "max-ceil", "adaptive", "smooth-real", "min"])
def test_what_jax_itself_does_not_differentiate(name):
    """Dilation, `ceil_mode`, indices, adaptive windows, a smooth max, a min."""
    op, x, gy, expected = given(name)
    found = jax.jit(jax.grad(lambda x: (op(x) * gy).sum()))(x)
    assert same_bits(found, expected)


def test_the_program_keeps_bytes_for_a_max_and_nothing_for_a_mean():
    x = jnp.zeros((2, 3, 8, 8))
    kept = [str(v.aval) for v in jax.make_jaxpr(lambda x: jax.vjp(MAX, x))(x).jaxpr.outvars]
    assert sum("uint8" in name for name in kept) == 1
    assert not any(name == "float32[2,3,8,8]" for name in kept)
    program = str(
        jax.make_jaxpr(lambda x: jax.vjp(ln.AvgPool((2, 2)), x)[1](ln.AvgPool((2, 2))(x)))(x)
    )
    assert "'spread'" in program


def test_ops_are_static_pytrees():
    assert jax.tree.leaves(MAX) == []

    @jax.jit
    def run(op, x):
        return op(x)

    x = array(SHAPE, "float32")
    assert same_bits(run(MAX, x), MAX(x))
    assert same_bits(run(ln.AvgPool((2, 2)), x), ln.AvgPool((2, 2))(x))
    model = {"pool": MAX, "w": jnp.ones(3)}
    assert jax.tree.map(lambda a: a + 1, model)["pool"] == MAX


def test_float0_and_integers_take_no_derivative():
    x = jnp.arange(36).reshape(1, 6, 6)
    op = ln.MaxPool((2, 2))
    _, tangent = jax.jvp(op, (x,), (np.zeros(x.shape, jax.dtypes.float0),))
    assert tangent.dtype == jax.dtypes.float0
