"""Which interpreter serves this op and these arrays.

A call walks three steps: arrays of another library go to their adapter; the op checks shapes and
dtypes; the table of backends gives the one that serves. What the first two steps decide depends
on shapes and dtypes alone, so it is decided once and remembered.
"""

from __future__ import annotations

import sys
import warnings
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, overload

import numpy as np

from lunette.annotations import Given, Numbers, Plain
from lunette.arguments import choice, listed, shown
from lunette.axes import Turn, gradient_fits, shapes_fit
from lunette.inputs import array
from lunette.inputs import arrays as arrays_of
from lunette.loading import load
from lunette.memory import check_fits, check_room
from lunette.ops.base import DIRECT, Op, Shape, check_is_op

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
    "register",
    "vjp",
]

Array = np.ndarray[Any, Any]


class SlowPathWarning(UserWarning):
    """No kernel serves this call, so the specification answers: right, and slow.

    Examples
    --------
    Ask for the specification by name, or let the warning be an error:

    >>> import warnings
    >>> import lunette as ln
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", ln.SlowPathWarning)
    ...     ln.max_pool([1.0, 5.0], (2,), backend="spec")
    array([5.])
    """


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
    "jax": "lunette.adapters.jax",
    "jaxlib": "lunette.adapters.jax",
    "torch": "lunette.adapters.torch",
    "xarray": "lunette.adapters.xarray",
}
"""Array library → module with the same verbs, `forward(op, operands, backend)` and so on."""

WITH_NUMPY = {"dask", "jax", "jaxlib", "xarray"}
"""Libraries whose arrays may meet NumPy's in one call: a lazy image, say, and its weights."""


VERBS = ("forward", "forward_with_indices", "jvp", "vjp")

TABLE, LONG = 128, 1 << 20
"""Bytes of a call's tables to an output or position of an axis, and how many outputs of an axis have one at a time, at most."""

BESIDE, OBJECT = 24, 48
"""Bytes of what a gradient keeps of each output, and of a number in the specification's arrays."""


def register(backend: Backend) -> None:
    """Add a backend; a name may be taken once."""
    if backend.name in BACKENDS or backend.name == "spec":
        raise ValueError(f"backend {backend.name!r} is registered already")
    BACKENDS[backend.name] = backend
    choose.cache_clear()


# -- the verbs --


@overload
def forward(op: Op, x: Plain, /, *more: Any, backend: str | None = None) -> Array: ...
@overload
def forward(op: Op, x: Given, /, *more: Any, backend: str | None = None) -> Given: ...
def forward(op: Op, *operands: Any, backend: str | None = None) -> Any:
    """The op's value.

    Parameters
    ----------
    op : Op
        What to compute.
    *operands : array_like
        x of a pooling; x, weight and perhaps bias of a convolution.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default.

    Returns
    -------
    array
        Of the library that the operands are of.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.forward(ln.MaxPool((2,)), [1.0, 5.0, 2.0, 3.0])
    array([5., 3.])
    """
    check_is_op(op)
    if op.axes is not None and not _takes_axes(operands):
        turn, operands = _turn(op, operands)
        return turn.result(forward(op.over_last, *operands, backend=backend))
    adapter = adapter_of(operands)
    if adapter is not None:
        return adapter.forward(op, operands, backend)
    arrays = arrays_of(op, operands)
    return _interpreter(op, "forward", arrays, backend).forward(op, arrays)


def forward_with_indices(op: Op, *operands: Any, backend: str | None = None) -> Any:
    """A max's value, and each winner's flat position in the pooled axes (int64; −1: no cell).

    Parameters
    ----------
    op : Op
        A max or a min.
    *operands : array_like
        x.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default.

    Returns
    -------
    tuple of array
        The value, and the indices.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy; also for an op that has no winners.

    Examples
    --------
    >>> import lunette as ln
    >>> from lunette.dispatch import forward_with_indices
    >>> forward_with_indices(ln.MaxPool((2,)), [1.0, 5.0, 2.0, 3.0])
    (array([5., 3.]), array([1, 3]))
    """
    check_is_op(op)
    if op.axes is not None and not _takes_axes(operands):
        turn, operands = _turn(op, operands)
        return turn.result(forward_with_indices(op.over_last, *operands, backend=backend))
    adapter = adapter_of(operands)
    if adapter is not None:
        return adapter.forward_with_indices(op, operands, backend)
    arrays = arrays_of(op, operands)
    return _interpreter(op, "forward_with_indices", arrays, backend).forward_with_indices(
        op, arrays
    )


