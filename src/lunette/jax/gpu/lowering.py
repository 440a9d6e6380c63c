"""Launches in XLA's programs: each is a call of JAX's own target, which keeps Triton's code and hands it to the driver."""

from __future__ import annotations

import os
import zlib
from functools import cache, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import mlir

from lunette.jax.geometry import is_concrete
from lunette.jax.gpu.described import program, refusal
from lunette.jax.verbs import Task
from lunette.jax.versions import in_64_bits

__all__ = ["launched", "on_cuda"]

CAPABILITY = "LUNETTE_CUDA_CAPABILITY"
"""The variable that names the GPUs for which programs are made where there is none, as 90."""

LOWEST = 80
"""The compute capability for which programs are made where there is no GPU and nothing is said."""

WAYS_OUT = (
    "Run this part on the CPU, with jax.device_put(x, jax.devices('cpu')[0]); "
    "or pass backend='spec', which has the host do it, slowly, by jax.pure_callback"
)


def on_cuda(ctx: Any, *operands: Any, task: Task) -> Any:
    """The lowering of the primitive for CUDA."""
    shapes = [a.shape for a in (*ctx.avals_in, *ctx.avals_out)]
    if not all(map(is_concrete, shapes)):
        raise NotImplementedError(
            f"{task.op!r} on 'cuda': kernels there are made for shapes of numbers; got {shapes[0]}. {WAYS_OUT}"
        )
    reason = refusal(task, *map(_named, (ctx.avals_in, ctx.avals_out)))
    if reason is not None:
        raise NotImplementedError(
            f"{task.op!r} on 'cuda', refused by the Triton kernels: {reason}. {WAYS_OUT}"
        )
    results = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in ctx.avals_out]
    with in_64_bits():  # flat positions are written in 64 bits, and sums of integers
        lowered = mlir.lower_fun(lambda *xs: launched(task, results, *xs), multiple_results=True)
        return lowered(ctx, *operands)


def launched(task: Task, results: Any, *operands: Any) -> list[Any]:
    """A task's results, by calls of JAX's target."""
    devices, capability = _gpus()
    calls, read, made = _calls(task, _named(operands), _named(results), devices, capability)
    values: dict[int, Any] = {}
    for place, (x, name) in enumerate(zip(operands, read, strict=True)):
        values[place] = x.astype(name) if x.dtype.name != name else x
    for text, name, sources, targets in calls:
        inputs = [jnp.asarray(s) if isinstance(s, np.ndarray) else values[s] for s in sources]
        shapes = [jax.ShapeDtypeStruct(shape, np.dtype(kind)) for _, shape, kind in targets]
        for (place, *_), value in zip(targets, _call(text, name, shapes, inputs), strict=True):
            values[place] = value
    found = []
    for place, wanted in zip(made, results, strict=True):
        value = values.get(place)
        if value is None:  # nothing was launched for no windows
            value = jnp.zeros(wanted.shape, wanted.dtype)
        found.append(value.reshape(wanted.shape).astype(wanted.dtype))
    return found


def _named(avals: Any) -> tuple[Any, ...]:
    return tuple((tuple(a.shape), np.dtype(a.dtype).name) for a in avals)


@lru_cache(maxsize=1024)
def _calls(
    task: Task, operands: Any, results: Any, devices: tuple[str, ...], capability: int
) -> Any:
    """What to call: messages to JAX's target, names, and by number what each reads and writes; then types of operands, and numbers of results."""
    from lunette.kernels.triton.compiling import compiled

    made = program(task, operands, results, devices)
    numbers = {id(a): n for n, a in enumerate(made.operands)}
    calls = []
    for launch in made.launches:
        kernel = compiled(launch, lambda memory: id(memory) in numbers, capability)
        sources = [
            a.values if a.values is not None else numbers[id(a.memory)] for a in kernel.reads
        ]
        targets = []
        for a in kernel.writes:
            numbers[id(a.memory)] = len(numbers)
            targets.append((numbers[id(a.memory)], a.memory.shape, a.dtype))
        calls.append((_message(kernel, capability), kernel.name, sources, targets))
    types = [
        a.dtype if a.dtype == "float64" else name
        for a, (_, name) in zip(made.operands, operands, strict=True)
    ]
    return calls, types, [numbers.get(id(a), -1) for a in made.results]


# -- what JAX launches --


@cache
def _extension() -> Any:
    """JAX's own launcher of Triton's kernels, which comes with its CUDA plugin."""
    from jaxlib import gpu_triton

    if not hasattr(gpu_triton, "TritonKernelCall"):
        raise ImportError(
            "pooling on a GPU needs JAX's CUDA plugin, which launches Triton's kernels: pip install 'jax[cuda12]'"
        )
    return gpu_triton


def _gpus() -> tuple[tuple[str, ...], int]:
    """The names of this process's GPUs, and the compute capability for which kernels are made."""
    _extension()
    try:
        devices = jax.local_devices(backend="cuda")
    except RuntimeError:
        text = os.environ.get(CAPABILITY, str(LOWEST))
        if not text.isdecimal() or not 70 <= int(text) < 200:
            raise ValueError(
                f"{CAPABILITY}={text!r}: expected a compute capability as 90"
            ) from None
        return (), int(text)
    capability = int(str(devices[0].compute_capability).replace(".", ""))
    return tuple(d.device_kind for d in devices), capability


def _message(kernel: Any, capability: int) -> bytes:
    """A launch in the words of JAX's target."""
    extension = _extension()
    about: tuple[Any, ...] = (
        kernel.name,
        kernel.warps,
        1,
        kernel.shared,
        kernel.text,
        "",
        capability,
    )
    if not _is_foreign():  # an older order, with the lengths of clusters
        about = kernel.name, kernel.warps, kernel.shared, kernel.text, "", capability, 1, 1, 1
    array, number = extension.create_array_parameter, extension.create_scalar_parameter
    parameters = [array(0, 16) for _ in (*kernel.reads, *kernel.writes)]
    parameters += [number(value, kind) for value, kind in kernel.numbers]
    call = extension.TritonKernelCall(extension.TritonKernel(*about), *kernel.grid, parameters)
    return zlib.compress(call.to_proto(f"lunette_{kernel.name}", b""))


@cache
def _is_foreign() -> bool:
    """Whether the target is one of XLA's foreign function interface; in older versions it is not."""
    return "arg6: int, /" in str(_extension().TritonKernel.__init__.__doc__)


def _call(message: bytes, name: str, results: Any, operands: Any) -> Any:
    if _is_foreign():
        call = jax.ffi.ffi_call("triton_kernel_call_ffi", results)
        return call(*operands, name=f"lunette_{name}", opaque=message)
    options: Any = {"custom_call_api_version": 2, "legacy_backend_config": message}
    return jax.ffi.ffi_call("triton_kernel_call", results, **options)(*operands)
