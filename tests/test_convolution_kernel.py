"""Convolution on the CPU: within its bound of the exact value, and the same bits every way."""

import math
import subprocess
import sys
import threading
from collections import defaultdict
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import lunette as ln
from lunette import boxes
from lunette.check.bounds import of_products
from lunette.kernels import threads
from lunette.kernels.cpu.conv import tiling
from lunette.spec import convolution as meaning

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
CASES = [
    (ln.Conv((3, 3), padding=1), (2, 5, 6, 7), (9, 5, 3, 3)),
    (ln.Conv((3, 2), (2, 3), ((1, 0), (3, 2)), (1, 2), 2), (2, 4, 6, 9), (6, 2, 3, 2)),
    (ln.Conv((1, 1)), (3, 4, 5, 6), (20, 4, 1, 1)),
    (ln.Conv((5,), 2, "same"), (2, 3, 71), (4, 3, 5)),
    (ln.Conv((3, 1), padding=((2, 0), (0, 0))), (2, 3, 5, 6), (17, 3, 3, 1)),
    (ln.Conv((2, 1, 2, 1), padding=1), (2, 2, 2, 3, 2, 3), (3, 2, 2, 1, 2, 1)),
    (ln.Conv((3, 3), padding=1, groups=6), (2, 6, 4, 50), (6, 1, 3, 3)),
    (ln.Conv((2, 2), 3), (2, 7, 7), (20, 2, 2, 2)),
    (ln.Conv((4, 4), 1, 3), (1, 1, 1, 1), (1, 1, 4, 4)),
    (ln.ConvTranspose((3, 2), (2, 3), ((1, 0), (1, 2)), (1, 0), (1, 2), 2), (2, 4, 3, 5), (4, 3, 3, 2)),
    (ln.ConvTranspose((2,), 1, 0, 2, 3), (1, 1, 2, 4), (2, 2, 2)),
    (ln.ConvTranspose((1, 2), 3, 0, 1), (3, 2, 3), (3, 40, 1, 2)),
    (ln.ConvTranspose((2, 2, 2), 2, 1, 1), (1, 3, 2, 3, 2), (3, 2, 2, 2, 2)),
]  # fmt: skip


def numbers(seed, shape, dtype):
    """Numbers whose products of two are exact in float64: at most 26 bits."""
    values = np.random.default_rng(seed).standard_normal(shape)
    return (np.round(values * 2**20) / 2**20).astype(dtype)


def problem(op, x_shape, weight_shape, dtype):
    out_shape = op.out_shape(x_shape, weight_shape)
    shapes = [x_shape, weight_shape, (out_shape[-op.rank - 1],)]
    operands = tuple(numbers(i, s, dtype) for i, s in enumerate(shapes))
    tangents = tuple(numbers(10 + i, s, dtype) for i, s in enumerate(shapes))
    return operands, tangents, numbers(20, out_shape, dtype)


def verbs(op, operands, tangents, grad, backend="cpu"):
    return {
        "forward": ln.forward(op, *operands, backend=backend),
        "jvp": ln.jvp(op, operands, tangents, backend=backend),
        **dict(
            zip(
                ("x", "weight", "bias"),
                ln.vjp(op, operands, grad, backend=backend),
                strict=True,
            )
        ),
    }


