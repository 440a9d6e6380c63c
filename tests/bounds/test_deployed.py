"""The deployed term: weights that cancel, other libraries, underflow; and what is refused."""

import numpy as np
import pytest

import lunette as ln
from lunette.bounds import Box, Deployment, decide, lower_bounds, split
from lunette.bounds.reading import network_of
from tests.bounds import nets

METHODS = ("ibp", "crown", "tight")


def cancelling(n=8):
    """Σ w·x is about 1 over products of about 2²⁴: every order rounds otherwise."""
    weight = np.ones((1, n), np.float32)
    weight[0, ::2], weight[0, 1::2] = 2.0**24, -(2.0**24)
    return [("linear", {"weight": weight, "bias": np.array([0.75], np.float32)}), ("relu", {})]


@pytest.mark.parametrize("method", METHODS)
def test_weights_that_cancel(method):
    """Bounds of the real network miss what float32 returns in some order; ours never do."""
    rng = np.random.default_rng(0)
    layers = cancelling()
    x = np.full((1, 8), 1.0, np.float32) + rng.integers(0, 4, (1, 8)).astype(
        np.float32
    ) * np.float32(2.0**-23)
    tape, leaf, y = nets.record(layers, x)
    real, deployed = (
        ln.bounds(tape, y, {leaf: Box(x, x)}, method=method, deployment=d)
        for d in (None, Deployment())
    )
    found = [nets.in_order(layers, x, rng, fused) for fused in (False, True) for _ in range(40)]
    assert all(deployed.contains(v) for v in found)
    assert not all(real.contains(v) for v in found)
    assert len({float(v[0, 0]) for v in found}) > 1


def test_other_libraries_batches_and_layouts():
    torch = pytest.importorskip("torch")
    for seed in range(4):
        rng = np.random.default_rng(seed)
        layers = [
            nets.conv(rng, 2, 8, (3, 3), padding=1),
            ("relu", {}),
            ("max", {"op": ln.MaxPool((2, 2))}),
            ("flatten", {}),
        ]
        layers.append(nets.linear(rng, 8 * 16, 4))
        lo, hi = nets.box(rng, (1, 2, 8, 8), 0.01)
        tape, leaf, y = nets.record(layers, lo)
        boxes = [ln.bounds(tape, y, {leaf: Box(lo, hi)}, method=m) for m in METHODS]
        points = np.concatenate(list(nets.points(rng, lo, hi, 9)))
        conv, dense = layers[0][1], layers[-1][1]
        for channels_last in (False, True):
            for batch in (1, 9):
                for part in torch.from_numpy(points).split(batch):
                    z = (
                        part.contiguous(memory_format=torch.channels_last)
                        if channels_last
                        else part
                    )
                    z = torch.nn.functional.conv2d(
                        z,
                        torch.from_numpy(conv["weight"]),
                        torch.from_numpy(conv["bias"]),
                        padding=1,
                    )
                    z = torch.nn.functional.max_pool2d(z.relu(), 2).reshape(len(part), -1)
                    z = torch.nn.functional.linear(
                        z, torch.from_numpy(dense["weight"]), torch.from_numpy(dense["bias"])
                    )
                    for value in z.numpy():
                        assert all(box.contains(value[None]) for box in boxes)


def test_underflow():
    """Products below the smallest number vanish: relative bounds alone would not hold."""
    weight = np.full((1, 6), 2.0**-80, np.float32)
    layers = [("linear", {"weight": weight, "bias": np.zeros(1, np.float32)})]
    x = np.full((1, 6), 2.0**-70, np.float32)
    tape, leaf, y = nets.record(layers, x)
    assert nets.by_kernels(layers, x)[0, 0] == 0
    assert not ln.bounds(tape, y, {leaf: Box(x, x)}, deployment=None).contains(np.zeros((1, 1)))
    assert ln.bounds(tape, y, {leaf: Box(x, x)}).contains(np.zeros((1, 1)))
    small = np.full((1, 6), 2.0**-130, np.float32)
    flushed = ln.bounds(
        tape, tape.relu(y), {leaf: Box(small, small)}, deployment=Deployment(flush_subnormals=True)
    )
    assert flushed.hi[0, 0] >= 2.0**-126


