"""Pooling written in torch's own operators, where one means the same: for ONNX, programs without this package, and fusion.

A compiled, traced or exported call is one opaque node of ours. Inside `lowered()`, and always while `torch.onnx.export`
runs, it is `max_pool2d`, `avg_pool2d`, `adaptive_avg_pool2d`, `mean`, `amax` … of torch instead.
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lunette.ops.pooling import Pooling
from lunette.reductions import Max, Mean, SmoothMax
from lunette.regions import Adaptive, Global, Sliding

__all__ = ["Unlowered", "forward", "forward_with_indices", "in_onnx_export", "lowered", "wanted"]

AXES = (1, 2, 3)
"""Numbers of pooled axes that torch's functions have."""

_asked: list[bool] = []
"""One entry for each `lowered()` that is open: whether it is an error that an op has no form in torch."""


class Unlowered(TypeError):
    """Why an op is not written in torch's operators.

    Examples
    --------
    >>> import lunette as ln
    >>> issubclass(ln.torch.Unlowered, Exception)
    True
    """


class lowered:
    """`with lowered():` compiled, exported and traced calls are written in torch's own operators, where one means the same.

    An op that has none stays an operator of ours; with `required`, it is an error. It counts for the whole process, where a call
    is traced: for `torch.compile`, at every call of the compiled function. Calls at once are not changed.

    Parameters
    ----------
    required : bool, default False
        Make an op that cannot be written so an error.

    Raises
    ------
    Unlowered
        With the op and why, where it is required.

    Examples
    --------
    >>> import torch
    >>> import lunette as ln
    >>> with ln.torch.lowered():
    ...     program = torch.jit.trace(lambda x: ln.max_pool(x, (2, 2)), torch.zeros(1, 1, 4, 4))
    >>> "max_pool2d" in str(program.graph)
    True
    """

    def __init__(self, required: bool = False) -> None:
        if not isinstance(required, bool):
            raise TypeError(f"required={required!r}: expected True or False")
        self.required = required

    def __enter__(self) -> lowered:
        _asked.append(self.required)
        return self

    def __exit__(self, *_: object) -> None:
        _asked.pop()


def in_onnx_export() -> bool:
    """Whether `torch.onnx.export` runs."""
    exporter = sys.modules.get("torch.onnx")  # nobody exports who has not loaded it
    return exporter is not None and bool(exporter.is_in_onnx_export())


in_onnx_export._dynamo_marked_constant = True  # type: ignore[attr-defined]
"""Asked when torch.compile traces, and not when the program runs: as `torch.compiler.assume_constant_result` says it."""


def wanted(x: Any) -> bool:
    """Whether a call of x is to be written in torch's operators."""
    if in_onnx_export():
        return True
    if not _asked or not isinstance(x, Tensor):
        return False
    return bool(torch.compiler.is_compiling() or torch.jit.is_tracing())


def forward(op: Pooling, x: Tensor, beta: Tensor | None = None) -> Any:
    """The op's value by torch's operators; None where it stays an operator of ours, or `Unlowered` where that is no answer.

    `beta` takes the place of a smooth max's own.
    """
    return _or_ours(op, x, lambda derived: _value(op, x, beta, derived))


def forward_with_indices(op: Pooling, x: Tensor) -> Any:
    """The same of a max's value and its winners."""
    return _or_ours(op, x, lambda derived: _with_indices(op, x))


def _or_ours(op: Pooling, x: Tensor, form: Any) -> Any:
    onnx = in_onnx_export()
    try:
        return form(not onnx)
    except Unlowered as reason:
        if not onnx and not any(_asked):
            return None
        whose = "standard ONNX operator" if onnx else "operator of torch"
        raise Unlowered(f"{op!r} has no {whose} that means the same: {reason}") from None


# -- what each op is in torch --


def _value(op: Pooling, x: Tensor, beta: Tensor | None, derived: bool) -> Any:
    """`derived`: the gradients have to be the same too."""
    _check_input(op, x)
    kinds = {type(region) for region in op.regions}
    reduction = op.reduction
    if kinds == {Global}:
        return _global(op, x, beta, derived)
    if op.rank not in AXES:
        raise Unlowered(f"it pools {op.rank} axes, torch's operators pool {AXES[0]} to {AXES[-1]}")
    if not isinstance(reduction, (Max, Mean)):
        raise Unlowered("a smooth max of windows is no standard operator; global ones are")
    _check_ties(reduction, derived)
    images = _as_images(op, x)
    if kinds <= {Sliding} and not all(_untouched(r) for r in op.regions):
        pooled = _sliding_max if isinstance(reduction, Max) else _sliding_mean
        return _as_batch(op, x, pooled(op, images))
    name = "max" if isinstance(reduction, Max) else "avg"
    pool = getattr(functional, f"adaptive_{name}_pool{op.rank}d")
    return _as_batch(op, x, pool(images, _bins(op, x)))


