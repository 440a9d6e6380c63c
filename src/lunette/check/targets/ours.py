"""Our own backends, through the library's front door."""

from __future__ import annotations

from typing import Any

from lunette.check.calls import Call, NotOffered
from lunette.check.targets.base import Program, Target

__all__ = ["Ours"]


class Ours(Target):
    """`spec` and every backend of `lunette.dispatch`."""

    distributions: tuple[str, ...] = ("numpy", "numba")
    complete = True
    seconds = 60.0  # the first call of a kind compiles

    def __init__(self, backend: str) -> None:
        self.name = self.backend = backend
        self.about = f"Lunette's own backend {backend!r}"
        if backend == "spec":
            self.distributions = ("numpy",)
            self.cases = 2500

    def versions(self) -> dict[str, str]:
        from lunette import __version__

        return {"lunette": __version__, **super().versions()}

    def program(self, call: Call) -> Program:
        setup = "import numpy as np\nimport lunette as ln\nfrom lunette import dispatch"
        if call.op == "unpool":
            if self.backend != "spec":
                raise NotOffered("unpooling is the same on every backend")
            size = call.arguments["output_size"]
            return Program(setup, f"y = ln.max_unpool(values, indices, {size})")
        op, backend = op_text(call), f"backend={self.backend!r}"
        operands = ", ".join(n for n in ("x", "weight", "bias") if n in call.arrays())
        tangents = ", ".join(f"d{n}" for n in ("x", "weight", "bias") if f"d{n}" in call.arrays())
        body = {
            "forward": f"y = dispatch.forward(op, {operands}, {backend})",
            "indices": f"y = dispatch.forward_with_indices(op, {operands}, {backend})[1]",
            "jvp": f"y = dispatch.jvp(op, ({operands},), ({tangents},), {backend})",
            "vjp": f"y = dispatch.vjp(op, ({operands},), gy, {backend})",
        }[call.verb]
        return Program(setup, f"op = {op}\n{body}")


def op_text(call: Call) -> str:
    """The op's constructor, spelled out."""
    names = {
        "max": "MaxPool", "mean": "AvgPool", "smooth-max": "SmoothMaxPool",
        "adaptive-max": "AdaptiveMaxPool", "adaptive-mean": "AdaptiveAvgPool",
        "global-max": "GlobalMaxPool", "global-mean": "GlobalAvgPool", "conv": "Conv",
        "conv-transpose": "ConvTranspose",
    }  # fmt: skip
    arguments = call.arguments
    if call.op == "global-smooth-max":
        keepdims: Any = arguments.get("keepdims", True)
        return (
            f"ln.Pool((ln.Global(),) * {arguments['ndim']}, ln.SmoothMax({arguments['beta']}), "
            f"{keepdims})"
        )
    try:
        return f"ln.{call.lunette_op!r}"
    except (ValueError, TypeError):
        spelled = ", ".join(f"{k}={v!r}" for k, v in arguments.items())
        return f"ln.{names[call.op]}({spelled})"
