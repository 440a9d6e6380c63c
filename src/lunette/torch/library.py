"""Pooling as torch operators: kernels, shapes without data, derivatives and batching, registered.

Three operators carry every pooling op, and each is the others' derivative:
`lunette::pool`, `lunette::pool_jvp`, `lunette::pool_vjp`; `lunette::pool_with_indices` is a max
that tells its winners. An op travels as text (`lunette.encoding`). `beta` is None, or a
tensor of one element that takes the place of a smooth max's own beta, so that it can be learned.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from lunette import dispatch
from lunette.encoding import decode
from lunette.kernels.threads import limited
from lunette.ops.pooling import Pool, Pooling
from lunette.torch import derivatives
from lunette.torch.autograd import register_derivatives
from lunette.torch.checking import check_beta, check_devices, refuse_layouts
from lunette.torch.memory import array_of, dtype_of, empty, like, tensor_of

__all__ = [
    "LIBRARY",
    "TAGS",
    "as_many_threads",
    "like",
    "out_shape",
    "pool",
    "pool_jvp",
    "pool_vjp",
    "pool_with_indices",
    "triton_kernels",
]

LIBRARY = torch.library.Library("lunette", "DEF")
TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
"""Shapes without data are right, and tensors are read as they lie: inductor need not copy them in order."""

LIBRARY.define("pool(Tensor x, Tensor? beta, str op, str? backend) -> Tensor", tags=TAGS)
LIBRARY.define(
    "pool_with_indices(Tensor x, Tensor? beta, str op, str? backend) -> (Tensor, Tensor)", tags=TAGS
)
LIBRARY.define(
    "pool_jvp(Tensor x, Tensor dx, Tensor? beta, str op, str? backend) -> Tensor", tags=TAGS
)
LIBRARY.define(
    "pool_vjp(Tensor x, Tensor grad, Tensor? beta, str op, str? backend) -> Tensor", tags=TAGS
)

pool = torch.ops.lunette.pool.default
pool_with_indices = torch.ops.lunette.pool_with_indices.default
pool_jvp = torch.ops.lunette.pool_jvp.default
pool_vjp = torch.ops.lunette.pool_vjp.default


# -- kernels --


def _with_beta(text: str, beta: Tensor | None, x: Tensor) -> Any:
    """The op that the text names, with the smooth max's beta read from a tensor if there is one."""
    op = decode(text)
    if beta is None:
        return op
    check_beta(op, beta, x)
    reduction = replace(op.reduction, beta=beta.item())
    taught = Pool(op.regions, reduction, op.keepdims)
    taught.result_dtype(dtype_of(x.dtype))  # beta survives in its arithmetic
    return taught


def _max_of(text: str, beta: Tensor | None) -> Any:
    """The max that the text names; it has no beta."""
    op = decode(text)
    op.check_indices()
    if beta is not None:
        raise TypeError(f"{op!r}: only a smooth max has a beta")
    return op


def as_many_threads(kernel: Any) -> Any:
    """A kernel on CPU tensors that uses no more threads than torch does."""

    def limited_kernel(*args: Any) -> Any:
        with limited(torch.get_num_threads()):
            return kernel(*args)

    return limited_kernel


def _pool_cpu(x: Tensor, beta: Tensor | None, op: str, backend: str | None) -> Tensor:
    return like(
        x, tensor_of(dispatch.forward(_with_beta(op, beta, x), array_of(x), backend=backend))
    )


def _pool_with_indices_cpu(
    x: Tensor, beta: Tensor | None, op: str, backend: str | None
) -> tuple[Tensor, Tensor]:
    pooling = _max_of(op, beta)
    values, indices = dispatch.forward_with_indices(pooling, array_of(x), backend=backend)
    return like(x, tensor_of(values)), like(x, tensor_of(indices))


def _pool_jvp_cpu(
    x: Tensor, dx: Tensor, beta: Tensor | None, op: str, backend: str | None
) -> Tensor:
    value = dispatch.jvp(_with_beta(op, beta, x), array_of(x), array_of(dx), backend=backend)
    return like(x, tensor_of(value))


def _pool_vjp_cpu(
    x: Tensor, grad: Tensor, beta: Tensor | None, op: str, backend: str | None
) -> Tensor:
    value = dispatch.vjp(_with_beta(op, beta, x), array_of(x), array_of(grad), backend=backend)
    return like(x, tensor_of(value))