def test_curves_and_two_paths():
    rng = np.random.default_rng(4)
    tape = ln.Tape()
    x = tape.leaf(np.zeros((1, 5), np.float32))
    z = tape.tanh(tape.linear(x, nets.numbers(rng, 5, 5)))
    z = tape.add(tape.sigmoid(tape.sub(z, x)), tape.relu(x))
    lo, hi = nets.box(rng, (1, 5), 2.0)
    for method in METHODS:
        box = ln.bounds(tape, z, {x: Box(lo, hi)}, method=method)
        for point in nets.points(rng, lo, hi, 60):
            other = ln.Tape()
            p = other.leaf(point)
            w = tape.value(1)
            q = other.tanh(other.linear(p, w))
            assert box.contains(
                other.value(other.add(other.sigmoid(other.sub(q, p)), other.relu(p)))
            )


def test_a_sigmoid_that_is_a_half_and_an_odd_function():
    """Runtimes compute it so; what is left of 0.5 − 0.5 has no digit in common with a small result."""
    x = np.linspace(-30, 30, 601, dtype=np.float32).reshape(1, -1)
    half = np.float32(0.5)
    values = half + half * np.tanh(half * x)
    tape = ln.Tape()
    leaf = tape.leaf(x)
    y = tape.sigmoid(leaf)
    for method in METHODS:
        assert ln.bounds(tape, y, {leaf: Box(x, x)}, method=method).contains(values)


def test_a_product_of_constants_that_is_added():
    """A Gemm's β·C is rounded once before it is added: the addition's charge holds that too."""
    rng = np.random.default_rng(8)
    x, bias = nets.numbers(rng, 1, 400), nets.numbers(rng, 1, 400, scale=1e3)
    beta, tape = np.float32(1.7), ln.Tape()
    leaf = tape.leaf(x)
    y = tape.add(leaf, tape.mul(bias, beta))
    found = ln.bounds(tape, y, {leaf: Box(x, x)})
    assert found.contains(tape.value(y))
    exact = x.astype(np.float64) + bias.astype(np.float64) * np.float64(beta)
    real = ln.bounds(tape, y, {leaf: Box(x, x)}, deployment=None)
    assert found.contains(exact) and real.contains(exact) and not real.contains(tape.value(y))
    wide = ln.Tape()
    leaf = wide.leaf(x.astype(np.float64))
    y = wide.add(leaf, wide.mul(bias.astype(np.float64), np.float64(1.7)))
    with pytest.raises(ValueError, match="was computed, with rounding, by node"):
        ln.bounds(wide, y, {leaf: Box(x, x)}, deployment=Deployment("float64"))


# -- deciding --


def test_decisions_are_right():
    """Proved by cuts where bounds alone leave it open; refuted with a point that shows it."""
    tape = ln.Tape()
    x = tape.leaf(np.zeros((1, 2), np.float32))
    # |a + b| + |a − b| − 1.2·max(|a|, |b|)… written as relus of linear functions: at least 0 with room 0.05.
    weight = np.array([[1, 1], [-1, -1], [1, -1], [-1, 1]], np.float32)
    y = tape.linear(
        tape.relu(tape.linear(x, weight)),
        np.array([[1, 1, 1, 1]], np.float32),
        np.array([0.05], np.float32),
    )
    boxes = {x: Box(np.full((1, 2), -1.0), np.full((1, 2), 1.0))}
    assert lower_bounds(tape, y, boxes, [[[1.0]]], method="tight")[0] <= 0.05
    assert decide(tape, y, boxes, [[[1.0]]], parts=400).status == "proved"
    z = tape.sub(y, np.array([0.5], np.float32))
    verdict = decide(tape, z, boxes, [[[1.0]]])
    assert verdict.status == "refuted"
    point = verdict.point[x]
    assert np.abs(weight @ point[0]).sum() + 0.05 - 0.5 <= 0 and boxes[x].contains(point)


