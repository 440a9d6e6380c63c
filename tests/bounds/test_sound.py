"""Nothing that a network returns lies outside its bounds: any order of summation, or exactly."""

import os

import numpy as np
import pytest

import lunette as ln
from lunette.bounds import Box, Deployment
from tests.bounds import nets

METHODS = ("ibp", "crown", "tight")
SEED = int(os.environ.get("LUNETTE_BOUNDS_SEED", "0"))
NETS = int(os.environ.get("LUNETTE_BOUNDS_NETS", "0"))


def all_bounds(layers, shape, lo, hi, deployment):
    tape, x, y = nets.record(layers, np.zeros(shape, np.float32))
    return {
        m: ln.bounds(tape, y, {x: Box(lo, hi)}, method=m, deployment=deployment) for m in METHODS
    }


def check_deployed(seed, kinds, count=6):
    rng, layers, shape = nets.finished(seed, kinds)
    lo, hi = nets.box(rng, shape)
    found = all_bounds(layers, shape, lo, hi, Deployment("float32"))
    for x in nets.points(rng, lo, hi, count):
        ways = [nets.by_kernels(layers, x)]
        if "smooth" not in kinds:
            ways += [nets.in_order(layers, x, rng, fused) for fused in (False, True)]
        for way, y in enumerate(ways):
            for method, box in found.items():
                assert box.contains(y), (seed, method, way, y, box)
    assert (found["crown"].width <= found["ibp"].width).all()


@pytest.mark.parametrize("seed", range(SEED, SEED + (NETS or 12)))
def test_deployed_values_lie_in_the_bounds(seed):
    check_deployed(seed, ("max", "mean"))


@pytest.mark.parametrize("seed", range(SEED, SEED + (NETS or 6)))
def test_smooth_values_lie_in_the_bounds(seed):
    check_deployed(seed + 500, ("smooth", "max"))


@pytest.mark.parametrize("seed", range(SEED, SEED + (NETS or 5)))
def test_exact_values_lie_in_the_bounds(seed):
    """Over the rationals, with boxes so narrow that the bounds' own rounding would show."""
    rng, layers, shape = nets.finished(seed + 900)
    for width in (0.0, 1e-7, 0.2):
        lo, hi = nets.box(rng, shape, width)
        found = all_bounds(layers, shape, lo, hi, None)
        for x in nets.points(rng, lo, hi, 3):
            y = nets.exactly(layers, x)
            for method, box in found.items():
                inside = [
                    a <= v <= b
                    for a, v, b in zip(
                        nets.fractions(box.lo).flat,
                        y.flat,
                        nets.fractions(box.hi).flat,
                        strict=True,
                    )
                ]
                assert all(inside), (seed, method, width)
        if width == 0.0:  # nothing but float64's own rounding is left
            assert found["crown"].width.max() < 1e-10