def _pool_cuda(x: Tensor, beta: Tensor | None, op: str, backend: str | None) -> Tensor:
    if backend == "spec":
        return _pool_cpu(x.cpu(), beta, op, backend).to(x.device)
    # All but the value of beta is checked for the op that the text names: steps of a training share the answer.
    kernels, pooling = triton_kernels(decode(op), "forward", backend, x), _with_beta(op, beta, x)
    return like(x, kernels.forward(pooling, (x,)))


def _pool_with_indices_cuda(
    x: Tensor, beta: Tensor | None, op: str, backend: str | None
) -> tuple[Tensor, Tensor]:
    if backend == "spec":
        values, indices = _pool_with_indices_cpu(x.cpu(), beta, op, backend)
        return values.to(x.device), indices.to(x.device)
    pooling = _max_of(op, beta)
    kernels = triton_kernels(pooling, "forward_with_indices", backend, x)
    values, indices = kernels.forward_with_indices(pooling, (x,))
    return like(x, values), like(x, indices)


def _pool_jvp_cuda(
    x: Tensor, dx: Tensor, beta: Tensor | None, op: str, backend: str | None
) -> Tensor:
    check_devices(x, dx=dx)
    if backend == "spec":
        return _pool_jvp_cpu(x.cpu(), dx.cpu(), beta, op, backend).to(x.device)
    kernels, pooling = triton_kernels(decode(op), "jvp", backend, x), _with_beta(op, beta, x)
    pooling.check_tangents(*_signature(x), *_signature(dx))
    return like(x, kernels.jvp(pooling, (x,), (dx,)))


def _pool_vjp_cuda(
    x: Tensor, grad: Tensor, beta: Tensor | None, op: str, backend: str | None
) -> Tensor:
    check_devices(x, grad=grad)
    if backend == "spec":
        return _pool_vjp_cpu(x.cpu(), grad.cpu(), beta, op, backend).to(x.device)
    kernels, pooling = triton_kernels(decode(op), "vjp", backend, x), _with_beta(op, beta, x)
    pooling.check_gradient(*_signature(x), tuple(grad.shape), dtype_of(grad.dtype))
    (gradient,) = kernels.vjp(pooling, (x,), grad)
    return like(x, gradient)


def _signature(x: Tensor) -> tuple[Any, Any]:
    return (tuple(x.shape),), (dtype_of(x.dtype),)


def triton_kernels(op: Pooling, verb: str, backend: str | None, x: Tensor) -> Any:
    """The Triton kernels, once they have agreed to serve this call."""
    return _choose_triton(op, verb, backend, *_signature(x))


@lru_cache(maxsize=4096)
def _choose_triton(op: Pooling, verb: str, backend: str | None, shapes: Any, dtypes: Any) -> Any:
    if backend not in (None, "triton"):
        raise ValueError(
            f"backend={backend!r} for CUDA tensors: expected None, 'triton' or 'spec'; "
            "move the tensors with .cpu() for a backend of the CPU"
        )
    out_shape = op.check_operands(shapes, dtypes)
    if verb in ("jvp", "vjp"):
        op.check_tangents(shapes, dtypes, shapes, dtypes)
    dispatch.check_fits(out_shape, op.result_dtype(*dtypes))
    try:
        kernels = import_module("lunette.kernels.triton")
    except ImportError as error:
        raise RuntimeError(
            f"CUDA tensors need Triton, which does not load here ({error}): install it with "
            "pip install triton, or move the tensors with .cpu()"
        ) from error
    reason = kernels.refuses(op, verb, shapes, dtypes)
    if reason is not None:
        raise TypeError(
            f"{op!r}, {verb}: backend 'triton' {reason}; move the tensors with .cpu() instead"
        )
    return kernels


# -- results without data: shapes may hold symbols --


def out_shape(op: Pooling, x: Tensor) -> tuple[Any, ...]:
    """The result's shape. Regions compute with symbols as with integers; the checks do not."""
    shape = tuple(x.shape)
    if all(type(n) is int for n in shape):
        return op.check_operands((shape,), (dtype_of(x.dtype),))
    if len(shape) < op.rank:
        raise ValueError(
            f"{op!r} pools the last {op.rank} axes; x of shape {shape} has {len(shape)}"
        )
    batch, pooled = shape[: len(shape) - op.rank], shape[len(shape) - op.rank :]
    if not op.keepdims:
        return batch
    return batch + tuple(r.out_length(n) for r, n in zip(op.regions, pooled, strict=True))


