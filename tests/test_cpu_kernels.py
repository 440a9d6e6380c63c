"""The CPU kernels: laws that hold for any thread, layout and chunk, then agreement with the spec."""

import multiprocessing
import threading

import numpy as np
import pytest

import lunette as ln
from lunette import dispatch
from lunette.kernels.cpu.select.argmax import indices_call
from lunette.kernels.cpu.select.forward import forward_call
from lunette.kernels.cpu.select.vjp import gradient_call
from lunette.regions import Part

RNG = np.random.default_rng(20261115)

OPS = [
    ln.MaxPool((3, 3), 2, 1),
    ln.MaxPool((11, 5), 1, (5, 2)),
    ln.AvgPool((3, 2), (2, 1), 1),
    ln.AvgPool((19, 18), 1, 4),
    ln.AdaptiveAvgPool((4, 3)),
    ln.SmoothMaxPool((3, 3), 1.5, 2, 1),
]


def bits(a):
    """The patterns of an array of floats, so that −0, +0 and NaNs compare as they are."""
    a = np.ascontiguousarray(a)
    return a.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[a.itemsize])


def same_bits(a, b):
    return a.shape == b.shape and bool((bits(a) == bits(b)).all())


@pytest.fixture
def threads():
    before = ln.get_num_threads()
    yield ln.set_num_threads
    ln.set_num_threads(before)


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_the_number_of_threads_does_not_change_a_bit(op, threads):
    x = RNG.standard_normal((6, 5, 40, 50)).astype(np.float32)
    grad = RNG.standard_normal(op.out_shape(x.shape)).astype(np.float32)
    results = []
    for n in (1, 2, 8):
        threads(n)
        results.append((op(x), op.vjp(x, grad)))
    for value, gradient in results[1:]:
        assert same_bits(value, results[0][0])
        assert same_bits(gradient, results[0][1])


def layouts(x):
    """The same cells in other orders of memory."""
    yield "channels last", np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    yield "Fortran", np.asfortranarray(x)
    yield "backwards", np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    yield "every other", wide[..., ::2]
    raw = np.zeros(x.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(x.dtype).reshape(x.shape)
    unaligned[...] = x
    yield "unaligned", unaligned
    frozen = x.copy()
    frozen.flags.writeable = False
    yield "read-only", frozen


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_the_layout_does_not_change_a_bit(op):
    x = RNG.standard_normal((2, 7, 23, 26)).astype(np.float32)
    grad = RNG.standard_normal(op.out_shape(x.shape)).astype(np.float32)
    value, gradient = op(x), op.vjp(x, grad)
    for name, other in layouts(x):
        assert same_bits(op(other), value), name
        assert same_bits(op.vjp(other, grad), gradient), name


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_a_part_of_an_array_pools_as_it_does_inside_it(op):
    x = RNG.standard_normal((2, 40, 33)).astype(np.float32)
    whole = op(x)
    n, m = x.shape[-2], whole.shape[-2]
    for first, last in ((0, 1), (1, m // 2), (m // 2, m), (m - 1, m)):
        part = op.regions[0].part(n, first, last)
        assert isinstance(part, Part)
        low, high = part.slab_range
        piece = ln.Pool((part, op.regions[1]), op.reduction)(x[:, low:high])
        assert same_bits(piece, whole[:, first:last]), (first, last)


SPECIAL = np.array([np.nan, -np.inf, 0.0, -0.0, 1.0, 1.0], np.float32)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 15, 16, 17, 18, 31, 32, 33, 34, 47, 63, 65, 70])
def test_max_keeps_the_bits_of_the_first_winner_at_every_length(n):
    x = SPECIAL[RNG.integers(0, len(SPECIAL), (3, n))]
    for kernel, stride, padding in ((3, 2, 1), (2, 2, 0), (3, 1, 1), (9, 1, 4), (12, 3, 5)):
        if n + 2 * padding < kernel:
            continue
        op = ln.MaxPool((kernel,), stride, padding)
        value, indices = dispatch.forward_with_indices(op, x, backend="cpu")
        expected, places = dispatch.forward_with_indices(op, x, backend="spec")
        assert same_bits(op(x), expected)
        assert same_bits(value, expected)
        assert (indices == places).all()


def test_a_negative_zero_before_a_positive_one_in_another_column_wins():
    x = np.array([[-np.inf, -0.0], [0.0, -np.inf]], np.float32)
    assert bits(ln.MaxPool((2, 2))(x))[0, 0] == bits(np.array([-0.0], np.float32))[0]
    assert bits(ln.MaxPool((2, 2))(x[::-1]))[0, 0] == 0


def test_gradient_goes_to_the_first_winner_alone():
    x = np.array([[0, 0], [2, 1]], np.float32)
    gradient = ln.MaxPool((2, 2)).vjp(x, np.array([[5]], np.float32))
    assert gradient.tolist() == [[0, 0], [5, 0]]


def test_mean_of_three_by_three_by_hand():
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    counted = ln.AvgPool((3, 3), 2, 1)(x)
    assert np.allclose(counted, [[8 / 9, 12 / 9], [20 / 9, 24 / 9]])
    real = ln.AvgPool((3, 3), 2, 1, count_include_pad=False)(x)
    assert real.tolist() == [[2, 3], [5, 6]]


def test_long_means_stay_within_their_bound():
    x = RNG.standard_normal((4, 400)).astype(np.float32) * np.float32(1e4)
    x[:, ::7] = 1e-3
    op = ln.AvgPool((65,), 1)
    exact = np.array(
        [[np.mean(row[i : i + 65].astype(np.longdouble)) for i in range(336)] for row in x]
    )
    size = np.array(
        [[np.mean(np.abs(row[i : i + 65]).astype(np.longdouble)) for i in range(336)] for row in x]
    )
    unit = 2.0**-24
    bound = (65 * unit / (1 - 65 * unit)) * size
    assert (np.abs(op(x) - exact) <= bound).all()


def test_many_python_threads_may_call_at_once():
    op = ln.MaxPool((3, 3), 2, 1)
    xs = [RNG.standard_normal((8, 8, 60, 60)).astype(np.float32) for _ in range(6)]
    expected = [op(x) for x in xs]
    wrong = []

    def work(k):
        for _ in range(20):
            if not same_bits(op(xs[k]), expected[k]):
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert wrong == []


def pool_in_child(x, answer):
    answer.put(ln.MaxPool((3, 3), 2, 1)(x).sum())


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork"
)
def test_a_child_that_was_forked_after_a_call_can_call(threads):
    threads(2)
    x = RNG.standard_normal((8, 8, 60, 60)).astype(np.float32)
    expected = ln.MaxPool((3, 3), 2, 1)(x).sum()
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    child = context.Process(target=pool_in_child, args=(x, answer))
    child.start()
    assert answer.get(timeout=60) == expected
    child.join(60)
    assert child.exitcode == 0


