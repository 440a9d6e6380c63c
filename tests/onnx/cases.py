"""Every operator with every attribute that is read, across the opsets that changed it."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

from tests.onnx.models import model, single

RANDOM = np.random.default_rng(7)


def f(*shape):
    """Random weights."""
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def i(*numbers):
    return np.array(numbers, np.int64)


def cases():
    """(name, model) pairs; the input is called x."""
    for op in ("Relu", "Sigmoid", "Tanh", "Sign", "Neg", "Exp", "Identity", "Dropout"):
        yield op, single(op, (2, 3))
    yield (
        "Log",
        model(
            [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Log", ["e"], ["y"])],
            {"x": (4,)},
        ),
    )
    for op in ("Add", "Sub", "Mul", "Div"):
        yield op, single(op, (2, 3), f(3) + 2)
        yield f"{op} stretched", single(op, (2, 1, 3), f(4, 1) + 2, opset=8)
    yield "Max", single("Max", (2, 3), f(3), f(2, 1))
    yield "Min", single("Min", (2, 3), f(3), f(2, 1), opset=8)
    yield "LeakyRelu", single("LeakyRelu", (2, 3), alpha=0.25)
    yield "Clip 6", single("Clip", (3, 4), opset=9, min=-0.25, max=0.5)
    yield "Clip 6, max alone", single("Clip", (3, 4), opset=9, max=0.5)
    yield "Clip", single("Clip", (3, 4), np.float32(-0.25), np.float32(0.5))
    yield "Clip, max alone", single("Clip", (3, 4), None, np.float32(0.5), opset=11)
    yield "Clip, min past max", single("Clip", (3, 4), np.float32(0.5), np.float32(-0.5), opset=12)
    yield "MatMul", single("MatMul", (2, 3), f(3, 4))
    yield "MatMul, batches", single("MatMul", (2, 1, 2, 3), f(4, 3, 2))
    yield "MatMul, row", single("MatMul", (3,), f(3, 2))
    for a in (0, 1):
        for b in (0, 1):
            x, w = (3, 2) if a else (2, 3), f(4, 3) if b else f(3, 4)
            yield f"Gemm {a}{b}", single("Gemm", x, w, f(4), transA=a, transB=b)
    yield "Gemm, factors", single("Gemm", (2, 3), f(3, 4), f(2, 1), alpha=0.5, beta=-2.0)
    yield "Gemm, C of one number", single("Gemm", (2, 3), f(3, 4), np.float32(0.5), opset=9)
    yield "Gemm, no C", single("Gemm", (2, 3), f(3, 4), alpha=2.0, opset=11)
    yield "Softmax 11", single("Softmax", (2, 3, 4), opset=11)
    yield "Softmax 13", single("Softmax", (2, 3, 4), opset=13)
    yield "Softmax, axis", single("Softmax", (2, 3, 4), axis=1)
    yield (
        "BatchNormalization",
        single("BatchNormalization", (2, 3, 2), f(3), f(3), f(3), np.abs(f(3)), epsilon=0.01),
    )
    yield (
        "BatchNormalization 9",
        single("BatchNormalization", (2, 3), f(3), f(3), f(3), np.abs(f(3)), opset=9, momentum=0.5),
    )
    yield from convolutions()
    yield from poolings()
    yield from shapes()
    yield from moves()


def convolutions():
    yield "Conv 1-D", single("Conv", (2, 3, 9), f(4, 3, 3), f(4))
    yield "Conv 2-D", single(
        "Conv", (2, 4, 7, 8), f(6, 2, 3, 2), f(6), group=2, strides=[2, 1], pads=[1, 0, 2, 1],
        dilations=[1, 2], kernel_shape=[3, 2], opset=11,
    )  # fmt: skip
    yield "Conv 3-D", single("Conv", (1, 2, 4, 4, 4), f(3, 2, 2, 2, 2))
    for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        yield (
            f"Conv {mode}",
            single("Conv", (1, 2, 7, 6), f(3, 2, 4, 3), auto_pad=mode, strides=[2, 3]),
        )
        for op in ("MaxPool", "AveragePool"):
            yield (
                f"{op} {mode}",
                single(op, (1, 2, 7, 6), kernel_shape=[4, 3], auto_pad=mode, strides=[2, 2]),
            )
    yield "ConvTranspose", single("ConvTranspose", (2, 3, 5), f(3, 2, 3), f(2))
    yield "ConvTranspose, all", single(
        "ConvTranspose", (1, 4, 4, 3), f(4, 3, 3, 2), f(6), group=2, strides=[2, 3],
        pads=[1, 0, 0, 1], output_padding=[1, 2], dilations=[2, 1],
    )  # fmt: skip
    yield (
        "ConvTranspose, shape",
        single(
            "ConvTranspose",
            (1, 2, 4),
            f(2, 3, 4),
            strides=[2],
            output_shape=[9],
            auto_pad="SAME_UPPER",
        ),
    )
    for mode in ("SAME_UPPER", "SAME_LOWER"):
        yield (
            f"ConvTranspose {mode}",
            single("ConvTranspose", (1, 2, 4), f(2, 3, 5), strides=[2], auto_pad=mode),
        )


def poolings():
    for op, opset in (("MaxPool", 8), ("MaxPool", 17), ("AveragePool", 8), ("AveragePool", 19)):
        name = f"{op} {opset}"
        yield name, single(op, (1, 2, 7, 8), opset=opset, kernel_shape=[3, 2])
        yield (
            f"{name}, strides",
            single(
                op,
                (2, 3, 7, 8),
                opset=opset,
                kernel_shape=[3, 2],
                strides=[2, 3],
                pads=[1, 0, 2, 1],
            ),
        )
        if opset > 8:
            yield (
                f"{name}, ceil",
                single(
                    op, (1, 2, 8, 9), opset=opset, kernel_shape=[3, 3], strides=[2, 3], ceil_mode=1
                ),
            )
            yield (
                f"{name}, dilations",
                single(op, (1, 2, 9), opset=opset, kernel_shape=[3], dilations=[2], pads=[1, 1]),
            )
    yield (
        "MaxPool, storage_order",
        single("MaxPool", (1, 1, 5, 5), kernel_shape=[2, 2], storage_order=1),
    )
    for counted in (0, 1):
        yield f"AveragePool, padding {counted}", single(
            "AveragePool", (1, 2, 6, 7), kernel_shape=[3, 2], pads=[1, 1, 2, 0], strides=[2, 2],
            count_include_pad=counted,
        )  # fmt: skip
        yield f"AveragePool, ceil and padding {counted}", single(
            "AveragePool", (1, 2, 6, 7), kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[3, 3],
            count_include_pad=counted, ceil_mode=1, opset=19,
        )  # fmt: skip
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        yield op, single(op, (2, 3, 4, 5))
        yield f"{op} 1-D", single(op, (2, 3, 4), opset=9)
    for op, by_input in (("ReduceMean", 18), ("ReduceMax", 18), ("ReduceSum", 13)):
        for keep in (0, 1):
            yield f"{op} {keep}", single(op, (2, 3, 4), opset=11, axes=[0, -1], keepdims=keep)
            yield f"{op} input {keep}", single(op, (2, 3, 4), i(-2), opset=by_input, keepdims=keep)
        yield f"{op} all", single(op, (2, 3, 4), opset=by_input)
        yield f"{op} noop", single(op, (2, 3), opset=by_input, noop_with_empty_axes=1)


def shapes():
    yield "Flatten", single("Flatten", (2, 3, 4))
    yield "Flatten 0", single("Flatten", (2, 3, 4), axis=0)
    yield "Flatten -1", single("Flatten", (2, 3, 4), axis=-1, opset=11)
    yield "Reshape", single("Reshape", (2, 3, 4), i(0, -1))
    yield "Reshape, allowzero", single("Reshape", (2, 3), i(3, 2), allowzero=1)
    yield "Transpose", single("Transpose", (2, 3, 4))
    yield "Transpose, perm", single("Transpose", (2, 3, 4), perm=[1, 2, 0])
    yield "Squeeze 11", single("Squeeze", (1, 3, 1), axes=[-1], opset=11)
    yield "Squeeze 13", single("Squeeze", (1, 3, 1), i(0))
    yield "Squeeze, all", single("Squeeze", (1, 3, 1))
    yield "Unsqueeze 11", single("Unsqueeze", (3,), axes=[0, 2], opset=11)
    yield "Unsqueeze 13", single("Unsqueeze", (3,), i(-1, 0))
    yield "Concat", single("Concat", (2, 3), f(2, 1), axis=1)
    yield "Concat -2", single("Concat", (2, 3), f(1, 3), axis=-2)
    yield "Expand", single("Expand", (3, 1), i(2, 1, 4))
    yield "Cast", single("Cast", (3,), to=1)
    value = numpy_helper.from_array(f(2, 3))
    yield (
        "Constant",
        model(
            [
                helper.make_node("Constant", [], ["c"], value=value),
                helper.make_node("Add", ["x", "c"], ["y"]),
            ],
            {"x": (2, 3)},
        ),
    )
    yield (
        "shape arithmetic",
        model(
            [
                helper.make_node("Shape", ["x"], ["s"]),
                helper.make_node("Gather", ["s", "first"], ["n"], axis=0),
                helper.make_node("Unsqueeze", ["n", "zero"], ["n1"]),
                helper.make_node("Mul", ["n1", "two"], ["n2"]),
                helper.make_node("Concat", ["n2", "rest"], ["t"], axis=0),
                helper.make_node("Reshape", ["x", "t"], ["y"]),
            ],
            {"x": (3, 4, 2)},
            constants={"first": np.int64(0), "zero": i(0), "two": i(2), "rest": i(-1)},
        ),
    )


def moves():
    yield "Slice 9", single("Slice", (5, 6), opset=9, starts=[1, -4], ends=[4, 100], axes=[0, 1])
    yield "Slice", single("Slice", (5, 6), i(1), i(-1))
    yield "Slice, backward", single("Slice", (5, 6), i(-1, 4), i(-100, 0), i(0, 1), i(-2, -1))
    yield "Slice, far", single("Slice", (5,), i(-100), i(2**63 - 1), i(0), i(3))
    yield "Gather", single("Gather", (4, 3), np.array([[0, -1], [2, 2]]), axis=0)
    yield "Gather, one", single("Gather", (4, 3), np.int64(1), axis=-1, opset=11)
    yield "Pad 9", single("Pad", (2, 3), opset=9, pads=[1, 0, 0, 2], value=0.5)
    yield "Pad", single("Pad", (2, 3), i(1, 0, 0, 2), np.float32(-1.5))
    yield "Pad, less", single("Pad", (4, 5), i(-1, 1, 0, -2))
    yield "Pad, axes", single("Pad", (2, 3), i(1, 2), None, i(-1), opset=18)
    for mode in ("reflect", "edge", "wrap"):
        yield f"Pad {mode}", single("Pad", (3, 4), i(1, 2, 0, 1), mode=mode, opset=19)
    for mode in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
        for place in ("asymmetric", "half_pixel"):
            yield f"Resize {mode} {place}", single(
                "Resize", (1, 1, 3, 4), None, np.array([1, 1, 2, 1.5], np.float32), mode="nearest",
                nearest_mode=mode, coordinate_transformation_mode=place, opset=13,
            )  # fmt: skip
    yield "Resize, sizes", single(
        "Resize", (1, 2, 3, 4), None, None, i(1, 2, 6, 4), mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip
    mask = np.array([[True], [False]])
    yield (
        "Where",
        model(
            [helper.make_node("Where", ["m", "x", "b"], ["y"])],
            {"x": (2, 3)},
            constants={"m": mask, "b": f(3)},
        ),
    )
    yield "ScatterND", single("ScatterND", (4, 3), np.array([[3], [0]]), f(2, 3))
    yield (
        "ArgMax",
        model(
            [
                helper.make_node("ArgMax", ["x"], ["a"], axis=1, keepdims=1),
                helper.make_node("Cast", ["a"], ["f"], to=1),
                helper.make_node("Mul", ["x", "f"], ["y"]),
            ],
            {"x": (3, 4)},
        ),
    )
    yield (
        "Cast to integers",
        model(
            [
                helper.make_node("Mul", ["x", "ten"], ["t"]),
                helper.make_node("Cast", ["t"], ["n"], to=7),
                helper.make_node("Equal", ["n", "zero"], ["e"]),
                helper.make_node("Cast", ["e"], ["ef"], to=1),
                helper.make_node("Cast", ["n"], ["f"], to=1),
                helper.make_node("Add", ["f", "ef"], ["g"]),
                helper.make_node("Add", ["x", "g"], ["y"]),
            ],
            {"x": (3, 4)},
            constants={"ten": np.float32(10), "zero": np.int64(0)},
        ),
    )


CASES = dict(cases())
