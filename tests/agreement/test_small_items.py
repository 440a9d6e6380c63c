"""Many small items go side by side, in parts: the same bits as few of them, whatever is in them."""

import numpy as np
import pytest

import lunette as ln
from cases import values
from cases.small_items import small_items
from lunette.kernels.cpu.layout.batch_interleave import BatchInterleave
from lunette.kernels.cpu.select.argmax import indices_call, offsets_call, tangent_call
from lunette.kernels.cpu.select.forward import forward_call
from lunette.kernels.cpu.select.vjp import gather_call, gradient_call


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        *(pytest.param(d, marks=pytest.mark.full) for d in values.DTYPES if d != "float32"),
    ],
)
def test_small_items_have_the_same_bits_together(dtype):
    assert not small_items(dtype)


def calls(op, x):
    """The calls of all verbs, and of offsets."""
    out = np.empty(op.out_shape(x.shape), x.dtype)
    yield forward_call(op, x.shape, x.strides, x.dtype)
    yield gradient_call(op, x.shape, x.strides, out.strides, x.dtype)
    if not isinstance(op.reduction, ln.Mean):
        yield tangent_call(op, x.shape, x.strides, x.strides, x.dtype)
    if isinstance(op.reduction, ln.Max):
        yield indices_call(op, x.shape, x.strides, x.dtype)
        yield offsets_call(op, x.shape, x.strides, x.dtype)
        yield gather_call(op, x.shape, out.strides, x.dtype)


@pytest.mark.parametrize(
    "op",
    [ln.MaxPool((3, 3), 2, 1), ln.AvgPool((2, 2)), ln.SmoothMaxPool((3, 3), 2.0, 2, 1)],
    ids=repr,
)
def test_which_items_go_together(op):
    def together(*shape):
        return [isinstance(call, BatchInterleave) for call in calls(op, np.zeros(shape, "f4"))]

    in_pairs = isinstance(op.reduction, ln.SmoothMax)  # its tangents, which take any layout
    everything = [True, True, False] if in_pairs else [True] * len(together(64, 64, 7, 7))
    assert together(64, 64, 7, 7) == everything
    assert together(1153 * 64, 7, 7) == everything
    longer = {ln.Max: [False, True, False, True, True, True], ln.Mean: [False, False]}
    expected = longer.get(type(op.reduction), everything)
    assert together(64, 64, 7, 19) == expected, "rows fill a vector"
    assert not any(together(64, 64, 7, 21))
    assert not any(together(1, 63, 7, 7)), "too few"
    assert together(1153, 7, 7) == everything, "the last part begins in the one before"
    view = np.zeros((64, 64, 7, 8), "f4")[..., 1:]
    assert not isinstance(forward_call(op, view.shape, view.strides, view.dtype), BatchInterleave)


def test_longer_items_go_together_where_their_winners_lie_apart():
    def together(op, dtype, *shape):
        return [isinstance(call, BatchInterleave) for call in calls(op, np.zeros(shape, dtype))]

    searched = [False, True, True, True, True, True]
    for op in (ln.MaxPool((3, 3)), ln.AdaptiveMaxPool((7, 7))):
        assert together(op, "f4", 64, 64, 30, 33) == searched
        assert not any(together(op, "f4", 64, 64, 30, 65))
        assert not any(together(op, "f8", 64, 64, 30, 33))


@pytest.mark.parametrize("items", [257, 327, 1153])
def test_a_last_part_that_begins_in_the_one_before_has_the_same_bits(items):
    x = values.filled("ties", (items, 7, 6), "float32")
    x[[0, items // 2, items - 1], 2, 3] = np.nan
    along = values.filled("random", x.shape, "float32")
    for op in (ln.MaxPool((3, 3), 2, 1), ln.MaxPool((2, 2), ties="all"), ln.AvgPool((3, 2))):
        grad = values.filled("random", op.out_shape(x.shape), "float32")
        found = op(x), op.jvp(x, along), op.vjp(x, grad)
        for first in range(0, items, 50):
            some = slice(first, first + 50)
            alone = op(x[some]), op.jvp(x[some], along[some]), op.vjp(x[some], grad[some])
            assert all(a[some].tobytes() == b.tobytes() for a, b in zip(found, alone, strict=True))


def test_one_item_among_many_with_a_nan():
    x = values.filled("random", (1536, 5, 5), "float32")
    clean = ln.MaxPool((2, 2))(x)
    for item in (0, 255, 256, 1000, 1535):
        y = x.copy()
        y[item, 2, 2] = np.nan
        z = ln.MaxPool((2, 2))(y)
        assert np.isnan(z[item, 1, 1])
        assert np.array_equal(np.delete(z, item, 0), np.delete(clean, item, 0))


def test_one_item_among_many_whose_windows_need_their_own_pivots():
    op, x = ln.SmoothMaxPool((2, 2), 2.0), values.filled("random", (1536, 6, 6), "float32")
    grad = values.filled("random", op.out_shape(x.shape), "float32")
    x[700] += 300
    x[900, 3, 4] = np.inf
    for item in (0, 700, 900):
        one = slice(item, item + 1)
        assert op(x)[one].tobytes() == op(x[one]).tobytes()
        assert op.vjp(x, grad)[one].tobytes() == op.vjp(x[one], grad[one]).tobytes()
    assert np.allclose(op(x)[700], op(x[700] - 300) + 300)


@pytest.mark.parametrize("op", [ln.MaxPool((3, 3), 2, 1), ln.SmoothMaxPool((3, 3), 2.0, 2, 1)])
def test_any_number_of_threads_gives_the_same_bits(op):
    x = values.filled("random", (4096, 6, 7), "float32")
    grad = values.filled("random", op.out_shape(x.shape), "float32")
    before = ln.get_num_threads()
    ln.set_num_threads(1)
    try:
        alone = op(x), op.vjp(x, grad)
        for threads in (2, 8):
            ln.set_num_threads(threads)
            assert op(x).tobytes() == alone[0].tobytes()
            assert op.vjp(x, grad).tobytes() == alone[1].tobytes()
    finally:
        ln.set_num_threads(before)


@pytest.mark.parametrize("ties", ["first", "all", "split"])
@pytest.mark.parametrize("items", [32, 64, 256, 1024, 2048])
def test_items_of_one_cell(items, ties):
    """They lie side by side as they are: a part of them is such an array again, and is not cut once more."""
    op = ln.MaxPool((2, 2), stride=1, padding=1, ties=ties)
    x = np.arange(items, dtype=np.float32).reshape(-1, 1, 1)
    y = op(x)
    np.testing.assert_array_equal(y, np.broadcast_to(x, (items, 2, 2)))
    np.testing.assert_array_equal(op.vjp(x, np.ones_like(y)), np.full_like(x, 4))
    np.testing.assert_array_equal(op.jvp(x, x), y)
