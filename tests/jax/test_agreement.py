"""Every verb on JAX arrays has the bits that it has on NumPy arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lunette as ln
import lunette.jax
from lunette import offsets

from .cases import CASES, DTYPES, array, same_bits

EVERY = pytest.mark.parametrize("name", CASES)

BRIEF = ("max", "max-all", "mean", "smooth", "adaptive", "global-dropped")


def some(name, *more):
    """A case, brief or not: each type and layout has kernels of its own, which compile."""
    return pytest.param(name, *more, marks=() if name in BRIEF else pytest.mark.full)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(n, "float32") for n in CASES] + [some(n, t) for n in CASES for t in DTYPES[1:]],
)
def test_value(name, dtype):
    op, shape = CASES[name]
    x = array(shape, dtype)
    for call in (op, jax.jit(op)):
        y = call(jnp.asarray(x))
        assert isinstance(y, jax.Array)
        assert same_bits(y, op(x))


@EVERY
def test_derivatives(name):
    op, shape = CASES[name]
    x, dx = array(shape, "float32"), array(shape, "float32", 1, ties=False)
    y = op(x)
    gy = array(y.shape, "float32", 2, ties=False)
    a, da, ga = map(jnp.asarray, (x, dx, gy))
    assert same_bits(op.jvp(a, da), op.jvp(x, dx))
    assert same_bits(op.vjp(a, ga), op.vjp(x, gy))
    assert same_bits(jax.jvp(op, (a,), (da,))[1], op.jvp(x, dx))
    assert same_bits(jax.vjp(op, a)[1](ga)[0], op.vjp(x, gy))
    assert same_bits(jax.jit(lambda a, ga: jax.vjp(op, a)[1](ga)[0])(a, ga), op.vjp(x, gy))


@pytest.mark.parametrize(
    "name", [n for n, (op, _) in CASES.items() if "max" in n[:3] or "min" in n]
)
def test_indices_follow_the_mode(name, bits):
    op, shape = CASES[name]
    x = array(shape, "float32")
    y, i = ln.dispatch.forward_with_indices(op, x)
    found, places = ln.dispatch.forward_with_indices(op, jnp.asarray(x))
    assert same_bits(found, y)
    assert places.dtype == np.dtype(f"int{bits}")
    assert np.array_equal(places, i)


@pytest.mark.parametrize("name", [some(name) for name in CASES])
def test_channels_last(name):
    op, shape = CASES[name]
    x, dx = array(shape, "float32"), array(shape, "float32", 1, ties=False)
    channel = x.ndim - 1 - op.rank
    if channel < 0:
        x, dx, channel = x[None], dx[None], 0
    y = op(x)
    gy = array(y.shape, "float32", 2, ties=False)

    def last(a, dims=True):
        return jnp.asarray(np.moveaxis(a, channel, -1) if dims else a)

    def pool(a):
        return lunette.jax.apply(op, a, channels_last=True)

    assert same_bits(pool(last(x)), last(y, op.keepdims))
    assert same_bits(jax.jvp(pool, (last(x),), (last(dx),))[1], last(op.jvp(x, dx), op.keepdims))
    found = jax.vjp(pool, last(x))[1](last(gy, op.keepdims))[0]
    assert same_bits(found, last(op.vjp(x, gy)))
    if isinstance(op.reduction, ln.reductions.Max):
        _, places = lunette.jax.apply_with_indices(op, last(x), channels_last=True)
        _, expected = ln.dispatch.forward_with_indices(op, x)
        assert np.array_equal(places, last(expected, op.keepdims))


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(t, marks=() if t in ("bool", "uint8", "int32") else pytest.mark.full)
        for t in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32")
    ],
)
def test_types(dtype, bits):
    """Integers and bools have a max; their mean is a float of JAX's mode."""
    op, mean = ln.MaxPool((2, 2)), ln.AvgPool((2, 2))
    x = (np.arange(36).reshape(1, 6, 6) * 7 % 11).astype(dtype)
    assert same_bits(op(jnp.asarray(x)), op(x))
    value = mean(jnp.asarray(x))
    assert value.dtype == np.dtype(f"float{bits}")
    assert np.array_equal(value, mean(x).astype(value.dtype))
    if dtype != "bool":
        same = ln.AvgPool((2, 2), dtype="same")
        assert same_bits(same(jnp.asarray(x)), same(x))
    mode = ln.ModePool((2, 2))
    assert same_bits(mode(jnp.asarray(x)), mode(x))


@pytest.mark.parametrize("name", ["max", "mean", "smooth", "adaptive", "global"])
def test_64_bits(name, wide):
    op, shape = CASES[name]
    x = array(shape, "float64")
    gy = array(op(x).shape, "float64", 1, ties=False)
    assert same_bits(op(jnp.asarray(x)), op(x))
    assert same_bits(jax.vjp(op, jnp.asarray(x))[1](jnp.asarray(gy))[0], op.vjp(x, gy))
    whole = ln.MaxPool((2,))
    n = np.array([1, 1 << 60, -5, (1 << 60) + 1])
    assert same_bits(whole(jnp.asarray(n)), whole(n))


