"""One call to an implementation: an op by name, its arguments, a verb and the arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lunette import ops
from lunette.cached import cached_property
from lunette.ops.base import Op
from lunette.reductions import SmoothMax
from lunette.regions import Global

__all__ = ["OPS", "VERBS", "Array", "Call", "NotOffered"]

Array = np.ndarray[Any, Any]

VERBS = ("forward", "indices", "jvp", "vjp")
"""What may be asked of an op; `indices` are a max's winners."""


def _global_smooth_max(ndim: int, beta: float, keepdims: bool = True) -> Op:
    return ops.Pool((Global(),) * ndim, SmoothMax(beta), keepdims)


OPS: dict[str, Callable[..., Op] | None] = {
    "max": ops.MaxPool,
    "mean": ops.AvgPool,
    "smooth-max": ops.SmoothMaxPool,
    "adaptive-max": ops.AdaptiveMaxPool,
    "adaptive-mean": ops.AdaptiveAvgPool,
    "global-max": ops.GlobalMaxPool,
    "global-mean": ops.GlobalAvgPool,
    "global-smooth-max": _global_smooth_max,
    "conv": ops.Conv,
    "conv-transpose": ops.ConvTranspose,
    "unpool": None,
}
"""Names of the ops that are checked → what makes them; unpooling is a function, not an op."""


class NotOffered(Exception):
    """The target has no such op, verb, dtype or mode; the text says which.

    Examples
    --------
    What an adapter raises for a call that its library has no function for:

    >>> from lunette.check import NotOffered
    >>> raise NotOffered("no dilation")
    Traceback (most recent call last):
    lunette.check.calls.NotOffered: no dilation
    """


@dataclass(frozen=True)
class Call:
    """What to compute. `arguments` are plain values under the op's own names.

    `operands` are (x,), (x, weight), (x, weight, bias) or, to unpool, (values, indices).
    `tangents` go with `jvp`, one per operand; `gradient` goes with `vjp`. `layout` says how x lies
    in memory. `bad` says why the only right answer is an error; it is empty for a good call.

    Parameters
    ----------
    op : str
        A name of `OPS`.
    arguments : dict
        The op's arguments by name.
    verb : str
        One of `VERBS`.
    operands : tuple of numpy.ndarray
        What it is called with.
    tangents : tuple of numpy.ndarray
        Of `jvp`.
    gradient : numpy.ndarray, optional
        Of `vjp`.
    layout : str
        How x lies in memory.
    variant : str
        Which way of calling, where a library has several.
    tags : frozenset of str
        What the case is about: the properties of the report.
    bad : str
        Why only an error is right.

    Examples
    --------
    >>> import numpy as np
    >>> from lunette.check import Call
    >>> call = Call("max", {"kernel": (2,)}, "forward", (np.array([1.0, 5.0]),))
    >>> call.op, call.bad
    ('max', '')
    """

    op: str
    arguments: dict[str, Any]
    verb: str
    operands: tuple[Array, ...]
    tangents: tuple[Array, ...] = ()
    gradient: Array | None = None
    layout: str = "contiguous"
    variant: str = ""
    tags: frozenset[str] = field(default=frozenset(), compare=False)
    bad: str = ""

    @property
    def x(self) -> Array:
        """The first operand."""
        return self.operands[0]

    @property
    def dtype(self) -> str:
        """Name of the first operand's dtype."""
        return str(self.x.dtype.name)

    @cached_property
    def lunette_op(self) -> Op:
        """The op; the errors of its constructor pass through."""
        make = OPS[self.op]
        if make is None:
            raise TypeError(f"{self.op} is a function, not an op")
        return make(**self.arguments)

    @cached_property
    def rank(self) -> int:
        """The number of axes that the windows slide over."""
        for name in ("kernel", "output_size"):
            if name in self.arguments:
                return len(self.arguments[name])
        return int(self.arguments["ndim"])

    @property
    def batch(self) -> tuple[int, ...]:
        """The axes before the pooled ones; of a convolution, those before the channels."""
        channels = int(self.op.startswith("conv"))
        return tuple(self.x.shape[: self.x.ndim - self.rank - channels])

    @property
    def pooled(self) -> tuple[int, ...]:
        """Lengths of the axes that the windows slide over."""
        return tuple(self.x.shape[self.x.ndim - self.rank :])

    def arrays(self) -> dict[str, Array]:
        """Every array by the name it has in a program."""
        names = ("values", "indices") if self.op == "unpool" else ("x", "weight", "bias")
        named = dict(zip(names, self.operands, strict=False))
        named |= {f"d{n}": t for n, t in zip(names, self.tangents, strict=False)}
        return named if self.gradient is None else {**named, "gy": self.gradient}

    def with_arrays(self, arrays: dict[str, Array]) -> Call:
        """The same call on other arrays, named as in `arrays()`."""
        names = [n for n in ("values", "x", "weight", "bias", "indices") if n in arrays]
        return replace(
            self,
            operands=tuple(arrays[n] for n in names),
            tangents=tuple(arrays[f"d{n}"] for n in names if f"d{n}" in arrays),
            gradient=arrays.get("gy"),
        )

    @cached_property
    def key(self) -> str:
        """A digest of everything that decides the expected value."""
        digest = hashlib.sha256(repr((self.op, self.arguments, self.verb)).encode())
        for name, a in self.arrays().items():
            digest.update(repr((name, a.dtype.name, a.shape)).encode())
            digest.update(np.ascontiguousarray(a).tobytes())
        return digest.hexdigest()
