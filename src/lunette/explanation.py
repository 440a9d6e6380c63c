"""Why a kernel serves a call: `lunette.explain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lunette.arguments import choice

if TYPE_CHECKING:
    from lunette.ops.base import Op

__all__ = ["VERBS", "Explanation", "explain"]

VERBS = ("forward", "forward_with_indices", "jvp", "vjp")


@dataclass(frozen=True)
class Explanation:
    """The row of the table of kernels that serves a call, those above it with their refusals, and the schedule."""

    call: str
    refused: tuple[tuple[str, str], ...]
    row: str
    serves: str
    schedule: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        lines = [self.call, f"  served by {self.row}: {self.serves}"]
        named = [(name, why) for name, why in self.refused if not why.startswith("not a ")]
        if named:
            width = max(len(name) for name, _ in named)
            lines.append("  refused above it:")
            lines += [f"    {name:<{width}}  {why}" for name, why in named]
        if others := len(self.refused) - len(named):
            lines.append(f"    and {others} for other reductions")
        if self.schedule:
            lines.append("  schedule:")
            lines += [f"    {what:<8}  {how}" for what, how in self.schedule]
        return "\n".join(lines)


def explain(op: Op, x: Any, *more: Any, verb: str = "forward") -> Explanation:
    """Which kernel serves a verb of an op on these arrays, why each it would be preferred to does not, and how it runs.

    Only shapes, strides and dtypes matter; the kernels are compiled if need be, and nothing else is computed.

    Parameters
    ----------
    op : Op
        What would be computed.
    x : array_like
        On what.
    *more : array_like
        The further operands of an op that has them.
    verb : {"forward", "forward_with_indices", "jvp", "vjp"}, default "forward"
        Which verb.

    Returns
    -------
    Explanation
        Print it to read it; `row` is the name of the kernel.

    Raises
    ------
    ValueError, TypeError
        For what the call itself would refuse.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> ln.explain(ln.MaxPool((2, 2)), np.zeros((8, 64, 32, 32), np.float32)).row
    'max-fwd-nchw-fold'
    """
    from lunette import dispatch
    from lunette.inputs import arrays as arrays_of
    from lunette.ops.pooling import Pooling
    from lunette.reductions import Max, Mean, SmoothMax

    choice(verb, "verb", VERBS)
    name = dispatch.backend_for(op, x, *more, verb=verb)
    arrays = arrays_of(op, (x, *more))
    first = arrays[0]
    call = f"{verb} of {op!r}, {first.dtype}{list(first.shape)}"
    if name != "cpu":
        words = (
            "the specification, in plain loops: no kernel serves"
            if name == "spec"
            else "kernels for GPUs"
        )
        return Explanation(call, (), name, words, ())
    if not isinstance(op, Pooling):
        words = "convolution: tiles and kernel by a cost model, see `kernels/cpu/conv/tiling.py`"
        return Explanation(call, (), "cpu", words, ())
    if type(op.reduction) not in (Max, Mean, SmoothMax):
        words = "min as a max of the numbers turned around; mode and rounded mean by kernels of their own"
        return Explanation(call, (), "integers", words, ())
    if op.axes is not None:
        from lunette.axes import Turn

        first = Turn(op).operands(arrays)[0]
    from lunette.kernels.cpu.explain import explain as of_pooling

    return of_pooling(op.over_last, verb, first)


def by_words(
    reduction: str,
    shape: str,
    window: str,
    stride: int | None,
    padding: int,
    *,
    dtype: str,
    ties: str,
    channels_last: bool,
    verb: str,
) -> Explanation:
    """The explanation of a call that is told in words, as on the command line."""
    import numpy as np

    import lunette as ln

    choice(reduction, "reduction", ("max", "mean", "smooth"))
    lengths, cells = _numbers(shape, "shape"), _numbers(window, "window")
    how: dict[str, Any] = {"stride": stride, "padding": padding}
    if reduction == "max":
        op: Op = ln.MaxPool(cells, **how, ties=ties)  # type: ignore[arg-type]
    else:
        op = (
            ln.AvgPool(cells, **how) if reduction == "mean" else ln.SmoothMaxPool(cells, 1.0, **how)
        )
    laid = (lengths[0], *lengths[2:], lengths[1]) if channels_last and len(lengths) > 1 else lengths
    x = np.zeros(laid, np.dtype(dtype))
    return explain(op, np.moveaxis(x, -1, 1) if laid is not lengths else x, verb=verb)


def _numbers(text: str, name: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"{name} {text!r}: expected whole numbers with commas, such as 3,3"
        ) from None
