"""TorchLean's vocabulary: every name, its parameters, its page and a value worked out another way."""

from __future__ import annotations

import ast
import inspect
import math
import re
from dataclasses import FrozenInstanceError
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lunette as ln
from lunette import torchlean as tl

PAGE = Path(__file__).parents[1] / "docs" / "torchlean.md"

# -- another way: cells by coordinates, in plain Python, without regions, ops or spec --


def windows(shape, kernel, stride, padding):
    """(output index, the input position or None of each of its cells), both in row-major order."""
    axes = list(zip(shape, kernel, stride, padding, strict=True))
    for out in product(*(range(0, n + 2 * p - k + 1, s) for n, k, s, p in axes)):
        cells = []
        for win in product(*map(range, kernel)):
            place = tuple(o + w - p for o, w, p in zip(out, win, padding, strict=True))
            inside = all(0 <= i < n for i, n in zip(place, shape, strict=True))
            cells.append(place if inside else None)
        yield tuple(o // s for o, s in zip(out, stride, strict=True)), cells


def gather(value, shape, geometry):
    """The array of `value(cells)` over all outputs."""
    table = {out: value(cells) for out, cells in windows(shape, *geometry)}
    result = np.empty([i + 1 for i in max(table)], object)
    for out, v in table.items():
        result[out] = v
    return result


def scatter(weights, grad, shape, geometry):
    """The gradient that `weights(cells)`, a weight for each position, sends back."""
    result = np.full(shape, grad.flat[0] * 0, object)
    for out, cells in windows(shape, *geometry):
        for place, weight in weights(cells).items():
            result[place] = result[place] + weight * grad[out]
    return result


def real(cells):
    return [place for place in cells if place is not None]


def max_weights(x):
    """Python's max keeps the first of equals."""
    return lambda cells: {max(real(cells), key=x.__getitem__): 1} if real(cells) else {}


def avg_weights(cells):
    return {place: Fraction(1, len(cells)) for place in real(cells)}


def exponentials(x, beta, cells):
    return [(flint.arb(0) if c is None else x[c] * beta).exp() for c in cells]


def smooth_weights(x, beta):
    def weights(cells):
        terms = exponentials(x, beta, cells)
        total = sum(terms, flint.arb(0))
        return {c: e / total for c, e in zip(cells, terms, strict=True) if c is not None}

    return weights


def max_of(x, geometry):
    return gather(lambda c: max((x[p] for p in real(c)), default=Fraction(0)), x.shape, geometry)


def avg_of(x, geometry):
    return gather(lambda c: sum((x[p] for p in real(c)), Fraction(0)) / len(c), x.shape, geometry)


def smooth_of(x, beta, geometry):
    def value(cells):
        return sum(exponentials(x, beta, cells), flint.arb(0)).log() / beta

    return gather(value, x.shape, geometry)


def push(weights, dx, geometry):
    """The derivative along dx of a window's value with these weights."""
    zero = dx.flat[0] * 0
    return gather(
        lambda c: sum((w * dx[p] for p, w in weights(c).items()), zero), dx.shape, geometry
    )


def channels(f, *arrays):
    """`f` channel by channel."""
    return np.stack([f(*parts) for parts in zip(*arrays, strict=True)])


# -- samples: few values, so that there are ties; thirds, so that no float could do --


def sample(shape, seed):
    numbers = np.random.default_rng(seed).integers(-3, 4, shape)
    out = np.empty(shape, object)
    for i, v in np.ndenumerate(numbers):
        out[i] = Fraction(int(v), 3)
    return out


def balls(x):
    out = np.empty(x.shape, object)
    for i, v in np.ndenumerate(x):
        out[i] = flint.arb(flint.fmpq(v.numerator, v.denominator))
    return out


def fractions(values):
    """Nested lists of numbers as an object array of Fractions."""
    x = np.asarray(values, object)
    out = np.empty(x.shape, object)
    for i, v in np.ndenumerate(x):
        out[i] = Fraction(v)
    return out


X, DX = sample((2, 5, 6), 1), sample((2, 5, 6), 2)
IMG, DIMG = X[0], DX[0]
FLAT2D = ((2, 3), (2, 2), (0, 0))
PAD2D = ((2, 3), (2, 2), (2, 2))  # the corner windows are padding alone
ND = ((2, 1, 3), (1, 2, 2), (2, 0, 1))
VOL, DVOL = sample((2, 3, 3, 4), 3), sample((2, 3, 3, 4), 4)
SPACE, DSPACE = VOL[0], DVOL[0]
G2D, GPAD, GND = sample((2, 2, 2), 5), sample((2, 4, 4), 6), sample((2, 6, 2, 2), 7)
BETA = 0.75

MAX2D, AVG2D = tl.MaxPool2DSpec(2, 3, 2), tl.AvgPool2DSpec(2, 3, 2)
MAXND, AVGND = tl.MaxPoolSpec(*ND), tl.AvgPoolSpec(*ND)
GMAX, GAVG = tl.GlobalMaxPool2DSpec(), tl.GlobalAvgPool2DSpec()
TIED = fractions([[[0, 2], [2, 1]], [[-1, -1], [-1, -1]]])
TWO = fractions([6, 12])


class Row(NamedTuple):
    lean: str
    signature: str
    call: Any
    expected: Any

    @property
    def name(self):
        return self.signature.partition("(")[0]


# fmt: off
RECORDS = [
    Row("MaxPool2DSpec", "MaxPool2DSpec(kH, kW, stride)", lambda: str(tl.MaxPool2DSpec(2, 3, 1)), "MaxPool2DSpec(kH=2, kW=3, stride=1)"),
    Row("AvgPool2DSpec", "AvgPool2DSpec(kH, kW, stride)", lambda: str(tl.AvgPool2DSpec(2, 3, 1)), "AvgPool2DSpec(kH=2, kW=3, stride=1)"),
    Row("AdaptiveAvgPool2DSpec", "AdaptiveAvgPool2DSpec(outH, outW)", lambda: tl.AdaptiveAvgPool2DSpec(2, 3).outW, 3),
    Row("AdaptiveMaxPool2DSpec", "AdaptiveMaxPool2DSpec(outH, outW)", lambda: tl.AdaptiveMaxPool2DSpec(2, 3).outH, 2),
    Row("MaxPoolSpec", "MaxPoolSpec(kernel, stride, padding)", lambda: tl.MaxPoolSpec([2, 3], 2, (0, 1)), tl.MaxPoolSpec((2, 3), (2, 2), (0, 1))),
    Row("AvgPoolSpec", "AvgPoolSpec(kernel, stride, padding)", lambda: tl.AvgPoolSpec((2,), (1,), 1).padding, (1,)),
    Row("GlobalAvgPool2DSpec", "GlobalAvgPool2DSpec()", lambda: tl.GlobalAvgPool2DSpec() == GAVG, True),
    Row("GlobalMaxPool2DSpec", "GlobalMaxPool2DSpec()", lambda: tl.GlobalMaxPool2DSpec() == GAVG, False),
]

TWO_D = [
    Row("pool2dOutShape", "pool2d_out_shape(inH, inW, kH, kW, stride)", lambda: tl.pool2d_out_shape(7, 6, 3, 2, 2), (3, 3)),
    Row("pool2dMultiOutShape", "pool2d_multi_out_shape(inC, inH, inW, kH, kW, stride)", lambda: tl.pool2d_multi_out_shape(4, 7, 6, 3, 2, 2), (4, 3, 3)),
    Row("pool2dOutShapePad", "pool2d_out_shape_pad(inH, inW, kH, kW, stride, padding)", lambda: tl.pool2d_out_shape_pad(7, 6, 3, 2, 2, 1), (4, 4)),
    Row("pool2dMultiOutShapePad", "pool2d_multi_out_shape_pad(inC, inH, inW, kH, kW, stride, padding)", lambda: tl.pool2d_multi_out_shape_pad(0, 7, 6, 3, 2, 2, 1), (0, 4, 4)),
    Row("maxPool2dSpec", "max_pool2d_spec(layer, input)", lambda: tl.max_pool2d_spec(MAX2D, IMG), max_of(IMG, FLAT2D)),
    Row("maxPool2dMultiSpec", "max_pool2d_multi_spec(layer, input)", lambda: tl.max_pool2d_multi_spec(MAX2D, X), channels(lambda x: max_of(x, FLAT2D), X)),
    Row("maxPool2dJvpSpec", "max_pool2d_jvp_spec(layer, input, tangent)", lambda: tl.max_pool2d_jvp_spec(MAX2D, IMG, DIMG), push(max_weights(IMG), DIMG, FLAT2D)),
    Row("maxPool2dMultiJvpSpec", "max_pool2d_multi_jvp_spec(layer, input, tangent)", lambda: tl.max_pool2d_multi_jvp_spec(MAX2D, X, DX), channels(lambda x, d: push(max_weights(x), d, FLAT2D), X, DX)),
    Row("maxPool2dBackwardSpec", "max_pool2d_backward_spec(layer, input, grad_output)", lambda: tl.max_pool2d_backward_spec(MAX2D, IMG, G2D[0]), scatter(max_weights(IMG), G2D[0], IMG.shape, FLAT2D)),
    Row("maxPool2dMultiBackwardSpec", "max_pool2d_multi_backward_spec(layer, input, grad_output)", lambda: tl.max_pool2d_multi_backward_spec(MAX2D, X, G2D), channels(lambda x, g: scatter(max_weights(x), g, x.shape, FLAT2D), X, G2D)),
    Row("avgPool2dSpec", "avg_pool2d_spec(layer, input)", lambda: tl.avg_pool2d_spec(AVG2D, IMG), avg_of(IMG, FLAT2D)),
    Row("avgPool2dMultiSpec", "avg_pool2d_multi_spec(layer, input)", lambda: tl.avg_pool2d_multi_spec(AVG2D, X), channels(lambda x: avg_of(x, FLAT2D), X)),
    Row("avgPool2dBackwardSpec", "avg_pool2d_backward_spec(layer, grad_output, *, input_shape)", lambda: tl.avg_pool2d_backward_spec(AVG2D, G2D[0], input_shape=(5, 6)), scatter(avg_weights, G2D[0], (5, 6), FLAT2D)),
    Row("avgPool2dMultiBackwardSpec", "avg_pool2d_multi_backward_spec(layer, grad_output, *, input_shape)", lambda: tl.avg_pool2d_multi_backward_spec(AVG2D, G2D, input_shape=(2, 5, 6)), channels(lambda g: scatter(avg_weights, g, (5, 6), FLAT2D), G2D)),
    Row("smoothMaxPool2dSpec", "smooth_max_pool2d_spec(layer, beta, input)", lambda: tl.smooth_max_pool2d_spec(MAX2D, BETA, balls(IMG)), smooth_of(balls(IMG), BETA, FLAT2D)),
    Row("smoothMaxPool2dMultiSpec", "smooth_max_pool2d_multi_spec(layer, beta, input)", lambda: tl.smooth_max_pool2d_multi_spec(MAX2D, -BETA, balls(X)), channels(lambda x: smooth_of(x, -BETA, FLAT2D), balls(X))),
    Row("smoothMaxPool2dJvpSpec", "smooth_max_pool2d_jvp_spec(layer, beta, input, tangent)", lambda: tl.smooth_max_pool2d_jvp_spec(MAX2D, BETA, balls(IMG), balls(DIMG)), push(smooth_weights(balls(IMG), BETA), balls(DIMG), FLAT2D)),
    Row("smoothMaxPool2dMultiJvpSpec", "smooth_max_pool2d_multi_jvp_spec(layer, beta, input, tangent)", lambda: tl.smooth_max_pool2d_multi_jvp_spec(MAX2D, BETA, balls(X), balls(DX)), channels(lambda x, d: push(smooth_weights(x, BETA), d, FLAT2D), balls(X), balls(DX))),
    Row("smoothMaxPool2dBackwardSpec", "smooth_max_pool2d_backward_spec(layer, beta, input, grad_output)", lambda: tl.smooth_max_pool2d_backward_spec(MAX2D, BETA, balls(IMG), balls(G2D[0])), scatter(smooth_weights(balls(IMG), BETA), balls(G2D[0]), IMG.shape, FLAT2D)),
    Row("smoothMaxPool2dMultiBackwardSpec", "smooth_max_pool2d_multi_backward_spec(layer, beta, input, grad_output)", lambda: tl.smooth_max_pool2d_multi_backward_spec(MAX2D, BETA, balls(X), balls(G2D)), channels(lambda x, g: scatter(smooth_weights(x, BETA), g, x.shape, FLAT2D), balls(X), balls(G2D))),
    Row("adaptiveStart", "adaptive_start(in_size, out_size, i)", lambda: [tl.adaptive_start(7, 3, i) for i in range(3)], [0, 2, 4]),
    Row("adaptiveEnd", "adaptive_end(in_size, out_size, i)", lambda: [tl.adaptive_end(7, 3, i) for i in range(3)], [3, 5, 7]),
    # Three columns to two bins: both hold the middle column.
    Row("adaptiveAvgPool2dSpec", "adaptive_avg_pool2d_spec(layer, input)", lambda: tl.adaptive_avg_pool2d_spec(tl.AdaptiveAvgPool2DSpec(1, 2), fractions([[[1, 2, 4]], [[0, 1, 0]]])), fractions([[["3/2", 3]], [["1/2", "1/2"]]])),
    Row("adaptiveMaxPool2dSpec", "adaptive_max_pool2d_spec(layer, input)", lambda: tl.adaptive_max_pool2d_spec(tl.AdaptiveMaxPool2DSpec(1, 2), fractions([[[1, 2, 4]], [[-1, -2, -3]]])), fractions([[[2, 4]], [[-1, -2]]])),
]

PADDED = [
    Row("unpadImage", "unpad_image(img, padding)", lambda: tl.unpad_image(IMG, 2), IMG[2:3, 2:4]),
    Row("unpadMultiChannel", "unpad_multi_channel(img, padding)", lambda: tl.unpad_multi_channel(X, 1), X[:, 1:4, 1:5]),
    Row("maxPool2dMultiSpecPad", "max_pool2d_multi_spec_pad(layer, input, *, padding)", lambda: tl.max_pool2d_multi_spec_pad(MAX2D, X, padding=2), channels(lambda x: max_of(x, PAD2D), X)),
    Row("maxPool2dMultiJvpSpecPad", "max_pool2d_multi_jvp_spec_pad(layer, input, tangent, *, padding)", lambda: tl.max_pool2d_multi_jvp_spec_pad(MAX2D, X, DX, padding=2), channels(lambda x, d: push(max_weights(x), d, PAD2D), X, DX)),
    Row("maxPool2dMultiBackwardSpecPad", "max_pool2d_multi_backward_spec_pad(layer, input, grad_output, *, padding)", lambda: tl.max_pool2d_multi_backward_spec_pad(MAX2D, X, GPAD, padding=2), channels(lambda x, g: scatter(max_weights(x), g, x.shape, PAD2D), X, GPAD)),
    Row("avgPool2dMultiSpecPad", "avg_pool2d_multi_spec_pad(layer, input, *, padding)", lambda: tl.avg_pool2d_multi_spec_pad(AVG2D, X, padding=2), channels(lambda x: avg_of(x, PAD2D), X)),
    Row("avgPool2dMultiBackwardSpecPad", "avg_pool2d_multi_backward_spec_pad(layer, grad_output, *, padding, input_shape)", lambda: tl.avg_pool2d_multi_backward_spec_pad(AVG2D, GPAD, padding=2, input_shape=(2, 5, 6)), channels(lambda g: scatter(avg_weights, g, (5, 6), PAD2D), GPAD)),
]

ANY_D = [
    Row("poolOutSpatial", "pool_out_spatial(in_spatial, kernel, stride)", lambda: tl.pool_out_spatial((7, 6, 5), (3, 2, 5), (2, 2, 1)), (3, 3, 1)),
    Row("poolOutSpatialPad", "pool_out_spatial_pad(in_spatial, kernel, stride, padding)", lambda: tl.pool_out_spatial_pad((7, 6), (3, 2), (2, 3), (1, 0)), (4, 2)),
    Row("poolOutShape", "pool_out_shape(in_spatial, kernel, stride)", lambda: tl.pool_out_shape((7,), (3,), (2,)), (3,)),
    Row("poolOutShapePad", "pool_out_shape_pad(in_spatial, kernel, stride, padding)", lambda: tl.pool_out_shape_pad((7,), (3,), (2,), (2,)), (5,)),
    Row("poolMultiOutShape", "pool_multi_out_shape(inC, in_spatial, kernel, stride)", lambda: tl.pool_multi_out_shape(4, (7, 6), (3, 2), (2, 2)), (4, 3, 3)),
    Row("poolMultiOutShapePad", "pool_multi_out_shape_pad(inC, in_spatial, kernel, stride, padding)", lambda: tl.pool_multi_out_shape_pad(4, (7, 6), (3, 2), (2, 2), (1, 1)), (4, 4, 4)),
    Row("tensorOfDims", "tensor_of_dims(dims, f)", lambda: tl.tensor_of_dims((2, 3), lambda i: Fraction(i[0], i[1] + 1)), fractions([[0, 0, 0], [1, "1/2", "1/3"]])),
    Row("foldlIndices'", "foldl_indices(dims, init, f)", lambda: tl.foldl_indices((2, 2), "", lambda seen, i: f"{seen}{i[0]}{i[1]} "), "00 01 10 11 "),
    Row("paddedCoords?", "padded_coords(out_idxs, win_idxs, stride)", lambda: tl.padded_coords((2, 1), (0, 3), (3, 2)), (6, 5)),
    Row("unpadCoords?", "unpad_coords(padded, padding)", lambda: tl.unpad_coords((6, 5), (1, 5)), (5, 0)),
    Row("getPaddedAverageInputVal", "get_padded_average_input_val(input, out_idxs, win_idxs, stride, padding)", lambda: [tl.get_padded_average_input_val(IMG, (1, 1), win, (2, 2), (1, 3)) for win in ((1, 0), (1, 2))], [Fraction(0), IMG[2, 1]]),
    Row("getPaddedMaxInputVal?", "get_padded_max_input_val(input, out_idxs, win_idxs, stride, padding)", lambda: [tl.get_padded_max_input_val(IMG, (1, 1), win, (2, 2), (1, 3)) for win in ((1, 0), (1, 2), (9, 2))], [None, IMG[2, 1], None]),
    Row("maxPoolValue", "max_pool_value(input, out_idxs, kernel, stride, padding)", lambda: tl.tensor_of_dims((6, 2, 2), lambda i: tl.max_pool_value(SPACE, i, *ND)), max_of(SPACE, ND)),
    Row("maxPoolJvpValue", "max_pool_jvp_value(input, tangent, out_idxs, kernel, stride, padding)", lambda: tl.tensor_of_dims((6, 2, 2), lambda i: tl.max_pool_jvp_value(SPACE, DSPACE, i, *ND)), push(max_weights(SPACE), DSPACE, ND)),
    Row("avgPoolValue", "avg_pool_value(input, out_idxs, kernel, stride, padding)", lambda: tl.tensor_of_dims((6, 2, 2), lambda i: tl.avg_pool_value(SPACE, i, *ND)), avg_of(SPACE, ND)),
    Row("smoothMaxPoolValue", "smooth_max_pool_value(beta, input, out_idxs, kernel, stride, padding)", lambda: tl.tensor_of_dims((6, 2, 2), lambda i: tl.smooth_max_pool_value(BETA, balls(SPACE), i, *ND)), smooth_of(balls(SPACE), BETA, ND)),
    Row("smoothMaxPoolJvpValue", "smooth_max_pool_jvp_value(beta, input, tangent, out_idxs, kernel, stride, padding)", lambda: tl.tensor_of_dims((6, 2, 2), lambda i: tl.smooth_max_pool_jvp_value(BETA, balls(SPACE), balls(DSPACE), i, *ND)), push(smooth_weights(balls(SPACE), BETA), balls(DSPACE), ND)),
    Row("maxPoolSpatialSpec", "max_pool_spatial_spec(layer, input)", lambda: tl.max_pool_spatial_spec(MAXND, SPACE), max_of(SPACE, ND)),
    Row("maxPoolSpatialJvpSpec", "max_pool_spatial_jvp_spec(layer, input, tangent)", lambda: tl.max_pool_spatial_jvp_spec(MAXND, SPACE, DSPACE), push(max_weights(SPACE), DSPACE, ND)),
    Row("maxPoolSpatialBackwardSpec", "max_pool_spatial_backward_spec(layer, input, grad_output)", lambda: tl.max_pool_spatial_backward_spec(MAXND, SPACE, GND[0]), scatter(max_weights(SPACE), GND[0], SPACE.shape, ND)),
    Row("avgPoolSpatialSpec", "avg_pool_spatial_spec(layer, input)", lambda: tl.avg_pool_spatial_spec(AVGND, SPACE), avg_of(SPACE, ND)),
    Row("avgPoolSpatialBackwardSpec", "avg_pool_spatial_backward_spec(layer, grad_output, *, input_shape)", lambda: tl.avg_pool_spatial_backward_spec(AVGND, GND[0], input_shape=SPACE.shape), scatter(avg_weights, GND[0], SPACE.shape, ND)),
    Row("maxPoolSpec", "max_pool_spec(layer, input)", lambda: tl.max_pool_spec(MAXND, VOL), channels(lambda x: max_of(x, ND), VOL)),
    Row("maxPoolJvpSpec", "max_pool_jvp_spec(layer, input, tangent)", lambda: tl.max_pool_jvp_spec(MAXND, VOL, DVOL), channels(lambda x, d: push(max_weights(x), d, ND), VOL, DVOL)),
    Row("maxPoolBackwardSpec", "max_pool_backward_spec(layer, input, grad_output)", lambda: tl.max_pool_backward_spec(MAXND, VOL, GND), channels(lambda x, g: scatter(max_weights(x), g, x.shape, ND), VOL, GND)),
    Row("avgPoolSpec", "avg_pool_spec(layer, input)", lambda: tl.avg_pool_spec(AVGND, VOL), channels(lambda x: avg_of(x, ND), VOL)),
    Row("avgPoolBackwardSpec", "avg_pool_backward_spec(layer, grad_output, *, input_shape)", lambda: tl.avg_pool_backward_spec(AVGND, GND, input_shape=VOL.shape), channels(lambda g: scatter(avg_weights, g, SPACE.shape, ND), GND)),
    Row("smoothMaxPoolSpatialSpec", "smooth_max_pool_spatial_spec(layer, beta, input)", lambda: tl.smooth_max_pool_spatial_spec(MAXND, BETA, balls(SPACE)), smooth_of(balls(SPACE), BETA, ND)),
    Row("smoothMaxPoolSpatialJvpSpec", "smooth_max_pool_spatial_jvp_spec(layer, beta, input, tangent)", lambda: tl.smooth_max_pool_spatial_jvp_spec(MAXND, -BETA, balls(SPACE), balls(DSPACE)), push(smooth_weights(balls(SPACE), -BETA), balls(DSPACE), ND)),
    Row("smoothMaxPoolSpatialBackwardSpec", "smooth_max_pool_spatial_backward_spec(layer, beta, input, grad_output)", lambda: tl.smooth_max_pool_spatial_backward_spec(MAXND, BETA, balls(SPACE), balls(GND[0])), scatter(smooth_weights(balls(SPACE), BETA), balls(GND[0]), SPACE.shape, ND)),
    Row("smoothMaxPoolSpec", "smooth_max_pool_spec(layer, beta, input)", lambda: tl.smooth_max_pool_spec(MAXND, BETA, balls(VOL)), channels(lambda x: smooth_of(x, BETA, ND), balls(VOL))),
    Row("smoothMaxPoolJvpSpec", "smooth_max_pool_jvp_spec(layer, beta, input, tangent)", lambda: tl.smooth_max_pool_jvp_spec(MAXND, BETA, balls(VOL), balls(DVOL)), channels(lambda x, d: push(smooth_weights(x, BETA), d, ND), balls(VOL), balls(DVOL))),
    Row("smoothMaxPoolBackwardSpec", "smooth_max_pool_backward_spec(layer, beta, input, grad_output)", lambda: tl.smooth_max_pool_backward_spec(MAXND, BETA, balls(VOL), balls(GND)), channels(lambda x, g: scatter(smooth_weights(x, BETA), g, x.shape, ND), balls(VOL), balls(GND))),
]

GLOBAL = [
    Row("reduceSpatial", "reduce_spatial(init, f, channel_data)", lambda: tl.reduce_spatial(Fraction(100), lambda acc, v: acc / 2 - v, fractions([[1, 2], [3, 4]])), Fraction(1, 8)),
    Row("channelSpatialMax", "channel_spatial_max(channel_data)", lambda: tl.channel_spatial_max(fractions([[-3, "-1/2"], [-1, -2]])), Fraction(-1, 2)),
    Row("globalChannelReduce", "global_channel_reduce(channel_data, init, f)", lambda: tl.global_channel_reduce([["b", "c"], ["d", "e"]], "a", lambda acc, v: acc + v), "abcde"),
    Row("broadcastScalar1x1", "broadcast_scalar1x1(v)", lambda: tl.broadcast_scalar1x1(Fraction(1, 3)), fractions([["1/3"]])),
    Row("globalPool2dOutShape", "global_pool2d_out_shape(inC)", lambda: tl.global_pool2d_out_shape(3), (3, 1, 1)),
    Row("globalPool2dFlatOutShape", "global_pool2d_flat_out_shape(inC)", lambda: tl.global_pool2d_flat_out_shape(3), (3,)),
    Row("globalPool2d1x1", "global_pool2d1x1(reduce, input)", lambda: tl.global_pool2d1x1(lambda c: c[0, 1] - c[1, 1], TIED), fractions([[[1]], [[0]]])),
    Row("globalPool2dFlat", "global_pool2d_flat(reduce, input)", lambda: tl.global_pool2d_flat(lambda c: c[0, 1] - c[1, 1], TIED), fractions([1, 0])),
    Row("globalAvgPool2dSpec", "global_avg_pool2d_spec(layer, input)", lambda: tl.global_avg_pool2d_spec(GAVG, TIED), fractions([[["5/4"]], [[-1]]])),
    Row("globalMaxPool2dSpec", "global_max_pool2d_spec(layer, input)", lambda: tl.global_max_pool2d_spec(GMAX, TIED), fractions([[[2]], [[-1]]])),
    Row("globalAvgPool2dFlatSpec", "global_avg_pool2d_flat_spec(layer, input)", lambda: tl.global_avg_pool2d_flat_spec(GAVG, TIED), fractions(["5/4", -1])),
    Row("globalMaxPool2dFlatSpec", "global_max_pool2d_flat_spec(layer, input)", lambda: tl.global_max_pool2d_flat_spec(GMAX, TIED), fractions([2, -1])),
    Row("globalAvgPool2dBackwardSpec", "global_avg_pool2d_backward_spec(layer, grad_output, *, input_shape)", lambda: tl.global_avg_pool2d_backward_spec(GAVG, TWO.reshape(2, 1, 1), input_shape=(2, 1, 4)), fractions([[["3/2"] * 4], [[3] * 4]])),
    Row("globalAvgPool2dFlatBackwardSpec", "global_avg_pool2d_flat_backward_spec(layer, grad_output, *, input_shape)", lambda: tl.global_avg_pool2d_flat_backward_spec(GAVG, TWO, input_shape=(2, 4, 1)), fractions([[["3/2"]] * 4, [[3]] * 4])),
    Row("globalMaxPool2dBackwardSpec", "global_max_pool2d_backward_spec(layer, input, grad_output)", lambda: tl.global_max_pool2d_backward_spec(GMAX, TIED, TWO.reshape(2, 1, 1)), fractions([[[0, 6], [6, 0]], [[12, 12], [12, 12]]])),
    Row("globalMaxPool2dFlatBackwardSpec", "global_max_pool2d_flat_backward_spec(layer, input, grad_output)", lambda: tl.global_max_pool2d_flat_backward_spec(GMAX, TIED, TWO), fractions([[[0, 6], [6, 0]], [[12, 12], [12, 12]]])),
    Row("globalMaxPool2dBackwardDistributedSpec", "global_max_pool2d_backward_distributed_spec(layer, input, grad_output)", lambda: tl.global_max_pool2d_backward_distributed_spec(GMAX, TIED, TWO.reshape(2, 1, 1)), fractions([[[0, 3], [3, 0]], [[3, 3], [3, 3]]])),
]
# fmt: on

VOCABULARY = RECORDS + TWO_D + PADDED + ANY_D + GLOBAL
every_name = pytest.mark.parametrize("row", VOCABULARY, ids=lambda row: row.name)


def assert_same(got, expected):
    """Equal in shape and value: Fractions to the last digit, balls overlapping and tiny."""
    if not isinstance(expected, np.ndarray):
        assert got == expected and type(got) is type(expected)
        return
    assert isinstance(got, np.ndarray) and got.shape == expected.shape
    for a, b in zip(got.flat, expected.flat, strict=True):
        assert type(a) is type(b)
        if isinstance(a, flint.arb):
            assert a.overlaps(b) and a.rad() < 1e-10 and b.rad() < 1e-10
        else:
            assert a == b


# -- the whole table --


def test_the_table_is_the_module():
    assert sorted(row.name for row in VOCABULARY) == sorted(tl.__all__)
    assert all(hasattr(tl, name) for name in tl.__all__)


@every_name
def test_the_name_is_leans_in_snake_case(row):
    lean = row.lean.rstrip("?'")
    snake = lean if lean[0].isupper() else re.sub("[A-Z]", lambda c: "_" + c[0].lower(), lean)
    assert row.name == snake


@every_name
def test_the_parameters_are_as_stated(row):
    parameters, seen_star = [], False
    for p in inspect.signature(getattr(tl, row.name)).parameters.values():
        if p.kind is p.KEYWORD_ONLY and not seen_star:
            parameters.append("*")
            seen_star = True
        parameters.append(p.name)
        assert p.default is p.empty
    assert f"{row.name}({', '.join(parameters)})" == row.signature


@every_name
def test_the_page_says_where_it_lives(row):
    rows = [line.split("|")[1:4] for line in PAGE.read_text().splitlines() if line.startswith("|")]
    found = [r for r in rows if len(r) == 3 and r[0].strip().split(".")[-1].strip("`") == row.lean]
    assert len(found) == 1
    assert found[0][1].strip() == f"`{row.signature}`"
    assert found[0][2].strip()


@every_name
def test_the_value_is_right(row):
    assert_same(row.call(), row.expected)


def test_nothing_but_the_meaning_is_called():
    for file in Path(tl.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            modules = (
                [node.module] if isinstance(node, ast.ImportFrom)
                else [a.name for a in node.names] if isinstance(node, ast.Import) else []
            )  # fmt: skip
            for module in modules:
                assert not re.match(r"lunette\.(dispatch|functional|kernels|adapters)", module)


# -- worked by hand --


def nested_argmax(window):
    """The older fold: within a row it compares with the best of the rows before, not of this row."""
    best = (0, 0)
    for i, row in enumerate(window):
        best_in_row = best
        for j, v in enumerate(row):
            if v > window[best[0]][best[1]]:
                best_in_row = (i, j)
        best = best_in_row
    return best


def test_the_window_that_tells_the_two_argmaxes_apart():
    window, layer = fractions([[0, 0], [2, 1]]), tl.MaxPool2DSpec(2, 2, 1)
    assert nested_argmax(window) == (1, 1)
    assert_same(tl.max_pool2d_spec(layer, window), fractions([[2]]))
    tangent = fractions([[10, 20], [30, 40]])
    assert_same(tl.max_pool2d_jvp_spec(layer, window, tangent), fractions([[30]]))
    gradient = fractions([[0, 0], [7, 0]])
    assert_same(tl.max_pool2d_backward_spec(layer, window, fractions([[7]])), gradient)
    spatial = tl.MaxPoolSpec((2, 2), (1, 1), (0, 0))
    assert_same(tl.max_pool_spatial_backward_spec(spatial, window, fractions([[7]])), gradient)


def test_the_first_of_equals_in_row_major_order():
    x, layer = fractions([[1, 3], [3, 3]]), tl.MaxPool2DSpec(2, 2, 1)
    gradient = tl.max_pool2d_backward_spec(layer, x, fractions([[1]]))
    assert_same(gradient, fractions([[0, 1], [0, 0]]))


def test_padding_is_nothing_to_max_and_zero_to_mean_and_smooth_max():
    x = np.array([-1.0, -1.0])
    assert tl.max_pool_value(x, (0,), (2,), (1,), (1,)) == -1
    assert tl.avg_pool_value(x, (0,), (2,), (1,), (1,)) == -0.5
    smooth = tl.smooth_max_pool_value(1.0, x, (0,), (2,), (1,), (1,))
    assert math.isclose(smooth, math.log(math.exp(-1) + 1))
    # The window of output 0 lies in the padding alone.
    assert tl.max_pool_value(x, (0,), (2,), (1,), (2,)) == 0
    assert tl.max_pool_jvp_value(x, x, (0,), (2,), (1,), (2,)) == 0
    assert math.isclose(tl.smooth_max_pool_value(2.0, x, (0,), (2,), (1,), (2,)), math.log(2) / 2)
    assert tl.smooth_max_pool_jvp_value(2.0, x, x, (0,), (2,), (1,), (2,)) == 0


def test_smooth_max_of_equal_cells():
    layer, x = tl.MaxPool2DSpec(2, 2, 2), np.full((2, 2), 5.0)
    assert np.isclose(tl.smooth_max_pool2d_spec(layer, 0.5, x), 5 + math.log(4) / 0.5).all()
    quarter = tl.smooth_max_pool2d_backward_spec(layer, 0.5, x, np.array([[8.0]]))
    assert np.array_equal(quarter, np.full((2, 2), 2.0))


def test_names_with_a_question_mark_give_none():
    assert tl.padded_coords((1,), (0, 0), (1, 1)) is None
    assert tl.padded_coords((), (), ()) == ()
    assert tl.unpad_coords((0, 3), (1, 1)) is None
    assert tl.unpad_coords((0, 3), (0,)) is None
    lookup = tl.get_padded_max_input_val
    assert lookup([1.0, 2.0], (0,), (0,), (1,), (1,)) is None
    assert lookup([1.0, 2.0], (0,), (1,), (1,), (1,)) == 1.0
    assert lookup([1.0, 2.0], (0,), (3,), (1,), (1,)) is None
    assert lookup([1.0, 2.0], (0, 0), (0, 0), (1, 1), (0, 0)) is None


def test_arrays_are_anything_numpy_takes():
    layer = tl.MaxPool2DSpec(2, 2, 2)
    assert tl.max_pool2d_spec(layer, [[1, 2], [3, 4]]).tolist() == [[4]]
    assert tl.max_pool2d_spec(layer, ((True, False), (False, False))).dtype == bool
    mean = tl.avg_pool2d_spec(tl.AvgPool2DSpec(2, 2, 2), [[1, 2], [3, 4]])
    assert mean.dtype == np.float64 and mean.tolist() == [[2.5]]
    halves = np.ones((2, 2), np.float16)
    assert tl.max_pool2d_jvp_spec(layer, halves, halves).dtype == np.float16
    zero = tl.get_padded_average_input_val(halves, (0, 0), (0, 0), (1, 1), (1, 1))
    assert type(zero) is np.float16
    image = tl.adaptive_max_pool2d_spec(tl.AdaptiveMaxPool2DSpec(1, 1), [[1.0, 2.0]])
    assert image.tolist() == [[2.0]]
    element = np.array(Fraction(1, 3), object)
    assert_same(tl.broadcast_scalar1x1(element), fractions([["1/3"]]))
    assert tl.global_max_pool2d_flat_spec(GMAX, np.zeros((0, 2, 2))).shape == (0,)


def test_unpadding_gives_a_new_array():
    image = np.zeros((3, 3))
    tl.unpad_image(image, 0)[...] = 1
    assert not image.any()


# -- laws --

thirds = st.integers(-3, 3).map(lambda n: Fraction(n, 3))


def tensors(*shape):
    count = math.prod(shape)
    flat = st.lists(thirds, min_size=count, max_size=count)
    return flat.map(lambda values: np.array(values, object).reshape(shape))


def inner(a, b):
    return sum((u * v for u, v in zip(a.flat, b.flat, strict=True)), a.flat[0] * 0)


def jvp_of(op):
    """jvp of an op that the vocabulary gives no jvp for."""
    return lambda x, dx: ln.spec.jvp(op, x, dx)


# (jvp(x, dx), backward(x, g), shape of x, shape of g)
ADJOINT = {
    "max_pool2d": (lambda x, d: tl.max_pool2d_jvp_spec(MAX2D, x, d), lambda x, g: tl.max_pool2d_backward_spec(MAX2D, x, g), (4, 5), (2, 2)),
    "max_pool2d_multi": (lambda x, d: tl.max_pool2d_multi_jvp_spec(MAX2D, x, d), lambda x, g: tl.max_pool2d_multi_backward_spec(MAX2D, x, g), (2, 4, 5), (2, 2, 2)),
    "max_pool2d_multi_pad": (lambda x, d: tl.max_pool2d_multi_jvp_spec_pad(MAX2D, x, d, padding=2), lambda x, g: tl.max_pool2d_multi_backward_spec_pad(MAX2D, x, g, padding=2), (1, 3, 3), (1, 3, 3)),
    "max_pool_spatial": (lambda x, d: tl.max_pool_spatial_jvp_spec(MAXND, x, d), lambda x, g: tl.max_pool_spatial_backward_spec(MAXND, x, g), (2, 2, 2), (5, 1, 1)),
    "max_pool": (lambda x, d: tl.max_pool_jvp_spec(MAXND, x, d), lambda x, g: tl.max_pool_backward_spec(MAXND, x, g), (2, 2, 2, 2), (2, 5, 1, 1)),
    "avg_pool2d": (lambda _, d: tl.avg_pool2d_spec(AVG2D, d), lambda x, g: tl.avg_pool2d_backward_spec(AVG2D, g, input_shape=x.shape), (4, 5), (2, 2)),
    "avg_pool2d_multi": (lambda _, d: tl.avg_pool2d_multi_spec(AVG2D, d), lambda x, g: tl.avg_pool2d_multi_backward_spec(AVG2D, g, input_shape=x.shape), (2, 4, 5), (2, 2, 2)),
    "avg_pool2d_multi_pad": (lambda _, d: tl.avg_pool2d_multi_spec_pad(AVG2D, d, padding=2), lambda x, g: tl.avg_pool2d_multi_backward_spec_pad(AVG2D, g, padding=2, input_shape=x.shape), (1, 3, 3), (1, 3, 3)),
    "avg_pool_spatial": (lambda _, d: tl.avg_pool_spatial_spec(AVGND, d), lambda x, g: tl.avg_pool_spatial_backward_spec(AVGND, g, input_shape=x.shape), (2, 2, 2), (5, 1, 1)),
    "avg_pool": (lambda _, d: tl.avg_pool_spec(AVGND, d), lambda x, g: tl.avg_pool_backward_spec(AVGND, g, input_shape=x.shape), (2, 2, 2, 2), (2, 5, 1, 1)),
    "global_avg": (lambda _, d: tl.global_avg_pool2d_spec(GAVG, d), lambda x, g: tl.global_avg_pool2d_backward_spec(GAVG, g, input_shape=x.shape), (2, 2, 3), (2, 1, 1)),
    "global_avg_flat": (lambda _, d: tl.global_avg_pool2d_flat_spec(GAVG, d), lambda x, g: tl.global_avg_pool2d_flat_backward_spec(GAVG, g, input_shape=x.shape), (2, 2, 3), (2,)),
    "global_max": (jvp_of(ln.GlobalMaxPool(2)), lambda x, g: tl.global_max_pool2d_backward_spec(GMAX, x, g), (2, 2, 3), (2, 1, 1)),
    "global_max_flat": (jvp_of(ln.GlobalMaxPool(2, keepdims=False)), lambda x, g: tl.global_max_pool2d_flat_backward_spec(GMAX, x, g), (2, 2, 3), (2,)),
    "global_max_distributed": (jvp_of(ln.GlobalMaxPool(2, ties="split")), lambda x, g: tl.global_max_pool2d_backward_distributed_spec(GMAX, x, g), (2, 2, 3), (2, 1, 1)),
}  # fmt: skip

SMOOTH_ADJOINT = {
    "smooth_max_pool2d": (lambda x, d: tl.smooth_max_pool2d_jvp_spec(MAX2D, BETA, x, d), lambda x, g: tl.smooth_max_pool2d_backward_spec(MAX2D, BETA, x, g), (4, 5), (2, 2)),
    "smooth_max_pool2d_multi": (lambda x, d: tl.smooth_max_pool2d_multi_jvp_spec(MAX2D, BETA, x, d), lambda x, g: tl.smooth_max_pool2d_multi_backward_spec(MAX2D, BETA, x, g), (2, 4, 5), (2, 2, 2)),
    "smooth_max_pool_spatial": (lambda x, d: tl.smooth_max_pool_spatial_jvp_spec(MAXND, BETA, x, d), lambda x, g: tl.smooth_max_pool_spatial_backward_spec(MAXND, BETA, x, g), (2, 2, 2), (5, 1, 1)),
    "smooth_max_pool": (lambda x, d: tl.smooth_max_pool_jvp_spec(MAXND, BETA, x, d), lambda x, g: tl.smooth_max_pool_backward_spec(MAXND, BETA, x, g), (2, 2, 2, 2), (2, 5, 1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("family", ADJOINT)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_backward_is_the_adjoint_of_jvp(family, data):
    push_forward, pull_back, x_shape, g_shape = ADJOINT[family]
    x, dx, g = (data.draw(tensors(*shape)) for shape in (x_shape, x_shape, g_shape))
    assert inner(push_forward(x, dx), g) == inner(dx, pull_back(x, g))


@pytest.mark.parametrize("family", SMOOTH_ADJOINT)
def test_smooth_backward_is_the_adjoint_of_jvp(family):
    push_forward, pull_back, x_shape, g_shape = SMOOTH_ADJOINT[family]
    x, dx, g = balls(sample(x_shape, 1)), balls(sample(x_shape, 2)), balls(sample(g_shape, 3))
    forwards, backwards = inner(push_forward(x, dx), g), inner(dx, pull_back(x, g))
    assert forwards.overlaps(backwards) and (forwards - backwards).rad() < 1e-10


def test_every_backward_has_its_law():
    laws = {**ADJOINT, **SMOOTH_ADJOINT}
    assert len(laws) == sum("backward" in row.name for row in VOCABULARY)


# -- bad input --


def test_records_are_frozen_and_hashable():
    assert hash(tl.MaxPoolSpec((2,), (1,), (0,))) == hash(tl.MaxPoolSpec([2], 1, 0))
    with pytest.raises(FrozenInstanceError):
        MAX2D.kH = 5
    with pytest.raises(FrozenInstanceError):
        MAXND.kernel = (1, 1, 1)


SMALL = np.zeros((2, 2))
BAD = [
    (lambda: tl.MaxPool2DSpec(0, 2, 1), ValueError, "kH=0"),
    (lambda: tl.MaxPool2DSpec(2, 0, 1), ValueError, "kW=0"),
    (lambda: tl.MaxPool2DSpec(2, 2, 0), ValueError, "stride=0"),
    (lambda: tl.AvgPool2DSpec(2, -1, 1), ValueError, "kW=-1"),
    (lambda: tl.AvgPool2DSpec(2, 2, 0), ValueError, "stride=0"),
    (lambda: tl.AvgPool2DSpec(2.0, 2, 1), TypeError, "kH=2.0"),
    (lambda: tl.MaxPool2DSpec(True, 2, 1), TypeError, "kH=True"),
    (lambda: tl.AdaptiveAvgPool2DSpec(0, 1), ValueError, "outH=0"),
    (lambda: tl.AdaptiveMaxPool2DSpec(1, 0), ValueError, "outW=0"),
    (lambda: tl.MaxPoolSpec((2, 0), (1, 1), (0, 0)), ValueError, "kernel=0 on axis 1"),
    (lambda: tl.MaxPoolSpec((2, 2), (0, 1), (0, 0)), ValueError, "stride=0 on axis 0"),
    (lambda: tl.AvgPoolSpec((2,), (1,), (-1,)), ValueError, "padding=-1"),
    (lambda: tl.AvgPoolSpec((2,), (1,), ((0, 1),)), TypeError, "padding"),
    (lambda: tl.AvgPoolSpec((2,), (1, 1), (0,)), ValueError, "stride"),
    (lambda: tl.MaxPoolSpec(2, 1, 0), TypeError, r"kernel=\(2,\)"),
    (lambda: tl.MaxPoolSpec((), (), ()), ValueError, "kernel"),
    (lambda: tl.pool2d_out_shape(2, 5, 3, 2, 1), ValueError, "longer than the padded input"),
    (lambda: tl.pool2d_out_shape(5, 5, 0, 2, 1), ValueError, "kH=0"),
    (lambda: tl.pool2d_out_shape_pad(1, 5, 4, 2, 1, 1), ValueError, "longer than the padded input"),
    (lambda: tl.pool_out_spatial((2, 2), (3, 1), (1, 1)), ValueError, "longer than the padded"),
    (lambda: tl.pool_out_spatial((2,), (1, 1), (1, 1)), ValueError, "in_spatial"),
    (lambda: tl.pool_multi_out_shape(-1, (2,), (1,), (1,)), ValueError, "inC=-1"),
    (lambda: tl.max_pool2d_spec(tl.MaxPool2DSpec(3, 1, 1), SMALL), ValueError, "longer than"),
    (lambda: tl.avg_pool_spatial_spec(tl.AvgPoolSpec((5, 1), 1, 1), SMALL), ValueError, "longer"),
    (lambda: tl.max_pool_value(SMALL, (0, 0), (3, 3), (1, 1), (0, 0)), ValueError, "longer than"),
    (lambda: tl.max_pool2d_spec(MAX2D, np.zeros((1, 5, 6))), ValueError, r"expected \(H, W\)"),
    (lambda: tl.max_pool2d_multi_spec(MAX2D, SMALL), ValueError, r"expected \(C, H, W\)"),
    (lambda: tl.max_pool_spec(MAXND, np.zeros((4, 4, 4))), ValueError, r"\(C, n0, n1, n2\)"),
    (lambda: tl.max_pool2d_spec(AVG2D, IMG), TypeError, "expected a MaxPool2DSpec"),
    (lambda: tl.avg_pool_spec(MAXND, VOL), TypeError, "expected a AvgPoolSpec"),
    (lambda: tl.global_max_pool2d_spec(GAVG, X), TypeError, "expected a GlobalMaxPool2DSpec"),
    (lambda: tl.max_pool2d_jvp_spec(MAX2D, IMG, DIMG[1:]), ValueError, "tangent"),
    (lambda: tl.max_pool_jvp_value(SPACE, DSPACE[1:], (0, 0, 0), *ND), ValueError, "tangent"),
    (lambda: tl.max_pool2d_backward_spec(MAX2D, IMG, IMG), ValueError, "gradient"),
    (lambda: tl.avg_pool2d_backward_spec(AVG2D, G2D[0], input_shape=(9, 9)), ValueError, "gradient"),
    (lambda: tl.avg_pool2d_backward_spec(AVG2D, G2D, input_shape=(2, 5, 6)), ValueError, "input_sh"),
    (lambda: tl.avg_pool2d_backward_spec(AVG2D, [[1]], input_shape=(2, 3)), TypeError, "integers"),
    (lambda: tl.max_pool2d_multi_spec_pad(MAX2D, X, padding=-1), ValueError, "padding=-1"),
    (lambda: tl.max_pool2d_multi_spec_pad(MAX2D, X, padding=(1, 1)), TypeError, "padding"),
    (lambda: tl.unpad_image(SMALL, 2), ValueError, "padding=2"),
    (lambda: tl.adaptive_start(5, 0, 0), ValueError, "out_size=0"),
    (lambda: tl.adaptive_end(5, 2, 2), ValueError, "i=2"),
    (lambda: tl.adaptive_start(0, 2, 0), ValueError, "in_size=0"),
    (lambda: tl.max_pool_value(SPACE, (6, 0, 0), *ND), ValueError, "out_idxs"),
    (lambda: tl.max_pool_value(SPACE, (0, 0), *ND), ValueError, "out_idxs"),
    (lambda: tl.padded_coords((0,), (0,), (0,)), ValueError, "stride=0"),
    (lambda: tl.padded_coords((-1,), (0,), (1,)), ValueError, "out_idxs=-1"),
    (lambda: tl.get_padded_average_input_val(IMG, (0,), (0,), (1,), (0,)), ValueError, "2 axes"),
    (lambda: tl.tensor_of_dims((2,), lambda i: [1, 2]), ValueError, "f gave arrays"),
    (lambda: tl.global_avg_pool2d_spec(GAVG, np.zeros((2, 0, 3))), ValueError, "length 0"),
    (lambda: tl.channel_spatial_max(np.zeros((0, 3))), ValueError, "length 0"),
    (lambda: tl.smooth_max_pool2d_spec(MAX2D, 0.0, SMALL), ValueError, "beta=0.0"),
    (lambda: tl.smooth_max_pool2d_spec(MAX2D, BETA, IMG), ln.spec.MissingOperation, "exp"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()
