"""What the kernels need of Numba: functions within kernels, raw pointers, bits and the fused multiply-add."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numba
from numba import types
from numba.extending import intrinsic

from lunette.kernels.cpu.jit.compile import OPTIONS, UNWRAPPED, Parts
from lunette.kernels.cpu.jit.processor import abilities

__all__ = ["alwaysinline", "bits", "compiled", "fma", "kernel", "noinline", "pointer", "real"]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that kernels call: compiled as part of them, not callable from Python."""
    dispatcher = numba.njit(pipeline_class=Parts, **OPTIONS, **UNWRAPPED)(_named(function))
    template = dispatcher.get_call_template

    def of_types(arguments: Any, keywords: Any) -> Any:
        # A constant argument has a type of its own; one version for all integers is enough.
        return template(tuple(map(types.unliteral, arguments)), keywords)

    dispatcher.get_call_template = of_types
    return dispatcher  # type: ignore[no-any-return]


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of eight integers that `library` compiles with all it calls, and keeps."""
    return numba.njit(**OPTIONS)(_named(function))  # type: ignore[no-any-return]


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function a name of its own by what it closes over.

    Machine code on disk has the names of its functions. Two kernels made by one factory, compiled
    by two processes and loaded by a third, would else be taken for one another.
    """
    if function.__closure__ is not None:
        digest = hashlib.sha256(repr(_content(function)).encode()).hexdigest()[:16]
        function.__name__ += f"_{digest}"
        function.__qualname__ += f"_{digest}"
    return function


def _content(value: Any) -> Any:
    """A value that a closure holds, as something whose repr is the same in every process."""
    function = getattr(value, "py_func", None) or getattr(value, "_defn", value)
    if hasattr(function, "__code__"):
        cells = tuple(_content(cell.cell_contents) for cell in function.__closure__ or ())
        return function.__module__, function.__qualname__, cells
    if isinstance(value, (tuple, list)):
        return tuple(_content(item) for item in value)
    return value


@intrinsic  # type: ignore[untyped-decorator]
def pointer(context: Any, address: Any, element: Any) -> Any:
    """The integer `address` as a pointer to elements of a type; indexing it checks nothing."""
    result = types.CPointer(element.instance_type)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return result(address, element), generate


def _cast(result: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return generate


@intrinsic  # type: ignore[untyped-decorator]
def bits(context: Any, value: Any) -> Any:
    """The bits of a float32 or float64, as a signed integer of its width."""
    result = {types.float32: types.int32, types.float64: types.int64}[value]
    return result(value), _cast(result)


@intrinsic  # type: ignore[untyped-decorator]
def real(context: Any, value: Any) -> Any:
    """The float32 or float64 with these bits."""
    result = {types.int32: types.float32, types.int64: types.float64}[value]
    return result(value), _cast(result)


@intrinsic  # type: ignore[untyped-decorator]
def noinline(context: Any) -> Any:
    """Called first in a function, keeps it from being copied into its callers: faster to compile."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic  # type: ignore[untyped-decorator]
def alwaysinline(context: Any) -> Any:
    """Called first in a function, has it copied into its callers: no call for each row."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.function.attributes.add("alwaysinline")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic  # type: ignore[untyped-decorator]
def fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """`a·b + c`, rounded once where the processor can, else after the product too."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if abilities().fused:
            return builder.fma(*arguments)
        a, b, c = arguments
        return builder.fadd(builder.fmul(a, b), c)

    return a(a, a, a), generate
