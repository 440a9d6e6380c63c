"""The verbs of pooling on NumPy arrays: find the prepared call, allocate its result, run it."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from lunette.kernels.cpu.layout.batch_interleave import BatchInterleave, ties_count
from lunette.kernels.cpu.layout.nhwc_to_nchw import Transposed, channels_last
from lunette.kernels.cpu.layout.split_axis import LONG, LongAxis, long_axis, long_outputs
from lunette.kernels.cpu.loops import lse_huge_windows
from lunette.kernels.cpu.loops import max_huge_windows as huge_maxima
from lunette.kernels.cpu.memory.block_cache import new_array
from lunette.kernels.cpu.program.calls import Call
from lunette.kernels.cpu.schedule.nhwc import nhwc_plan
from lunette.kernels.cpu.select.argmax import (
    indices_call,
    offsets_call,
    taken_call,
    tangent_call,
)
from lunette.kernels.cpu.select.forward import forward_call
from lunette.kernels.cpu.select.huge_windows import huge_max
from lunette.kernels.cpu.select.lse_nhwc import channels_of
from lunette.kernels.cpu.select.lse_pairs import is_huge, lse_by_pairs
from lunette.kernels.cpu.select.vjp import gather_call, gradient_call
from lunette.ops.base import is_float
from lunette.ops.pooling import Pool, Pooling
from lunette.positions import unravel
from lunette.reductions import Max, Mean, SmoothMax

__all__ = [
    "channels_to_rows",
    "forward",
    "forward_with_indices",
    "forward_with_offsets",
    "jvp",
    "jvp_from_offsets",
    "refuses",
    "vjp",
    "vjp_from_offsets",
]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

PARTS_KEPT = 8
"""Parts of an axis of very many outputs whose tables are kept: some megabytes each."""


def refuses(op: Pooling, verb: str, shapes: Any, dtypes: Any) -> str | None:
    """Why the kernels cannot serve this call, or None."""
    (dtype,) = dtypes
    if not is_float(dtype) and dtype.kind not in "iub":
        return f"has no kernel for dtype {dtype}"
    if verb == "forward_with_indices" and not isinstance(op.reduction, Max):
        return "has indices for max alone"
    if type(op.reduction) not in (Max, Mean, SmoothMax):
        return f"has no kernel for {op.reduction!r}"
    return None


def forward(op: Pooling, operands: tuple[Array, ...]) -> Array:
    """The value of every window."""
    x = _readable(operands[0])
    if not x.size:
        return _nothing(op, x)
    if isinstance(op.reduction, SmoothMax) and is_huge(op, x.shape, "values"):
        return _whole_axes(op, lse_huge_windows.values, op.out_shape(x.shape), x)
    if huge_max(op, x.shape, "values") and not long_outputs(op, x.shape):
        return _whole_axes(op, huge_maxima.values, op.out_shape(x.shape), x)
    if max(x.shape) > LONG and (long := long_axis(op, x.shape)):
        return long.forward(lambda part, slab: forward(part, (slab,)), x)
    if isinstance(op.reduction, SmoothMax) and (last := channels_to_rows(op, x, x, "values")):
        (y,) = last.apply(lambda x: (_values(op, x),), x)
    else:
        y = _values(op, x)
    return _as_kept(op, y)


def forward_with_indices(op: Pooling, operands: tuple[Array, ...]) -> tuple[Array, Array]:
    """The value of every window, and its first winner's flat position in the pooled axes, or −1."""
    x = _readable(operands[0])
    if not x.size:
        return _nothing(op, x), _nothing(op, x).astype(np.int64)
    if huge_max(op, x.shape, "winners") and not long_outputs(op, x.shape):
        y = new_array(op.out_shape(x.shape), x.dtype)
        return y, _whole_axes(op, huge_maxima.indices, y.shape, x, y, dtype=np.dtype(np.int64))
    if max(x.shape) > LONG and (long := long_axis(op, x.shape)):
        return long.forward_with_indices(lambda part, x: forward_with_indices(part, (x,)), x)
    if last := channels_to_rows(op, x, x, "winners"):
        y, z = last.apply(lambda x: _values_and_indices(op, x), x)
    else:
        y, z = _values_and_indices(op, x)
    return _as_kept(op, y), _as_kept(op, z)


