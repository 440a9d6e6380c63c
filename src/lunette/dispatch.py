"""Which interpreter serves this op and these arrays.

A call walks three steps: arrays of another library go to their adapter; the op checks shapes and
dtypes; the table of backends gives the one that serves. What the first two steps decide depends
on shapes and dtypes alone, so it is decided once and remembered.
"""

from __future__ import annotations

import os
import warnings
from functools import cache, lru_cache
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lunette.ops.base import Op, Shape

__all__ = [
    "ADAPTERS",
    "BACKENDS",
    "Backend",
    "SlowPathWarning",
    "adapter_of",
    "backend_for",
    "check_backend",
    "check_fits",
    "choose",
    "forward",
    "forward_with_indices",
    "jvp",
    "names",
    "register",
    "vjp",
]

Array = np.ndarray[Any, Any]


class SlowPathWarning(UserWarning):
    """No kernel serves this call, so the specification answers: right, and slow."""


class Backend(NamedTuple):
    """An interpreter of NumPy arrays: a module with the verbs, loaded on first use.

    The module supplies `forward(op, operands)`, `forward_with_indices(op, operands)`,
    `jvp(op, operands, tangents)`, `vjp(op, operands, grad)` over tuples of checked arrays, and
    `refuses(op, verb, shapes, dtypes)`: None, or why it cannot serve the call. It may supply
    `vjp_of(op, operands, grad, needs)`, which leaves out the gradients that nobody needs.
    """

    name: str
    module: str


BACKENDS: dict[str, Backend] = {"cpu": Backend("cpu", "lunette.kernels.cpu")}
"""Kernels by name, besides `"spec"`, which answers where no kernel does."""

ADAPTERS: dict[str, str] = {
    "dask": "lunette.adapters.dask",
    "torch": "lunette.adapters.torch",
    "xarray": "lunette.adapters.xarray",
}
"""Array library → module with the same verbs, `forward(op, operands, backend)` and so on."""

WITH_NUMPY = {"dask", "xarray"}
"""Libraries whose arrays may meet NumPy's in one call: a lazy image, say, and its weights."""


def register(backend: Backend) -> None:
    """Add a backend; a name may be taken once."""
    if backend.name in BACKENDS or backend.name == "spec":
        raise ValueError(f"backend {backend.name!r} is registered already")
    BACKENDS[backend.name] = backend
    choose.cache_clear()


# -- the verbs --


def forward(op: Op, *operands: Any, backend: str | None = None) -> Any:
    """The op's value."""
    adapter = adapter_of(operands)
    if adapter is not None:
        return adapter.forward(op, operands, backend)
    arrays = _arrays(op, operands)
    return _interpreter(op, "forward", arrays, backend).forward(op, arrays)


def forward_with_indices(op: Op, *operands: Any, backend: str | None = None) -> Any:
    """A max's value, and each winner's flat position in the pooled axes (int64; −1: no cell)."""
    adapter = adapter_of(operands)
    if adapter is not None:
        return adapter.forward_with_indices(op, operands, backend)
    arrays = _arrays(op, operands)
    return _interpreter(op, "forward_with_indices", arrays, backend).forward_with_indices(
        op, arrays
    )


def jvp(op: Op, operands: Any, tangents: Any, backend: str | None = None) -> Any:
    """The directional derivative at `operands` along `tangents`; a bare array is one operand."""
    operands, tangents = _tuple(operands), _tuple(tangents)
    adapter = adapter_of(operands + tangents)
    if adapter is not None:
        return adapter.jvp(op, operands, tangents, backend)
    arrays, directions = _arrays(op, operands), _arrays(op, tangents, "tangent of ")
    interpreter = _interpreter(op, "jvp", arrays, backend)
    if len(arrays) != 1 or not _alike(arrays[0], directions[0]) or len(directions) != 1:
        op.check_tangents(*_signature(arrays), *_signature(directions))
    return interpreter.jvp(op, arrays, directions)


def vjp(
    op: Op,
    operands: Any,
    grad: Any,
    backend: str | None = None,
    needs: tuple[bool, ...] | None = None,
) -> Any:
    """The gradient in each operand; bare for a bare operand, a tuple otherwise.

    `needs` says whose gradients are wanted; an operand that needs none may have None.
    """
    inputs = _tuple(operands)
    adapter = adapter_of((*inputs, grad))
    if adapter is not None:
        gradients = adapter.vjp(op, inputs, grad, backend)
    else:
        arrays, (gradient,) = _arrays(op, inputs), _arrays(op, (grad,), "gradient of ")
        interpreter = _interpreter(op, "vjp", arrays, backend)
        _check_gradient(op, *_signature(arrays), gradient.shape, gradient.dtype)
        if needs is None or all(needs) or not hasattr(interpreter, "vjp_of"):
            gradients = interpreter.vjp(op, arrays, gradient)
        else:
            gradients = interpreter.vjp_of(op, arrays, gradient, needs)
    return gradients if isinstance(operands, tuple) else gradients[0]


def backend_for(op: Op, *operands: Any, verb: str = "forward") -> str:
    """The name of the backend that serves this call: `"spec"` where no kernel does."""
    arrays = _arrays(op, operands)
    return choose(op, verb, *_signature(arrays), None).name


# -- the choice --


class _Choice(NamedTuple):
    name: str
    module: Any
    why_slow: str


