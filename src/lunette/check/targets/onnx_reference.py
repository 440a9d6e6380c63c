"""The ONNX reference evaluator: plain NumPy, written to say what the standard means."""

from __future__ import annotations

from typing import Any

from lunette.check.calls import Array, Call
from lunette.check.targets.base import Program
from lunette.check.targets.onnx_models import OnnxTarget
from lunette.check.targets.onnxruntime import flat_in_image

__all__ = ["OnnxReference"]


class OnnxReference(OnnxTarget):
    """onnx.reference.ReferenceEvaluator."""

    name = "onnx-reference"
    modules = ("onnx",)
    distributions = ("onnx",)
    about = "onnx.reference.ReferenceEvaluator"
    dtypes = ("float32", "float64", "float16", "int8", "uint8")
    cases = 3000

    def program(self, call: Call) -> Program:
        setup = (
            f"{self.model(call)}\nfrom onnx.reference import ReferenceEvaluator\n"
            "evaluator = ReferenceEvaluator(model)"
        )
        feeds = ", ".join(f"{n!r}: {n}" for n in call.arrays())
        return Program(setup, f"y = evaluator.run(None, {{{feeds}}})[-1]" + flat_in_image(call))

    def bind(self, name: str, a: Array, layout: str) -> Any:
        return a
