"""The numbers of a step of a chain of kernels."""

from __future__ import annotations

__all__ = ["ARRAYS", "FLAGS", "FLAGS_STEP", "KERNEL", "STEP", "TABLE", "UNITS"]

KERNEL, TABLE, UNITS, FLAGS, FLAGS_STEP, ARRAYS = range(6)
"""Addresses of a kernel and of its table, its units, the number after the table, and that of the next part less that, or −1
for a place in scratch memory; then of each of three arrays where it is, how many bytes further that of the next part (0 for a place in scratch
memory), and how many that of the last part, which ends with the array and may begin in the part before."""

STEP = ARRAYS + 9
"""Numbers of a step."""
