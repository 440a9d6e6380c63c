"""What a tape holds: its saved values, and little more while gradients are computed."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import lunette as ln
from lunette.kernels.cpu.memory import block_cache


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


def most_held(program):
    """The most bytes held at once while a program runs; NumPy reports its arrays to tracemalloc."""
    tracemalloc.start()
    try:
        program()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(autouse=True)
def no_block_is_kept(monkeypatch):
    """Blocks that were freed and wait for the next result would be counted, or hide a result."""
    block_cache._kept.blocks.clear()
    monkeypatch.setattr(block_cache._kept, "limit", 0)


@pytest.fixture(scope="module", autouse=True)
def kernels_are_compiled():
    for stride in (1, 2):
        tape = ln.Tape()
        tape.backward(conv_pool_net(tape, np.zeros((1, 8, 8, 8), np.float32), 2, stride))


def test_backward_holds_little_beyond_the_saved_values():
    tape = ln.Tape()

    def program():
        x = np.random.default_rng(1).random((8, 8, 256, 256), np.float32)
        loss = conv_pool_net(tape, x, 10, stride=1)
        assert len(tape.backward(loss)) == 10

    assert most_held(program) <= 1.3 * tape.nbytes


@pytest.mark.parametrize(("release", "bound"), [(False, 1.55), (True, 1.3)])
def test_memory_of_a_net_that_shrinks(release, bound):
    """Images of a quarter after each pool: the first layer's gradient meets all saved values.

    In units of the images, 8/3 are saved: images and first sums 1 each, then quarters. At the first
    pool its gradients of 1 and 1/4 are held beside them: 1.47 of the saved values, and some scratch. With `release`,
    what lies behind the pool is gone by then: 1.22 of them.
    """
    saved = []

    def program():
        tape = ln.Tape()
        x = np.random.default_rng(1).random((8, 8, 256, 256), np.float32)
        loss = conv_pool_net(tape, x, 10, stride=2)
        saved.append(tape.nbytes)
        tape.backward(loss, release=release)

    assert most_held(program) <= bound * saved[0]


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


@pytest.mark.parametrize(("release", "bound"), [(False, 1.12), (True, 1.04)])
def test_gradients_and_released_values_are_let_go_on_the_way(release, bound):
    # A chain of 40 large values: all their gradients at once would double the memory.
    saved = []

    def program():
        tape = ln.Tape()
        y = tape.leaf(np.ones(250_000))
        for _ in range(40):
            y = tape.exp(-y)
        saved.append(tape.nbytes)
        tape.backward(tape.sum(y), release=release)

    assert most_held(program) <= bound * saved[0]
