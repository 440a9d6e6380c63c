"""Convolutions of JAX arrays are those of NumPy arrays, up to XLA's order of summation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lunette as ln
import lunette.jax

CASES = {
    "1-d": (ln.Conv((3,), 2, 1), (2, 4, 9), 6),
    "2-d": (ln.Conv((3, 2), (2, 1), ((1, 2), (0, 1)), (1, 2), groups=2), (2, 4, 8, 7), 6),
    "same": (ln.Conv((4, 3), 2, "same"), (3, 9, 8), 2),
    "3-d": (ln.Conv((2, 2, 2), dilation=2), (2, 3, 5, 4, 4), 2),
    "4-d": (ln.Conv((2, 1, 2, 2), (1, 2, 1, 1), ((1, 0), 0, 1, 0)), (2, 2, 3, 4, 4, 3), 2),
    "5-d": (ln.Conv((2, 2, 1, 2, 1), dilation=(2, 1, 1, 1, 1), groups=2), (2, 4, 3, 1, 3, 2), 4),
    "turned 1-d": (ln.ConvTranspose((3,), 2, 1, 1), (2, 4, 5), 3),
    "turned 2-d": (
        ln.ConvTranspose((3, 2), (2, 3), ((1, 0), 0), (1, 2), (1, 2), 2),
        (2, 4, 5, 4),
        3,
    ),
    "turned 4-d": (
        ln.ConvTranspose((2, 1, 2, 2), (2, 1, 2, 1), ((1, 0), 0, 1, 0), (1, 0, 0, 0)),
        (1, 2, 3, 2, 3, 2),
        2,
    ),
    "no batch": (ln.Conv((2, 2)), (3, 5, 5), 2),
    "two batch axes": (ln.Conv((2, 2)), (2, 3, 1, 5, 5), 2),
}


def arrays(name, dtype="float64"):
    op, shape, out = CASES[name]
    rng = np.random.default_rng(0)
    channels = shape[len(shape) - op.rank - 1]
    of = (channels, out) if op.transposed else (out, channels // op.groups)
    bias = out * op.groups if op.transposed else out
    shapes = shape, (*of, *op.kernel), (bias,)
    return op, [rng.standard_normal(s).astype(dtype) for s in shapes]


@pytest.mark.parametrize("name", CASES)
def test_verbs(name, wide):
    op, operands = arrays(name)
    y = op(*operands)
    rng = np.random.default_rng(1)
    tangents, grad = [rng.standard_normal(a.shape) for a in operands], rng.standard_normal(y.shape)
    given = list(map(jnp.asarray, operands))
    np.testing.assert_allclose(jax.jit(op)(*given), y, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(op(*given[:2]), op(*operands[:2]), rtol=1e-10, atol=1e-12)
    expected = op.jvp(tuple(operands), tuple(tangents))
    found = op.jvp(tuple(given), tuple(tangents))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    for found in (op.vjp(tuple(given), grad), jax.vjp(op, *given)[1](jnp.asarray(grad))):
        for one, other in zip(found, op.vjp(tuple(operands), grad), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["1-d", "2-d", "4-d", "turned 2-d", "turned 4-d"])
def test_channels_last(name, wide):
    op, (x, *rest) = arrays(name)
    last = jnp.asarray(np.moveaxis(x, x.ndim - op.rank - 1, -1))
    y = op(x, *rest)
    expected = np.moveaxis(y, y.ndim - op.rank - 1, -1)
    found = lunette.jax.apply(op, last, *rest, channels_last=True)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_halves_and_backends():
    op, operands = arrays("4-d", "float16")
    y = op(*map(jnp.asarray, operands))
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, op(*operands).astype(np.float32), rtol=2e-3, atol=2e-3)
    op, operands = arrays("2-d", "float32")
    exact = ln.dispatch.forward(op, *operands, backend="spec")
    found = jax.jit(lambda *a: ln.dispatch.forward(op, *a, backend="spec"))(*operands)
    np.testing.assert_array_equal(found, exact)
    grad = np.ones_like(exact)
    back = jax.jit(lambda x, w, b, g: ln.dispatch.vjp(op, (x, w, b), g, backend="spec"))
    for one, other in zip(
        back(*operands, grad),
        ln.dispatch.vjp(op, tuple(operands), grad, backend="spec"),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_symbolic_batch_axes():
    from jax import export

    op, (x, w, b) = arrays("2-d", "float32")
    (n,) = export.symbolic_shape("n")
    shape = jax.ShapeDtypeStruct((n, *x.shape[1:]), np.float32)
    program = export.export(jax.jit(lambda x: op(x, w, b)))(shape)
    np.testing.assert_allclose(program.call(x), op(x, w, b), rtol=1e-4, atol=1e-5)
