"""The same bits from any memory layout, and from batches of length zero."""

import numpy as np
import pytest

import lunette as ln
from cases import values
from cases.agreement import TIES, differing_bits, direction, run
from cases.channels_last import (
    LARGE_WINDOWS,
    channels_last,
    long_rows_of_channels,
    turned_parts,
)
from lunette.kernels.cpu.layout import nhwc_to_nchw
from lunette.kernels.cpu.memory import block_cache

OPS = (
    *(ln.MaxPool((3, 2), stride=(2, 1), padding=((1, 0), (0, 1)), ties=t) for t in TIES),
    ln.MaxPool((3,), stride=1, padding=1),
    ln.MaxPool((9, 9), stride=1, padding=4),
    ln.AvgPool((2, 2)),
    ln.AvgPool((3, 3), stride=2, padding=1, count_include_pad=False),
    ln.AvgPool((25,), stride=1, padding=12),
    ln.SmoothMaxPool((3, 3), 1.5, stride=2, padding=1),
    ln.AdaptiveMaxPool((3, 4)),
    ln.AdaptiveAvgPool((3, 4)),
    ln.GlobalAvgPool(2),
    ln.GlobalMaxPool(3, keepdims=False),
)
SHAPE = (2, 3, 8, 19)


def check_same(op, verb, x, along, expected, backend, what):
    actual = run(op, verb, x, along, backend)
    if verb != "forward_with_indices":
        actual, expected = (actual,), (expected,)
    for a, e in zip(actual, expected, strict=True):
        assert not differing_bits(a, e), (what, op, verb)


def verbs_of(op, dtype):
    indices = ["forward_with_indices"] * isinstance(op.reduction, ln.Max)
    return ["forward", *indices, *(["jvp", "vjp"] * (dtype in values.FLOATS))]


@pytest.mark.parametrize(
    "dtypes",
    [("float32",), pytest.param(("float16", "float64", "uint8"), marks=pytest.mark.full)],
    ids=" ".join,
)
@pytest.mark.parametrize("op", OPS, ids=repr)
def test_any_memory_layout_gives_the_same_bits(backend, op, dtypes):
    for dtype in dtypes:
        x = values.filled("random", SHAPE, dtype)
        for verb in verbs_of(op, dtype):
            shape = op.out_shape(SHAPE) if verb == "vjp" else SHAPE
            along = None if verb.startswith("forward") else direction(shape, x.dtype)
            expected = run(op, verb, x, along, backend)
            for name, view in values.layouts(x):
                check_same(op, verb, view, along, expected, backend, name)
            if along is not None:
                for name, view in values.layouts(along):
                    check_same(op, verb, x, view, expected, backend, f"direction {name}")


@pytest.mark.parametrize(
    ("op", "lengths"),
    [
        (ln.GlobalAvgPool(2), (33, 70)),
        (ln.GlobalAvgPool(2), (7, 7)),
        (ln.AdaptiveAvgPool((2, 2)), (33, 70)),
        (ln.AvgPool((20, 20)), (33, 70)),
        (ln.AvgPool((31,), 1), (70,)),
        (ln.AvgPool((3,), 2, 1), (70,)),
        (ln.AvgPool((2, 2, 2)), (5, 6, 41)),
        (ln.AvgPool((3, 3, 3), 2, 1, count_include_pad=False), (5, 6, 41)),
        (ln.AvgPool((3, 2, 3), 1, 1), (5, 6, 41)),
    ],
    ids=repr,
)
def test_sums_have_the_same_bits_with_many_channels_last(backend, op, lengths):
    # Few channels go row by row whatever the layout; many go side by side.
    x = values.filled("random", (2, 32, *lengths), "float32")
    grad = direction(op.out_shape(x.shape), x.dtype)
    last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    for verb, along in (("forward", None), ("vjp", grad)):
        expected = run(op, verb, x, along, backend)
        check_same(op, verb, last, along, expected, backend, "channels last")
        check_same(op, verb, x[:, ::2], None if along is None else along[:, ::2], expected[:, ::2],
                   backend, "every other channel")  # fmt: skip


@pytest.mark.parametrize(
    "channels", [4, 19, *(pytest.param(n, marks=pytest.mark.full) for n in (16, 33, 52))]
)
@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        *(pytest.param(d, marks=pytest.mark.full) for d in values.DTYPES if d != "float32"),
    ],
)
def test_small_windows_have_the_same_bits_with_channels_last(monkeypatch, channels, dtype):
    monkeypatch.setattr(nhwc_to_nchw, "SMALL", 0)
    assert not channels_last(channels, dtype)
    assert not channels_last(channels, dtype, width=3)