def terms(op, operands, tangents, grad):
    """Every product of every verb, exact in float64, by place in the result."""
    (x, w, b), (dx, dw, db) = (
        [a.astype(np.float64) for a in group] for group in (operands, tangents)
    )
    gy = grad.astype(np.float64)
    image, windows = (gy, x) if op.transposed else (x, gy)
    products = {name: defaultdict(list) for name in ("forward", "jvp", "x", "weight", "bias")}
    for window, cell, tap in meaning.walk(op, windows.shape, image.shape, w.shape):
        here, there = (cell, window) if op.transposed else (window, cell)
        products["forward"][here].append(x[there] * w[tap])
        products["jvp"][here] += [dx[there] * w[tap], x[there] * dw[tap]]
        products["x"][there].append(gy[here] * w[tap])
        products["weight"][tap].append(gy[here] * x[there])
    for place in np.ndindex(gy.shape):
        channel = place[-op.rank - 1]
        products["forward"][place].append(b[channel])
        products["jvp"][place].append(db[channel])
        products["bias"][(channel,)].append(gy[place])
    return products


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("op, x_shape, weight_shape", CASES, ids=repr)
def test_within_the_bound_of_the_exact_sum(op, x_shape, weight_shape, dtype):
    """|error| ≤ γ_(n+1)·(Σ|x||w| + |b|) + 2(n+1)η; half types add the one rounding at the end."""
    given = problem(op, x_shape, weight_shape, dtype)
    results, exact = verbs(op, *given), terms(op, *given)
    for name, result in results.items():
        assert result.dtype == dtype
        for place in np.ndindex(result.shape):
            products = exact[name][place]
            # The zeros of padding add nothing, and the bias is no product.
            n = len(products) - (name in ("forward", "jvp"))
            bound = of_products(n, math.fsum(map(abs, products)), np.dtype(dtype))
            error = abs(float(result[place]) - math.fsum(products))
            assert error <= bound, (name, place, error, bound)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_that_underflows_is_within_the_bound(dtype):
    """All of it is lost: far past γ_n Σ|x||w|, and within the bound with its absolute term."""
    tiny = dtype(np.finfo(dtype).smallest_subnormal)
    x, weight = np.full((1, 3), tiny), np.full((1, 1, 3), dtype(0.25))
    exact = 3 * float(tiny) / 4 if dtype is np.float32 else 3 * Fraction(float(tiny)) / 4
    y = ln.conv(x, weight, np.zeros(1, dtype))[0, 0]
    assert y == 0
    unit = np.finfo(dtype).eps / 2
    assert exact > 4 * Fraction(float(unit)) * 2 * Fraction(exact)  # what the relative term allows
    assert Fraction(exact) <= Fraction(float(of_products(3, float(exact), np.dtype(dtype))))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_rounding_of_a_bias_is_within_the_bound(dtype):
    """It is 2ᵏ times the products: their magnitudes alone say nothing of its rounding."""
    unit = float(np.finfo(dtype).eps) / 2
    x, weight = np.ones((1, 1), dtype), np.ones((1, 1, 1), dtype)
    bias = np.array([2 / unit * 1.5], dtype)
    y = Fraction(float(ln.conv(x, weight, bias)[0, 0]))
    error = abs(y - 1 - Fraction(float(bias[0])))
    assert error > Fraction(2 * unit / (1 - 2 * unit))  # γ_n Σ|x||w|
    assert error <= Fraction(float(of_products(1, 1 + float(bias[0]), np.dtype(dtype))))


def random_geometry(generator):
    """A small convolution of any rank, with any arguments, and its shapes."""
    while True:
        rank = int(generator.integers(1, 5))

        def draw(low, high, rank=rank):
            return tuple(int(v) for v in generator.integers(low, high, rank))

        kernel, stride, dilation = draw(1, 4), draw(1, 4), draw(1, 4)
        padding = tuple(zip(draw(0, 3), draw(0, 3), strict=True))
        groups, inner, outer = (int(v) for v in generator.integers(1, 4, 3))
        batch = (2,) * int(generator.integers(0, 3))
        x_shape = (*batch, groups * inner, *draw(1, 9 if rank < 3 else 4))
        if generator.random() < 0.5:
            op = ln.Conv(kernel, stride, padding, dilation, groups)
            weight_shape = (groups * outer, inner, *kernel)
        else:
            extra = tuple(
                int(generator.integers(max(s, d))) for s, d in zip(stride, dilation, strict=True)
            )
            op = ln.ConvTranspose(kernel, stride, padding, extra, dilation, groups)
            weight_shape = (groups * inner, outer, *kernel)
        try:
            out_shape = op.out_shape(x_shape, weight_shape)
        except ValueError:
            continue
        if math.prod(weight_shape) * max(math.prod(x_shape), math.prod(out_shape)) < 40_000:
            return op, x_shape, weight_shape


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_the_specification_for_random_geometries(seed, monkeypatch):
    if seed % 2:  # sums over positions that are many boxes
        monkeypatch.setattr(boxes, "NUMBERS", 1)
        monkeypatch.setattr(boxes, "POSITIONS", 5)
    op, x_shape, weight_shape = random_geometry(np.random.default_rng(seed))
    given = problem(op, x_shape, weight_shape, np.float64)
    magnitudes = verbs(op, *(tuple(map(abs, g)) for g in given[:2]), abs(given[2]), "spec")
    expected = verbs(op, *given, "spec")
    for name, result in verbs(op, *given).items():
        n = math.prod(weight_shape) + math.prod(given[2].shape) + 2
        bound = 2 * n * 2.0**-53 * magnitudes[name]
        assert (abs(result - expected[name]) <= bound).all(), (name, op, x_shape)


# -- one fold, whatever the way --


