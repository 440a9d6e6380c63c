"""The whole of TorchLean's vocabulary: Lean's name, ours, a call and its value worked another way."""

from fractions import Fraction
from typing import Any, NamedTuple

from lunette import torchlean as tl
from tests.cells import (
    avg_of,
    avg_weights,
    balls,
    channels,
    fractions,
    max_of,
    max_weights,
    push,
    sample,
    scatter,
    smooth_of,
    smooth_weights,
)

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
