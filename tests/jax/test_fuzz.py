"""Drawn calls, each compiled once and run on several inputs: the bits of NumPy arrays.

`python -m tests.jax.test_fuzz 10000 0` makes so many calls from a seed on, and prints what was wrong.
"""

import random
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import lunette as ln
import lunette.jax

from .cases import same_bits

DTYPES = ("float32", "float32", "float32", "float32", "float16", ml_dtypes.bfloat16)
INPUTS = 8


def drawn_op(rng):
    """An op over one to three axes, and lengths of these that it takes."""
    while True:
        rank = rng.choice((1, 2, 2, 2, 3))
        lengths = tuple(rng.randint(1, 12 if rank < 3 else 6) for _ in range(rank))
        axes = range(rank)
        sliding = {
            "kernel": tuple(rng.choice((1, 2, 2, 3, 3, 4, 5)) for _ in axes),
            "stride": tuple(rng.choice((1, 1, 2, 2, 3)) for _ in axes),
            "padding": tuple((rng.choice((0, 0, 1, 2)), rng.choice((0, 0, 1, 2))) for _ in axes),
            "dilation": tuple(rng.choice((1, 1, 1, 2)) for _ in axes),
            "ceil_mode": rng.random() < 0.3,
        }
        counting = rng.random() < 0.5
        kind = rng.choice(("max", "max", "max", "mean", "mean", "smooth", "adaptive", "global"))
        try:
            if kind == "max":
                op = ln.MaxPool(**sliding, ties=rng.choice(("first", "first", "all", "split")))
            elif kind == "mean":
                op = ln.AvgPool(**sliding, count_include_pad=counting)
            elif kind == "smooth":
                op = ln.SmoothMaxPool(
                    beta=rng.choice((1.0, -2.5)), **sliding, count_include_pad=counting
                )
            elif kind == "adaptive":
                op = rng.choice((ln.AdaptiveMaxPool, ln.AdaptiveAvgPool))(
                    tuple(rng.randint(1, n + 1) for n in lengths)
                )
            else:
                op = rng.choice((ln.GlobalMaxPool, ln.GlobalAvgPool))(rank, rng.random() < 0.5)
            op.out_shape(lengths)
        except ValueError:
            continue
        return op, lengths


def drawn_array(rng, shape, dtype):
    """Numbers of some kind: drawn, with ties, tiny, zeros of either sign, with NaN or infinities."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    kind = rng.choice(("drawn", "ties", "tiny", "zeros", "nan", "inf"))
    x = numbers.standard_normal(shape)
    some = numbers.random(shape) < 0.15
    with np.errstate(all="ignore"):
        if kind == "ties":
            x = numbers.integers(-2, 3, shape)
        elif kind == "tiny":
            x = x * float(ml_dtypes.finfo(dtype).tiny)
        elif kind == "zeros":
            x = np.where(some, numbers.standard_normal(shape), np.copysign(0.0, x))
        elif kind in ("nan", "inf"):
            x = np.where(some, np.copysign(float(kind), x), x)
        return np.asarray(x, np.float64).astype(dtype)


def drawn_call(rng):
    """What is compiled, what NumPy does, and what draws the operands."""
    op, lengths = drawn_op(rng)
    dtype = np.dtype(rng.choice(DTYPES))
    batch = rng.choice(((), (3,), (2, 3), (1, 2), (70,), (2, 17)))
    last = bool(batch) and rng.random() < 0.4
    shape = (*batch, *lengths)
    out = op.out_shape(shape)
    verbs = ["forward", "gradient", "tangent", "own gradient"]
    if isinstance(op.reduction, ln.Max):
        verbs.append("indices")
    if batch and not last:
        verbs += ["vmap", "vmap of gradient"]
    verb = rng.choice(verbs)

    def turned(a):
        return np.moveaxis(a, a.ndim - 1 - op.rank, -1) if last and a.ndim == len(shape) else a

    def call(x):
        return lunette.jax.apply(op, x, channels_last=last)

    def gradient(x, g):
        return jax.vjp(call, x)[1](g)[0]

    pairs = {
        "forward": (call, op, (shape,)),
        "gradient": (gradient, op.vjp, (shape, out)),
        "tangent": (lambda x, d: jax.jvp(call, (x,), (d,))[1], op.jvp, (shape, shape)),
        "own gradient": (
            lambda x, g: lunette.jax.calls.vjp(op, (x,), g, channels_last=last)[0],
            op.vjp,
            (shape, out),
        ),
        "indices": (
            lambda x: lunette.jax.apply_with_indices(op, x, channels_last=last)[1],
            lambda x: ln.dispatch.forward_with_indices(op, x)[1].astype(np.int32),
            (shape,),
        ),
        "vmap": (jax.vmap(op), op, (shape,)),
        "vmap of gradient": (jax.vmap(gradient), op.vjp, (shape, out)),
    }
    ours, numpy, shapes = pairs[verb]
    name = f"{op!r}, {verb} of {shape} {dtype}, channels_last={last}"
    return name, jax.jit(ours), numpy, turned, [(s, dtype) for s in shapes]


def fuzz(calls, seed):
    """So many calls; the names of those that were wrong."""
    rng, wrong, made = random.Random(seed), [], 0
    while made < calls:
        name, ours, numpy, turned, shapes = drawn_call(rng)
        for number in range(INPUTS):
            arrays = [drawn_array(rng, *s) for s in shapes]
            with np.errstate(all="ignore"):
                expected = turned(np.asarray(numpy(*arrays)))
            found = ours(*(jnp.asarray(turned(a)) for a in arrays))
            made += 1
            if not same_bits(found, expected):
                wrong.append(f"{name}, input {number}")
                break
    return made, wrong


@pytest.mark.parametrize("calls", [160, pytest.param(10_000, marks=pytest.mark.full)])
def test_drawn_calls_have_the_bits_of_numpy(calls):
    made, wrong = fuzz(calls, 0)
    assert made >= calls
    assert not wrong


if __name__ == "__main__":
    total, left = 0, int(sys.argv[1])
    for seed in range(int(sys.argv[2]), 1 << 30):
        count, wrong = fuzz(80, seed)
        total, left = total + count, left - count
        print(f"seed {seed}: {total} calls", *wrong, sep="\n", flush=True)
        if left <= 0:
            break
