"""Triton kernels for pooling on CUDA: regions × reduction, any rank, over torch tensors or arrays that are only described.

The verbs take tensors that the op has accepted. They run on CPU tensors too when Triton is
imported with TRITON_INTERPRET=1, one element after another: for tests.

A winner's *offset* is its tap's place in the window's box of taps, row-major over the pooled axes,
padding taps included; one byte, so boxes of at most 255 taps. 255 stands for a window without a
cell. On an axis of unequal windows (adaptive) the box is the largest window's and taps count from
each window's own start. Offsets are not checked, for that would wait for the device: one that is no cell of its window
sends nothing back, and its tangent is zero; no memory outside the arrays is touched.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from lunette.kernels.triton.accept import check_tensors, check_triton

check_triton()

from lunette.kernels.triton.arrays import as_type, name_of, new, seen_as  # noqa: E402
from lunette.kernels.triton.gradients import spread, spread_smooth, spread_whole  # noqa: E402
from lunette.kernels.triton.launch import INTEGERS, Request  # noqa: E402
from lunette.kernels.triton.plan import Plan, Unserved, plan  # noqa: E402
from lunette.kernels.triton.values import locate_winners, reduce_windows  # noqa: E402
from lunette.ops.pooling import Pooling  # noqa: E402
from lunette.reductions import Max, Mean, SmoothMax  # noqa: E402
from lunette.regions import Region  # noqa: E402

__all__ = [
    "EMPTY_OFFSET",
    "forward",
    "forward_with_indices",
    "forward_with_offsets",
    "jvp",
    "jvp_from_offsets",
    "refuses",
    "vjp",
    "vjp_from_offsets",
]

Tensor = Any
EMPTY_OFFSET = 255
FLOATS = ("float16", "bfloat16", "float32", "float64")
OTHERS = (*INTEGERS, "bool")


def refuses(op: Any, verb: str, shapes: Any, dtypes: Any) -> str | None:
    """None, or why these kernels cannot serve the call; dtypes of NumPy or torch."""
    if not isinstance(op, Pooling):
        return f"serves pooling, not {type(op).__name__}"
    if type(op.reduction) not in (Max, Mean, SmoothMax):
        return f"serves max, mean and smooth max, not {op.reduction!r}"
    names = set(map(name_of, dtypes))
    unknown = sorted(names - {*FLOATS, *OTHERS})
    if unknown:
        return f"serves {', '.join(FLOATS + OTHERS)}; got {', '.join(unknown)}"
    if verb in ("jvp", "vjp", "vjp_from_offsets") and names & set(OTHERS):
        return "integers have no tangent or gradient"
    shape = tuple(shapes[0])
    if verb in ("forward_with_indices", "forward_with_offsets", "vjp_from_offsets"):
        if not isinstance(op.reduction, Max):
            return "only a max has winners"
        if verb == "vjp_from_offsets" and op.reduction.ties != "first":
            return f"one winner per window means ties='first', not {op.reduction.ties!r}"
    try:
        made = plan(op.regions, 1, shape[len(shape) - op.rank :], 1)
    except Unserved as reason:
        return str(reason)
    if verb in ("forward_with_offsets", "vjp_from_offsets") and made.cells > EMPTY_OFFSET:
        return f"windows of {made.cells} cells have offsets past one byte; use indices"
    return None


# -- the verbs --


def forward(op: Pooling, operands: tuple[Tensor, ...]) -> Tensor:
    """The value of every window."""
    check_tensors(operands[0])
    call = _Call.of(op, operands[0])
    y = call.new_output()
    if y.numel():
        reduce_windows(call.plan, _request(op), call.x, y)
    return call.finish_value(y)


def forward_with_indices(op: Pooling, operands: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """The value of every window, and its winner's flat position in the pooled axes (int64), or −1."""
    check_tensors(operands[0])
    call = _Call.of(op, operands[0])
    y, codes = call.winners()
    indices = new(y.shape, "int64", y.device)
    if y.numel():
        locate_winners(call.plan, codes, indices)
    return call.finish_value(y), call.finish(indices)


