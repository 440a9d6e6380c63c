"""Prints the names of the kernels that calls need, in the order in which they are asked for: a pickled list of calls on standard input."""

import json
import pickle
import sys

from lunette.kernels.cpu.jit import cache as library
from lunette.warmup import make


def main() -> None:
    """Make each call; kernels that the disk has are loaded from there."""
    names, made = [], library._loaded_or_compiled

    def recorded(*name):
        names.append(name)
        return made(*name)

    library._loaded_or_compiled = recorded
    for call in pickle.load(sys.stdin.buffer):
        make(call)
    json.dump(names, sys.stdout)


if __name__ == "__main__":
    main()
