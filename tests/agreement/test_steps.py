"""Windows that begin every so many cells, bins that do not lie alike, and few small items: the cells and the order they name."""

import numpy as np
import pytest

import lunette as ln
from lunette.kernels.cpu.layout.batch_interleave import BatchInterleave
from lunette.kernels.cpu.select.vjp import gather_call, gradient_call


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(3)


@pytest.mark.parametrize("step", [3, 4, 5, 6, 7, 8])
def test_each_step_reads_the_cells_that_it_names(step, rng):
    # Two vectors of outputs and some more, and a row that ends with its last window.
    x = rng.standard_normal((2, step * 37 + 2)).astype(np.float32)
    pairs = np.stack([x[:, t::step][:, :38] for t in (0, 1)])
    assert (ln.max_pool(x, (2,), stride=step) == pairs.max(0)).all()
    assert (ln.avg_pool(x, (2,), stride=step) == (pairs[0] + pairs[1]) / 2).all()
    _, indices = ln.max_pool(x, (2,), stride=step, return_indices=True)
    assert (indices == np.arange(38) * step + pairs.argmax(0)).all()


@pytest.mark.parametrize(("cells", "bins"), [(37, 1), (61, 2), (100, 3), (23, 7), (9, 13)])
def test_bins_are_added_from_the_first_cell_to_the_last(cells, bins, rng):
    x = rng.standard_normal((3, cells)).astype(np.float32)
    op = ln.AdaptiveAvgPool((bins,))
    edges = [(i * cells // bins, -(-(i + 1) * cells // bins)) for i in range(bins)]
    sums = [np.cumsum(x[:, a:b], 1, np.float32)[:, -1] / np.float32(b - a) for a, b in edges]
    assert (op(x) == np.stack(sums, 1)).all()
    grad = rng.standard_normal((3, bins)).astype(np.float32)
    expected = np.zeros_like(x)
    for i, (a, b) in enumerate(edges):
        expected[:, a:b] += (grad[:, i] / np.float32(b - a))[:, None]
    assert (op.vjp(x, grad) == expected).all()


def test_few_small_items_go_together_also_with_one_window_each(rng):
    x = rng.standard_normal((256, 7, 7)).astype(np.float32)
    op = ln.MaxPool((4, 4))
    grad = rng.standard_normal((256, 1, 1)).astype(np.float32)
    call = gradient_call(op, x.shape, x.strides, grad.strides, x.dtype)
    assert isinstance(call, BatchInterleave)
    assert isinstance(gather_call(op, x.shape, grad.strides, x.dtype), BatchInterleave)
    window = x[:, :4, :4].reshape(256, 16)
    expected = np.zeros_like(x)
    at = window.argmax(1)
    expected[np.arange(256), at // 4, at % 4] = grad[:, 0, 0]
    assert (op.vjp(x, grad) == expected).all()
    y, offsets = ln.offsets.forward_with_offsets(op, x)
    assert (y[:, 0, 0] == window.max(1)).all()
    assert (ln.offsets.vjp_from_offsets(op, offsets, grad, x.shape) == expected).all()


def test_windows_of_one_cell_that_lie_apart_are_a_dense_convolution(rng):
    x = rng.standard_normal((2, 6, 9, 10)).astype(np.float32)
    weight = rng.standard_normal((48, 3, 1, 1)).astype(np.float32)
    apart = ln.Conv((1, 1), stride=(2, 3), groups=2)(x, weight)
    assert (apart == ln.Conv((1, 1), groups=2)(x[..., ::2, ::3].copy(), weight)).all()
