"""A part of an array pools as it does inside the whole: the same bits for any chunking."""

import numpy as np
import pytest

import lunette as ln
from cases import geometries, values
from cases.agreement import differing_bits, direction, max_disagreements, pool, run
from lunette.regions import Adaptive, Global, Sliding

SHAPE = (2, 9, 40)
LARGE = (
    (Sliding(3, 2, 1), Sliding(3, 2, 1)),
    (Sliding(3, 1, 1), Sliding(25, 1, 12)),
    (Sliding(5, 1, (2, 1), 2), Sliding(17, 1, 3)),
    (Adaptive(4), Adaptive(7)),
    (Sliding(2, 2, 0, 1, True), Global()),
)
REDUCTIONS = (ln.Max(), ln.Max("split"), ln.Mean(), ln.Mean(False), ln.SmoothMax(2.0))


def splits(length):
    """Outputs cut in two at every place, and single outputs."""
    for cut in range(1, length):
        yield from ((0, cut), (cut, length))
    yield from ((i, i + 1) for i in range(length))


def part_of(op, axis, first, last, shape):
    """The op of some outputs along one pooled axis, and the slice of the input that it reads."""
    n = shape[len(shape) - op.rank + axis]
    part = op.regions[axis].part(n, first, last)
    regions = (*op.regions[:axis], part, *op.regions[axis + 1 :])
    cut = [slice(None)] * len(shape)
    cut[len(shape) - op.rank + axis] = slice(*part.slab_range)
    return pool(regions, op.reduction), tuple(cut)


def check_parts(backend, op, x, every=1):
    dx = direction(x.shape, x.dtype)
    whole, tangent = run(op, "forward", x, None, backend), run(op, "jvp", x, dx, backend)
    for axis in range(op.rank):
        along = x.ndim - op.rank + axis
        for first, last in list(splits(whole.shape[along]))[::every]:
            part, cut = part_of(op, axis, first, last, x.shape)
            place = [slice(None)] * x.ndim
            place[along] = slice(first, last)
            y = run(part, "forward", x[cut], None, backend)
            assert not differing_bits(y, whole[tuple(place)]), (op, axis, first, last)
            dy = run(part, "jvp", x[cut], dx[cut], backend)
            assert not differing_bits(dy, tangent[tuple(place)]), (op, axis, first, last)


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=repr)
@pytest.mark.parametrize("regions", LARGE, ids=lambda r: "×".join(type(a).__name__ for a in r))
def test_every_split_of_larger_windows(backend, regions, reduction):
    check_parts(backend, pool(regions, reduction), values.filled("random", SHAPE, "float32"))


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=repr)
def test_every_split_of_small_geometries(backend, reduction):
    for seed, (lengths, regions) in enumerate(geometries.boxes(2, 12, seed=9)):
        x = values.filled("random", (2, *lengths), "float32", seed)
        check_parts(backend, pool(regions, reduction), x)


def test_gradients_of_parts_are_the_specification_of_parts(backend):
    for seed, (lengths, regions) in enumerate(geometries.boxes(2, 20, seed=3)):
        x = values.filled("ties", (2, *lengths), "float32", seed)
        op = pool(regions, ln.Max())
        length = op.out_shape(x.shape)[-2]
        first = seed % length
        part, cut = part_of(op, 0, first, length, x.shape)
        assert not max_disagreements(part.regions, np.ascontiguousarray(x[cut]), backend=backend)
