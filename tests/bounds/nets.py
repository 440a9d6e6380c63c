"""Random small networks, and the same networks computed in other ways: orders, layouts, exactly."""

import math
from fractions import Fraction

import numpy as np

import lunette as ln


def numbers(rng, *shape, scale=1.0):
    """Random float32 weights."""
    return (rng.normal(size=shape) * scale).astype(np.float32)


def conv(rng, channels, out, kernel, **options):
    groups = options.get("groups", 1)
    weight = numbers(
        rng, out, channels // groups, *kernel, scale=1 / math.sqrt(channels * math.prod(kernel))
    )
    return ("conv", {"weight": weight, "bias": numbers(rng, out, scale=0.3), **options})


def linear(rng, n, out):
    return (
        "linear",
        {
            "weight": numbers(rng, out, n, scale=1 / math.sqrt(n)),
            "bias": numbers(rng, out, scale=0.3),
        },
    )


def pool(rng, kind, rank=2):
    """A random window: padded, dilated, with ceil_mode, adaptive or global."""
    choice = rng.integers(5)
    extra = {"beta": float(rng.choice([0.5, 3.0, -2.0, 40.0]))} if kind == "smooth" else {}
    if choice == 0:
        return (
            kind,
            {"op": ln.Pool((ln.Adaptive(int(rng.integers(1, 5))),) * rank, reduction(kind, extra))},
        )
    if choice == 1:
        return (kind, {"op": ln.Pool((ln.Global(),) * rank, reduction(kind, extra))})
    kernel = int(rng.integers(2, 4))
    region = ln.Sliding(
        kernel,
        int(rng.integers(1, 3)),
        int(rng.integers(0, 2)),
        int(rng.integers(1, 3)) if choice == 2 else 1,
        bool(rng.integers(2)),
    )
    return (kind, {"op": ln.Pool((region,) * rank, reduction(kind, extra))})


def reduction(kind, extra):
    return {"max": ln.Max, "mean": ln.Mean, "smooth": ln.SmoothMax}[kind](**extra)


def random_layers(seed, kinds=("max", "mean")):
    """Layers of a network on (1, channels, 7, 7) or (1, channels, 12), and the input's shape."""
    rng = np.random.default_rng(seed)
    rank = 1 if rng.integers(4) == 0 else 2
    shape = (1, int(rng.integers(1, 3)), *((12,) if rank == 1 else (7, 7)))
    layers, channels = [], shape[1]
    for _ in range(int(rng.integers(1, 3))):
        out = int(rng.integers(2, 5))
        layers.append(
            conv(rng, channels, out, (3,) * rank, padding=1, stride=int(rng.integers(1, 3)))
        )
        channels = out
        if rng.integers(4):
            layers.append(("relu", {}))
        layers.append(pool(rng, str(rng.choice(kinds)), rank))
        if rng.integers(4) == 0:
            layers.append(("relu", {}))
    layers.append(("flatten", {}))
    return rng, layers, shape


def record(layers, x, convert=lambda a: a):
    """The layers on a tape; `convert` brings weights into the number system of x."""
    tape = ln.Tape()
    first = z = tape.leaf(x, "x")
    for kind, given in layers:
        z = apply(tape, z, kind, given, convert)
    return tape, first, z


def apply(tape, z, kind, given, convert):
    given = dict(given)
    if kind in ("conv", "conv_transpose"):
        weight, bias = convert(given.pop("weight")), convert(given.pop("bias"))
        return getattr(tape, kind)(weight, bias, z, **given)
    if kind == "linear":
        return tape.linear(z, convert(given["weight"]), convert(given["bias"]))
    if kind == "scale":
        return tape.add(tape.mul(z, convert(given["by"])), convert(given["plus"]))
    if kind in ("max", "mean", "smooth"):
        return tape.apply(given["op"], z)
    if kind == "flatten":
        return tape.flatten(z)
    return getattr(tape, kind)(z)


def finished(seed, kinds=("max", "mean"), outputs=3):
    """Layers that end in `outputs` numbers, and the input's shape."""
    while True:
        rng, layers, shape = random_layers(seed, kinds)
        try:
            tape, _, y = record(layers, np.zeros(shape, np.float32))
        except ValueError:  # a window longer than what is left
            seed += 7919
            continue
        layers.append(linear(rng, tape.value(y).shape[1], outputs))
        return rng, layers, shape