def _interpreter(op: Op, verb: str, arrays: tuple[Array, ...], backend: str | None) -> Any:
    if len(arrays) == 1:
        x = arrays[0]
        choice = choose(op, verb, (x.shape,), (x.dtype,), backend)
    else:
        choice = choose(op, verb, *_signature(arrays), backend)
    if choice.why_slow:
        warnings.warn(
            f"{op!r}, {verb}: {choice.why_slow}; the specification answers, slowly. "
            "Pass backend='spec' to ask for it.",
            SlowPathWarning,
            stacklevel=3,
        )
    return choice.module


@lru_cache(maxsize=4096)
def choose(
    op: Op,
    verb: str,
    shapes: tuple[Shape, ...],
    dtypes: tuple[np.dtype[Any], ...],
    backend: str | None,
) -> _Choice:
    """Check the operands, then find the one backend that serves; errors are not remembered."""
    out_shape = op.check_operands(shapes, dtypes)
    if verb == "forward_with_indices":
        op.check_indices()
    if verb in ("jvp", "vjp"):
        op.check_tangents(shapes, dtypes, shapes, dtypes)
    check_fits(out_shape, op.result_dtype(*dtypes))
    check_backend(backend)
    spec = import_module("lunette.spec").meaning(op)
    if backend == "spec" or (backend is None and dtypes[0].kind == "O"):
        return _Choice("spec", spec, "")
    names = BACKENDS if backend is None else [backend]
    refusals, serving = {}, []
    for name in names:
        module = import_module(BACKENDS[name].module)
        reason = module.refuses(op, verb, shapes, dtypes)
        if reason is None:
            serving.append(_Choice(name, module, ""))
        else:
            refusals[name] = reason
    if len(serving) > 1:
        raise RuntimeError(f"{op!r}, {verb}: several backends claim this call: {serving}")
    if serving:
        return serving[0]
    if backend is not None:
        raise TypeError(f"backend={backend!r} cannot serve {op!r}, {verb}: {refusals[backend]}")
    why = "; ".join(f"backend {name!r} {reason}" for name, reason in refusals.items())
    return _Choice("spec", spec, why)


def check_backend(backend: str | None) -> None:
    """Refuse a backend that nobody registered."""
    if backend is not None and backend != "spec" and backend not in BACKENDS:
        known = ", ".join(map(repr, ["spec", *BACKENDS]))
        raise ValueError(f"backend={backend!r}: expected one of {known}")


@lru_cache(maxsize=4096)
def _check_gradient(
    op: Op, shapes: Any, dtypes: Any, grad_shape: Shape, grad_dtype: np.dtype[Any]
) -> None:
    op.check_gradient(shapes, dtypes, grad_shape, grad_dtype)


# -- operands --


def adapter_of(operands: tuple[Any, ...]) -> Any:
    """The adapter of the operands' library, or None where all are NumPy's or plain Python."""
    adapters = {}
    for x in operands:
        if type(x) is np.ndarray:
            continue
        for kind in type(x).__mro__:  # a subclass of a library's arrays belongs to the library
            library = kind.__module__.partition(".")[0]
            if library in ADAPTERS:
                adapters[library] = type(x).__name__
                break
    if not adapters:
        return None
    mixed = any(type(x) is np.ndarray for x in operands) and not adapters.keys() <= WITH_NUMPY
    if len(adapters) > 1 or mixed:
        kinds = ", ".join(sorted({f"{type(x).__module__}.{type(x).__name__}" for x in operands}))
        raise TypeError(f"operands of several kinds: {kinds}; expected all of one")
    library = next(iter(adapters))
    if library == "torch":  # torch.compile follows an import statement, but not import_module
        from lunette.adapters import torch

        return torch
    return import_module(ADAPTERS[library])


def _arrays(op: Op, operands: tuple[Any, ...], role: str = "") -> tuple[Array, ...]:
    if len(operands) == 1 and type(operands[0]) is np.ndarray and operands[0].dtype.isnative:
        return operands
    return tuple(
        _array(x, f"{role}{name}") for x, name in zip(operands, names(op, operands), strict=True)
    )


def _array(x: Any, name: str) -> Array:
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array; fill the masked cells first, with x.filled(value)"
        )
    array = np.asarray(x)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def names(op: Op, operands: tuple[Any, ...]) -> list[str]:
    """What the op calls each of these operands."""
    return [
        op.operand_names[i] if i < len(op.operand_names) else f"operand {i}"
        for i in range(len(operands))
    ]


def _tuple(operands: Any) -> tuple[Any, ...]:
    return operands if isinstance(operands, tuple) else (operands,)


def _signature(arrays: tuple[Array, ...]) -> tuple[Any, Any]:
    return tuple(a.shape for a in arrays), tuple(a.dtype for a in arrays)


def _alike(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool(a.dtype == b.dtype)


def check_fits(shape: Shape, dtype: np.dtype[Any]) -> None:
    """Refuse a result that this machine's memory cannot hold, before anything is allocated."""
    needed = prod(shape) * dtype.itemsize
    if needed > _memory():
        raise ValueError(
            f"the result of shape {shape} and dtype {dtype} needs {needed} bytes; "
            f"this machine has {_memory()}"
        )


@cache
def _memory() -> int:
    """Bytes of physical memory, or 2⁴⁶ where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 46
