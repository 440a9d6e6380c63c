"""The operators of the commands on slabs: exact rounding, any part of the array like the whole."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lunette as ln
from lunette.kernels.cpu.integers.rounded import in_lanes
from lunette.regions import Sliding
from lunette.scale.operators import apply, check_dtype

INTEGERS = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"]


def rounded_means(x, factors):
    """Python's round of a Fraction is half to even."""
    out = np.empty([-(-n // k) for n, k in zip(x.shape, factors, strict=True)], x.dtype)
    for i in np.ndindex(out.shape):
        block = tuple(slice(a * k, a * k + k) for a, k in zip(i, factors, strict=True))
        cells = x[block].ravel().tolist()
        out[i] = round(Fraction(sum(cells), len(cells)))
    return out


def integers(shape, dtype, seed):
    """Values from the whole range, or few of them so that halves are common."""
    rng = np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    if seed % 2:
        low = max(limits.min, -3)
        return rng.integers(low, 4, shape).astype(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


SHAPES = [
    ((5, 7, 19), (2, 2, 2)),
    ((4, 6, 34), (2, 2, 2)),
    ((3, 33), (2, 2)),
    ((9,), (2,)),
    ((3, 4, 5, 18), (1, 1, 2, 2)),
    ((2, 3, 4, 5), (1, 2, 2, 2)),
    ((1, 3, 7), (2, 1, 2)),
]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(("shape", "factors"), SHAPES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_mean_of_integers_is_rounded_half_to_even(shape, factors, dtype, seed):
    x = integers(shape, dtype, seed)
    parts = tuple(
        Sliding(k, ceil_mode=True).part(n, 0, -(-n // k))
        for n, k in zip(shape, factors, strict=True)
    )
    np.testing.assert_array_equal(apply("mean", x, parts), rounded_means(x, factors))


def test_the_fast_mean_serves_what_people_use_it_for():
    def served(dtype, shape, factors):
        regions = tuple(Sliding(k, ceil_mode=True) for k in factors)
        return in_lanes(np.dtype(dtype), regions, shape)

    assert served("u1", (512, 1024, 1024), (2, 2, 2))
    assert served("u2", (8, 64, 64), (1, 2, 2))
    assert not served("u4", (8, 64, 64), (1, 2, 2))
    assert not served("u1", (64, 64, 3), (2, 2, 1))


def test_halves_by_hand():
    x = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [254, 255]], np.uint8)
    np.testing.assert_array_equal(ln.avg_pool(x, (1, 2), dtype="same"), [[0], [2], [2], [4], [254]])
    y = np.array([[-1, 0], [-2, -1], [-3, -2], [127, 126]], np.int8)
    np.testing.assert_array_equal(ln.avg_pool(y, (1, 2), dtype="same"), [[0], [-2], [-2], [126]])


OPERATORS = {
    "max": max,
    "min": min,
    "mean": lambda cells: round(Fraction(sum(cells), len(cells))),
    "mode": lambda cells: max(sorted(cells), key=cells.count),
}


@given(
    operator=st.sampled_from(sorted(OPERATORS)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    cut=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    dtype=st.sampled_from(["u1", "i2", "i8"]),
)
@settings(max_examples=60)
def test_any_part_is_pooled_as_in_the_whole(operator, kernel, stride, cut, dtype):
    x = integers((7, 8), dtype, 1)
    regions = [Sliding(k, s, ceil_mode=True) for k, s in zip(kernel, stride, strict=True)]
    lengths = [r.out_length(n) for r, n in zip(regions, x.shape, strict=True)]
    firsts = [min(c, m - 1) for c, m in zip(cut, lengths, strict=True)]
    parts = tuple(
        r.part(n, a, m) for r, n, a, m in zip(regions, x.shape, firsts, lengths, strict=True)
    )
    slab = x[tuple(slice(*p.slab_range) for p in parts)]
    result = apply(operator, slab, parts)
    assert result.dtype == x.dtype
    for i in np.ndindex(result.shape):
        place = tuple(
            slice((a + j) * s, (a + j) * s + k)
            for a, j, s, k in zip(firsts, i, stride, kernel, strict=True)
        )
        assert result[i] == OPERATORS[operator](x[place].ravel().tolist())


def test_min_of_floats_keeps_nan_and_infinities():
    x = np.array([np.nan, 1, -np.inf, 2, np.inf, 3], np.float32)
    result = apply("min", x, (Sliding(2).part(6, 0, 3),))
    np.testing.assert_array_equal(result, np.array([np.nan, -np.inf, 3], np.float32))


def test_stride_takes_the_first_cell_of_each_window():
    x = np.arange(35).reshape(5, 7)
    parts = (Sliding(1, 2).part(5, 1, 3), Sliding(1, 3).part(7, 0, 3))
    slab = x[tuple(slice(*p.slab_range) for p in parts)]
    np.testing.assert_array_equal(apply("stride", slab, parts), x[2::2, ::3])


def test_dtypes_that_an_operator_does_not_offer():
    with pytest.raises(TypeError, match="complex64"):
        check_dtype("max", np.dtype("c8"))
    with pytest.raises(TypeError, match="bool has no mean"):
        check_dtype("mean", np.dtype(bool))
    with pytest.raises(TypeError, match="expected an integer type"):
        check_dtype("stride", np.dtype("U3"))