@pytest.mark.parametrize("channels, dtype", [(16, "float32"), (70, "bfloat16"), (40, "int32")])
def test_large_windows_have_the_same_bits_with_channels_last(channels, dtype):
    assert not channels_last(channels, dtype, 200, (ln.Max(),), LARGE_WINDOWS)


@pytest.mark.parametrize("part", [1, 1 << 16, 1 << 20])
def test_parts_of_arrays_with_channels_last_have_the_same_bits(part):
    assert not turned_parts(part)


def test_an_array_too_large_to_turn_is_read_as_it_lies(monkeypatch):
    monkeypatch.setattr(nhwc_to_nchw, "MOST", 1 << 14)
    monkeypatch.setattr(nhwc_to_nchw, "SMALL", 0)
    assert (
        nhwc_to_nchw.channels_last(2, np.zeros((1, 9, 9, 16), "f4").transpose(0, 3, 1, 2))
        is not None
    )
    assert (
        nhwc_to_nchw.channels_last(2, np.zeros((1, 99, 99, 16), "f4").transpose(0, 3, 1, 2)) is None
    )
    assert not turned_parts()


def test_rows_of_many_channels_are_made_in_pieces():
    assert not channels_last(130, "float32")
    assert not long_rows_of_channels()


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_broadcast_views_give_the_same_bits(backend, op):
    x = values.filled("random", SHAPE, "float32")
    for name, view in values.broadcasts(x):
        for verb in verbs_of(op, "float32"):
            shape = op.out_shape(view.shape) if verb == "vjp" else view.shape
            along = None if verb.startswith("forward") else direction(shape, x.dtype)
            expected = run(op, verb, view.copy(), along, backend)
            check_same(op, verb, view, along, expected, backend, name)
    grad = np.broadcast_to(np.float32(0.1), op.out_shape(SHAPE))
    expected = run(op, "vjp", x, grad.copy(), backend)
    check_same(op, "vjp", x, grad, expected, backend, "a gradient that is one number")


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_results_are_new_writable_arrays_and_inputs_stay_as_they_are(backend, op):
    x = values.filled("random", SHAPE, "float32")
    before = x.tobytes()
    for verb in verbs_of(op, "float32"):
        shape = op.out_shape(SHAPE) if verb == "vjp" else SHAPE
        along = None if verb.startswith("forward") else direction(shape, x.dtype)
        results = run(op, verb, x, along, backend)
        for y in results if isinstance(results, tuple) else (results,):
            assert y.flags.writeable and not np.shares_memory(y, x)
            y[...] = 0
        assert x.tobytes() == before


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_zero_length_batches(backend, op):
    batch_axes = range(len(SHAPE) - op.rank)
    for empty in batch_axes:
        shape = tuple(0 if axis == empty else n for axis, n in enumerate(SHAPE))
        check_empty(backend, op, shape)


def check_empty(backend, op, shape):
    for dtype in ("float32",):
        x = np.zeros(shape, dtype)
        for verb in verbs_of(op, dtype):
            out = op.out_shape(shape) if verb == "vjp" else shape
            along = None if verb.startswith("forward") else np.zeros(out, dtype)
            results = run(op, verb, x, along, backend)
            expected = shape if verb == "vjp" else op.out_shape(shape)
            for y in results if isinstance(results, tuple) else (results,):
                assert y.shape == expected and y.size == 0


def test_other_byte_order_gives_native_results(backend):
    x = values.filled("random", SHAPE, "float32")
    op = ln.MaxPool((2, 2))
    swapped = x.astype(x.dtype.newbyteorder())
    assert not differing_bits(run(op, "forward", swapped, None, backend), run(op, "forward", x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [105, 112])
def test_the_place_of_an_input_in_its_page_has_no_bearing_on_a_gradient(dtype, length):
    # Rows are made from the left or from the right, as the input lies to the result.
    op = ln.SmoothMaxPool((3, 3), 2.0, stride=2, padding=1)
    shape = (24, 112, length)
    x = values.filled("random", shape, dtype)
    grad = direction(op.out_shape(shape), x.dtype)
    memory = np.empty(x.nbytes + 2 * block_cache.PAGE, np.uint8)
    wanted = None
    for place in (16, block_cache.START - 64, block_cache.START - 16, block_cache.START):
        at = place - memory.__array_interface__["data"][0] % block_cache.PAGE + block_cache.PAGE
        there = memory[at : at + x.nbytes].view(x.dtype).reshape(shape)
        there[...] = x
        got = op.vjp(there, grad)
        assert got.__array_interface__["data"][0] % block_cache.PAGE == block_cache.START
        wanted = got if wanted is None else wanted
        assert got.tobytes() == wanted.tobytes(), place
