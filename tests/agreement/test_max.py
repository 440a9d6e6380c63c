"""Max, bit for bit: values, indices, jvp and vjp under the three tie rules."""

from functools import lru_cache

import numpy as np
import pytest

from cases import geometries, values
from cases.agreement import TIES, Specification, max_disagreements, run
from cases.directed_windows import LARGE, LARGE_APART, PLANES
from cases.workloads import WORKLOADS, dtype_named
from lunette.regions import Adaptive, Global, Sliding


@lru_cache(maxsize=256)
def batch_of_kinds(lengths, dtype, seed):
    """One row of the batch for each kind of value that the dtype has."""
    kinds = values.kinds_of(dtype)
    return np.stack([values.filled(kind, lengths, dtype, seed) for kind in kinds])


def check(backend, geometry, dtype, seed, **options):
    lengths, regions = geometry
    x = batch_of_kinds(lengths, dtype, seed % 5)
    assert not max_disagreements(regions, x, backend=backend, seed=seed, **options)


# -- the specification itself, on a sample --


def in_full(first, others):
    """Some dtypes always, the others in the long run: each verb of each is a kernel to compile."""
    return [*first, *(pytest.param(dtype, marks=pytest.mark.full) for dtype in others)]


@pytest.mark.parametrize("dtype", in_full(["float32"], values.FLOATS[1:]))
def test_specification(backend, dtype):
    picked = [
        *geometries.sampled(geometries.one_axis(), every=600),
        *geometries.boxes(2, 3),
        *geometries.boxes(3, 1),
    ]
    for seed, geometry in enumerate(picked):
        check(backend, geometry, dtype, seed, reference=Specification)


# -- every small geometry --


