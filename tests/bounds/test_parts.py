"""Parts of a network: rows over them give the bounds that rows over the whole give."""

import numpy as np
import pytest

import lunette as ln
from lunette.bounds import Box, Deployment, tiles
from lunette.bounds.outputs import least_of
from lunette.bounds.parts import focused
from lunette.bounds.reading import network_of
from lunette.bounds.tighten import enclose

FLOAT32 = Deployment("float32")


def recorded():
    """Convolutions with strides and uneven padding, both poolings, two ways that join, a slice."""
    rng = np.random.default_rng(4)

    def numbers(*shape):
        return (rng.integers(-32, 33, shape) / 32).astype(np.float32)

    tape = ln.Tape()
    x = tape.leaf(numbers(1, 2, 9, 8), "x")
    first = tape.conv(numbers(4, 2, 3, 3), numbers(4), x, padding=1)
    bent = tape.relu(first)
    second = tape.conv(numbers(4, 2, 3, 3), None, bent, padding=1, groups=2)
    joined = tape.relu(tape.add(tape.mul(first, numbers(4, 1, 1)), second))
    mean = tape.avg_pool(joined, kernel=(3, 3), stride=(2, 2), padding=(1, 1))
    third = tape.conv(numbers(3, 4, 3, 2), None, mean, padding=((1, 0), (0, 1)))
    best = tape.max_pool(third, kernel=(2, 2), stride=1)
    y = tape.reshape(tape.tanh(best), (1, -1))
    return network_of(tape, y, {x: Box(x.value - 0.1, x.value + 0.1)}, FLOAT32)


@pytest.mark.parametrize("method", ["crown", "tight"])
def test_parts_bound_as_the_whole(monkeypatch, method):
    network = recorded()
    whole = enclose(network, FLOAT32, method)
    monkeypatch.setattr(tiles, "SMALL", 0)
    monkeypatch.setattr(tiles, "EACH", 0)
    used = []
    real = tiles.part_of
    monkeypatch.setattr(tiles, "part_of", lambda *a: used.append(real(*a)) or used[-1])
    parts = enclose(network, FLOAT32, method)
    assert len(used) > 10
    assert any(len(part.network.steps) < len(network.steps) for part in used)
    for k, step in enumerate(network.steps):
        scale = 1e-9 * (1 + np.abs(whole.lo[k]).max())
        np.testing.assert_allclose(parts.lo[k], whole.lo[k], atol=scale, err_msg=step.about)
        np.testing.assert_allclose(parts.hi[k], whole.hi[k], atol=scale, err_msg=step.about)


def test_rows_need_only_what_they_read():
    network = recorded()
    rows = np.zeros((2, *network.steps[-1].shape))
    rows[0, 0, 0], rows[1, 0, 1] = 1.0, -1.0
    small, short = focused(network, rows)
    assert small.steps[-1].cells == short[0].size == 2
    assert sum(s.cells for s in small.steps) < 0.9 * sum(s.cells for s in network.steps)
    assert [small.steps[k].shape for k in small.inputs] == [(1, 2, 9, 8)]
    found = least_of(enclose(small, FLOAT32, "crown"), short, "crown")
    expected = least_of(enclose(network, FLOAT32, "crown"), rows, "crown")
    np.testing.assert_allclose(found, expected, atol=1e-9)
