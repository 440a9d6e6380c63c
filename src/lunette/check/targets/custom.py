"""Anything a user writes: a function of a call, named `module:function` or `file.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from lunette.check.calls import Array, Call, NotOffered
from lunette.check.targets.base import Program, Target

__all__ = ["Custom"]


class Custom(Target):
    """The adapter may carry `offers` (names of ops) and `policies` (name → where it is documented)."""

    about = "an adapter of your own"
    layouts = ("contiguous", "strided", "offset", "transposed", "negative")

    def __init__(self, name: str) -> None:
        self.name = name
        self.place, _, self.function = name.rpartition(":")
        if not self.place or not self.function.isidentifier():
            raise ValueError(f"target {name!r}: expected module:function or file.py:function")
        adapter = self.adapter()
        self.ops = tuple(getattr(adapter, "offers", Target.ops))
        self.verbs = tuple(getattr(adapter, "verbs", Target.verbs))
        self.dtypes = tuple(getattr(adapter, "dtypes", Target.dtypes))
        self.policies = dict(getattr(adapter, "policies", {}))

    def adapter(self) -> Any:
        """The function itself; a ValueError where there is none."""
        try:
            if self.place.endswith(".py"):
                module = _module_of(Path(self.place))
            else:
                module = importlib.import_module(self.place)
            found = getattr(module, self.function)
        except (ImportError, OSError, AttributeError) as error:
            raise ValueError(f"target {self.name!r}: {error}") from None
        if not callable(found):
            raise ValueError(f"target {self.name!r}: {self.function} is not a function")
        return found

    def program(self, call: Call) -> Program:
        if call.op not in self.ops:
            raise NotOffered(f"no {call.op}")
        if self.place.endswith(".py"):
            setup = (
                "from lunette.check.targets.custom import Custom\n"
                f"adapter = Custom({self.name!r}).adapter()"
            )
        else:
            setup = f"from {self.place} import {self.function} as adapter"
        return Program(
            f"import numpy as np\nfrom lunette.check import Call\n{setup}", "y = adapter(call)"
        )

    def snippet(self, call: Call) -> str:
        names = list(call.arrays())
        operands = [n for n in names if n in ("x", "weight", "bias", "values", "indices")]
        tangents = [n for n in names if n.startswith("d")]
        more = f", tangents=({', '.join(tangents)},)" if tangents else ""
        more += ", gradient=gy" if "gy" in names else ""
        build = (
            f"call = Call({call.op!r}, {call.arguments!r}, {call.verb!r}, "
            f"({', '.join(operands)},){more})"
        )
        text = super().snippet(call)
        return text.replace("y = adapter(call)", f"{build}\ny = adapter(call)")

    def unbind(self, result: Any) -> list[Array]:
        return super().unbind(result)


def _module_of(path: Path) -> Any:
    name = f"lunette_check_adapter_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    description = importlib.util.spec_from_file_location(name, path)
    if description is None or description.loader is None or not path.exists():
        raise ImportError(f"no file {path}")
    module = importlib.util.module_from_spec(description)
    sys.modules[name] = module
    description.loader.exec_module(module)
    return module
