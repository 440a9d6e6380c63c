"""The relaxations of one window: sound at every point, and as tight as the hull."""

import numpy as np
import pytest
from scipy.optimize import linprog

import lunette as ln
from lunette.bounds import Box
from lunette.bounds.relax import Hull, SmoothHull
from lunette.bounds.windows import Maximum, Smooth


def window(rng, cells, zero):
    lo = rng.normal(size=cells)
    hi = lo + rng.exponential(size=cells) * (rng.random(cells) > 0.1)
    table = np.arange(cells)[None]
    return Maximum((0,), (1,), "a window", (cells,), table, np.array([zero])), lo, hi


def extreme(lo, hi, zero, row):
    """The least of y·row[0] + x·row[1:] over the hull of (x, max x), a linear program.

    The hull of the graph: one copy of the box for each winner, weighted.
    """
    n = len(lo)
    winners = n + zero
    # Variables: for each winner i, its weight q_i and its point times the weight, z_i (n numbers).
    cost, above = [], []
    width = winners * (n + 1)
    for i in range(winners):
        base = i * (n + 1)
        part = np.zeros(n + 1)
        part[1:] = row[1:]
        if i < n:
            part[1 + i] += row[0]
        cost.append(part)
        for j in range(n):
            for sign, end in ((1.0, hi[j]), (-1.0, -lo[j])):
                line = np.zeros(width)
                line[base + 1 + j], line[base] = sign, -end
                above.append(line)
            line = np.zeros(width)  # the winner is the largest
            line[base + 1 + j] = 1.0
            if i < n:
                line[base + 1 + i] -= 1.0
            above.append(line)
        if zero and i < n:
            line = np.zeros(width)
            line[base + 1 + i] = -1.0
            above.append(line)
    weights = np.zeros(width)
    weights[:: n + 1] = 1.0
    free = [(0, None) if k % (n + 1) == 0 else (None, None) for k in range(width)]
    found = linprog(
        np.concatenate(cost), np.array(above), np.zeros(len(above)), weights[None], [1.0], free
    )
    assert found.status == 0
    return found.fun


@pytest.mark.parametrize("seed", range(12))
def test_the_chosen_relaxations_attain_the_hull(seed):
    """Of linear functions of cells and their max: within 1 % of the width of the exact range."""
    rng = np.random.default_rng(seed)
    cells, zero = int(rng.integers(1, 6)), bool(rng.integers(2))
    _, lo, hi = window(rng, cells, zero)
    for sign in (1.0, -1.0):
        row = np.concatenate([[sign], rng.normal(size=cells) * 0.7])
        exact, most = extreme(lo, hi, zero, row), -extreme(lo, hi, zero, -row)
        found = bound_of(lo, hi, zero, row)
        assert found <= exact + 1e-9
        assert found >= exact - 0.01 * (most - exact) - 1e-9, (found, exact, most)


def bound_of(lo, hi, zero, row):
    """`row[0]·max + row[1:]·x` on a tape, bounded below."""
    tape = ln.Tape()
    x = tape.leaf(np.zeros(len(lo)))
    largest = tape.apply(ln.MaxPool((len(lo),)), tape.relu(x) if zero else x)
    y = tape.add(tape.mul(largest, row[:1]), tape.matmul(x, np.ascontiguousarray(row[1:])[:, None]))
    return ln.bounds(tape, y, {x: Box(lo, hi)}, method="tight", deployment=None).lo[0]


@pytest.mark.parametrize("seed", range(20))
def test_both_sides_hold_at_every_point(seed):
    rng = np.random.default_rng(seed)
    cells, zero = int(rng.integers(1, 7)), bool(rng.integers(2))
    step, lo, hi = window(rng, cells, zero)
    hull = Hull(step, lo, hi)
    x = np.concatenate(
        [
            lo + (hi - lo) * rng.integers(0, 2, size=(64, cells)),
            lo + (hi - lo) * rng.random((64, cells)),
        ]
    )
    y = step.value(x)[:, 0]
    choices = [hull.first_guess(), *(tuple(c[0] for c in hull.at(p[None, None])) for p in x[::16])]
    for lam, share in choices:
        r = hull.relaxation(lam, share)
        assert (x @ r.high_slope[0] + r.high_offset[0] >= y).all()
        assert (x @ r.low_slope[0] + r.low_offset[0] <= y).all()


