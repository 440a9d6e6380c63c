"""Sums and products, functions of one element, matrices, and what is the same at inference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lunette.onnx.graph import Step
from lunette.onnx.operators.table import operator
from lunette.onnx.recorder import Recorder, Value, axis_of
from lunette.spec import scalars
from lunette.spec.duals import Dual, Duals
from lunette.tape import functions as fn

__all__: list[str] = []

BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}
UNARY = {
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Sign": "sign",
    "Neg": "neg",
    "Exp": "exp",
    "Log": "log",
}


@operator(*BINARY)
def binary(run: Recorder, step: Step, a: Value, b: Value) -> Value:
    if a.is_float or b.is_float:
        return run.apply(step, BINARY[step.op], a, b)
    if a.array.dtype != b.array.dtype or a.array.dtype.kind not in "iu":
        raise step.error(f"of dtypes {a.array.dtype} and {b.array.dtype}: expected equal integers")
    try:
        run.bounded(step, np.broadcast_shapes(a.shape, b.shape))
    except ValueError as error:
        raise step.error(str(error)) from None
    if step.op == "Div":
        if not b.array.all():
            raise step.error("divides an integer by zero")
        size = np.abs(a.array) // np.abs(b.array)  # toward zero
        signed = np.where((a.array < 0) != (b.array < 0), -size, size)
        return run.known(signed.astype(a.array.dtype), a, b)
    compute = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[step.op]
    return run.known(compute(a.array, b.array), a, b)


@operator(*UNARY)
def unary(run: Recorder, step: Step, x: Value) -> Value:
    return run.apply(step, UNARY[step.op], x)


@operator("LeakyRelu")
def leaky_relu(run: Recorder, step: Step, x: Value) -> Value:
    alpha = step.get("alpha")
    if not 0 <= alpha <= 1:
        raise step.error(f"attribute alpha={alpha}: expected 0 … 1")
    return run.apply(step, "maximum", x, run.apply(step, "mul", x, run.constant(alpha)))


@operator("Max", "Min")
def extreme(run: Recorder, step: Step, *values: Value) -> Value:
    least, *rest = values
    for value in rest:
        least = larger(run, step, least, value, step.op == "Min")
    return least


def larger(run: Recorder, step: Step, a: Value, b: Value, smaller: bool = False) -> Value:
    """The larger of two; the smaller is the larger of the negatives, negated, and as exact."""
    if not (a.is_float or b.is_float):
        return run.known((np.minimum if smaller else np.maximum)(a.array, b.array), a, b)
    if not smaller:
        return run.apply(step, "maximum", a, b)
    below = run.apply(step, "maximum", run.apply(step, "neg", a), run.apply(step, "neg", b))
    return run.apply(step, "neg", below)


@operator("Clip")
def clip(
    run: Recorder, step: Step, x: Value, low: Value | None = None, high: Value | None = None
) -> Value:
    if step.opset < 11:
        ends = [step.get("min"), step.get("max")]
        low, high = (
            run.constant(end) if name in step.given else None
            for name, end in zip(("min", "max"), ends, strict=True)
        )
    for end, what in ((low, "min"), (high, "max")):
        if end is not None and end.shape not in ((), (1,)):
            raise step.error(f"{what} has shape {end.shape}: expected one number")
    if low is not None and low.shape == (1,):
        low = run.reshape(step, low, ())
    if high is not None and high.shape == (1,):
        high = run.reshape(step, high, ())
    if low is not None:
        x = larger(run, step, x, low)
    return x if high is None else larger(run, step, x, high, smaller=True)


# -- matrices --


@operator("MatMul")
def matmul(run: Recorder, step: Step, a: Value, b: Value) -> Value:
    return run.apply(step, "matmul", a, b)


@operator("Gemm")
def gemm(run: Recorder, step: Step, a: Value, b: Value, c: Value | None = None) -> Value:
    """alpha · A B + beta · C; as one linear map where C is a bias and both factors are 1."""
    for value in (a, b):
        if len(value.shape) != 2:
            raise step.error(f"of shapes {a.shape} and {b.shape}: expected matrices")
    alpha, beta = step.get("alpha"), step.get("beta")
    if step.get("transA"):
        a = run.transpose(step, a, (1, 0))
    plain = alpha == 1 and (c is None or beta == 1)
    transposed = step.get("transB")
    weight = b if transposed else run.transpose(step, b, (1, 0))
    if plain and (c is None or c.shape == weight.shape[:1]):
        return run.apply(step, "linear", a, weight, *([] if c is None else [c]))
    product = run.apply(step, "linear", a, weight)
    if alpha != 1:
        product = run.apply(step, "mul", product, run.constant(alpha))
    if c is None:
        return product
    if len(c.shape) > 2 or any(
        n not in (1, m) for n, m in zip(c.shape[::-1], product.shape[::-1], strict=False)
    ):
        raise step.error(f"C of shape {c.shape} does not stretch to {product.shape}")
    if beta != 1:
        c = run.apply(step, "mul", c, run.constant(beta))
    return run.apply(step, "add", product, c)


@operator("Softmax")
def softmax(run: Recorder, step: Step, x: Value) -> Value:
    ndim = len(x.shape)
    axis = axis_of(step, step.get("axis"), ndim)
    if step.opset < 13:  # all axes from this one on are one
        flat = run.reshape(step, x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
        return run.reshape(step, run.apply(step, "softmax", flat), x.shape)
    if axis == ndim - 1:
        return run.apply(step, "softmax", x)
    order = (*(i for i in range(ndim) if i != axis), axis)
    back = tuple(order.index(i) for i in range(ndim))
    last = run.apply(step, "softmax", run.transpose(step, x, order))
    return run.transpose(step, last, back)


# -- at inference --


@operator("BatchNormalization")
def batch_normalization(
    run: Recorder, step: Step, x: Value, scale: Value, bias: Value, mean: Value, variance: Value
) -> Value:
    """scale/√(variance + epsilon) · (x − mean) + bias, channel by channel."""
    if step.get("training_mode"):
        raise step.error("attribute training_mode=1 is not read here: expected inference")
    if step.get("spatial") == 0:
        raise step.error("attribute spatial=0 is not read here")
    step.get("momentum")  # of training alone
    epsilon = step.get("epsilon")
    if len(x.shape) < 2:
        raise step.error(f"x has shape {x.shape}: expected (batch, channels, …)")
    shape = (x.shape[1], *(1,) * (len(x.shape) - 2))
    numbers = []
    for value, what in ((scale, "scale"), (bias, "B"), (mean, "mean"), (variance, "var")):
        if value.shape != x.shape[1:2]:
            raise step.error(f"{what} has shape {value.shape}: expected {x.shape[1:2]}")
        run.array(step, value, what)
        numbers.append(run.reshape(step, value, shape))
    scale, bias, mean, variance = numbers
    spread = variance.array.astype(np.float64) + float(epsilon)
    if not (spread > 0).all():
        raise step.error("var + epsilon is not positive")
    root = run.tape.leaf(_roots(run, spread), f"{step.outputs[0]} deviation", False)
    centred = run.apply(step, "sub", x, mean)
    scaled = run.apply(step, "div", centred, Value(None, root, False))
    return run.apply(step, "add", run.apply(step, "mul", scaled, scale), bias)


def _roots(run: Recorder, squares: Any) -> Any:
    """Square roots of float64 numbers: the nearest float64, or all that may be the root."""
    roots = np.sqrt(squares)
    if not fn.is_object(run.like):
        if fn.library(run.like) is np:
            return roots.astype(run.like.dtype)
        return run.converted(roots)
    system, out = scalars.of_array(run.like), np.empty(roots.shape, object)
    for i, root in np.ndenumerate(roots):
        out[i] = system.from_real(float(root)) * _about_one(system)
    return out


def _about_one(system: Any) -> Any:
    """1; as an interval or a ball, wide enough for a sum and a root, each rounded once."""
    if system.name == "Interval":
        from lunette.spec.intervals import Interval

        return Interval(1 - 2.0**-51, 1 + 2.0**-51)
    if system.name == "arb":
        import flint

        return flint.arb(1, 2.0**-51)
    if isinstance(system, Duals):
        return Dual(_about_one(system.base), system.base.from_int(0))
    return system.from_int(1)


@operator("Dropout")
def dropout(
    run: Recorder,
    step: Step,
    x: Value,
    ratio: Value | None = None,
    training: Value | None = None,
) -> Value:
    """Nothing is dropped at inference."""
    step.get("ratio")
    step.get("seed")
    if training is not None and run.array(step, training, "training_mode").any():
        raise step.error("training_mode is true: not read here, expected inference")
    return x


@operator("Identity")
def identity(run: Recorder, step: Step, x: Value) -> Value:
    return x