def jvp(op: Pooling, operands: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
    """The directional derivative of every window's value."""
    if isinstance(op.reduction, Mean):
        return forward(op, tangents)  # linear, so the tangent has the same bits by either name
    x, dx = _readable(operands[0]), _readable(tangents[0])
    if not x.size:
        return _nothing(op, x)
    if isinstance(op.reduction, SmoothMax) and is_huge(op, x.shape, "tangents"):
        return _whole_axes(op, lse_huge_windows.tangents, op.out_shape(x.shape), x, dx)
    if huge_max(op, x.shape, "tangents") and not long_outputs(op, x.shape):
        return _whole_axes(op, huge_maxima.tangents, op.out_shape(x.shape), x, dx)
    if max(x.shape) > LONG and (long := long_axis(op, x.shape)):
        return long.forward(lambda part, x, dx: jvp(part, (x,), (dx,)), x, dx)
    if last := channels_to_rows(op, x, dx, "tangents"):
        (y,) = last.apply(lambda x, dx: (_tangents(op, x, dx),), x, dx)
    else:
        y = _tangents(op, x, dx)
    return _as_kept(op, y)


def vjp(op: Pooling, operands: tuple[Array, ...], grad: Array) -> tuple[Array, ...]:
    """The gradient of every cell."""
    x, gy = _readable(operands[0]), _readable(grad)
    if not x.size:
        return (np.empty_like(x),)
    if isinstance(op.reduction, SmoothMax) and is_huge(op, x.shape, "gradients"):
        return (_whole_axes(op, lse_huge_windows.gradients, x.shape, x, gy),)
    if huge_max(op, x.shape, "gradients"):
        return (_whole_axes(op, huge_maxima.gradients, x.shape, x, gy),)
    if max(x.shape) > LONG and (long := long_axis(op, x.shape)):
        return (long.vjp(lambda part, x, gy: vjp(part, (x,), gy)[0], x, gy),)
    if not op.keepdims:
        gy = gy.reshape(gy.shape + (1,) * op.rank)
    if not isinstance(op.reduction, Mean) and (last := channels_to_rows(op, x, gy, "gradients")):
        return last.apply(lambda x, gy: (_gradients(op, x, gy),), x, gy)
    return (_gradients(op, x, gy),)


def forward_with_offsets(op: Pooling, x: Array) -> tuple[Array, Array] | None:
    """The value of every window and the offset of its first winner; None where no kernel has them."""
    x = _readable(x)
    if max(x.shape) > LONG or offsets_call(op, x.shape, x.strides, x.dtype) is None:
        return None
    if last := channels_to_rows(op, x, x, "winners"):
        y, z = last.apply(lambda x: _values_and_offsets(op, x), x)
    else:
        y, z = _values_and_offsets(op, x)
    return _as_kept(op, y), _as_kept(op, z)


def vjp_from_offsets(op: Pooling, shape: Shape, offsets: Array, grad: Array) -> Array | None:
    """The gradient of every cell; None where no kernel gives it."""
    gy = _readable(grad)
    if not op.keepdims:
        gy, offsets = (a.reshape(a.shape + (1,) * op.rank) for a in (gy, offsets))
    if max(shape) > LONG or gather_call(op, shape, gy.strides, gy.dtype) is None:
        return None
    pooled = shape[len(shape) - op.rank :]

    def gathered(gy: Array, offsets: Array) -> tuple[Array]:
        whole = (*gy.shape[: -op.rank], *pooled)
        call: Any = gather_call(op, whole, gy.strides, gy.dtype)
        gx = call.new()
        if isinstance(call, Call):
            call.run(np.ascontiguousarray(offsets.transpose(call.order)), gy, gx)
        elif isinstance(call, BatchInterleave):
            call.run(np.ascontiguousarray(offsets), gy, gx)
        else:
            call.work(np.ascontiguousarray(offsets), gy, gx, np.zeros(1, np.uint8))
        return (gx,)

    call = gather_call(op, shape, gy.strides, gy.dtype)
    last = None if isinstance(call, Call) else channels_last(op.rank, gy)
    return (last.apply(gathered, gy, offsets) if last else gathered(gy, offsets))[0]


def jvp_from_offsets(op: Pooling, offsets: Array, tangent: Array) -> Array | None:
    """The tangent of every winner; None where no kernel gives it, or an offset is no cell of its window."""
    dx = _readable(tangent)
    if not op.keepdims:
        offsets = offsets.reshape(offsets.shape + (1,) * op.rank)
    if max(dx.shape) > LONG or taken_call(op, dx.shape, dx.strides, dx.dtype) is None:
        return None
    nonfinite = []

    def taken(dx: Array, offsets: Array) -> tuple[Array]:
        call: Any = taken_call(op, dx.shape, dx.strides, dx.dtype)
        y, flags = call.new(), np.zeros(call.steps[0][1].items, np.uint8)
        call.work(dx, y, np.ascontiguousarray(offsets), flags)
        nonfinite.append(flags.any())
        return (y,)

    last = channels_last(op.rank, dx)
    (y,) = last.apply(taken, dx, offsets) if last else taken(dx, offsets)
    return None if any(nonfinite) else _as_kept(op, y)


# -- with every pooled axis kept --


def _values(op: Pooling, x: Array) -> Array:
    call = forward_call(op, x.shape, x.strides, x.dtype)
    if call is None:
        return _long(op, x).forward(_forgetting(lambda part, x: forward(part, (x,))), x)
    y: Array = call.new()
    call.run(x, y, y)
    return y


def _values_and_indices(op: Pooling, x: Array) -> tuple[Array, Array]:
    call = indices_call(op, x.shape, x.strides, x.dtype)
    if call is None:
        verb = _forgetting(lambda part, x: forward_with_indices(part, (x,)))
        return _long(op, x).forward_with_indices(verb, x)
    y, z = call.new(), call.new(np.dtype(np.int64))
    call.run(x, y, z)
    return y, z


def _tangents(op: Pooling, x: Array, dx: Array) -> Array:
    call = tangent_call(op, x.shape, x.strides, dx.strides, x.dtype)
    if call is None:
        return _long(op, x).forward(_forgetting(lambda op, x, dx: jvp(op, (x,), (dx,))), x, dx)
    y: Array = call.new()
    call.run(x, y, dx)
    return y


def _whole_axes(
    op: Pooling, verb: Any, shape: Shape, x: Array, *others: Array, dtype: Any = None
) -> Array:
    """A verb of windows taken whole axes at a time; its result has the pooled axes that the op keeps."""
    result = new_array(shape, dtype or op.result_dtype(x.dtype))
    kept = Pool(op.regions, op.reduction)
    full = [
        a if a.ndim == x.ndim else a.reshape(a.shape + (1,) * op.rank) for a in (*others, result)
    ]
    with np.errstate(all="ignore"):
        verb(kept, x, *full)
    return result


def _long(op: Pooling, x: Array) -> LongAxis:
    """The axis of too many outputs for one call's tables."""
    found = long_outputs(op, x.shape)
    assert found is not None
    return found


def _forgetting(verb: Any) -> Any:
    """A verb of parts that are all different: their tables are large, and are not kept."""
    numbers = count(1)

    def apply(*arguments: Any) -> Any:
        result = verb(*arguments)
        if next(numbers) % PARTS_KEPT == 0:
            for calls in (forward_call, indices_call, tangent_call):
                calls.cache_clear()
        return result

    return apply


def _gradients(op: Pooling, x: Array, gy: Array) -> Array:
    call = gradient_call(op, x.shape, x.strides, gy.strides, x.dtype)
    gx: Array = call.new()
    call.run(x, gy, gx)
    return gx


def _values_and_offsets(op: Pooling, x: Array) -> tuple[Array, Array]:
    from lunette.offsets import offsets_of

    call: Any = offsets_call(op, x.shape, x.strides, x.dtype)
    y, z = call.new(), call.new(np.dtype(np.uint8))
    if isinstance(call, (Call, BatchInterleave)):
        call.run(x, y, z)
        return y, z
    flags = np.zeros(call.steps[0][1].items, np.uint8)
    call.work(x, y, z, flags)
    if flags.any():
        # Items with a NaN, by kernels that know them.
        place = unravel(np.flatnonzero(flags), x.shape[: x.ndim - op.rank])
        some = np.ascontiguousarray(x[place])
        y[place], indices = _values_and_indices(op, some)
        z[place] = offsets_of(op, some.shape, _as_kept(op, indices), known=True).reshape(
            indices.shape
        )
    return y, z


def channels_to_rows(op: Pooling, x: Array, other: Array, verb: str) -> Transposed | None:
    """How to turn an array with channels last, unless kernels go by its channels."""
    if x.flags.c_contiguous or lse_by_pairs(op, x.shape, verb):
        return None
    layout = op, x.shape, x.strides, other.strides, x.dtype
    if (
        nhwc_plan(*layout, ties_count(op, verb))
        if isinstance(op.reduction, Max)
        else channels_of(*layout)
    ):
        return None
    return channels_last(op.rank, x)


def _as_kept(op: Pooling, y: Array) -> Array:
    """A result without the pooled axes where the op does not keep them."""
    return y if op.keepdims else y.reshape(y.shape[: -op.rank])


def _nothing(op: Pooling, x: Array) -> Array:
    """The result of an empty batch; its axes may have any length, so nothing is planned."""
    return np.empty(op.out_shape(x.shape), op.result_dtype(x.dtype))


def _readable(x: Array) -> Array:
    """The array itself where its elements can be addressed in place; otherwise a copy.

    Elements that are not aligned, or strides that are not whole elements, leave no choice.
    """
    flags = x.flags
    if flags.aligned and (flags.c_contiguous or all(s % x.dtype.itemsize == 0 for s in x.strides)):
        return x
    return x.copy()
