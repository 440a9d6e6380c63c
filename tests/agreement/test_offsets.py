"""Offsets: what a kernel keeps of a max's winners, and the derivatives that come from it."""

import numpy as np
import pytest

import lunette as ln
from cases import geometries, values
from lunette import offsets, spec
from lunette.reductions import Max
from lunette.regions import Adaptive, Global, Sliding

SMALL = [
    *geometries.sampled(geometries.one_axis(), every=40),
    *geometries.boxes(2, 40),
    *geometries.boxes(3, 15),
]


def bits(x):
    return x.view({1: "u1", 2: "u2", 4: "u4", 8: "u8"}[x.dtype.itemsize])


def by_hand(op, shape, indices):
    """Offsets from the windows themselves, one output after the other."""
    pooled = shape[len(shape) - op.rank :]
    out = np.full(indices.shape, offsets.NOWHERE, np.uint8)
    lengths = [region.out_length(n) for region, n in zip(op.regions, pooled, strict=True)]
    for place in np.ndindex(indices.shape):
        if indices[place] < 0:
            continue
        code = 0
        position = np.unravel_index(indices[place], pooled)
        for region, n, i, p in zip(
            op.regions, pooled, place[len(shape) - op.rank :], position, strict=True
        ):
            if isinstance(region, Sliding):
                box = region.kernel
                tap = (p + region.margins(n)[0] - i * region.stride) // region.dilation
            else:
                windows = [region.window(n, j) for j in range(lengths[op.regions.index(region)])]
                box, tap = max(w.real for w in windows), p - windows[i].start
            code = code * box + tap
        out[place] = code
    return out


def check(op, x, seed=0):
    dtype = x.dtype.name
    value, found = offsets.forward_with_offsets(op, x)
    expected, indices = spec.forward_with_indices(op, x)
    np.testing.assert_array_equal(bits(value), bits(expected))
    np.testing.assert_array_equal(found, by_hand(op, x.shape, indices))
    np.testing.assert_array_equal(offsets.indices_of(op, x.shape, found), indices)
    grad = values.filled("random", value.shape, dtype, seed)
    gradient = offsets.vjp_from_offsets(op, found, grad, x.shape)
    np.testing.assert_array_equal(bits(gradient), bits(spec.vjp(op, x, grad)))
    dx = values.filled("random", x.shape, dtype, seed)
    tangent = offsets.jvp_from_offsets(op, found, dx)
    np.testing.assert_array_equal(bits(tangent), bits(spec.jvp(op, x, dx)))


@pytest.mark.parametrize(
    "dtype",
    [
        *("float32", "bfloat16"),
        *(pytest.param(dtype, marks=pytest.mark.full) for dtype in ("float64", "float16")),
    ],
)
def test_small_geometries(dtype):
    kinds = values.kinds_of(dtype)
    for seed, (lengths, regions) in enumerate(SMALL):
        op = ln.Pool(regions, Max("first"))
        x = np.stack([values.filled(kind, lengths, dtype, seed) for kind in kinds])
        try:
            check(op, x, seed)
        except ValueError as error:
            assert "255" in str(error)


def test_regions_of_every_kind():
    for regions in [
        (Adaptive(3), Sliding(kernel=3, stride=2, padding=1)),
        (Sliding(kernel=2, stride=1, padding=0), Adaptive(4)),
        (Global(), Sliding(kernel=3, stride=1, padding=1)),
    ]:
        for kind in ("ties", "nans", "infinities"):
            check(ln.Pool(regions, Max("first")), values.filled(kind, (2, 7, 10), "float32", 1))
    check(
        ln.Pool((Global(), Global()), Max("first")), values.filled("ties", (2, 5, 4), "float32", 1)
    )


