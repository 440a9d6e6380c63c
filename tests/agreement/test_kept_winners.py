"""Offsets of every geometry: what `forward_with_offsets` keeps, and the derivatives that come of it; and offsets that are wrong."""

import os
from itertools import product

import numpy as np
import pytest

import lunette as ln
from cases import kept_winners, values
from lunette import offsets, spec
from lunette.reductions import Max
from lunette.regions import Adaptive, Sliding

SEED = int(os.environ.get("LUNETTE_FUZZ_SEED", "0"))
COUNT = int(os.environ.get("LUNETTE_FUZZ_CASES", "0"))
KINDS = ("ties", "nans", "infinities", "zeros", "denormal", "random")


def check(geometries, dtype, batches):
    for number, geometry in enumerate(geometries):
        for batch in batches:
            kind = KINDS[number % len(KINDS)]
            assert not kept_winners.disagreements(geometry, batch, dtype, kind, number)


def test_windows_whose_stride_passes_the_axis():
    for kernel, padding, shape in ((5, 2, (64, 3)), (2, 1, (16, 1)), (3, 1, (16, 2))):
        geometry = shape[1:], (Sliding(kernel, 100, (padding, padding)),)
        assert not kept_winners.disagreements(geometry, shape[:1], "float32", "random")


def test_one_axis():
    every = list(kept_winners.one_axis())
    check(every[SEED % 500 :: 500], "float32", kept_winners.BATCHES)


@pytest.mark.full
@pytest.mark.parametrize("batch", kept_winners.BATCHES, ids=str)
def test_every_geometry_of_one_axis(batch):
    check(kept_winners.one_axis(), "float32", (batch,))


@pytest.mark.full
@pytest.mark.parametrize("dtype", values.FLOATS)
def test_geometries_of_several_axes(dtype):
    check(kept_winners.several_axes(COUNT or 300, SEED), dtype, ((2,), (16,)))


@pytest.mark.parametrize(
    "sizes",
    [
        {"stride": 2**70, "padding": 1},
        {"stride": 2**62, "padding": 2**62, "dilation": 2**62},
        {"kernel": (1,), "dilation": 2**70},
    ],
)
def test_sizes_past_any_integer_of_a_kernel(sizes):
    op, x = ln.MaxPool(**{"kernel": (2,), **sizes}), np.arange(3, dtype=np.float32)[None]
    value, found = offsets.forward_with_offsets(op, x)
    _, indices = spec.forward_with_indices(op, x)
    np.testing.assert_array_equal(offsets.indices_of(op, x.shape, found), indices)
    gradient = offsets.vjp_from_offsets(op, found, value + 1, x.shape)
    np.testing.assert_array_equal(gradient, op.vjp(x, value + 1))
    np.testing.assert_array_equal(offsets.jvp_from_offsets(op, found, x), op.jvp(x, x))


def test_a_nan_without_batch_axes():
    x = np.zeros((4, 4), np.float32)
    x[1, 1] = np.nan
    value, found = offsets.forward_with_offsets(ln.MaxPool((2, 2)), x)
    assert np.isnan(value[0, 0]) and found.tolist() == [[3, 0], [0, 0]]


# -- offsets that are wrong --


REGIONS = (
    (Sliding(2, 1, (1, 2)), Sliding(3, 2, (1, 1), 2)),  # taps on padding
    (Adaptive(2), Adaptive(3)),  # bins of two lengths
    (Sliding(2, 4, (3, 3)), Sliding(2)),  # windows of padding alone
    (Sliding(5, 100, (2, 2)),),
)


@pytest.mark.parametrize("regions", REGIONS, ids=repr)
@pytest.mark.parametrize("items", [1, 16])
def test_an_offset_is_a_cell_of_its_window_or_refused(regions, items):
    op = ln.Pool(regions, Max("first"))
    x = np.zeros((items, 3, 5)[: 1 + op.rank], np.float32)
    value, found = offsets.forward_with_offsets(op, x)
    lengths = x.shape[1:]
    boxes = [region.boxes(n) for region, n in zip(regions, lengths, strict=True)]
    dx = np.arange(1.0, 1.0 + x.size, dtype=np.float32).reshape(x.shape)
    for place in np.ndindex(value.shape[1:]):
        windows = [r.window(n, i) for r, n, i in zip(regions, lengths, place, strict=True)]
        cells = set()
        for position in product(*(window.positions for window in windows)):
            code = 0
            for p, i, (starts, step, box) in zip(position, place, boxes, strict=True):
                code = code * box + (p - int(starts[i])) // step
            cells.add(code)
        for code in (*range(20), 254, 255):
            given = found.copy()
            given[(items - 1, *place)] = code
            if code in (cells or {offsets.NOWHERE}):
                offsets.vjp_from_offsets(op, given, value, x.shape)
                offsets.jvp_from_offsets(op, given, dx)
                continue
            named = rf"offsets: {code} at \({items - 1}, {place[0]}.*is no cell of its window \({place[0]}"
            for refused in (
                lambda given=given: offsets.vjp_from_offsets(op, given, value, x.shape),
                lambda given=given: offsets.jvp_from_offsets(op, given, dx),
                lambda given=given: offsets.indices_of(op, x.shape, given),
            ):
                with pytest.raises(ValueError, match=named):
                    refused()


def test_a_window_that_has_cells_is_not_nowhere():
    op, x = ln.MaxPool((2, 2)), np.ones((1, 4, 4), np.float32)
    value, found = offsets.forward_with_offsets(op, x)
    found[0, 1, 0] = offsets.NOWHERE
    with pytest.raises(
        ValueError,
        match=r"255 at \(0, 1, 0\) .* expected a tap that is a cell: 0…1 of 2 × 0…1 of 2",
    ):
        offsets.vjp_from_offsets(op, found, value, x.shape)
    padded = ln.MaxPool((2,), stride=4, padding=3)
    value, found = offsets.forward_with_offsets(padded, np.ones(4, np.float32))
    assert found[0] == offsets.NOWHERE and spec.forward_with_indices(padded, np.ones(4))[1][0] == -1
    found[0] = 0
    with pytest.raises(ValueError, match=r"0 at \(0,\) .* expected 255, for it has no cell"):
        offsets.jvp_from_offsets(padded, found, np.ones(4, np.float32))