def test_an_error_in_a_helper_reaches_the_caller():
    from lunette.kernels import threads

    def task(first, last):
        raise RuntimeError("from a range")

    with pytest.raises(RuntimeError, match="from a range"):
        threads.run(task, 10, 2)


@pytest.mark.parametrize("value", [0, -1])
def test_threads_must_be_at_least_one(value):
    with pytest.raises(ValueError, match="n="):
        ln.set_num_threads(value)


def test_float16_rounds_once_and_keeps_subnormals():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    kept = ln.MaxPool((1,))(every)
    assert same_bits(kept, every)
    pairs = every[np.isfinite(every)][:63000].reshape(-1, 2)
    mean = ln.AvgPool((2,))(pairs)[:, 0]
    with np.errstate(over="ignore"):
        wide = pairs.astype(np.float32).sum(-1) / np.float32(2)
        assert same_bits(mean + np.float16(0), wide.astype(np.float16) + np.float16(0))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool"])
@pytest.mark.parametrize("beta", [1.5, -2.0])
def test_padding_is_no_integer_of_a_smooth_max(dtype, beta):
    """Integers have no −∞: a cell outside the row must not count as 0."""
    x = np.random.default_rng(0).integers(0, 2, (3, 9, 21)).astype(dtype) + np.array(1, dtype)
    for padding in ("same", 1):
        reduction = ln.SmoothMax(beta, count_include_pad=False)
        op = ln.Pool((ln.Sliding(3, 2, padding), ln.Sliding(2, 3, padding)), reduction)
        np.testing.assert_allclose(op(x), ln.spec.forward(op, x).astype(float), rtol=1e-13)


@pytest.mark.parametrize("op", [ln.MaxPool((3,)), ln.AvgPool((3,)), ln.GlobalMaxPool(1)])
def test_an_empty_batch_of_huge_axes_is_nothing(op):
    x = np.empty((0, 10**18), np.float32)
    y = op(x)
    assert y.shape == op.out_shape(x.shape) and y.dtype == x.dtype
    assert op.jvp(x, x).shape == y.shape and op.vjp(x, y).shape == x.shape


@pytest.mark.parametrize("verb", ["forward", "forward_with_indices", "vjp"])
def test_windows_far_apart_need_little_memory(verb):
    op, x = ln.MaxPool((3,), stride=200_003), np.zeros((1 << 20) - 5, np.float32)
    x[200_004] = 3
    along = op(x) if verb == "vjp" else None
    call = {
        "forward": lambda: forward_call(op, x.shape, x.strides, x.dtype),
        "forward_with_indices": lambda: indices_call(op, x.shape, x.strides, x.dtype),
        "vjp": lambda: gradient_call(op, x.shape, x.strides, along.strides, x.dtype),
    }[verb]()
    needed = call.scratch if hasattr(call, "scratch") else call.steps[-1][1].scratch
    assert needed <= 64 * x.size
    assert op(x).tolist() == [0, 3, 0, 0, 0, 0]
