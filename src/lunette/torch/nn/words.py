"""What the arguments of the modules mean, said once: `documented` writes the docstring of each from its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["documented"]

Kind = TypeVar("Kind", bound=type)

SIZES = "int or tuple of int"
OUTPUT = "int, None, or tuple of them"

WORDS: dict[str, tuple[str, str]] = {
    "op": ("Pooling", "A pooling op, such as `ln.MaxPool((2, 2))`."),
    "kernel": ("tuple of int", "Cells of a window, one length per pooled axis."),
    "kernel_size": (SIZES, "Cells of a window."),
    "stride": (SIZES, "Positions between windows. Default: the kernel."),
    "padding": (SIZES, "Cells around the input."),
    "dilation": (SIZES, "Positions between the cells of a window."),
    "ceil_mode": ("bool", "Keep a last window that the edge cuts short."),
    "ties": ('{"first", "all", "split"}', "Which of equal cells get the gradient."),
    "return_indices": ("bool", "Give the winners' flat positions in the pooled axes, too."),
    "count_include_pad": ("bool", "Count padding, as zeros."),
    "divisor_override": ("int", "Divide by this in place of the number of cells counted."),
    "output_size": (OUTPUT, "How many bins each axis is cut into; None keeps an axis as it is."),
    "ndim": ("int", "How many of the last axes are pooled."),
    "keepdims": ("bool", "Keep the pooled axes, with length one."),
    "axes": (SIZES, "Which axes are pooled, one per window axis. Default: the last."),
    "beta": ("float", "How sharp: finite and not zero."),
    "learnable": ("bool", "Make it a parameter, which is trained like any other."),
    "p": ("float", "The power: positive."),
    "eps": ("float", "What smaller cells are raised to: positive."),
    "norm_type": ("float", "The power."),
    "padding_mode": ('{"reflect", "replicate", "zeros"}', "What lies around x."),
    "in_channels": ("int", "Channels of x."),
    "out_channels": ("int", "Channels of the result."),
    "groups": ("int", "Groups of channels that do not see each other."),
    "bias": ("bool", "Add a number to each channel."),
    "always": ("bool", "Use our kernels for every float CPU tensor, also where torch is faster."),
}
"""Argument → its type and its meaning."""


def documented(example: str, result: str) -> Callable[[Kind], Kind]:
    """Add the arguments, the errors and an example to the docstring of a module."""

    def written(module: Kind) -> Kind:
        parts = ["Parameters", "----------"]
        for parameter in inspect.signature(module).parameters.values():
            kind, meaning = WORDS[parameter.name]
            optional = parameter.default is not parameter.empty
            after = (
                f", default {parameter.default!r}" * (parameter.default is not None) or ", optional"
            )
            parts += [f"{parameter.name} : {kind}{after * optional}", f"    {meaning}"]
        parts += ["", "Raises", "------", "ValueError, TypeError"]
        parts += ["    With the argument, its value and what was expected."]
        parts += [
            "",
            "Examples",
            "--------",
            ">>> import lunette as ln, torch",
            ">>> from lunette.torch import nn",
        ]
        parts += [f">>> {example}", result]
        said: Any = module
        said.__doc__ = "\n".join([inspect.getdoc(module) or "", "", *parts, ""])
        return module

    return written
