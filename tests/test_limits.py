"""No call takes time or memory out of proportion to the cells it reads and writes; what does not fit is refused."""

import os
import random
import subprocess
import sys
import warnings
from itertools import product

import numpy as np
import pytest

import lunette as ln
from lunette import memory, regions
from lunette.kernels.cpu import pooling
from lunette.kernels.cpu.conv import backward_weights, correlate
from lunette.kernels.cpu.layout import split_axis
from lunette.offsets import forward_with_offsets, jvp_from_offsets
from lunette.regions import Adaptive, Global, Region, Sliding
from lunette.spec import convolution as meaning

FULL = pytest.mark.full

# -- each in a process of its own, under a limit of address space --

ANSWERED = {
    "stride past the input": "ln.conv_transpose(x22, w33, stride=400)",
    "stride of one axis": "ln.conv_transpose(x22, w33, stride=(10**6, 2))",
    "gradient of a stride": "ln.Conv((3, 3), (10**5, 4)).vjp((np.ones((1, 1, 10**5 + 3, 7), 'f4'), w33), np.ones((1, 1, 2, 2), 'f4'))",
    "kernel as large as the stride": "ln.conv_transpose(x22, np.ones((1, 1, 300, 300), 'f4'), stride=300)",
    "dilation beside the stride": "ln.conv_transpose(x22, np.ones((1, 1, 40, 40), 'f4'), stride=40, dilation=41)",
    "kernel on padding": "ln.conv(x4, np.ones((1, 1, 10**5), 'f4'), padding=10**5)",
    "its gradients": "ln.Conv((10**5,), 1, 10**5).vjp((x4, np.ones((1, 1, 10**5), 'f4')), np.ones((1, 1, 10**5 + 5), 'f4'))",
    "stride past int64": "ln.conv(x22, w22, stride=2**63)",
    "windows on padding alone": "ln.Conv((1,), 10**9, 10**12).vjp((x4, np.ones((1, 1, 1), 'f4')), np.ones((1, 1, 2001), 'f4'))",
    "an axis of none and one of very many": "ln.Conv((3,)).vjp((np.ones((0, 10**15, 1, 4), 'f4'), np.ones((1, 1, 3), 'f4')), np.ones((0, 10**15, 1, 2), 'f4'))",
    "bins past the positions": "ln.adaptive_max_pool(x4, (6 * 10**7,))",
    "their indices": "ln.adaptive_max_pool(x4, (3 * 10**6,), return_indices=True)",
    "a kernel of padding": "ln.max_pool(x4, (10**9,), padding=5 * 10**8)",
    "many such windows": "ln.avg_pool(x4, (10**9,), stride=1, padding=501 * 10**6)",
    "outputs of padding": "ln.smooth_max_pool(x4, (2,), 1.0, stride=2**40, padding=2**61)",
    "the specification, of padding": "ln.avg_pool(x4, (10**9,), padding=5 * 10**8, backend='spec')",
    "the specification, of a kernel": "ln.conv(x4, np.ones((1, 1, 20000), 'f4'), stride=2000, padding=20000, backend='spec')",
    "sixty axes": "ln.max_pool(np.ones((1,) * 60), (1,) * 60, padding=0)",
    "smooth max of large windows": "ln.smooth_max_pool(np.ones(123605, 'f4'), (60000,), 1.0, stride=1)",
    "its gradient": "ln.SmoothMaxPool((60000,), -1.0, stride=1).vjp(np.ones(123605, 'f4'), np.ones(63606, 'f4'))",
    "smooth max of a dilated window": "ln.SmoothMaxPool((20000,), 1.0, stride=1, dilation=3).jvp(np.ones(123605, 'f4'), np.ones(123605, 'f4'))",
}
LONG_MAXIMA = {
    "values with empty windows": "ln.MaxPool((150000,), 1, 150000)(many)",
    "winners of padding mostly": "ln.dispatch.forward_with_indices(ln.MaxPool((150000,), 10, 750000), many)",
    "tangents where ties count": "ln.MaxPool((150000,), 1, ties='all').jvp(many, many)",
    "gradients where they share": "ln.MaxPool((150000,), 1, ties='split').vjp(many, many[150000 - 1:])",
    "gradients with dilation": "ln.MaxPool((50000,), 1, 0, 3, ties='all').vjp(many, many[3 * 50000 - 3:])",
    "tangents of images": "ln.MaxPool((400, 400), 1, ties='all').jvp(image, image)",
    "gradients of a smooth max with dilation": "ln.SmoothMaxPool((20000,), 1.0, 1, 0, 3).vjp(many[:123605], many[59997:123605])",
}
"""Windows times cells are some 10¹⁰ and more."""
REFUSED = {
    "bins": "ln.adaptive_max_pool(x4, (10**12,))",
    "bins and offsets": "forward_with_offsets(ln.AdaptiveMaxPool((10**9,)), np.ones(4, 'f4'))",
    "indices": "ln.adaptive_max_pool(np.ones(4, 'f2'), (4 * 10**8,), return_indices=True)",
    "padding": "ln.max_pool(x4, (1,), padding=10**18)",
    "a transposed image": "ln.conv_transpose(x22, w22, stride=10**9)",
    "the specification": "ln.adaptive_avg_pool(x4, (10**8,), backend='spec')",
    "unpooling": "ln.max_unpool(np.ones(1), np.zeros(1, np.int64), (10**12,))",
}
PRELUDE = """
import resource, signal, numpy as np, lunette as ln
from lunette.offsets import forward_with_offsets
x4, x22 = np.ones((1, 1, 4), 'f4'), np.ones((1, 1, 2, 2), 'f4')
w22, w33 = np.ones((1, 1, 2, 2), 'f4'), np.ones((1, 1, 3, 3), 'f4')
many = np.arange(300007, dtype='f4') % 5
image = (np.arange(640000, dtype='f4') % 7).reshape(800, 800)
ln.max_pool(x22, (2, 2))
taken = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (1500 << 20),) * 2)
"""


