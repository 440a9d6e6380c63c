"""Convolutions and poolings: ONNX's attributes as arguments of Lunette's ops."""

from __future__ import annotations

from typing import Any

from lunette.onnx.graph import Step
from lunette.onnx.operators.table import operator
from lunette.onnx.recorder import Recorder, Value
from lunette.ops import AvgPool, Conv, ConvTranspose, MaxPool

__all__: list[str] = []

Pads = tuple[tuple[int, int], ...]


def _per_axis(step: Step, name: str, ndim: int, least: int = 1) -> tuple[int, ...]:
    """One number for each axis of the kernel; 1 where the file gives none."""
    values = step.get(name)
    values = [1] * ndim if values is None else values
    if len(values) != ndim or min(values, default=least) < least:
        raise step.error(f"{name}={values}: expected {ndim} numbers of at least {least}")
    return tuple(values)


def _auto(step: Step) -> str:
    mode = step.get("auto_pad") or "NOTSET"
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise step.error(f"attribute auto_pad={mode!r} is unknown")
    pads = step.get("pads")
    if mode != "NOTSET" and pads is not None and any(pads):
        raise step.error(f"attributes auto_pad={mode!r} and pads={pads}: expected one of them")
    return str(mode)


def _explicit(step: Step, ndim: int) -> Pads:
    pads = step.get("pads")
    pads = [0] * (2 * ndim) if pads is None else pads
    if len(pads) != 2 * ndim or min(pads, default=0) < 0:
        raise step.error(f"pads={pads}: expected {2 * ndim} numbers of at least 0")
    return tuple(zip(pads[:ndim], pads[ndim:], strict=True))


def _shared(mode: str, total: int) -> tuple[int, int]:
    """Padding at the start and at the end; the odd cell where the mode puts it."""
    small, large = total // 2, total - total // 2
    return (small, large) if mode == "SAME_UPPER" else (large, small)


