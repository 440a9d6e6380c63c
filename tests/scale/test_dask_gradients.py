"""Convolution of Dask arrays by the kernels: every verb has the bits of the whole array, however it is cut."""

import math
from itertools import product

import dask.array as da
import ml_dtypes
import numpy as np
import pytest

import lunette as ln
from lunette import boxes
from lunette.spec import Interval
from tests.brief import every
from tests.scale.chunkings import same_bits

FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def random_chunks(generator, n):
    """A partition of `n`: single cells, one chunk, or anything between."""
    way = generator.integers(5)
    if way == 0:
        return (1,) * n if n else (0,)
    if way == 1:
        return (n,)
    chunks = []
    while sum(chunks) < n:
        chunks.append(int(generator.integers(1, n - sum(chunks) + 1)))
    return tuple(chunks) or (0,)


def chunked(generator, array):
    """The array in random chunks; half of the time computed, so that chunks are put together."""
    lazy = da.from_array(
        array, chunks=tuple(random_chunks(generator, n) for n in array.shape), name=False
    )
    return lazy if generator.random() < 0.5 else lazy.map_blocks(np.copy)


def random_problem(generator, transposed, rank):
    """An op of any arguments, and the shapes of its x and weight."""
    while True:

        def draw(low, high):
            return tuple(int(v) for v in generator.integers(low, high, rank))

        kernel, stride, dilation = draw(1, 4), draw(1, 4), draw(1, 3)
        padding = tuple(zip(draw(0, 4), draw(0, 4), strict=True))
        groups = int(generator.choice([1, 1, 2, 3]))
        inner, outer = (int(v) for v in generator.choice([1, 2, 5, 7], 2))
        batch = [(), (3,), (2, 3)][int(generator.integers(3))]
        x_shape = (*batch, groups * inner, *draw(1, [0, 60, 12, 6][rank]))
        if transposed:
            extra = tuple(
                int(generator.integers(max(s, d))) for s, d in zip(stride, dilation, strict=True)
            )
            op = ln.ConvTranspose(kernel, stride, padding, extra, dilation, groups)
            weight_shape = (groups * inner, outer, *kernel)
        else:
            op = ln.Conv(kernel, stride, padding, dilation, groups)
            weight_shape = (groups * outer, inner, *kernel)
        try:
            out_shape = op.out_shape(x_shape, weight_shape)
        except ValueError:
            continue
        if max(math.prod(x_shape), math.prod(out_shape)) < 10_000:
            return op, x_shape, weight_shape


def numbers(generator, shape, dtype, special=False):
    values = generator.standard_normal(shape)
    if special and values.size:
        places = generator.integers(values.size, size=3)
        values.flat[places] = [np.nan, np.inf, -0.0]
    return values.astype(dtype)


def check_every_verb(generator, op, x_shape, weight_shape, dtype, backend=None, special=False):
    """Every verb of the chunked arrays against the arrays in one."""
    out_shape = op.out_shape(x_shape, weight_shape)
    shapes = (x_shape, weight_shape, (out_shape[-op.rank - 1],))
    operands = tuple(numbers(generator, s, dtype, special) for s in shapes)
    tangents = tuple(numbers(generator, s, dtype, special) for s in shapes)
    grad = numbers(generator, out_shape, dtype, special)
    lazy = tuple(chunked(generator, a) for a in operands)
    moves = tuple(chunked(generator, a) for a in tangents)
    same_bits(ln.forward(op, *lazy, backend=backend), ln.forward(op, *operands, backend=backend))
    same_bits(
        ln.jvp(op, lazy, moves, backend=backend), ln.jvp(op, operands, tangents, backend=backend)
    )
    expected = ln.vjp(op, operands, grad, backend=backend)
    found = ln.vjp(op, lazy, chunked(generator, grad), backend=backend)
    for a, b in zip(found, expected, strict=True):
        same_bits(a, b)


BOX_SIZES = [None, 64, 7]


def cut_into_boxes(monkeypatch, positions):
    """Boxes of so many positions: every array of these tests is one box, or it is many."""
    if positions:
        monkeypatch.setattr(boxes, "NUMBERS", 1)
        monkeypatch.setattr(boxes, "POSITIONS", positions)


