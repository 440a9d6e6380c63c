"""Mean and smooth max lie within their written bounds of the exact values: error / bound ≤ 1."""

from itertools import product

import numpy as np
import pytest

import lunette as ln
from cases import geometries, values
from cases.agreement import bounded_errors, differing_bits, direction, pool, run
from cases.workloads import WORKLOADS, dtype_named
from lunette.check.bounds import bound, cell_counts, gamma, reader_counts
from lunette.ops.base import is_float
from lunette.reductions import Mean, SmoothMax
from lunette.regions import Adaptive, Global, Sliding
from tests.brief import every

MEANS = (Mean(), Mean(count_include_pad=False), Mean(divisor_override=3))
SMOOTHS = (SmoothMax(0.7), SmoothMax(-3.0, count_include_pad=False), SmoothMax(40.0))
FINITE = ("random", "ties", "equal", "negative", "zeros", "denormal", "huge")
VERBS = ("forward", "jvp", "vjp")


def ratios(op, x, backend, seed=0, verbs=VERBS):
    """The largest error/bound of each verb."""
    found = {}
    for verb in verbs:
        if verb != "forward" and not is_float(x.dtype):
            continue
        shape = op.out_shape(x.shape) if verb == "vjp" else x.shape
        along = None if verb == "forward" else direction(shape, x.dtype, seed)
        found[verb] = bounded_errors(op, verb, x, along, backend)
    return found


def check(backend, geometry, reduction, dtype, kind, seed, **options):
    lengths, regions = geometry
    op, x = pool(regions, reduction), values.filled(kind, (1, *lengths), dtype, seed)
    found = ratios(op, x, backend, seed, **options)
    assert all(r <= 1 for r in found.values()), (op, x, found)


# -- the bounds themselves, by hand --


def test_gamma_and_counts_by_hand():
    assert gamma(1, 0.25) == pytest.approx(1 / 3)
    op = ln.AvgPool((3,), stride=2, padding=1)
    assert cell_counts(op, (5,), counted=True).tolist() == [3, 3, 3]
    assert cell_counts(op, (5,), counted=False).tolist() == [2, 3, 2]
    assert reader_counts(op, (5,)).tolist() == [1, 2, 1, 2, 1]


def test_bound_of_a_mean_by_hand():
    u = 2.0**-24
    op = ln.AvgPool((2,))
    x = np.array([1.0, -3.0], np.float32)
    assert bound(op, "forward", x)[0] == pytest.approx(2 * u / (1 - 2 * u) * 2, rel=1e-5)
    half = bound(op, "forward", x.astype(np.float16))[0]
    assert half == pytest.approx(2.0**-11 * 2 + 2.0**-24, rel=1e-3)


def test_a_wrong_last_bit_of_many_is_past_the_bound():
    """The bound is tight enough to see a few units in the last place."""
    op, x = ln.AvgPool((2,)), np.array([1.0, 1.0], np.float32)
    assert bound(op, "forward", x)[0] < 3 * np.spacing(np.float32(1.0))


def test_max_has_no_bound():
    with pytest.raises(ValueError, match="max is exact"):
        bound(ln.MaxPool((2,)), "forward", np.ones(2))


def test_the_specification_keeps_its_own_bounds():
    for dtype in values.FLOATS:
        for seed, geometry in enumerate(geometries.boxes(2, 4)):
            for reduction in (MEANS[seed % 3], SMOOTHS[seed % 3]):
                check("spec", geometry, reduction, dtype, "random", seed)


# -- kernels --


def in_full(first, others):
    """Some dtypes always, the others in the long run: each verb of each is a kernel to compile."""
    return [*first, *(pytest.param(dtype, marks=pytest.mark.full) for dtype in others)]


