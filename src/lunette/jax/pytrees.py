"""Ops as static pytrees: no arrays in them, so they sit in modules of Equinox, Flax and Haiku, and in arguments of `jit`."""

from __future__ import annotations

import jax

from lunette import ops
from lunette.ops.base import Op

__all__: list[str] = []

for kind in vars(ops).values():
    if isinstance(kind, type) and issubclass(kind, Op) and kind is not Op:
        jax.tree_util.register_static(kind)