def _with_indices(op: Pooling, x: Tensor) -> Any:
    _check_input(op, x)
    reduction = op.reduction
    if not isinstance(reduction, Max) or reduction.ties != "first":
        raise Unlowered("torch tells the winners of a max with ties='first' alone")
    if op.rank not in AXES or not op.keepdims:
        raise Unlowered(f"torch tells winners over {AXES[0]} to {AXES[-1]} axes, which are kept")
    images, kinds = _as_images(op, x), {type(region) for region in op.regions}
    if kinds == {Sliding}:
        arguments = _native(op, x)
        if arguments is None:
            raise Unlowered("its padding is put on beforehand, which moves the winners' places")
        pool = getattr(functional, f"max_pool{op.rank}d")
        found = pool(images, *arguments, return_indices=True)
    else:
        pool = getattr(functional, f"adaptive_max_pool{op.rank}d")
        found = pool(images, _bins(op, x), return_indices=True)
    return tuple(_as_batch(op, x, y) for y in found)


def _check_input(op: Pooling, x: Tensor) -> None:
    if x.ndim < op.rank:
        raise ValueError(f"{op!r} pools the last {op.rank} axes; x has {x.ndim}")
    if not x.is_floating_point():
        raise Unlowered(f"x has dtype {x.dtype}; expected a float type")


def _check_ties(reduction: Any, derived: bool) -> None:
    if isinstance(reduction, Max) and reduction.ties != "first" and derived:
        raise Unlowered(f"its gradient has ties={reduction.ties!r}, torch's the first or the last")


def _global(op: Pooling, x: Tensor, beta: Tensor | None, derived: bool) -> Any:
    axes, reduction = tuple(range(-op.rank, 0)), op.reduction
    if isinstance(reduction, Mean):
        if reduction.divisor_override is not None:
            return x.sum(axes, keepdim=op.keepdims) / reduction.divisor_override
        if op.keepdims and op.rank in AXES:
            pool = getattr(functional, f"adaptive_avg_pool{op.rank}d")
            return _as_batch(op, x, pool(_as_images(op, x), (1,) * op.rank))
        return x.mean(axes, keepdim=op.keepdims)
    if isinstance(reduction, SmoothMax):
        slope: Any = reduction.beta if beta is None else beta.to(x.dtype)
        return torch.logsumexp(x * slope, axes, keepdim=op.keepdims) / slope
    if not isinstance(reduction, Max):
        raise Unlowered(f"no operator for {reduction!r}")
    if derived and reduction.ties != "split":
        raise Unlowered("torch's global max splits the gradient among ties; expected ties='split'")
    return x.amax(axes, keepdim=op.keepdims)


def _as_images(op: Pooling, x: Tensor) -> Tensor:
    """x with two axes before the pooled ones."""
    batch = x.ndim - op.rank
    if batch > 2:
        return x.flatten(0, batch - 2)
    for _ in range(2 - batch):
        x = x.unsqueeze(0)
    return x


def _as_batch(op: Pooling, x: Tensor, y: Tensor) -> Tensor:
    """A result with the axes before the pooled ones that x has."""
    batch = x.ndim - op.rank
    if batch > 2:
        y = y.reshape(*x.shape[: batch - 1], *y.shape[1:])
    for _ in range(2 - batch):
        y = y.squeeze(0)
    if not op.keepdims:
        y = y.flatten(batch).squeeze(-1)
    return y


def _untouched(region: Any) -> bool:
    """Whether every output is the cell at its place."""
    return bool(region == Sliding(1))


def _bins(op: Pooling, x: Tensor) -> tuple[Any, ...]:
    """Output sizes of an adaptive function; None keeps an axis."""
    bins: list[Any] = []
    for axis, region in enumerate(op.regions):
        if isinstance(region, Adaptive):
            bins.append(region.output_size)
        elif isinstance(region, Global):
            bins.append(1)
        elif _untouched(region):
            bins.append(None if op.rank > 1 else x.shape[-1])
        else:
            raise Unlowered(
                f"pooled axis {axis} has sliding windows and another has bins; torch has one kind in a call"
            )
    if in_onnx_export() and (isinstance(op.reduction, Max) or torch.jit.is_tracing()):
        _check_equal(op, x, bins)
    return tuple(bins)


def _check_equal(op: Pooling, x: Tensor, bins: list[Any]) -> None:
    """ONNX has no bins but those of equal length, and of one cell: a max's, and a mean's where it is written from a trace."""
    for axis, m in enumerate(bins):
        n = x.shape[x.ndim - op.rank + axis]
        if m in (None, 1):
            continue
        fixed = not isinstance(n, torch.SymInt)
        if not fixed or int(n) % m:
            raise Unlowered(
                f"pooled axis {axis} of length {int(n) if fixed else n} has {m} bins of unequal length; a fixed length that {m} "
                "divides has equal ones"
            )