@pytest.mark.parametrize("beta", [0.3, 4.0, 200.0, -4.0, -200.0])
def test_both_sides_of_a_smooth_max_hold_at_every_point(beta):
    rng = np.random.default_rng(int(abs(beta)))
    for scale in (1e-3, 1.0, 30.0):
        for cells, zeros in ((1, 0), (3, 0), (4, 2)):
            table = np.arange(cells)[None]
            step = Smooth((0,), (1,), "a window", (cells,), table, np.array([zeros]), beta)
            lo = scale * rng.normal(size=cells)
            hi = lo + scale * rng.exponential(size=cells) * (rng.random(cells) > 0.2)
            x = lo + (hi - lo) * np.concatenate(
                [rng.integers(0, 2, size=(32, cells)), rng.random((200, cells))]
            )
            y = step.value(x)[:, 0]
            room = 1e-12 * (1 + np.abs(x).max())
            hull = SmoothHull(step, lo, hi)
            chosen = [hull.first_guess()]
            for p in x[::40]:  # of a row's own point, and on the way there
                chosen.append(hull.at(p[None]))
                chosen.append(tuple(a + 0.3 * (c - a) for a, c in zip(*chosen[-2:], strict=True)))
            for r in (hull.relaxation(*one) for one in reversed(chosen)):
                assert (x @ r.high_slope[0] + r.high_offset[0] >= y - room).all()
                assert (x @ r.low_slope[0] + r.low_offset[0] <= y + room).all()
            top, bottom = step.value(hi)[0], step.value(lo)[0]
            middle = (
                (lo + hi) / 2 @ (r.high_slope[0] - r.low_slope[0])
                + r.high_offset[0]
                - r.low_offset[0]
            )
            assert middle <= 1.01 * (top - bottom) + 2 * np.log(cells + zeros) / abs(beta) + 1e-9


def test_rows_of_a_smooth_max_are_near_the_hull():
    """The most that a smooth max less a mean of its cells can be is attained at a corner."""
    rng, gaps = np.random.default_rng(5), []
    corners = np.array(list(np.ndindex(2, 2, 2)), float)
    for _ in range(12):
        lo, width, share = rng.normal(size=3), rng.exponential(size=3), rng.random(3) * 1.5
        row = share / share.sum()
        tape = ln.Tape()
        x = tape.leaf(np.zeros((1, 3)))
        y = tape.sub(tape.apply(ln.SmoothMaxPool((3,), beta=3.0), x), tape.linear(x, row[None]))
        box = {x: Box(lo[None], (lo + width)[None])}
        found = ln.bounds(tape, y, box, method="tight", deployment=None).hi[0, 0]
        points = lo + corners * width
        values = np.log(np.exp(3 * points).sum(axis=1)) / 3 - points @ row
        gaps.append((found - values.max()) / np.ptp(values))
    assert min(gaps) >= 0 and np.mean(gaps) < 0.004


def test_a_large_beta_is_as_tight_as_a_max():
    """At β = 2000 the two relaxations differ by no more than log(n)/β and a little."""
    x = np.zeros((1, 4), np.float32)
    widths = []
    for op in (ln.MaxPool((4,)), ln.SmoothMaxPool((4,), 2000.0)):
        tape = ln.Tape()
        leaf = tape.leaf(x)
        y = tape.sub(tape.apply(op, leaf), tape.sum(leaf, axis=1, keepdims=True))
        box = Box(np.array([[-1.0, 0.0, 0.5, -2.0]]), np.array([[1.0, 1.5, 0.75, 2.0]]))
        widths.append(ln.bounds(tape, y, {leaf: box}, deployment=None).width[0, 0])
    assert widths[1] <= widths[0] * 1.25 + 0.01