@pytest.mark.parametrize("dtype", in_full(["float32", "bfloat16"], ["float64", "float16"]))
@pytest.mark.parametrize("reductions", [MEANS, SMOOTHS], ids=["mean", "smooth"])
def test_small_geometries(backend, reductions, dtype):
    picked = [
        *geometries.sampled(geometries.one_axis(), every=150),
        *geometries.sampled(geometries.adaptive(), every=12),
        *geometries.boxes(2, 12),
        *geometries.boxes(3, 4),
        *geometries.boxes(4, 2),
    ]
    for seed, geometry in enumerate(picked):
        kind = FINITE[seed % len(FINITE)]
        check(backend, geometry, reductions[seed % 3], dtype, kind, seed)


@pytest.mark.full
@pytest.mark.parametrize("dtype", values.FLOATS)
@pytest.mark.parametrize("reductions", [MEANS, SMOOTHS], ids=["mean", "smooth"])
def test_every_small_geometry(backend, reductions, dtype):
    everything = [
        *geometries.one_axis(),
        *geometries.adaptive(),
        *geometries.global_(),
        *geometries.boxes(2, 200, seed=1),
        *geometries.boxes(3, 60, seed=1),
        *geometries.boxes(4, 30, seed=1),
    ]
    for seed, geometry in enumerate(everything):
        check(backend, geometry, reductions[seed % 3], dtype, FINITE[seed % 7], seed)


@pytest.mark.parametrize(
    "dtype", in_full(["uint8", "int64"], sorted(set(values.INTEGERS) - {"uint8", "int64"}))
)
def test_integers_give_float64(backend, dtype):
    for seed, geometry in enumerate(geometries.boxes(2, 4)):
        for reduction in (MEANS[seed % 3], SMOOTHS[seed % 3]):
            kind = values.INTEGER_KINDS[seed % 4]
            check(backend, geometry, reduction, dtype, kind, seed)


@pytest.mark.parametrize("n", [2, 5, 8, 15, 16, 17, 31, 33, 64, 70])
def test_lengths_around_vector_widths(backend, n):
    for region in (
        Sliding(2, 2, 0, 1, True),
        Sliding(3, 2, 1),
        Sliding(3, 1, 1),
        Sliding(25, 1, 12),
    ):
        for reduction in (Mean(), SmoothMax(1.5)):
            op, x = pool((region,), reduction), values.filled("random", (2, n), "float32", n)
            found = ratios(op, x, backend)
            assert all(r <= 1 for r in found.values()), (op, found)


