"""ONNX Runtime on the CPU, at four opsets."""

from __future__ import annotations

from typing import Any

from lunette.check.calls import Array, Call, NotOffered
from lunette.check.targets.base import Program
from lunette.check.targets.onnx_models import OnnxTarget

__all__ = ["OnnxRuntime", "flat_in_image"]


class OnnxRuntime(OnnxTarget):
    """A session per model, on one thread, with the graph optimisations that a user gets."""

    name = "onnxruntime"
    modules = ("onnx", "onnxruntime")
    distributions = ("onnxruntime", "onnx")
    about = (
        "ONNX Runtime's CPU provider: MaxPool, AveragePool, Global*, ReduceLogSumExp, Conv, "
        "ConvTranspose"
    )
    dtypes = ("float32", "float64", "float16", "int8", "uint8", "int64")
    cases = 3000
    seconds = 10.0
    unsupported = (
        "NOT_IMPLEMENTED", "NotImplemented", "InvalidGraph", "Unsupported type", "is unsupported",
    )  # fmt: skip

    def program(self, call: Call) -> Program:
        setup = (
            f"{self.model(call)}\nimport onnxruntime\n"
            "options = onnxruntime.SessionOptions()\n"
            "options.log_severity_level = 4\n"
            "options.intra_op_num_threads = 1\n"
            "session = onnxruntime.InferenceSession(model.SerializeToString(), options, "
            "providers=['CPUExecutionProvider'])"
        )
        feeds = ", ".join(f"{n!r}: {n}" for n in call.arrays())
        body = f"y = session.run(None, {{{feeds}}})[-1]"
        return Program(setup, body + flat_in_image(call))

    def bind(self, name: str, a: Array, layout: str) -> Any:
        return a


def flat_in_image(call: Call) -> str:
    """ONNX counts indices from the start of the tensor; a line to count them within each image."""
    if call.verb != "indices":
        return ""
    if 0 in call.x.shape:
        raise NotOffered("indices of nothing")
    return "\ny = np.where(y < 0, y, y % np.prod(x.shape[2:]))  # positions within an image"
