"""Draws in this process: `python -m cases.guard --seed 0 --first 0 --count 100`.

Each draw is written before it is performed, so that whoever watches knows which one a fault is of.
"""

from __future__ import annotations

import argparse
import os

from cases.guard.calls import perform
from cases.guard.directed import DIRECTED
from cases.guard.draws import DTYPES, draw
from cases.guard.faults import report_faults
from cases.guard.small_sizes import make_sizes_small


def main() -> None:
    """Perform draws; one that fails is told, and the others go on."""
    parser = argparse.ArgumentParser(prog="python -m cases.guard", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--dtypes", nargs="+", choices=sorted(set(DTYPES)), default=DTYPES)
    parser.add_argument("--convolutions", type=float, default=0.2, help="their share")
    parser.add_argument("--small-sizes", action="store_true", help="see cases/guard/small_sizes.py")
    parser.add_argument("--directed", action="store_true", help="those chosen by hand")
    arguments = parser.parse_args()
    report_faults()
    if arguments.small_sizes:
        make_sizes_small()
    numbers = range(arguments.first, arguments.first + arguments.count)
    dtypes = tuple(arguments.dtypes)
    share = arguments.convolutions
    draws = ((number, draw(arguments.seed, number, dtypes, share)) for number in numbers)
    if arguments.directed:
        draws = (pair for pair in enumerate(DIRECTED) if pair[0] in numbers)
    for number, now in draws:
        print("begin", number, now, flush=True)
        try:
            print("end", number, perform(now), flush=True)
        except AssertionError as error:
            print("wrong", number, str(error).replace("\n", " "), flush=True)
    os._exit(0)  # arrays that modules hold would be freed after the code that does it


main()
