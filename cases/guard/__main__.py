"""Draws in this process: `python -m cases.guard --seed 0 --first 0 --count 100`.

Each draw is written before it is performed, so that whoever watches knows which one a fault is of.
"""

from __future__ import annotations

import argparse
import sys

from cases.guard.calls import perform
from cases.guard.draws import DTYPES, draw
from cases.guard.faults import report_faults


def main() -> None:
    """Perform draws; one that fails is told, and the others go on."""
    parser = argparse.ArgumentParser(prog="python -m cases.guard", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--dtypes", nargs="+", choices=sorted(set(DTYPES)), default=DTYPES)
    arguments = parser.parse_args()
    report_faults()
    for number in range(arguments.first, arguments.first + arguments.count):
        now = draw(arguments.seed, number, tuple(arguments.dtypes))
        print("begin", number, now, flush=True)
        try:
            print("end", number, perform(now), flush=True)
        except AssertionError as error:
            print("wrong", number, str(error).replace("\n", " "), flush=True)
    sys.stdout.flush()


main()
