"""Smooth max by shared powers and about pivots: each within its bound, and the window alone decides."""

import numpy as np
import pytest

import lunette as ln
from cases import values
from cases.agreement import bounded_errors, differing_bits, direction, pool, run
from cases.directed import around_the_limit, one_by_one
from cases.directed_windows import PAIRS
from cases.workloads import dtype_named
from lunette.reductions import SmoothMax
from lunette.regions import Sliding

BETAS = (2.5, -0.7, 1e-3)
K3S2 = (Sliding(3, 2, 1), Sliding(3, 2, 1))
VERBS = ("forward", "vjp")


def cases(dtype, shape=(2,)):
    """Ops with cells around the limit of powers, and a direction."""
    for number, (lengths, regions) in enumerate(PAIRS):
        beta = BETAS[number % 3]
        for reduction in (SmoothMax(beta), SmoothMax(-beta, count_include_pad=False)):
            op, x = (
                pool(regions, reduction),
                around_the_limit((*shape, *lengths), beta, dtype, number),
            )
            yield op, x, direction(op.out_shape(x.shape), x.dtype, number)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.full)])
@pytest.mark.parametrize("verb", VERBS)
def test_both_ways_keep_the_bound(backend, dtype, verb):
    for op, x, gy in cases(dtype):
        ratio = bounded_errors(op, verb, x, None if verb == "forward" else gy, backend)
        assert ratio <= 1, (op, ratio)


@pytest.mark.parametrize("scale", [1e-36, 1e-24, 1e24, 1e37])
@pytest.mark.parametrize("cell", [-38.0, 0.0, 38.0])
def test_gradients_of_any_size(backend, scale, cell):
    x = cell + values.filled("random", (6, 40), "float32")
    op = pool(K3S2, SmoothMax(1.0))
    gy = (direction(op.out_shape(x.shape), x.dtype) * scale).astype(np.float32)
    assert bounded_errors(op, "vjp", x, gy, backend) <= 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("verb", VERBS)
def test_windows_side_by_side_have_the_bits_of_windows_one_by_one(dtype, verb):
    """An item with a NaN, and windows that do not lie alike, go one by one."""
    for op, x, gy in cases(dtype_named(dtype)):
        expected = one_by_one(verb, op, x, gy)
        actual = np.asarray(run(op, verb, x, None if verb == "forward" else gy))
        assert not differing_bits(actual, expected), op


@pytest.mark.parametrize("verb", VERBS)
def test_a_far_cell_changes_no_bit_of_windows_that_do_not_read_it(backend, verb):
    op = pool(K3S2, SmoothMax(1.0))
    x = values.filled("random", (1, 40, 50), "float32")
    gy = direction(op.out_shape(x.shape), x.dtype) if verb == "vjp" else None
    far = x.copy()
    far[0, 21, 25] = 100.0
    plain, other = (
        np.asarray(run(op, verb, a, gy, backend)).reshape(a.shape[0], -1) for a in (x, far)
    )
    width, row = (25, 11) if verb == "forward" else (50, 20)
    rows = plain.reshape(-1, width) != other.reshape(-1, width)
    assert rows.any()
    assert not rows[: row - 1].any()
    assert not rows[row + 4 :].any()


@pytest.mark.parametrize("verb", VERBS)
def test_bits_do_not_depend_on_threads_or_layout(backend, verb):
    op = pool(K3S2, SmoothMax(1.5))
    x = around_the_limit((6, 5, 60, 70), 1.5, "float32")
    gy = direction(op.out_shape(x.shape), x.dtype) if verb == "vjp" else None
    before = ln.get_num_threads()
    try:
        ln.set_num_threads(1)
        expected = np.asarray(run(op, verb, x, gy, backend))
        for threads in (2, 8):
            ln.set_num_threads(threads)
            assert not differing_bits(np.asarray(run(op, verb, x, gy, backend)), expected)
    finally:
        ln.set_num_threads(before)
    for name, view in values.layouts(x):
        assert not differing_bits(np.asarray(run(op, verb, view, gy, backend)), expected), name


@pytest.mark.parametrize("beta", [1.0, -3.0, 0.01])
def test_a_window_of_one_cell_is_that_cell(backend, beta):
    x = values.filled("random", (2, 5, 40), "float32")
    for regions in ((Sliding(1, 1), Sliding(1, 2)), (Sliding(2, 2, 1), Sliding(2, 2, 1))):
        op = pool(regions, SmoothMax(beta, count_include_pad=False))
        y = run(op, "forward", x, None, backend)
        assert not differing_bits(y[..., 0, 0], x[..., 0, 0])


def test_a_part_of_the_outputs_has_the_bits_of_the_whole(backend):
    op = pool(K3S2, SmoothMax(0.5))
    x = around_the_limit((2, 12, 64), 0.5, "float32")
    whole = run(op, "forward", x, None, backend)
    for axis, n in ((0, 12), (1, 64)):
        for i in range(whole.shape[1 + axis]):
            part = K3S2[axis].part(n, i, i + 1)
            regions = (*K3S2[:axis], part, *K3S2[axis + 1 :])
            cut = (slice(None), *(slice(None) for _ in range(axis)), slice(*part.slab_range))
            y = run(
                pool(regions, SmoothMax(0.5)),
                "forward",
                np.ascontiguousarray(x[cut]),
                None,
                backend,
            )
            assert not differing_bits(y, whole.take([i], 1 + axis)), (axis, i)


@pytest.mark.parametrize(
    ("dtype", "sizes"), [("float32", range(20, 41)), ("float64", range(64, 301))]
)
def test_a_cell_far_above_the_others_is_the_value(dtype, sizes):
    """The others cannot be seen in the last place, and the value is rounded once."""
    largest = np.array(sizes, dtype)
    for sign in (1, -1):
        x = np.stack([np.zeros_like(largest), sign * largest], axis=-1)
        y = run(ln.SmoothMaxPool((2,), beta=sign * 1.0), "forward", x)
        assert (y[:, 0] == sign * largest).all()