@overload
def jvp(op: Op, operands: Numbers, tangents: Any, backend: str | None = None) -> Array: ...
@overload
def jvp(
    op: Op, operands: tuple[Given, ...], tangents: Any, backend: str | None = None
) -> Given: ...
@overload
def jvp(op: Op, operands: Given, tangents: Any, backend: str | None = None) -> Given: ...
def jvp(op: Op, operands: Any, tangents: Any, backend: str | None = None) -> Any:
    """The directional derivative at `operands` along `tangents`; a bare array is one operand.

    Parameters
    ----------
    op : Op
        What to differentiate.
    operands : array_like or tuple of array_like
        Where: x bare, or all operands as a tuple.
    tangents : array_like or tuple of array_like
        A direction of the shape and dtype of each operand.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default.

    Returns
    -------
    array
        The change of the result, of its shape and dtype.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.jvp(ln.MaxPool((2,)), [1.0, 5.0], [10.0, 20.0])
    array([20.])
    """
    check_is_op(op)
    operands, tangents = _tuple(operands), _tuple(tangents)
    if op.axes is not None and not _takes_axes(operands + tangents):
        turn, operands, tangents = _turn_with(op, operands, tangents)
        return turn.result(jvp(op.over_last, operands, tangents, backend))
    adapter = adapter_of(operands + tangents)
    if adapter is not None:
        return adapter.jvp(op, operands, tangents, backend)
    arrays, directions = arrays_of(op, operands), arrays_of(op, tangents, "tangent of ")
    interpreter = _interpreter(op, "jvp", arrays, backend)
    if not len(arrays) == len(directions) == 1 or not _alike(arrays[0], directions[0]):
        op.check_tangents(*_signature(arrays), *_signature(directions))
    return interpreter.jvp(op, arrays, directions)


@overload
def vjp(
    op: Op,
    operands: Numbers,
    grad: Any,
    backend: str | None = None,
    needs: tuple[bool, ...] | None = None,
) -> Array: ...
@overload
def vjp(
    op: Op,
    operands: tuple[Given, ...],
    grad: Any,
    backend: str | None = None,
    needs: tuple[bool, ...] | None = None,
) -> tuple[Given, ...]: ...
@overload
def vjp(
    op: Op,
    operands: Given,
    grad: Any,
    backend: str | None = None,
    needs: tuple[bool, ...] | None = None,
) -> Given: ...
def vjp(
    op: Op,
    operands: Any,
    grad: Any,
    backend: str | None = None,
    needs: tuple[bool, ...] | None = None,
) -> Any:
    """The gradient in each operand; bare for a bare operand, a tuple otherwise.

    `needs` says whose gradients are wanted; an operand that needs none may have None.

    Parameters
    ----------
    op : Op
        What to differentiate.
    operands : array_like or tuple of array_like
        Where: x bare, or all operands as a tuple.
    grad : array_like
        The gradient of the result, of its shape and dtype.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default.
    needs : tuple of bool, optional
        Of which operands a gradient is wanted. Default: of all.

    Returns
    -------
    array or tuple of array
        A gradient for each operand.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, before anything is computed.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.vjp(ln.MaxPool((2,)), [1.0, 5.0], [7.0])
    array([0., 7.])
    """
    check_is_op(op)
    inputs = _tuple(operands)
    if needs is not None and (not isinstance(needs, tuple) or len(needs) != len(inputs)):
        raise ValueError(
            f"needs={shown(needs)}: expected a tuple of {len(inputs)} bools, one per operand"
        )
    if op.axes is not None and not _takes_axes((*inputs, grad)):
        turn, inputs, (grad,) = _turn_with(op, inputs, (grad,), of_result=True)
        gradients = turn.operands_back(vjp(op.over_last, inputs, grad, backend, needs))
        return gradients if isinstance(operands, tuple) else gradients[0]
    adapter = adapter_of((*inputs, grad))
    if adapter is not None:
        gradients = adapter.vjp(op, inputs, grad, backend)
    else:
        arrays, gradient = arrays_of(op, inputs), array(grad, "gradient")
        interpreter = _interpreter(op, "vjp", arrays, backend)
        _check_gradient(op, *_signature(arrays), gradient.shape, gradient.dtype)
        if needs is None or all(needs) or not hasattr(interpreter, "vjp_of"):
            gradients = interpreter.vjp(op, arrays, gradient)
        else:
            gradients = interpreter.vjp_of(op, arrays, gradient, needs)
    return gradients if isinstance(operands, tuple) else gradients[0]