def answers(expressions):
    """What became of each expression, in one process; one that does not end within two minutes ends the process."""
    lines = [PRELUDE]
    for expression in expressions:
        lines.append(
            f"signal.alarm(120)\ntry:\n    {expression}\n    print('answered', flush=True)\n"
            "except ValueError as error:\n    print('refused', error, flush=True)\n"
        )
    finished = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return finished.stdout.splitlines(), finished.stderr[-1500:]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are set as on Linux")
def test_calls_that_cost_little_are_answered():
    said, errors = answers(ANSWERED.values())
    wrong = [
        f"{name}: {text}" for name, text in zip(ANSWERED, said, strict=False) if text != "answered"
    ]
    assert not wrong and len(said) == len(ANSWERED), (wrong, [*ANSWERED][len(said) :][:1], errors)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are set as on Linux")
def test_maxima_of_very_long_overlapping_windows_are_answered():
    said, errors = answers(LONG_MAXIMA.values())
    assert said == ["answered"] * len(LONG_MAXIMA), (said, [*LONG_MAXIMA][len(said) :][:1], errors)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are set as on Linux")
def test_calls_that_do_not_fit_are_refused_with_what_they_need():
    said, errors = answers(REFUSED.values())
    wrong = [
        f"{name}: {text}"
        for name, text in zip(REFUSED, said, strict=False)
        if not (text.startswith("refused") and "needs" in text and "this machine has" in text)
    ]
    assert not wrong and len(said) == len(REFUSED), (wrong, errors)


# -- convolution over the cells and taps that meet --


