"""Windows that the edge cuts short because they are longer than the padded input: `ceil_mode` keeps the only one.

`LUNETTE_CUT_SEED` and `LUNETTE_CUT_CASES` draw other products, and more of them.
"""

import os
from random import Random

import numpy as np
import pytest

import lunette as ln
from cases import geometries, values
from cases.agreement import TIES, Specification, bounded_errors, direction, max_disagreements, pool
from lunette import offsets, spec
from lunette.reductions import Max, Mean, SmoothMax
from lunette.regions import Adaptive, Global, Sliding

SEED = int(os.environ.get("LUNETTE_CUT_SEED", "0"))
CASES = int(os.environ.get("LUNETTE_CUT_CASES", "24"))

ONE_AXIS = [
    ((n,), (region,))
    for (n,), (region,) in geometries.one_axis()
    if isinstance(region.padding, tuple) and region.extent > n + sum(region.padding)
]
REDUCTIONS = (
    Mean(),
    Mean(count_include_pad=False),
    Mean(divisor_override=3),
    SmoothMax(0.7),
    SmoothMax(-3.0, count_include_pad=False),
)


def cut_axis(random):
    """A short axis whose only window is longer than it, and than its padding too."""
    kernel, dilation = random.choice([2, 3, 5, 9, 17, 30]), random.choice([1, 1, 2])
    extent = dilation * (kernel - 1) + 1
    padded = random.randint(1, extent - 1)
    before = random.choice([0, 0, random.randint(0, padded - 1)])
    after = random.choice([0, 0, random.randint(0, padded - before - 1)])
    stride = extent - padded + random.choice([1, 1, 3, kernel])
    return padded - before - after, Sliding(kernel, stride, (before, after), dilation, True)


def other_axis(random):
    """Any axis beside it, sometimes a long one."""
    n = random.choice([1, 3, 8, 33, 70])
    region = random.choice([Sliding(3, 2, 1), Sliding(2, 2, 0, 1, True), Sliding(1), Global()])
    return n, Adaptive(random.randint(1, n + 1)) if random.random() < 0.2 else region


def products(seed, count):
    """Lengths, regions and channels of cases with one cut axis at least."""
    random = Random(seed)
    for _ in range(count):
        axes = [cut_axis(random)]
        axes += [random.choice([cut_axis, other_axis])(random) for _ in range(random.randint(0, 2))]
        random.shuffle(axes)
        if len(axes) == 3:  # the specification walks every cell
            axes = [(min(n, 8), region) for n, region in axes]
            axes = [(n, region if fits(region, n) else Global()) for n, region in axes]
        lengths, regions = zip(*axes, strict=True)
        yield lengths, regions, random.choice([1, 3, 8, 17])


def fits(region, n):
    try:
        return region.out_length(n)
    except ValueError:
        return 0


def test_max_along_one_axis(backend):
    assert len(ONE_AXIS) > 200
    for seed, (lengths, regions) in enumerate(ONE_AXIS[SEED % 2 :: 2]):
        kinds = values.kinds_of("float32")
        x = np.stack([values.filled(kind, lengths, "float32", seed % 5) for kind in kinds])
        found = max_disagreements(
            regions, x, backend=backend, seed=seed, ties=(TIES[seed % 3],), reference=Specification
        )
        assert not found


def test_mean_and_smooth_max_along_one_axis(backend):
    for seed, (lengths, regions) in enumerate(ONE_AXIS[SEED % 3 :: 3]):
        check_bounds(
            backend, regions, values.filled("random", (2, *lengths), "float32", seed), seed
        )


def check_bounds(backend, regions, x, seed):
    op = pool(regions, REDUCTIONS[seed % len(REDUCTIONS)])
    for verb in ("forward", "jvp", "vjp"):
        shape = op.out_shape(x.shape) if verb == "vjp" else x.shape
        along = None if verb == "forward" else direction(shape, x.dtype, seed)
        assert bounded_errors(op, verb, x, along, backend) <= 1, (op, x.shape, verb)


def check_product(backend, seed, lengths, regions, channels, dtype="float32"):
    shape = (2, channels, *lengths)
    x = values.filled("ties" if seed % 2 else "nans", shape, dtype, seed)
    if seed % 3 == 0:
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)  # channels last
    found = max_disagreements(
        regions, x, backend=backend, seed=seed, ties=(TIES[seed % 3],), reference=Specification
    )
    assert not found
    op = pool(regions, Max("first"))
    if np.prod([r.boxes(n)[2] for r, n in zip(regions, lengths, strict=True)]) <= offsets.NOWHERE:
        value, kept = offsets.forward_with_offsets(op, x)
        grad = values.filled("random", value.shape, dtype, seed)
        got = offsets.vjp_from_offsets(op, kept, grad, x.shape)
        np.testing.assert_array_equal(got, spec.vjp(op, x, grad))
    few = values.filled("random", (1, min(channels, 2), *lengths), dtype, seed)
    check_bounds(backend, regions, few, seed)


def test_products(backend):
    for seed, (lengths, regions, channels) in enumerate(products(SEED, CASES)):
        check_product(backend, seed, lengths, regions, channels)


@pytest.mark.full
@pytest.mark.parametrize("dtype", values.FLOATS)
def test_many_products(backend, dtype):
    for seed, (lengths, regions, channels) in enumerate(products(SEED + 1, 8 * CASES)):
        check_product(backend, seed, lengths, regions, channels, dtype)


def test_a_part_of_a_cut_window_is_the_window():
    for (n,), (region,) in ONE_AXIS:
        part = region.part(n, 0, 1)
        lo, hi = part.slab_range
        assert part.out_length(hi - lo) == 1
        whole, piece = region.window(n, 0), part.window(hi - lo, 0)
        assert [p + lo for p in piece.positions] == list(whole.positions)
        assert piece.counted == whole.counted
        assert list(region.readers(n, 0, n)) == [0] * bool(whole.real)


def test_an_empty_batch():
    op = ln.MaxPool((3, 3), 2, ceil_mode=True)
    assert op(np.zeros((0, 2, 2))).shape == (0, 1, 1)