def fractions(a):
    return np.vectorize(lambda v: Fraction(float(v)), otypes=[object])(a)


def exactly(layers, x):
    """The value over rationals."""
    tape, _, y = record(layers, fractions(x), fractions)
    return tape.value(y)


def by_kernels(layers, x):
    """This library's float32."""
    tape, _, y = record(layers, x.astype(np.float32))
    return np.asarray(tape.value(y))


def in_order(layers, x, rng, fused):
    """NumPy's float32, each sum folded in an order of its own, with or without fused multiply-adds."""
    z = x.astype(np.float32)
    for kind, given in layers:
        if kind == "conv":
            z = _shuffled(z, given, rng, fused)
        elif kind == "linear":
            z = _fold(z[:, None, :], given["weight"][None], given["bias"], rng, fused)
        elif kind == "relu":
            z = np.maximum(z, np.float32(0))
        elif kind == "flatten":
            z = z.reshape(len(z), -1)
        elif kind == "mean":
            z = _means(z, given["op"], rng)
        else:
            z = np.asarray(given["op"](z))
    return z


def _fold(x, w, bias, rng, fused):
    """Σ x·w over the last axis in a random order, the bias at a random place."""
    n = x.shape[-1]
    order, place = rng.permutation(n), rng.integers(n + 1)
    total = np.zeros(np.broadcast_shapes(x.shape[:-1], w.shape[:-1]), np.float32)
    for i, j in enumerate(order):
        if i == place:
            total = total + bias
        if fused:
            wide = x[..., j].astype(np.float64) * w[..., j].astype(np.float64) + total
            total = wide.astype(np.float32)
        else:
            total = total + x[..., j] * w[..., j]
    return total + bias if place == n else total


def _shuffled(x, given, rng, fused):
    weight, bias = given["weight"], given["bias"]
    rank = weight.ndim - 2
    stride, padding = given.get("stride", 1), given.get("padding", 0)
    padded = np.pad(x, [(0, 0), (0, 0), *[(padding, padding)] * rank])
    view = np.lib.stride_tricks.sliding_window_view(
        padded, weight.shape[2:], tuple(range(2, 2 + rank))
    )
    view = view[(slice(None), slice(None), *[slice(None, None, stride)] * rank)]
    cells = np.moveaxis(view, 1, 1 + rank).reshape(len(x), *view.shape[2 : 2 + rank], -1)
    y = _fold(cells[..., None, :], weight.reshape(len(weight), -1), bias, rng, fused)
    return np.moveaxis(y, -1, 1)


def _means(x, op, rng):
    """Sums in a random order, times the rounded reciprocal of the divisor."""
    from lunette.bounds.windows import counted_padding, table_of

    table = table_of(op, x.shape)
    counts = (table >= 0).sum(axis=1) + counted_padding(op, x.shape)
    cells = np.where(table >= 0, x.reshape(-1)[np.maximum(table, 0)], np.float32(0))
    total = np.zeros(len(table), np.float32)
    for j in rng.permutation(cells.shape[1]):
        total = total + cells[:, j]
    return (total * (np.float32(1) / counts.astype(np.float32))).reshape(op.out_shape(x.shape))


def points(rng, lo, hi, count):
    """Corners, random points and the middle, as float32 numbers inside the box."""
    for i in range(count):
        if i % 3 == 0:
            x = np.where(rng.integers(2, size=lo.shape), lo, hi)
        elif i % 3 == 1:
            x = lo + (hi - lo) * rng.random(lo.shape)
        else:
            x = np.where(
                rng.random(lo.shape) < 0.3,
                (lo + hi) / 2,
                np.where(rng.integers(2, size=lo.shape), lo, hi),
            )
        yield np.clip(x.astype(np.float32), lo, hi).astype(np.float32)


def box(rng, shape, width=0.3):
    """Ends that are float32 numbers."""
    middle = rng.normal(size=shape).astype(np.float32)
    radius = (width * rng.random(shape)).astype(np.float32)
    return (middle - radius).astype(np.float32), (middle + radius).astype(np.float32)
