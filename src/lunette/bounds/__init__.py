"""What a network can return: bounds on every output over a box of inputs, as deployed.

`lunette.bounds` is a package that is also a function: `ln.bounds(tape, y, {x: Box(lo, hi)})`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from lunette.bounds.box import Box
from lunette.bounds.certificate import certificate, least_values
from lunette.bounds.deployed import Deployment
from lunette.bounds.outputs import bounds, lower_bounds
from lunette.bounds.split import Verdict, decide

__all__ = [
    "Box",
    "Deployment",
    "Verdict",
    "bounds",
    "certificate",
    "decide",
    "least_values",
    "lower_bounds",
]


class _Bounds(ModuleType):
    """This package, callable."""

    def __call__(self, *arguments: Any, **options: Any) -> Box:
        return bounds(*arguments, **options)


sys.modules[__name__].__class__ = _Bounds