@pytest.mark.parametrize("seed", range(4))
def test_no_part_of_a_box_is_lost(seed):
    """Rows moved to just below the least value found are never proved; well below it they are."""
    rng, layers, shape = nets.finished(seed + 40, ("max",), outputs=1)
    lo, hi = nets.box(rng, shape, 0.05)
    values = [float(nets.by_kernels(layers, x)[0, 0]) for x in nets.points(rng, lo, hi, 30)]
    for shift, wanted in (
        (-min(values) - 1e-4, {"refuted", "open"}),
        (3.0 - min(values), {"proved"}),
    ):
        tape, x, y = nets.record(layers, np.zeros(shape, np.float32))
        z = tape.add(y, np.array([shift], np.float32))
        assert decide(tape, z, {x: Box(lo, hi)}, [[[1.0]]], parts=12).status in wanted


@pytest.mark.parametrize("inputs", [1, 2, 9], ids="{} inputs".format)
@pytest.mark.parametrize("side", ["low", "high"])
def test_a_row_that_fails_on_one_side_of_a_cut_is_never_proved(inputs, side):
    """One side of z = 0 is easily proved, on the other the row is negative. No attack comes first."""
    tape = ln.Tape()
    x = tape.leaf(np.zeros((1, inputs), np.float32))
    z = tape.linear(x, np.eye(1, inputs, dtype=np.float32))
    bent = tape.relu(z)
    if side == "low":
        y = tape.add(tape.add(bent, tape.mul(z, np.float32(0.5))), np.float32(0.0625))
    else:
        y = tape.sub(np.full((1, 1), 0.0625, np.float32), tape.mul(bent, np.float32(2.0)))
    boxes = {x: Box(np.full((1, inputs), -1.0), np.full((1, inputs), 1.0))}
    network = network_of(tape, y, boxes, Deployment())
    verdict = split._search(network, np.ones((1, 1, 1)), Deployment(), 60)
    assert verdict.status == "open" and verdict.least <= 0
    assert decide(tape, y, boxes, [[[1.0]]]).status == "refuted"


# -- refusals: ValueError or TypeError that name the node and the argument --


def simple():
    tape = ln.Tape()
    return tape, tape.leaf(np.zeros((1, 3), np.float32), "x")


