"""What only JAX has: ops on arrays whose channels are last, and a setting of its results' memory."""

from __future__ import annotations

from typing import Any

from lunette.arguments import flag
from lunette.jax import calls
from lunette.jax.cpu.handler import huge_pages
from lunette.ops.base import Op

__all__ = ["apply", "apply_with_indices", "set_huge_pages"]


def apply(op: Op, *operands: Any, channels_last: bool = False, backend: str | None = None) -> Any:
    """The op's value. With `channels_last`, x is `(*batch, *pooled, channels)`, and so is the result.

    No array is transposed: the kernels go by channels. Flat positions are those in the pooled axes, as ever.

    Parameters
    ----------
    op : Op
        What to compute.
    *operands : jax.Array
        x of a pooling; x, weight and perhaps bias of a convolution.
    channels_last : bool, default False
        Whether the channels are the last axis.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default.

    Returns
    -------
    jax.Array
        The value.

    Raises
    ------
    ValueError, TypeError
        With the argument, its value, the axis and the remedy, also under `jit`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lunette as ln
    >>> ln.jax.apply(ln.MaxPool((2, 2)), jnp.zeros((1, 8, 8, 3)), channels_last=True).shape
    (1, 4, 4, 3)
    """
    return calls.forward(op, operands, backend, channels_last)


def apply_with_indices(
    op: Op, x: Any, channels_last: bool = False, backend: str | None = None
) -> tuple[Any, Any]:
    """A max's or a min's value and the flat positions of its winners in the pooled axes, likewise.

    Parameters
    ----------
    op : Op
        A max or a min.
    x : jax.Array
        What is pooled.
    channels_last : bool, default False
        Whether the channels are the last axis.
    backend : {"cpu", "triton", "spec"}, optional
        Who computes; the fastest that serves the call by default.

    Returns
    -------
    tuple of jax.Array
        The value, and the indices.

    Raises
    ------
    ValueError, TypeError
        Also for an op that has no winners.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lunette as ln
    >>> y, indices = ln.jax.apply_with_indices(ln.MaxPool((2,)), jnp.array([1.0, 5.0]))
    >>> int(indices[0])
    1
    """
    value, indices = calls.forward_with_indices(op, (x,), backend, channels_last)
    return value, indices


def set_huge_pages(wanted: bool) -> None:
    """Whether results of more than four megabytes ask for huge pages, on Linux: off by default.

    XLA gives each result fresh memory, and the first write to each page costs a fault. Where huge pages are given on request
    (`/sys/kernel/mm/transparent_hugepage/enabled` says `madvise`), there are five hundred times fewer of these.

    Parameters
    ----------
    wanted : bool
        Whether to ask.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.jax.set_huge_pages(False)
    """
    huge_pages(flag(wanted, "wanted"))
