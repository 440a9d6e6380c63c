"""Signs, the larger of two, softmax, cells taken twice and constants between: nothing lies outside."""

import numpy as np
import pytest

import lunette as ln
from lunette.bounds import Box


def numbers(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def signs(tape, x, rng):
    first = tape.sign(tape.linear(x, numbers(rng, 7, 6)))
    second = tape.sign(tape.add(first, np.float32(0.1)))
    return tape.linear(second, numbers(rng, 3, 7))


def clipped(tape, x, rng):
    low = tape.maximum(tape.linear(x, numbers(rng, 5, 6)), np.float32(-0.25))
    high = tape.neg(tape.maximum(tape.neg(low), np.float32(-0.5)))
    leaky = tape.maximum(high, tape.mul(high, np.float32(0.125)))
    return tape.linear(leaky, numbers(rng, 3, 5))


def of_two(tape, x, rng):
    one, other = (tape.linear(x, numbers(rng, 4, 6)) for _ in range(2))
    return tape.maximum(one, tape.reshape(tape.maximum(other, np.float32(0)), (1, 4)))


def shares(tape, x, rng):
    return tape.softmax(
        tape.linear(tape.relu(tape.linear(x, numbers(rng, 5, 6))), numbers(rng, 4, 5))
    )


def taken(tape, x, rng):
    h = tape.linear(x, numbers(rng, 4, 6))
    twice = tape.take(h, np.array([[0, 3, 3], [1, 0, 0]]))
    filled = tape.concatenate([twice, numbers(rng, 2, 2)], axis=1)
    return tape.linear(tape.relu(filled), numbers(rng, 3, 5))


@pytest.mark.parametrize("method", ["ibp", "crown", "tight"])
@pytest.mark.parametrize("build", [signs, clipped, of_two, shares, taken], ids=lambda f: f.__name__)
def test_nothing_lies_outside(build, method):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        tape = ln.Tape()
        center = numbers(rng, 1, 6)
        x = tape.leaf(center, "x")
        y = build(tape, x, rng)
        radius = rng.choice([0.0, 0.02, 0.3])
        box = Box(center - radius, center + radius)
        found = ln.bounds(tape, y, {x: box}, method=method)
        for turn in range(60):
            share = rng.random((1, 6)) if turn % 2 else rng.integers(0, 2, (1, 6))
            point = np.clip(box.lo + share * box.width, box.lo, box.hi).astype(np.float32)
            other = ln.Tape()
            value = build_again(other, point, build, seed)
            assert found.contains(value), (build.__name__, seed, method)


def build_again(tape, point, build, seed):
    rng = np.random.default_rng(seed)
    numbers(rng, 1, 6)
    return build(tape, tape.leaf(point, "x"), rng).value


def test_the_zero_of_a_sign_is_one_of_its_values():
    tape = ln.Tape()
    x = tape.leaf(np.zeros((1, 2), np.float32), "x")
    y = tape.sign(x)
    found = ln.bounds(tape, y, {x: Box(np.array([[0.0, -1.0]]), np.array([[0.0, 0.0]]))})
    np.testing.assert_array_equal(found.lo, [[0, -1]])
    np.testing.assert_array_equal(found.hi, [[0, 0]])


def test_cuts_decide_signs():
    """A sign less the sign of itself is 0: only cuts of its operand can see it."""
    tape = ln.Tape()
    x = tape.leaf(np.zeros((1, 9), np.float32), "x")
    h = tape.linear(x, np.ones((1, 9), np.float32) / 8)
    y = tape.linear(tape.sign(h), np.ones((1, 1), np.float32))
    total = tape.add(y, tape.neg(tape.sign(tape.sign(h))))
    box = {x: Box(-np.ones((1, 9)), np.ones((1, 9)))}
    rows = np.ones((1, 1, 1))
    shifted = tape.add(total, np.float32(0.5))
    verdict = ln.bounds.decide(tape, shifted, box, rows, parts=16)
    assert verdict.status == "proved" and verdict.parts > 1


def test_softmax_of_bad_size():
    tape = ln.Tape()
    x = tape.leaf(np.zeros((1, 3000), np.float32), "x")
    with pytest.raises(ValueError, match="3000 classes"):
        ln.bounds(tape, tape.softmax(x), {x: Box(-1.0, 1.0)})
    small = tape.leaf(np.zeros((1, 3), np.float32), "x")
    with pytest.raises(ValueError, match="softmax of 3 numbers"):
        ln.bounds(tape, tape.softmax(small), {small: Box(-1e9, 1e9)})
