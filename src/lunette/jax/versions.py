"""What JAX calls differently in its versions, from 0.7 on."""

from __future__ import annotations

from typing import Any

import jax

__all__ = ["in_64_bits", "varying_alike"]


def in_64_bits() -> Any:
    """A context in which JAX has float64 and int64."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64()


def varying_alike(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands that vary over the same axes of a mesh: within `shard_map`, JAX keeps account of that."""
    if len(operands) < 2:
        return operands
    own = [_varying(jax.typeof(x)) for x in operands]
    every = frozenset().union(*own)
    return tuple(
        _cast(x, tuple(sorted(every - axes, key=str))) if every - axes else x
        for x, axes in zip(operands, own, strict=True)
    )


def _varying(aval: Any) -> frozenset[Any]:
    """The axes of a mesh over which an array varies."""
    kind = getattr(aval, "manual_axis_type", None)
    found: Any = getattr(aval, "vma", None) if kind is None else kind.varying
    return frozenset(found or ())


def _cast(x: Any, axes: tuple[Any, ...]) -> Any:
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(x, axes, to="varying")
    return jax.lax.pvary(x, axes)
