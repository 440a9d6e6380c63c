"""The verbs over JAX arrays and tracers."""

from __future__ import annotations

import lunette.jax  # noqa: F401  ops are pytrees from here on
from lunette.jax.calls import forward, forward_with_indices, jvp, vjp
from lunette.jax.unpooling import unpool

takes_axes = True
"""Ops over other axes than the last come as they are."""

__all__ = ["forward", "forward_with_indices", "jvp", "takes_axes", "unpool", "vjp"]
