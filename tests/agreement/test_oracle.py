"""The vectorised oracle gives the specification's bits, so it may stand in for it."""

import pytest

from cases import geometries, values
from cases.agreement import max_disagreements


def check(geometry, index, dtype):
    lengths, regions = geometry
    kinds = values.kinds_of(dtype)
    x = values.filled(kinds[index % len(kinds)], (2, *lengths), dtype, seed=index)
    assert not max_disagreements(regions, x, backend="spec")


def test_oracle_is_the_specification_on_a_sample():
    picked = [
        *geometries.sampled(geometries.one_axis(), every=40),
        *geometries.sampled(geometries.adaptive(), every=8),
        *geometries.boxes(2, 30),
        *geometries.boxes(3, 12),
        *geometries.boxes(4, 6),
    ]
    for index, geometry in enumerate(picked):
        check(geometry, index, ("float32", "float16", "int8", "float64")[index % 4])


@pytest.mark.full
@pytest.mark.parametrize("dtype", values.DTYPES)
def test_oracle_is_the_specification_for_every_geometry_and_dtype(dtype):
    everything = [
        *geometries.sampled(geometries.one_axis(), every=1 if dtype == "float32" else 8),
        *geometries.adaptive(),
        *geometries.global_(),
        *geometries.boxes(2, 100),
        *geometries.boxes(3, 40),
        *geometries.boxes(4, 20),
    ]
    for index, geometry in enumerate(everything):
        check(geometry, index, dtype)
