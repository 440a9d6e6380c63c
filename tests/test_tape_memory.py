"""What a tape holds: its saved values, and little more while gradients are computed."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import lunette as ln


def conv_pool_net(tape, x, layers, stride):
    """Convolutions of eight channels and max pools in turn, and their mean."""
    generator = np.random.default_rng(0)
    h = tape.leaf(x, "images", requires_grad=False)
    for layer in range(layers):
        if layer % 2 == 0:
            kernel = generator.normal(size=(8, 8, 3, 3)).astype(np.float32) / 8
            h = tape.conv2d(tape.leaf(kernel), tape.leaf(kernel[:, 0, 0, 0]), h, padding=1)
        else:
            h = tape.max_pool(h, kernel=(3, 3), stride=stride, padding=1)
    return tape.mean(h)


def peak_of(batch, stride, release):
    """(bytes of the saved values, most bytes held at once by forward and backward)."""
    x = np.random.default_rng(1).normal(size=(batch, 8, 256, 256)).astype(np.float32)
    tracemalloc.start()
    try:
        tape = ln.Tape()
        loss = conv_pool_net(tape, x, 10, stride)
        saved = tape.nbytes
        gradients = tape.backward(loss, release=release)
        peak = tracemalloc.get_traced_memory()[1] + x.nbytes
    finally:
        tracemalloc.stop()
    assert len(gradients) == 10
    return saved, peak


@pytest.fixture(scope="module", autouse=True)
def kernels_are_compiled():
    tape = ln.Tape()
    tape.backward(conv_pool_net(tape, np.zeros((1, 8, 8, 8), np.float32), 2, 1))


def test_backward_holds_little_beyond_the_saved_values():
    saved, peak = peak_of(batch=8, stride=1, release=False)
    assert peak <= 1.3 * saved


def test_releasing_on_the_way_holds_no_more_than_the_saved_values():
    # Where layers shrink, the first ones are most of the memory, and so are their gradients.
    saved, peak = peak_of(batch=8, stride=2, release=True)
    assert peak <= 1.3 * saved


def test_backward_with_release_gives_the_same_gradients():
    x = np.random.default_rng(1).normal(size=(2, 8, 16, 16)).astype(np.float32)
    results = []
    for release in (False, True):
        tape = ln.Tape()
        loss = conv_pool_net(tape, x, 4, 2)
        results.append(tape.backward(loss, release=release))
    kept, freed = results
    assert [int(n) for n in kept] == [int(n) for n in freed]
    assert all(np.array_equal(a, b) for a, b in zip(kept.values(), freed.values(), strict=True))
    with pytest.raises(RuntimeError, match="released"):
        tape.value(loss)
    with pytest.raises(RuntimeError, match="released"):
        tape.backward(loss)


def test_gradients_are_let_go_on_the_way():
    # A chain of 40 large values: all their gradients at once would double the memory.
    tracemalloc.start()
    try:
        tape = ln.Tape()
        x = tape.leaf(np.ones(250_000))
        y = x
        for _ in range(40):
            y = tape.tanh(y)
        tape.backward(tape.sum(y))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 1.15 * tape.nbytes
