"""Tasks in XLA's programs: a call of our handler on the CPU, and elsewhere an error that says what to do."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from lunette.jax.cpu.handler import TARGET, register
from lunette.jax.cpu.naming import attributes
from lunette.jax.gpu.lowering import on_cuda
from lunette.jax.primitive import primitive
from lunette.jax.sharding import attributes as sharded
from lunette.jax.verbs import Task, compute

__all__ = ["called_back"]


def _on_cpu(ctx: Any, *operands: Any, task: Task) -> Any:
    register()
    sharding = sharded(task, ctx.avals_in, ctx.avals_out)
    call = jax.ffi.ffi_lowering(TARGET, extra_attributes=sharding)
    return call(ctx, *operands, **attributes(task))


def _elsewhere(ctx: Any, *operands: Any, task: Task) -> Any:
    """By the host's NumPy where a backend of it was asked for; an error otherwise."""
    if task.backend is not None:
        return mlir.lower_fun(called_back, multiple_results=True)(ctx, *operands, task=task)
    platforms = ctx.module_context.platforms
    raise NotImplementedError(
        f"{task.op!r} on {', '.join(map(repr, platforms))}: Lunette has kernels for JAX on the CPU and on CUDA. "
        "Run this part there, with jax.jit(f, backend='cpu') or jax.device_put(x, jax.devices('cpu')[0]); "
        "or pass backend='spec', which has the host do it, slowly, by jax.pure_callback"
    )


def _on_cuda(ctx: Any, *operands: Any, task: Task) -> Any:
    return (on_cuda if task.backend is None else _elsewhere)(ctx, *operands, task=task)


def called_back(*operands: Any, task: Task) -> Any:
    """A task by the host's NumPy, from a program for any platform."""
    avals = primitive.abstract_eval(*map(jax.typeof, operands), task=task)[0]
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]

    def host(*arrays: Any) -> list[Any]:
        found = [np.empty(s.shape, s.dtype) for s in shapes]
        compute(task, [np.asarray(a) for a in arrays], found)
        return found

    return jax.pure_callback(host, shapes, *operands)


mlir.register_lowering(primitive, _elsewhere)
mlir.register_lowering(primitive, _on_cpu, platform="cpu")
mlir.register_lowering(primitive, _on_cuda, platform="cuda")