def _result(op: str, x: Tensor, beta: Tensor | None) -> Tensor:
    pooling = decode(op)
    check_beta(pooling, beta, x)
    dtype = dtype_of(x.dtype)
    result = pooling.result_dtype(dtype)
    return empty(x, out_shape(pooling, x), x.dtype if result == dtype else torch.float64)


def _fake_pool(x: Tensor, beta: Tensor | None, op: str, backend: str | None) -> Tensor:
    return _result(op, x, beta)


def _fake_pool_with_indices(
    x: Tensor, beta: Tensor | None, op: str, backend: str | None
) -> tuple[Tensor, Tensor]:
    pooling = _max_of(op, beta)
    return _result(op, x, None), empty(x, out_shape(pooling, x), torch.int64)


def _fake_pool_jvp(
    x: Tensor, dx: Tensor, beta: Tensor | None, op: str, backend: str | None
) -> Tensor:
    check_devices(x, dx=dx)
    if x.shape != dx.shape:
        raise ValueError(f"tangent of x has shape {dx.shape}; expected x's shape {x.shape}")
    if x.dtype != dx.dtype:
        raise TypeError(f"tangent of x has dtype {dx.dtype}; expected x's dtype {x.dtype}")
    return _result(op, x, beta)


def _fake_pool_vjp(
    x: Tensor, grad: Tensor, beta: Tensor | None, op: str, backend: str | None
) -> Tensor:
    pooling = decode(op)
    check_devices(x, grad=grad)
    check_beta(pooling, beta, x)
    expected = out_shape(pooling, x)
    if tuple(grad.shape) != expected:
        raise ValueError(f"gradient has shape {grad.shape}; expected the output's {expected}")
    if not x.is_floating_point() or grad.dtype != x.dtype:
        raise TypeError(f"gradient has dtype {grad.dtype} and x {x.dtype}; expected one float type")
    return empty(x, x.shape, x.dtype)


# -- batching: every axis before the pooled ones is batch already --


def _batched(operator: Any, tensors: int) -> None:
    """Register the vmap rule of an operator whose first `tensors` arguments are pooled alike."""

    def rule(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
        operands, beta, rest = args[:tensors], args[tensors], args[tensors + 1 :]
        moved = [
            x.expand(info.batch_size, *x.shape) if axis is None else x.movedim(axis, 0)
            for x, axis in zip(operands, in_dims, strict=False)
        ]
        if in_dims[tensors] is None:
            results = operator(*moved, beta, *rest)
        else:  # one beta per sample: each is an op of its own
            betas = beta.movedim(in_dims[tensors], 0).unbind(0)
            samples = zip(*(x.unbind(0) for x in moved), betas, strict=True)
            results = torch.stack([operator(*sample, *rest) for sample in samples])
        return results, (0, 0) if isinstance(results, tuple) else 0

    torch.library.register_vmap(operator, rule, lib=LIBRARY)


_batched(pool, 1)
_batched(pool_with_indices, 1)
_batched(pool_jvp, 2)
_batched(pool_vjp, 2)

for name, (on_cpu, on_cuda, without_data) in {
    "pool": (_pool_cpu, _pool_cuda, _fake_pool),
    "pool_with_indices": (_pool_with_indices_cpu, _pool_with_indices_cuda, _fake_pool_with_indices),
    "pool_jvp": (_pool_jvp_cpu, _pool_jvp_cuda, _fake_pool_jvp),
    "pool_vjp": (_pool_vjp_cpu, _pool_vjp_cuda, _fake_pool_vjp),
}.items():
    LIBRARY.impl(name, as_many_threads(on_cpu), "CPU")
    LIBRARY.impl(name, on_cuda, "CUDA")
    refuse_layouts(LIBRARY, name)
    torch.library.register_fake(f"lunette::{name}", without_data, lib=LIBRARY)

register_derivatives(LIBRARY, pool, derivatives.pool)
register_derivatives(LIBRARY, pool_with_indices, derivatives.pool_with_indices)
register_derivatives(LIBRARY, pool_jvp, derivatives.pool_jvp)
register_derivatives(LIBRARY, pool_vjp, derivatives.pool_vjp)
