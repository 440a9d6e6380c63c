"""Elements moved about: slices, gathers, padding, stretching and the nearest of a new grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lunette.onnx.graph import Step
from lunette.onnx.operators.table import operator
from lunette.onnx.recorder import Recorder, Value, axes_of, axis_of

__all__: list[str] = []


@operator("Slice")
def slice_of(
    run: Recorder,
    step: Step,
    x: Value,
    starts: Value | None = None,
    ends: Value | None = None,
    axes: Value | None = None,
    steps: Value | None = None,
) -> Value:
    if step.opset < 10:
        first, last, along = step.get("starts"), step.get("ends"), step.get("axes")
        strides = None
    else:
        if starts is None or ends is None:
            raise step.error("starts and ends are missing")
        first, last = run.ints(step, starts, "starts"), run.ints(step, ends, "ends")
        along = None if axes is None else run.ints(step, axes, "axes")
        strides = None if steps is None else run.ints(step, steps, "steps")
    along = list(range(len(first))) if along is None else along
    strides = [1] * len(first) if strides is None else strides
    if not len(first) == len(last) == len(along) == len(strides):
        raise step.error("starts, ends, axes and steps have several lengths")
    picks: list[Any] = [slice(None)] * len(x.shape)
    for axis, a, b, s in zip(axes_of(step, along, len(x.shape)), first, last, strides, strict=True):
        if s == 0:
            raise step.error(f"steps={strides}: expected none that is 0")
        picks[axis] = slice(a, b, s)  # Python's slices clamp as ONNX's do
    return run.move(step, x, lambda array: array[tuple(picks)])


@operator("Gather")
def gather(run: Recorder, step: Step, x: Value, indices: Value) -> Value:
    if not x.shape:
        raise step.error("of a value without axes")
    axis = axis_of(step, step.get("axis"), len(x.shape))
    places, count = run.array(step, indices, "indices"), x.shape[axis]
    if places.dtype.kind not in "iu":
        raise step.error(f"indices have dtype {places.dtype}: expected integers")
    if places.size and not (-count <= int(places.min()) and int(places.max()) < count):
        raise step.error(
            f"indices reach from {places.min()} to {places.max()}; axis {axis} has {count} elements"
        )
    run.bounded(step, (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]))
    return run.move(step, x, lambda array: np.take(array, places.astype(np.int64), axis))


@operator("Expand")
def expand(run: Recorder, step: Step, x: Value, shape: Value) -> Value:
    sizes = tuple(run.ints(step, shape, "shape"))
    try:
        full = run.bounded(step, np.broadcast_shapes(x.shape, sizes))
    except ValueError as error:
        raise step.error(f"{x.shape} does not stretch to {sizes}: {error}") from None
    return run.move(step, x, lambda array: np.broadcast_to(array, full).copy())


@operator("Pad")
def pad(
    run: Recorder,
    step: Step,
    x: Value,
    pads: Value | None = None,
    fill: Value | None = None,
    axes: Value | None = None,
) -> Value:
    mode, ndim = step.get("mode"), len(x.shape)
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise step.error(f"attribute mode={mode!r} is not read here")
    if step.opset < 11:
        counts, number = step.get("pads"), step.get("value")
        fill = run.constant(number) if number else None
    else:
        if pads is None:
            raise step.error("pads are missing")
        counts = run.ints(step, pads, "pads")
    along = range(ndim) if axes is None else axes_of(step, run.ints(step, axes, "axes"), ndim)
    if len(counts) != 2 * len(along):
        raise step.error(f"pads={counts}: expected {2 * len(along)} numbers")
    widths = [(0, 0)] * ndim
    for i, axis in enumerate(along):
        widths[axis] = (counts[i], counts[len(along) + i])
    cut = tuple(
        slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, widths, strict=True)
    )
    if any(
        a + b + n < 0 or s.stop < s.start for n, (a, b), s in zip(x.shape, widths, cut, strict=True)
    ):
        raise step.error(f"pads={counts} take away more than there is of {x.shape}")
    if any(width != (0, 0) and min(width) < 0 for width in widths):
        x = run.move(step, x, lambda array: array[cut])
    grown = [(max(a, 0), max(b, 0)) for a, b in widths]
    if not any(map(any, grown)):
        return x
    run.bounded(step, (a + n + b for n, (a, b) in zip(x.shape, grown, strict=True)))
    if mode != "constant":
        room = {"reflect": -1, "edge": math.inf, "wrap": 0}[mode]
        for n, (a, b) in zip(x.shape, grown, strict=True):
            if max(a, b) and (max(a, b) > n + room or n == 0):
                raise step.error(f"pads={counts} are too wide for mode {mode!r} of {x.shape}")
        style: Any = mode
        return run.move(step, x, lambda array: np.pad(array, grown, style))
    if fill is not None and math.prod(fill.shape) != 1:
        raise step.error(f"constant_value has shape {fill.shape}: expected one number")
    if fill is None:
        dtype = run.dtype if x.id is not None else x.array.dtype
        fill = run.known(np.zeros((), dtype))
    count = math.prod(x.shape)
    index = np.pad(np.arange(count).reshape(x.shape), grown, constant_values=count)
    return run.merge(step, [x, fill], index)


@operator("Resize")
def resize(
    run: Recorder,
    step: Step,
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
) -> Value:
    """The nearest element of each place of a new grid."""
    if step.opset < 11:
        scales, roi = roi, None
    mode = step.get("mode")
    if mode != "nearest":
        raise step.error(f"attribute mode={mode!r} is not read here: expected 'nearest'")
    transformation = step.get("coordinate_transformation_mode") or "asymmetric"
    nearest = step.get("nearest_mode") or "floor"
    if transformation not in ("asymmetric", "half_pixel"):
        raise step.error(
            f"attribute coordinate_transformation_mode={transformation!r}: not read here"
        )
    rounding: dict[str, Any] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda p: np.ceil(p - 0.5),
        "round_prefer_ceil": lambda p: np.floor(p + 0.5),
    }
    if nearest not in rounding:
        raise step.error(f"attribute nearest_mode={nearest!r}: not read here")
    for name in ("cubic_coeff_a", "exclude_outside", "extrapolation_value"):
        step.get(name)  # of other modes alone
    if step.get("antialias"):
        raise step.error("attribute antialias=1 is not read here")
    if step.get("keep_aspect_ratio_policy") not in (None, "stretch"):
        raise step.error("attribute keep_aspect_ratio_policy is not read here")
    ndim = len(x.shape)
    along = step.get("axes")
    axes = tuple(range(ndim)) if along is None else axes_of(step, along, ndim)
    index = np.arange(math.prod(x.shape)).reshape(x.shape)
    if (scales is None or scales.shape == (0,)) == (sizes is None or sizes.shape == (0,)):
        raise step.error("expected either scales or sizes")
    plan = []
    if scales is not None and scales.shape != (0,):
        factors = [float(f) for f in run.array(step, scales, "scales").reshape(-1)]
        lengths = [math.floor(x.shape[a] * f) for a, f in zip(axes, factors, strict=False)]
    else:
        lengths = run.ints(step, sizes, "sizes") if sizes is not None else []
        factors = [m / x.shape[a] for a, m in zip(axes, lengths, strict=False)]
    if len(factors) != len(axes) or min(factors, default=1) <= 0 or min(lengths, default=1) < 1:
        raise step.error(f"factors {factors}: expected {len(axes)} positive ones")
    full = list(x.shape)
    for axis, length in zip(axes, lengths, strict=True):
        full[axis] = length
    run.bounded(step, full)
    for axis, factor, length in zip(axes, factors, lengths, strict=True):
        places = np.arange(length, dtype=np.float64)
        places = (
            (places + 0.5) / factor - 0.5 if transformation == "half_pixel" else places / factor
        )
        picks = np.clip(rounding[nearest](places), 0, x.shape[axis] - 1).astype(np.int64)
        plan.append((axis, picks))
    for axis, picks in plan:
        index = np.take(index, picks, axis)
    if x.id is None:
        return run.known(x.array.reshape(-1)[index], x)
    return run.take(step, x, index)