@pytest.mark.parametrize("n", [1000, 12544])
@pytest.mark.parametrize("dtype", in_full(["float32"], ["float16"]))
def test_long_windows(backend, n, dtype):
    """No running sum: the bound holds where large cells leave the window and small ones stay."""
    x = values.filled("random", (n,), dtype)
    x[: n // 2] *= dtype_named(dtype).type(1000)
    for region in (Global(), Adaptive(7), Sliding(n // 2, n // 8)):
        for reduction in (Mean(), SmoothMax(0.5)):
            assert bounded_errors(pool((region,), reduction), "forward", x, None, backend) <= 1


def test_no_cancellation_after_a_large_cell(backend):
    """A running sum would carry the error of 2²⁴ into windows that do not hold it."""
    x = np.ones(200, np.float32)
    x[3] = 2.0**30
    for k in (2, 5, 9, 25, 65):
        y = run(ln.AvgPool((k,), stride=1), "forward", x, None, backend)
        assert (y[4:] == 1).all(), k


@pytest.mark.parametrize(
    "workload",
    [w for w in WORKLOADS if "mean" in w.name or w.name.startswith("smooth")],
    ids=lambda w: w.name,
)
def test_small_twins_of_the_workloads(backend, workload):
    twin = workload.twin
    found = ratios(twin.op, twin.array(), backend)
    assert all(r <= 1 for r in found.values()), found


# -- the far ends of smooth max --


@pytest.mark.parametrize("dtype", in_full(["float32"], ["float64"]))
@pytest.mark.parametrize("beta", [1e-30, 1e-3, 0.1, 1.0, 88.0, 1e4, 1e30])
def test_smooth_max_at_every_beta(backend, dtype, beta):
    for sign in (1, -1):
        for kind in ("random", "negative", "huge", "denormal"):
            for include in (True, False):
                op = ln.SmoothMaxPool((3,), sign * beta, 2, 1, count_include_pad=include)
                x = values.filled(kind, (2, 9), dtype)
                found = ratios(op, x, backend)
                assert all(r <= 1 for r in found.values()), (op, x, found)


@pytest.mark.parametrize("beta", [1e-45, 1e-40, 1e-38, 3e38])
def test_smooth_max_of_one_cell_is_that_cell(backend, beta):
    """log 1 is zero, so even a beta whose reciprocal overflows leaves the cell as it is."""
    x = values.filled("huge", (40,), "float32")
    y = run(ln.SmoothMaxPool((1,), beta), "forward", x, None, backend)
    assert y.tobytes() == x.tobytes()


# -- NaN and infinities: the same kind of result as the specification's --


@pytest.mark.parametrize("kind", ["nans", "infinities"])
@pytest.mark.parametrize("dtype", in_full(["float32"], ["float16", "float64"]))
def test_nan_and_infinity_travel_as_in_the_specification(backend, kind, dtype):
    for seed, (lengths, regions) in enumerate(geometries.boxes(2, 12, seed=5)):
        x = values.filled(kind, (2, *lengths), dtype, seed)
        for reduction in (*MEANS, *SMOOTHS):
            op = pool(regions, reduction)
            for verb in VERBS:
                shape = op.out_shape(x.shape) if verb == "vjp" else x.shape
                along = None if verb == "forward" else direction(shape, x.dtype, seed)
                actual = run(op, verb, x, along, backend).astype(np.float64)
                expected = run(op, verb, x, along, "spec").astype(np.float64)
                tolerance = 2.0**-6 if dtype == "float16" else 2.0**-16
                np.testing.assert_allclose(
                    actual, expected, tolerance, tolerance, err_msg=f"{verb} of {op!r} on {x!r}"
                )


@pytest.mark.parametrize(
    ("verb", "beta", "dtype"),
    every(
        5, list(product(["forward", "jvp", "vjp"], [0.8, -3.0], ["float32", "float16", "float64"]))
    ),
)
def test_an_infinite_cell_changes_no_bit_of_windows_that_do_not_read_it(dtype, beta, verb):
    """Such an item goes to another kernel: it must compute the same."""
    rng = np.random.default_rng(1)
    op = ln.SmoothMaxPool((3, 3), beta, 2, 1)
    x = (20 * rng.standard_normal((1, 30, 40))).astype(dtype)
    with_infinity = x.copy()
    with_infinity[0, -1, -1] = np.inf
    shape = x.shape if verb == "jvp" else op.out_shape(x.shape)
    along = rng.standard_normal(shape).astype(dtype) if verb != "forward" else None
    plain, other = (np.asarray(run(op, verb, a, along)).reshape(-1) for a in (x, with_infinity))
    far = plain.size * 3 // 4  # the last rows may read the infinite cell
    assert not differing_bits(plain[:far], other[:far])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("verb", ["forward", "vjp"])
def test_columns_of_long_rows_of_halves_are_rounded_once(backend, verb, dtype):
    # Long rows are added up in pieces; columns that do not meet have the bits that they have alone.
    op, x = ln.AvgPool((6, 1), stride=1), values.filled("random", (12, 9000), dtype)
    along = direction(op.out_shape(x.shape), x.dtype) if verb == "vjp" else None
    whole = run(op, verb, x, along, backend)
    for first in range(0, 9000, 500):
        some = (slice(None), slice(first, first + 500))
        alone = run(op, verb, x[some], None if along is None else along[some], backend)
        assert not differing_bits(whole[some], alone), first