def backend_for(op: Op, *operands: Any, verb: str = "forward") -> str:
    """The name of the backend that serves this call: `"spec"` where no kernel does.

    Parameters
    ----------
    op : Op
        What would be computed.
    *operands : array_like
        On what; only shapes and dtypes matter.
    verb : {"forward", "forward_with_indices", "jvp", "vjp"}, default "forward"
        Which verb.

    Returns
    -------
    str
        "cpu", "triton" or "spec".

    Raises
    ------
    ValueError, TypeError
        For what the call itself would refuse.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> from fractions import Fraction
    >>> ln.backend_for(ln.MaxPool((2,)), np.array([Fraction(1), Fraction(2)]))
    'spec'
    """
    check_is_op(op)
    choice(verb, "verb", VERBS)
    arrays = arrays_of(op, operands)
    if op.axes is not None:
        op.out_shape(*_signature(arrays)[0])
        op, arrays = op.over_last, Turn(op).operands(arrays)
    return choose(op, verb, *_signature(arrays), None).name


# -- axes that are not the last --


def _takes_axes(operands: tuple[Any, ...]) -> bool:
    """Whether the adapter of these arrays serves ops over other axes itself."""
    return bool(getattr(adapter_of(operands), "takes_axes", False))


def _turn(op: Op, operands: tuple[Any, ...]) -> tuple[Turn, tuple[Any, ...]]:
    """The way to the last axes, and the operands there; refused where the op does not take their shapes."""
    adapter = adapter_of(operands)
    if adapter is None:
        operands = arrays_of(op, operands)
    move = None if adapter is None else getattr(adapter, "moved", None)
    if adapter is None or not _shapeless(adapter, operands):
        op.out_shape(*(tuple(x.shape) for x in operands))
    turn = Turn(op, move)
    return turn, turn.operands(operands)


def _turn_with(
    op: Op, operands: tuple[Any, ...], others: tuple[Any, ...], of_result: bool = False
) -> tuple[Turn, tuple[Any, ...], tuple[Any, ...]]:
    """The same with tangents of the operands, or with the gradient of the result."""
    adapter = adapter_of((*operands, *others))
    if adapter is None:
        operands = arrays_of(op, operands)
        others = (
            (array(others[0], "gradient"),) if of_result else arrays_of(op, others, "tangent of ")
        )
    if adapter is None or not _shapeless(adapter, (*operands, *others)):
        shapes = tuple(tuple(x.shape) for x in operands)
        if of_result:
            gradient_fits(op, shapes, tuple(others[0].shape))
        else:
            op.out_shape(*shapes)
            shapes_fit(op, shapes, tuple(tuple(t.shape) for t in others))
    turn, operands = _turn(op, operands)
    return turn, operands, (turn.gradient(others[0]),) if of_result else turn.operands(others)


def _shapeless(adapter: Any, operands: tuple[Any, ...]) -> bool:
    """Whether shapes are not known here, or dimensions go by name: the adapter will check."""
    found = getattr(adapter, "shapeless", None)
    return found is not None and bool(found(operands))


# -- the choice --


class _Choice(NamedTuple):
    name: str
    module: Any
    why_slow: str


