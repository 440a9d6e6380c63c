"""Results that go past the caches have the bits of those that do not, and touch nothing beside them."""

import numpy as np
import pytest

import lunette as ln
from cases.agreement import run
from cases.workloads import dtype_named
from lunette.kernels.cpu.program import calls
from lunette.kernels.cpu.schedule import properties, slots, staging, tiling
from lunette.kernels.cpu.select.argmax import indices_call, tangent_call
from lunette.kernels.cpu.select.forward import forward_call
from lunette.kernels.cpu.select.vjp import gradient_call

CHOICES = (
    forward_call,
    indices_call,
    tangent_call,
    gradient_call,
)


def forget():
    for chosen in CHOICES:
        chosen.cache_clear()


@pytest.fixture
def stream(monkeypatch):
    """Called with bytes of the stage, or 0 for none: all results go past the caches, or none does.

    With "past" kernels that can do it themselves are asked to.
    """

    def choose(stage):
        def of(cls, edges, shape, array, size, prepared):
            return cls(edges, array, size, stage) if stage and stage != "past" else None

        monkeypatch.setattr(calls, "SMALL", 0)
        for module in (properties, tiling):
            monkeypatch.setattr(module, "LARGE", 0 if stage == "past" else 1 << 62)
        monkeypatch.setattr(staging.Pieces, "of", classmethod(of))
        forget()

    yield choose
    forget()


OPS = [
    ((3, 2, 23, 37), lambda f: f((3, 3), stride=2, padding=1)),
    ((5, 16, 18), lambda f: f((2, 2), stride=2)),
    ((2, 21, 70), lambda f: f((3, 3), stride=1, padding=1)),
    ((3, 2100), lambda f: f((3,), stride=2)),
    ((2, 9, 10, 33), lambda f: f((2, 3, 2), stride=(2, 1, 2))),
    ((2, 40, 41), lambda f: f((9, 17), stride=1, padding=4)),
    ((2, 30, 31), lambda f: f((2, 2), stride=(3, 5))),
    ((3, 12, 64), lambda f: f((2, 2), stride=2)),
    ((3, 12, 64), lambda f: f((3, 3), stride=1, padding=1)),
    ((2, 6, 5, 32), lambda f: f((2, 2, 2), stride=2)),
]
REDUCTIONS = {"max": ln.MaxPool, "mean": ln.AvgPool}


def cells(shape, dtype, seed=0):
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


def results(op, verb, x):
    direction = cells(op.out_shape(x.shape), x.dtype, 2) if verb == "vjp" else None
    return np.ascontiguousarray(run(op, verb, x, direction, backend="cpu")).tobytes()


@pytest.mark.parametrize(
    ("reduction", "verb"),
    [("max", "forward"), ("mean", "forward"), ("mean", "vjp"), ("max", "vjp")],
)
@pytest.mark.parametrize("stage", [64, 1 << 12, "past"])
def test_the_bits_are_the_same_past_the_caches(stream, reduction, verb, stage):
    for shape, make in OPS:
        op, x = make(REDUCTIONS[reduction]), cells(shape, np.float32)
        stream(0)
        plain = results(op, verb, x)
        stream(stage)
        assert results(op, verb, x) == plain, (op, shape)
        if stage != "past" and (reduction, verb) != ("max", "vjp"):
            y = op(x)
            forward = forward_call(op, x.shape, x.strides, x.dtype)
            gradient = gradient_call(op, x.shape, x.strides, y.strides, x.dtype)
            assert (forward if verb == "forward" else gradient).pieces is not None


@pytest.mark.parametrize("dtype", ["float64", "float16", "uint8", "int64"])
def test_every_size_of_element_goes_past_the_caches(stream, dtype):
    for shape, op in OPS[:3]:
        x = cells(shape, dtype)
        for reduction in ("max", "mean"):
            stream(0)
            plain = results(op(REDUCTIONS[reduction]), "forward", x)
            for stage in (100, "past"):
                stream(stage)
                assert results(op(REDUCTIONS[reduction]), "forward", x) == plain


