"""The right implementation's windows: which positions each output reads along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette.check import Call


class Axis:
    """One pooled axis: the positions that each output reads, which are real, how many are counted."""

    def __init__(self, positions: Any, n: int, counted: Any) -> None:
        self.positions = np.asarray(positions, np.int64).reshape(len(positions), -1)
        self.real = (self.positions >= 0) & (self.positions < n)
        self.counted, self.n = np.asarray(counted, np.int64), n


def axes_of(call: Call, wrong: str) -> list[Axis]:
    arguments = call.arguments
    if "output_size" in arguments:
        return [
            adaptive(n, m, wrong)
            for n, m in zip(call.pooled, arguments["output_size"], strict=True)
        ]
    if "ndim" in arguments:
        return [Axis([range(n)], n, [n]) for n in call.pooled]
    names = ("kernel", "stride", "dilation")
    columns = [arguments[k] for k in names]
    padding = arguments["padding"]
    pads = [padding] * call.rank if padding == "same" else padding
    ceil = arguments.get("ceil_mode", False)
    return [
        sliding(n, k, s, d, p, ceil, wrong, call)
        for n, k, s, d, p in zip(call.pooled, *columns, pads, strict=True)
    ]


def sliding(n: int, k: int, s: int, d: int, p: Any, ceil: bool, wrong: str, call: Call) -> Axis:
    if wrong == "stride is kernel":
        s = k
    if wrong == "dilation ignored" or (wrong == "dilation ignored in vjp" and call.verb == "vjp"):
        d_read = 1
    else:
        d_read = d
    extent = d * (k - 1) + 1
    if p == "same":
        total = max((-(-n // s) - 1) * s + extent - n, 0)
        p = (total // 2, total - total // 2)
        if wrong == "same puts the odd cell in front":
            p = (p[1], p[0])
        outs = -(-n // s)
    else:
        if wrong == "padding swapped":
            p = (p[1], p[0])
        room = n + p[0] + p[1] - extent
        outs = room // s + 1
        if ceil and wrong != "ceil_mode ignored":
            outs = -(-room // s) + 1
            if (outs - 1) * s >= n + p[0] and wrong != "ceil keeps windows past the input":
                outs -= 1
    if wrong == "last window lost" and outs > 3:
        outs -= 1
    start = np.arange(max(outs, 0)) * s - p[0]
    if wrong == "last window off by one" and outs > 1:
        start[-1] -= 1
    if wrong == "padding off by one" and p[0]:
        start = start + 1
    positions = start[:, None] + np.arange(k) * d_read
    counted = np.minimum(k, (n + p[1] - 1 - start) // d + 1)
    if wrong == "divisor counts cells past the padding":
        counted = np.full(len(start), k)
    if wrong == "vector tail dropped" and n % 8 == 7:
        positions = np.where(positions == n - 1, -(10**6), positions)
    return Axis(positions, n, counted)


def adaptive(n: int, m: int, wrong: str) -> Axis:
    starts = [i * n // m for i in range(m)]
    stops = [-(-(i + 1) * n // m) for i in range(m)]
    if wrong == "adaptive bins end too early":
        stops = [max(s + 1, (i + 1) * n // m) for i, s in enumerate(starts)]
    if wrong == "growing bins repeat in order" and m > n:
        starts = [min(i, n - 1) for i in range(m)]
        stops = [s + 1 for s in starts]
    width = max(b - a for a, b in zip(starts, stops, strict=True))
    rows = [[*range(a, b), *[-1] * (width - (b - a))] for a, b in zip(starts, stops, strict=True)]
    return Axis(rows, n, [b - a for a, b in zip(starts, stops, strict=True)])
