"""Every refusal of the ops is raised while a program is traced, with the text that it has for NumPy's arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lunette as ln
import lunette.jax

X = np.zeros((2, 3, 8, 8), np.float32)

REFUSED = {
    "no axis": (ln.MaxPool((3, 3)), np.zeros(4, np.float32)),
    "long window": (ln.MaxPool((9, 9)), X),
    "empty axis": (ln.MaxPool((2, 2)), np.zeros((2, 0, 4), np.float32)),
    "complex": (ln.MaxPool((2, 2)), np.zeros((4, 4), np.complex64)),
    "mode of floats": (ln.ModePool((2, 2)), X),
    "rounded mean of bools": (ln.AvgPool((2, 2), dtype="same"), np.zeros((4, 4), bool)),
    "tiny beta": (ln.SmoothMaxPool((2, 2), 1e-60), X),
}


FAR = {
    "a result past memory": (ln.ConvTranspose((2,), 10**12), (1, 4)),
    "a step past int64": (ln.ConvTranspose((2,), 2**63), (1, 2)),
    "padding past XLA": (ln.Conv((2,), 2**40, 2**40), (1, 4)),
}


@pytest.mark.parametrize("name", FAR)
def test_convolutions_that_reach_too_far(name):
    op, shape = FAR[name]
    with pytest.raises(ValueError, match=r"result of shape|padding="):
        op(jnp.ones(shape), jnp.ones((1, 1, 2)))


@pytest.mark.parametrize("op", [ln.Conv((2,), 2**63), ln.Conv((2,), 2**63, "same"), ln.ConvTranspose((2,), 2**63)], ids=repr)  # fmt: skip
def test_a_step_past_the_axis_is_never_taken(op):
    x, weight = np.ones((1, 1 if op.transposed else 4), np.float32), np.ones((1, 1, 2), np.float32)
    np.testing.assert_array_equal(op(jnp.array(x), jnp.array(weight)), op(x, weight))


def text(call, *arguments):
    with pytest.raises((ValueError, TypeError)) as caught:
        call(*arguments)
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_have_the_texts_of_numpy(name):
    op, x = REFUSED[name]
    expected = text(op, x)
    assert text(op, jnp.asarray(x)) == expected
    assert text(jax.jit(op), jnp.asarray(x)) == expected
    assert text(jax.eval_shape, op, jax.ShapeDtypeStruct(x.shape, x.dtype)) == expected


def test_derivatives_are_refused_alike():
    op, x = ln.MaxPool((2, 2)), jnp.asarray(X)
    y = op(X)
    pairs = [
        (op.vjp, (X, y[..., :1])),
        (op.vjp, (X, y.astype(np.float16))),
        (op.jvp, (X, X[:1])),
        (op.jvp, (X, X.astype(np.float16))),
        (op.vjp, (X.astype(np.int32), y.astype(np.int32))),
        (ln.ModePool((2, 2)).vjp, (X.astype(np.int32), y.astype(np.int32))),
    ]
    for verb, arrays in pairs:
        assert text(verb, *map(jnp.asarray, arrays)) == text(verb, *arrays)
    with pytest.raises(TypeError, match="only a max has indices"):
        ln.dispatch.forward_with_indices(ln.AvgPool((2, 2)), x)
    with pytest.raises(ValueError, match="backend='gpu': expected one of"):
        ln.max_pool(x, (2, 2), backend="gpu")


def test_convolutions_are_refused_alike():
    conv, w = ln.Conv((3, 3)), np.zeros((4, 3, 3, 3), np.float32)
    for arrays in (
        (X, w[:, :2]),
        (X[:, :, :2], w),
        (X.astype(np.int32), w),
        (X, w.astype(np.float16)),
        (X, w, np.zeros(3, np.float32)),
    ):
        assert text(conv, *map(jnp.asarray, arrays)) == text(conv, *arrays)
        assert text(jax.jit(conv), *arrays) == text(conv, *arrays)


def test_what_is_no_array_of_numbers():
    op = ln.MaxPool((2,))
    with pytest.raises(TypeError, match="x has dtype key<fry>: expected float16"):
        op(jax.random.split(jax.random.key(0), 4))
    with pytest.raises(TypeError, match="several kinds"):
        torch = pytest.importorskip("torch")
        op.jvp(jnp.zeros(4), torch.zeros(4))
    with pytest.raises(TypeError, match="dtype object"):
        op.jvp(jnp.zeros(4), np.array([None] * 4))


def test_channels_last_needs_an_axis_for_channels():
    with pytest.raises(ValueError, match="the 2 axes before the last; x of shape"):
        lunette.jax.apply(ln.MaxPool((2, 2)), jnp.zeros((4, 4)), channels_last=True)
    with pytest.raises(TypeError, match="channels_last=1"):
        lunette.jax.apply(ln.MaxPool((2, 2)), jnp.zeros((4, 4, 2)), channels_last=1)


@pytest.mark.parametrize("platform", ["tpu", "rocm"])
def test_other_platforms_are_told_what_to_do(platform):
    """Where there are no kernels; the specification runs anywhere, on the host."""
    lowered = jax.jit(ln.MaxPool((2, 2))).trace(jnp.asarray(X))
    with pytest.raises(NotImplementedError, match=rf"'{platform}'.* on the CPU.*backend='spec'"):
        lowered.lower(lowering_platforms=(platform,))


def test_the_host_does_what_another_platform_cannot():
    """Where a program for one is made, it calls back; here that part runs by itself."""
    from lunette.jax.lowering import called_back
    from lunette.jax.verbs import Task

    op = ln.SmoothMaxPool((2, 2), 1.5)
    task = Task("forward", op, backend="spec")
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 4, 4)
    (found,) = jax.jit(lambda x: called_back(x, task=task))(x)
    assert np.array_equal(found, ln.dispatch.forward(op, x, backend="spec"))


def test_an_error_in_a_running_program_is_an_error_of_jax():
    """A kernel that is not there, say: the text is told, and the process goes on."""
    from lunette.jax.primitive import bind
    from lunette.jax.verbs import Task

    op = ln.MaxPool((2, 2))
    offsets = jnp.full((1, 2, 2), 9, jnp.uint8)
    with pytest.raises(
        Exception, match=r"lunette: ValueError: offsets: 9 at \(0, 0, 0\) is no cell"
    ):
        jax.block_until_ready(bind(Task("taken", op), offsets, jnp.zeros((1, 4, 4))))
    assert op(jnp.ones((1, 4, 4))).sum() == 4
