"""The implementations that can be checked, by name."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from itertools import islice

from lunette.check.calls import NotOffered
from lunette.check.stream import stream
from lunette.check.targets.base import Program, Target

__all__ = ["TARGETS", "Program", "Target", "find_target", "offered_ops"]

TARGETS: dict[str, tuple[str, str]] = {
    "spec": ("ours", "Ours"),
    "cpu": ("ours", "Ours"),
    "triton": ("triton", "Triton"),
    "torch": ("torch", "Torch"),
    "torch-compile": ("torch", "TorchCompile"),
    "jax": ("jax", "Jax"),
    "lunette-jax": ("lunette_jax", "LunetteJax"),
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


def offered_ops(target: Target) -> list[str]:
    """The ops that the target has words for, at least in some of their first calls."""
    return [op for op in target.ops if _offers(target, op)]


def _offers(target: Target, op: str) -> bool:
    calls = stream([op], target.verbs, target.dtypes, target.layouts, 0, 2, target.fit)
    for call in islice((c for c in calls if not c.bad), 60):
        for variant in target.variants:
            try:
                target.program(replace(call, variant=variant))
                return True
            except NotOffered:
                continue
    return False