KINDS = list(product([False, True], [1, 2, 3], FLOATS, [False, True], BOX_SIZES))


@pytest.mark.parametrize(("transposed", "rank", "dtype", "special", "box_size"), every(5, KINDS))
def test_every_verb_has_the_bits_of_the_whole_array(
    transposed, rank, dtype, special, box_size, monkeypatch
):
    cut_into_boxes(monkeypatch, box_size)
    generator = np.random.default_rng([FLOATS.index(dtype), rank, transposed, special])
    problem = random_problem(generator, transposed, rank)
    check_every_verb(generator, *problem, dtype, special=special)


LARGE = [
    (ln.Conv((3, 3), 1, 1), (2, 6, 50, 70), (7, 6, 3, 3)),
    (ln.Conv((1, 1)), (3, 6, 40, 60), (20, 6, 1, 1)),
    (ln.Conv((1, 1), padding=2), (3, 20, 37, 41), (6, 20, 1, 1)),
    (ln.Conv((1, 1), padding=2), (2, 6, 60, 90), (20, 6, 1, 1)),
    (ln.Conv((3, 1)), (2, 6, 700, 3), (7, 6, 3, 1)),
    (ln.Conv((1, 3, 1), padding=((0, 0), (1, 1), (0, 0))), (6, 30, 20, 5), (5, 6, 1, 3, 1)),
    (ln.Conv((3, 3), 1, 1, groups=3), (2, 3, 90, 130), (6, 1, 3, 3)),
    (ln.Conv((5,), 2, 2), (2, 2, 9000), (3, 2, 5)),
    (ln.ConvTranspose((2, 2), 2), (2, 6, 30, 50), (6, 5, 2, 2)),
    (ln.ConvTranspose((1, 1)), (2, 30, 41, 37), (30, 7, 1, 1)),
]


@pytest.mark.parametrize("positions", every(2, [512, 5000]))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op, x_shape, weight_shape", LARGE, ids=repr)
def test_boxes_of_several_blocks_keep_their_bits(
    op, x_shape, weight_shape, dtype, positions, monkeypatch
):
    """A box within the array and the same box on its own are cut into the same blocks."""
    monkeypatch.setattr(boxes, "NUMBERS", 1)
    monkeypatch.setattr(boxes, "POSITIONS", positions)
    generator = np.random.default_rng(positions)
    out_shape = op.out_shape(x_shape, weight_shape)
    operands = tuple(
        numbers(generator, s, dtype) for s in (x_shape, weight_shape, (out_shape[-op.rank - 1],))
    )
    grad = numbers(generator, out_shape, dtype)
    lazy = tuple(da.from_array(a, chunks=tuple(-(-n // 3) for n in a.shape)) for a in operands)
    chunks = tuple(-(-n // 4) + 1 for n in grad.shape)
    found = ln.vjp(op, lazy, da.from_array(grad, chunks=chunks).map_blocks(np.copy))
    for a, b in zip(found, ln.vjp(op, operands, grad), strict=True):
        same_bits(a, b)


@pytest.mark.parametrize("box_size", BOX_SIZES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_inexact_numbers_without_a_kernel_have_them_too(transposed, seed, box_size, monkeypatch):
    """Intervals are rounded outward at every addition, so their ends show the order of a sum."""
    cut_into_boxes(monkeypatch, box_size)
    generator = np.random.default_rng(seed)
    op = ln.ConvTranspose((2,), 2) if transposed else ln.Conv((3,), 1, 1)
    x_shape, weight_shape = (2, 2, 23), (2, 1, 2) if transposed else (1, 2, 3)
    out_shape = op.out_shape(x_shape, weight_shape)

    def intervals(shape):
        values = generator.standard_normal(shape)
        return np.vectorize(lambda v: Interval(v, v + 0.1), otypes=[object])(values)

    operands = (intervals(x_shape), intervals(weight_shape), intervals((1,)))
    grad = intervals(out_shape)
    lazy = tuple(chunked(generator, a) for a in operands)
    found = ln.vjp(op, lazy, chunked(generator, grad))
    for a, b in zip(found, ln.vjp(op, operands, grad), strict=True):
        same_bits(a, b)