def test_small_geometries_along_one_axis(backend):
    for seed, geometry in enumerate(geometries.sampled(geometries.one_axis(), every=2)):
        # The other verbs and the tie rules take turns; the long sweep has all of them for each.
        verbs = ("forward", ("forward_with_indices", "jvp", "vjp")[seed % 3])
        check(backend, geometry, "float32", seed, verbs=verbs, ties=(TIES[seed // 3 % 3],))


SOME_DTYPES = in_full(["float64", "bfloat16", "int8"], ["uint64"])
"""Each way a cell is held: wider, half, signed, unsigned. The long sweeps have every dtype; here each would compile kernels
of its own, which takes longer than the test."""


@pytest.mark.parametrize("dtype", SOME_DTYPES)
def test_small_geometries_along_one_axis_for_other_dtypes(backend, dtype):
    verbs = ("forward", "vjp") if dtype in values.FLOATS else ("forward",)
    for seed, geometry in enumerate(geometries.sampled(geometries.one_axis(), every=120)):
        check(backend, geometry, dtype, seed, verbs=verbs, ties=("first",))


@pytest.mark.full
@pytest.mark.parametrize("dtype", values.DTYPES)
def test_every_small_geometry_for_every_dtype(backend, dtype):
    for seed, geometry in enumerate(geometries.one_axis()):
        check(backend, geometry, dtype, seed)


@pytest.mark.parametrize("ndim", [2, 3, 4])
def test_products_of_geometries(backend, ndim):
    for seed, geometry in enumerate(geometries.boxes(ndim, {2: 120, 3: 50, 4: 25}[ndim])):
        check(backend, geometry, "float32", seed)


@pytest.mark.full
@pytest.mark.parametrize("ndim", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", values.DTYPES)
def test_many_products_of_geometries(backend, ndim, dtype):
    for seed, geometry in enumerate(geometries.boxes(ndim, 1200 // ndim**2, seed=1)):
        check(backend, geometry, dtype, seed)


def test_every_small_adaptive_and_global_region(backend):
    for seed, geometry in enumerate([*geometries.adaptive(), *geometries.global_()]):
        check(backend, geometry, "float32", seed)


def test_no_batch_axis_and_many(backend):
    region = Sliding(3, 2, (1, 2))
    for shape in [(11,), (1, 11), (2, 1, 3, 11), (2, 1, 1, 2, 11)]:
        x = values.filled("nans", shape, "float32")
        assert not max_disagreements((region,), x, backend=backend)


# -- special values at every position and length --

SWEPT = (
    ("k2s2", Sliding(2, 2, 0, 1, True)),
    ("k3s1p1", Sliding(3, 1, 1)),
    ("k3s2p1", Sliding(3, 2, 1)),
    ("k3s3d2p2", Sliding(3, 3, (2, 1), 2, True)),
    ("k9s1p4", Sliding(9, 1, 4)),
    ("k33s1p16", Sliding(33, 1, 16)),
    ("adaptive", Adaptive(5)),
    ("global", Global()),
)
# Lengths around the widths of vector registers; the long sweep takes them all.
AROUND_VECTORS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 70)


def lengths_of(region, lengths):
    """Those lengths that hold at least one window."""
    return [n for n in lengths if not isinstance(region, Sliding) or fits(region, n)]


def fits(region, n):
    return region.extent <= n + sum(region.margins(n))


def swept_rows(n, dtype):
    """Every special value at every position, before a background of ties."""
    background = values.filled("ties", (n,), dtype, seed=n)
    rows = [values.at_every_position(background, special) for special in values.specials_of(dtype)]
    if dtype in values.FLOATS:
        # A special value that is the largest of its window: nothing above it anywhere.
        low = np.full(n, -np.inf, dtype_named(dtype))
        rows += [values.at_every_position(low, special) for special in (np.nan, -0.0, -np.inf)]
        zeros = np.zeros(n, dtype_named(dtype))
        rows += [values.at_every_position(zeros, -0.0), values.at_every_position(-zeros, 0.0)]
    return np.concatenate(rows)


@pytest.mark.parametrize("region", [r for _, r in SWEPT], ids=[name for name, _ in SWEPT])
def test_forward_at_every_length_and_position(backend, region):
    for n in lengths_of(region, range(1, 71)):
        x = swept_rows(n, "float32")
        verbs = ("forward", "forward_with_indices")
        assert not max_disagreements((region,), x, backend=backend, verbs=verbs), n


@pytest.mark.parametrize("region", [r for _, r in SWEPT], ids=[name for name, _ in SWEPT])
def test_derivatives_around_vector_widths(backend, region):
    for n in lengths_of(region, AROUND_VECTORS):
        x = swept_rows(n, "float32")[:: max(1, n // 8)]
        assert not max_disagreements((region,), x, backend=backend, verbs=("jvp", "vjp")), n


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_rows_of_several_vectors(backend, stride, dtype):
    # Kernels take two or four vectors at a time where they can, and one where they must.
    for kernel, padding in ((2, 0), (3, 1)):
        along = Sliding(kernel=kernel, stride=stride, padding=padding)
        for length in (*range(62, 70), 95, 96, 97, *range(126, 132), 150, 260):
            for kind in ("ties", "nans"):
                x = values.filled(kind, (2, 4, length), dtype, length)
                found = max_disagreements((along, along), x, backend=backend, ties=("first",))
                assert not found


@pytest.mark.parametrize("dtype", SOME_DTYPES)
def test_other_dtypes_around_vector_widths(backend, dtype):
    for n in (1, 2, 3, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64, 65, 70):
        x = swept_rows(n, dtype)
        for region in (Sliding(3, 1, 1), Sliding(3, 2, 1)):
            assert not max_disagreements((region,), x, backend=backend, verbs=("forward",)), n


@pytest.mark.full
@pytest.mark.parametrize("dtype", values.DTYPES)
@pytest.mark.parametrize("region", [r for _, r in SWEPT], ids=[name for name, _ in SWEPT])
def test_every_verb_at_every_length_and_position(backend, region, dtype):
    for n in lengths_of(region, range(1, 71)):
        x = swept_rows(n, dtype)
        assert not max_disagreements((region,), x, backend=backend), n


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 9])
def test_special_values_down_the_other_axis(backend, rows):
    """The axis before the last is reduced row by row: its specials meet other code."""
    region = Sliding(3, 2, 1), Sliding(3, 2, 1)
    for columns in (1, 5, 16, 19):
        background = values.filled("ties", (rows, columns), "float32", seed=columns)
        for special in values.specials_of("float32"):
            x = values.at_every_position(background, special)
            assert not max_disagreements(region, x, backend=backend, ties=("first", "split"))


@pytest.mark.parametrize("dtype", in_full(["float32", "int8"], ["uint16", "bfloat16", "float64"]))
def test_winners_of_large_windows(backend, dtype):
    verbs = ("forward_with_indices", *("jvp", "vjp") * (dtype in values.FLOATS))
    for seed, geometry in enumerate((*LARGE, *LARGE_APART)):
        check(backend, geometry, dtype, seed, verbs=verbs, ties=("first",))


@pytest.mark.parametrize(
    "dtype", in_full(["float32", "float16", "int8"], ["uint16", "bool", "float64"])
)
def test_windows_of_several_planes(backend, dtype):
    for seed, geometry in enumerate(PLANES):
        check(backend, geometry, dtype, seed, verbs=("forward",))


# -- workloads --


@pytest.mark.parametrize(
    "workload",
    [w for w in WORKLOADS if w.name.startswith(("max", "adaptive max", "global max"))],
    ids=lambda w: w.name,
)
def test_small_twins_of_the_workloads(backend, workload):
    twin = workload.twin
    verbs = ("forward", "forward_with_indices", "jvp", "vjp")
    verbs = verbs if twin.dtype == "float32" else ("forward",)
    assert not max_disagreements(twin.op.regions, twin.array(), backend=backend, verbs=verbs)


@pytest.mark.parametrize("ties", ["first", "all", "split"])
def test_infinite_and_nan_gradients_reach_their_cells(backend, ties):
    """A gradient of inf or NaN goes to the winners alone; 0·inf must not reach the others."""
    from cases import oracle
    from cases.agreement import differing_bits, pool
    from lunette.reductions import Max

    op = pool((Sliding(3, 2, 1), Sliding(3, 1, 1)), Max(ties))
    x = values.filled("ties", (2, 6, 20), "float32")
    for special in (np.inf, -np.inf, np.nan):
        grad = np.ones(op.out_shape(x.shape), np.float32)
        grad[:, 1, 4] = special
        dx = np.ones_like(x)
        dx[:, 2, 7] = special
        assert not differing_bits(run(op, "vjp", x, grad, backend), oracle.vjp(op, x, grad), True)
        assert not differing_bits(run(op, "jvp", x, dx, backend), oracle.jvp(op, x, dx), True)


@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_windows_that_reach_far_past_a_short_first_axis(backend, dilation):
    # One item, so tiles of one output each: they touch more of the axis than they read.
    along = Sliding(kernel=3, stride=1, padding=dilation, dilation=dilation)
    x = values.filled("nans", (1, 2, 40, 70), "float64", 0)
    assert not max_disagreements((along, along, along), x, backend=backend, ties=("first",))


@pytest.mark.parametrize("kernel", [3, 5])
def test_neighbours_that_padding_cuts_on_either_side(backend, kernel):
    # They have as many rows, but not the same ones of their box; many items, so that they share a tile.
    along = Sliding(kernel=kernel, stride=2 if kernel == 3 else 1, padding=kernel // 2)
    x = values.filled("ties", (40, 3, 20), "float32", 0)
    assert not max_disagreements((along, along), x, backend=backend, ties=("first",))
