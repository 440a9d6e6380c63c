"""Lunette in JAX: one primitive with every transformation, on the CPU's kernels. Ops are static pytrees once this is imported."""

from lunette.jax import pytrees as _pytrees  # noqa: F401  ops are registered
from lunette.jax.functions import apply, apply_with_indices, set_huge_pages
from lunette.jax.primitive import primitive
from lunette.jax.verbs import Task

__all__ = ["Task", "apply", "apply_with_indices", "primitive", "set_huge_pages"]