def _interpreter(op: Op, verb: str, arrays: tuple[Array, ...], backend: str | None) -> Any:
    if backend is not None and type(backend) is not str:
        check_backend(str.__str__(backend) if isinstance(backend, str) else backend)
    if len(arrays) == 1:
        x = arrays[0]
        chosen = choose(op, verb, (x.shape,), (x.dtype,), backend)
    else:
        chosen = choose(op, verb, *_signature(arrays), backend)
    if chosen.why_slow:
        warnings.warn(
            f"{op!r}, {verb}: {chosen.why_slow}; the specification answers, slowly. "
            "Pass backend='spec' to ask for it.",
            SlowPathWarning,
            stacklevel=3,
        )
    return chosen.module


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
    check_backend(backend)
    _check_memory(op, verb, shapes, dtypes, out_shape, backend)
    spec = load("lunette.spec").meaning(op)
    if backend == "spec" or (backend is None and dtypes[0].kind == "O"):
        return _Choice("spec", spec, "")
    names = BACKENDS if backend is None else [backend]
    refusals, serving = {}, []
    for name in names:
        module = load(BACKENDS[name].module)
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
    if backend is None:
        return
    if not isinstance(backend, str) or (backend != "spec" and backend not in BACKENDS):
        known = ", ".join(map(repr, ["spec", *BACKENDS]))
        raise ValueError(f"backend={shown(backend)}: expected one of {known}")


def _check_memory(
    op: Any,
    verb: str,
    shapes: tuple[Shape, ...],
    dtypes: tuple[np.dtype[Any], ...],
    out: Shape,
    backend: str | None,
) -> None:
    """Refuse a call whose results, or what they are made from, do not fit into memory.

    An empty batch needs nothing, whatever its other axes are.
    """
    dtype, cells, outputs = op.result_dtype(*dtypes), sum(map(prod, shapes)), prod(out)
    what = f"{op!r}, {verb} of x of shape {shapes[0]}: "
    if not outputs:
        if 8 * prod(n for n in out if n) >= 1 << 63:
            raise ValueError(
                f"{what}no array has the shape {out}, though it is empty; expected a smaller output_size or padding"
            )
        return
    tables = TABLE * sum(min(m, LONG) for m in out[-op.rank :])
    if backend == "spec" or dtype.kind == "O":
        tables = OBJECT * (cells + outputs)
    if verb == "vjp":  # gradients are as large as the operands
        tables += TABLE * sum(shapes[0][-op.rank :]) + BESIDE * outputs
        check_room(f"{what}the gradients", cells * dtype.itemsize, tables)
    elif verb == "forward_with_indices":
        result = f"{what}the result of shape {out} and dtype {dtype} with its indices"
        check_room(result, (dtype.itemsize + 8) * outputs, tables)
    else:
        result = f"{what}the result of shape {out} and dtype {dtype}"
        check_room(result, dtype.itemsize * outputs, tables)


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
    if len({ADAPTERS[library] for library in adapters}) > 1 or mixed:
        kinds = ", ".join(sorted({f"{type(x).__module__}.{type(x).__name__}" for x in operands}))
        raise TypeError(f"operands of several kinds: {kinds}; expected all of one")
    library = next(iter(adapters))
    if library == "torch":  # torch.compile follows an import statement, but not `load`
        if not _torch_is_loaded():
            load(ADAPTERS[library])
        from lunette.adapters import torch

        return torch
    return load(ADAPTERS[library])


def _torch_is_loaded() -> bool:
    """Also while torch.compile follows a call, where nothing can be done about it."""
    import torch

    return torch.compiler.is_compiling() or ADAPTERS["torch"] in sys.modules


def _tuple(operands: Any) -> tuple[Any, ...]:
    if type(operands) is tuple:
        return operands
    return tuple(listed(operands)) if isinstance(operands, tuple) else (operands,)


def _signature(arrays: tuple[Array, ...]) -> tuple[Any, Any]:
    return tuple(a.shape for a in arrays), tuple(a.dtype for a in arrays)


def _alike(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool(a.dtype == b.dtype)


DIRECT[np.ndarray] = forward  # an op that is called need not look for it