def convolution(rng):
    rank = rng.choice([1, 1, 2, 2, 3])
    draw = lambda low, high: tuple(rng.randint(low, high) for _ in range(rank))  # noqa: E731
    kernel, groups = draw(1, 5), rng.choice([1, 1, 2, 3])
    padding = tuple(zip(draw(0, 9), draw(0, 9), strict=True))
    inputs, outputs = groups * rng.randint(1, 3), groups * rng.randint(1, 3)
    if rng.random() < 0.5:
        op = ln.ConvTranspose(kernel, draw(1, 9), padding, 0, draw(1, 7), groups)
        weight = (inputs, outputs // groups, *kernel)
    else:
        op = ln.Conv(kernel, draw(1, 9), padding, draw(1, 7), groups)
        weight = (outputs, inputs // groups, *kernel)
    shapes = ((*rng.choice([(), (2,), (1, 3)]), inputs, *draw(1, 9)), weight, (outputs,))
    try:
        return op, shapes, op.out_shape(*shapes)
    except ValueError:
        return convolution(rng)


def drawn_convolution(seed):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    op, shapes, out = convolution(rng)
    dtype = rng.choice(["f4", "f8"])
    *operands, grad = (numbers.standard_normal(s).astype(dtype) for s in (*shapes, out))
    if rng.random() < 0.25:
        for array in (operands[0], operands[1], grad):
            if rng.random() < 0.5:
                array.reshape(-1)[rng.randrange(array.size)] = rng.choice([np.nan, np.inf, -np.inf])
    return op, tuple(operands), grad


def verbs(op, operands, grad, backend="cpu"):
    value = ln.forward(op, *operands, backend=backend)
    tangent = ln.jvp(op, operands, operands, backend=backend)
    return value, tangent, *ln.vjp(op, operands, grad, backend=backend)


@pytest.mark.parametrize("first, count", [(0, 36), pytest.param(1000, 3000, marks=FULL)])
def test_sums_of_what_meets_are_those_of_the_other_kernels(monkeypatch, first, count):
    """Bit for bit, but for the gradient of the weight, whose order differs; and as the specification where numbers are not finite."""
    for seed in range(first, first + count):
        op, operands, grad = drawn_convolution(seed)
        found = {}
        for sparse in (False, True):
            for module in (correlate, backward_weights):
                monkeypatch.setattr(module, "sparse", lambda *_, sparse=sparse: sparse)
            found[sparse] = verbs(op, operands, grad)
        finite = all(np.isfinite(a).all() for a in (*operands, grad))
        for number, (dense, thin) in enumerate(zip(found[False], found[True], strict=True)):
            if finite and number != 3:
                assert dense.tobytes() == thin.tobytes(), (seed, op, number)
            assert np.array_equal(np.isnan(dense), np.isnan(thin)), (seed, op, number)
            assert np.allclose(dense, thin, 1e-4, 1e-4, equal_nan=True), (seed, op, number)
        if seed % 6 == 0:
            for a, b in zip(verbs(op, operands, grad, "spec"), found[True], strict=True):
                assert np.allclose(a, b, 1e-3, 1e-3, equal_nan=True), (seed, op)


def test_the_specification_multiplies_padding_all_the_same():
    """As if the image had its zeros around it, also for weights and gradients that are no numbers."""
    for seed in range(30):
        op, operands, grad = drawn_convolution(seed)
        if op.transposed:
            continue
        x, weight, bias = operands
        pads = [(0, 0)] * (x.ndim - op.rank) + [*op.padding]
        wide, bare = np.pad(x, pads), ln.Conv(op.kernel, op.stride, 0, op.dilation, op.groups)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number in (0, 3, 4):
                a = verbs(op, (x, weight, bias), grad, "spec")[number]
                b = verbs(bare, (wide, weight, bias), grad, "spec")[number]
                assert np.array_equal(a, b, equal_nan=True), (seed, op, number)


def test_the_walk_passes_over_padding():
    op = ln.Conv((10**4,), 1, 10**4)
    steps = list(meaning.walk(op, (1, 10**4 + 4), (1, 3), (1, 1, 10**4)))
    assert len(steps) == 3 * 10**4


def test_half_types_overflow_without_a_warning():
    x, w = np.full((1, 1, 3), 60000, "f2"), np.full((1, 1, 2), 2, "f2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for backend in ("cpu", "spec"):
            assert np.isinf(ln.conv(x, w, backend=backend)).all()
            assert np.isinf(ln.conv_transpose(x, w, backend=backend)).all()
            gradients = ln.vjp(ln.Conv((2,)), (x, w), x[..., :2], backend=backend)
            assert np.isinf(gradients[0]).all() and np.isinf(gradients[1]).all()


# -- smooth max of huge windows --


def region(rng):
    kind = rng.random()
    if kind < 0.6:
        padding = rng.choice([0, "same", (rng.randint(0, 7), rng.randint(0, 7))])
        return Sliding(
            rng.randint(1, 6), rng.randint(1, 4), padding, rng.randint(1, 3), rng.random() < 0.5
        )
    return Adaptive(rng.randint(1, 6)) if kind < 0.85 else Global()


@pytest.mark.parametrize("first, count", [(0, 120), pytest.param(1000, 6000, marks=FULL)])
def test_whole_axes_at_a_time_are_as_the_specification(monkeypatch, first, count):
    monkeypatch.setattr(pooling, "is_huge", lambda *_: True)
    for seed in range(first, first + count):
        rng, numbers = random.Random(seed), np.random.default_rng(seed)
        axes = tuple(region(rng) for _ in range(rng.choice([1, 1, 2, 3])))
        reduction = ln.SmoothMax(rng.choice([1.0, -2.0, 5.0, -0.3]), rng.random() < 0.5)
        kept = rng.random() < 0.7 or not all(isinstance(r, Global) for r in axes)
        op = ln.Pool(axes, reduction, kept)
        shape = (*rng.choice([(), (2,)]), *(rng.randint(1, 7) for _ in axes))
        try:
            out = op.out_shape(shape)
        except ValueError:
            continue
        dtype, loose = rng.choice([("f2", 2e-2), ("f4", 1e-4), ("f8", 1e-10)])
        x, dx, gy = (numbers.standard_normal(s).astype(dtype) for s in (shape, shape, out))
        if rng.random() < 0.3:
            x.reshape(-1)[rng.randrange(x.size)] = rng.choice([np.nan, np.inf, -np.inf])
        calls = (
            lambda b, op=op, x=x: ln.forward(op, x, backend=b),
            lambda b, op=op, x=x, dx=dx: ln.jvp(op, x, dx, backend=b),
            lambda b, op=op, x=x, gy=gy: ln.vjp(op, x, gy, backend=b),
        )
        for call in calls:
            found, expected = call("cpu"), call("spec")
            assert found.shape == expected.shape and found.dtype == expected.dtype
            assert np.allclose(found, expected, loose, loose, equal_nan=True), (seed, op, shape)


def test_a_huge_window_has_the_bits_of_its_part():
    x = np.random.default_rng(0).standard_normal(12000).astype("f4")
    op = ln.SmoothMaxPool((6000,), 2.0, stride=1)
    part = op.regions[0].part(12000, 1000, 4000)
    lo, hi = part.slab_range
    whole, some = op(x), ln.Pool((part,), op.reduction)(x[lo:hi])
    assert whole[1000:4000].tobytes() == some.tobytes()
    assert np.allclose(whole[::1500], ln.SmoothMaxPool((6000,), 2.0, stride=1500)(x), 1e-5)


# -- max of huge windows --


def max_case(seed):
    """An op, its input with many ties, and a tangent and a gradient whose sums are exact."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    axes = tuple(region(rng) for _ in range(rng.choice([1, 1, 2, 3])))
    kept = rng.random() < 0.7 or not all(isinstance(r, Global) for r in axes)
    op = ln.Pool(axes, ln.Max(rng.choice(["first", "all", "split"])), kept)
    shape = (*rng.choice([(), (2,), (2, 3)]), *(rng.randint(1, 8) for _ in axes))
    try:
        out = op.out_shape(shape)
    except ValueError:
        return max_case(seed + 10**6)
    dtype = np.dtype(rng.choice(["f2", "f4", "f8", "i8", "u8", "?"]))
    cells = [-0.0, 0.0, 1, 2, -1, np.inf, -np.inf, np.nan]
    if dtype.kind in "iu":
        cells = [np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1, 5]
    if dtype.kind == "b":
        cells = [False, True]
    x = numbers.choice(np.array(cells, dtype), shape)
    dx, gy = (numbers.integers(-8, 9, s).astype(dtype) for s in (shape, out))
    return op, x, dx, gy


@pytest.mark.parametrize("first, count", [(0, 150), pytest.param(1000, 6000, marks=FULL)])
def test_maxima_whole_axes_at_a_time_are_as_the_specification(monkeypatch, first, count):
    """To the bit, but for shares of three winners and more, which are rounded otherwise."""
    monkeypatch.setattr(pooling, "huge_max", lambda *_: True)
    for seed in range(first, first + count):
        op, x, dx, gy = max_case(seed)
        calls = {
            "values": lambda b, op=op, x=x: (ln.forward(op, x, backend=b),),
            "winners": lambda b, op=op, x=x: ln.dispatch.forward_with_indices(op, x, backend=b),
            "jvp": lambda b, op=op, x=x, dx=dx: (ln.jvp(op, x, dx, backend=b),),
            "vjp": lambda b, op=op, x=x, gy=gy: (ln.vjp(op, x, gy, backend=b),),
        }
        for verb, call in calls.items():
            if x.dtype.kind != "f" and verb in ("jvp", "vjp"):
                continue
            for found, expected in zip(call("cpu"), call("spec"), strict=True):
                case = (seed, op, x.shape, x.dtype, verb)
                assert (found.shape, found.dtype) == (expected.shape, expected.dtype), case
                if verb == "vjp" and op.reduction.ties == "split":
                    loose = 1e-2 if x.dtype == "f2" else 1e-5
                    assert np.allclose(found, expected, loose, loose), case
                else:
                    assert found.tobytes() == expected.tobytes(), case


@pytest.mark.parametrize("options", [{"padding": 6000}, {"ties": "all"}, {"ties": "split"}])
def test_a_huge_max_has_the_bits_of_its_part_and_of_its_neighbours(options):
    """Whole axes at a time, in parts, and one window by itself."""
    numbers = np.random.default_rng(0)
    x, dx = (numbers.integers(0, 3, 14000) * 0.1).astype("f4"), numbers.standard_normal(14000)
    op = ln.MaxPool((6000,), stride=1, **options)
    first, last = 1000, 4000
    part = op.regions[0].part(14000, first, last)
    lo, hi = part.slab_range
    some = ln.Pool((part,), op.reduction)
    assert op(x)[first:last].tobytes() == some(x[lo:hi]).tobytes()
    whole, of_part = op.jvp(x, dx.astype("f4")), some.jvp(x[lo:hi], dx[lo:hi].astype("f4"))
    assert whole[first:last].tobytes() == of_part.tobytes()
    start, stop, *_ = op.regions[0].window(14000, 2000)
    if start < stop:
        tied = dx.astype("f4")[start:stop][x[start:stop] == x[start:stop].max()].astype("f8")
        share = len(tied) if op.reduction.ties == "split" else 1
        exact = tied[0] if op.reduction.ties == "first" else tied.sum() / share
        assert abs(whole[2000] - exact) <= 1e-6 * max(1, abs(exact))


# -- axes of very many outputs --


@pytest.mark.parametrize(
    "op, shape",
    [
        (ln.AdaptiveMaxPool((500,)), (2, 3)),
        (ln.AdaptiveAvgPool((3, 400)), (2, 7)),
        (ln.MaxPool((2,), 1, 200), (3, 5)),
        (ln.AvgPool((200,), 1, 190, count_include_pad=False), (2, 9)),
        (ln.SmoothMaxPool((4,), 0.5, 2, ((100, 90),), 7, True), (2, 5)),
        (ln.AvgPool((2, 90), (1, 1), ((1, 0), (80, 95)), 1, True), (4, 6)),
    ],
    ids=repr,
)
def test_many_outputs_in_parts_have_the_same_bits(monkeypatch, op, shape):
    x = np.random.default_rng(1).integers(-9, 9, shape).astype(np.float32)
    verbs = {
        "forward": lambda: [ln.forward(op, x)],
        "jvp": lambda: [ln.jvp(op, x, x[::-1])],
        "indices": lambda: ln.dispatch.forward_with_indices(op, x),
    }
    if not isinstance(op.reduction, ln.Max):
        del verbs["indices"]
    whole = {name: verb() for name, verb in verbs.items()}
    calls = pooling.forward_call, pooling.indices_call, pooling.tangent_call
    monkeypatch.setattr(split_axis, "LONG", 64)
    monkeypatch.setattr(regions, "MANY", 4)
    for call in calls:
        call.cache_clear()
    assert split_axis.long_outputs(op, shape) is not None
    for name, verb in verbs.items():
        for a, b in zip(verb(), whole[name], strict=True):
            assert a.tobytes() == b.tobytes(), name
    for call in calls:
        call.cache_clear()


@pytest.mark.parametrize("count", [1500, pytest.param(60_000, marks=FULL)])
def test_runs_tables_and_slabs_follow_from_windows(monkeypatch, count):
    rng = random.Random(count)
    for _ in range(count):
        padding = rng.choice(["same", rng.randint(0, 12), (rng.randint(0, 12), rng.randint(0, 12))])
        r: Region = Adaptive(rng.randint(1, 30))
        if rng.random() < 0.7:
            sizes = rng.randint(1, 9), rng.randint(1, 5), padding, rng.randint(1, 4)
            r = Sliding(*sizes, rng.random() < 0.5)
        n = rng.randint(1, 9)
        try:
            m = r.out_length(n)
        except ValueError:
            continue
        monkeypatch.setattr(regions, "MANY", rng.choice([1, 2, 4]))
        done = 0
        for begin, end, same in r.runs(n):
            windows = {
                (w.start, w.stop, w.counted) for i in range(begin, end) for w in [r.window(n, i)]
            }
            assert begin == done <= end and (not same or len(windows) <= 1), (r, n)
            done = end
        first, last = sorted((rng.randint(0, m), rng.randint(0, m)))
        rows = [list(r.window(n, i)) for i in range(first, last)]
        assert done == m and Region.table(r, n, first, last).tolist() == rows, (r, n)
        read = [row for row in rows if row[1] > row[0]]
        hull = (min(row[0] for row in read), max(row[1] for row in read)) if read else (0, 0)
        assert r.slab(n, first, last) == hull, (r, n, first, last)
        if first < last:
            part = r.part(n, first, last)
            low, high = part.slab_range
            p = rng.randrange(high - low)
            expected = [i - first for i in r.readers(n, low + p, low + p + 1) if first <= i < last]
            assert [*part.readers(high - low, p, p + 1)] == expected


def test_offsets_of_numbers_past_int64():
    x = np.array([3.0, 5.0, 4.0])
    op = ln.MaxPool((3,), 2**80, 2**70, 2**70)
    value, offsets = forward_with_offsets(op, x)
    assert value.tolist() == [3.0] and offsets.tolist() == [1]
    assert jvp_from_offsets(op, offsets, x).tolist() == [3.0]


# -- what memory there is --


def test_a_refusal_counts_tables_and_scratch(monkeypatch):
    monkeypatch.setattr(memory, "_of_machine", lambda: 1000)
    with pytest.raises(ValueError, match=r"needs 1600 bytes, 800 of them for tables.*has 1000"):
        memory.check_fits((10, 10), np.dtype("f8"), 800)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are set as on Linux")
def test_memory_is_what_the_limit_of_address_space_leaves():
    text = (
        "import resource, lunette.memory as m; a = m.available();"
        "resource.setrlimit(resource.RLIMIT_AS, (8 << 30,) * 2); print(m.available() < 8 << 30, a)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, env=environment
    )
    assert run.stdout.startswith("True")


# -- arguments: a few by hand --


def test_messages_are_short_and_name_the_argument():
    for value, name in product(
        (10**400, 10**5000, "é" * 10**5, (1,) * 10**5), ("kernel", "stride")
    ):
        with pytest.raises((ValueError, TypeError), match=f"{name}=") as raised:
            ln.MaxPool(**{"kernel": (2,), name: value if name == "stride" else (value,)})
        assert len(str(raised.value)) < 400
    with pytest.raises(TypeError, match="regions=2"):
        ln.Pool(2, ln.Max())
    with pytest.raises(TypeError, match="op=3"):
        ln.forward(3, np.zeros(2))
    with pytest.raises(ValueError, match=r"backend=\['cpu'\]"):
        ln.max_pool(np.zeros(2), (2,), backend=["cpu"])
    assert (
        repr(ln.AvgPool((2,), divisor_override=np.int64(3))) == "AvgPool((2,), divisor_override=3)"
    )


@pytest.mark.parametrize("indices", [False, True])
def test_an_empty_result_that_no_array_can_have(indices):
    """NumPy multiplies the other lengths of an empty shape all the same."""
    x = np.zeros((0, 2, 5), np.float16)
    with pytest.raises(ValueError, match=r"x of shape .* smaller output_size"):
        ln.adaptive_max_pool(x, (2**63 + 5, 2**63 + 5), return_indices=indices)
    assert ln.adaptive_max_pool(x, (3, 4)).shape == (0, 3, 4)
