"""What a target is: a translator of calls into short programs in its own words.

A call becomes source text that reads the arrays `x`, `weight`, … and assigns one result. The text
that runs in the worker is the text that a finding prints, so what is reported is what ran.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
import shlex
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np

from lunette.check.calls import OPS, VERBS, Array, Call
from lunette.check.geometry import Geometry, valid
from lunette.check.inputs import in_layout
from lunette.check.stream import DTYPES
from lunette.inputs import result as plain

__all__ = ["Program", "Target", "array_literal", "keep_shape", "numbers"]


DISTRIBUTIONS = {
    "torch": "lunette-ops[torch]",
    "jax": "lunette-ops[jax]",
    "onnx": "lunette-ops[onnx]",
    "cv2": "opencv-python-headless",
}
"""Module → what to install for it, where that is not its own name."""


@dataclass(frozen=True)
class Program:
    """`setup` runs once for many calls; `body` runs for each and leaves its answer in `result`."""

    setup: str
    body: str
    result: str = "y"


class Target:
    """An implementation under test. Subclasses say what they offer and translate calls.

    A default run makes `cases` calls; each may take `seconds` and use `memory` bytes beyond the
    libraries. A `complete` target answers every call that it offers: a refusal is wrong.

    Everything here but `bind`, `unbind` and `prepare` runs without the target's own library.
    """

    name = ""
    modules: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()
    about = ""
    ops: tuple[str, ...] = tuple(OPS)
    verbs: tuple[str, ...] = VERBS
    dtypes: tuple[str, ...] = DTYPES
    layouts: tuple[str, ...] = ("contiguous", "strided", "offset", "transposed", "negative")
    variants: tuple[str, ...] = ("",)
    cases = 3000
    inputs = 1
    seconds = 20.0
    memory = 4 << 30
    complete = False
    environment: dict[str, str] = {}  # noqa: RUF012
    policies: dict[str, str] = {}  # noqa: RUF012
    unsupported: tuple[str, ...] = ()

    def missing(self) -> str:
        """What to install, where it is not installed: a sentence with the line to do it."""
        needed = [DISTRIBUTIONS.get(module, module) for module in self.modules]
        return f"{self.name} is not installed: pip install {' '.join(map(shlex.quote, needed))}"

    def installed(self) -> bool:
        """Whether its modules can be found; imports nothing."""
        try:
            return all(importlib.util.find_spec(m) is not None for m in self.modules)
        except ModuleNotFoundError:
            return False

    def versions(self) -> dict[str, str]:
        """Versions of what is under test."""
        found = {}
        for name in self.distributions:
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
        return found

    def fit(self, geometry: Geometry) -> Geometry:
        """A geometry near this one that the target is more likely to offer."""
        return geometry

    def program(self, call: Call) -> Program:
        """The call in the target's own words; `NotOffered` where it has none."""
        raise NotImplementedError

    def literal(self, name: str, a: Array, layout: str) -> list[str]:
        """Lines that make this array."""
        lines = [f"{name} = {array_literal(a, 'np.array', f'np.{a.dtype.name}')}"]
        if a.dtype.name == "bfloat16":
            lines = [f"{name} = {array_literal(a, 'np.array', 'ml_dtypes.bfloat16')}"]
        views = {
            "strided": f"np.repeat({name}, 2, -1)[..., ::2]",
            "offset": f"np.concatenate([{name}.ravel()[:1], {name}.ravel()])[1:].reshape({name}.shape)",
            "transposed": f"np.ascontiguousarray({name}.T).T",
            "negative": f"np.ascontiguousarray({name}[..., ::-1])[..., ::-1]",
        }
        return [*lines, f"{name} = {views[layout]}"] if layout in views else lines

    def snippet(self, call: Call) -> str:
        """The program with its arrays: lines to paste."""
        program = self.program(call)
        lines = [program.setup.strip()]
        for name, a in call.arrays().items():
            main = name in ("x", "values")
            lines += self.literal(name, a, call.layout if main else "contiguous")
        lines += [program.body.strip(), f"print({program.result})"]
        text = "\n".join(lines)
        if "ml_dtypes" in text:
            text = f"import ml_dtypes\n{text}"
        named = [n for n in ("inf", "nan") if re.search(rf"(?<![\w.]){n}\b", text)]
        if named:
            text = f"from math import {', '.join(named)}\n{text}"
        return text

    # -- in the worker --

    def warm(self) -> None:
        """Import the target's libraries."""
        for module in self.modules:
            importlib.import_module(module)

    def prepare(self) -> None:
        """Called in the worker before each new setup."""

    def bind(self, name: str, a: Array, layout: str) -> Any:
        """The array as the target takes it."""
        return in_layout(a, layout)

    def unbind(self, result: Any) -> list[Array]:
        """The result as NumPy arrays."""
        several = isinstance(result, (tuple, list))
        return [plain(r, "a result") for r in (result if several else [result])]


def keep_shape(geometry: Geometry, leading: tuple[int, ...] | None = None) -> Geometry:
    """Stride one, no dilation, and padding that gives an output of the input's shape."""
    arguments = dict(geometry.arguments)
    if "kernel" not in arguments or not 0 < math.prod(geometry.shapes[0]) < 2000:
        return geometry
    rank = len(arguments["kernel"])
    pads, padding = [], arguments["padding"]
    for axis, k in enumerate(arguments["kernel"]):
        front = (k - 1) // 2 if padding == "same" else min(padding[axis][0], k - 1)
        pads.append((front, k - 1 - front))
    arguments |= {
        "stride": (1,) * rank, "dilation": (1,) * rank, "padding": tuple(pads), "ceil_mode": False,
    }  # fmt: skip
    if "count_include_pad" in arguments:
        arguments["count_include_pad"] = True
    arguments.pop("divisor_override", None)
    shape = geometry.shapes[0]
    batch = shape[: len(shape) - rank] if leading is None else leading
    fitted = Geometry(
        geometry.op, arguments, ((*batch, *shape[len(shape) - rank :]),), geometry.hard
    )
    return valid(fitted) or geometry


def numbers(a: Array) -> str:
    """The cells as nested lists; whole numbers without a fraction in front of a type that needs it."""
    if a.ndim == 0:
        value = a.item() if a.dtype.name != "bfloat16" else float(a)
        return repr(value)
    return "[" + ", ".join(numbers(row) for row in a) + "]"


def array_literal(a: Array, make: str, dtype: str) -> str:
    """`make([...], dtype)`; long arrays as a repeated number with a few set apart."""
    module = make.partition(".")[0]
    if a.size == 0:
        return f"{module}.zeros({tuple(a.shape)}, dtype={dtype})"
    if a.size > 64:
        first = numbers(np.asarray(a.reshape(-1)[0]))
        if _all_equal(a):
            return f"{module}.full({tuple(a.shape)}, {first}, dtype={dtype})"
        if a.size > 4096:
            return f"...  # {a.size} cells of {dtype}, shape {a.shape}"
    if a.size > 8 and _all_equal(a):
        first = numbers(np.asarray(a.reshape(-1)[0]))
        return f"{module}.full({tuple(a.shape)}, {first}, dtype={dtype})"
    return f"{make}({numbers(a)}, dtype={dtype})"


def _all_equal(a: Array) -> bool:
    flat = a.reshape(-1)
    first = flat[0]
    if a.dtype.kind not in "iub" and math.isnan(float(first)):
        return bool(np.isnan(flat).all())
    return bool((flat == first).all() and (a.dtype.kind in "iub" or float(first) != 0))
