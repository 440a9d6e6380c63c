"""The numbers of a step of a chain of kernels."""

from __future__ import annotations

__all__ = ["ARRAYS", "FLAGS", "FLAGS_STEP", "KERNEL", "STEP", "TABLE", "UNITS"]

KERNEL, TABLE, UNITS, FLAGS, FLAGS_STEP, ARRAYS = range(6)
"""Addresses of a kernel and of its table, its units, the number after the table, and that of the next part less that, or −1
for a place in scratch memory; then where each of three arrays is, and how many bytes further that of the next part: 0 for a place in scratch memory."""

STEP = ARRAYS + 6
"""Numbers of a step."""