UNIT = Box(np.zeros((1, 3)), np.ones((1, 3)))


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: Box([0.0, 2.0], [1.0, 1.0]), ValueError, "lo=.*2.0.* is above hi"),
        (lambda: Box([np.nan], [1.0]), ValueError, "lo=.*nan.* at .0,."),
        (lambda: Box([0.0], [np.inf]), ValueError, "hi=.*inf"),
        (lambda: Box(["a"], [1.0]), TypeError, "lo has dtype"),
        (lambda: Box(np.zeros(2), np.zeros(3)), ValueError, "one shape"),
        (lambda: Box(np.ma.array([0.0], mask=[True]), [1.0]), TypeError, "lo is a masked array"),
        (lambda: UNIT.contains(np.ma.zeros((1, 3))), TypeError, "x is a masked array"),
        (lambda: Box(0.0, 1e200), ValueError, "2\\*\\*400"),
        (lambda: Deployment("float16"), ValueError, "dtype='float16'"),
        (lambda: Deployment("tf32"), ValueError, "dtype='tf32'"),
    ],
)
def test_bad_boxes_and_deployments(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_integers_that_floats_would_round():
    assert Box(0.0, 2.0**53).contains(2**53) and not Box(0.0, 2.0**53).contains(2**53 + 1)


@pytest.mark.parametrize(
    "program, error, words",
    [
        (lambda t, x: t.mul(x, x), ValueError, "node 1 'mul'.*product of two"),
        (lambda t, x: t.exp(x), ValueError, "node 1 'exp'.*no bounds of this op"),
        (lambda t, x: t.log(x), ValueError, "node 1 'log'"),
        (
            lambda t, x: t.softmax_cross_entropy(x, np.array([1])),
            ValueError,
            "softmax_cross_entropy",
        ),
        (
            lambda t, x: t.div(np.ones((1, 3), np.float32), x),
            ValueError,
            "division by a number in a box",
        ),
        (
            lambda t, x: t.mul(x, np.float32(np.nan)),
            ValueError,
            "operand 1, node 1 'constant' holds nan",
        ),
        (lambda t, x: t.mul(x, np.float32(np.inf)), ValueError, "holds inf"),
        (
            lambda t, x: t.linear(x, np.full((2, 3), 0.1)),
            ValueError,
            "weight holds 0.1, which is no float32",
        ),
        (
            lambda t, x: t.linear(t.leaf(np.ones((1, 3), np.float32)), np.ones((2, 3), np.float32)),
            ValueError,
            "depends on no leaf",
        ),
        (lambda t, x: t.mul(x, np.float32(3e38)), ValueError, "may reach .* and overflow float32"),
        (lambda t, x: t.matmul(x, t.transpose(x)), ValueError, "product of two matrices"),
        (lambda t, x: t.smooth_max_pool(x, 0.1, kernel=(3,)), ValueError, "beta=0.1"),
        (
            lambda t, x: t.linear(x, t.exp(t.leaf(np.zeros((2, 3), np.float32)))),
            ValueError,
            "with rounding, by node 2 'exp'",
        ),
    ],
)
def test_what_has_no_bounds_is_refused_by_name(program, error, words):
    tape, x = simple()
    with np.errstate(all="ignore"):
        y = program(tape, x)
    box = Box(np.full((1, 3), 0.5), np.full((1, 3), 2.0))
    for method in METHODS:
        with pytest.raises(error, match=words):
            ln.bounds(tape, y, {x: box}, method=method)


def test_bad_arguments():
    tape, x = simple()
    y = tape.relu(x)
    for boxes, error, words in (
        ({x: Box(np.zeros(3), np.ones(3))}, ValueError, "box of node 0 'x' has shape"),
        ({x: (0, 1)}, TypeError, "expected a Box"),
        ({y: UNIT}, ValueError, "node 1 'relu' is no leaf"),
        ({}, TypeError, "at least one"),
        ([1], TypeError, "expected a dict"),
    ):
        with pytest.raises(error, match=words):
            ln.bounds(tape, y, boxes)
    with pytest.raises(ValueError, match="method='best'"):
        ln.bounds(tape, y, {x: UNIT}, method="best")
    with pytest.raises(TypeError, match="deployment="):
        ln.bounds(tape, y, {x: UNIT}, deployment="float32")
    with pytest.raises(TypeError, match="tape="):
        ln.bounds(None, y, {x: UNIT})
    with pytest.raises(ValueError, match="rows have shape"):
        lower_bounds(tape, y, {x: UNIT}, np.ones(3))
    tape.release()
    with pytest.raises(ValueError, match="released"):
        ln.bounds(tape, y, {x: UNIT})


def test_empty_batches_and_single_numbers():
    for shape in ((0, 4), (1, 4)):
        tape = ln.Tape()
        x = tape.leaf(np.zeros(shape, np.float32))
        y = tape.max_pool(tape.relu(tape.linear(x, np.ones((4, 4), np.float32))), kernel=(2,))
        for method in METHODS:
            box = ln.bounds(tape, y, {x: Box(-1.0, 1.0)}, method=method)
            assert box.shape == (shape[0], 2)


def test_memory_stays_bounded():
    """Rows go in batches: an image of 32 × 32 needs no array of cells × cells."""
    import tracemalloc

    rng = np.random.default_rng(0)
    layers = [
        nets.conv(rng, 1, 4, (3, 3), padding=1),
        ("relu", {}),
        nets.conv(rng, 4, 4, (3, 3), padding=1),
        ("relu", {}),
    ]
    tape, x, y = nets.record(
        [*layers, ("max", {"op": ln.MaxPool((32, 32))})], np.zeros((1, 1, 32, 32), np.float32)
    )
    lo, hi = nets.box(rng, (1, 1, 32, 32), 0.001)
    tracemalloc.start()
    ln.bounds(tape, y, {x: Box(lo, hi)})
    assert tracemalloc.get_traced_memory()[1] < 400 << 20
    tracemalloc.stop()
