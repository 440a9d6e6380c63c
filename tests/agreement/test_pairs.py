"""Smooth max of large windows: within its bounds, the same bits in any layout, and right where cells are not finite."""

import warnings

import numpy as np
import pytest

import lunette as ln
from cases import values
from cases.agreement import differing_bits, direction, run
from cases.large_smooth import LARGE_SMOOTH, in_any_order, smooth_bounds
from lunette.kernels.cpu.select.lse_pairs import lse_by_pairs
from lunette.regions import Global, Sliding

FULL = pytest.mark.full


@pytest.mark.parametrize(
    "dtype", ["float32", pytest.param("float64", marks=FULL), pytest.param("float16", marks=FULL)]
)
def test_errors_are_within_their_bounds(dtype):
    assert not smooth_bounds(dtype)


@pytest.mark.parametrize(
    "dtype", ["float32", *(pytest.param(d, marks=FULL) for d in ("float64", "float16", "bfloat16"))]
)
def test_bits_depend_on_the_window_alone(dtype):
    assert not in_any_order(dtype)


@pytest.mark.parametrize("length", [700, 3000])
def test_long_lines_are_cut_and_windows_stay_as_they_are(length):
    """Windows that share runs, that are too long for it, and that lie apart, from the same halves."""
    x = values.filled("random", (3, length), "float32")
    for size in (65, 100, 300, 600):
        near = ln.SmoothMaxPool((size,), 2.0, stride=1)(x)
        for stride in (7, size):
            apart = ln.SmoothMaxPool((size,), 2.0, stride=stride)(x)
            assert not differing_bits(apart, near[:, ::stride]), (size, stride)


def test_tiles_of_tall_images_agree(monkeypatch):
    from lunette.kernels.cpu.micro import lse_pairs_scratch
    from lunette.kernels.cpu.select import argmax, vjp
    from lunette.kernels.cpu.select import forward as choice

    op, x = (
        ln.SmoothMaxPool((9, 9), 2.0, stride=1, padding=4),
        values.filled("random", (2, 70, 33), "float32"),
    )
    calls = choice.forward_call, argmax.tangent_call, vjp.gradient_call
    results = []
    for space, enough in ((1 << 14, 1), (1 << 8, 64)):
        monkeypatch.setattr(lse_pairs_scratch, "SPACE", space)
        monkeypatch.setattr(lse_pairs_scratch, "ENOUGH", enough)
        for call in calls:
            call.cache_clear()
        along = direction(op.out_shape(x.shape), x.dtype)
        results.append([run(op, "forward", x), run(op, "jvp", x, x), run(op, "vjp", x, along)])
    for call in calls:
        call.cache_clear()
    for a, b in zip(*results, strict=True):
        assert not differing_bits(a, b)


@pytest.mark.parametrize("beta", [2.0, -0.5])
@pytest.mark.parametrize("verb", ["forward", "jvp", "vjp"])
def test_cells_that_are_not_finite_are_as_in_the_specification(beta, verb):
    op = ln.SmoothMaxPool((9, 8), beta, stride=(2, 3), padding=(2, 1))
    for kind in ("nans", "infinities"):
        x = values.filled(kind, (3, 13, 17), "float32")
        along = None
        if verb != "forward":
            along = direction(x.shape if verb == "jvp" else op.out_shape(x.shape), x.dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = run(op, verb, x, along, "spec")
        result = run(op, verb, x, along)
        assert np.array_equal(np.isnan(result), np.isnan(expected))
        finite = np.isfinite(expected)
        assert np.array_equal(result[~finite], expected[~finite], equal_nan=True)
        assert np.allclose(result[finite], expected[finite], rtol=1e-4, atol=1e-4)


def test_which_windows_go_in_pairs():
    assert all(
        lse_by_pairs(ln.Pool(regions, ln.SmoothMax(1.0)), (2, *lengths), "values")
        for lengths, regions in LARGE_SMOOTH
    )
    small, dilated = (Sliding(3, 2, 1), Sliding(3, 2, 1)), (Sliding(9, 1, 0, 2), Sliding(9, 1))
    for regions, verbs in ((small, ["tangents"]), (dilated, [])):
        op = ln.Pool(regions, ln.SmoothMax(1.0))
        served = [
            v for v in ("values", "tangents", "gradients") if lse_by_pairs(op, (2, 20, 20), v)
        ]
        assert served == verbs
    assert not lse_by_pairs(ln.AvgPool((9, 9)), (2, 20, 20), "values")


@pytest.mark.parametrize(
    ("op", "shape", "verbs"),
    [
        (ln.SmoothMaxPool((65, 65), 1.0, stride=1), (1, 900, 900), "values tangents gradients"),
        (ln.SmoothMaxPool((1001, 65), 1.0, stride=1), (1, 2000, 2000), ""),
        (
            ln.Pool((Global(), Global()), ln.SmoothMax(1.0)),
            (1, 500, 130),
            "values tangents gradients",
        ),
        (
            ln.Pool((Global(), Global()), ln.SmoothMax(1.0)),
            (1, 30, 2000),
            "values tangents gradients",
        ),
        (ln.Pool((Global(),), ln.SmoothMax(1.0)), (1, 200_000), ""),
        (ln.SmoothMaxPool((60_000,), 1.0, stride=1), (1, 900_000), "values tangents gradients"),
    ],
    ids=repr,
)
def test_scratch_memory_is_bounded(op, shape, verbs):
    """Some 50 MB to a thread at the most; what needs more goes window by window."""
    from lunette.kernels.cpu.select.lse_pairs import pairs_call

    strides = np.empty(shape, "f4").strides
    grad = np.lib.stride_tricks.as_strided(
        np.zeros(1, "f4"), op.out_shape(shape), (0,) * len(shape)
    )
    served = [v for v in ("values", "tangents", "gradients") if lse_by_pairs(op, shape, v)]
    assert served == verbs.split()
    for verb, name in (("values", "forward"), ("tangents", "jvp"), ("gradients", "vjp")):
        if verb in served:
            other = grad.strides if verb == "gradients" else strides
            assert pairs_call(op, name, shape, strides, other, np.dtype("f4")).scratch < 70 << 20