@pytest.mark.parametrize("name", ["max", "max-all", "mean", "smooth", "smooth-real", "adaptive"])
def test_strange_numbers(name):
    """NaN, infinities, zeros of either sign and subnormal numbers, which XLA by itself would flush."""
    op, shape = CASES[name]
    x = array(shape, "float32")
    tiny = np.float32(1e-42)
    flat = x.reshape(-1)
    flat[::7], flat[3::11], flat[5::13], flat[::17], flat[6::19] = (
        tiny,
        -tiny,
        -np.inf,
        np.inf,
        np.nan,
    )
    calm = np.where(np.isfinite(x), x, np.float32(0))
    for values in (x, calm, np.where(np.isnan(x), tiny, x)):
        assert same_bits(jax.jit(op)(jnp.asarray(values)), op(values))
        gy = np.full(op(values).shape, tiny)
        found = jax.jit(lambda a, g: jax.vjp(op, a)[1](g)[0])(jnp.asarray(values), jnp.asarray(gy))
        assert same_bits(found, op.vjp(values, gy))


@EVERY
def test_empty_batch(name):
    op, shape = CASES[name]
    x = np.zeros((0, *shape[-op.rank :]), np.float32)
    y, back = jax.vjp(jax.jit(op), jnp.asarray(x))
    assert same_bits(y, op(x))
    assert back(y)[0].shape == x.shape


def test_numpy_may_meet_jax():
    op, shape = CASES["max"]
    x, dx = array(shape, "float32"), array(shape, "float32", 1)
    assert same_bits(op.jvp(jnp.asarray(x), dx), op.jvp(x, dx))
    assert same_bits(jax.jit(lambda a: op.vjp(a, op(x)))(x), op.vjp(x, op(x)))
    conv, w = ln.Conv((3, 3)), array((4, 3, 3, 3), "float32", 2)
    assert isinstance(conv(jnp.asarray(x), w), jax.Array)


def test_backends_by_name():
    op, shape = CASES["smooth"]
    x = array(shape, "float32")
    for backend in ("cpu", "spec"):
        expected = ln.dispatch.forward(op, x, backend=backend)
        assert same_bits(
            jax.jit(lambda a, b=backend: ln.dispatch.forward(op, a, backend=b))(x), expected
        )
        gy = np.ones_like(expected)
        back = ln.dispatch.vjp(op, x, gy, backend=backend)
        pull = jax.vjp(lambda a, b=backend: ln.dispatch.forward(op, a, backend=b), jnp.asarray(x))[
            1
        ]
        assert same_bits(pull(jnp.asarray(gy))[0], back)


def test_offsets_are_those_of_numpy():
    from lunette.jax.primitive import bind
    from lunette.jax.verbs import Task

    op, shape = CASES["max"]
    x = array(shape, "float32")
    y, kept = offsets.forward_with_offsets(op, x)
    value, found = bind(Task("offsets", op), jnp.asarray(x))
    assert same_bits(value, y)
    assert same_bits(found, kept)


@pytest.mark.parametrize("traced", [False, True])
def test_unpool(traced):
    x = array((2, 3, 6, 6), "float32", ties=False)
    y, i = ln.max_pool(x, (2, 2), return_indices=True)
    unpool = lambda v, i: ln.max_unpool(v, i, (6, 6))  # noqa: E731
    call = jax.jit(unpool) if traced else unpool
    assert same_bits(call(jnp.asarray(y), jnp.asarray(i)), ln.max_unpool(y, i, (6, 6)))
    pull = jax.vjp(lambda v: call(v, jnp.asarray(i)), jnp.asarray(y))[1]
    assert same_bits(
        pull(jnp.asarray(x))[0],
        np.take_along_axis(x.reshape(2, 3, -1), i.reshape(2, 3, -1), -1).reshape(y.shape),
    )


@pytest.mark.parametrize("axes", [(1, 2), (0, 1), (0, 3)])
def test_axes_by_name(axes):
    """Those before the last need no transpose; others are moved."""
    op = ln.MaxPool((3, 3), 2, 1, axes=axes)
    x = array((7, 8, 6, 5), "float32", ties=False)
    dx = array((7, 8, 6, 5), "float32", 1, ties=False)
    y, i = ln.dispatch.forward_with_indices(op, x)
    found, places = ln.dispatch.forward_with_indices(op, jnp.asarray(x))
    assert same_bits(found, y)
    assert np.array_equal(places, i)
    assert same_bits(jax.jit(op)(jnp.asarray(x)), y)
    assert same_bits(op.jvp(jnp.asarray(x), dx), op.jvp(x, dx))
    assert same_bits(op.vjp(jnp.asarray(x), y), op.vjp(x, y))
    assert same_bits(jax.vjp(op, jnp.asarray(x))[1](jnp.asarray(y))[0], op.vjp(x, y))
    program = str(jax.make_jaxpr(op)(jnp.asarray(x)))
    assert ("transpose" in program) == (axes != (1, 2))
    texts = []
    for values in (x[0], jnp.asarray(x[0])):
        with pytest.raises(ValueError) as caught:
            op.jvp(values, dx)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
