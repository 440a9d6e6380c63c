"""SciPy: the filters of `scipy.ndimage`, which slide with stride one and keep the shape."""

from __future__ import annotations

from lunette.check.calls import Call, NotOffered
from lunette.check.geometry import Geometry
from lunette.check.targets.base import Program, Target, keep_shape

__all__ = ["Scipy"]


class Scipy(Target):
    """`maximum_filter` and `uniform_filter` with constant borders; `special.logsumexp`."""

    name = "scipy"
    modules = ("scipy",)
    distributions = ("scipy", "numpy")
    about = "scipy.ndimage.maximum_filter and uniform_filter, scipy.special.logsumexp"
    ops = ("max", "mean", "global-smooth-max")
    verbs = ("forward",)
    dtypes = tuple(d for d in Target.dtypes if d not in ("float16", "bfloat16"))
    cases = 1500
    unsupported = ("not supported",)
    policies = {  # noqa: RUF012
        "sign of zero": "the documentation of ndimage says nothing of −0",
        "NaN undefined": "maximum_filter: 'the behavior with NaN elements is undefined' (scipy#22714)",
        "running sums": "uniform_filter: 'the results may be imprecise because intermediate results "
        "may be stored with insufficient precision'",
        "empty window": "mode='constant' fills with cval, so a window of padding alone is cval",
        "a pooled axis of length zero": "logsumexp of an empty axis, as NumPy reduces",
    }

    def fit(self, geometry: Geometry) -> Geometry:
        return keep_shape(geometry)

    def program(self, call: Call) -> Program:
        setup = "import numpy as np\nfrom scipy import ndimage, special"
        arguments = call.arguments
        if call.op == "global-smooth-max":
            if arguments["beta"] != 1 or call.x.dtype.kind in "iub":
                raise NotOffered("a beta other than 1, or integers")
            axes = tuple(range(-arguments["ndim"], 0))
            keepdims = arguments.get("keepdims", True)
            return Program(setup, f"y = special.logsumexp(x, {axes}, keepdims={keepdims})")
        origins = self._origins(call)
        axes = tuple(range(-call.rank, 0))
        kernel = arguments["kernel"]
        if call.op == "mean":
            return Program(setup, self._mean(call, origins, axes))
        lowest = {"f": "-np.inf", "b": "False"}.get(call.x.dtype.kind, "np.iinfo(x.dtype).min")
        shape = f"size={kernel}"
        if any(d != 1 for d in arguments["dilation"]):
            raise NotOffered("dilation: a footprint takes no axes")
        more = f"mode='constant', cval={lowest}, origin={origins}, axes={axes}"
        return Program(setup, f"y = ndimage.maximum_filter(x, {shape}, {more})")

    def _mean(self, call: Call, origins: tuple[int, ...], axes: tuple[int, ...]) -> str:
        arguments = call.arguments
        if any(d != 1 for d in arguments["dilation"]):
            raise NotOffered("dilation of a mean")
        padded = any(b or a for b, a in self._pairs(call))
        if padded and not arguments.get("count_include_pad", True):
            raise NotOffered("padding that does not count")
        if arguments.get("divisor_override") is not None:
            raise NotOffered("divisor_override")
        more = f"mode='constant', cval=0, origin={origins}, axes={axes}"
        out = "" if call.x.dtype.kind == "f" else ", output=np.float64"
        return f"y = ndimage.uniform_filter(x, {arguments['kernel']}{out}, {more})"

    def _pairs(self, call: Call) -> list[tuple[int, int]]:
        padding = call.arguments["padding"]
        if padding != "same":
            return list(padding)
        extents = [d * (k - 1) for k, d in zip(*self._columns(call), strict=True)]
        return [(e // 2, e - e // 2) for e in extents]

    def _columns(self, call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return call.arguments["kernel"], call.arguments["dilation"]

    def _origins(self, call: Call) -> tuple[int, ...]:
        """Shifts that put `before` cells in front; the shape must stay."""
        arguments = call.arguments
        if call.bad:
            raise NotOffered("strides, padding and dilation in numbers")
        if any(s != 1 for s in arguments["stride"]):
            raise NotOffered("strides")
        origins = []
        for k, d, (before, after) in zip(*self._columns(call), self._pairs(call), strict=True):
            if before + after != d * (k - 1):
                raise NotOffered("an output of another length than the input")
            origins.append(before - k // 2)
        if any(
            o < -(k // 2) or o > (k - 1) // 2
            for o, k in zip(origins, arguments["kernel"], strict=True)
        ):
            raise NotOffered("a window that does not hold its own place")
        return tuple(origins)
