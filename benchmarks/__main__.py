"""`python -m benchmarks`: the pooling table; `python -m benchmarks NAME …`: another of them."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

SUITES = (
    "pooling",
    "draw",
    "fused",
    "convolution",
    "scaling",
    "gpu",
    "scale",
    "torch_models",
    "torch_cuda",
    "versions",
)
"""Modules of this package with a `main(arguments)`; the first is the default."""


def main(arguments: list[str]) -> None:
    """Hand the arguments to a suite."""
    known = [name for name in SUITES if find_spec(f"benchmarks.{name}")]
    if arguments[:1] == ["--list"]:
        print("\n".join(known))
        return
    if not arguments or arguments[0].startswith("-"):
        arguments = [SUITES[0], *arguments]
    name, *rest = arguments
    if name not in known:
        sys.exit(f"benchmarks: {name!r} is none of {', '.join(known)}")
    import_module(f"benchmarks.{name}").main(rest)


if __name__ == "__main__":
    main(sys.argv[1:])