@pytest.mark.parametrize("layout", ["transposed", "reversed", "unaligned"])
def test_layouts(layout):
    op = ln.MaxPool((3, 3), stride=2, padding=1)
    x = values.filled("ties", (2, 3, 12, 40), "float32", 3)
    if layout == "transposed":
        x = np.swapaxes(np.ascontiguousarray(np.swapaxes(x, 1, 3)), 1, 3)
    elif layout == "reversed":
        x = x[..., ::-1]
    else:
        x = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    value, found = offsets.forward_with_offsets(op, x)
    expected, others = offsets.forward_with_offsets(op, x.copy())
    np.testing.assert_array_equal(bits(value), bits(expected))
    np.testing.assert_array_equal(found, others)
    grad = values.filled("random", value.shape, "float32", 4)
    strided = np.asfortranarray(grad)
    np.testing.assert_array_equal(
        offsets.vjp_from_offsets(op, found, strided, x.shape),
        offsets.vjp_from_offsets(op, found, grad, x.shape),
    )


def test_large_results_go_past_the_caches_and_are_the_same():
    # Rows of whole lines, and rows that are not.
    for columns in (64, 61):
        op = ln.MaxPool((3, 3), stride=2, padding=1)
        x = values.filled("ties", (600, 64, columns), "float32", 5)
        value, found = offsets.forward_with_offsets(op, x)
        grad = values.filled("random", value.shape, "float32", 6)
        gradient = offsets.vjp_from_offsets(op, found, grad, x.shape)
        np.testing.assert_array_equal(bits(gradient), bits(op.vjp(x, grad)))
        for some in (0, 299, 599):
            np.testing.assert_array_equal(gradient[some], spec.vjp(op, x[some], grad[some]))


def test_an_empty_batch():
    op, x = ln.MaxPool((2, 2)), np.zeros((0, 4, 4), np.float32)
    value, found = offsets.forward_with_offsets(op, x)
    assert value.shape == found.shape == (0, 2, 2)
    assert offsets.vjp_from_offsets(op, found, value, x.shape).shape == x.shape
    assert offsets.jvp_from_offsets(op, found, x).shape == (0, 2, 2)


def test_bad_input():
    op, x = ln.MaxPool((2, 2)), np.zeros((1, 4, 4), np.float32)
    value, found = offsets.forward_with_offsets(op, x)
    with pytest.raises(ValueError, match="256 taps; expected at most 255"):
        offsets.forward_with_offsets(ln.MaxPool((16, 16)), np.zeros((16, 16), np.float32))
    for items in (0, 1):  # nothing of that size is allocated first
        with pytest.raises(ValueError, match="this machine has"):
            far = ln.MaxPool((2, 2), stride=1, padding=10**30)
            offsets.forward_with_offsets(far, np.zeros((items, 4, 4), np.float32))
    with pytest.raises(TypeError, match="max"):
        offsets.forward_with_offsets(ln.AvgPool((2, 2)), x)
    with pytest.raises(ValueError, match="ties='first'"):
        offsets.vjp_from_offsets(ln.MaxPool((2, 2), ties="all"), found, value, x.shape)
    with pytest.raises(TypeError, match=r"offsets .*uint8"):
        offsets.vjp_from_offsets(op, found.astype(int), value, x.shape)
    with pytest.raises(ValueError, match=r"offsets have shape \(1, 2, 2\)"):
        offsets.vjp_from_offsets(op, found, np.zeros((1, 3, 3), np.float32), (1, 6, 6))
    with pytest.raises(ValueError, match=r"gradient has shape \(1, 3, 3\)"):
        offsets.vjp_from_offsets(op, found, np.zeros((1, 3, 3), np.float32), x.shape)
    with pytest.raises(TypeError, match="integers have no"):
        offsets.jvp_from_offsets(op, found, np.zeros((1, 4, 4), int))
    with pytest.raises(ValueError, match=r"offsets: 9 at .* is no cell"):
        offsets.jvp_from_offsets(op, np.full_like(found, 9), x)
    with pytest.raises(ValueError, match=r"offsets: 9 at .* is no cell"):
        offsets.vjp_from_offsets(op, np.full_like(found, 9), value + 1, x.shape)