def test_channels_last_goes_past_the_caches(stream):
    x = cells((2, 19, 23, 6), np.float32).transpose(0, 3, 1, 2)
    for reduction in ("max", "mean"):
        for verb in ("forward", "vjp"):
            op = REDUCTIONS[reduction]((3, 3), stride=2, padding=1)
            stream(0)
            plain = results(op, verb, x)
            stream(100)
            assert results(op, verb, x) == plain


@pytest.mark.parametrize("offset", [0, 1, 7, 15, 16, 33])
@pytest.mark.parametrize(
    ("stage", "columns"), [(200, 14), ("past", 14), ("past", 64), ("past", 32)]
)
def test_nothing_beside_the_result_is_touched(stream, offset, stage, columns):
    op, x = ln.MaxPool((2, 2), stride=2), cells((7, 10, columns), np.float32)
    expected = op(x)
    stream(stage)
    call = forward_call(op, x.shape, x.strides, x.dtype)
    room = np.full(expected.size + 200, 77, np.float32)
    y = room[100 + offset :][: expected.size].reshape(expected.shape)
    call.run(x, y, y)
    assert (y == expected).all()
    assert (room[: 100 + offset] == 77).all()
    assert (room[100 + offset + expected.size :] == 77).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_means_along_a_row_have_the_same_bits_in_registers_and_by_levels(stream, dtype):
    # Elements that are not side by side are never summed in registers.
    for kernel in range(16, 33):
        op = ln.AvgPool((kernel,), stride=1)
        for length in (kernel, kernel + 40, 4500):
            apart = cells((2, length, 2), np.int64, length).astype(dtype_named(dtype))[..., 0]
            x = np.ascontiguousarray(apart)
            stream(0)
            plain = op(apart).tobytes()
            assert op(x).tobytes() == plain
            stream("past")
            assert op(x).tobytes() == plain


def test_items_with_nan_are_done_again_past_the_caches(stream):
    op, x = ln.MaxPool((3, 3), stride=2, padding=1), cells((6, 17, 19), np.float32)
    x[2, 3, 4] = x[5, 0, 0] = np.nan
    stream(0)
    plain = results(op, "forward", x)
    for stage in (100, "past"):
        stream(stage)
        assert results(op, "forward", x) == plain


def test_a_large_result_is_past_the_caches_and_a_small_one_is_not():
    op = ln.MaxPool((2, 2), stride=2)
    for items, past in ((1, False), (8192, True)):
        shape = (items, 64, 64)
        strides = (64 * 64 * 4, 64 * 4, 4)
        call = forward_call(op, shape, strides, np.dtype(np.float32))
        assert (call.plan.table[slots.STREAM] > 0) == past
        mean = ln.AvgPool((9, 9), stride=1)
        call = forward_call(mean, shape, strides, np.dtype(np.float32))
        assert (call.pieces is not None) == past


def test_rows_of_whole_lines_go_from_the_registers(stream):
    stream("past")
    for kernel, columns, way in (
        (3, 64, slots.DIRECT),
        (3, 62, slots.LINE_BUFFER),
        (3, 40, slots.LINE_BUFFER),  # rows made together make short rows worth it
        (5, 62, slots.LINE_BUFFER),
        (5, 40, 0),
    ):
        shape, strides = (2, 4, columns), (16 * columns, 4 * columns, 4)
        op = ln.MaxPool((3, kernel), stride=1, padding=(1, kernel // 2))
        call = forward_call(op, shape, strides, np.dtype(np.float32))
        assert call.plan.table[slots.STREAM] == way


def test_a_kernel_that_prepares_a_long_row_is_not_called_piece_by_piece():
    shape = (64, 1 << 18)
    op, strides = ln.AvgPool((25,), stride=1), (4 << 18, 4)
    assert forward_call(op, shape, strides, np.dtype(np.float32)).pieces is None
