"""The implementations that can be checked, by name."""

from __future__ import annotations

from importlib import import_module

from lunette.check.targets.base import Program, Target

__all__ = ["TARGETS", "Program", "Target", "find_target"]

TARGETS: dict[str, tuple[str, str]] = {
    "spec": ("ours", "Ours"),
    "cpu": ("ours", "Ours"),
    "triton": ("triton", "Triton"),
    "torch": ("torch", "Torch"),
    "torch-compile": ("torch", "TorchCompile"),
    "jax": ("jax", "Jax"),
    "onnxruntime": ("onnxruntime", "OnnxRuntime"),
    "onnx-reference": ("onnx_reference", "OnnxReference"),
    "scipy": ("scipy", "Scipy"),
    "opencv": ("opencv", "OpenCV"),
}
"""Name → the file and the class here that speak for it."""


def find_target(name: str) -> Target:
    """The target of this name, or `module:function` for an adapter of the user's own."""
    if name in TARGETS:
        file, kind = TARGETS[name]
        make = getattr(import_module(f"lunette.check.targets.{file}"), kind)
        target: Target = make(name) if file == "ours" else make()
        return target
    if ":" in name:
        from lunette.check.targets.custom import Custom

        return Custom(name)
    known = ", ".join(TARGETS)
    raise ValueError(f"target {name!r}: expected one of {known}, or module:function")