def forward_with_offsets(op: Pooling, operands: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """The value of every window, and its winner's offset in the window (uint8; 255: no cell)."""
    check_tensors(operands[0])
    call = _Call.of(op, operands[0])
    y, codes = call.winners("uint8")
    return call.finish_value(y), call.finish(codes)


def jvp(op: Pooling, operands: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> Tensor:
    """The directional derivative of every window's value."""
    (x,), (dx,) = operands, tangents
    check_tensors(x, tangent=dx)
    reduction = op.reduction
    if isinstance(reduction, Mean):
        return forward(op, (dx,))
    call = _Call.of(op, x)
    y, dx = call.new_output(), call.alike(dx)
    if not y.numel():
        return call.finish(y)
    if isinstance(reduction, SmoothMax):
        reduce_windows(call.plan, _request(op, "smooth_jvp"), call.x, y, other=dx)
        return call.finish(y)
    assert isinstance(reduction, Max)
    if reduction.ties == "first":
        _, codes = call.winners()
        locate_winners(call.plan, codes, y, dx)
    else:
        value = call.new_output()
        reduce_windows(call.plan, Request("max"), call.x, value)
        form = "tied_jvp" if reduction.ties == "all" else "split_jvp"
        reduce_windows(call.plan, Request(form), call.x, y, other=dx, value=value)
    return call.finish(y)


def vjp(op: Pooling, operands: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, ...]:
    """The gradient of every cell, gathered: the same bits in every run."""
    check_tensors(operands[0], gradient=grad)
    call = _Call.of(op, operands[0])
    gx = new(call.x.shape, call.x.dtype, call.x.device)
    if not call.plan.out_size:
        return (call.finish_input(gx),)
    gy, reduction = call.alike_output(grad), op.reduction
    read = gx if isinstance(reduction, Mean) else call.x  # a mean's gradient reads no cell of x
    if spread_whole(call.plan, _request(op, getattr(reduction, "ties", "")), read, gy, gx):
        pass
    elif isinstance(reduction, Mean):
        spread(call.plan, _request(op), gy, gx)
    elif isinstance(reduction, SmoothMax):
        if spread_smooth(call.plan, _request(op), call.x, gy, gx):
            return (call.finish_input(gx),)
        kind = "float64" if name_of(gx.dtype) == "float64" else "float32"
        pivot, scaled = call.new_output(kind), call.new_output(kind)
        reduce_windows(call.plan, _request(op, "stats"), call.x, pivot, scaled, other=gy)
        spread(call.plan, _request(op), scaled, gx, x=call.x, value=pivot)
    elif isinstance(reduction, Max) and reduction.ties == "first":
        _, codes = call.winners()
        spread(call.plan, Request("codes"), gy, gx, codes=codes)
    else:
        assert isinstance(reduction, Max)
        value = call.new_output()
        reduce_windows(call.plan, Request("max"), call.x, value)
        if reduction.ties == "split":
            kind = "float64" if name_of(gx.dtype) == "float64" else "float32"
            shared = call.new_output(kind)
            reduce_windows(call.plan, Request("split"), call.x, shared, other=gy, value=value)
            gy = shared
        spread(call.plan, Request("tied"), gy, gx, x=call.x, value=value)
    return (call.finish_input(gx),)


def vjp_from_offsets(op: Pooling, x_shape: Any, offsets: Tensor, grad: Tensor) -> Tensor:
    """The gradient of a max of ties "first", from the offsets that its forward gave."""
    check_tensors(grad, offsets=offsets)
    shape = tuple(x_shape)
    call = _Call.like(op, shape, grad)
    gx = new(call.stored_shape, grad.dtype, grad.device)
    if call.plan.out_size:
        gy, codes = call.alike_output(grad), call.alike_output(offsets)
        spread(call.plan, Request("codes"), gy, gx, codes=codes)
    return call.finish_input(gx)


def jvp_from_offsets(op: Pooling, offsets: Tensor, tangent: Tensor) -> Tensor:
    """The tangent at every winner: the adjoint of `vjp_from_offsets`."""
    check_tensors(tangent, offsets=offsets)
    call = _Call.of(op, tangent)
    y = call.new_output()
    if y.numel():
        locate_winners(call.plan, call.alike_output(offsets), y, call.x)
    return call.finish(y)


# -- layouts: channels before or after the pooled axes --


class _Call(NamedTuple):
    """An op, its plan, and x as it lies in memory: contiguous, with channels last if it came so."""

    op: Pooling
    plan: Plan
    x: Tensor
    shape: tuple[int, ...]
    channels_last: bool
    boolean: bool = False

    @staticmethod
    def of(op: Pooling, x: Tensor) -> _Call:
        boolean = name_of(x.dtype) == "bool"
        if not isinstance(op.reduction, Max) and not x.is_floating_point():
            x = as_type(x, "float64")
        elif boolean:
            x = seen_as(x, "uint8")
        channels_last = _channels_last(x, op.rank)
        made, stored = (
            _plan(op.regions, tuple(x.shape), channels_last),
            _stored(x, op.rank, channels_last),
        )
        return _Call(op, made, stored, tuple(x.shape), channels_last, boolean)

    @staticmethod
    def like(op: Pooling, shape: tuple[int, ...], grad: Tensor) -> _Call:
        """A call whose x is not at hand, in the layout of `grad`."""
        grad = grad.reshape(_kept(op, shape))
        channels_last = _channels_last(grad, op.rank)
        return _Call(op, _plan(op.regions, shape, channels_last), None, shape, channels_last)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        return _moved(self.shape, self.op.rank) if self.channels_last else self.shape

    def new_output(self, dtype: Any = None) -> Tensor:
        kept = _kept(self.op, self.shape)
        shape = _moved(kept, self.op.rank) if self.channels_last else kept
        return new(shape, dtype or self.x.dtype, self.x.device)

    def winners(self, dtype: Any = None) -> tuple[Tensor, Tensor]:
        """The value of every window and its winner's code."""
        smallest = "uint8" if self.plan.cells <= EMPTY_OFFSET else "int32"
        y, codes = self.new_output(), self.new_output(dtype or smallest)
        if y.numel():
            reduce_windows(self.plan, Request("codes"), self.x, y, codes)
        return y, codes

    def alike(self, x: Tensor) -> Tensor:
        return _stored(x, self.op.rank, self.channels_last)

    def alike_output(self, y: Tensor) -> Tensor:
        return self.alike(y.reshape(_kept(self.op, self.shape)))

    def finish(self, y: Tensor) -> Tensor:
        """The result as the caller knows it: axes in order."""
        y = self.finish_input(y)
        return y if self.op.keepdims else y.reshape(self.shape[: len(self.shape) - self.op.rank])

    def finish_value(self, y: Tensor) -> Tensor:
        """The same for values: bools as bools."""
        return self.finish(
            seen_as(y, "bool") if self.boolean and name_of(y.dtype) == "uint8" else y
        )

    def finish_input(self, x: Tensor) -> Tensor:
        return x.movedim(-1, len(self.shape) - self.op.rank - 1) if self.channels_last else x


@lru_cache(maxsize=4096)
def _plan(regions: tuple[Region, ...], shape: tuple[int, ...], channels_last: bool) -> Plan:
    batch, pooled = shape[: len(shape) - len(regions)], shape[len(shape) - len(regions) :]
    if channels_last:
        return plan(regions, prod(batch[:-1]), pooled, batch[-1])
    return plan(regions, prod(batch), pooled, 1)


@lru_cache(maxsize=4096)
def _request(op: Pooling, form: str = "") -> Request:
    reduction = op.reduction
    if isinstance(reduction, Mean):
        return Request(
            form or "mean",
            divisor=reduction.divisor_override,
            count_padding=reduction.count_include_pad,
        )
    if isinstance(reduction, SmoothMax):
        return Request(
            form or "smooth", beta=float(reduction.beta), count_padding=reduction.count_include_pad
        )
    return Request(form or "max")


def _channels_last(x: Tensor, rank: int) -> bool:
    """Whether the axis before the pooled ones is the innermost in memory."""
    batch = x.ndim - rank
    return bool(batch >= 1 and not x.is_contiguous() and x.movedim(batch - 1, -1).is_contiguous())


def _stored(x: Tensor, rank: int, channels_last: bool) -> Tensor:
    return (x.movedim(x.ndim - rank - 1, -1) if channels_last else x).contiguous()


def _kept(op: Pooling, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the result with every pooled axis kept."""
    return _lengths(op.regions, shape)


@lru_cache(maxsize=4096)
def _lengths(regions: tuple[Region, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    batch, pooled = shape[: len(shape) - len(regions)], shape[len(shape) - len(regions) :]
    return (*batch, *(r.out_length(n) for r, n in zip(regions, pooled, strict=True)))


def _moved(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """`shape` with the axis before the pooled ones at the end."""
    at = len(shape) - rank - 1
    return (*shape[:at], *shape[at + 1 :], shape[at])