@pytest.fixture
def tuned(monkeypatch):
    """Set the constants that decide how the work is cut."""

    def tune(**constants):
        for name, value in constants.items():
            monkeypatch.setattr(tiling, name, value)
        tiling.schedule.cache_clear()

    yield tune
    tiling.schedule.cache_clear()


def same_bits(a, b):
    kind = f"u{a.dtype.itemsize}"
    return a.dtype == b.dtype and np.array_equal(
        np.ascontiguousarray(a).view(kind), np.ascontiguousarray(b).view(kind)
    )


WAYS = {
    "implicit": {"WAYS": ("implicit",)},
    "implicit, small tiles and chunks": {"TILE": 500, "DEPTH": 5},
    "packed, small tiles and chunks": {"WAYS": ("packed",), "NEAR": 10_000},
    "packed": {"TILE": 400_000, "DEPTH": 160},
    "packed, many parts": {"UNIT": 0.0, "LOAD_CELL": 0.0, "CYCLES_EACH": 1},
    "sliding": {"WAYS": ("sliding",)},
    "sliding, small tiles and chunks": {"TILE": 500, "DEPTH": 5},
    "sliding, one vector of channels": {
        "LENGTHS": (16,),
        "REGISTERS": 24,
        "TILE": 400_000,
        "DEPTH": 160,
    },
}


def check_ways(op, given, tuned):
    """Every way to cut the work gives the bits of the usual one, which are returned."""
    expected = verbs(op, *given)
    for way, constants in WAYS.items():
        tuned(**constants)
        for name, value in verbs(op, *given).items():
            assert same_bits(value, expected[name]), (way, name)
    return expected


@pytest.mark.parametrize("op, x_shape, weight_shape", CASES, ids=repr)
def test_every_way_to_read_the_windows_gives_the_same_bits(op, x_shape, weight_shape, tuned):
    check_ways(op, problem(op, x_shape, weight_shape, np.float32), tuned)


def test_many_channels_and_positions_give_the_same_bits(tuned):
    """Several chunks of channels, several panels and blocks of rows."""
    op, x_shape, weight_shape = ln.Conv((3, 3), 1, 1), (2, 60, 20, 33), (20, 60, 3, 3)
    given = problem(op, x_shape, weight_shape, np.float32)
    forward = check_ways(op, given, tuned)["forward"]
    expected = np.stack(
        [
            sum(
                np.einsum(
                    "oc,chw->ohw",
                    given[0][1][:, :, i, j].astype(np.float64),
                    np.pad(image.astype(np.float64), ((0, 0), (1, 1), (1, 1)))[
                        :, i : i + 20, j : j + 33
                    ],
                )
                for i in range(3)
                for j in range(3)
            )
            for image in given[0][0]
        ]
    ) + given[0][2].astype(np.float64).reshape(-1, 1, 1)
    assert abs(forward - expected).max() < 541 * 2.0**-24 * 400


def layouts(a):
    """The same numbers in other places: Fortran order, reversed, every second, channels last."""
    yield np.asfortranarray(a)
    yield np.ascontiguousarray(a[..., ::-1])[..., ::-1]
    wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    wide[..., ::2] = a
    yield wide[..., ::2]
    yield np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 1, -1)), -1, 1)
    odd = np.zeros(a.nbytes + 1, np.uint8)
    place = odd[1:].view(a.dtype).reshape(a.shape)
    place[...] = a
    yield place


LAYOUTS = [CASES[0], CASES[1], CASES[9], (ln.Conv((1, 1)), (2, 5, 9, 60), (20, 5, 1, 1))]


@pytest.mark.parametrize("op, x_shape, weight_shape", LAYOUTS, ids=repr)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_any_layout_gives_the_same_bits(op, x_shape, weight_shape, dtype):
    (x, w, b), tangents, grad = problem(op, x_shape, weight_shape, dtype)
    expected = verbs(op, (x, w, b), tangents, grad)
    for new_x, new_w, new_grad in zip(layouts(x), layouts(w), layouts(grad), strict=True):
        result = verbs(op, (new_x, new_w, b), tangents, new_grad)
        for name, value in expected.items():
            assert same_bits(value, result[name]), name