# -- sliding windows --


def _native(op: Pooling, x: Tensor) -> Any:
    """Kernel, stride, padding, dilation and ceil_mode as torch's functions take them; None where padding has to be put on."""
    regions: Any = op.regions
    pads = _margins(op, x)
    ceil = {r.ceil_mode for r in regions}
    if len(ceil) > 1 or any(
        a != b or 2 * a > r.kernel for (a, b), r in zip(pads, regions, strict=True)
    ):
        return None
    return (
        *_windows(op),
        tuple(a for a, _ in pads),
        tuple(r.dilation for r in regions),
        ceil == {True},
    )


def _windows(op: Pooling) -> tuple[tuple[int, ...], tuple[int, ...]]:
    regions: Any = op.regions
    return tuple(r.kernel for r in regions), tuple(r.stride for r in regions)


def _margins(op: Pooling, x: Tensor) -> list[tuple[int, int]]:
    """Padding before and after each axis. Of "same" with a stride it depends on the length, which a trace then fixes."""
    pads = []
    for axis, region in enumerate(op.regions):
        assert isinstance(region, Sliding)
        if isinstance(region.padding, tuple):
            pads.append(region.padding)
        elif region.stride == 1:
            pads.append(region.margins(region.extent))
        else:
            n = x.shape[x.ndim - op.rank + axis]
            if isinstance(n, torch.SymInt):
                raise Unlowered(
                    f"padding='same' with stride {region.stride} on pooled axis {axis}, whose length is not "
                    "fixed; export a fixed length, or say the padding in numbers"
                )
            pads.append(region.margins(int(n)))
    return pads


def _padded(op: Pooling, x: Tensor, images: Tensor, value: float) -> Tensor:
    """Padding as cells."""
    if any(r.ceil_mode for r in op.regions if isinstance(r, Sliding)):
        raise Unlowered(
            "ceil_mode with padding that differs at the two ends, or is past half the kernel"
        )
    pads = _margins(op, x)
    return functional.pad(images, [n for pair in reversed(pads) for n in pair], value=value)


def _sliding_max(op: Pooling, images: Tensor) -> Any:
    for axis, (region, (before, after)) in enumerate(
        zip(op.regions, _margins(op, images), strict=True)
    ):
        assert isinstance(region, Sliding)
        reach = region.extent - 1
        if before or after:
            n = images.shape[2 + axis]
            short = region.dilation > 1 and (
                isinstance(n, torch.SymInt) or int(n) < region.dilation
            )
            if max(before, after) > reach or short:
                raise Unlowered(
                    f"a window on pooled axis {axis} may hold padding alone; it is 0 here and −inf in torch"
                )
    pool, arguments = getattr(functional, f"max_pool{op.rank}d"), _native(op, images)
    if arguments is not None:
        return pool(images, *arguments)
    dilation = tuple(r.dilation for r in op.regions if isinstance(r, Sliding))
    return pool(_padded(op, images, images, float("-inf")), *_windows(op), 0, dilation)


def _sliding_mean(op: Pooling, images: Tensor) -> Any:
    regions: Any = op.regions
    reduction: Any = op.reduction
    if any(r.dilation > 1 for r in regions):
        raise Unlowered("a mean with dilation")
    arguments, divisor = _native(op, images), reduction.divisor_override
    pool = getattr(functional, f"avg_pool{op.rank}d")
    kernel, stride = _windows(op)
    if arguments is None:
        if not reduction.count_include_pad and divisor is None:
            raise Unlowered(
                "count_include_pad=False with padding that differs at the two ends, or is past half the kernel"
            )
        images, padding, ceil, counted = (
            _padded(op, images, images, 0.0),
            (0,) * op.rank,
            False,
            True,
        )
    else:
        (_, _, padding, _, ceil), counted = arguments, reduction.count_include_pad
    if ceil and any(padding) and in_onnx_export():
        raise Unlowered(
            "ceil_mode with padding: ONNX keeps a last window that starts in the padding"
        )
    if divisor is None:
        return pool(images, kernel, stride, padding, ceil, counted)
    if op.rank > 1 and not in_onnx_export():
        return pool(images, kernel, stride, padding, ceil, counted, divisor)
    if ceil:
        raise Unlowered("divisor_override with ceil_mode, where the last window may be cut short")
    # avg_pool1d has no divisor, and torch's exporters forget it.
    return pool(images, kernel, stride, padding, False, True) * (prod(kernel) / divisor)