def _padding(step: Step, sizes: Any, kernel: Any, strides: Any, dilations: Any) -> Pads:
    mode = _auto(step)
    if mode == "NOTSET":
        return _explicit(step, len(kernel))
    if mode == "VALID":
        return ((0, 0),) * len(kernel)
    pads = []
    for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        reach = (-(-n // s) - 1) * s + d * (k - 1) + 1
        pads.append(_shared(mode, max(reach - n, 0)))
    return tuple(pads)


def _spatial(step: Step, x: Value, weight: Value) -> tuple[int, ...]:
    """The kernel: that of the weights, which the attribute must not contradict."""
    if len(weight.shape) < 3 or len(x.shape) != len(weight.shape):
        raise step.error(
            f"x of shape {x.shape} and weights of shape {weight.shape}: expected as many axes, "
            "(batch, channels, …) and (…, …, *kernel)"
        )
    kernel, said = weight.shape[2:], step.get("kernel_shape")
    if said is not None and tuple(said) != kernel:
        raise step.error(f"kernel_shape={said}, but the weights have shape {weight.shape}")
    return kernel


def _group(step: Step) -> int:
    group = int(step.get("group"))
    if group < 1:
        raise step.error(f"group={group}: expected at least 1")
    return group


@operator("Conv")
def conv(run: Recorder, step: Step, x: Value, weight: Value, bias: Value | None = None) -> Value:
    kernel = _spatial(step, x, weight)
    strides, dilations = (_per_axis(step, n, len(kernel)) for n in ("strides", "dilations"))
    padding = _padding(step, x.shape[2:], kernel, strides, dilations)
    op = _made(step, Conv, kernel, strides, padding, dilations, _group(step))
    return run.apply(step, op, x, weight, *([] if bias is None else [bias]))


@operator("ConvTranspose")
def conv_transpose(
    run: Recorder, step: Step, x: Value, weight: Value, bias: Value | None = None
) -> Value:
    kernel = _spatial(step, x, weight)
    ndim = len(kernel)
    strides, dilations = (_per_axis(step, n, ndim) for n in ("strides", "dilations"))
    extra = step.get("output_padding")
    extra = (0,) * ndim if extra is None else _per_axis(step, "output_padding", ndim, 0)
    wanted, mode = step.get("output_shape"), _auto(step)
    if wanted is not None and len(wanted) != ndim:
        raise step.error(f"output_shape={wanted}: expected {ndim} sizes")
    sizes = x.shape[2:]
    whole = [
        (n - 1) * s + e + d * (k - 1) + 1
        for n, s, e, d, k in zip(sizes, strides, extra, dilations, kernel, strict=True)
    ]
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(sizes, strides, strict=True)]
    if wanted is None:
        padding = _explicit(step, ndim) if mode == "NOTSET" else ((0, 0),) * ndim
    else:
        totals = [w - m for w, m in zip(whole, wanted, strict=True)]
        if min(totals) < 0:
            raise step.error(f"output_shape={wanted}: at most {whole} can be reached")
        step.get("pads")  # the wanted shape says what they are
        # Of a transposed convolution SAME_UPPER takes the odd cell away at the end.
        place = "SAME_UPPER" if mode == "SAME_UPPER" else "SAME_LOWER"
        padding = tuple(_shared(place, total) for total in totals)
    op = _made(step, ConvTranspose, kernel, strides, padding, extra, dilations, _group(step))
    return run.apply(step, op, x, weight, *([] if bias is None else [bias]))


@operator("MaxPool", "AveragePool")
def pool(run: Recorder, step: Step, x: Value) -> Value:
    kernel = tuple(step.get("kernel_shape"))
    if len(kernel) + 2 != len(x.shape) or not kernel:
        raise step.error(f"kernel_shape={list(kernel)} for x of shape {x.shape}")
    strides, dilations = (_per_axis(step, n, len(kernel)) for n in ("strides", "dilations"))
    padding = _padding(step, x.shape[2:], kernel, strides, dilations)
    ceil = bool(step.get("ceil_mode"))
    if ceil and _auto(step) == "VALID":
        raise step.error("attributes ceil_mode=1 and auto_pad='VALID' together are not read here")
    if _auto(step) != "NOTSET":
        ceil = False  # the mode says how many windows there are
    if max(dilations) > 1 and _auto(step).startswith("SAME"):
        raise step.error("attributes dilations and auto_pad='SAME_…': runtimes differ; give pads")
    step.get("storage_order")  # of the second output alone, which is not computed
    options: dict[str, Any] = {}
    if step.op == "AveragePool":
        options["count_include_pad"] = bool(step.get("count_include_pad"))
    kind = MaxPool if step.op == "MaxPool" else AvgPool
    op = _made(step, kind, kernel, strides, padding, dilations, ceil, **options)
    _check_cells(step, op, x.shape[2:])
    return run.apply(step, op, x)


def _made(step: Step, kind: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return kind(*arguments, **options)
    except (ValueError, TypeError) as error:
        raise step.error(str(error)) from None


def _check_cells(step: Step, op: Any, sizes: tuple[int, ...]) -> None:
    """ONNX gives no meaning to a window of padding alone."""
    try:
        shape = op.out_shape((1, 1, *sizes))
    except ValueError as error:
        raise step.error(str(error)) from None
    for axis, (n, m) in enumerate(zip(sizes, shape[2:], strict=True)):
        k, s, (before, _), d = op.kernel[axis], op.stride[axis], op.padding[axis], op.dilation[axis]
        early = -(-before // s)  # windows that start in the padding
        if early > 2**20:
            raise step.error(f"axis {axis}: {early} windows start in the padding")
        empty = [o for o in range(min(early, m)) if not _has_cell(o * s - before, n, k, d)]
        if (m - 1) * s - before >= n:
            empty.append(m - 1)
        if empty:
            raise step.error(f"axis {axis}: window {empty[0]} holds padding alone")


def _has_cell(start: int, n: int, k: int, d: int) -> bool:
    """Whether a window that starts before the input reaches a cell of it."""
    first = -(start // d)  # the first step at or past 0
    return first < k and start + first * d < n