@pytest.mark.parametrize("positions", [None, 100])
def test_any_number_of_threads_any_batch_and_any_run_give_the_same_bits(positions, monkeypatch):
    if positions:
        monkeypatch.setattr(boxes, "NUMBERS", 1)
        monkeypatch.setattr(boxes, "POSITIONS", positions)
    op, x_shape, weight_shape = ln.Conv((3, 3), 2, 1), (6, 5, 17, 30), (9, 5, 3, 3)
    given = problem(op, x_shape, weight_shape, np.float32)
    expected = verbs(op, *given)
    usual = threads.get_num_threads()
    try:
        for count in (1, 2, 3, 8, 16):
            threads.set_num_threads(count)
            for name, value in verbs(op, *given).items():
                assert same_bits(value, expected[name]), (count, name)
    finally:
        threads.set_num_threads(usual)
    (x, w, b), _, grad = given
    for i in range(6):
        assert same_bits(op(x[i], w, b), expected["forward"][i])
        assert same_bits(op.vjp((x[i], w, b), grad[i])[0], expected["x"][i])
    # Output rows 4 … 6 read input rows 7 … 13: a part of the image convolves as it does in the whole.
    part = ln.Conv((3, 3), 2, ((0, 0), (1, 1)))(np.ascontiguousarray(x[:, :, 7:14]), w, b)
    assert same_bits(part, expected["forward"][:, :, 4:7])


@pytest.mark.parametrize("groups", [1, 5])
def test_sums_over_many_boxes_do_not_depend_on_threads(groups, monkeypatch):
    """Also of groups of one row, whose positions lie along vectors."""
    monkeypatch.setattr(boxes, "NUMBERS", 1)
    monkeypatch.setattr(boxes, "POSITIONS", 300)
    op = ln.Conv((3, 3), 1, 1, groups=groups)
    given = problem(op, (2, 5, 40, 50), (5, 5 // groups, 3, 3), np.float32)
    usual, results = threads.get_num_threads(), []
    try:
        for count in (1, 2, 3, 8, 16):
            threads.set_num_threads(count)
            results.append(op.vjp(given[0], given[2]))
    finally:
        threads.set_num_threads(usual)
    for result in results[1:]:
        assert all(same_bits(a, b) for a, b in zip(result, results[0], strict=True))


def test_many_python_threads_at_once():
    op, x_shape, weight_shape = ln.Conv((3, 3), 1, 1), (2, 8, 40, 40), (9, 8, 3, 3)
    given = problem(op, x_shape, weight_shape, np.float32)
    expected, wrong = verbs(op, *given), []

    def work():
        for _ in range(3):
            result = verbs(op, *given)
            wrong.extend(n for n, v in expected.items() if not same_bits(v, result[n]))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


# -- edges --


@pytest.mark.parametrize("op, x_shape, weight_shape", CASES, ids=repr)
@pytest.mark.parametrize("which", ["x", "weight", "grad"])
def test_nan_and_infinity_go_where_the_specification_sends_them(op, x_shape, weight_shape, which):
    operands, tangents, grad = problem(op, x_shape, weight_shape, np.float32)
    target = {"x": operands[0], "weight": operands[1], "grad": grad}[which]
    target.flat[0], target.flat[-1] = np.nan, np.inf
    expected = verbs(op, operands, tangents, grad, "spec")
    for name, value in verbs(op, operands, tangents, grad).items():
        assert np.array_equal(np.isnan(value), np.isnan(expected[name])), name
        infinite = np.isinf(value)
        assert np.array_equal(infinite, np.isinf(expected[name])), name
        assert np.array_equal(value[infinite], expected[name][infinite]), name


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_the_kernels_serve_every_verb(dtype):
    x, w = np.ones((1, 4, 4), dtype), np.ones((1, 1, 2, 2), dtype)
    for verb in ("forward", "jvp", "vjp"):
        assert ln.backend_for(ln.Conv((2, 2)), x, w, verb=verb) == "cpu"


SCRATCH = """
import resource, sys
import numpy as np
import lunette as ln

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

op = ln.Conv((3, 3), 1, 1)
small = np.ones((1, 8, 16, 16), np.float32)
w = np.ones((8, 8, 3, 3), np.float32)
op.vjp((small, w), op(small, w))
x = np.ones((1, 8, 1024, 1024), np.float32)
gy = np.ones_like(x)
start = peak()
y = op(x, w)
forward = peak() - start - y.nbytes
start = peak()
op.vjp((x, w), gy)
backward = peak() - start - x.nbytes
print(forward, backward)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not report a peak this way")
def test_scratch_memory_is_bounded():
    """33 MB of image would unfold to 302 MB; the peak beyond the results stays within 40 MB."""
    done = subprocess.run(
        [sys.executable, "-c", SCRATCH], capture_output=True, text=True, check=True, timeout=300
    )
    forward, backward = map(int, done.stdout.split())
    assert forward < 40e6, forward
    assert backward < 40e6, backward
